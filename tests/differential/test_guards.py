"""Each guard that is taken away is noticed on a small graph that it is there for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from differential.judging import judge
from differential.random_graphs import Example
from graphs import parse

from normlint.context import passages
from normlint.context.passages import PASSAGES
from normlint.rewrite import group_scale, opset_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    Patch = pytest.MonkeyPatch

WITHOUT_TARGET, WITH_TARGET = 0, 1
"""Seeds for which the judge leaves the opset alone, and for which it may rise to 23."""
IMAGE = """
    g (float[1,2,2,2] x) => (float[] y)
    <float[2,2,1,1] w = {1,-2,0.5,3}, float[2] c = {-1.5,2}, float[2] d = {0.5,1},
     float[2] m = {0.1,-0.3}, float[2] v = {0.5,2}, float[2,1,1] s = {-3,2},
     int64[1] one = {1}, int64[1] minus = {-1}, int64[1] end = {-3}, int64[2] turned = {1,0},
     int64[8] pads = {0,0,1,1,0,0,1,1}, float value = {0.5}>
"""
TOKENS = """
    g (float[2,4,4] x) => (float[] y)
    <float[4,4] w = {1,-2,0.5,3,2,1,-1,0.5,0.25,1,2,-2,1,1,-3,2}, float[4] c = {-1.5,2,3,0.5},
     float e = {0.001}>
"""
ROOT = "p = Add(v, e) r = Sqrt(p)"


@dataclass(frozen=True)
class Guard:
    """A graph, and what takes away what keeps a rewrite of it right."""

    text: str
    remove: Callable[[Patch], None]
    opset: int = 13
    seed: int = WITHOUT_TARGET

    def example(self) -> Example:
        model = parse(self.text, self.opset, 8)
        value = model.graph.input[0]
        shape = tuple(extent.dim_value for extent in value.type.tensor_type.shape.dim)
        return Example(self.seed, model, model, {value.name: shape}, 1, rounds=False)


def passing(op: str, **demands_: bool) -> Callable[[Patch], None]:
    """Let everything pass an operator as if it were an Identity."""

    def remove(patch: Patch) -> None:
        patch.setitem(PASSAGES, op, lambda way: way.same(**demands_))

    return remove


def pools_work_along_no_axis(patch: Patch) -> None:
    patch.setattr(passages, "_spatial", lambda way: way)


def groups_are_channels(patch: Patch) -> None:
    # In both: a module that is imported while one is patched would keep what it found there.
    for module in (opset_steps, group_scale):
        patch.setattr(module, "repeated_for_channels", lambda node, index: node.inputs[index])


def softmax_means_the_same(patch: Patch) -> None:
    patch.delitem(opset_steps.CONVERTERS, ("Softmax", 13))


def norm(x: str, scaled: str) -> str:
    return f"""
        mean = ReduceMean<axes = [-1]>({x}) k = Sub({x}, mean) q = Mul(k, k)
        v = ReduceMean<axes = [-1]>(q) {ROOT} n = Div(k, r) {scaled}
    """


BATCH_NORM = "y = BatchNormalization({}, c, d, m, v)"
GUARDS = {
    "channels stay on their axis": Guard(
        f"{IMAGE} {{ h = Conv(x, w) t = Transpose<perm = [0,2,1,3]>(h) {BATCH_NORM.format('t')} }}",
        passing("Transpose"),
    ),
    "slices keep the order": Guard(
        f"{IMAGE} {{ h = Conv(x, w) t = Slice(h, minus, end, one, minus) y = Mul(t, s) }}",
        passing("Slice"),
    ),
    "gathered channels keep the order": Guard(
        f"{IMAGE} {{ h = Conv(x, w) t = Gather<axis = 1>(h, turned) y = Mul(t, s) }}",
        passing("Gather"),
    ),
    "paddings have no value": Guard(
        f"{IMAGE} {{ h = Conv(x, w) t = Pad(h, pads, value) {BATCH_NORM.format('t')} }}",
        passing("Pad"),
    ),
    "rectifiers take any sign": Guard(
        f"{IMAGE} {{ h = Conv(x, w) t = Relu(h) y = Mul(t, s) }}",
        passing("Relu"),
    ),
    "rectifiers take shifts": Guard(
        f"{IMAGE} {{ h = Conv(x, w) t = Relu(h) y = Add(t, s) }}",
        passing("Relu", positive=True),
    ),
    "maxima take any sign": Guard(
        f"{IMAGE} {{ h = Conv(x, w) t = MaxPool<kernel_shape = [2,2]>(h) y = Mul(t, s) }}",
        passing("MaxPool"),
    ),
    "padding is averaged away": Guard(
        f"""{IMAGE} {{
            h = Conv(x, w)
            t = AveragePool<kernel_shape = [2,2], pads = [1,1,0,0], count_include_pad = 1>(h)
            y = Add(t, s)
        }}""",
        passing("AveragePool"),
    ),
    "sums take shifts": Guard(
        f"""{IMAGE} {{
            h = Conv(x, w) last = Constant<value = int64[1] {{3}}>()
            t = ReduceSum<keepdims = 1>(h, last) y = Add(t, s)
        }}""",
        passing("ReduceSum"),
    ),
    "integers are floats": Guard(
        f"{IMAGE} {{ h = Conv(x, w) i = Cast<to = 6>(h) t = Cast<to = 1>(i) y = Mul(t, s) }}",
        passing("Cast"),
    ),
    "pools work along no axis": Guard(
        f"""{TOKENS} {{
            h = MatMul(x, w) t = AveragePool<kernel_shape = [3], pads = [1,1]>(h) y = Mul(t, c)
        }}""",
        pools_work_along_no_axis,
    ),
    "groups are channels": Guard(
        f"""
        g (float[2,4,4] x) => (float[] y)
        <float[2] s = {{1,-2}}, float[2] b = {{0.5,1}}, float e = {{0.001}},
         int64[1] at = {{-1}}> {{
            g = GroupNormalization<num_groups = 2>(x, s, b)
            q = Mul(g, g) v = ReduceMean(q, at) {ROOT} y = Div(g, r)
        }}
        """,
        groups_are_channels,
        opset=18,
        seed=WITH_TARGET,
    ),
    "softmax means the same": Guard(
        f"{TOKENS} {{ z = Softmax<axis = 1>(x) {norm('z', 'y = Relu(n)')} }}",
        softmax_means_the_same,
        opset=12,
        seed=WITH_TARGET,
    ),
}


@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.filterwarnings("ignore")
def test_nothing_is_wrong_with_it(name: str) -> None:
    verdict = judge(GUARDS[name].example())

    assert verdict.runs
    assert not verdict.problems


@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.filterwarnings("ignore")
def test_a_guard_that_is_gone_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    GUARDS[name].remove(monkeypatch)

    try:
        problems = judge(GUARDS[name].example()).problems
    except Exception:  # noqa: BLE001 - a mutation may break anything
        return
    assert problems
