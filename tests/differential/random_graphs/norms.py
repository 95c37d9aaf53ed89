"""Normalisations of a random graph: operators, spelled out, or nearly one."""

from __future__ import annotations

import numpy as np
import onnx
from differential.random_graphs.core import Core
from onnx import TensorProto, helper, numpy_helper
from spellings import FLAWS, Speller


class Norms(Core):
    """Appends normalisations."""

    def norm(self, x: str) -> str:
        """Apply a normalisation that is one operator, where the opset has it."""
        ways = [self.instance_norm, self.lp_norm, self.mean_variance, self.simplified]
        if self.opset >= 17:
            ways += [self.layer_norm] * 4 + [self.skip_norm]
        if self.opset >= 18:
            ways.append(self.group_norm)
        if self.opset >= 23:
            ways += [self.rms_norm] * 2
        return self.choose.choice(ways)(x)

    def layer_norm(self, x: str) -> str:
        shape = self.shapes[x]
        axis = self.choose.choice((-1, -1, -1, len(shape) - 1, -2))
        extents = shape[axis:]
        inputs = [x, self.floats(*extents)]
        if self.chance(0.7):
            inputs.append(self.floats(*extents))
        attrs = {"epsilon": 1e-3} if self.chance(0.6) else {}
        return self.op("LayerNormalization", inputs, shape, axis=axis, **attrs)

    def rms_norm(self, x: str) -> str:
        shape = self.shapes[x]
        scale = self.floats(shape[-1])
        return self.op("RMSNormalization", [x, scale], shape, axis=-1, epsilon=1e-3)

    def instance_norm(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) < 3:
            return x
        inputs = [x, self.floats(shape[1]), self.floats(shape[1])]
        return self.op("InstanceNormalization", inputs, shape, epsilon=1e-3)

    def group_norm(self, x: str) -> str:
        shape = self.shapes[x]
        groups = self.choose.choice([g for g in (1, 2, 4) if shape[1] % g == 0])
        count = shape[1] if self.opset >= 21 else groups
        inputs = [x, self.floats(count), self.floats(count)]
        return self.op("GroupNormalization", inputs, shape, num_groups=groups, epsilon=1e-3)

    def lp_norm(self, x: str) -> str:
        return self.op(
            "LpNormalization", [x], self.shapes[x], axis=-1, p=self.choose.choice((1, 2))
        )

    def mean_variance(self, x: str) -> str:
        shape = self.shapes[x]
        # Nothing stands beside its variance: in half precision the outcome is chance.
        if self.opset < 13 or len(shape) < 3 or self.dtype != TensorProto.FLOAT:
            return x
        axes = self.choose.choice(([0, 2], [1], list(range(1, len(shape)))))
        return self.op("MeanVarianceNormalization", [x], shape, axes=axes)

    def simplified(self, x: str) -> str:
        shape = self.shapes[x]
        attrs = {"axis": -1, "epsilon": 1e-3, "stash_type": 1}
        return self.op("SimplifiedLayerNormalization", [x, self.floats(shape[-1])], shape, **attrs)

    def skip_norm(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) != 3:
            return self.layer_norm(x)
        kind = self.choose.choice(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"))
        inputs = [x, self.block(x, shape), self.floats(shape[-1])]
        return self.op(kind, inputs, shape, domain="com.microsoft", epsilon=1e-3)

    def batch_statistics(self, x: str) -> str:
        """Apply a BatchNorm that was left in training mode."""
        shape = self.shapes[x]
        if self.opset < 14 or self.chance(0.5):
            return self.batch_norm(x)
        count = shape[1]
        inputs = [x, self.floats(count), self.floats(count)]
        mean = self.floats(count)
        # The runtime updates the mean in place, also where it is the scale or the bias besides.
        inputs += [self.positive(count) if mean in inputs else mean, self.positive(count)]
        names = [self.name("t") for _ in range(3)]
        node = helper.make_node("BatchNormalization", inputs, names, training_mode=1, epsilon=1e-3)
        self.nodes.append(node)
        self.shapes[names[0]] = shape
        return names[0]

    def spelled(self, x: str, flaw: str = "") -> str:
        """Spell a normalisation out in any way there is."""
        shape = self.shapes[x]
        axes = self.choose.choice(
            ((-1,), (-1,), (-1,), (1,), (-2, -1), tuple(range(2, len(shape))))
        )
        if not axes or len(shape) < 2:
            axes = (-1,)
        speller = Speller(
            self.choose.randrange,
            shape,
            axes,
            centred=self.chance(0.6),
            affine=self.chance(0.8),
            opset=self.opset,
            flaw=flaw,
            along=self.choose.choice(((), (), (-1,), (1,))),
        )
        spelling = speller.spell()
        return self.embedded(spelling.model.graph, x)

    def near_miss(self, x: str) -> str:
        """Spell something that is nearly a normalisation."""
        return self.spelled(x, self.choose.choice(FLAWS))

    def embedded(self, graph: onnx.GraphProto, x: str) -> str:
        """Put the nodes of a graph from x to y in place, in the types of this one."""
        prefix = self.name("n")
        renamed = {"x": x, "": ""}

        def named(name: str) -> str:
            return renamed.setdefault(name, f"{prefix}_{name}")

        for tensor in graph.initializer:
            copy = self.typed(tensor)
            copy.name = named(tensor.name)
            self.initializers.append(copy)
        for node in graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.input[:] = [named(name) for name in node.input]
            copy.output[:] = [named(name) for name in node.output]
            for attribute in copy.attribute:
                if attribute.name == "value":
                    attribute.t.CopyFrom(self.typed(attribute.t))
                elif attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                    attribute.i = self.dtype
            self.nodes.append(copy)
        y = named("y")
        self.shapes[y] = self.shapes[x]
        return y

    def typed(self, tensor: TensorProto) -> TensorProto:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32:
            values = values.astype(self.numpy)
            parts = np.round(1 / np.where(values == 0, 1, values))
            if self.dtype == TensorProto.DOUBLE and values.size == 1 and abs(parts) > 1:
                values = 1 / parts if np.isclose(values * parts, 1) else values
        return numpy_helper.from_array(values, tensor.name)

    def weight_norm(self, x: str) -> str:
        """Multiply by weights that the graph normalises itself, at every run."""
        width = self.shapes[x][-1]
        weight = self.floats(width, width)
        self.shapes[weight] = (width, width)
        return self.op("MatMul", [x, self.spelled(weight)], self.shapes[x])
