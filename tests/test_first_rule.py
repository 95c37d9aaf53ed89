"""What a rule author reads and begins with works as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import normlint

from normlint.testing import check_examples

PAGE = (Path(__file__).parent.parent / "docs" / "packs.md").read_text()


def test_the_rule_of_the_page_keeps_its_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule, test = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "l2_norm.py").write_text(rule)
    monkeypatch.syspath_prepend(tmp_path)

    from l2_norm import L2Norm  # type: ignore[import-not-found] # written above

    assert L2Norm().name == "l2-norm"
    check_examples(L2Norm())
    monkeypatch.setattr("normlint.plugins.rule_of", lambda _: L2Norm())
    namespace: dict[str, object] = {}
    exec(test, namespace)  # noqa: S102 - our own page
    namespace["test_examples"]()  # type: ignore[operator]


def test_a_new_rule_passes_its_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    written = normlint("rules", "--new", "unit-length")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert written.out == "wrote unit_length.py and test_unit_length.py\n"
    assert tested.returncode == 0, tested.stdout
    assert "1 passed" in tested.stdout


@pytest.mark.parametrize(
    "name", ["Unit Length", "unit_length", "", "decomposed-layer-norm", "taken"]
)
def test_a_name_that_cannot_be(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.py").write_text("")

    assert normlint("rules", "--new", name).code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["taken.py"]
