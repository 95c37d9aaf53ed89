"""The protobuf wire format: fields one after the other, each with a number, a type and a length.

https://protobuf.dev/programming-guides/encoding/ . It accepts what protobuf's own parser accepts,
except that a length may pass 2 GiB: a model that no parser takes whole can be walked all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from normlint.model.source import Source

VARINT, FIXED64, LENGTH, GROUP, END_GROUP, FIXED32 = range(6)
MAX_DEPTH = 100
"""Messages within messages; protobuf's own parser stops there too."""

_LONGEST_FIELD_HEAD = 20
_SMALL_READ = 1 << 12
_LARGE_READ = 1 << 18


class WireError(Exception):
    """The bytes at `offset` cannot be protobuf."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"{reason} at byte {offset}")
        self.offset = offset
        self.reason = reason


Field: TypeAlias = tuple[int, int, int, int]
"""One field: its number, its wire type, and where its value starts and stops."""


class Reader:
    """Fields of a source, read through a window that is small after a jump and grows on a walk."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._size = source.size
        self._base = 0
        self._buffer = b""
        self._next_read = _SMALL_READ

    def field(self, position: int, end: int) -> Field:
        """Return the field at `position` of a message that stops at `end`. Raises `WireError`."""
        at = position - self._base
        buffer = self._buffer
        if 0 <= at < len(buffer) - 2:
            # Nearly every field: one byte of key, one or two of length.
            head, length, more = buffer[at : at + 3]
            if head & 0x87 == LENGTH and head > 7 and (length < 0x80 or more < 0x80):
                start = position + 2
                if length >= 0x80:
                    start, length = position + 3, length & 0x7F | more << 7
                if start + length <= end:
                    return head >> 3, LENGTH, start, start + length
        return self._any_field(position, end)

    def varint(self, position: int, end: int) -> int:
        """Return the unsigned varint at `position`."""
        return self._varint(position, end, 10)[0]

    def _any_field(self, position: int, end: int) -> Field:
        key, start = self._key(position, end)
        if key >> 3 == 0:
            raise WireError(position, "impossible field number")
        start, stop = self._value(key, start, end)
        return key >> 3, key & 7, start, stop

    def _key(self, position: int, end: int) -> tuple[int, int]:
        key, start = self._varint(position, end, 5)
        if key >> 32:
            raise WireError(position, "impossible field number")
        return key, start

    def _value(self, key: int, start: int, end: int) -> tuple[int, int]:
        """Return where the value of the field `key` starts and stops."""
        wire = key & 7
        if wire == LENGTH:
            length, start = self._length(start, end)
            stop = start + length
        elif wire == VARINT:
            _, stop = self._varint(start, end, 10)
        elif wire == FIXED32:
            stop = start + 4
        elif wire == FIXED64:
            stop = start + 8
        elif wire == GROUP:
            stop = self._group(key, start, end)
        else:
            raise WireError(start, "impossible wire type")
        if stop > end:
            raise WireError(start, self._overrun(stop - start, start, end))
        return start, stop

    def _varint(self, position: int, end: int, longest: int) -> tuple[int, int]:
        at = position - self._base
        if at < 0 or at + _LONGEST_FIELD_HEAD > len(self._buffer):
            at = self._load(position)
        buffer = self._buffer
        if position >= end:
            raise WireError(position, "the message stops within a field")
        value = buffer[at]
        if value < 0x80:
            return value, position + 1
        value &= 0x7F
        for index in range(1, min(longest, end - position)):
            byte = buffer[at + index]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value, position + index + 1
        if end - position < longest:
            raise WireError(position, "the message stops within a number")
        raise WireError(position, "a number is too long")

    def _length(self, position: int, end: int) -> tuple[int, int]:
        length, start = self._varint(position, end, 10)
        if start - position > 5 and length >> 35 == 0:
            raise WireError(position, "a length is written too long")
        return length, start

    def _group(self, key: int, position: int, end: int) -> int:
        """Return where a group stops. It is unknown, so its fields may have any number, even 0."""
        open_groups = [key >> 3]
        while open_groups:
            key, position = self._key(position, end)
            wire = key & 7
            if wire == END_GROUP and key >> 3 == open_groups[-1]:
                open_groups.pop()
            elif wire == GROUP:
                if len(open_groups) == MAX_DEPTH:
                    raise WireError(position, "groups are nested too deeply")
                open_groups.append(key >> 3)
            else:
                _, position = self._value(key, position, end)
        return position

    def _load(self, position: int) -> int:
        """Move the window so that it starts at `position`; return the index of `position` in it."""
        # The last field before the end of the window mostly reaches over it.
        walked_on = 0 <= position - self._base <= len(self._buffer) + _SMALL_READ
        self._next_read = min(2 * self._next_read, _LARGE_READ) if walked_on else _SMALL_READ
        at = position - self._base
        if self._base + len(self._buffer) == self._size and at >= 0:
            return at
        self._base = position
        length = max(0, min(self._next_read, self._size - position))
        self._buffer = self._source.read(position, length)
        return 0

    def _overrun(self, length: int, start: int, end: int) -> str:
        if end == self._size:
            return f"a field of {length} bytes, of which the file holds only {max(0, end - start)}"
        return f"a field of {length} bytes that runs over the end of its message"


def varint(value: int) -> bytes:
    """Encode an unsigned number."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def key(number: int, wire: int) -> bytes:
    """Encode what stands in front of a field's value."""
    return varint(number << 3 | wire)


def delimited(number: int, value: bytes) -> bytes:
    """Encode a field of bytes, text or a message."""
    return key(number, LENGTH) + varint(len(value)) + value
