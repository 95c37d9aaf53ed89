"""Numbers as people wrote them: 1e-05 comes back from float32 as 9.999999747378752e-06."""

from __future__ import annotations

import math
import struct


def shortest(value: float) -> float:
    """Give the number with the fewest digits that is the same float32; others as they are.

    Whole numbers stay too, for those may be counts.
    """
    if not math.isfinite(value) or value.is_integer() or not _is_float32(value):
        return value
    packed = struct.pack("<f", value)
    texts = (f"{value:.{digits}g}" for digits in range(1, 10))
    return next(float(text) for text in texts if struct.pack("<f", float(text)) == packed)


def _is_float32(value: float) -> bool:
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return False
