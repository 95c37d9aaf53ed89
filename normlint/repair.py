"""Repairing a model: let the rules speak, prove and make rewrites, until nothing changes."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import onnx

from normlint.context import Context
from normlint.deferred import dataclass
from normlint.findings import Reporter, speak
from normlint.graph import Constant, build_graph, export_graph
from normlint.model import NEW, new_tensor
from normlint.results import FixReport
from normlint.rewrite.edit import Editor
from normlint.rule import Applicability, Diagnostic, NotFixed, Reason, Rule, Severity
from normlint.verify import Failure, misfit, verify_rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from onnx import ModelProto, TensorProto

    from normlint.context import Settings
    from normlint.graph import Node
    from normlint.measure import Measured
    from normlint.model import ModelFile
    from normlint.results import Finding, Verification
    from normlint.rule import Rewrite

    Said = tuple[Rule, Diagnostic]

_MOST_ROUNDS = 100
_LARGEST_INLINE = 1024
"""Bytes up to which a new constant is written at once: shape inference looks at axes."""


@dataclass
class Repaired:
    """A model after its repairs."""

    proto: ModelProto
    new_values: list[Callable[[], np.ndarray[Any, Any]]] = field(default_factory=list)
    fixed: list[Finding] = field(default_factory=list)
    failed: list[Finding] = field(default_factory=list)
    """Rewrites that moved the numbers (NL990)."""
    remaining: list[Said] = field(default_factory=list)
    context: Context | None = None
    """Facts about the model as it is now."""


class Repair:
    """Carries out the rewrites that rules propose on one model."""

    def __init__(
        self,
        model: ModelFile,
        rules: Sequence[Rule],
        settings: Settings,
        *,
        verify: bool = True,
        wanted: Callable[[Finding], bool] = lambda _: True,
        measure: Callable[[Context], Measured] | None = None,
    ) -> None:
        self.model = model
        self.rules = rules
        self.settings = settings
        self.verify = verify
        self.wanted = wanted
        """Whether a finding is not suppressed: what is suppressed is not repaired."""
        self.measure = measure
        self.result = Repaired(model.proto)
        self.refused: dict[tuple[str, str], NotFixed] = {}
        self.unraised: dict[tuple[str, str], NotFixed] = {}
        """What waits for an opset that the graph, as it is now, cannot be raised to."""
        self.awaited: list[tuple[tuple[str, str], Finding]] = []
        """Findings of the last round that it did not repair itself."""

    def run(self) -> Repaired:
        """Repair until nothing more changes."""
        for _ in range(_MOST_ROUNDS):
            graph = build_graph(self.result.proto, self.read)
            context = Context(graph, self.settings, self.measure)
            said = list(speak(self.rules, context))
            self.note_fixed_by_others(said)
            if not self.round(context, said):
                break
        self.result.context = context
        self.result.remaining = [(rule, self.with_refusal(rule, d)) for rule, d in said]
        return self.result

    def note_fixed_by_others(self, said: list[Said]) -> None:
        """Note as repaired what is not said any more since another rewrite was made."""
        still = {_key(rule, diagnostic) for rule, diagnostic in said}
        done = {(finding.code, finding.output) for finding in self.result.fixed}
        self.result.fixed.extend(
            finding
            for key, finding in self.awaited
            if key not in still and (finding.code, finding.output) not in done
        )
        self.awaited = []

    def await_others(self, reporter: Reporter, said: list[Said]) -> None:
        """Remember what is worth telling if it is gone once the others were repaired."""
        for rule, diagnostic in said:
            finding = reporter.finding(rule, diagnostic, applied=True)
            if finding.fix is None and finding.severity is Severity.INFO:
                continue
            if not self.wanted(replace(finding, fix=None)):
                continue
            if not self.is_allowed(rule, diagnostic):
                gone = FixReport(Applicability.SAFE.value, "went with another repair", applied=True)
                finding = replace(finding, fix=gone, not_fixed=None)
            self.awaited.append((_key(rule, diagnostic), finding))

    def read(self, tensor: TensorProto) -> np.ndarray[Any, Any]:
        """Read a tensor's values, or compute those of a new one."""
        place = {entry.key: entry.value for entry in tensor.external_data}
        if place.get("location") == NEW:
            return self.result.new_values[int(place["offset"])]()
        return self.model.values(tensor)

    def round(self, context: Context, said: list[Said]) -> bool:
        """Make every rewrite that can be made beside the others; say whether there was one."""
        candidates = [
            (rule, diagnostic, diagnostic.rewrite)
            for rule, diagnostic in said
            if diagnostic.rewrite is not None and self.is_allowed(rule, diagnostic)
        ]
        if not candidates:
            return False
        reporter = Reporter(context.graph)
        self.await_others(reporter, said)
        needed = max(r.opset for _, _, r in candidates)
        if needed > context.opset:
            return self.raise_to(context, needed, candidates)
        editor = Editor(context.graph)
        touched: set[Node] = set()
        made = False
        for rule, diagnostic, rewrite in candidates:
            nodes = _nodes_of(rewrite)
            finding = reporter.finding(rule, diagnostic)
            if not self.wanted(finding):
                continue
            if not touched.isdisjoint(nodes):
                continue
            verification = self.prove(context, rule, diagnostic, rewrite, reporter)
            if isinstance(verification, Failure):
                continue
            self.result.fixed.append(
                reporter.finding(rule, diagnostic, applied=True, verification=verification)
            )
            editor.apply(rewrite)
            touched.update(nodes)
            made = True
        if made:
            self.unraised.clear()
            editor.finish()
            self.result.proto = export_graph(context.graph, self.result.proto, self.placeholder)
        return made

    def is_allowed(self, rule: Rule, diagnostic: Diagnostic) -> bool:
        """Whether the settings let the rewrite be made, and it was not refused before."""
        rewrite = diagnostic.rewrite
        key = _key(rule, diagnostic)
        if rewrite is None or key in self.refused or key in self.unraised:
            return False
        return rewrite.applicability is Applicability.SAFE or self.settings.unsafe_fixes

    def prove(
        self,
        context: Context,
        rule: Rule,
        diagnostic: Diagnostic,
        rewrite: Rewrite,
        reporter: Reporter,
    ) -> Verification | Failure | None:
        """Verify a rewrite; note it where it fails."""
        outcome = (
            verify_rewrite(rewrite, context.constants, context.opset)
            if self.verify
            else misfit(rewrite)
        )
        if isinstance(outcome, Failure):
            refusal = NotFixed(outcome.reason, diagnostic.node, outcome.detail)
            self.refused[_key(rule, diagnostic)] = refusal
            if outcome.moved:
                message = (
                    f"the rewrite of {rule.code} was not made, for it moves the numbers: "
                    f"{outcome.detail}; please report this"
                )
                said = Diagnostic(message, diagnostic.node, diagnostic.nodes, not_fixed=refusal)
                self.result.failed.append(reporter.finding(_failed_verification(), said))
        return outcome

    def raise_to(
        self, context: Context, opset: int, candidates: list[tuple[Rule, Diagnostic, Rewrite]]
    ) -> bool:
        """Raise the model's opset for the rewrites that need it; else refuse those."""
        from normlint.rewrite.opset import raise_opset

        outcome = raise_opset(context, opset)
        if isinstance(outcome, NotFixed):
            for rule, diagnostic, rewrite in candidates:
                if rewrite.opset == opset:
                    self.unraised[_key(rule, diagnostic)] = outcome
            return True
        editor = Editor(context.graph)
        for rewrite in outcome:
            proof = verify_rewrite(rewrite, context.constants, context.opset)
            if isinstance(proof, Failure):
                refusal = NotFixed(Reason.OPSET, rewrite.region[0], proof.detail)
                for rule, diagnostic, wanted in candidates:
                    if wanted.opset == opset:
                        self.unraised[_key(rule, diagnostic)] = refusal
                return True
        for rewrite in outcome:
            editor.apply(rewrite)
        editor.finish()
        context.graph.opset = opset
        self.result.proto = export_graph(context.graph, self.result.proto, self.placeholder)
        return True

    def placeholder(self, constant: Constant) -> TensorProto:
        """Give a new constant's values where they are small, else what stands for them."""
        size = constant.size * onnx.helper.tensor_dtype_to_np_dtype(constant.dtype).itemsize
        if size <= _LARGEST_INLINE:
            return onnx.numpy_helper.from_array(constant.values, constant.name)
        self.result.new_values.append(constant.lazy.load)
        index = len(self.result.new_values) - 1
        return new_tensor(constant.name, constant.dtype, constant.shape, index)

    def with_refusal(self, rule: Rule, diagnostic: Diagnostic) -> Diagnostic:
        """Give what a rule says with the reason why its rewrite was refused, if it was."""
        key = _key(rule, diagnostic)
        refusal = self.refused.get(key, self.unraised.get(key))
        return diagnostic if refusal is None else diagnostic.without_rewrite(refusal)


def _nodes_of(rewrite: Rewrite) -> set[Node]:
    from normlint.verify.cut import replaced_tensors

    nodes = set(rewrite.region)
    nodes.update(t.producer for t in replaced_tensors(rewrite.edits) if t.producer is not None)
    return nodes


def _key(rule: Rule, diagnostic: Diagnostic) -> tuple[str, str]:
    node, output = diagnostic.node, diagnostic.output
    if output is None and node is not None and node.outputs:
        output = node.outputs[0]
    return rule.code, output.name if output is not None else diagnostic.message


def _failed_verification() -> Rule:
    from normlint.plugins import rule_of

    rule = rule_of("NL990")
    if rule is None:
        raise LookupError("the rules that come with normlint are not installed")
    return rule
