"""The sample models are what their README says: each is found, judged and repaired as stated."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

FOLDER = Path(__file__).parents[1] / "sample_models"
ROW = re.compile(r"^\| `(?P<path>[^`]+\.onnx)` \|.*\| (?P<says>[^|]+) \|$", re.MULTILINE)
CODE = re.compile(r"NL\d{3}")
STATED = {
    row["path"]: set(CODE.findall(row["says"]))
    for row in ROW.finditer((FOLDER / "README.md").read_text())
}
MODELS = sorted(path for path in STATED if not path.startswith("broken/"))


def normlint(*arguments: str | Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "normlint", *map(str, arguments), "--output-format", "json"]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode in {0, 1}, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture(scope="module")
def reported() -> dict[str, set[str]]:
    document = normlint("check", FOLDER)
    return {
        Path(model["path"]).resolve().relative_to(FOLDER).as_posix(): {
            finding["code"] for finding in model["findings"]
        }
        for model in document["models"]
    }


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repaired")
    paths = [FOLDER / path for path in MODELS]
    normlint("check", *paths, "--apply", "--output-dir", folder)
    return folder


def run(path: Path) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options)
    (source,) = session.get_inputs()
    random = np.random.default_rng(3)
    if source.type == "tensor(int64)":
        value = random.integers(0, 32, source.shape)
    else:
        value = random.standard_normal(source.shape).astype(np.float32)
    outputs: list[np.ndarray] = session.run(None, {source.name: value})
    return outputs


def test_readme_lists_every_file() -> None:
    files = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.onnx")}
    assert set(STATED) == files


@pytest.mark.parametrize("path", STATED)
def test_readme_tells_what_is_said(path: str, reported: dict[str, set[str]]) -> None:
    assert reported[path] == STATED[path]


def test_every_early_rule_is_shown(reported: dict[str, set[str]]) -> None:
    shown = set().union(*reported.values())
    assert shown >= {
        *("NL101", "NL106", "NL107", "NL111", "NL201", "NL202", "NL203", "NL301", "NL302"),
        *("NL401", "NL601", "NL902", "NL903", "NL904", "NL905", "NL906", "NL907"),
    }


def test_one_model_is_clean(reported: dict[str, set[str]]) -> None:
    assert [path for path in MODELS if not reported[path]]


@pytest.mark.parametrize("path", MODELS)
def test_repaired_model_gives_the_same_numbers(path: str, repaired: Path) -> None:
    onnx.checker.check_model(repaired / path)
    before, after = run(FOLDER / path), run(repaired / path)
    for old, new in zip(before, after, strict=True):
        # A negative variance makes NaN, before and after.
        scale = np.nanmax(np.abs(old), initial=1e-6)
        np.testing.assert_allclose(new / scale, old / scale, rtol=0, atol=2e-5)


@pytest.mark.parametrize("path", MODELS)
def test_no_path_of_the_making_machine(path: str) -> None:
    content = (FOLDER / path).read_bytes()
    assert b"site-packages" not in content
    assert b'File "/' not in content
