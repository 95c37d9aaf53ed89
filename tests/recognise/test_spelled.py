"""Normalisations are recognised in every spelling, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from spellings import FLAWS, Speller, Spelling

from normlint.context.constants import Constants
from normlint.graph import build_graph
from normlint.normalization import Form, Kind
from normlint.recognise import Recognised, recognise

if TYPE_CHECKING:
    from normlint.normalization import Normalization, Parameter

FIVE = {Kind.BATCH, Kind.LAYER, Kind.RMS, Kind.GROUP, Kind.INSTANCE}
SHAPES = [
    ((2, 3, 4), (-1,)),
    ((2, 3, 4), (-2, -1)),
    ((5, 6), (-1,)),
    ((7,), (-1,)),
    ((1, 3, 8), (-1,)),
    ((2, 3, 2, 4), (-1,)),
    ((2, 3, 2, 4), (-3, -2, -1)),
]
quick = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


KINDS = [
    ((2, 5, 3, 4), (-3,), (-3,), Kind.LAYER),
    ((2, 5, 3, 4), (-2, -1), (-3,), Kind.INSTANCE),
    ((2, 5, 6), (-1,), (-2,), Kind.INSTANCE),
    ((2, 3, 4, 5), (-3, -2), (-1,), Kind.INSTANCE),
    ((2, 5, 3, 4), (-3, -2, -1), (-3,), Kind.GROUP),
    ((2, 5, 3, 4), (-3, -2, -1), (-3, -2, -1), Kind.LAYER),
    ((2, 5, 3, 4), (-4, -2, -1), (-3,), Kind.BATCH),
    ((4, 5), (-2,), (-1,), Kind.BATCH),
    ((2, 5, 3, 2, 2), (-3, -2, -1), (-4,), Kind.INSTANCE),
]


def facts(model: onnx.ModelProto) -> Recognised:
    graph = build_graph(model, numpy_helper.to_array)
    return recognise(graph, Constants(graph))


def values_of(parameter: Parameter | None, neutral: float) -> Any:
    if parameter is None:
        return np.asarray(neutral)
    assert parameter.compute is not None
    return parameter.compute()


def check(norm: Normalization, spelling: Spelling, kind: Kind | None = None) -> None:
    assert norm.form is Form.DECOMPOSED
    assert norm.kind is (kind or (Kind.LAYER if spelling.centred else Kind.RMS))
    assert norm.axes == spelling.axes
    assert norm.centred is spelling.centred
    assert norm.epsilon == pytest.approx(spelling.epsilon, rel=2e-5)
    np.testing.assert_allclose(
        np.broadcast_to(values_of(norm.scale, 1), spelling.shape),
        np.broadcast_to(spelling.scale, spelling.shape),
        rtol=2e-5,
    )
    np.testing.assert_allclose(
        np.broadcast_to(values_of(norm.bias, 0), spelling.shape),
        np.broadcast_to(spelling.bias, spelling.shape),
        atol=2e-5,
    )


@st.composite
def spellers(draw: st.DrawFn, **fixed: Any) -> Speller:
    shape, axes = draw(st.sampled_from(SHAPES))
    options = {
        "shape": shape,
        "axes": axes,
        "centred": draw(st.booleans()),
        "epsilon": draw(st.sampled_from([1e-3, 1e-5, 0.25, 1e-12])),
        "affine": draw(st.booleans()),
        "opset": draw(st.sampled_from([9, 11, 13, 17, 18, 21])),
        "symbolic": draw(st.booleans()),
    }
    options.update(fixed)
    return Speller(lambda n: draw(st.integers(0, n - 1)), **options)


@quick
@given(spellers())
def test_every_spelling_is_recognised(speller: Speller) -> None:
    spelling = speller.spell()
    found = facts(spelling.model)
    assert len(found.norms) == 1
    assert not found.near_norms
    check(found.norms[0], spelling)
    assert found.norms[0].x.name == "x"


@pytest.mark.parametrize(("shape", "axes", "along", "kind"), KINDS)
@settings(quick, max_examples=20)
@given(data=st.data())
def test_the_axes_tell_the_kind(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    along: tuple[int, ...],
    kind: Kind,
    data: st.DataObject,
) -> None:
    fixed = {"shape": shape, "axes": axes, "along": along, "centred": True, "affine": True}
    spelling = data.draw(spellers(**fixed)).spell()
    found = facts(spelling.model)
    assert len(found.norms) == 1
    check(found.norms[0], spelling, kind)


@settings(quick, max_examples=40)
@given(spellers(rank_known=False, axes=(-1,), shape=(2, 3, 4), symbolic=False, opset=17))
def test_every_spelling_is_recognised_where_the_rank_is_not_known(speller: Speller) -> None:
    spelling = speller.spell()
    found = facts(spelling.model)
    assert len(found.norms) == 1
    check(found.norms[0], spelling)


@settings(quick, max_examples=60)
@given(spellers(symbolic=False, opset=17))
def test_a_spelling_computes_what_it_says(speller: Speller) -> None:
    spelling = speller.spell()
    x = np.random.default_rng(0).normal(0.5, 2, spelling.shape).astype(np.float32)
    (y,) = ReferenceEvaluator(spelling.model).run(None, {"x": x})
    np.testing.assert_allclose(y, spelling.expected(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("flaw", FLAWS)
@settings(quick, max_examples=40)
@given(data=st.data())
def test_what_is_wrong_in_one_place_is_no_normalisation(flaw: str, data: st.DataObject) -> None:
    speller = data.draw(
        spellers(
            flaw=flaw,
            affine=False,
            shape=(4, 4, 4),
            axes=(-1,),
            epsilon=data.draw(st.sampled_from([1e-3, 0.25])),
        )
    )
    if flaw in {"keepdims", "axes"}:  # of squares alone, that is a norm over other axes
        speller.centred = True
    spelling = speller.spell()
    found = facts(spelling.model)
    assert [norm.kind for norm in found.norms if norm.kind in FIVE] == []
