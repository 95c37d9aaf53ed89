"""Pictures of streams: a map in the terminal, SVG and Mermaid."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from context.stacks import Stack, context_of, stacked

from normlint.report.stream_drawing import stream_mermaid, stream_svg
from normlint.report.stream_map import stream_map
from normlint.stream_picture import StreamPicture, stream_pictures

LINES = {
    "pre": "L attention +  L feed-forward +",
    "post": "attention + L  feed-forward + L",
    "sandwich": "L attention L +  L feed-forward L +",
    "res-post": "attention L +  feed-forward L +",
    "deepnorm": "attention scaled + L  feed-forward scaled + L",
    "bare": "attention +  feed-forward +",
}


def picture(placement: str) -> StreamPicture:
    return stream_pictures(context_of(stacked(placement, 2)))[0]


@pytest.mark.parametrize("placement", LINES)
def test_a_line_a_layer_and_a_mark_a_norm(placement: str) -> None:
    lines = stream_map(stream_pictures(context_of(stacked(placement, 2))))

    assert lines[1] == f"      0  {LINES[placement]}"
    assert lines[2] == f"      1  {LINES[placement]}"
    assert lines[0].startswith("stream 0: 2 layers, 4 residual additions")
    assert lines[-1] == "L LayerNorm"
    assert any("end" in line for line in lines) is (placement not in {"post", "deepnorm"})


def test_norms_within_a_branch_stand_in_brackets() -> None:
    stack = Stack()
    y = stack.layer("x", "pre", lambda t: stack.attention(t, normed=True))

    lines = stream_map(stream_pictures(context_of(stack.model(y))))

    assert lines[1].split() == ["0", "L", "attention(LL)", "+"]


def test_the_norm_at_the_start_and_convolutions_are_shown() -> None:
    stack = Stack()
    x = stack.norm(stack.linear("x"))
    y = stack.norm(stack.layer(x, "pre", stack.convolution))
    stream = stream_pictures(context_of(stack.model(y, inputs={"x": (1, 8, 4)})))[0]

    lines = stream_map([stream])

    assert lines[1].split() == ["start", "L"]
    assert lines[2].split() == ["0", "L", "convolution(B)", "+"]
    assert lines[-1] == "L LayerNorm, B BatchNorm"
    assert 'e0["LayerNorm"]' in stream_mermaid(stream)


def test_a_model_without_streams_says_so() -> None:
    assert stream_map(()) == ["no residual stream"]


@pytest.mark.parametrize("placement", LINES)
def test_the_drawing_is_well_formed_and_shows_every_norm(placement: str) -> None:
    stream = picture(placement)

    root = ET.fromstring(stream_svg(stream))  # noqa: S314 - our own drawing

    texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    norms = sum(
        len(b.before) + len(b.inside) + len(b.behind) + len(b.on_sum) for b in stream.branches
    )
    assert texts.count("LayerNorm") == norms + len(stream.start) + len(stream.end)
    assert texts.count("+") == len(stream.branches)
    assert texts.count("scaled") == (4 if placement == "deepnorm" else 0)


@pytest.mark.parametrize("placement", LINES)
def test_the_flowchart_joins_each_sum_twice(placement: str) -> None:
    lines = stream_mermaid(picture(placement)).splitlines()

    assert lines[0] == "flowchart TD"
    for number in range(4):
        assert sum(f"a{number}" in line.split("-->")[-1] for line in lines if "-->" in line) == 2


def test_a_name_forges_neither_lines_nor_elements() -> None:
    model = stacked("pre", 1)
    name = 'x"]\n<script>&'
    model.graph.input[0].name = name
    for node in model.graph.node:
        node.input[:] = [name if i == "x" else i for i in node.input]
    stream = stream_pictures(context_of(model))[0]

    ET.fromstring(stream_svg(stream))  # noqa: S314 - our own drawing
    assert "<script>" not in stream_svg(stream)
    assert '"]' not in stream_mermaid(stream).splitlines()[1].removesuffix('"])')
