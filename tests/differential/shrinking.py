"""Making a failing model small: fewer outputs, fewer nodes, values given instead of computed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import onnx
from onnx import helper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from differential.random_graphs import Example


def shrunk(example: Example, fails: Callable[[Example], bool]) -> Example:
    """Give the smallest model found that still fails; cuts are tried until none helps."""
    plain = replace(example, model=example.plain)
    current = plain if example.model is not example.plain and fails(plain) else example
    if current.model.graph.node[0].op_type in {"If", "Loop", "Network"}:
        return current
    progress = True
    while progress:
        progress = False
        for smaller in _cuts(current):
            if fails(smaller):
                current, progress = smaller, True
                break
    return current


def _cuts(example: Example) -> Iterator[Example]:
    graph = example.model.graph
    made = [name for node in graph.node for name in node.output if name]
    for name in made:
        if len(graph.output) > 1 or name != graph.output[0].name:
            yield _cut(example, [name], set())
    for name in reversed(made):
        if name in example.shapes:
            yield _cut(example, [value.name for value in graph.output], {name})


def _cut(example: Example, outputs: list[str], given: set[str]) -> Example:
    """Keep what the outputs need, with some of the values given as inputs."""
    old = example.model.graph
    wanted = {name for name in outputs if name not in given}
    nodes = []
    for node in reversed(old.node):
        if wanted.isdisjoint(set(node.output) - given):
            continue
        nodes.insert(0, node)
        wanted.update(name for name in node.input if name)
    model = onnx.ModelProto()
    model.CopyFrom(example.model)
    graph = model.graph
    del graph.node[:], graph.output[:], graph.input[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(node for node in nodes)
    graph.initializer.extend(tensor for tensor in old.initializer if tensor.name in wanted)
    graph.input.extend(value for value in old.input if value.name in wanted - given)
    for name in sorted(given & wanted):
        graph.input.append(helper.make_tensor_value_info(name, example.dtype, example.shapes[name]))
    known = {value.name: value for value in old.output}
    for name in outputs:
        value = known.get(name) or helper.make_tensor_value_info(name, example.dtype, None)
        graph.output.append(value)
    return replace(example, model=model)
