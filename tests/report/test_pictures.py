"""Pictures of findings: what is drawn of a graph before and after, and where it goes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from commandline import SPELLED, model
from hypothesis import given
from hypothesis import strategies as st

from normlint import check
from normlint.report.excerpt import excerpt
from normlint.report.layout import APART, layout
from normlint.report.mermaid import mermaid
from normlint.report.sketch import Box, Sketch, sketch
from normlint.report.svg import svg
from normlint.results import Finding, FixReport, Step
from normlint.rule import Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDED = """
<ir_version: 8, opset_import: ["" : 17]>
folded (float[1,2,4,4] x) => (float[1,2,4,4] y)
<float[2,2,1,1] w = {1,2,3,4}, float[2] scale = {1,2}, float[2] bias = {0,1},
 float[2] mean = {0,1}, float[2] variance = {1,2}> {
    c = Conv(x, w)
    n = BatchNormalization(c, scale, bias, mean, variance)
    y = Relu(n)
}
"""


@st.composite
def sketches(draw: st.DrawFn) -> Sketch:
    count = draw(st.integers(1, 30))
    boxes = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(boxes, boxes), max_size=3 * count))
    arrows = dict.fromkeys((s, t, "tensor") for s, t in pairs if s != t)
    return Sketch(tuple(Box("match", f"Op{n}", "") for n in range(count)), tuple(arrows))


@given(sketches())
def test_boxes_stand_apart_and_arrows_join_them_row_by_row(drawing: Sketch) -> None:
    laid = layout(drawing)

    for row in {y for _, y in laid.places}:
        columns = sorted(x for x, y in laid.places if y == row)
        assert all(right - left >= APART - 1e-6 for left, right in pairwise(columns))
    for (source, target, _), way in zip(drawing.arrows, laid.ways, strict=True):
        assert (way[0], way[-1]) == (laid.places[source], laid.places[target])
        if source < target:
            assert all(lower - upper == 1 for (_, upper), (_, lower) in pairwise(way))


def test_arrows_past_a_row_do_not_touch_its_boxes() -> None:
    boxes = tuple(Box("match", "Op", "") for _ in range(5))
    chain = ((0, 1, "a"), (1, 2, "b"), (2, 3, "c"), (3, 4, "d"), (0, 4, "skip"), (1, 4, "skip2"))

    laid = layout(Sketch(boxes, chain))

    for way in laid.ways:
        for x, y in way[1:-1]:
            assert all(abs(x - column) > APART / 2 for column, row in laid.places if row == y)


def finding(*steps: Step, after: Sequence[Step] = ()) -> Finding:
    fix = FixReport("safe", "repair", picture=tuple(after)) if after else None
    return Finding("NL101", "rule", Severity.INFO, "message", fix=fix, picture=steps)


def roles(steps: Sequence[Step]) -> list[tuple[str, str]]:
    return [(step.op, step.role) for step in steps]


def test_before_and_after_with_one_ring() -> None:
    [found] = check(
        model(
            SPELLED.replace("(x)", "(h)")
            .replace("(x,", "(h,")
            .replace("{\n    mean", "{\n    h = Tanh(x)\n    mean")
            .replace("y = Add", "z = Add")
            .replace("bias)\n}", "bias)\n    y = Relu(z)\n}")
        )
    ).findings

    drawn = excerpt(found)

    assert [op for op, role in roles(drawn.before) if role == "near"] == ["Tanh", "Relu"]
    assert len(drawn.before) == 11
    assert roles(drawn.after) == [("Tanh", "near"), ("LayerNormalization", "new"), ("Relu", "near")]


def test_what_is_folded_is_gone_and_what_stays_stays() -> None:
    found = next(f for f in check(model(FOLDED)).findings if f.code == "NL101")

    drawn = excerpt(found)

    assert roles(drawn.before) == [
        ("Conv", "match"),
        ("BatchNormalization", "match"),
        ("Relu", "near"),
    ]
    assert roles(drawn.after) == [("Conv", "new"), ("Relu", "near")]


def test_of_many_places_a_few_are_drawn_and_the_rest_is_counted() -> None:
    steps = [
        step
        for n in range(30)
        for step in (
            Step(f"a{n}", "Add", (f"x{n}", "s"), (f"t{n}",), "near"),
            Step(f"n{n}", "LayerNormalization", (f"t{n}",), (f"y{n}",)),
            Step(f"m{n}", "MatMul", (f"y{n}",), (f"z{n}",), "near"),
        )
    ]
    after = [Step(f"y{n}", "RMSNormalization", (f"t{n}",), (f"y{n}",), "new") for n in range(30)]

    drawn = excerpt(finding(*steps, after=after))

    assert drawn.caption == "as it is, 4 of 30 places"
    assert [step.name for step in drawn.before if step.role == "match"] == ["n0", "n1", "n2", "n3"]
    assert [step.name for step in drawn.after] == ["y0", "y1", "y2", "y3"]


def test_a_neighbour_that_is_another_place_is_drawn_as_a_neighbour() -> None:
    wide = [Step(f"m{n}", "MatMul", ("y",), (f"z{n}",), "near") for n in range(12)]
    steps = (Step("n", "LayerNormalization", ("x",), ("y",)), *wide)
    second = Step("k", "LayerNormalization", ("z0",), ("w",))

    drawn = excerpt(finding(*steps, Step("r", "Relu", ("w",), ("v",), "near"), second))

    assert (drawn.drawn, drawn.places) == (1, 2)
    assert "k" not in [step.name for step in drawn.before]


def test_tensors_at_the_rim_have_boxes_and_those_beyond_the_ring_have_none() -> None:
    drawing = sketch(
        (
            Step("near", "Add", ("far", "x"), ("t",), "near"),
            Step("norm", "LayerNormalization", ("t", "scale"), ("y",)),
        )
    )

    assert [box.label for box in drawing.boxes] == ["scale", "Add", "LayerNormalization", "y"]
    assert drawing.arrows == ((1, 2, "t"), (0, 2, "scale"), (2, 3, "y"))


def test_a_node_with_very_many_inputs_is_drawn_with_a_few() -> None:
    many = tuple(f"x{number}" for number in range(100_000))

    ends = tuple(f"y{number}" for number in range(50))
    drawing = sketch((Step("join", "Concat", many, ends),))

    assert len(drawing.boxes) == 12 + 1 + 12
    assert "x11, … 99988 more → y0" in drawing.boxes[12].title


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (Step("a", "Relu", ("t",), ("t",)),),
        (Step("a", "Relu", ("u",), ("t",)), Step("b", "Relu", ("t",), ("u",))),
        (Step("a", "Relu"), Step("b", "Relu", (), ("t", "t"))),
    ],
)
def test_graphs_that_no_sound_model_has_are_drawn_too(steps: tuple[Step, ...]) -> None:
    ET.fromstring(svg(steps, title="t"))  # noqa: S314 - our own drawing
    assert mermaid(steps).startswith("flowchart TD\n")
