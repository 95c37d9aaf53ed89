"""What is read of a model that lies elsewhere: its graph, whatever its weights weigh."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import fsspec
import pytest
from commandline import normlint
from model.sites import LAYERS, Site, stack
from onnx import helper

from normlint.model.remote import BLOCK
from normlint.model.source import ObjectSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Elsewhere:
    """A place for models; `read` are the lengths of all reads of what lies there."""

    scheme: str
    folder: Path
    site: Site
    read: list[int] = field(default_factory=list)

    def put(self, name: str, data: bytes) -> str:
        """Put a model there and give its URL."""
        if self.scheme == "http":
            self.site.files[f"/{name}"] = data
            return self.site.url(f"/{name}")
        if self.scheme == "memory":
            fsspec.filesystem("memory").pipe(f"/{name}", data)
            return f"memory://{name}"
        (self.folder / name).write_bytes(data)
        return f"file://{self.folder}/{name}"

    def check(self, url: str) -> int:
        """Check a model and give the bytes that were read for it."""
        self.read.clear()
        served = self.site.served

        outcome = normlint("check", "--isolated", url)

        assert outcome.code == 0, outcome.out
        if self.scheme == "http":
            # What the server says agrees with what was asked for.
            assert self.site.served - served == sum(self.read)
        return sum(self.read)


@pytest.fixture(params=["http", "memory", "file"])
def elsewhere(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Elsewhere]:
    place = Elsewhere(request.param, tmp_path, Site(ranges=True))
    plain = ObjectSource.read

    def counted(source: ObjectSource, offset: int, length: int) -> bytes:
        data = plain(source, offset, length)
        place.read.append(len(data))
        return data

    monkeypatch.setattr(ObjectSource, "read", counted)
    yield place
    place.site.close()


def deep(nodes: int) -> bytes:
    """Give a chain of nodes with long names and no weights."""
    made = [
        helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], name=f"{i}{'n' * 80}")
        for i in range(nodes)
    ]
    return helper.make_model(helper.make_graph(made, "deep", [], [])).SerializeToString()


def test_a_check_reads_the_same_however_large_the_weights_are(elsewhere: Elsewhere) -> None:
    small, large = stack(1), stack(4)

    read_small = elsewhere.check(elsewhere.put("small.onnx", small))
    read_large = elsewhere.check(elsewhere.put("large.onnx", large))

    # The head of each weight lies in a block of its own, and in two where it crosses a border.
    most = 2 * BLOCK * (LAYERS + 1)
    assert 0 < read_small <= most
    assert 0 < read_large <= most
    assert read_large < len(large) / 20


def test_a_check_reads_each_byte_of_the_graph_once(elsewhere: Elsewhere) -> None:
    half, whole = deep(4_000), deep(8_000)

    read_half = elsewhere.check(elsewhere.put("half.onnx", half))
    read_whole = elsewhere.check(elsewhere.put("whole.onnx", whole))

    assert len(half) > 5 * BLOCK
    assert len(half) <= read_half <= len(half) + BLOCK
    assert len(whole) <= read_whole <= len(whole) + BLOCK
