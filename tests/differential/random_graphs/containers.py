"""Values in sequences and optionals, and what is computed in subgraphs and functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from differential.random_graphs.blocks import Blocks
from differential.random_graphs.core import OWN, Inside
from onnx import AttributeProto, TensorProto, helper

if TYPE_CHECKING:
    import onnx

_DEEPEST = 2
_KEEPING = (
    *("norm", "spelled", "batch_norm", "affine", "square", "residual", "activation", "layer_scale"),
)
"""Methods that mostly keep the shape of a value."""


class Containers(Blocks):
    """Appends sequences, optionals, branches, loops, scans and functions."""

    def keeping(self, x: str) -> str:
        """Apply a few layers that keep the shape."""
        y = x
        for _ in range(self.choose.randint(1, 3)):
            kinds = [*_KEEPING]
            if self.depth < _DEEPEST:
                kinds += ["branch", "loop"]
            y = getattr(self, self.choose.choice(kinds))(y)
        return y if self.shapes[y] == self.shapes[x] else x

    def layer_scale(self, x: str) -> str:
        shape = self.shapes[x]
        y = self.op("MatMul", [x, self.floats(shape[-1], shape[-1])], shape)
        return self.op("Mul", [y, self.floats(shape[-1])], shape)

    # Sequences and optionals -------------------------------------------------------------------

    def sequence(self, x: str) -> str:
        """Put values into a sequence and take them out again."""
        if self.opset < 11:
            return x
        shape = self.shapes[x]
        axis = self.choose.randrange(len(shape))
        if self.chance(0.4):
            attrs = {"axis": axis, "keepdims": 1}
            one = self.constant(np.array(1, np.int64))
            (parts,) = self.several("SplitToSequence", [x, one], [None], **attrs)
            if self.chance(0.5):
                return self.op("ConcatFromSequence", [parts], shape, axis=axis)
            out = (*shape[:axis], 1, *shape[axis + 1 :])
            return self.op("SequenceAt", [parts, self.index(shape[axis])], out)
        (values,) = self.several("SequenceConstruct", [x, self.keeping(x)], [None])
        if self.chance(0.3):
            third = self.affine(x)
            (values,) = self.several("SequenceInsert", [values, third], [None])
        way = self.choose.randrange(3)
        if way == 0:
            return self.op("SequenceAt", [values, self.index(2)], shape)
        if way == 1:
            (values,) = self.several("SequenceErase", [values, self.index(2)], [None])
            return self.op("SequenceAt", [values, self.index(1)], shape)
        count = self.op("SequenceLength", [values], ())
        last = self.op("Sub", [count, self.constant(np.array(1, np.int64))], ())
        return self.op("SequenceAt", [values, last], shape)

    def index(self, count: int) -> str:
        return self.constant(np.array(self.choose.randrange(count), np.int64))

    def optional(self, x: str) -> str:
        """Put a value into an optional and take it out again."""
        if self.opset < 15:
            return x
        shape = self.shapes[x]
        (wrapped,) = self.several("Optional", [x], [None])
        y = self.op("OptionalGetElement", [wrapped], shape)
        if self.chance(0.5):
            return y
        there = self.op("OptionalHasElement", [wrapped], ())
        return self.choice_of(there, y)

    # Subgraphs ---------------------------------------------------------------------------------

    def graph_of(
        self, made: Inside, inputs: list[onnx.ValueInfoProto], results: list[str], name: str
    ) -> onnx.GraphProto:
        """Make a subgraph; the extents of its results are said by rank, or not at all."""
        ranked = name == "scanned" or self.chance(0.3)  # the runtime wants it of a Scan
        outputs = [
            helper.make_tensor_value_info(
                result, self.dtype, [None] * len(self.shapes[result]) if ranked else None
            )
            for result in results
        ]
        return helper.make_graph(made.nodes, name, inputs, outputs, made.weights)

    def result_of(self, x: str) -> str:
        """Apply layers; the result is one that the subgraph made itself."""
        y = self.keeping(x)
        return self.op("Identity", [y], self.shapes[x]) if y == x or self.chance(0.2) else y

    def branch(self, x: str) -> str:
        """Compute either of two things, by a constant or by an input."""
        if self.chance(0.3):
            return self.choice_of(self.constant(np.array(self.chance(0.5))), x)
        name = self.name("flag")
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.BOOL, []))
        self.shapes[name] = ()
        return self.choice_of(name, x)

    def choice_of(self, condition: str, x: str) -> str:
        branches = []
        for side in ("then", "else"):
            made = self.inside(lambda: self.result_of(x), own_weights=self.chance(0.4))
            branches.append(self.graph_of(made, [], [made.result], side))
        return self.op(
            "If", [condition], self.shapes[x], then_branch=branches[0], else_branch=branches[1]
        )

    def loop(self, x: str) -> str:
        """Carry a value through the same layers twice."""
        shape = self.shapes[x]
        carried = self.name("carried")
        self.shapes[carried] = shape
        made = self.inside(lambda: self.result_of(carried), own_weights=self.chance(0.4))
        turn, going, stays = self.name("turn"), self.name("going"), self.name("stays")
        made.nodes.append(helper.make_node("Identity", [going], [stays]))
        collected = self.chance(0.4)
        body = self.graph_of(
            made,
            [
                helper.make_tensor_value_info(turn, TensorProto.INT64, []),
                helper.make_tensor_value_info(going, TensorProto.BOOL, []),
                helper.make_tensor_value_info(carried, self.dtype, None),
            ],
            [made.result],
            "body",
        )
        body.output.insert(0, helper.make_tensor_value_info(stays, TensorProto.BOOL, []))
        shapes: list[tuple[int, ...] | None] = [shape]
        if collected:
            again = self.name("t")
            body.node.append(helper.make_node("Identity", [made.result], [again]))
            body.output.append(helper.make_tensor_value_info(again, self.dtype, None))
            shapes.append((2, *shape))
        times = self.constant(np.array(2, np.int64))
        always = self.constant(np.array(True))
        results = self.several("Loop", [times, always, x], shapes, body=body)
        if collected and len(shape) < 5 and self.chance(0.5):
            return results[1]
        return results[0]

    def scan(self, x: str) -> str:
        """Run over one axis, with a sum that is carried along."""
        shape = self.shapes[x]
        if self.opset < 9 or len(shape) < 3:
            return x
        axis = self.choose.randrange(len(shape))
        part = (*shape[:axis], *shape[axis + 1 :])
        before, step = self.name("state"), self.name("step")
        self.shapes[before] = self.shapes[step] = part

        def layers() -> str:
            return self.op("Add", [before, self.keeping(step)], part)

        made = self.inside(layers, own_weights=self.chance(0.4))
        seen = self.name("t")
        self.shapes[seen] = part
        made.nodes.append(helper.make_node("Tanh", [made.result], [seen]))
        body = self.graph_of(
            made,
            [helper.make_tensor_value_info(name, self.dtype, None) for name in (before, step)],
            [made.result, seen],
            "scanned",
        )
        state = self.floats(*part)
        attrs = {"scan_input_axes": [axis], "scan_output_axes": [axis], "num_scan_inputs": 1}
        _, y = self.several("Scan", [state, x], [part, shape], body=body, **attrs)
        return y

    # Functions ---------------------------------------------------------------------------------

    def called(self, x: str) -> str:
        """Call a function of the model once or twice, with attributes that it refers to."""
        name = f"Block{len(self.functions)}"
        shape = self.shapes[x]
        ways = [self._scaled_function, self._normalised_function]
        made, inputs = self.choose.choice(ways)(x)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        function = helper.make_function(
            OWN, name, ["data", *inputs], ["result"], made, imports, ["epsilon"]
        )
        self.functions.append(function)
        y = x
        for epsilon in self.choose.choice(((1e-3,), (1e-3, 1e-2))):
            given = [self.floats(*extents) for extents in inputs.values()]
            y = self.op(name, [y, *given], shape, domain=OWN, epsilon=epsilon)
        return y

    def _scaled_function(self, x: str) -> tuple[list[onnx.NodeProto], dict[str, tuple[int, ...]]]:
        """A linear layer and a scaling of its result."""
        width = self.shapes[x][-1]
        nodes = [
            helper.make_node("MatMul", ["data", "weight"], ["product"]),
            helper.make_node("Mul", ["product", "scale"], ["scaled"]),
            helper.make_node("Elu", ["scaled"], ["result"]),
        ]
        nodes[-1].attribute.append(_reference("alpha", AttributeProto.FLOAT))
        return nodes, {"weight": (width, width), "scale": (width,)}

    def _normalised_function(
        self, x: str
    ) -> tuple[list[onnx.NodeProto], dict[str, tuple[int, ...]]]:
        """A normalisation, as an operator or spelled out, with the caller's epsilon."""
        width, last = self.shapes[x][-1], len(self.shapes[x]) - 1
        given = {"scale": (width,), "bias": (width,)}
        if self.opset >= 17 and self.chance(0.5):
            node = helper.make_node("LayerNormalization", ["data", "scale", "bias"], ["result"])
            node.attribute.append(_reference("epsilon", AttributeProto.FLOAT))
            return [node], given
        epsilon = helper.make_node("Constant", [], ["plain epsilon"])
        if self.opset < 12:
            epsilon = helper.make_node("Constant", [], ["plain epsilon"], value=_small())
        else:
            epsilon.attribute.append(_reference("value_float", AttributeProto.FLOAT))
        axes: dict[str, object] = {"axes": [last]} if self.opset < 18 else {}
        over = [] if axes else ["axes"]
        nodes = [] if axes else [helper.make_node("Constant", [], ["axes"], value_ints=[last])]
        return [
            *nodes,
            epsilon,
            helper.make_node("Cast", ["plain epsilon"], ["epsilon"], to=self.dtype),
            helper.make_node("ReduceMean", ["data", *over], ["mean"], **axes),
            helper.make_node("Sub", ["data", "mean"], ["difference"]),
            helper.make_node("Mul", ["difference", "difference"], ["square"]),
            helper.make_node("ReduceMean", ["square", *over], ["variance"], **axes),
            helper.make_node("Add", ["variance", "epsilon"], ["shifted"]),
            helper.make_node("Sqrt", ["shifted"], ["root"]),
            helper.make_node("Div", ["difference", "root"], ["normal"]),
            helper.make_node("Mul", ["normal", "scale"], ["scaled"]),
            helper.make_node("Add", ["scaled", "bias"], ["result"]),
        ], given


def _small() -> TensorProto:
    return helper.make_tensor("small", TensorProto.FLOAT, [], [1e-3])


def _reference(name: str, kind: AttributeProto.AttributeType) -> AttributeProto:
    """Refer to the attribute `epsilon` of the function."""
    return AttributeProto(name=name, type=kind, ref_attr_name="epsilon")
