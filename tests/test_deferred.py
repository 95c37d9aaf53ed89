"""Dataclasses that are completed when the first instance is made are dataclasses all the same."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from threading import Barrier, Thread

import pytest

from normlint.deferred import dataclass


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 2


@dataclass(frozen=True)
class Named(Point):
    name: str = ""


@dataclass(eq=False)
class Bag:
    items: list[int] = dataclasses.field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.items)


def test_instances_are_those_of_a_dataclass() -> None:
    assert Point(1) == Point(x=1, y=2) != Point(1, 3)
    assert hash(Point(1)) == hash(Point(1))
    assert repr(Point(1)) == "Point(x=1, y=2)"
    assert dataclasses.replace(Point(1), y=5) == Point(1, 5)
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 2}
    with pytest.raises(dataclasses.FrozenInstanceError):
        Point(1).x = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        Point()  # type: ignore[call-arg]


def test_a_derived_class_has_the_fields_of_its_base() -> None:
    assert Named(1, 2, "a") == Named(x=1, name="a")
    assert Named(1) != Point(1)
    assert [field.name for field in dataclasses.fields(Named)] == ["x", "y", "name"]


def test_defaults_are_not_shared() -> None:
    first, second = Bag(), Bag()
    first.items.append(1)

    assert (first.size, second.size) == (1, 0)
    assert first != Bag([1])


def test_copies_are_equal() -> None:
    assert copy.copy(Point(1)) == copy.deepcopy(Point(1)) == Point(1)


def test_the_first_instance_may_come_from_a_pickle() -> None:
    from normlint.normalization import Parameter

    data = pickle.dumps(Parameter((2,), (), None))
    code = (
        "import pickle, sys; from dataclasses import replace;"
        "made = pickle.loads(sys.stdin.buffer.read());"
        "print(replace(made, shape=(3,)).shape, made == made)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, timeout=60, check=True
    )

    assert done.stdout.split() == [b"(3,)", b"True"]


def test_threads_may_make_the_first_instance_at_once() -> None:
    @dataclass(frozen=True)
    class Fresh:
        value: int

    start, made = Barrier(8), list[object]()

    def make(number: int) -> None:
        start.wait()
        made.append(Fresh(number))

    threads = [Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(made) == {Fresh(number) for number in range(8)}
