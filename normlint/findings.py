"""From what a rule says, in objects of the graph, to plain findings."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from normlint.graph import Addresses, Graph, Node, graph_path, module, source
from normlint.model import ValuesUnavailable
from normlint.pictures import after, before
from normlint.results import Finding, FixReport, NotFixedReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from normlint.context import Context
    from normlint.results import Step, Verification
    from normlint.rule import Diagnostic, Rewrite, Rule


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
        picture = before(nodes, self._address)
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
            fix=self._fix(diagnostic.rewrite, picture, applied=applied, verification=verification),
            not_fixed=self._not_fixed(diagnostic),
            picture=picture,
        )

    def _fix(
        self,
        rewrite: Rewrite | None,
        picture: Sequence[Step],
        *,
        applied: bool,
        verification: Verification | None,
    ) -> FixReport | None:
        if rewrite is None:
            return None
        return FixReport(
            rewrite.applicability.value,
            rewrite.title,
            applied,
            verification,
            after(picture, rewrite),
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


def _output(diagnostic: Diagnostic) -> str:
    if diagnostic.output is not None:
        return diagnostic.output.name
    return _output_name(diagnostic.node) if diagnostic.node is not None else ""


def _output_name(node: Node) -> str:
    return node.outputs[0].name if node.outputs else ""


def counted(kinds: Iterable[Any]) -> dict[str, int]:
    """Count kinds of normalisations, by name."""
    return dict(sorted(Counter(str(kind) for kind in kinds).items()))
