"""Pictures of findings, as plain data: the nodes with those right beside them, before and after."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from normlint.results import Step
from normlint.rule import Computed, NewNode, Redirect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from normlint.graph import Addresses, Node
    from normlint.rule import Rewrite

_LARGEST = 40
"""Nodes of a picture that a finding is about, and nodes beside them."""
_READERS = 4
"""Readers of one tensor that are drawn."""


def before(nodes: Sequence[Node], address: Addresses) -> tuple[Step, ...]:
    """Draw the nodes of a finding (the first, where they are many) and the ring around them."""
    matched = dict.fromkeys(nodes[:_LARGEST])
    near: dict[Node, None] = {}
    for node in matched:
        near.update((t.producer, None) for t in node.inputs if t.producer is not None)
        for tensor in node.outputs:
            near.update(dict.fromkeys(tensor.consumers[:_READERS]))
    beside = [node for node in near if node not in matched]
    drawn = sorted([*matched, *beside[:_LARGEST]], key=lambda node: node.order)
    return tuple(_step(node, "match" if node in matched else "near", address) for node in drawn)


def _step(node: Node, role: str, address: Addresses) -> Step:
    return Step(
        address(node),
        node.op,
        tuple(t.name for t in node.inputs if t.name and not t.is_constant),
        tuple(t.name for t in node.outputs if t.name),
        role,
    )


def after(drawn: Sequence[Step], rewrite: Rewrite) -> tuple[Step, ...]:
    """Draw what a repair leaves of a picture, with the nodes that it adds in their places."""
    makers = {name: number for number, step in enumerate(drawn) for name in step.outputs}
    new: dict[int, list[Step]] = {}
    replaced: set[str] = set()
    read_instead: dict[str, str] = {}
    named: dict[NewNode, str] = {}
    for edit in rewrite.edits:
        if isinstance(edit, Redirect):
            read_instead[edit.tensor.name] = edit.to.name
            continue
        names = [tensor.name for tensor in edit.tensors if tensor is not None]
        places = [makers[name] for name in names if name in makers]
        if places:
            replaced.update(names)
            new.setdefault(places[0], []).extend(_new_steps(edit.by, tuple(names), named))
    if not new and not read_instead.keys() & {name for step in drawn for name in step.inputs}:
        return ()
    steps: list[Step] = []
    for number, step in enumerate(drawn):
        if left := _left(step, replaced, read_instead):
            steps.append(left)
        steps += new.get(number, ())
    return _alive(steps, drawn)


def _left(step: Step, replaced: set[str], read_instead: Mapping[str, str]) -> Step | None:
    """Give what is left of a node whose outputs are partly made by others; None for nothing."""
    outputs = tuple(name for name in step.outputs if name not in replaced)
    if step.outputs and not outputs:
        return None
    inputs = tuple(read_instead.get(name, name) for name in step.inputs)
    return replace(step, inputs=inputs, outputs=outputs)


def _alive(steps: Sequence[Step], drawn: Sequence[Step]) -> tuple[Step, ...]:
    """Leave out the old nodes that somebody read before and nobody reads any more."""
    read_before = {name for step in drawn for name in step.inputs}
    alive = list(steps)
    while True:
        read = {name for step in alive for name in step.inputs}
        left = [
            step
            for step in alive
            if step.role == "new"
            or not read_before.intersection(step.outputs)
            or read.intersection(step.outputs)
        ]
        if len(left) == len(alive):
            return tuple(_joined(left))
        alive = left


def _joined(steps: Sequence[Step]) -> Iterator[Step]:
    """Leave out neighbours that hang on nothing any more."""
    read = {name for step in steps for name in step.inputs}
    made = {name for step in steps for name in step.outputs}
    for step in steps:
        if step.role != "near" or read.intersection(step.outputs) or made.intersection(step.inputs):
            yield step


def _new_steps(recipe: NewNode, names: tuple[str, ...], named: dict[NewNode, str]) -> list[Step]:
    """Give the nodes of a recipe; `named` knows what those are called that it shares."""
    named[recipe] = names[0]
    pending = [(recipe, names)]
    steps = []
    while pending:
        node, outputs = pending.pop()
        inputs = []
        for number, operand in enumerate(node.inputs):
            if isinstance(operand, NewNode):
                if operand not in named:
                    named[operand] = f"{outputs[0]}.{number}"
                    pending.append((operand, (named[operand],)))
                inputs.append(named[operand])
            elif operand is not None and not isinstance(operand, Computed):
                inputs += [] if operand.is_constant else [operand.name]
        steps.append(Step(outputs[0], node.op, tuple(inputs), outputs, "new"))
    return steps[::-1]
