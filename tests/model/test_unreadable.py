"""Files that are no models: a clear fault each, never anything else."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import zipfile
from typing import TYPE_CHECKING, Any

import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from model.building import resolved, rich_model, small_model

from normlint.model import FileFault, missing_hint, open_model, skeleton, sniff
from normlint.model.wire import delimited

if TYPE_CHECKING:
    from pathlib import Path

SMALL = small_model().SerializeToString()
RICH = rich_model().SerializeToString()
LFS = b"""version https://git-lfs.github.com/spec/v1
oid sha256:4d7a21461234567890
size 438000000
"""


def fault_of(data: Any, **options: Any) -> FileFault:
    with pytest.raises(FileFault) as caught:
        open_model(data, **options)
    return caught.value


def an_archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("model.onnx", SMALL)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"", "NL903", ["empty (0 bytes)"]),
        (LFS, "NL902", ["438.0 MB", "oid 4d7a2146", 'git lfs pull --include "m/a.onnx"']),
        (LFS.replace(b"git-lfs.github", b"hawser.github"), "NL902", ["git lfs pull"]),
        (b"version https://git-lfs.github.com/spec/v1\n", "NL902", ["git lfs pull"]),
        (b"\n <!DOCTYPE html><html>", "NL904", ["an HTML page"]),
        (b"<HTML lang=en>", "NL904", ["an HTML page"]),
        ("<html>".encode("utf-16"), "NL904", ["an HTML page"]),
        (b"<?xml version='1.0'?><net/>", "NL904", ["XML", "OpenVINO"]),
        (b"<Error><Code>AccessDenied</Code></Error>", "NL904", ["login"]),
        (b'{"error": "not found"}', "NL904", ["JSON"]),
        (b'[{"a": 1}]', "NL904", ["JSON"]),
        (an_archive(), "NL904", ["zip"]),
        (pickle.dumps({"a": 1}, protocol=2), "NL904", ["pickle"]),
        (pickle.dumps({"a": 1}), "NL904", ["pickle"]),
        (gzip.compress(SMALL), "NL904", ["gzip", "gunzip"]),
        (b"\x1c\0\0\0ORTM" + bytes(40), "NL904", [".ort"]),
        (b"\x1c\0\0\0TFL3" + bytes(40), "NL904", ["TensorFlow Lite"]),
        (b"\x89HDF\r\n\x1a\n", "NL904", ["HDF5"]),
        (b"Salted__12345678", "NL904", ["encrypted"]),
        (b"\x40\0\0\0\0\0\0\0" + b'{"weight":{"dtype"', "NL904", ["safetensors"]),
        (b"/annex/objects/SHA256E-s1--ab.onnx\n", "NL904", ["git annex get"]),
        (bytes(257) + b"ustar", "NL904", ["tar"]),
        (b'<ir_version: 8, opset_import: ["" : 17]>', "NL904", ["text form"]),
        (b'ir_version: 8 producer_name: "pytorch"', "NL904", ["text form"]),
        (b"\x12\x03abc", "NL904", ["neither a graph"]),
        (b"hello, this is a text", "NL905", ["truncated or corrupt", "at byte"]),
        (SMALL[:300], "NL905", ["truncated or corrupt", "of 300"]),
    ],
)
def test_what_is_no_model_is_named(data: bytes, code: str, words: list[str]) -> None:
    fault = fault_of(data, name="m/a.onnx")

    assert fault.code == code
    assert str(fault) == fault.message
    for word in words:
        assert word in fault.message


def test_sniffing_needs_the_first_bytes_only() -> None:
    assert sniff(SMALL[:512], len(SMALL), "a.onnx") is None
    assert sniff(LFS, len(LFS), "a.onnx").code == "NL902"


def test_a_fault_crosses_a_process_border() -> None:
    fault = pickle.loads(pickle.dumps(FileFault("NL906", "gone", ("a", "b"))))  # noqa: S301

    assert (fault.code, fault.message, fault.tensors) == ("NL906", "gone", ("a", "b"))


def test_truncation_at_every_byte() -> None:
    for length in range(1, len(SMALL)):
        if same_as_protobuf(SMALL[:length]) == "NL905":
            assert "at byte" in fault_of(SMALL[:length]).message


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_flipped_bytes(data: st.DataObject) -> None:
    damaged = bytearray(data.draw(st.sampled_from([SMALL, RICH])))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    same_as_protobuf(bytes(damaged))


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_pieces_cut_out_and_put_in_elsewhere(data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([SMALL, RICH]))
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, min(len(whole), start + 2000)))
    place = data.draw(st.integers(0, len(whole)))
    keep = data.draw(st.booleans())
    rest = whole if keep else whole[:start] + whole[stop:]
    same_as_protobuf(rest[:place] + whole[start:stop] + rest[place:])


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    same_as_protobuf(data)
    same_as_protobuf(b"\x08\x08" + data)


def same_as_protobuf(data: bytes) -> str | None:
    """Open `data`; NL905 must mean that protobuf refuses it. Return the fault's code."""
    try:
        expected = onnx.ModelProto.FromString(data)
    except DecodeError:
        fault = fault_of(data)
        assert fault.code in {"NL902", "NL903", "NL904", "NL905"}
        return fault.code
    try:
        model = open_model(data)
    except FileFault as fault:
        code = fault.code
    else:
        assert resolved(model).SerializeToString() == expected.SerializeToString()
        return None
    assert code != "NL905"
    return code


