"""Models behind URLs: what is fetched, what is said where it cannot be, and what stays secret."""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING

import fsspec
import numpy as np
import onnx
import pytest
from commandline import CLEAN, SPELLED, model, normlint
from model.sites import LAYERS, Site, stack
from onnx import helper

from normlint.model import FileFault, open_model
from normlint.model.remote import BLOCK, RemoteSource, file_name, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEGABYTES = 4


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site(ranges=True)
    yield made
    made.close()


@pytest.fixture
def plain_site() -> Iterator[Site]:
    made = Site(ranges=False)
    yield made
    made.close()


def test_what_is_served_grows_with_the_skeleton_and_not_with_the_weights(site: Site) -> None:
    site.files["/m.onnx"] = stack(MEGABYTES)

    opened = open_model(RemoteSource(site.url("/m.onnx")))

    assert [node.op_type for node in opened.proto.graph.node] == ["MatMul"] * LAYERS
    # The head of each weight lies in a block of its own, and two where it crosses a border.
    assert site.served <= 2 * BLOCK * (LAYERS + 1)
    assert site.served < opened.size / 20


def test_a_skeleton_is_fetched_once(site: Site) -> None:
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], name="n" * 80) for i in range(9000)]
    graph = helper.make_graph(nodes, "deep", [], [])
    data = helper.make_model(graph).SerializeToString()
    site.files["/m.onnx"] = data

    open_model(RemoteSource(site.url("/m.onnx")))

    assert len(data) > 12 * BLOCK
    assert site.served <= len(data) + BLOCK
    assert site.requests < len(data) / BLOCK / 2


def test_values_are_fetched_when_they_are_asked_for(site: Site) -> None:
    site.files["/m.onnx"] = stack(MEGABYTES)
    opened = open_model(RemoteSource(site.url("/m.onnx")))
    before = site.served

    values = opened.values(opened.proto.graph.initializer[3])

    assert np.all(values == 3)
    assert values.nbytes == MEGABYTES << 20
    assert site.served - before <= values.nbytes + 4 * BLOCK


@pytest.mark.parametrize("offset", [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 7])
@pytest.mark.parametrize("length", [0, 1, BLOCK, BLOCK + 2, 5 * BLOCK])
def test_reads_at_any_place(offset: int, length: int) -> None:
    data = np.random.default_rng(0).bytes(9 * BLOCK + 11)
    fsspec.filesystem("memory").pipe("/bytes", data)
    source = RemoteSource("memory://bytes")

    assert source.size == len(data)
    for _ in range(2):
        assert source.read(offset, length) == data[offset : offset + length]
    assert source.read(len(data) - 5, 5) == data[-5:]
    with pytest.raises(EOFError):
        source.read(len(data) - 5, 6)


def test_a_source_travels_as_its_url() -> None:
    fsspec.filesystem("memory").pipe("/bytes", b"abc")
    source = RemoteSource("memory://bytes")
    source.read(0, 2)

    assert pickle.loads(pickle.dumps(source)).read(1, 2) == b"bc"  # noqa: S301 - our own


def test_what_is_not_there(site: Site, plain_site: Site) -> None:
    plain_site.files["/m.onnx"] = stack(1)

    for url, said in (
        (site.url("/none.onnx"), "no such file"),
        (plain_site.url("/m.onnx"), "no parts of files"),
        ("http://127.0.0.1:1/m.onnx", "127.0.0.1"),
    ):
        with pytest.raises(FileFault, match=said) as caught:
            open_model(RemoteSource(url))
        assert caught.value.code == "NL905"


def test_a_check_over_http_equals_that_of_the_file(site: Site, tmp_path: Path) -> None:
    proto = model(SPELLED)
    site.files["/zoo/m.onnx"] = proto.SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(site.files["/zoo/m.onnx"])

    local = normlint("check", "--isolated", "--output-format", "concise", path)
    far = normlint("check", "--isolated", "--output-format", "concise", site.url("/zoo/m.onnx"))

    assert local.code == far.code == 1
    assert "NL201" in far.out
    assert far.out == local.out.replace(path.as_posix(), site.url("/zoo/m.onnx"))


