"""Operators of vision and sequence models in all their forms: paddings, extents, directions."""

from __future__ import annotations

import numpy as np
from differential.random_graphs.core import Core
from onnx import TensorProto

_KEPT = (
    *("Elu", "Selu", "Softplus", "Softsign", "HardSigmoid", "ThresholdedRelu", "Neg", "Abs"),
    *("Clip", "PRelu", "Max", "Min", "HardSwish", "Mish", "Gelu", "Celu", "Erf", "Pow"),
)
"""Operators on each element."""
_SINCE = {"HardSwish": 14, "Mish": 18, "Gelu": 20, "Celu": 12, "Erf": 9}


class Operators(Core):
    """Appends single operators; what an operator cannot do is left out."""

    def elementwise(self, x: str) -> str:
        """Apply something to each element that no fold may pass unseen."""
        shape = self.shapes[x]
        op = self.choose.choice(_KEPT)
        if self.opset < _SINCE.get(op, 7):
            op = "Neg"
        if op == "Clip":
            if self.opset < 11:
                return self.op(op, [x], shape, min=-1.0, max=1.5)
            return self.op(op, [x, self.number(-1.0), self.number(1.5)], shape)
        if op == "PRelu":
            slope = (shape[1], *[1] * (len(shape) - 2)) if self.chance(0.6) else (1,)
            return self.op(op, [x, self.floats(*slope)], shape)
        if op in {"Max", "Min"}:
            return self.op(op, [x, self.number(self.choose.choice((0.0, 0.5)))], shape)
        if op == "Pow":
            return self.op(op, [x, self.number(self.choose.choice((1.0, 2.0, 3.0)))], shape)
        return self.op(op, [x], shape)

    def averaged(self, x: str) -> str:
        """Combine several values by one operator."""
        op = self.choose.choice(("Sum", "Mean", "Max"))
        others = [self.block(x, self.shapes[x]) for _ in range(self.choose.randint(1, 2))]
        if self.chance(0.3):
            others.append(self.floats(self.shapes[x][-1]))
        inputs = [x, *others]
        self.choose.shuffle(inputs)
        return self.op(op, inputs, self.shapes[x])

    def einsum(self, x: str) -> str:
        shape = self.shapes[x]
        if self.opset < 12 or not 2 <= len(shape) <= 4:
            return x
        letters = "abcd"[: len(shape)]
        made = self.extent()
        if self.chance(0.5):
            weight = self.floats(shape[-1], made)
            equation = f"{letters},{letters[-1]}z->{letters[:-1]}z"
            return self.op("Einsum", [x, weight], (*shape[:-1], made), equation=equation)
        weight = self.floats(made, shape[1])
        out = f"{letters[0]}z{letters[2:]}"
        equation = f"{letters},z{letters[1]}->{out}"
        return self.op("Einsum", [x, weight], (shape[0], made, *shape[2:]), equation=equation)

    # Windows -----------------------------------------------------------------------------------

    def auto_padded(self, x: str) -> str:
        """Convolve with the padding that the runtime works out."""
        shape = self.shapes[x]
        if len(shape) < 3:
            return x
        mode = self.choose.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
        space = shape[2:]
        made = self.choose.choice((2, 3, shape[1]))
        kernel = [min(2, extent) for extent in space]
        strides = [self.choose.choice((1, 2)) for _ in space]
        reach = [
            extent if mode != "VALID" else extent - k + 1
            for extent, k in zip(space, kernel, strict=True)
        ]
        out = [-(-extent // step) for extent, step in zip(reach, strides, strict=True)]
        inputs = [x, self.floats(made, shape[1], *kernel)]
        if self.chance(0.6):
            inputs.append(self.floats(made))
        return self.op("Conv", inputs, (shape[0], made, *out), auto_pad=mode, strides=strides)

    def deconv(self, x: str) -> str:
        """Convolve transposed with paddings, gaps and an extent of its own."""
        shape = self.shapes[x]
        if len(shape) < 3:
            return x
        space, groups = shape[2:], self.choose.choice([g for g in (1, 2) if shape[1] % g == 0])
        made = self.choose.choice((1, 2, 3))
        kernel = [self.choose.choice((2, 3)) for _ in space]
        strides = [self.choose.choice((1, 2)) for _ in space]
        extra = [self.choose.randint(0, step - 1) for step in strides]
        ends = [self.choose.randint(0, 1) for _ in range(2 * len(space))]
        dilations = [self.choose.choice((1, 1, 2)) for _ in space]
        out = [
            strides[k] * (extent - 1) + extra[k] + (kernel[k] - 1) * dilations[k] + 1
            - ends[k] - ends[k + len(space)]
            for k, extent in enumerate(space)
        ]  # fmt: skip
        if min(out) < 1:
            return x
        inputs = [x, self.floats(shape[1], made, *kernel)]
        if self.chance(0.5):
            inputs.append(self.floats(made * groups))
        return self.op(
            "ConvTranspose",
            inputs,
            (shape[0], made * groups, *out),
            group=groups,
            strides=strides,
            output_padding=extra,
            pads=ends,
            dilations=dilations,
        )

    def window(self, x: str) -> str:
        """Pool in any number of dimensions."""
        shape = self.shapes[x]
        space = shape[2:]
        if len(shape) < 3 or min(space) < 2:
            return x
        op = self.choose.choice(("AveragePool", "AveragePool", "MaxPool", "LpPool", "GlobalLpPool"))
        if op == "GlobalLpPool":
            return self.op(op, [x], (*shape[:2], *[1] * len(space)), p=2)
        pads = [self.choose.choice((0, 0, 1)) for _ in range(2 * len(space))]
        strides = [self.choose.choice((1, 1, 2)) for _ in space]
        attrs: dict[str, object] = {"kernel_shape": [2] * len(space), "pads": pads}
        if op == "AveragePool":
            attrs["count_include_pad"] = self.choose.randint(0, 1)
        rounded = int(op != "LpPool" and self.opset >= 10 and self.chance(0.3))
        if rounded:
            attrs["ceil_mode"] = 1
        out = []
        for k, extent in enumerate(space):
            room = extent + pads[k] + pads[k + len(space)] - 2
            count = -(-room // strides[k]) if rounded else room // strides[k]
            if rounded and count * strides[k] >= extent + pads[k]:
                count -= 1  # a window that would begin beyond the end is left out
            out.append(count + 1)
        return self.op(op, [x], (*shape[:2], *out), strides=strides, **attrs)

    def enlarged(self, x: str) -> str:
        """Resize in any mode, by scales or to an extent."""
        shape = self.shapes[x]
        rank = len(shape)
        if not 3 <= rank <= 5:
            return x
        factors = [1.0, 1.0, *(self.choose.choice((1.0, 2.0)) for _ in range(rank - 2))]
        out = tuple(int(n * f) for n, f in zip(shape, factors, strict=True))
        scales = np.array(factors, np.float32)
        if self.opset < 9:
            return self.op("Upsample", [x], out, scales=factors, mode="nearest")
        if self.opset < 11:
            op = "Resize" if self.opset == 10 else "Upsample"
            return self.op(op, [x, self.constant(scales)], out, mode="nearest")
        modes = ("nearest", "linear", "cubic") if rank == 4 else ("nearest", "linear")
        attrs: dict[str, object] = {"mode": self.choose.choice(modes)}
        forms = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
        attrs["coordinate_transformation_mode"] = self.choose.choice(forms)
        if self.opset >= 18 and self.chance(0.3):
            attrs["antialias"] = int(attrs["mode"] != "nearest")
        region = "" if self.opset >= 13 else self.constant(np.zeros(0, np.float32))
        if self.chance(0.5):
            return self.op("Resize", [x, region, self.constant(scales)], out, **attrs)
        none = "" if self.opset >= 13 else self.constant(np.zeros(0, np.float32))
        return self.op("Resize", [x, region, none, self.integers(*out)], out, **attrs)

    def padded(self, x: str) -> str:
        """Pad on any axes, by any means, also by less than nothing."""
        shape = self.shapes[x]
        rank = len(shape)
        modes = ["constant", "constant", "edge", "reflect"] + ["wrap"] * (self.opset >= 19)
        mode = self.choose.choice(modes)
        axes = self.choose.sample(range(rank), self.choose.randint(1, min(2, rank)))
        low = -1 if mode == "constant" else 0
        pads = {
            axis: [self.choose.randint(low, 1) if shape[axis] > 2 else 0 for _ in "ab"]
            for axis in axes
        }
        out = tuple(n + sum(pads.get(axis, ())) for axis, n in enumerate(shape))
        if self.opset < 11:
            flat = [pads.get(axis, (0, 0))[end] for end in (0, 1) for axis in range(rank)]
            return self.op("Pad", [x], out, mode=mode, pads=flat, value=0.5)
        if self.opset >= 18 and self.chance(0.5):
            flat = [pads[axis][end] for end in (0, 1) for axis in axes]
            given = [self.integers(*flat), self.number(0.25), self.integers(*axes)]
            return self.op("Pad", [x, *given], out, mode=mode)
        flat = [pads.get(axis, (0, 0))[end] for end in (0, 1) for axis in range(rank)]
        given = [self.integers(*flat)] + [self.number(0.5)] * self.chance(0.5)
        return self.op("Pad", [x, *given], out, mode=mode)

    def blocks_to_depth(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) != 4:
            return x
        n, c, h, w = shape
        if c % 4 == 0 and self.chance(0.5):
            attrs = {"mode": self.choose.choice(("DCR", "CRD"))} if self.opset >= 11 else {}
            return self.op("DepthToSpace", [x], (n, c // 4, 2 * h, 2 * w), blocksize=2, **attrs)
        if h % 2 == 0 and w % 2 == 0:
            return self.op("SpaceToDepth", [x], (n, 4 * c, h // 2, w // 2), blocksize=2)
        return x

    def local_response(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) != 4:
            return x
        return self.op("LRN", [x], shape, size=self.choose.choice((1, 3)), alpha=0.1, bias=1.5)

    # Recurrences -------------------------------------------------------------------------------

    def recurrence(self, x: str) -> str:
        """Apply LSTM, GRU or RNN in any direction and with any of their inputs."""
        shape = self.shapes[x]
        if len(shape) != 3 or self.dtype != TensorProto.FLOAT:
            return x
        time, batch, width = shape
        kind, gates = self.choose.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
        direction = self.choose.choice(("forward", "reverse", "bidirectional"))
        both, hidden = 1 + (direction == "bidirectional"), self.extent()
        state = (both, batch, hidden)
        inputs = [
            x,
            self.floats(both, gates * hidden, width),
            self.floats(both, gates * hidden, hidden),
            self.floats(both, 2 * gates * hidden) if self.chance(0.5) else "",
            self.constant(np.full(batch, time, np.int32)) if self.chance(0.3) else "",
            self.floats(*state) if self.chance(0.4) else "",
        ]
        if kind == "LSTM":
            inputs.append(self.floats(*state) if self.chance(0.4) else "")
            inputs.append(self.floats(both, 3 * hidden) if self.chance(0.3) else "")
        while not inputs[-1]:
            inputs.pop()
        attrs: dict[str, object] = {"hidden_size": hidden, "direction": direction}
        if kind == "GRU":
            attrs["linear_before_reset"] = self.choose.randint(0, 1)
        whole = (time, both, batch, hidden)
        y, last = self.several(kind, inputs, [whole, state], **attrs)
        if self.chance(0.2):
            return last
        y = self.op("Transpose", [y], (time, batch, both, hidden), perm=[0, 2, 1, 3])
        return self.op("Reshape", [y, self.integers(0, 0, -1)], (time, batch, both * hidden))

    # Extents that are computed -----------------------------------------------------------------

    def shaped_by_itself(self, x: str) -> str:
        """Reshape by extents taken from the value itself, as exporters write it."""
        shape = self.shapes[x]
        if len(shape) < 3:
            return x
        extents = self.op("Shape", [x], (len(shape),))
        first = self.op("Gather", [extents, self.integers(0)], (1,), axis=0)
        if self.chance(0.5):
            target = self.op("Concat", [first, self.integers(-1, shape[-1])], (3,), axis=0)
            rest = int(np.prod(shape[1:-1]))
            return self.op("Reshape", [x, target], (shape[0], rest, shape[-1]))
        target = self.op("Concat", [first, self.integers(shape[1], -1)], (3,), axis=0)
        return self.op("Reshape", [x, target], (*shape[:2], int(np.prod(shape[2:]))))

    def spread_out(self, x: str) -> str:
        """Add a constant that is expanded to the extents of the value."""
        shape = self.shapes[x]
        if self.opset < 8:
            return x
        extents = self.op("Shape", [x], (len(shape),))
        wide = self.op("Expand", [self.floats(shape[-1]), extents], shape)
        return self.op(self.choose.choice(("Add", "Mul")), [x, wide], shape)

    def cut_by_itself(self, x: str) -> str:
        """Slice to half of an extent that the graph works out."""
        shape = self.shapes[x]
        axis = self.choose.randrange(len(shape))
        if self.opset < 10 or shape[axis] < 2:
            return x
        extents = self.op("Shape", [x], (len(shape),))
        extent = self.op("Gather", [extents, self.integers(axis)], (1,), axis=0)
        half = self.op("Div", [extent, self.integers(2)], (1,))
        out = (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])
        return self.op("Slice", [x, self.integers(0), half, self.integers(axis)], out)
