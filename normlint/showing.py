"""`normlint show`: a model as text, or a part of it drawn."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from normlint.checking import Wishes, survey
from normlint.deferred import dataclass
from normlint.discover import STDIN, STDIN_NAME, Target, content_of, missing, remote_target
from normlint.model.fault import FileFault
from normlint.model.remote import is_url
from normlint.report import stream
from normlint.report.excerpt import Excerpt, excerpt
from normlint.report.look import visible
from normlint.report.mermaid import mermaid
from normlint.report.svg import STYLE, svg, svg_pair
from normlint.run import preflight
from normlint.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.config import Resolver
    from normlint.model.source import Source
    from normlint.results import Finding, Step
    from normlint.stream_picture import StreamPicture

TEXT, MERMAID, SVG = "text", "mermaid", "svg"


@dataclass(frozen=True)
class Part:
    """What is to be shown; the whole model where nothing is given."""

    node: str | None = None
    """Glob over the names of nodes."""
    finding: str | None = None
    """Fingerprint of a finding, or the beginning of it."""
    stream: int | None = None
    """Number of a residual stream."""


def show(model: str, part: Part, form: str, resolver: Resolver) -> int:
    """Show a model and give the exit code. Raises `UsageError`."""
    if sum(choice is not None for choice in (part.node, part.finding, part.stream)) > 1:
        raise UsageError("--node, --finding and --stream exclude each other")
    target = _target(model)
    data = content_of(target)
    try:
        fault = preflight(target, data)
        if fault is not None:
            raise fault
        stream.emit(_text(target, data, part, form, resolver))
    except FileFault as fault:
        stream.say(f"{visible(target.name)}: {fault.code} {visible(fault.message)}")
        return 1
    return 0


def _target(model: str) -> Target:
    if model == STDIN:
        return Target(STDIN_NAME, None)
    if is_url(model):
        return remote_target(model)
    path = Path(model)
    if not os.path.exists(path):  # noqa: PTH110 - it says no where a name is too long
        raise UsageError(missing(path, model))
    return Target(path.as_posix(), path)


def _text(
    target: Target, data: bytes | Source | None, part: Part, form: str, resolver: Resolver
) -> str:
    if part.finding is not None:
        return _drawn_finding(_finding(target, part.finding, resolver), form)
    if part.stream is not None:
        return _drawn_stream(target, data, part.stream, form, resolver)
    from normlint.model import open_model
    from normlint.outline import neighbourhood, outline

    source = data if target.path is None else target.path
    proto = open_model(source if source is not None else b"", name=target.name).proto
    if part.node is None and form == TEXT:
        return "".join(f"{visible(line)}\n" for line in outline(proto))
    if part.node is None:
        raise UsageError(f"--format {form} draws a part: add --node, --finding or --stream")
    steps = neighbourhood(proto, part.node)
    if not steps:
        raise UsageError(f"no node matches {part.node!r}")
    return drawn(steps, form, part.node)


def drawn(steps: Sequence[Step], form: str, title: str) -> str:
    """Draw nodes in a format; as text, one a line, with a mark before those that are meant."""
    if form == MERMAID:
        return mermaid(steps)
    if form == SVG:
        return svg(steps, title=title, style=STYLE) + "\n"
    lines = [
        f"{' ' if step.role == 'near' else '>'} {step.op}({', '.join(step.inputs)}) "
        f"-> {', '.join(step.outputs)}  ({step.name})"
        for step in steps
    ]
    return "".join(f"{visible(line)}\n" for line in lines)


def _finding(target: Target, wanted: str, resolver: Resolver) -> Finding:
    if target.path is None and target.url is None:
        raise UsageError("--finding needs a model that is a file")
    [model] = survey([target.url or target.name], resolver, Wishes(progress=False)).models
    for finding in model.findings:
        if finding.fingerprint.startswith(wanted) and wanted:
            return finding
    raise UsageError(
        f"no finding of {target.name} has the fingerprint {wanted!r} "
        "(--output-format json lists them)"
    )


def _drawn_finding(finding: Finding, form: str) -> str:
    part, title = excerpt(finding), finding.message
    if form == TEXT:
        part = Excerpt(finding.picture, finding.fix.picture if finding.fix is not None else ())
    if not part.after:
        return drawn(part.before, form, title)
    if form == SVG:
        return svg_pair(part.before, part.after, title=title) + "\n"
    return f"{drawn(part.before, form, title)}\n{drawn(part.after, form, title)}"


def _drawn_stream(
    target: Target, data: bytes | Source | None, number: int, form: str, resolver: Resolver
) -> str:
    from normlint import engine
    from normlint.report.stream_drawing import stream_mermaid, stream_svg
    from normlint.report.stream_map import stream_map

    folder = Path() if target.path is None else target.path.parent
    settings = resolver.for_folder(folder).settings
    found: Sequence[StreamPicture] = engine.streams_of(
        target.path, data=data, name=target.name, settings=settings
    )
    if not 0 <= number < len(found):
        raise UsageError(f"{target.name} has {len(found)} residual streams, numbered from 0")
    if form == MERMAID:
        return stream_mermaid(found[number])
    if form == SVG:
        return stream_svg(found[number]) + "\n"
    return "".join(f"{line}\n" for line in stream_map([found[number]]))
