from __future__ import annotations

import doctest
from pathlib import Path

import onnx
import pytest
from commandline import SPELLED, model, write

import normlint
import normlint.api
from normlint.usage import UsageError


def test_the_names_for_authors_are_there() -> None:
    for name in normlint.__all__:
        assert getattr(normlint, name) is not None
    assert set(normlint.__all__) <= set(dir(normlint))
    with pytest.raises(AttributeError):
        _ = normlint.nothing


@pytest.mark.parametrize("module", [normlint, normlint.api], ids=lambda module: module.__name__)
def test_the_examples_of_the_documentation_hold(
    module: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parent.parent)

    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_the_examples_of_the_page_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parent.parent
    monkeypatch.chdir(root)

    assert doctest.testfile(str(root / "docs" / "python.md"), module_relative=False).failed == 0


def test_check_takes_a_path_bytes_or_a_proto(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", SPELLED)
    given = [path, str(path), path.read_bytes(), model(SPELLED)]

    for one in given:
        report = normlint.check(one)

        assert [finding.code for finding in report.findings] == ["NL201"]
        assert report.exit_code == 1


def test_apply_writes_the_repaired_model(tmp_path: Path) -> None:
    output = tmp_path / "repaired.onnx"

    report = normlint.apply(model(SPELLED), output, select=["NL201"])

    assert report.fixed == 1
    assert report.exit_code == 0
    assert len(onnx.load(output).graph.node) == 1


def test_an_unknown_rule_is_an_error() -> None:
    with pytest.raises(UsageError, match="NL999"):
        normlint.check(b"", select=["NL999"])