@pytest.mark.parametrize("command", [["norms"], ["show"], ["norms", "--map"]])
def test_other_commands_read_urls(command: list[str]) -> None:
    fsspec.filesystem("memory").pipe("/m.onnx", model(SPELLED).SerializeToString())

    outcome = normlint(*command, "--isolated", "memory://m.onnx")

    assert outcome.code == 0
    assert outcome.out


def test_models_are_read_in_other_processes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.onnx").write_bytes(model(SPELLED).SerializeToString())
    urls = [f"file://{tmp_path}/{name}.onnx" for name in ("a", "b")]

    outcome = normlint("check", "--isolated", "--jobs", "2", "--output-format", "concise", *urls)

    assert outcome.code == 1
    assert all(f"{url}:" in outcome.out for url in urls)
    assert outcome.out.count("NL201") == 2


def test_repairs_are_written_where_it_is_said(tmp_path: Path) -> None:
    for name in ("m", "clean"):
        text = SPELLED if name == "m" else CLEAN
        fsspec.filesystem("memory").pipe(f"/{name}.onnx", model(text).SerializeToString())
    urls = ["memory://m.onnx", "memory://clean.onnx"]

    refused = normlint("check", "--isolated", "--apply", urls[0])
    done = normlint("check", "--isolated", "--apply", "--output-dir", tmp_path / "out", *urls)

    assert refused.code == 2
    assert "--output-dir" in refused.err
    assert done.code == 0
    assert [node.op_type for node in onnx.load(tmp_path / "out" / "m.onnx").graph.node] == [
        "LayerNormalization"
    ]
    assert (tmp_path / "out" / "clean.onnx").read_bytes() == model(CLEAN).SerializeToString()


def test_a_baseline_knows_models_by_their_urls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec.filesystem("memory").pipe("/zoo/m.onnx", model(SPELLED).SerializeToString())
    url = "memory://zoo/m.onnx"
    known = tmp_path / "known.json"
    normlint("baseline", "create", "--isolated", "--baseline", known, url)
    monkeypatch.chdir(tmp_path)

    pruned = normlint("baseline", "prune", "--isolated", "--baseline", known, url)
    outcome = normlint("check", "--isolated", "--baseline", known, url)

    assert pruned.code == 0
    assert f'"{url}"' in known.read_text()
    assert outcome.code == 0


def test_side_files_are_not_read(tmp_path: Path) -> None:
    onnx.save(
        onnx.load_from_string(stack(0)),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.data",
        size_threshold=0,
    )

    outcome = normlint("check", "--isolated", f"file://{tmp_path}/m.onnx")

    assert outcome.code == 1
    assert "NL906" in outcome.out
    assert "not read for a model that is no local file" in outcome.out


@pytest.mark.parametrize("url", ["nosuchscheme://a/m.onnx", "memory://m.onnx"])
def test_urls_that_nothing_reads_are_a_mistake_of_the_caller(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if url.startswith("memory"):
        monkeypatch.setitem(sys.modules, "fsspec", None)

    outcome = normlint("check", "--isolated", url)

    assert outcome.code == 2
    assert url in outcome.err
    assert "normlint[remote]" in outcome.err or "nosuchscheme" in outcome.err


def test_secrets_of_a_url_are_not_repeated(site: Site) -> None:
    site.files["/m.onnx"] = model(SPELLED).SerializeToString()
    for name in ("/m.onnx", "/none.onnx"):
        url = site.url(f"{name}?signature=hush")

        outcome = normlint("check", "--isolated", "--output-format", "json", url)

        assert outcome.code == 1
        assert site.url(name) in outcome.out
        assert "hush" not in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("url", "name", "told"),
    [
        ("https://me:pw@host/a/m.onnx?x=1", "m.onnx", "https://host/a/m.onnx"),
        ("s3://bucket/m.onnx", "m.onnx", "s3://bucket/m.onnx"),
        ("hf://owner/repo@main/m.onnx", "m.onnx", "hf://owner/repo@main/m.onnx"),
        ("https://host/..", "model.onnx", "https://host/.."),
        ("zip://in/m.onnx::https://host/z.zip", "m.onnx", "zip://in/m.onnx::https://host/z.zip"),
    ],
)
def test_names(url: str, name: str, told: str) -> None:
    assert file_name(url) == name
    assert shown(url) == told
