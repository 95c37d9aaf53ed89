"""What a run found, as plain data: it crosses process borders and becomes every output format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from normlint.rule import Severity


@dataclass(frozen=True)
class Verification:
    """How a rewrite was proved."""

    method: str
    """region or model."""
    max_abs: float
    max_rel: float
    """Largest difference relative to the largest magnitude of the output."""
    tolerance: float
    inputs: int
    """Number of inputs that were tried."""


@dataclass(frozen=True)
class Step:
    """One node of a picture."""

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    """Names of the tensors it reads; constants are left out."""
    outputs: tuple[str, ...] = ()
    role: str = "match"
    """match: what a finding is about; near: beside it; new: what a repair puts in its place."""


@dataclass(frozen=True)
class FixReport:
    """A repair that is offered or was made."""

    applicability: str
    title: str
    applied: bool = False
    verification: Verification | None = None
    picture: tuple[Step, ...] = ()
    """The nodes that the repair puts in the place of those it is about."""


@dataclass(frozen=True)
class NotFixedReport:
    """Why a thing was not rewritten, and the node or tensor that causes it."""

    reason: str
    at: str
    detail: str


@dataclass(frozen=True)
class Suppressed:
    """Why a finding does not count."""

    kind: str
    """config, baseline or model."""
    reason: str


@dataclass(frozen=True)
class Finding:
    """One complaint about one place."""

    code: str
    rule: str
    severity: Severity
    message: str
    graph: str = "graph"
    node: str = ""
    op_type: str = ""
    output: str = ""
    nodes: tuple[str, ...] = ()
    module: str | None = None
    source: str | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    fix: FixReport | None = None
    not_fixed: NotFixedReport | None = None
    suppressed: Suppressed | None = None
    fingerprint: str = ""
    picture: tuple[Step, ...] = ()
    """The nodes that it is about, with those right beside them."""

    @property
    def is_open(self) -> bool:
        """Whether it counts: neither repaired nor suppressed."""
        return self.suppressed is None and not (self.fix is not None and self.fix.applied)


@dataclass(frozen=True)
class WrittenReport:
    """A file that was written."""

    path: str
    sha256_before: str
    sha256_after: str
    nodes_before: int
    nodes_after: int


@dataclass(frozen=True)
class ModelReport:
    """All that was found in one model."""

    path: str
    producer: str = ""
    opset: dict[str, int] = field(default_factory=dict)
    nodes: int = 0
    norms: dict[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    written: WrittenReport | None = None
    changes: tuple[str, ...] = ()
    """What the rewrites changed (or with --diff would change), node by node, as lines of a diff."""
    readable: bool = True
    ignores: str = ""
    """Suppressions that the model carries: the text of its metadata entry `normlint.ignore`."""
    inventory: tuple[dict[str, Any], ...] = ()
    """Every normalisation, as `normlint norms` has it, where a format draws them."""
    measured: tuple[dict[str, Any], ...] = ()
    """What every norm saw on the user's data, as `normlint measure` has it, where it is drawn."""
    reference: dict[str, Any] | None = None
    """How far its outputs are from those of a float model, before and after its repairs."""
    near_norms: tuple[dict[str, Any], ...] = ()
    """What looks like a normalisation and is none, where that is asked for."""

    @property
    def has_open(self) -> bool:
        """Whether a finding counts that is more than worth knowing."""
        return any(f.is_open and f.severity is not Severity.INFO for f in self.findings)


@dataclass(frozen=True)
class Report:
    """All that was found in a run."""

    models: tuple[ModelReport, ...]
    exit_code: int = 0

    @property
    def findings(self) -> list[Finding]:
        """All findings of all models."""
        return [finding for model in self.models for finding in model.findings]

    def count(self, severity: Severity) -> int:
        """Count the open findings of a severity."""
        return sum(f.is_open and f.severity is severity for f in self.findings)

    @property
    def fixed(self) -> int:
        """Number of findings that were repaired."""
        return sum(f.fix is not None and f.fix.applied for f in self.findings)

    @property
    def suppressed(self) -> int:
        """Number of findings that do not count."""
        return sum(f.suppressed is not None for f in self.findings)
