"""The hooks for pre-commit and the action for GitHub, as they would be run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from commandline import CLEAN, SPELLED, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a repository of normlint as users name it in their configuration."""
    folder = tmp_path_factory.mktemp("published")
    for name in ("normlint", "rules"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (".pre-commit-hooks.yaml", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "normlint")
    return folder


@pytest.fixture(scope="module")
def pre_commit(
    published: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Give pre-commit in a repository that is set up as docs/ci.md says."""
    folder = tmp_path_factory.mktemp("repository")
    recipe = snippet("ci.md", "repos:\n").replace("ADDRESS", str(published))
    recipe = recipe.replace("REVISION", git(published, "rev-parse", "HEAD").strip())
    (folder / ".pre-commit-config.yaml").write_text(f"{recipe}      - id: normlint-apply\n")
    git(folder, "init", "-q")
    # What normlint stands on is not installed anew but taken from here.
    environment = {"PRE_COMMIT_HOME": str(tmp_path_factory.mktemp("home")), "PIP_NO_DEPS": "1"}

    def run_in(*arguments: str) -> subprocess.CompletedProcess[str]:
        git(folder, "add", "-A")
        return subprocess.run(
            [sys.executable, "-m", "pre_commit", *arguments],
            cwd=folder,
            env=without_git(os.environ) | environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        installed = run_in("install-hooks")
        assert installed.returncode == 0, installed
        [site] = Path(environment["PRE_COMMIT_HOME"]).glob("*/py_env-*/lib/*/site-packages")
        borrowed = [path for path in sys.path if path.endswith("site-packages")]
        (site / "borrowed.pth").write_text("\n".join(borrowed))
        yield run_in


@pytest.mark.slow
def test_pre_commit_runs_them(
    pre_commit: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    write(Path("clean.onnx"), CLEAN)
    write(Path("spelled.onnx"), SPELLED)
    Path("pointer.onnx").write_text("version https://git-lfs.github.com/spec/v1\n")
    Path("notes.txt").write_text("no model\n")

    assert pre_commit("run", "normlint", "--files", "clean.onnx").returncode == 0
    assert "no files to check" in pre_commit("run", "normlint", "--files", "notes.txt").stdout
    assert "git lfs pull" in pre_commit("run", "normlint", "--files", "pointer.onnx").stdout
    assert "NL201" in pre_commit("run", "normlint", "--files", "spelled.onnx").stdout
    repaired = pre_commit("run", "normlint-apply", "--files", "spelled.onnx")

    assert repaired.returncode == 1
    assert "files were modified by this hook" in repaired.stdout
    assert pre_commit("run", "normlint-apply", "--files", "spelled.onnx").returncode == 0
    assert pre_commit("run", "normlint", "--files", "spelled.onnx").returncode == 0


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    return subprocess.run(
        ["git", *identity, *arguments],
        cwd=folder,
        env=without_git(os.environ),
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def without_git(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out what would lead git to the repository that the tests lie in."""
    return {name: value for name, value in environment.items() if not name.startswith("GIT_")}


def snippet(page: str, beginning: str) -> str:
    """Give the block of code on a page of docs/ that begins so."""
    text = (ROOT / "docs" / page).read_text()
    blocks = re.findall(r"```\w+\n(.*?)```", text, re.DOTALL)
    return next(block for block in blocks if block.startswith(beginning))


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put `normlint` on the PATH, and give a folder with models in it."""
    command = tmp_path / "bin" / "normlint"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m normlint "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "work"
    write(folder / "models" / "m.onnx", SPELLED)
    write(folder / "models" / "with space.onnx", CLEAN)
    return folder


def bash(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("vendor.github-actions", "action.yml"),
        ("vendor.github-workflows", ".github/workflows/ci.yml"),
        ("vendor.github-workflows", "jobs:\n"),
        ("vendor.gitlab-ci", "normlint:\n"),
    ],
)
def test_what_ci_servers_read_is_valid(schema: str, file: str, tmp_path: Path) -> None:
    path = ROOT / file
    if file.endswith("\n"):
        path = tmp_path / "recipe.yml"
        path.write_text(("on: push\n" if file == "jobs:\n" else "") + snippet("ci.md", file))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stdout


def test_the_hooks_are_a_valid_manifest() -> None:
    command = [sys.executable, "-m", "pre_commit", "validate-manifest", ".pre-commit-hooks.yaml"]

    subprocess.run(command, cwd=ROOT, check=True, timeout=60)


def test_the_readme_configures_the_hooks_as_pre_commit_wants(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    recipe = text.partition("# .pre-commit-config.yaml\n")[2].partition("```")[0]
    (tmp_path / "config.yaml").write_text(recipe)
    command = [sys.executable, "-m", "pre_commit", "validate-config", "config.yaml"]

    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    assert re.findall(r"- id: (\S+)", recipe) == ["normlint"]


def test_the_action_reads_its_inputs_from_the_environment(on_path: Path) -> None:
    script = (ROOT / "action.yml").read_text().partition("      run: |\n")[2]
    inputs = {"PATHS": "models/*", "ARGS": "--select NL2", "SARIF": "out.sarif"}

    done = bash(script, on_path, **inputs, GITHUB_STEP_SUMMARY=str(on_path / "summary.md"))

    assert "${{" not in script
    assert done.returncode == 1
    assert "NL201 decomposed-layer-norm" in done.stdout
    assert "```mermaid" in (on_path / "summary.md").read_text()
    assert json.loads((on_path / "out.sarif").read_text())["version"] == "2.1.0"


def test_the_inputs_of_the_action_are_data_and_never_code(on_path: Path) -> None:
    script = (ROOT / "action.yml").read_text().partition("      run: |\n")[2]
    inputs = {"PATHS": "$(touch forged) ; touch forged", "ARGS": "", "SARIF": ""}

    done = bash(script, on_path, **inputs, GITHUB_STEP_SUMMARY=str(on_path / "summary.md"))

    assert done.returncode == 2
    assert not (on_path / "forged").exists()


def test_the_job_for_gitlab_writes_what_it_names(on_path: Path) -> None:
    recipe = snippet("ci.md", "normlint:\n")
    command = re.search(r"- (normlint check .*?)\n  artifacts:", recipe, re.DOTALL)
    assert command is not None

    done = bash(" ".join(command[1].split()), on_path)

    assert done.returncode == 1
    for report in re.findall(r"(?:codequality|junit): (\S+)", recipe):
        assert (on_path / report).stat().st_size > 100


def test_git_shows_what_changed_in_a_model(on_path: Path) -> None:
    git(on_path, "init", "-q")
    git(on_path, "add", "-A")
    git(on_path, "commit", "-q", "-m", "models")
    assert bash(snippet("ci.md", "echo '*.onnx"), on_path).returncode == 0
    assert bash("normlint check --apply models/m.onnx", on_path).returncode == 0

    changed = git(on_path, "diff", "--", "models/m.onnx").splitlines()

    assert sum(line.startswith("-  ") for line in changed) >= 9
    assert any(line.startswith("+  y = LayerNormalization(x") for line in changed)
    (on_path / "models" / "m.onnx").write_bytes(b"")
    emptied = git(on_path, "diff", "--", "models/m.onnx").splitlines()
    assert sum(line.startswith("-  ") for line in emptied) >= 9
