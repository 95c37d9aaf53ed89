"""Walk a serialised model and put other bytes in place of tensors, fixing the lengths around them.

Nothing is copied on the way: the result is a list of segments, most of them spans of the source.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from normlint.model.segment import Span
from normlint.model.wire import LENGTH, MAX_DEPTH, Reader, WireError, key, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from normlint.model.source import Source

Content = TypeVar("Content", bound=Sized)
"""What stands in place of a tensor's bytes, of a known length."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A message type: which fields are messages on the way to a tensor, and which are tensors."""

    fields: dict[int, Kind] = field(default_factory=dict)
    is_tensor: bool = False
    merged: frozenset[int] = frozenset()
    """Fields that hold one tensor: if there are two, protobuf merges them into one."""
    lists: frozenset[int] = frozenset()
    """Fields that stand in the place of a tensor, and of which there may be millions."""


def _model() -> Kind:
    """Numbers of onnx.proto: the paths from ModelProto to every TensorProto."""
    tensor = Kind(is_tensor=True)
    sparse = Kind({1: tensor, 2: tensor}, merged=frozenset({1, 2}))
    graph = Kind()
    attribute = Kind(
        {5: tensor, 6: graph, 10: tensor, 11: graph, 22: sparse, 23: sparse},
        merged=frozenset({5, 22}),
        lists=frozenset({7, 8, 9}),
    )
    node = Kind({5: attribute})
    graph.fields.update({1: node, 5: tensor, 15: sparse})
    training = Kind({1: graph, 2: graph})
    function = Kind({7: node, 11: attribute})
    return Kind({7: graph, 20: training, 25: function})


MODEL = _model()


@dataclass(slots=True)
class _Frame(Generic[Content]):
    """A message that is being walked."""

    kind: Kind
    number: int
    position: int
    """Where its next field starts."""
    end: int
    head: int
    """Where the field that holds it starts."""
    start: int
    run: int
    """Everything from here to `position` is kept as it is."""
    out: list[bytes | Span | Content] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def stays_whole(self, number: int) -> bool:
        """Note a field; say whether the message must stay as it is because of it.

        So it is with two halves of one tensor, which only protobuf can put together, and with a
        list of numbers: it stands in the place of a tensor and may have millions of fields.
        """
        kind = self.kind
        if number not in kind.lists and (number not in kind.merged or number not in self.seen):
            self.seen.add(number)
            return False
        self.out.clear()
        self.run = self.start
        return True


def replace_tensors(
    source: Source,
    pick: Callable[[int, int], bool],
    replace: Callable[[Reader, int, int], Sequence[Content] | None],
    kind: Kind = MODEL,
) -> list[bytes | Span | Content]:
    """Return the segments of `source` with the picked tensors replaced.

    `pick(start, stop)` says whether a message may hold a tensor to replace; one that it passes over
    is kept unread. `replace(reader, start, stop)` gets a TensorProto and returns its new content,
    or None to keep it. Raises `WireError`; never recurses.
    """
    walk = _Walk(source, pick, replace, kind)
    while walk.stack:
        walk.step()
    return walk.result


class _Walk(Generic[Content]):
    """The state of one walk: the messages that are open, the innermost last."""

    def __init__(
        self,
        source: Source,
        pick: Callable[[int, int], bool],
        replace: Callable[[Reader, int, int], Sequence[Content] | None],
        kind: Kind,
    ) -> None:
        self.reader = Reader(source)
        self.pick = pick
        self.replace = replace
        self.stack: list[_Frame[Content]] = [_Frame(kind, 0, 0, source.size, 0, 0, 0)]
        self.result: list[bytes | Span | Content] = []

    def step(self) -> None:
        """Walk on in the innermost message until another one opens or this one closes."""
        frame = self.stack[-1]
        field_at, end = self.reader.field, frame.end
        known = frame.kind.fields.keys() | frame.kind.lists
        position = frame.position
        while position < end:
            head = position
            number, wire, start, position = field_at(head, end)
            if number not in known:
                continue
            if frame.stays_whole(number):
                break
            if (
                wire == LENGTH
                and self.pick(start, position)
                and self._enter(frame, number, head, start, position)
            ):
                return
        self._close(frame)

    def _enter(self, frame: _Frame[Content], number: int, head: int, start: int, stop: int) -> bool:
        """Replace a tensor, or open a message and return True."""
        frame.position = stop
        child = frame.kind.fields[number]
        if not child.is_tensor:
            if len(self.stack) > MAX_DEPTH:
                raise WireError(head, "messages are nested too deeply")
            self.stack.append(_Frame(child, number, start, stop, head, start, start))
            return True
        content = self.replace(self.reader, start, stop)
        if content is not None:
            _splice(frame, number, head, stop, content)
        return False

    def _close(self, frame: _Frame[Content]) -> None:
        self.stack.pop()
        if not self.stack:
            self.result = _content(frame)
        elif frame.out:
            content = _content(frame)
            _splice(self.stack[-1], frame.number, frame.head, frame.end, content)


def _content(frame: _Frame[Content]) -> list[bytes | Span | Content]:
    if frame.run < frame.end:
        frame.out.append(Span(frame.run, frame.end))
    return frame.out


def _splice(
    frame: _Frame[Content],
    number: int,
    head: int,
    stop: int,
    content: Sequence[bytes | Span | Content],
) -> None:
    """Put `content` in place of the field that stands from `head` to `stop`."""
    if frame.run < head:
        frame.out.append(Span(frame.run, head))
    frame.out.append(key(number, LENGTH) + varint(sum(map(len, content))))
    frame.out.extend(content)
    frame.run = stop
