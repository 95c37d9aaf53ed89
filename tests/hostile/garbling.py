"""Bytes of a model changed without regard to what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hostile.originals import originals
from onnx import helper

if TYPE_CHECKING:
    from hostile.originals import Random


def garbled(random: Random, data: bytes) -> bytes:
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        data = random.choice(_GARBLINGS)(random, data)
    return data


def _place(random: Random, data: bytes) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 2, 8, 100, 3000)))


def _truncated(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _flipped(random: Random, data: bytes) -> bytes:
    damaged = bytearray(data)
    for _ in range(random.choice((1, 1, 3, 20)) if data else 0):
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
    return bytes(damaged)


def _replaced(random: Random, data: bytes) -> bytes:
    start, stop = _place(random, data)
    return data[:start] + random.randbytes(stop - start) + data[stop:]


def _dropped(random: Random, data: bytes) -> bytes:
    start, stop = _place(random, data)
    return data[:start] + data[stop:]


def _repeated(random: Random, data: bytes) -> bytes:
    start, stop = _place(random, data)
    return data[:stop] + data[start:stop] * random.choice((1, 2, 50)) + data[stop:]


def _spliced(random: Random, data: bytes) -> bytes:
    other = random.choice(originals())
    start, stop = _place(random, other)
    at = random.randrange(len(data) + 1)
    return data[:at] + other[start:stop] + data[at:]


def _long_number(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    number = random.choice(
        (b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x07", b"\x80" * 12, b"\xff" * 4)
    )
    return data[:at] + number + data[at + random.choice((0, 1, len(number))) :]


def _nested(random: Random, data: bytes) -> bytes:
    """Wrap bytes into graph, node, attribute, graph and so on, deeper than anybody reads."""
    inner = data[: random.randrange(200)]
    for level in range(random.choice((10, 90, 120, 400))):
        number = (1, 5, 6)[level % 3]
        inner = helper.make_attribute("x", inner).SerializeToString()[:0] + field(number, inner)
    return data + field(7, inner)


def field(number: int, value: bytes) -> bytes:
    """Serialise a field whose value has a length."""
    size, encoded = len(value), bytearray([number << 3 | 2])
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(encoded) + bytes([size]) + value


_GARBLINGS = (
    _truncated,
    _flipped,
    _flipped,
    _replaced,
    _dropped,
    _repeated,
    _spliced,
    _long_number,
    _nested,
)
