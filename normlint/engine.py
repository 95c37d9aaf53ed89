"""One model from its file to its report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from normlint.deferred import dataclass
from normlint.model import FileFault, SaveError, open_model
from normlint.plugins import rule_of
from normlint.results import Finding, ModelReport, WrittenReport
from normlint.suppress import Suppressor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from normlint.context import Context, Settings
    from normlint.measure import Measured
    from normlint.model import ModelFile, Source
    from normlint.repair import Repaired
    from normlint.rule import Rule
    from normlint.stream_picture import StreamPicture

    Wanted = Callable[[Finding], bool]


@dataclass(frozen=True)
class Options:
    """What is to be done with a model besides looking at it."""

    apply: bool = False
    diff: bool = False
    """Make the rewrites, write nothing, and say what would change."""
    output: Path | None = None
    backup: bool = False
    verify: str = "region"
    """none, region or model."""
    inputs: Path | None = None
    """The user's own inputs (npz) for `verify = "model"`."""
    reference: Path | None = None
    """The float model that unsafe repairs must bring the outputs nearer to, on `Settings.data`."""
    inventory: bool = False
    """Whether the report lists every normalisation, and what only looks like one."""
    max_model_size: int | None = None
    """Bytes above which a model is not opened."""

    @property
    def repairs(self) -> bool:
        """Whether rewrites are made, if only to see what would change."""
        return self.apply or self.diff


def check_model(
    path: Path | None,
    *,
    data: bytes | Source | None = None,
    name: str,
    rules: Sequence[Rule],
    settings: Settings,
    options: Options | None = None,
    suppressor: Suppressor | None = None,
) -> ModelReport:
    """Check one model, from a file, bytes or a source, and repair it where the options say so.

    A file that cannot be read is a finding of the report. What `suppressor` says not to count (with
    the ignores that the model carries itself) is not repaired.
    """
    options = options or Options()
    suppressor = suppressor or Suppressor()
    try:
        model = open_model(_source(path, data), name=name, max_size=options.max_model_size)
    except FileFault as fault:
        return ModelReport(name, findings=_of_fault(fault, rules), readable=False)
    faults = tuple(finding for fault in model.faults for finding in _of_fault(fault, rules))
    try:
        if options.repairs:
            ignored = suppressor.with_model(_ignores(model))
            report = _repaired(
                model, name, rules, settings, options=options, wanted=lambda f: ignored(f) is None
            )
        else:
            report = _looked_at(model, name, rules, settings, options)
    except Exception:
        refused = _contradiction(model)
        if refused is None:
            raise
        return ModelReport(name, findings=(*faults, *_of_fault(refused, rules)), readable=False)
    return replace(report, findings=(*faults, *report.findings))


def _contradiction(model: ModelFile) -> FileFault | None:
    """Give the fault of a model that stopped the analysis because it contradicts itself."""
    from normlint.contradiction import contradiction

    said = contradiction(model.proto)
    return None if said is None else FileFault("NL905", f"the model contradicts itself: {said}")


def _source(path: Path | None, data: bytes | Source | None) -> Path | bytes | Source:
    if path is not None:
        return path
    if data is None:
        raise ValueError("a model is a file, bytes or a source of them")
    return data


def _of_fault(fault: FileFault, rules: Sequence[Rule]) -> tuple[Finding, ...]:
    rule = rule_of(fault.code)
    if rule is None or all(other.code != fault.code for other in rules):
        return ()
    evidence: dict[str, Any] = {"tensors": list(fault.tensors)} if fault.tensors else {}
    return (Finding(fault.code, rule.name, rule.severity, str(fault), graph="", evidence=evidence),)


def _looked_at(
    model: ModelFile, name: str, rules: Sequence[Rule], settings: Settings, options: Options
) -> ModelReport:
    from normlint.context import Context
    from normlint.findings import Reporter, speak
    from normlint.graph import build_graph

    measure = _measure(model, settings)
    context = Context(build_graph(model.proto, model.values), settings, measure)
    reporter = Reporter(context.graph)
    findings = tuple(reporter.finding(rule, said) for rule, said in speak(rules, context))
    return _report(model, name, context, findings, options)


def _measure(model: ModelFile, settings: Settings) -> Callable[[Context], Measured] | None:
    """Give what measures the norms on the user's data, once it is asked for."""
    if settings.data is None:
        return None
    from normlint.measure import MeasureOnce

    return MeasureOnce(model, settings.data)


