from __future__ import annotations

from pathlib import Path

import pytest

from normlint.config import Config
from normlint.discover import discover, relative_to
from normlint.globs import name_matches, path_matches
from normlint.usage import UsageError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("b.onnx", "a/c.onnx", "a/deep/d.onnx", ".git/e.onnx", "a/notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path


def names(*paths: str, config: Config | None = None) -> list[str]:
    return [target.name for target in discover(paths, lambda _: config or Config())]


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["."], ["b.onnx", "a/c.onnx", "a/deep/d.onnx"]),
        (["a"], ["a/c.onnx", "a/deep/d.onnx"]),
        (["a/"], ["a/c.onnx", "a/deep/d.onnx"]),
        (["a/*.onnx"], ["a/c.onnx"]),
        (["**/*.onnx"], ["a/c.onnx", "a/deep/d.onnx", "b.onnx"]),
        (["a/*"], ["a/c.onnx", "a/deep/d.onnx"]),
        (["b.onnx", "."], ["b.onnx", "a/c.onnx", "a/deep/d.onnx"]),
        (["./b.onnx", "b.onnx"], ["b.onnx"]),
        ([".git/e.onnx"], [".git/e.onnx"]),
        (["a/notes.txt"], ["a/notes.txt"]),
        (["-", "b.onnx"], ["<stdin>", "b.onnx"]),
    ],
)
def test_paths(paths: list[str], expected: list[str]) -> None:
    assert names(*paths) == expected


@pytest.mark.parametrize("path", ["none.onnx", "none/", "*.none", "s3://bucket/m.onnx"])
def test_what_is_not_there(path: str) -> None:
    with pytest.raises(UsageError):
        names(path)


def test_links_lead_to_one_model_and_folders_are_not_followed_round(folder: Path) -> None:
    (folder / "link.onnx").symlink_to("b.onnx")
    (folder / "a" / "round").symlink_to(folder)

    assert names("b.onnx", "link.onnx") == ["b.onnx"]
    assert names("a") == ["a/c.onnx", "a/deep/d.onnx"]


def test_names_in_brackets_are_names(folder: Path) -> None:
    (folder / "layer[0].onnx").write_bytes(b"x")

    assert names("layer[0].onnx") == ["layer[0].onnx"]


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("a/b.onnx", "*.onnx", True),
        ("a/b.onnx", "a", True),
        ("a/b.onnx", "a/", True),
        ("a/b.onnx", "b", False),
        ("a/b/c.onnx", "a/*", True),
        ("a/b/c.onnx", "a/*.onnx", False),
        ("a/b/c.onnx", "a/**/*.onnx", True),
        ("a/c.onnx", "a/**/*.onnx", True),
        ("a/c.onnx", "**/c.onnx", True),
        ("a/c.onnx", "./a/c.onnx", True),
        ("a/c1.onnx", "a/c[0-9].onnx", True),
        ("a/cx.onnx", "a/c[!0-9].onnx", True),
        ("a/c+.onnx", "a/c+.onnx", True),
        ("a/c.onnx", "a/?.onnx", True),
    ],
)
def test_path_globs(path: str, pattern: str, *, expected: bool) -> None:
    assert path_matches(path, pattern) is expected


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("/enc/layer.0/norm/Add", "/enc/*/Add", True),
        ("layers[0].norm", "layers[0].norm", True),
        ("Enc", "enc", False),
    ],
)
def test_name_globs(name: str, pattern: str, *, expected: bool) -> None:
    assert name_matches(name, pattern) is expected


def test_relative_paths(folder: Path) -> None:
    assert relative_to(Path("a/../b.onnx"), folder) == "b.onnx"
    assert relative_to(Path("b.onnx"), folder / "a") == (folder / "b.onnx").as_posix()
