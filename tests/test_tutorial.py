"""The tutorial, command by command: it says what happens."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from commandline import Outcome, normlint

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "tutorial.md").read_text()


@pytest.fixture
def outcomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """Run the commands one after the other, where the sample models are."""
    shutil.copytree(ROOT / "sample_models", tmp_path / "sample_models")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ normlint (.*)$", PAGE, re.MULTILINE)
    return [normlint(*shlex.split(command)) for command in commands]


def test_each_command_does_what_is_said(outcomes: list[Outcome]) -> None:
    norms, check, explain, page, diff, repair, again = outcomes

    assert norms.out.count("LayerNorm  decomposed") == 5
    assert "NL201 decomposed-layer-norm warning: 5 ×" in check.out
    assert "LayerNormalization needs opset 17, and the model is at 13" in check.out
    assert "   in    blocks.blocks.0.norm1" in check.out
    assert set(re.findall(r"^\S+: (NL\d+)", check.out, re.MULTILINE)) == {"NL201", "NL203"}
    assert "Why is this bad?" in explain.out
    assert page.out == ""
    assert Path("report.html").read_text().count("<figure>") >= 2
    assert diff.code == 1
    assert "opset ai.onnx 13 -> 17" in diff.out
    assert diff.out.count("= LayerNormalization(") == 5
    assert repair.code == 0
    assert "max |Δ|" in repair.out
    assert "5 findings repaired." in repair.out
    assert (again.code, again.out) == (0, "No findings in 1 model.\n")


def test_what_was_decided_is_kept(outcomes: list[Outcome]) -> None:
    assert outcomes
    Path("models").mkdir()
    Path("vit.onnx").rename("models/vit.onnx")
    [settings] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    Path("models/normlint.toml").write_text(settings)

    assert normlint("check", "models").code == 0
    assert "target-opset = 17" in normlint("check", "models", "--show-settings").out
    assert normlint("baseline", "create", "models").code == 0
    assert "suppressed" in normlint("check", "models").out
