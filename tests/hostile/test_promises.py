"""What SECURITY.md and the contract promise of any model, one test for each promise."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from graphs import parse
from onnx import TensorProto

ROOT = Path(__file__).parents[2]
PROMISE = re.compile(r"^\| (?P<promise>.+?) \| (?P<tests>`.+`) \|$", re.MULTILINE)
WATCHED = """
import json, sys
seen = []
def watch(event, args):
    if event in {"open", "os.remove", "os.rename", "os.mkdir", "os.link", "os.symlink"}:
        seen.append((event, str(args[0])))
    elif event.startswith(("socket.", "subprocess.", "pickle.", "os.system", "os.exec", "ctypes.")):
        seen.append((event, ""))
import onnx, onnx.reference, onnxruntime, onnx_graphsurgeon, normlint.cli, normlint.repair
sys.addaudithook(watch)
from normlint.__main__ import main
sys.argv = ["normlint", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(json.dumps([end.code, seen]), file=sys.stderr)
"""
MODEL = """
    g (float[1,2,4,4] x) => (float[1,2,4,4] y)
    <float[2] s = {1,2}, float[2] b = {0,1}, float[2] m = {1,2}, float[2] v = {1,2}> {
        c = Conv(x, w)
        y = BatchNormalization(c, s, b, m, v)
    }
"""


def model_with(location: str) -> onnx.ModelProto:
    model = parse(MODEL)
    tensor = TensorProto(name="w", data_type=1, dims=[2, 2, 1, 1])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    model.graph.initializer.append(tensor)
    return model


def watched(folder: Path, *arguments: str) -> tuple[int, list[tuple[str, str]]]:
    """Run the command line and give what it did besides computing."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "check", *arguments, "--jobs", "1", "--isolated"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    code, seen = json.loads(done.stderr.splitlines()[-1])
    return code, [(event, path) for event, path in seen]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "models"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(bytes(16))
    return inside


@pytest.mark.parametrize("place", ["../secret", "absolute", "link", "sub/../../secret"])
def test_no_file_outside_the_folder_is_read(place: str, folder: Path) -> None:
    secret = folder.parent / "secret"
    location = str(secret) if place == "absolute" else place
    if place == "link":
        (folder / "link").symlink_to(secret)
    (folder / "m.onnx").write_bytes(model_with(location).SerializeToString())

    code, seen = watched(folder, "m.onnx", "--apply", "--unsafe-fixes")

    assert code == 1
    opened = {Path(path).name for event, path in seen if event == "open"}
    assert opened.isdisjoint({"secret", "link"})


def test_nothing_is_executed_and_nobody_is_called(folder: Path) -> None:
    (folder / "side.data").write_bytes(bytes(range(16)))
    (folder / "m.onnx").write_bytes(model_with("side.data").SerializeToString())
    (folder / "pickle.onnx").write_bytes(b"\x80\x04cos\nsystem\n(S'touch hit'\ntR.")

    _, seen = watched(folder, "m.onnx", "pickle.onnx", "--apply")

    assert {event for event, _ in seen} <= {"open", "os.rename", "os.mkdir", "os.remove"}
    assert not (folder / "hit").exists()


def test_the_runtime_tells_its_maker_nothing(folder: Path) -> None:
    """From 1.32 on, it is the import of it that does, by way of a file in the user's cache."""
    home = folder / "home"
    home.mkdir()
    (folder / "m.onnx").write_bytes(model_with("side.data").SerializeToString())
    (folder / "side.data").write_bytes(bytes(range(16)))
    kept = {
        name: text for name, text in os.environ.items() if not name.startswith(("ORT_", "XDG_"))
    }
    homes = dict.fromkeys(("HOME", "USERPROFILE", "LOCALAPPDATA"), str(home))

    done = subprocess.run(
        [sys.executable, "-m", "normlint", "check", "m.onnx", "--apply", "--isolated"],
        env={**kept, **homes},
        cwd=folder,
        check=False,
    )

    assert done.returncode == 0
    assert not list(home.rglob("*"))


def test_only_the_model_is_written(folder: Path) -> None:
    (folder / "side.data").write_bytes(bytes(range(16)))
    (folder / "m.onnx").write_bytes(model_with("side.data").SerializeToString())
    before = (folder / "side.data").read_bytes()

    _, seen = watched(folder, "m.onnx", "--apply")

    assert [path for event, path in seen if event == "os.rename"]
    assert sorted(path.name for path in folder.iterdir()) == ["m.onnx", "side.data"]
    assert (folder / "side.data").read_bytes() == before


def test_a_model_that_is_too_large_is_not_opened(folder: Path) -> None:
    (folder / "m.onnx").write_bytes(parse(MODEL).SerializeToString())

    code, _ = watched(folder, "m.onnx", "--max-model-size", "100")

    assert code == 1


@pytest.mark.parametrize("name", ["a\nb.onnx", "[red]x.onnx", "x" * 245 + ".onnx", "ü ☃.onnx"])
def test_files_of_any_name(name: str, folder: Path) -> None:
    (folder / "side.data").write_bytes(bytes(16))
    (folder / name).write_bytes(model_with("side.data").SerializeToString())

    code, _ = watched(folder, name, "--apply")

    assert code == 0
    assert "BatchNormalization" not in {
        node.op_type for node in onnx.load(folder / name, load_external_data=False).graph.node
    }


def test_two_at_once_leave_one_whole_model(folder: Path) -> None:
    (folder / "side.data").write_bytes(bytes(16))
    path = folder / "m.onnx"
    path.write_bytes(model_with("side.data").SerializeToString())
    command = [sys.executable, "-m", "normlint", "check", "m.onnx", "--apply", "--isolated"]

    runs = [
        subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(3)
    ]

    assert {run.wait(120) for run in runs} <= {0, 1}
    assert [node.op_type for node in onnx.load(path).graph.node] == ["Conv"]
    assert sorted(entry.name for entry in folder.iterdir()) == ["m.onnx", "side.data"]


EVALUATING = frozenset(("eval", "exec", "compile", "__import__"))
UNPICKLING = frozenset(("pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"))


@pytest.mark.parametrize("folder", ["normlint", "rules"])
def test_no_source_evaluates_or_unpickles(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=name)):
                    assert name not in EVALUATING, path
                case ast.Import(names=names):
                    assert UNPICKLING.isdisjoint(n.name.partition(".")[0] for n in names), path
                case ast.ImportFrom(module=str(module)):
                    assert module.partition(".")[0] not in UNPICKLING, path
                case ast.keyword(arg="allow_pickle", value=ast.Constant(value=allowed)):
                    assert not allowed, path


