"""Start-up time counts in a hook: what is imported for which command."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from commandline import CLEAN, SPELLED, write

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = {
    *("numpy", "onnx", "onnx_graphsurgeon", "onnxruntime", "ml_dtypes", "rich", "pydantic"),
    *("asyncio", "multiprocessing", "concurrent.futures.process", "fast_sugiyama"),
}
PROBE = """
import sys
from normlint.__main__ import main
try:
    main()
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


def imported(folder: Path, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split())


def test_version_imports_nothing(tmp_path: Path) -> None:
    modules = imported(tmp_path, "--version")

    assert not (HEAVY | {"typer"}) & modules
    assert {name for name in modules if name.startswith("normlint.")} <= {
        "normlint.__main__",
        "normlint.lazily",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["check", "--help"],
        ["rules"],
        ["rules", "--format", "json"],
        ["explain", "NL903"],
        ["check", "missing.onnx"],
        ["check", "pointer.onnx"],
        ["check", "pointer.onnx", "--output-format", "sarif"],
        ["check", "pointer.onnx", "--select", "NL2"],
        ["check", "pointer.onnx", "--select", "NL999"],
        ["check", "--show-settings", "--allow-empty"],
    ],
)
def test_what_reads_no_model_imports_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"
    (tmp_path / "pointer.onnx").write_text(pointer)

    assert not imported(tmp_path, *arguments) & HEAVY


@pytest.mark.parametrize("text", [CLEAN, SPELLED])
def test_a_check_imports_no_runtime(text: str, tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", text)

    modules = imported(tmp_path, "check", "m.onnx")

    assert modules & HEAVY <= {"numpy", "onnx", "onnx_graphsurgeon", "ml_dtypes"}
    assert "onnx.reference" not in modules
    assert "fsspec" not in modules


@pytest.mark.parametrize("text", [CLEAN, SPELLED])
def test_a_check_imports_nothing_that_proves_writes_or_measures(text: str, tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", text)

    modules = imported(tmp_path, "check", "m.onnx")

    assert not {name for name in modules if name.startswith("normlint.verify")}
    assert not {"normlint.repair", "normlint.model.save", "normlint.measure.running"} & modules


def test_a_clean_model_imports_no_rewrites(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", CLEAN)

    modules = imported(tmp_path, "check", "m.onnx")

    assert {name for name in modules if name.startswith("normlint.rewrite.")} <= {
        # How a scale and shift is read, to know that there is none.
        *("normlint.rewrite.affine", "normlint.rewrite.fold"),
        *("normlint.rewrite.fold_chains", "normlint.rewrite.fold_plan"),
    }
    assert "normlint.context.centring" not in modules


def test_importing_the_package_costs_nothing(tmp_path: Path) -> None:
    code = "import sys, normlint; print(*sorted(m for m in sys.modules if m in {!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code.format(HEAVY)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.strip() == ""
