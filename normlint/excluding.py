"""`normlint norms --list`: what a quantiser must leave in float, in the words of the quantiser."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from normlint.context.quantized import LAYOUT, has_statistics
from normlint.model import FileFault
from normlint.report import stream
from normlint.run import preflight
from normlint.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from normlint.context import Context, Settings
    from normlint.discover import Target
    from normlint.graph import Node, Tensor

LAYER_PRECISIONS, IGNORED_SCOPE = "layer-precisions", "ignored-scope"
_ARITHMETIC = frozenset(("Add", "Sub", "Mul", "Div", "Sum"))
_FARTHEST = 8
_PAIR = frozenset(("QuantizeLinear", "DequantizeLinear"))


def list_excluded(targets: Sequence[Target], settings: Settings, form: str) -> int:
    """Print the nodes of one model that must stay in float; give the exit code.

    Raises UsageError where there is not exactly one model, or it cannot be read.
    """
    from normlint.context import Context
    from normlint.discover import content_of
    from normlint.graph import build_graph
    from normlint.model import open_model

    target = targets[0] if len(targets) == 1 else None
    if target is None:
        raise UsageError(f"--list names the nodes of one model, not of {len(targets)}")
    data = content_of(target)
    fault = preflight(target, data)
    try:
        if fault is not None:
            raise fault
        model = open_model(data or target.path or b"", name=target.name)
    except FileFault as found:
        raise UsageError(f"{target.name}: {found.message}") from found
    context = Context(build_graph(model.proto, model.values), settings)
    names = list(dict.fromkeys(nodes_in_float(context)))
    stream.emit_document(_written(names, form))
    if "" in names:
        stream.say("normlint: some of these nodes have no name, and cannot be listed")
    return 0


def nodes_in_float(context: Context) -> Iterator[str]:
    """Give the names of the nodes of norms and residual additions, and of arithmetic before them.

    A quantiser rounds the result of each node that it quantises for all readers, so a bias that is
    added in front of a residual addition must stay in float with it.
    """
    nodes: dict[Node, None] = {}
    for norm in context.norms:
        if has_statistics(norm):
            nodes.update(dict.fromkeys(norm.nodes))
            nodes.update(dict.fromkeys(_arithmetic(norm.x)))
    for of_stream in context.streams:
        if any(has_statistics(norm) for norm in of_stream.norms):
            for add in of_stream.adds:
                node = add.step.node
                nodes[node] = None
                nodes.update(dict.fromkeys(n for t in node.inputs for n in _arithmetic(t)))
    return (node.name for node in nodes if node.op not in _PAIR)


def _arithmetic(tensor: Tensor) -> Iterator[Node]:
    """Give the arithmetic whose result a tensor is, through layout."""
    for _ in range(_FARTHEST):
        node = tensor.producer
        if node is None or not node.inputs:
            return
        if node.op in _ARITHMETIC:
            yield node
            return
        if node.op not in LAYOUT:
            return
        tensor = node.inputs[0]


def _written(names: list[str], form: str) -> str:
    named = [name for name in names if name]
    if form == LAYER_PRECISIONS:
        return ",".join(f"{name}:fp32" for name in named)
    if form == IGNORED_SCOPE:
        return json.dumps({"names": named}, indent=1)
    return json.dumps(named, indent=1)