def test_a_model_imports_nothing(folder: Path) -> None:
    (folder / "evil.py").write_text("import pathlib; pathlib.Path('hit').touch()")
    model = parse(MODEL.replace("c = Conv(x, w)", "c = evil.evil(x)"))
    model.metadata_props.add(key="normlint.rules", value="evil")
    model.graph.node.add(op_type="PyOp", domain="ai.onnx.contrib", name="evil", input=["x"])
    model.graph.node[-1].attribute.add(name="module", s=b"evil", type=onnx.AttributeProto.STRING)
    model.producer_name = "evil"
    (folder / "m.onnx").write_bytes(model.SerializeToString())

    _, seen = watched(folder, "m.onnx", "--apply", "--preview")

    assert not [path for event, path in seen if event == "open" and "evil" in path]
    assert not (folder / "hit").exists()


@pytest.mark.parametrize("output", ["full", "concise", "grouped", "github", "markdown"])
def test_text_of_a_model_commands_no_terminal(output: str, folder: Path) -> None:
    model = parse(MODEL.replace("c = Conv(x, w)", "c = MatMul(x, x)"))
    commands = "\x1b[2J\x1b]0;title\x07\r\n::error::forged\x9b31m"
    for node in model.graph.node:
        node.name = f"{commands}[bold]{node.name}[/bold]"
    (folder / "m.onnx").write_bytes(model.SerializeToString())

    done = subprocess.run(
        [
            *(sys.executable, "-m", "normlint", "check", "m.onnx", "--isolated", "--preview"),
            *("--output-format", output, "--color", "never", "--extend-select", "NL111"),
        ],
        cwd=folder,
        capture_output=True,
        check=False,
    )

    said = (done.stdout + done.stderr).decode()
    assert "NL111" in said
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", said)
    assert not re.search(r"^::error::forged", said, re.MULTILINE)


def promises() -> list[tuple[str, list[str]]]:
    text = (ROOT / ".github" / "SECURITY.md").read_text()
    return [(m["promise"], re.findall(r"`(.+?)`", m["tests"])) for m in PROMISE.finditer(text)]


def test_each_promise_has_its_test() -> None:
    found = promises()

    assert len(found) > 15
    for promise, tests in found:
        for test in tests:
            path, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / path).read_text(), promise
