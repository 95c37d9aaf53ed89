from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import jsonschema
import pytest
from commandline import CLEAN, SPELLED, normlint, write

from normlint.config import Resolver, inline
from normlint.config.schema import schema
from normlint.config.tables import known_keys
from normlint.usage import UsageError

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*arguments: object) -> dict[str, list[str]]:
    """Give the codes that count, by model."""
    document = json.loads(normlint("check", *arguments, "--output-format", "json").out)
    return {
        model["path"]: [f["code"] for f in model["findings"] if f["suppressed"] is None]
        for model in document["models"]
    }


def test_the_nearest_file_holds_and_nothing_is_merged(folder: Path) -> None:
    (folder / "normlint.toml").write_text("ignore = ['NL201']\n")
    (folder / "a").mkdir()
    (folder / "a" / ".normlint.toml").write_text("fail-on = 'error'\n")
    (folder / "b").mkdir()
    (folder / "b" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    for name in ("a/m", "b/m"):
        write(folder / f"{name}.onnx", SPELLED)

    assert found(".") == {"a/m.onnx": ["NL201"], "b/m.onnx": []}


def test_pyproject_with_our_table_is_a_configuration(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.normlint]\nignore = 'NL2'\n")
    write(folder / "m.onnx", SPELLED)

    assert found(".") == {"m.onnx": []}
    assert found(".", "--isolated") == {"m.onnx": ["NL201"]}


def test_extend_is_read_first(folder: Path) -> None:
    (folder / "base.toml").write_text("ignore = ['NL201']\nfail-on = 'error'\n")
    (folder / "normlint.toml").write_text("extend = 'base.toml'\nfail-on = 'info'\n")

    config = Resolver().for_folder(folder)

    assert config.ignore == ("NL201",)
    assert config.fail_on == "info"


def test_files_that_extend_each_other_end(folder: Path) -> None:
    (folder / "normlint.toml").write_text("extend = 'other.toml'\n")
    (folder / "other.toml").write_text("extend = 'normlint.toml'\n")

    with pytest.raises(UsageError, match="extends itself"):
        Resolver().for_folder(folder)


def test_the_command_line_wins_over_a_setting_over_a_file(folder: Path) -> None:
    (folder / "normlint.toml").write_text("fail-on = 'error'\ntarget-opset = 15\n")
    arguments = ["--config", "fail-on='info'", "--config", "target-opset=16", "--fail-on", "never"]

    shown = normlint("check", "--show-settings", "--allow-empty", *arguments).out

    assert 'fail-on = "never"' in shown
    assert "target-opset = 16" in shown


def test_a_file_may_be_named(folder: Path) -> None:
    (folder / "normlint.toml").write_text("ignore = ['NL201']\n")
    (folder / "strict.toml").write_text("fail-on = 'info'\n")
    write(folder / "m.onnx", SPELLED)

    assert found(".", "--config", "strict.toml") == {"m.onnx": ["NL201"]}
    assert normlint("check", "--config", "none.toml").code == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("selct = ['NL1']", "unknown key 'selct'; did you mean 'select'"),
        ("fail_on = 'error'", "did you mean 'fail-on'"),
        ("fail-on = 'fatal'", "one of error, warning, info, never"),
        ("preview = 'yes'", "true or false, not 'yes'"),
        ("target-opset = '17'", "a whole number, not '17'"),
        ("select = [1]", "a text or a list of texts"),
        ("targets = ['tensorr']", "did you mean 'tensorrt'"),
        ("intent = 'use'", "one of infer, train"),
        ("severity = ['NL201']", "a table of texts"),
        ("per-model-ignores = {a = 1}", "a table of lists of texts"),
        ("ignore-nodes = [{rules = ['NL201'], nod = 'x'}]", "did you mean 'node'"),
        ("ignore-nodes = [{node = 'x'}]", "needs rules"),
        ("ignore-nodes = [{rules = ['NL201'], expires = 'soon'}]", "a date like 2027-03-01"),
        ("ignore-nodes = 1", "a list of tables"),
        ("extend = 1", "extend is a path"),
        ('extend = "\\u0000"', "extend is a path"),
        ("jobs = true", "a number of processes or auto, not True"),
        ("jobs = 0", "a number of processes or auto"),
        ("timeout = inf", "a number from 0 to 1000000000, not inf"),
        ("smoothing-alpha = nan", "a number from 0 to 1, not nan"),
        ("target-opset = 0", "a number from 1 to"),
        ("intent = [{}]", "one of infer, train"),
        ("output-format = []", "names no format"),
        ("select = [", "no valid TOML"),
        ("select = ['NL999']", "unknown rule 'NL999'"),
        ("severity = {NL201 = 'fatal'}", "one of error, warning, info, off"),
        ("ignore-nodes = [{rules = ['no-such-rule']}]", "unknown rule 'no-such-rule'"),
    ],
)
def test_what_is_wrong_is_said_with_the_file_and_the_nearest(
    text: str, complaint: str, folder: Path
) -> None:
    (folder / "normlint.toml").write_text(f"{text}\n")
    write(folder / "m.onnx", CLEAN)

    outcome = normlint("check", ".")

    assert outcome.code == 2
    assert outcome.out == ""
    assert complaint in outcome.err
    assert "normlint.toml" in outcome.err


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("normlint.toml", "# first\nselect = ['NL2']\nselct = ['NL2']\n", 3),
        ("normlint.toml", "[severity]\nNL201 = 'info'\n[[ignore-nodez]]\nrules = ['NL2']\n", 3),
        ("normlint.toml", "fail-on.error = 1\n", 1),
        ("pyproject.toml", "[project]\nselct = 1\n[tool.normlint]\nselct = ['NL2']\n", 4),
        ("pyproject.toml", "[tool.normlint]\npreview = true\n[tool.normlint.selct]\nx = 1\n", 3),
    ],
)
def test_a_mistake_is_said_with_its_line(name: str, text: str, line: int, folder: Path) -> None:
    (folder / name).write_text(text)
    write(folder / "m.onnx", CLEAN)

    assert f"{name}:{line}: " in normlint("check", ".").err


