"""From what a rule says, in objects of the graph, to plain findings."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from normlint.graph import Addresses, Graph, Node, graph_path, module, source
from normlint.model import ValuesUnavailable
from normlint.results import Finding, FixReport, NotFixedReport, Step
from normlint.rule import Computed, NewNode, Replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from normlint.context import Context
    from normlint.graph import Tensor
    from normlint.results import Verification
    from normlint.rule import Diagnostic, Operand, Rewrite, Rule

_LARGEST_PICTURE = 40


def speak(rules: Sequence[Rule], context: Context) -> Iterator[tuple[Rule, Diagnostic]]:
    """Let every rule say what it has to say of a model.

    One that needs values which cannot be read (the side file is missing, which is a finding of its
    own) says no more.
    """
    for rule in rules:
        with suppress(ValuesUnavailable):
            for diagnostic in rule.check(context):
                yield rule, diagnostic


class Reporter:
    """Makes findings of the diagnostics of one model."""

    def __init__(self, graph: Graph) -> None:
        self._address = Addresses(graph)

    def finding(
        self,
        rule: Rule,
        diagnostic: Diagnostic,
        *,
        applied: bool = False,
        verification: Verification | None = None,
    ) -> Finding:
        """Make a finding of a diagnostic; `applied` says whether its rewrite was made."""
        node = diagnostic.node
        nodes = diagnostic.nodes or ((node,) if node is not None else ())
        return Finding(
            code=rule.code,
            rule=rule.name,
            severity=diagnostic.severity or rule.severity,
            message=diagnostic.message,
            graph=graph_path(node) if node is not None else "graph",
            node=self._address(node) if node is not None else "",
            op_type=node.op if node is not None else "",
            output=_output(diagnostic),
            nodes=tuple(self._address(n) for n in nodes),
            module=module(node) if node is not None else None,
            source=source(node) if node is not None else None,
            evidence=dict(diagnostic.evidence),
            fix=self._fix(diagnostic.rewrite, applied=applied, verification=verification),
            not_fixed=self._not_fixed(diagnostic),
            picture=self._picture(nodes),
        )

    def _fix(
        self, rewrite: Rewrite | None, *, applied: bool, verification: Verification | None
    ) -> FixReport | None:
        if rewrite is None:
            return None
        return FixReport(
            rewrite.applicability.value,
            rewrite.title,
            applied,
            verification,
            tuple(_new_steps(rewrite)) if len(rewrite.edits) <= _LARGEST_PICTURE else (),
        )

    def _not_fixed(self, diagnostic: Diagnostic) -> NotFixedReport | None:
        missed = diagnostic.not_fixed
        if missed is None:
            return None
        at = ""
        if isinstance(missed.at, Node):
            at = self._address(missed.at)
        elif missed.at is not None:
            at = missed.at.name
        return NotFixedReport(missed.reason.value, at, missed.detail)

    def _picture(self, nodes: Sequence[Node]) -> tuple[Step, ...]:
        """Draw the nodes of a finding with those right beside them."""
        if len(nodes) > _LARGEST_PICTURE:
            return ()
        matched = set(nodes)
        near: dict[Node, None] = {}
        for node in nodes:
            near.update((t.producer, None) for t in node.inputs if t.producer is not None)
            for tensor in node.outputs:
                near.update(dict.fromkeys(tensor.consumers[:4]))
        beside = [node for node in near if node not in matched]
        drawn = sorted([*matched, *beside[:_LARGEST_PICTURE]], key=lambda node: node.order)
        return tuple(self._step(node, "match" if node in matched else "near") for node in drawn)

    def _step(self, node: Node, role: str) -> Step:
        return Step(
            self._address(node),
            node.op,
            tuple(t.name for t in node.inputs if t.name and not t.is_constant),
            tuple(t.name for t in node.outputs if t.name),
            role,
        )


def _output(diagnostic: Diagnostic) -> str:
    if diagnostic.output is not None:
        return diagnostic.output.name
    return _output_name(diagnostic.node) if diagnostic.node is not None else ""


def _output_name(node: Node) -> str:
    return node.outputs[0].name if node.outputs else ""


def _new_steps(rewrite: Rewrite) -> Iterator[Step]:
    for edit in rewrite.edits:
        if isinstance(edit, Replace):
            yield from _recipe(edit.by, [t.name for t in edit.tensors if t is not None])


def _recipe(recipe: NewNode, outputs: list[str]) -> Iterator[Step]:
    pending: list[tuple[NewNode, tuple[str, ...]]] = [(recipe, tuple(outputs))]
    while pending:
        node, names = pending.pop()
        inputs = []
        for number, operand in enumerate(node.inputs):
            inner = f"{names[0]}.{number}"
            if isinstance(operand, NewNode):
                pending.append((operand, (inner,)))
                inputs.append(inner)
            elif _is_data(operand):
                inputs.append(operand.name)  # type: ignore[union-attr] # a tensor
        yield Step(names[0], node.op, tuple(inputs), names, "new")


def _is_data(operand: Operand | Tensor) -> bool:
    return (
        operand is not None
        and not isinstance(operand, Computed | NewNode)
        and (not operand.is_constant)
    )


def counted(kinds: Iterable[Any]) -> dict[str, int]:
    """Count kinds of normalisations, by name."""
    return dict(sorted(Counter(str(kind) for kind in kinds).items()))