def _repaired(
    model: ModelFile,
    name: str,
    rules: Sequence[Rule],
    settings: Settings,
    *,
    options: Options,
    wanted: Wanted,
) -> ModelReport:
    from normlint.changes import changed_lines
    from normlint.findings import Reporter
    from normlint.judging import is_unsafe, judged, with_refusals
    from normlint.repair import Repair

    def repaired(settings: Settings) -> Repaired:
        return Repair(
            model,
            rules,
            settings,
            verify=options.verify != "none",
            wanted=wanted,
            measure=_measure(model, settings),
        ).run()

    result = repaired(settings)
    compared = judged(model, result, settings, options.reference)
    refused: list[Finding] = []
    if compared is not None and not compared["kept"]:
        refused = [finding for finding in result.fixed if is_unsafe(finding)]
        result = repaired(replace(settings, unsafe_fixes=False))
    assert result.context is not None  # noqa: S101 - run() sets it
    reporter = Reporter(result.context.graph)
    remaining = [reporter.finding(rule, said) for rule, said in result.remaining]
    remaining = with_refusals(remaining, refused, compared)
    findings = (*result.fixed, *result.failed, *remaining)
    if options.verify == "model" and result.fixed:
        moved = _whole(model, result, options)
        if moved:
            unwritten = tuple(_unapplied(finding) for finding in findings)
            return _report(model, name, result.context, (*unwritten, *moved), options)
    report = replace(_report(model, name, result.context, findings, options), reference=compared)
    if result.fixed:
        report = replace(report, changes=changed_lines(model.proto, result.proto))
    if options.diff:
        return replace(report, findings=tuple(_unapplied(finding) for finding in findings))
    try:
        return replace(report, written=_write(model, name, result, options))
    except SaveError as fault:
        unwritten = tuple(_unapplied(finding) for finding in findings)
        return replace(report, findings=(*unwritten, *_not_written(fault)))


def _whole(model: ModelFile, result: Repaired, options: Options) -> tuple[Finding, ...]:
    from normlint.verify.whole import compare_models

    problem = compare_models(model, result.proto, result.new_values, options.inputs)
    rule = rule_of("NL990")
    if problem is None or rule is None:
        return ()
    message = f"nothing was written, for the whole model's outputs moved: {problem}"
    return (Finding(rule.code, rule.name, rule.severity, message),)


def _write(model: ModelFile, name: str, result: Repaired, options: Options) -> WrittenReport | None:
    from normlint.model import copy_model, save_model

    target = options.output or model.path
    if target is None:
        raise SaveError("a model that is no local file needs --output")
    if not result.fixed:
        if options.output is not None and target != model.path:
            copy_model(model, target)
        return None
    written = save_model(
        model, result.proto, target, new_values=result.new_values, backup=options.backup
    )
    shown = name if options.output is None else str(target)
    return WrittenReport(
        shown,
        written.sha256_before,
        written.sha256_after,
        len(model.proto.graph.node),
        len(result.proto.graph.node),
    )


def _unapplied(finding: Finding) -> Finding:
    if finding.fix is None or not finding.fix.applied:
        return finding
    return replace(finding, fix=replace(finding.fix, applied=False))


def _not_written(fault: SaveError) -> tuple[Finding, ...]:
    rule = rule_of("NL990")
    if rule is None:
        return ()
    return (Finding(rule.code, rule.name, rule.severity, f"nothing was written: {fault}"),)


def _report(
    model: ModelFile,
    name: str,
    context: Context,
    findings: tuple[Finding, ...],
    options: Options,
) -> ModelReport:
    from normlint.findings import counted

    proto = model.proto
    inventory = _inventory(name, context) if options.inventory else {}
    return ModelReport(
        name,
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
        opset={entry.domain or "ai.onnx": entry.version for entry in proto.opset_import},
        nodes=len(proto.graph.node),
        norms=counted(norm.kind for norm in context.norms),
        findings=findings,
        ignores=_ignores(model),
        inventory=tuple(inventory.get("norms", ())),
        near_norms=tuple(inventory.get("near_norms", ())),
        measured=_measurements(name, context) if options.inventory else (),
    )


def _measurements(name: str, context: Context) -> tuple[dict[str, Any], ...]:
    if context.settings.data is None or context.measured is None:
        return ()
    from normlint.measure.document import document

    return tuple(document(name, context, context.measured)["norms"])


def _inventory(name: str, context: Context) -> dict[str, Any]:
    from normlint.norms import norms_document

    return norms_document(name, context)


def _ignores(model: ModelFile) -> str:
    if not model.carries_ignores:
        return ""
    from normlint.carried import carried_ignores

    return carried_ignores(model.proto)


def streams_of(
    path: Path | None, *, data: bytes | Source | None = None, name: str, settings: Settings
) -> tuple[StreamPicture, ...]:
    """Give the residual streams of one model, for pictures of them. Raises FileFault."""
    from normlint.context import Context
    from normlint.graph import build_graph
    from normlint.stream_picture import stream_pictures

    model = open_model(_source(path, data), name=name)
    return stream_pictures(Context(build_graph(model.proto, model.values), settings))


def norms_of(
    path: Path | None, *, data: bytes | Source | None = None, name: str, settings: Settings
) -> dict[str, Any]:
    """Give the entry of one model in the document of `normlint norms`. Raises FileFault."""
    from normlint.context import Context
    from normlint.graph import build_graph
    from normlint.norms import norms_document

    model = open_model(_source(path, data), name=name)
    return norms_document(name, Context(build_graph(model.proto, model.values), settings))
