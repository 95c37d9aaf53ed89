"""`normlint baseline`: write down what is known, and forget what is gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from normlint.baseline import FILE, Baseline, Entries, known_of, matched, read, text
from normlint.checking import Wishes, first_folder, survey
from normlint.model.remote import is_url
from normlint.report import stream
from normlint.report.look import visible
from normlint.report.summary import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from normlint.config import Resolver
    from normlint.results import ModelReport

CREATE, UPDATE, PRUNE, SHOW = "create", "update", "prune", "show"


def keep(mode: str, paths: Sequence[str], resolver: Resolver) -> int:
    """Do what `normlint baseline MODE` says and give the exit code. Raises `UsageError`."""
    config = resolver.for_folder(first_folder(paths))
    path = Path(config.baseline) if config.baseline else (config.root or Path()) / FILE
    if mode == SHOW:
        stream.emit(_shown(read(path)))
        return 0
    old = Baseline(path) if mode == CREATE and not path.exists() else read(path)
    found = survey(paths, resolver, Wishes(allow_empty=mode == PRUNE))
    models = dict(old.models)
    left_out = 0
    for job, model in zip(found.jobs, found.models, strict=True):
        if not model.readable:
            continue
        codes = {rule.code for rule in job.rules}
        models[old.key(model.path)] = _entries(mode, model, old.of(model.path), codes)
        left_out += _unknown(model, old.of(model.path)) if mode != CREATE else 0
    if mode == PRUNE:
        models = {key: kept for key, kept in models.items() if _exists(old, key)}
    new = replace(old, models=models)
    stream.save(text(new), path)
    stream.say(f"{path}: {plural(_count(new), 'known finding')}, {_count(old)} before.")
    if left_out and mode == UPDATE:
        stream.say(f"{plural(left_out, 'new finding')} left out; baseline create would add them.")
        return 1
    return 0


def _entries(mode: str, model: ModelReport, old: Entries, codes: Collection[str]) -> Entries:
    """Give the new entries of a model; those of rules that did not run stay."""
    entries = {code: known for code, known in old.items() if code not in codes}
    found = known_of(model)
    if mode == CREATE:
        return entries | found
    known = matched(model.findings, old)
    if mode == UPDATE:
        return entries | {
            code: [name for name in names if name in known] for code, names in found.items()
        }
    for code in old.keys() & set(codes):
        names = found.get(code, [])
        # What is known by count only keeps its place, as many as there are findings.
        exact = [name for name in old[code] if name in names]
        others = [name for name in old[code] if name not in names]
        entries[code] = [*exact, *others[: max(0, len(names) - len(exact))]]
    return entries


def _unknown(model: ModelReport, old: Entries) -> int:
    known = matched(model.findings, old)
    return sum(name not in known for names in known_of(model).values() for name in names)


def _exists(baseline: Baseline, key: str) -> bool:
    return is_url(key) or (baseline.path.absolute().parent / key).exists()


def _count(baseline: Baseline) -> int:
    return sum(len(names) for entries in baseline.models.values() for names in entries.values())


def _shown(baseline: Baseline) -> str:
    lines = [
        f"{visible(model)}: {len(names)} × {code}"
        for model, entries in sorted(baseline.models.items())
        for code, names in sorted(entries.items())
    ]
    lines.append(f"{plural(_count(baseline), 'known finding')} in {baseline.path}.")
    return "".join(f"{line}\n" for line in lines)
