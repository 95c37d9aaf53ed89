from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import onnx
import pytest
from commandline import CLEAN, SPELLED, model, normlint, write

if TYPE_CHECKING:
    from pathlib import Path

ENTRY = """
[[ignore-nodes]]
rules = ["NL201"]
{where}
reason = "measured"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def findings(*arguments: object) -> list[dict[str, Any]]:
    document = json.loads(normlint("check", *arguments, "--output-format", "json").out)
    return [finding for entry in document["models"] for finding in entry["findings"]]


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("", True),
        ("node = '/norm/*'", True),
        ("node = '/norm/Sqrt_5'", True),
        ("node = '/other/*'", False),
        ("module = 'norm'", True),
        ("module = 'nor?'", True),
        ("module = 'decoder.*'", False),
        ("op = 'ReduceMean'", True),
        ("op = 'Sqrt'", False),
        ("model = 'models/*.onnx'", True),
        ("model = '**'", True),
        ("model = '*.onnx'", True),
        ("model = 'legacy/*'", False),
        ("expires = 2999-01-01", True),
        ("expires = '2999-01-01'", True),
        ("expires = 2001-01-01", False),
    ],
)
def test_an_entry_of_the_configuration(where: str, *, holds: bool, folder: Path) -> None:
    (folder / "normlint.toml").write_text(ENTRY.format(where=where))
    path = write(folder / "models" / "m.onnx", SPELLED)
    before = path.read_bytes()

    [finding, *_] = findings(".")
    applied = normlint("check", ".", "--apply")

    assert finding["suppressed"] == ({"kind": "config", "reason": "measured"} if holds else None)
    assert (path.read_bytes() == before) is holds
    assert ("1 suppressed (1 configuration)" in applied.out) is holds


def test_an_entry_that_matches_nothing_is_stale_once(folder: Path) -> None:
    (folder / "normlint.toml").write_text(ENTRY.format(where="node = '/gone/*'"))
    for name in ("a", "b"):
        write(folder / f"{name}.onnx", CLEAN)

    stale = findings(".")

    assert [finding["code"] for finding in stale] == ["NL901"]
    assert "rules = ['NL201'], node = '/gone/*'" in stale[0]["message"]
    assert normlint("check", ".").code == 1


def test_an_entry_that_matches_somewhere_is_not_stale(folder: Path) -> None:
    (folder / "normlint.toml").write_text(ENTRY.format(where=""))
    write(folder / "a.onnx", CLEAN)
    write(folder / "b.onnx", SPELLED)

    assert [finding["code"] for finding in findings(".")] == ["NL201"]


def test_an_expired_entry_is_told_and_does_not_hold(folder: Path) -> None:
    (folder / "normlint.toml").write_text(ENTRY.format(where="expires = 2001-01-01"))
    write(folder / "m.onnx", SPELLED)

    codes = {finding["code"]: finding for finding in findings(".")}

    assert set(codes) == {"NL201", "NL901"}
    assert "expired on 2001-01-01" in codes["NL901"]["message"]


def test_what_did_not_run_is_not_called_stale(folder: Path) -> None:
    (folder / "normlint.toml").write_text(ENTRY.format(where="node = '/gone/*'"))
    write(folder / "m.onnx", CLEAN)

    assert findings(".", "--ignore", "NL201") == []
    assert findings(".", "--select", "NL101", "--extend-select", "NL901") == []


def carrying(text: str, path: Path) -> Path:
    proto = model(SPELLED)
    entry = proto.metadata_props.add()
    entry.key, entry.value = "normlint.ignore", text
    path.write_bytes(proto.SerializeToString())
    return path


def test_a_model_carries_its_own_ignores(folder: Path) -> None:
    ignores = json.dumps([{"rules": ["NL201"], "reason": "the NPU", "expires": "2999-01-01"}])
    path = carrying(ignores, folder / "m.onnx")

    [finding] = findings(path)
    [distrusted] = findings(path, "--no-model-ignores")

    assert finding["suppressed"] == {"kind": "model", "reason": "the NPU"}
    assert distrusted["suppressed"] is None
    assert "1 suppressed (1 in-model)" in normlint("check", path).out
    assert normlint("check", path, "--apply").code == 0
    assert len(onnx.load(path).graph.node) == 9


@pytest.mark.parametrize("own", ["", "nonsense", '[{"rules": ["NL9"], "reason": "other"}]'])
@pytest.mark.parametrize("name", ["/norm/Sqrt_5", "", "a[*]?"])
def test_a_node_carries_ignores_for_itself_alone(name: str, own: str, folder: Path) -> None:
    proto = model(SPELLED)
    proto.graph.node[5].name = name
    entry = proto.graph.node[5].metadata_props.add()
    entry.key, entry.value = (
        "normlint.ignore",
        '[{"rules": ["NL201"], "reason": "here", "node": "*"}]',
    )
    if own:
        entry = proto.metadata_props.add()
        entry.key, entry.value = "normlint.ignore", own
    (folder / "m.onnx").write_bytes(proto.SerializeToString())

    found = {finding["code"]: finding for finding in findings("m.onnx")}
    [distrusted] = findings("m.onnx", "--no-model-ignores")

    assert found["NL201"]["suppressed"] == {"kind": "model", "reason": "here"}
    assert set(found) <= {"NL201", "NL901"}
    assert distrusted["suppressed"] is None
    proto.graph.node[5].metadata_props[0].value = '[{"rules": ["NL1"]}]'
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    assert findings("m.onnx")[0]["suppressed"] is None


@pytest.mark.parametrize(
    "text", ["", "nonsense", "{}", "[1]", '[{"rules": 3}]', "[" * 5000, '[{"rule": ["NL2"]}]']
)
def test_ignores_of_a_model_that_make_no_sense_are_none(text: str, folder: Path) -> None:
    [finding] = findings(carrying(text, folder / "m.onnx"))

    assert finding["suppressed"] is None


def test_a_stale_ignore_of_a_model_is_told_for_that_model(folder: Path) -> None:
    ignores = json.dumps([{"rules": ["NL201"], "node": "/gone/*"}])
    carrying(ignores, folder / "m.onnx")

    assert sorted(finding["code"] for finding in findings(".")) == ["NL201", "NL901"]
