"""Which axis of a reshaped tensor carries values per channel: held to a search by brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from normlint.context.axes import Product, through_reshape

EXTENTS = st.lists(st.sampled_from((1, 2, 3, 4, 6)), min_size=1, max_size=4)


def channels_along(shape: tuple[int, ...], axis: int) -> np.ndarray:
    """Give the channel of each element, in order."""
    place = tuple(-1 if k == axis else 1 for k in range(len(shape)))
    return np.broadcast_to(np.arange(shape[axis]).reshape(place), shape).reshape(-1)


def reshapes(size: int, ranks: range) -> list[tuple[int, ...]]:
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    return [
        shape
        for rank in ranks
        for shape in itertools.product(divisors, repeat=rank)
        if math.prod(shape) == size
    ]


@given(EXTENTS, st.data())
def test_an_axis_is_found_exactly_where_one_carries_the_channels(
    near: list[int], data: st.DataObject
) -> None:
    shape = tuple(near)
    far = data.draw(st.sampled_from(reshapes(math.prod(shape), range(1, 4))))
    axis = data.draw(st.integers(0, len(shape) - 1))
    wanted = channels_along(shape, axis)

    found = through_reshape(shape, axis, shape[axis], far)

    if found is None:
        for candidate, extent in enumerate(far):
            along = np.moveaxis(wanted.reshape(far), candidate, 0).reshape(extent, -1)
            # A single channel lies along every axis, and none has to be found for it.
            assert shape[axis] == 1 or extent < shape[axis] or (along != along[:, :1]).any()
        return
    target, channels = found
    own = np.arange(shape[axis]) if channels is None else channels
    assert (own[channels_along(far, target)] == wanted).all()


def test_equal_extents_prove_nothing() -> None:
    assert through_reshape((4, 4), 0, 4, (2, 2, 4)) is None


def test_symbols_count_as_themselves() -> None:
    assert through_reshape(("n", 5, 6), 2, 6, ("m", 6)) == (1, None)
    assert through_reshape(("n", 6, "h", "w"), 1, 6, ("n", 6, "hw")) == (1, None)
    assert through_reshape(("n", 6, "h", "w"), 1, 6, ("m", 6, "k")) is None


def test_products_divide_where_their_symbols_agree() -> None:
    assert Product.of((2, "n", 6)).over(Product.of(("n", 4))) == 3
    assert Product.of((2, "n")).over(Product.of((2, "m"))) is None
    assert Product.of((0,)).over(Product.of((0,))) is None
