"""The report for a person: each thing once, with its places, its repair and where to read on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normlint.report.documents import plain
from normlint.report.groups import Group, grouped, is_connected
from normlint.report.look import SEVERITY, visible
from normlint.report.norms import near_norm_text, norm_place
from normlint.report.summary import statistics, summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from normlint.report.view import View
    from normlint.results import Finding, FixReport, ModelReport, Report, Verification

_PLACES = 8
_OPS = 16


def full(report: Report, view: View) -> str:
    """Render the report."""
    blocks = []
    for model in report.models:
        blocks += _diff(model, view) if view.diff and model.readable else _findings(model, view)
    return finish(blocks, report, view)


def finish(blocks: list[str], report: Report, view: View) -> str:
    """Put the blocks of a text report together with its summary."""
    end = list(_misses(report)) if view.misses else []
    end += _remarks(report) if view.verbose else []
    end += statistics(report) if view.statistics else []
    if not view.quiet:
        end += summary(report, view)
    return "".join(f"{block}\n" for block in (*blocks, *end))


def _misses(report: Report) -> Iterator[str]:
    for model in report.models:
        for near in model.near_norms:
            yield f"{visible(model.path)}: {near_norm_text(near)}"
        for finding in model.findings:
            for pin in finding.evidence.get("pinned", ()):
                yield visible(f"{model.path}: {finding.code}: {_pinned(pin)}")


def _pinned(pin: Mapping[str, Any]) -> str:
    """Say what keeps a norm as it is, and through which tensors."""
    chain = "".join(f" → {name}" for name in pin["chain"])
    return f"{pin['norm']} stays{chain}: {pin['detail']} ({pin['reason']} at {pin['at']})"


def _remarks(report: Report) -> Iterator[str]:
    for model in report.models:
        for norm in model.inventory:
            if said := norm.get("remark"):
                yield f"{visible(model.path)}: {norm_place(norm)}: {said}, not reported"


def _findings(model: ModelReport, view: View) -> list[str]:
    shown = [finding for finding in model.findings if finding.suppressed is None]
    return [f"{block(group, view)}\n" for group in grouped(model, shown)]


def _diff(model: ModelReport, view: View) -> list[str]:
    if not model.changes:
        return []
    colours = {"-": "red", "+": "green", "@": "cyan"}
    path = visible(model.path)
    lines = [view.look(f"--- {path}", "bold"), view.look(f"+++ {path} (repaired)", "bold")]
    lines += [view.look(visible(line), colours.get(line[:1], "")) for line in model.changes]
    return lines


def mark(finding: Finding, view: View) -> str:
    """Give `[*]` where `--apply` repairs it, `[fixed]` where it is repaired, else nothing."""
    fix = finding.fix
    if fix is None:
        return ""
    if fix.applied:
        return " [fixed]"
    return " [*]" if fix.applicability == "safe" or view.unsafe else ""


def block(group: Group, view: View) -> str:
    """Render what was found as lines without a last line break."""
    return "\n".join((_head(group, view), *_body(group, view)))


def _head(group: Group, view: View) -> str:
    finding = group.first
    code = view.look(f"{finding.code} {finding.rule}", SEVERITY[finding.severity.value])
    fixed = finding.fix is not None and finding.fix.applied
    sign = view.look(mark(finding, view), "green" if fixed else "cyan")
    times = f" {len(group)} ×" if len(group) > 1 else ""
    path = view.look(visible(group.model.path), "bold")
    return f"{path}: {code}{sign} {finding.severity.value}:{times} {visible(finding.message)}"


def _body(group: Group, view: View) -> Iterator[str]:
    finding = group.first
    if place_text(finding):
        yield from _places(group, view)
    if chain := _chain(finding):
        yield f"   {view.look('does ', 'dim')} {chain}"
    if finding.fix is not None:
        yield f"   {view.look('fix  ', 'dim')} {_fix(group, finding.fix)}"
    if finding.not_fixed is not None:
        yield f"   {view.look('stays', 'dim')} {_stays(finding)}"
    if view.verbose:
        for key, value in plain(finding.evidence).items():
            yield f"   {view.look('fact ', 'dim')} {visible(f'{key} = {value}')}"
    yield f"   {view.look('more ', 'dim')} normlint explain {finding.code}"


def _places(group: Group, view: View) -> Iterator[str]:
    label = "at   "
    for finding in group.findings[:_PLACES]:
        yield f"   {view.look(label, 'dim')} {place_text(finding)}"
        if where := _where(finding):
            yield f"   {view.look('in   ', 'dim')} {where}"
        if finding.message != group.first.message:
            yield f"   {view.look('where', 'dim')} {visible(finding.message)}"
    if len(group) > _PLACES:
        yield f"         … and {len(group) - _PLACES} more (--output-format json lists all)"


def place_text(finding: Finding) -> str:
    """Give the graph and the nodes of a finding; empty where it is about the file."""
    if not finding.node and not finding.output:
        return ""
    names = [visible(name) for name in finding.nodes] or [visible(finding.node)]
    text = names[0] or f"output {visible(finding.output)}"
    if len(names) > 1:
        shared = names[0].rpartition("/")[0] + "/"
        text += f" … {names[-1].removeprefix(shared)}  ({len(names)} nodes)"
    return f"{visible(finding.graph)} › {text}"


def _where(finding: Finding) -> str:
    parts = (finding.module, finding.source)
    return "  ".join(visible(part) for part in parts if part)


def _chain(finding: Finding) -> str:
    """Give the operators of what was found in their order, from what is read to what is given."""
    steps = [step for step in finding.picture if step.role == "match"]
    made = {name for step in steps for name in step.outputs}
    if len(steps) < 2 or not is_connected(steps):
        return ""
    read = next((name for step in steps for name in step.inputs if name not in made), "")
    ops = [step.op for step in steps]
    if len(ops) > _OPS:
        ops = [*ops[: _OPS - 2], f"… {len(ops) - _OPS + 1} more", ops[-1]]
    last = finding.output or next(iter(steps[-1].outputs), "")
    return visible(" → ".join(name for name in (read, *ops, last) if name))


def _fix(group: Group, fix: FixReport) -> str:
    worst = _worst(group)
    proof = "" if worst is None else f"; {_proof(worst)}"
    return f"{visible(fix.title)}  ({fix.applicability}{proof})"


def _worst(group: Group) -> Verification | None:
    """Give the verification that moved the numbers most."""
    proofs = [f.fix.verification for f in group.findings if f.fix and f.fix.verification]
    return max(proofs, key=lambda proof: proof.max_abs, default=None)


def _proof(proof: Verification) -> str:
    tried = f"{proof.inputs} input{'' if proof.inputs == 1 else 's'}"
    return f"max |Δ| {proof.max_abs:.2g} on {tried}, verified by {proof.method}"


def _stays(finding: Finding) -> str:
    missed = finding.not_fixed
    if missed is None:
        return ""
    at = f" at {visible(missed.at)}" if missed.at else ""
    detail = f": {visible(missed.detail)}" if missed.detail else ""
    return f"{missed.reason}{at}{detail}"
