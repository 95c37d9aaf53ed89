"""Check and repair models from Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlint.discover import Target
from normlint.plugins import load_cards
from normlint.results import Report
from normlint.run import Job, check_one
from normlint.selection import Selection, require_known, selected
from normlint.suppress import Suppressor
from normlint.verdict import Gate, judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import ModelProto

    from normlint.cards import Card
    from normlint.context.settings import Settings


def check(
    model: str | Path | bytes | ModelProto,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    preview: bool = False,
    settings: Settings | None = None,
) -> Report:
    """Check one model: a path, the bytes of a file, or a ModelProto.

    `select` and `ignore` name rules as on the command line; configuration files are not read. A
    file that is no model is a finding. Raises `UsageError` for a rule that there is not.

    >>> from normlint import check
    >>> report = check(b"")
    >>> [finding.rule for finding in report.findings]
    ['empty-file']
    """
    return _run(model, _rules(select, ignore, preview=preview), settings, {})


def apply(
    model: str | Path | bytes | ModelProto,
    output: str | Path | None = None,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    preview: bool = False,
    settings: Settings | None = None,
    backup: bool = False,
) -> Report:
    """Check one model, repair it, and write it to `output`, or over the file that it came from.

    Repairs that change the function are made where `settings.unsafe_fixes` says so. A model that is
    no file needs an `output`. Findings that were repaired have `fix.applied`; those that remain are
    reported as by `check`.

    >>> import tempfile
    >>> from normlint import Settings, apply
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = apply(
    ...         "sample_models/vit_opset_13.onnx",
    ...         f"{folder}/repaired.onnx",
    ...         select=["NL201"],
    ...         settings=Settings(target_opset=17),
    ...     )
    >>> report.fixed, report.exit_code
    (5, 0)
    """
    target = None if output is None else Path(output)
    options = {"apply": True, "backup": backup, "output": target}
    return _run(model, _rules(select, ignore, preview=preview), settings, options)


def _rules(select: Sequence[str], ignore: Sequence[str], *, preview: bool) -> tuple[Card, ...]:
    rules = load_cards()
    require_known((*select, *ignore), rules, "select and ignore")
    return selected(rules, Selection(tuple(select), (), tuple(ignore), preview))


def _run(
    model: str | Path | bytes | ModelProto,
    rules: tuple[Card, ...],
    settings: Settings | None,
    options: dict[str, Any],
) -> Report:
    from normlint.context.settings import Settings

    target, data = _target(model)
    job = Job(target, rules, settings or Settings(), {}, Suppressor(), options, data)
    report = Report((check_one(job),))
    return replace(report, exit_code=judge(report, Gate()).code)


def _target(model: str | Path | bytes | ModelProto) -> tuple[Target, bytes | None]:
    if isinstance(model, str | Path):
        path = Path(model)
        return Target(path.as_posix(), path), None
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return Target("<model>", None), data
