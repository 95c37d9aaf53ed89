from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from commandline import CLEAN, SPELLED, normlint, write

from normlint.fingerprint import with_fingerprints
from normlint.results import Finding, Step
from normlint.rule import Severity

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def known(folder: Path) -> dict[str, dict[str, int]]:
    document = json.loads((folder / "normlint-baseline.json").read_text())
    return {
        model: {code: entry["count"] for code, entry in codes.items()}
        for model, codes in document["models"].items()
    }


NAMED_ANEW = dict(enumerate(f"/encoder/other_{number}" for number in range(9)))


def test_create_then_only_new_findings_count(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)

    created = normlint("baseline", "create")
    after = normlint("check")
    without = normlint("check", "--no-baseline")
    write(folder / "new.onnx", SPELLED)
    more = normlint("check")

    assert created.code == 0
    assert known(folder) == {"m.onnx": {"NL201": 1}}
    assert after.code == 0
    assert "1 suppressed (1 baseline)" in after.out
    assert without.code == 1
    assert more.code == 1
    assert more.out.startswith("new.onnx: NL201")


def test_a_new_export_is_known_by_count(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)
    normlint("baseline", "create")
    write(folder / "m.onnx", SPELLED, NAMED_ANEW)

    assert normlint("check").code == 0


def test_update_knows_again_and_adds_nothing(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)
    normlint("baseline", "create")
    before = (folder / "normlint-baseline.json").read_text()
    write(folder / "m.onnx", SPELLED, NAMED_ANEW)
    write(folder / "new.onnx", SPELLED)

    updated = normlint("baseline", "update")

    assert updated.code == 1
    assert "1 new finding left out" in updated.err
    assert known(folder) == {"m.onnx": {"NL201": 1}}
    assert (folder / "normlint-baseline.json").read_text() != before


def test_what_is_gone_is_told_and_pruned(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)
    write(folder / "removed.onnx", SPELLED)
    normlint("baseline", "create")
    write(folder / "m.onnx", CLEAN)
    (folder / "removed.onnx").unlink()

    told = normlint("check")
    pruned = normlint("baseline", "prune")

    assert told.code == 0
    assert (
        "NL901 stale-ignore info: normlint-baseline.json knows 1 finding that is gone" in told.out
    )
    assert pruned.code == 0
    assert known(folder) == {}
    assert "NL901" not in normlint("check").out


def test_create_keeps_what_is_known_of_other_models(folder: Path) -> None:
    for name in ("a", "b"):
        write(folder / f"{name}.onnx", SPELLED)
    normlint("baseline", "create", "a.onnx")
    normlint("baseline", "create", "b.onnx")

    assert known(folder) == {"a.onnx": {"NL201": 1}, "b.onnx": {"NL201": 1}}
    shown = normlint("baseline", "show")

    assert shown.out.splitlines()[0] == "a.onnx: 1 × NL201"


def test_a_file_elsewhere(folder: Path) -> None:
    write(folder / "models" / "m.onnx", SPELLED)
    normlint("baseline", "create", "models", "--baseline", "models/known.json")

    assert normlint("check", "models", "--baseline", "models/known.json").code == 0
    assert normlint("check", "models", "--baseline", "none.json").code == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 9}', '{"version": 1, "models": 3}'])
def test_what_is_no_baseline_is_said(text: str, folder: Path) -> None:
    write(folder / "m.onnx", CLEAN)
    (folder / "normlint-baseline.json").write_text(text)

    outcome = normlint("check")

    assert outcome.code == 2
    assert "normlint-baseline.json" in outcome.err


def test_an_unreadable_model_is_never_known(folder: Path) -> None:
    (folder / "m.onnx").write_text("<html></html>")
    normlint("baseline", "create")

    assert known(folder) == {}
    assert normlint("check").code == 1


def finding(**fields: object) -> Finding:
    steps = (Step("n1", "Sub"), Step("n2", "Div"))
    given: dict[str, object] = {"node": "/a/Sub", "module": "a", "output": "t1", "picture": steps}
    return Finding("NL201", "r", Severity.WARNING, "m", **{**given, **fields})  # type: ignore[arg-type]


def test_a_fingerprint_survives_what_an_export_changes() -> None:
    [one] = with_fingerprints([finding()])
    [same] = with_fingerprints([finding(node="/a/Sub_17", output="t99", evidence={"epsilon": 1})])
    [other] = with_fingerprints([finding(module="b")])
    [numbered] = with_fingerprints([finding(module=None, node="#3:Sub@t1")])
    [shifted] = with_fingerprints([finding(module=None, node="#9:Sub@t1")])

    assert one.fingerprint == same.fingerprint
    assert one.fingerprint != other.fingerprint
    assert numbered.fingerprint == shifted.fingerprint


def test_alike_findings_are_told_apart() -> None:
    marks = [f.fingerprint for f in with_fingerprints([finding()] * 3)]

    assert marks == [marks[0], f"{marks[0]}#2", f"{marks[0]}#3"]
