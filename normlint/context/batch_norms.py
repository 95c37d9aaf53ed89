"""BatchNormalization operators with the values of their parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.deferred import dataclass
from normlint.model import ValuesUnavailable
from normlint.recognise.fused import is_training

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.context.context import Context
    from normlint.graph import Node

    Array = np.ndarray[Any, Any]

PARAMETERS = ("scale", "bias", "mean", "variance")
"""What inputs 1 to 4 are."""
_LARGEST = 1 << 20


@dataclass(frozen=True, eq=False)
class BatchNormOp:
    """One operator; parameters that are no constants, or cannot be read, are missing."""

    node: Node
    parameters: dict[str, Array]
    """Flat float64 vectors."""
    epsilon: float
    is_training: bool
    """Whether it normalises with the statistics of the batch."""

    @property
    def channels(self) -> int | None:
        """Extent of axis 1 of what it reads, where it is known."""
        shape = self.node.inputs[0].shape
        extent = shape[1] if shape is not None and len(shape) > 1 else None
        return extent if isinstance(extent, int) else None

    @property
    def is_untrained(self) -> bool:
        """Whether mean and variance are what a layer starts with: 0 and 1."""
        mean, variance = self.parameters.get("mean"), self.parameters.get("variance")
        if mean is None or variance is None:
            return False
        return bool((mean == 0).all() and (variance == 1).all())


def batch_norm_ops(context: Context) -> Iterator[BatchNormOp]:
    """Give every BatchNormalization operator that acts on data and whose result is used."""
    constants = context.constants
    for scope in context.graph.scopes():
        for node in scope.nodes:
            if node.op != "BatchNormalization" or not node.is_standard or node.input(0) is None:
                continue
            if constants.is_constant(node.inputs[0]) or _is_dead(node):
                continue
            yield BatchNormOp(
                node,
                _parameters(node, context),
                epsilon_of(node),
                is_training(node),
            )


def _is_dead(node: Node) -> bool:
    return not any(tensor.consumers or tensor.is_output for tensor in node.outputs)


def epsilon_of(node: Node) -> float:
    """Give the epsilon of a BatchNormalization, an attribute in single precision."""
    return float(node.attrs.get("epsilon", np.float32(1e-5)))


def _parameters(node: Node, context: Context) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for position, name in enumerate(PARAMETERS, 1):
        tensor = node.input(position)
        default = getattr(tensor, "default", None)
        try:
            values = (
                context.constants.known(tensor, _LARGEST) if default is None else default.load()
            )
        except ValuesUnavailable:
            continue
        if values is not None and values.size <= _LARGEST:
            found[name] = values.astype(np.float64).reshape(-1)
    return found