ODD = (
    *("true", "0", "-1", "3", "1e400", "nan", "-1.5", "0.5", "1" + "0" * 40, '""', '"x"', '"auto"'),
    *("[]", '[""]', '["x"]', '["*"]', '["**/["]', "{}", '{a = "b"}', '{NL201 = "off"}', "[{}]"),
    *('{"*" = ["NL2"]}', '[{rules = ["NL2"]}]', "2020-01-01", '"/"', '"."', r'"\u0000"'),
)


@pytest.mark.parametrize("key", ["extend", *known_keys()])
def test_no_value_of_any_key_is_a_bug(key: str, folder: Path) -> None:
    write(folder / "m.onnx", CLEAN)
    accepted = 0
    for value in ODD:
        (folder / "normlint.toml").write_text(f"{key} = {value}\n")
        outcome = normlint("check", "m.onnx", "--show-settings")
        accepted += outcome.code == 0

        assert outcome.code in {0, 2}, (key, value, outcome)
        assert outcome.code == 0 or outcome.err.startswith("normlint: ")
    assert accepted < len(ODD)


def test_severities(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)

    assert normlint("check", "--config", "severity.NL201='info'").code == 0
    assert normlint("check", "--config", "severity.NL2='off'", "--fail-on", "info").code == 0
    error = normlint("check", "--config", "severity.NL201='error'", "--fail-on", "error")

    assert error.code == 1
    assert "NL201 decomposed-layer-norm [*] error:" in error.out


def test_ignores_by_model(folder: Path) -> None:
    (folder / "normlint.toml").write_text("[per-model-ignores]\n'legacy/**' = ['NL201']\n")
    for name in ("legacy/deep/m", "new/m"):
        write(folder / f"{name}.onnx", SPELLED)

    assert found(".") == {"legacy/deep/m.onnx": [], "new/m.onnx": ["NL201"]}


def test_exclude(folder: Path) -> None:
    (folder / "normlint.toml").write_text("exclude = ['third_party', 'old_*.onnx']\n")
    for name in ("third_party/x", "old_m", "m", ".venv/x"):
        write(folder / f"{name}.onnx", CLEAN)

    assert list(found(".")) == ["m.onnx"]
    assert list(found("old_m.onnx")) == ["old_m.onnx"]
    assert found("old_m.onnx", "--force-exclude") == {}
    assert normlint("check", "old_m.onnx", "--force-exclude").code == 0


def test_inline_settings() -> None:
    assert inline("fail-on=error") == {"fail_on": "error"}
    assert inline("fail-on='error'") == {"fail_on": "error"}
    assert inline("severity.NL201='off'") == {"severity": {"NL201": "off"}}
    assert inline("normlint.toml") is None


def test_the_schema_is_shipped_as_it_is_generated(update_golden: bool) -> None:
    path = DOCS / "normlint.schema.json"
    text = json.dumps(schema(), indent=2) + "\n"
    if update_golden:
        path.write_text(text)

    assert path.read_text() == text


@pytest.mark.parametrize(
    ("document", "valid"),
    [
        ({"select": ["NL1"], "severity": {"NL201": "off"}, "target-opset": 17}, True),
        ({"ignore-nodes": [{"rules": ["NL1"], "expires": "2027-01-01"}]}, True),
        ({"targets": ["onnxruntime"], "extend": "../normlint.toml"}, True),
        ({"selct": []}, False),
        ({"fail-on": "fatal"}, False),
        ({"ignore-nodes": [{"node": "x"}]}, False),
        ({"preview": 1}, False),
    ],
)
def test_the_schema_accepts_what_is_accepted(document: object, *, valid: bool) -> None:
    errors = list(jsonschema.Draft202012Validator(schema()).iter_errors(document))

    assert (not errors) is valid


def test_a_date_is_a_date() -> None:
    table = {"rules": ["NL1"], "expires": dt.date(2027, 3, 1)}
    from normlint.suppress import parse

    assert parse(table, "x").expires == dt.date(2027, 3, 1)
