"""The hooks for pre-commit and the action for GitHub, as they would be run."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commandline import CLEAN, SPELLED, write

ROOT = Path(__file__).parent.parent
HOOK = re.compile(r"- id: (\S+)\n(.*?)(?=\n- id:|\Z)", re.DOTALL)


def hooks() -> dict[str, dict[str, Any]]:
    """Read the hooks; the file has one `key: value` a line."""
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    return {
        found[1]: dict(line.strip().split(": ", 1) for line in found[2].splitlines())
        for found in HOOK.finditer(text)
    }


def run(hook: str, folder: Path, *files: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(hooks()[hook]["entry"])
    assert program == "normlint"
    return subprocess.run(
        [sys.executable, "-m", program, *arguments, *files],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_there_are_two_hooks_that_see_every_file() -> None:
    assert list(hooks()) == ["normlint", "normlint-apply"]
    for hook in hooks().values():
        assert hook["files"] == r"'\.onnx$'"
        assert hook["types"] == "[file]"
        assert hook["require_serial"] == "true"
        assert hook["language"] == "python"


@pytest.mark.parametrize("hook", hooks())
def test_a_clean_model_passes_and_stays(hook: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", CLEAN)
    before = path.read_bytes()

    assert run(hook, tmp_path, "m.onnx").returncode == 0
    assert path.read_bytes() == before


def test_one_hook_complains_and_the_other_repairs(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", SPELLED)
    before = path.read_bytes()

    complained = run("normlint", tmp_path, "m.onnx")

    assert complained.returncode == 1
    assert "NL201" in complained.stdout
    assert path.read_bytes() == before
    # pre-commit itself fails a hook that changes a file.
    assert run("normlint-apply", tmp_path, "m.onnx").returncode == 0
    assert path.read_bytes() != before
    assert run("normlint", tmp_path, "m.onnx").returncode == 0


@pytest.mark.parametrize("hook", hooks())
def test_a_pointer_does_not_pass_and_is_not_touched(hook: str, tmp_path: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    (tmp_path / "m.onnx").write_text(text)

    done = run(hook, tmp_path, "m.onnx")

    assert done.returncode == 1
    assert "git lfs pull" in done.stdout
    assert (tmp_path / "m.onnx").read_text() == text


@pytest.mark.parametrize("hook", hooks())
def test_excluded_models_are_passed_over(hook: str, tmp_path: Path) -> None:
    write(tmp_path / "legacy" / "m.onnx", SPELLED)
    (tmp_path / "normlint.toml").write_text("exclude = ['legacy']\n")

    assert run(hook, tmp_path, "legacy/m.onnx").returncode == 0


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.slow
def test_pre_commit_runs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "cache"))
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "repository"
    clean = write(folder / "clean.onnx", CLEAN)
    spelled = write(folder / "spelled.onnx", SPELLED)
    (folder / "pointer.onnx").write_text("version https://git-lfs.github.com/spec/v1\n")
    (folder / "notes.txt").write_text("no model\n")
    git(folder, "init", "-q")

    def pre_commit(hook: str, *files: Path | str) -> subprocess.CompletedProcess[str]:
        # As in a user's repository, but with the normlint that is under test.
        fields = hooks()[hook]
        entry = fields["entry"].replace("normlint", f"{sys.executable} -m normlint", 1)
        types = fields["types"].strip("[]").split(", ")
        local = {"id": hook, "name": hook, "entry": entry, "language": "system"}
        local |= {"files": fields["files"].strip("'"), "types": types, "require_serial": True}
        config = {"repos": [{"repo": "local", "hooks": [local]}]}
        (folder / ".pre-commit-config.yaml").write_text(json.dumps(config))
        git(folder, "add", "-A")
        return subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", hook, "--files", *map(str, files)],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    assert pre_commit("normlint", clean).returncode == 0
    assert "no files to check" in pre_commit("normlint", folder / "notes.txt").stdout
    assert "git lfs pull" in pre_commit("normlint", folder / "pointer.onnx").stdout
    assert "NL201" in pre_commit("normlint", spelled).stdout
    repaired = pre_commit("normlint-apply", spelled)

    assert repaired.returncode == 1
    assert "files were modified by this hook" in repaired.stdout
    assert pre_commit("normlint-apply", spelled).returncode == 0


def test_the_action_reads_its_inputs_from_the_environment() -> None:
    text = (ROOT / "action.yml").read_text()
    script = text.partition("      run: |\n")[2]

    assert "${{" not in script
    assert "normlint check $PATHS $ARGS" in script
