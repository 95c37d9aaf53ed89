"""Random models without a plan: any operator on any tensor, with constants of any shape that fits.

They are made apart from `random_streams`, and know nothing of streams. Each node is computed as it
is added, so that only what fits is kept. Extents are often equal, so that axes are easily mistaken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from centring.evaluate import OPERATORS, wide
from centring.random_streams import DOUBLE
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = np.ndarray[Any, Any]

EPSILON = 1e-2
LARGEST = 1e5
"""What grows beyond is left out: it would drown what matters."""
MOST = 120
"""Elements of a tensor: larger constants would be left in the file that they come from."""


class Soup:
    """A random model, and the value of each of its tensors on one input."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng([seed, 77])
        self.opset = int(self.random.choice([13, 16, 17, 18, 21, 23]))
        extents = self.pick((2, 3, 4), (4, 4, 4), (1, 4, 4), (3, 1, 4), (2, 4, 6), (4, 2, 4))
        self.batch, self.tokens, self.width = extents
        self.values: dict[str, Array] = {"": np.zeros(0)}
        self.pool: list[str] = []
        """What is computed from the inputs, the newest last."""
        self.wanted: set[str] = set()
        """What nobody has read yet."""
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.draws: dict[str, Callable[[np.random.Generator], Array]] = {}
        self.weights: list[str] = []
        self.count = 0

    # what all need

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def name(self, stem: str = "v") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def tensor(self) -> str:
        """Give a tensor, one of the newest with preference."""
        if self.chance(0.6):
            return self.pool[-1 - int(self.random.integers(min(4, len(self.pool))))]
        return str(self.pick(*self.pool))

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def constant(self, values: Any, kind: Any = np.float64) -> str:
        name = self.name("c")
        array = np.asarray(values, kind)
        if array.size > MOST:
            raise ValueError(name)
        self.values[name] = array
        if self.chance(0.2):
            node = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
            self.nodes.append(node)
        else:
            self.constants.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape: int) -> str:
        """Give weights: new ones, those of another node, or those that are computed."""
        same = [w for w in self.weights if self.shape(w) == shape]
        if same and self.chance(0.4):
            return str(self.pick(*same))
        values = self.random.normal(0.4, 1.0, shape)
        roll = self.random.random()
        if roll < 0.1 and values.size:
            values = values - values.mean(axis=self.pick(*range(len(shape))), keepdims=True)
        if roll > 0.85 and len(shape) == 2:
            turned = self.constant(values.T)
            name = str(self.node("Transpose", turned, perm=[1, 0]))
        elif roll > 0.8:
            name = str(self.node("Mul", self.constant(values), self.constant(1.5)))
        else:
            name = self.constant(values)
        self.weights.append(name)
        return name

    def beside(self, shape: tuple[int, ...]) -> str:
        """Give a constant that is broadcast to a shape, along any of its axes."""
        cut = int(self.random.integers(0, len(shape) + 1))
        kept = [extent if self.chance(0.5) else 1 for extent in shape[cut:]]
        return self.weight(*kept)

    def input(self, shape: list[Any], kind: int = DOUBLE, high: int = 0) -> str:
        name = self.name("x")
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        fixed = [{"B": self.batch, "T": self.tokens}.get(e, e) for e in shape]
        if kind == TensorProto.INT64:
            self.draws[name] = lambda random: random.integers(0, high, fixed)
        elif kind == TensorProto.BOOL:
            self.draws[name] = lambda random: random.integers(0, 2, fixed).astype(bool)
        else:
            self.draws[name] = lambda random: (
                random.normal(0, 1, fixed) + random.normal(0, 30, [*fixed[:-1], 1])
            )
        self.values[name] = wide(self.draws[name](np.random.default_rng(self.count)))
        if kind == DOUBLE:
            self.pool.append(name)
        return name

    def node(
        self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: Any
    ) -> Any:
        """Add a node, if it can be computed and its results are of a bearable size."""
        made = [self.name() for _ in range(outputs)]
        proto = helper.make_node(kind, inputs, made, name=self.name("n"), domain=domain, **attrs)
        given = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
        values = [self.values[name] if name else None for name in inputs]
        while values and values[-1] is None:
            values.pop()
        with np.errstate(all="ignore"):
            results = OPERATORS[kind](given, self.opset, *values)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        return self.keep(proto, made, results)

    def keep(self, proto: onnx.NodeProto, made: list[str], results: list[Array]) -> Any:
        for value in results:
            if value.size > MOST or value.size == 0 or not np.isfinite(value).all():
                raise ValueError(proto.op_type)
            if np.abs(value.astype(np.float64)).max() > LARGEST:
                raise ValueError(proto.op_type)
        self.nodes.append(proto)
        self.values.update(zip(made, results, strict=False))
        self.wanted.difference_update(proto.input)
        self.wanted.update(made)
        return made[0] if len(made) == 1 else made

    def integers(self, values: Any) -> str:
        return self.constant(values, np.int64)

    def axes(self, kind: str, x: str, axes: list[int], **attrs: Any) -> str:
        """Write a reduction in the way of the opset."""
        if self.opset >= 18 or (kind == "ReduceSum" and self.opset >= 13):
            return str(self.node(kind, x, self.integers(axes), **attrs))
        return str(self.node(kind, x, axes=axes, **attrs))

    def some_axes(self, x: str) -> list[int]:
        rank = len(self.shape(x))
        if self.chance(0.5):
            return [-1]
        if self.chance(0.3) and rank > 1:
            return [-2, -1]
        axis = int(self.random.integers(rank))
        return [axis - rank] if self.chance(0.5) else [axis]

    # what is added

    def start(self) -> None:
        for _ in range(int(self.random.integers(1, 4))):
            batch, tokens = self.pick("B", self.batch), self.pick("T", self.tokens)
            kind = self.random.random()
            if kind < 0.6:
                tokens_of = self.input([batch, tokens], TensorProto.INT64, 9)
                x = str(self.node("Gather", self.weight(9, self.width), tokens_of))
                self.pool.append(x)
            elif kind < 0.85:
                x = self.input([batch, tokens, self.pick(self.width, 5)])
                if self.chance(0.7):
                    weight = self.weight(self.shape(x)[-1], self.width)
                    self.pool.append(str(self.node("MatMul", x, weight)))
            else:
                self.input([batch, self.width, tokens])

    def build(self, adds: Sequence[Callable[[Soup], Any]]) -> onnx.ModelProto:
        """Add nodes by some functions, which give the tensors that they make."""
        self.start()
        steps = int(self.random.integers(6, 26))
        while steps:
            roll = self.random.random()
            add: Any = self.pick(*adds)
            if roll < 0.4:
                add = Soup.residual if roll < 0.25 else Soup.normalised
            nodes, constants = len(self.nodes), len(self.constants)
            try:
                made = add(self)
            except (ValueError, IndexError, TypeError, KeyError, ZeroDivisionError):
                made = None
            if made is None:
                # What was added on the way may stay: it is dead, or read by others.
                steps -= len(self.nodes) == nodes and len(self.constants) == constants
                continue
            for name in made if isinstance(made, list) else [made]:
                if self.values[name].dtype.kind == "f":
                    self.pool.append(name)
            steps -= 1
        return self.model()

    def residual(self) -> str | None:
        """Add two tensors of the same shape, or a linear function of one's norm to it."""
        t = self.tensor()
        same = [o for o in self.pool if self.shape(o) == self.shape(t) and o != t]
        if same and self.chance(0.5):
            return str(self.node(self.pick("Add", "Add", "Sub", "Sum"), t, self.pick(*same)))
        width = self.shape(t)[-1]
        hidden = self.pick(3, 5, width)
        wide_ = self.node("MatMul", self.norm(t, [-1]), self.weight(width, hidden))
        if self.chance(0.7):
            wide_ = self.node("Add", wide_, self.weight(hidden))
        wide_ = self.node(self.pick("Relu", "Tanh"), wide_)
        self.pool.append(wide_)
        y = self.node("MatMul", wide_, self.weight(hidden, width))
        if self.chance(0.5):
            y = self.node("Add", y, self.beside(self.shape(y)))
        if self.chance(0.2):
            y = self.node("Mul", y, self.weight(width))
        return str(self.node("Add", t, y))

    def normalised(self) -> str | None:
        t = self.tensor()
        return self.norm(t, self.some_axes(t))

    def norm(self, x: str, axes: list[int]) -> str:
        shape = self.shape(x)
        trailing = shape[len(shape) - len(axes) :]
        is_last = sorted(a % len(shape) for a in axes) == list(
            range(len(shape) - len(axes), len(shape))
        )
        scale = self.pick(
            self.constant(np.full(trailing, 1.5)),
            self.weight(*trailing),
            self.weight(*trailing),
        )
        bias = self.weight(*trailing) if self.chance(0.7) else ""
        if is_last and self.opset >= 17 and self.chance(0.6):
            inputs = (x, scale, bias) if bias else (x, scale)
            axis = self.pick(-len(axes), len(shape) - len(axes))
            return str(self.node("LayerNormalization", *inputs, axis=axis, epsilon=EPSILON))
        return self.spelled(x, axes, scale if is_last else "", bias if is_last else "")

    def spelled(self, x: str, axes: list[int], scale: str, bias: str) -> str:
        """Spell a norm out; some only look like one."""
        other = self.some_axes(x) if self.chance(0.1) else axes
        mean = self.axes("ReduceMean", x, axes)
        centred = self.node("Sub", x, mean)
        square = self.pick(
            lambda: self.node("Mul", centred, centred),
            lambda: self.node("Pow", centred, self.constant(2.0)),
        )()
        variance = self.axes("ReduceMean", square, other)
        if self.chance(0.1):
            width = self.shape(x)[-1]
            variance = self.node("Mul", variance, self.constant(width / max(width - 1, 1)))
        if self.chance(0.8):
            root = self.node("Sqrt", self.node("Add", variance, self.constant(EPSILON)))
        else:
            root = self.node("Add", self.node("Sqrt", variance), self.constant(0.3))
        y = self.node("Div", self.pick(*[centred] * 19, x), root)
        if self.chance(0.1):
            self.pool.append(self.pick(mean, centred, variance, y))
        if scale and self.chance(0.8):
            y = self.node("Mul", y, scale)
        return str(self.node("Add", y, bias) if bias else y)

    # the model

    def head(self, name: str) -> str:
        """Give a norm of a tensor most times, lest all tensors have to keep their values."""
        if self.chance(0.3):
            return name
        try:
            return self.norm(name, [-1])
        except (ValueError, ZeroDivisionError):
            return name

    def outputs(self) -> list[str]:
        wanted = [name for name in self.pool if name in self.wanted]
        drawn = [self.tensor()] if self.chance(0.3) else []
        given = {value.name for value in self.inputs}
        found = [self.head(name) for name in dict.fromkeys((*wanted, *drawn)) if name not in given]
        return found or [str(self.node("Identity", self.pool[-1]))]

    def model(self) -> onnx.ModelProto:
        outputs = self.outputs()
        graph = helper.make_graph(
            self.nodes,
            "soup",
            self.inputs,
            [helper.make_tensor_value_info(name, 0, None) for name in outputs],
            self.constants,
        )
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=imports)
        model.ir_version = 10
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        typed = {value.name: value for value in inferred.graph.output}
        for output in model.graph.output:
            output.CopyFrom(typed[output.name])
            if not output.type.tensor_type.elem_type:
                output.type.tensor_type.elem_type = DOUBLE
        if self.chance(0.5):
            outputs_ = list(model.graph.output)
            model = inferred
            del model.graph.output[:]
            model.graph.output.extend(outputs_)
        return model
