from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normlint.digits import shortest


def float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (float32(1e-5), "1e-05"),
        (float32(1e-12), "1e-12"),
        (float32(0.1), "0.1"),
        (float32(1.001358e-05), "1.001358e-05"),
        (float32(1e-45), "1e-45"),
        (float32(3.4e38), "3.3999999521443642e+38"),
        (1e-5, "1e-05"),
        (0.1 + 0.2, "0.30000000000000004"),
        (123456792.0, "123456792.0"),
        (1e300, "1e+300"),
        (math.inf, "inf"),
        (0.0, "0.0"),
        (-0.5, "-0.5"),
    ],
)
def test_numbers_are_shown_as_they_were_written(stored: float, shown: str) -> None:
    assert str(shortest(stored)) == shown


@given(st.floats(width=32, allow_nan=False))
def test_the_number_is_the_same_float32(value: float) -> None:
    assert float32(shortest(value)) == value


@given(st.floats(allow_nan=False))
def test_no_digit_is_lost_that_a_double_has(value: float) -> None:
    shown = shortest(value)

    assert shown == value or float32(shown) == value
