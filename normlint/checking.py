"""The main job: check models, repair them where that is wanted, and report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlint.baseline import FILE, Baseline, read, with_baseline
from normlint.discover import STDIN, content_of, discover, is_folder
from normlint.model.remote import is_url
from normlint.outputs import parse_outputs, write_outputs
from normlint.plugins import load_cards, load_rules
from normlint.report import DRAWS_NORMS, TELLS_MEASUREMENTS, stream
from normlint.report.look import visible
from normlint.report.progress import Progress
from normlint.report.settings import settings_text
from normlint.report.view import View
from normlint.results import Report
from normlint.run import check_all, is_alone, plan, preflight
from normlint.stale import with_stale_ignores
from normlint.usage import UsageError
from normlint.verdict import Gate, judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.config import Config, Resolver
    from normlint.discover import Target
    from normlint.results import ModelReport
    from normlint.run import Job


@dataclass(frozen=True)
class Wishes:
    """What is asked of a check besides the configuration."""

    apply: bool = False
    diff: bool = False
    output: Path | None = None
    output_dir: Path | None = None
    backup: bool = False
    inputs: Path | None = None
    reference: Path | None = None
    explain_misses: bool = False
    baseline: bool = True
    allow_empty: bool = False
    statistics: bool = False
    exit_non_zero_on_fix: bool = False
    show_files: bool = False
    show_settings: bool = False
    quiet: bool = False
    verbose: bool = False
    progress: bool = True
    color: str = "auto"
    scheduler: str | None = None
    """Address of a cluster that checks the models."""
    inventory: bool = False
    """Whether a format wants every normalisation."""


@dataclass(frozen=True)
class Survey:
    """What a run found, before a baseline and before the verdict."""

    config: Config
    """The configuration of the run as a whole."""
    jobs: tuple[Job, ...]
    models: tuple[ModelReport, ...]


def check(paths: Sequence[str], resolver: Resolver, wishes: Wishes) -> int:
    """Run `normlint check` and give its exit code. Raises `UsageError`, `PackError`."""
    config = resolver.for_folder(first_folder(paths))
    outputs = parse_outputs(config.output_format)
    if wishes.show_files or wishes.show_settings:
        stream.emit(_shown(paths, resolver, wishes))
        return 0
    known = baseline_of(config) if wishes.baseline else None
    drawn = DRAWS_NORMS if config.settings.data is None else TELLS_MEASUREMENTS
    wanted = any(output.format in drawn for output in outputs)
    told = wanted or wishes.explain_misses or wishes.verbose
    found = survey(paths, resolver, replace(wishes, inventory=told))
    models, notes = _known_marked(found, known)
    report = Report(models)
    gate = Gate(config.fail_on, wishes.diff, wishes.exit_non_zero_on_fix)
    verdict = judge(report, gate)
    view = View(
        verdict=verdict,
        rules=load_cards(),
        diff=wishes.diff,
        statistics=wishes.statistics,
        misses=wishes.explain_misses,
        unsafe=config.unsafe_fixes,
        quiet=wishes.quiet,
        verbose=wishes.verbose,
    )
    for note in notes:
        stream.say(f"normlint: {note}")
    write_outputs(replace(report, exit_code=verdict.code), view, outputs, wishes.color)
    return verdict.code


def survey(paths: Sequence[str], resolver: Resolver, wishes: Wishes) -> Survey:
    """Check the models and mark what is ignored on purpose."""
    config = resolver.for_folder(first_folder(paths))
    targets = discover(paths, resolver.for_folder, allow_empty=wishes.allow_empty)
    here = wishes.scheduler is None and is_alone(len(targets), config.jobs, config.timeout)
    # Rules that run here say themselves what they are; reading their files besides takes time that
    # counts in a hook. So does importing them where others run them.
    if here and targets and _is_readable(targets[0]):
        load_rules()
    jobs = _jobs(targets, resolver, wishes)
    with Progress(len(jobs), wanted=wishes.progress and not wishes.quiet) as progress:
        models = check_all(jobs, config.jobs, progress.done, config.timeout, wishes.scheduler)
    return Survey(config, tuple(jobs), with_stale_ignores(jobs, models, load_cards()))


def baseline_of(config: Config) -> Baseline | None:
    """Read the baseline that is configured, or lies beside the configuration under its own name."""
    if config.baseline is not None:
        return read(Path(config.baseline))
    path = (config.root or Path()) / FILE
    return read(path) if path.is_file() else None


def _known_marked(
    found: Survey, known: Baseline | None
) -> tuple[tuple[ModelReport, ...], list[str]]:
    if known is None:
        return found.models, []
    models, notes = [], []
    for job, model in zip(found.jobs, found.models, strict=True):
        marked, said = with_baseline(model, known, {rule.code for rule in job.rules})
        models.append(marked)
        notes += said
    return tuple(models), notes


def _shown(paths: Sequence[str], resolver: Resolver, wishes: Wishes) -> str:
    targets = discover(paths, resolver.for_folder, allow_empty=wishes.allow_empty)
    if wishes.show_files:
        return "".join(f"{visible(target.name)}\n" for target in targets)
    first = _config_of(targets[0], resolver) if targets else resolver.for_folder(Path())
    return settings_text(first)


def first_folder(paths: Sequence[str]) -> Path:
    """Give the folder whose configuration holds for the run as a whole."""
    first = Path(paths[0])
    if paths[0] == STDIN or is_url(paths[0]):
        return Path()
    return first if is_folder(first) else first.parent


def _config_of(target: Target, resolver: Resolver) -> Config:
    return resolver.for_folder(Path() if target.path is None else target.path.parent)


def _jobs(targets: Sequence[Target], resolver: Resolver, wishes: Wishes) -> list[Job]:
    outputs = _destinations(targets, wishes)
    rules = load_cards()
    jobs = []
    for target, output in zip(targets, outputs, strict=True):
        options: dict[str, Any] = {
            "apply": wishes.apply,
            "diff": wishes.diff,
            "output": output,
            "backup": wishes.backup,
            "inputs": wishes.inputs,
            "reference": wishes.reference,
            "inventory": wishes.inventory,
        }
        config = _config_of(target, resolver)
        if config.settings.data is not None and not config.settings.data.is_file():
            raise UsageError(f"data {config.settings.data} does not exist")
        if wishes.reference is not None and config.settings.data is None:
            raise UsageError("--reference compares outputs on your inputs; give some with --data")
        job = plan(target, config, rules, options)
        jobs.append(replace(job, data=content_of(target)))
    return jobs


def _is_readable(target: Target) -> bool:
    return target.path is None or preflight(target, None) is None


def _destinations(targets: Sequence[Target], wishes: Wishes) -> list[Path | None]:
    """Say where each repaired model goes; None for where it came from."""
    if wishes.inputs is not None and not wishes.inputs.is_file():
        raise UsageError(f"--inputs {wishes.inputs} does not exist")
    if wishes.reference is not None and not wishes.reference.is_file():
        raise UsageError(f"--reference {wishes.reference} does not exist")
    if (wishes.output or wishes.output_dir) and not wishes.apply:
        raise UsageError("--output and --output-dir say where --apply writes; add --apply")
    if wishes.output is not None and wishes.output_dir is not None:
        raise UsageError("--output and --output-dir exclude each other")
    if wishes.output is not None and len(targets) > 1:
        raise UsageError(f"--output names one file for {len(targets)} models; use --output-dir DIR")
    placeless = next((target for target in targets if target.path is None), None)
    if placeless and wishes.apply and not (wishes.output or wishes.output_dir or wishes.diff):
        what = placeless.name if placeless.url else "a model from standard input"
        raise UsageError(f"{what} needs --output FILE or --output-dir DIR with --apply")
    if wishes.output_dir is None:
        return [wishes.output] * len(targets)
    destinations = [wishes.output_dir / target.inside for target in targets]
    taken: set[Path] = set()
    for destination in destinations:
        if destination in taken:
            raise UsageError(f"two models would be written to {destination}")
        taken.add(destination)
    return list(destinations)
