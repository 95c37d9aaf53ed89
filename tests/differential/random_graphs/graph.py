"""Random graphs of everything that vision and sequence models are made of, normalised or not."""

from __future__ import annotations

import math

from differential.random_graphs.containers import Containers
from differential.random_graphs.operators import Operators
from differential.random_graphs.quantised import Quantised
from onnx import TensorProto, helper

_LARGEST = 3000
"""Elements above which a tensor grows no further."""

VISION = (
    *("conv_block", "conv_block", "conv_block", "pre_activation", "conv_transpose", "pool"),
    *("batch_norm", "affine", "residual", "residual", "layout", "activation", "norm", "gate"),
    *("squeeze_excite", "quantised", "quantized_linear", "joined", "any_linear"),
    *("batch_statistics", "separable", "auto_padded", "deconv", "deconv", "window", "window"),
    *("enlarged", "padded", "blocks_to_depth", "local_response", "integer_linear"),
)
SEQUENCE = (
    *("norm", "norm", "norm", "spelled", "spelled", "near_miss", "linear", "linear", "attention"),
    *("feed_forward", "residual", "residual", "layout", "affine", "batch_norm", "recurrent"),
    *("quantised", "quantized_linear", "gate", "masked", "softmax", "joined", "weight_norm"),
    *("heads", "layers_of", "recurrence", "layer_scale", "einsum", "dynamic_linear"),
    *("narrow_weight", "integer_linear", "shaped_by_itself", "batch_statistics"),
)
ANY = (
    *("elementwise", "averaged", "einsum", "padded", "shaped_by_itself", "spread_out"),
    *("cut_by_itself", "sequence", "optional", "branch", "loop", "scan", "called", "called"),
    *("quantised_sum", "batch_norm", "affine", "linear", "elementwise", "narrow_weight"),
)


class RandomGraph(Containers, Operators, Quantised):
    """One random graph."""

    def build(self) -> None:
        vision = self.chance(0.5)
        x = self.image() if vision else self.tokens()
        alive = [x]
        for _ in range(self.choose.randint(2, 9)):
            x = alive[-1] if self.chance(0.8) else self.choose.choice(alive)
            kinds = VISION if vision == (not self.chance(0.15)) else SEQUENCE
            kinds = ANY if self.chance(0.3) else kinds
            y = getattr(self, self.choose.choice(kinds))(x)
            if math.prod(self.shapes[y]) <= _LARGEST and len(self.shapes[y]) > 1:
                alive.append(y)
            self.spread(y)
        self.give(alive[-1])
        if self.chance(0.15):
            self.activation(self.choose.choice(alive))  # nobody reads it

    def image(self) -> str:
        channels = self.choose.choice((2, 2, 3, 4))
        shape = (self.choose.choice((1, 2)), channels, self.choose.choice((3, 4, 5)), 4, 3)
        return self.input(shape[: self.choose.choice((3, 4, 4, 4, 5))], symbolic=self.chance(0.4))

    def tokens(self) -> str:
        batch, time, width = self.choose.choice((1, 2)), self.choose.choice((2, 3)), 4
        if self.chance(0.6):
            return self.input((batch, time, width), symbolic=self.chance(0.4))
        name = self.name("tokens")
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, ["B", time]))
        self.shapes[name] = (batch, time)
        return self.op("Gather", [self.floats(5, width), name], (batch, time, width))
