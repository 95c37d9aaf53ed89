from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import onnx
import pytest
from commandline import CLEAN, SPELLED, normlint, write

from normlint import engine

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = (
    *("full", "concise", "grouped", "json", "jsonl"),
    *("sarif", "github", "gitlab", "junit", "markdown", "html"),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


SITUATIONS = {
    "clean": (0, ["clean.onnx"]),
    "warning": (1, ["spelled.onnx"]),
    "several": (1, ["."]),
    "below the gate": (0, ["spelled.onnx", "--fail-on", "error"]),
    "exit zero": (0, ["spelled.onnx", "broken.onnx", "--exit-zero"]),
    "unreadable": (1, ["broken.onnx", "--fail-on", "error"]),
    "not a model": (1, ["page.onnx"]),
    "unreadable and ignored": (0, ["page.onnx", "--ignore", "NL904"]),
    "diff": (1, ["spelled.onnx", "--diff", "--fail-on", "error"]),
    "diff of nothing": (0, ["clean.onnx", "--diff"]),
    "ignored": (0, ["spelled.onnx", "--ignore", "NL2"]),
    "repaired": (0, ["spelled.onnx", "--apply"]),
    "repaired, said": (1, ["spelled.onnx", "--apply", "--exit-non-zero-on-fix"]),
    "no such rule": (2, ["spelled.onnx", "--select", "NL999"]),
    "no such path": (2, ["missing.onnx"]),
    "nothing to check": (2, ["empty"]),
    "nothing to check, accepted": (0, ["empty", "--allow-empty"]),
    "no such flag": (2, ["spelled.onnx", "--aply"]),
    "no such severity": (2, ["spelled.onnx", "--fail-on", "fatal"]),
}


def is_whole(form: str, text: str) -> bool:
    """Say whether a text is exactly one document of its format."""
    if form in {"json", "sarif", "gitlab"}:
        return isinstance(json.loads(text), dict | list)
    if form == "jsonl":
        return json.loads(text.splitlines()[-1])["type"] == "summary"
    if form == "junit":
        return ET.fromstring(text).tag == "testsuites"  # noqa: S314 - our own document
    if form == "html":
        return text.startswith("<!DOCTYPE html>") and text.endswith("</html>\n")
    if form == "github":
        return all(line.startswith("::") for line in text.splitlines())
    return True


@pytest.mark.parametrize("situation", SITUATIONS)
def test_exit_code_is_the_same_in_every_format(situation: str, folder: Path) -> None:
    expected, arguments = SITUATIONS[situation]
    (folder / "empty").mkdir()
    for form in FORMATS:
        write(folder / "clean.onnx", CLEAN)
        whole = write(folder / "spelled.onnx", SPELLED).read_bytes()
        (folder / "broken.onnx").write_bytes(whole[: len(whole) // 2])
        (folder / "page.onnx").write_text("<!DOCTYPE html><html></html>")

        outcome = normlint("check", *arguments, "--output-format", form, "--jobs", "1")

        assert outcome.code == expected, (form, outcome)
        assert expected == 2 or is_whole(form, outcome.out)
        assert (outcome.out == "") is (expected == 2) or form in {"github", "concise"}


def test_a_finding_names_path_code_rule_place_and_repair(folder: Path) -> None:
    write(folder / "models" / "enc.onnx", SPELLED)

    outcome = normlint("check", "models")

    assert outcome.out.startswith("models/enc.onnx: NL201 decomposed-layer-norm [*] warning: ")
    assert "at    graph › /norm/ReduceMean_0 … Add_8  (9 nodes)" in outcome.out
    assert "fix   replace by LayerNormalization" in outcome.out
    assert "more  normlint explain NL201" in outcome.out
    assert "[*] 1 fixable with --apply." in outcome.out
    assert "Exit 1: findings at or above --fail-on=warning." in outcome.out
    assert outcome.err == ""


def test_apply_repairs_and_reports_in_one_run(folder: Path) -> None:
    path = write(folder / "m.onnx", SPELLED)

    first = normlint("check", "--apply", path, "--output-format", "json")
    document = json.loads(first.out)
    [finding] = document["models"][0]["findings"]
    second = normlint("check", "--apply", path)

    assert first.code == 0
    assert finding["fix"]["applied"]
    assert finding["fix"]["verification"]["method"] == "region"
    assert document["models"][0]["written"]["nodes_after"] == 1
    assert document["summary"]["fixed"] == 1
    assert [node.op_type for node in onnx.load(path).graph.node] == ["LayerNormalization"]
    assert second.code == 0
    assert "No findings in 1 model." in second.out


def test_diff_writes_nothing_and_shows_nodes(folder: Path) -> None:
    path = write(folder / "m.onnx", SPELLED)
    before = path.read_bytes()

    outcome = normlint("check", "--diff", path)

    assert path.read_bytes() == before
    assert "--- " in outcome.out
    assert "+ y = LayerNormalization(x, scale, bias" in outcome.out
    assert "[*] 1 fixable with --apply." in outcome.out
    assert "Exit 1: " in outcome.out


def test_diff_in_a_document_says_nothing_is_applied(folder: Path) -> None:
    path = write(folder / "m.onnx", SPELLED)

    document = json.loads(normlint("check", "--diff", path, "--output-format", "json").out)
    [model] = document["models"]

    assert model["changes"][0] == "@@ graph: 9 -> 1 nodes"
    assert not model["findings"][0]["fix"]["applied"]
    assert model["written"] is None
    assert document["summary"]["fixed"] == 0


def test_output_and_output_dir(folder: Path) -> None:
    path = write(folder / "in" / "deep" / "m.onnx", SPELLED)
    clean = write(folder / "in" / "clean.onnx", CLEAN)
    before = path.read_bytes()

    assert normlint("check", "--apply", path, "-o", "out.onnx").code == 0
    assert normlint("check", "--apply", "in", "--output-dir", "fixed").code == 0

    assert path.read_bytes() == before
    assert len(onnx.load("out.onnx").graph.node) == 1
    assert len(onnx.load("fixed/deep/m.onnx").graph.node) == 1
    assert (folder / "fixed" / "clean.onnx").read_bytes() == clean.read_bytes()


@pytest.mark.parametrize(
    "arguments",
    [
        ["in", "--apply", "-o", "one.onnx"],
        ["in/a.onnx", "-o", "one.onnx"],
        ["in/a.onnx", "in/b.onnx", "other/a.onnx", "--apply", "--output-dir", "out"],
        ["in/a.onnx", "--apply", "-o", "one.onnx", "--output-dir", "out"],
        ["-", "--apply"],
        ["in", "--output-format", "json", "--output-format", "full"],
        ["in", "--output-format", "xml"],
        ["in", "--output-format", "json=none/out.json"],
        ["in", "--output-format", "json=out", "--output-format", "sarif=out"],
        ["in", "--jobs", "many"],
        ["in", "--inputs", "none.npz"],
        ["in", "--data", "none.npz"],
        ["in", "--targets", "tensorr"],
    ],
)
def test_what_cannot_be_meant_is_said(arguments: list[str], folder: Path) -> None:
    for name in ("in/a", "in/b", "other/a"):
        write(folder / f"{name}.onnx", SPELLED)

    outcome = normlint("check", *arguments)

    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("normlint: ")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--select", "decomposed-layer-nrm"], "'decomposed-layer-norm'"),
        (["--ignore", "NL20l"], "did you mean 'NL"),
        (["--output-format", "sarf"], "'sarif'"),
        (["--targets", "openvin"], "'openvino'"),
        (["--config", "fail-one='error'"], "'fail-on'"),
        (["n.onnx"], "n.onnx does not exist; did you mean 'm.onnx'?"),
        (["--config", "severity.NL201='fatal'"], "error, warning, info, off"),
    ],
)
def test_did_you_mean(arguments: list[str], hint: str, folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)

    outcome = normlint("check", *arguments)

    assert outcome.code == 2
    assert hint in outcome.err


def test_explain_suggests(folder: Path) -> None:
    assert folder.exists()
    outcome = normlint("explain", "NL91")

    assert outcome.code == 2
    assert "did you mean" in outcome.err


def test_standard_input(folder: Path) -> None:
    data = write(folder / "m.onnx", SPELLED).read_bytes()

    outcome = normlint("check", "-", "--output-format", "concise", stdin=data)
    repaired = normlint("check", "-", "--apply", "-o", "out.onnx", stdin=data)

    assert outcome.code == 1
    assert outcome.out.startswith("<stdin>:/norm/ReduceMean_0: NL201 [*] warning: ")
    assert repaired.code == 0
    assert len(onnx.load("out.onnx").graph.node) == 1


def test_standard_input_that_is_closed(folder: Path) -> None:
    command = f"'{sys.executable}' -m normlint check - <&-"
    done = subprocess.run(
        ["bash", "-c", command], check=False, capture_output=True, text=True, timeout=60, cwd=folder
    )

    assert done.returncode == 2
    assert "none is piped into it" in done.stderr


def test_several_formats_at_once(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)

    outcome = normlint(
        *("check", "--output-format", "concise"),
        *("--output-format", "json=out.json", "--output-format", "sarif=out.sarif"),
    )

    assert outcome.out.startswith("m.onnx:")
    assert json.loads((folder / "out.json").read_text())["summary"]["exit_code"] == 1
    assert json.loads((folder / "out.sarif").read_text())["version"] == "2.1.0"


def test_annotations_come_with_the_text_for_people(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)

    outcome = normlint("check", "--output-format", "github")
    quiet = normlint("check", "--output-format", "github", "-q")

    assert outcome.out.startswith("::warning file=")
    assert outcome.err == normlint("check").out
    assert (quiet.out, quiet.err) == (outcome.out, "")


def test_statistics_and_quiet(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)

    counted = normlint("check", "--statistics")
    quiet = normlint("check", "-q")
    silent = normlint("check", "-q", "--output-format", "json")

    assert "1  NL201  [*] decomposed-layer-norm" in counted.out
    assert "Found" not in quiet.out
    assert silent.err == ""


def test_machine_formats_say_the_summary_on_standard_error(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)

    outcome = normlint("check", "--output-format", "json")

    assert outcome.err.startswith("Found 1 finding in 1 model (1 warning).")


def test_a_bug_is_exit_three_and_a_traceback_only_with_v(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from normlint import cli

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the cat")

    write(folder / "m.onnx", SPELLED)
    monkeypatch.setattr(engine, "check_model", broken)
    errors = []
    for arguments in (["check", "m.onnx"], ["check", "m.onnx", "-v"]):
        monkeypatch.setattr(sys, "argv", ["normlint", *arguments])
        with pytest.raises(SystemExit) as exit_:
            cli.run()
        assert exit_.value.code == 3
        errors.append(capsys.readouterr().err)

    assert "internal error: RuntimeError: the cat" in errors[0]
    assert "Traceback" not in errors[0]
    assert "Traceback" in errors[1]


def test_interrupt_is_130(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    write(folder / "m.onnx", SPELLED)
    monkeypatch.setattr(engine, "check_model", interrupted)

    assert normlint("check", "m.onnx").code == 130


def test_a_reader_that_leaves_is_no_error(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)
    command = f"'{sys.executable}' -m normlint check m.onnx | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], check=False, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 1
    assert done.stderr == ""


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_change_nothing_but_what_is_said(closed: str, folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)
    for form in ("full", "json"):
        command = f"'{sys.executable}' -m normlint check m.onnx --output-format {form} {closed}"
        done = subprocess.run(["bash", "-c", command], check=False, timeout=60)

        assert done.returncode == 1


def test_a_name_that_is_too_long_is_no_path(folder: Path) -> None:
    assert folder.exists()
    for command in ("check", "norms", "show"):
        outcome = normlint(command, "x" * 5000)

        assert outcome.code == 2
        assert outcome.err.startswith("normlint: ")


def test_jobs_change_nothing_but_the_time(folder: Path) -> None:
    for number in range(5):
        write(folder / f"m{number}.onnx", SPELLED if number % 2 else CLEAN)
    (folder / "page.onnx").write_text("<html></html>")

    one = normlint("check", "--output-format", "json", "--jobs", "1")
    four = normlint("check", "--output-format", "json", "--jobs", "4")

    assert one.out == four.out
    assert one.code == four.code == 1
    written = {}
    for jobs in ("1", "4"):
        (folder / jobs).mkdir()
        outputs = [f"--output-format={form}={jobs}/report.{form}" for form in FORMATS]
        assert normlint("check", *outputs, "--jobs", jobs).code == 1
        written[jobs] = [path.read_bytes() for path in sorted((folder / jobs).iterdir())]
    assert written["1"] == written["4"]
    assert len(written["1"]) == len(FORMATS)


def test_version() -> None:
    from normlint import __version__

    outcome = normlint("-v", "--version")

    assert outcome.out.startswith(f"normlint {__version__}\nPython ")
    assert "onnxruntime 1." in outcome.out


def test_show_files_and_settings(folder: Path) -> None:
    write(folder / "a.onnx", CLEAN)
    (folder / "normlint.toml").write_text("fail-on = 'error'\n")

    assert normlint("check", "--show-files").out == "a.onnx\n"
    settings = normlint("check", "--show-settings", "--target-opset", "18").out

    assert 'fail-on = "error"' in settings
    assert "target-opset = 18" in settings
    assert str(folder / "normlint.toml") in settings


def test_settings_are_shown_as_a_file_that_says_the_same(folder: Path) -> None:
    write(folder / "a.onnx", CLEAN)
    (folder / "normlint.toml").write_text(
        "select = ['NL2']\ntargets = ['qnn', 'onnx']\n[severity]\nNL201 = 'off'\n"
        "[per-model-ignores]\n'a b/*' = ['NL1']\n"
        "[[ignore-nodes]]\nrules = ['NL201']\nnode = '\"quoted\" *'\nexpires = 2027-03-01\n"
    )

    shown = normlint("check", "--show-settings").out
    (folder / "normlint.toml").write_text(shown)

    assert "per-model-ignores" in shown
    assert normlint("check", "--show-settings").out == shown


def test_environment_variables(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)

    outcome = normlint("check", NORMLINT_OUTPUT_FORMAT="json")

    assert json.loads(outcome.out)["schema"] == "normlint/check/1"


def test_a_path_that_is_not_here_comes_with_the_command_that_fetches_it(folder: Path) -> None:
    (folder / "a.onnx.dvc").write_text("outs: []\n")
    (folder / "b.onnx").symlink_to(".git/annex/objects/x/y")
    (folder / "c.onnx").symlink_to("gone.onnx")

    assert "dvc pull" in normlint("check", "a.onnx").err
    assert "git annex get" in normlint("check", "b.onnx").err
    assert "is a link to gone.onnx" in normlint("check", "c.onnx").err


def test_bounds_of_time_and_size_make_a_model_unreadable(folder: Path) -> None:
    write(folder / "m.onnx", CLEAN)

    small = normlint("check", "m.onnx", "--max-model-size", 10)
    late = normlint("check", "m.onnx", "--timeout", 0.001)
    fine = normlint("check", "m.onnx", "--max-model-size", 100_000, "--timeout", 300)

    assert (small.code, late.code, fine.code) == (1, 1, 0)
    assert "more than the limit of 10" in small.out
    assert "longer than 0.001 seconds" in late.out