def test_lengths_that_lie_allocate_nothing() -> None:
    huge = (1 << 62).to_bytes(9, "little")
    for tag in (0x3A, 0x12, 0x0A):
        lie = bytes([tag]) + b"\xff\xff\xff\xff\xff\xff\xff\x7f" + huge
        assert fault_of(b"\x08\x08" + lie).code == "NL905"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"\x88\x80\x80\x80\x10\x01", "impossible field number"),
        (b"\x00\x01", "impossible field number"),
        (b"\x0e\x01", "impossible wire type"),
        (b"\x0c", "impossible wire type"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "a number is too long"),
        (b"\x08\xff", "within a number"),
        (b"\x08", "within a field"),
        (b"\x0d\x01", "of which the file holds only 1"),
        (b"\x0b" * 200 + b"\x0c" * 200, "groups are nested too deeply"),
        (b"\x0b\x14", "impossible wire type"),
        (delimited(7, b"\x0a\x05") + b"\x10\x01", "runs over the end of its message"),
        (delimited(7, delimited(1, b"\x0a\x05")) + b"\x10\x01", "runs over the end of its message"),
        (delimited(7, delimited(5, delimited(4, bytes(5)))), "a field holds what its type"),
        (delimited(7, delimited(5, delimited(4, bytes(2001)))), "stops within a number"),
    ],
)
def test_where_a_file_is_corrupt(bad: bytes, reason: str) -> None:
    for data in (bad, SMALL + bad):
        with pytest.raises(DecodeError):
            onnx.ModelProto.FromString(data)
        assert fault_of(data).code == "NL905"
        assert reason in fault_of(data).message


def test_a_length_of_many_bytes_is_refused_as_newer_parsers_do() -> None:
    fault = fault_of(SMALL + b"\x12\x81\x80\x80\x80\x80\x00a")

    assert "a length is written too long" in fault.message


def test_the_search_for_an_error_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skeleton, "_SEARCHED", 100)
    data = SMALL + delimited(7, delimited(1, b"\x0a\x05"))

    assert "a field holds what its type does not allow" in fault_of(data).message


def test_what_protobuf_cannot_hold_besides_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skeleton, "PROTOBUF_LIMIT", 1000)

    assert "2 GiB besides the weights" in fault_of(RICH).message


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.onnx"
    os.mkfifo(pipe)
    folder = tmp_path / "folder.onnx"
    folder.mkdir()

    assert fault_of(pipe).code == fault_of(folder).code == "NL904"
    assert "a pipe" in fault_of(pipe).message
    assert "a folder" in fault_of(folder).message
    assert "No such file" in fault_of(tmp_path / "absent.onnx").message
    assert fault_of(tmp_path / ("x" * 300)).code == "NL905"


def test_a_file_that_shrinks_while_it_is_read() -> None:
    class Shrinking:
        size = len(SMALL)

        def read(self, offset: int, length: int) -> bytes:
            if offset + length > 100:
                raise EOFError
            return SMALL[offset : offset + length]

    assert fault_of(Shrinking()).code == "NL905"


def test_hints_for_files_that_are_versioned_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"

    assert missing_hint(path) is None
    path.with_name("a.onnx.dvc").write_text("outs:")
    assert missing_hint(path) == f'dvc pull "{path}"'
    annexed = tmp_path / "b.onnx"
    annexed.symlink_to(".git/annex/objects/x/y")
    assert missing_hint(annexed) == f'git annex get "{annexed}"'
