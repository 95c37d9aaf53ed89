from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
import tomllib
import venv
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from normlint import plugins
from normlint.plugins import PackError, collect, load_rules, rule_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parent.parent
RULE = '''
from normlint.rule import Rule

class {name}(Rule):
    """Complains."""

    code = "{code}"
'''


@pytest.fixture
def pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., list[plugins.Rule]]]:
    """Write a pack and give its rules."""
    number = iter(range(100))

    def load(**files: str) -> list[plugins.Rule]:
        name = f"pack_{tmp_path.name}_{next(number)}"
        folder = tmp_path / name
        folder.mkdir()
        for file, text in {"__init__": "", **files}.items():
            (folder / f"{file}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        entry = EntryPoint(name, name, plugins.GROUP)
        monkeypatch.setattr(plugins, "entry_points", lambda **_: [entry])
        load_rules.cache_clear()
        return list(load_rules())

    yield load
    monkeypatch.undo()
    load_rules.cache_clear()


def test_our_own_rules_come_through_the_entry_point() -> None:
    codes = [rule.code for rule in load_rules()]

    assert codes == sorted(codes)
    assert "NL201" in codes
    found = rule_of("NL903")
    assert found is not None
    assert found.name == "empty-file"


def test_a_rule_is_named_after_its_file(pack: Callable[..., list[plugins.Rule]]) -> None:
    [rule] = pack(
        some_norm=RULE.format(name="Anything", code="ACME100"), _helper="VALUE = 1", __main__="x=1"
    )

    assert (rule.code, rule.name) == ("ACME100", "some-norm")


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"a": "1 / 0"}, "does not import: ZeroDivisionError"),
        ({"a": "import surely_not_there"}, "does not import"),
        ({"a": "x = 1"}, "holds 0 rules"),
        ({"a": RULE.format(name="A", code="X100") + RULE.format(name="B", code="X101")}, "holds 2"),
        ({"a": RULE.format(name="A", code="rule one")}, "needs a code like AB123"),
        ({"a": RULE.format(name="A", code="X1").replace("Complains.", " ")}, "needs a code"),
        ({"a": RULE.format(name="A", code="X100").replace("Complains.", " ")}, "needs a docstring"),
        (
            {
                "a": RULE.format(name="A", code="X100"),
                "b": RULE.format(name="B", code="X100"),
            },
            "are both called X100",
        ),
    ],
)
def test_a_broken_pack_is_a_clear_error(
    files: dict[str, str], complaint: str, pack: Callable[..., list[plugins.Rule]]
) -> None:
    with pytest.raises(PackError, match=complaint) as error:
        pack(**files)

    assert "pack_" in str(error.value)


def test_two_packs_cannot_share_a_code() -> None:
    rules = load_rules()
    clone = type("Clone", (type(rules[0]),), {"__module__": "other.clone"})()

    with pytest.raises(PackError, match=f"are both called {rules[0].code}"):
        collect([*rules, clone])


def test_the_command_line_says_which_pack_is_broken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from commandline import normlint

    def broken() -> None:
        raise PackError("rule pack 'x' of y 1.0: y.z does not import")

    (tmp_path / "m.onnx").write_bytes(b"")
    monkeypatch.setattr("normlint.checking.load_cards", broken)
    outcome = normlint("check", tmp_path / "m.onnx")

    assert outcome.code == 2
    assert "rule pack 'x' of y 1.0" in outcome.err


def test_every_package_is_shipped() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = {
        ".".join(file.parent.relative_to(ROOT).parts)
        for file in (ROOT / "normlint").rglob("__init__.py")
    }

    assert set(project["tool"]["setuptools"]["packages"]) == {*found, "normlint_rules"}


@pytest.mark.slow
def test_a_wheel_and_a_pack_of_a_third_party_install_side_by_side(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    for source in (ROOT, ROOT / "tests" / "acme_pack"):
        copy = tmp_path / source.name
        ignored = shutil.ignore_patterns(
            "*.egg-info", "build", ".git", ".venv", ".*_cache", "sample_models"
        )
        shutil.copytree(source, copy, ignore=ignored)
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, copy)
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--no-deps", *sorted(wheels.glob("*.whl")))
    # What normlint stands on is taken from here, behind the packages that were just installed.
    site = next((environment / "lib").glob("*/site-packages"))
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (site / "borrowed.pth").write_text("\n".join(borrowed))

    table = run(python, "-P", "-m", "normlint", "rules", cwd=tmp_path)
    tested = run(python, "-P", "-c", textwrap.dedent(CHECK), cwd=tmp_path)

    assert "ACME101  l2-norm" in table
    assert "NL201  " in table
    assert tested.strip() == f"{site}/normlint/__init__.py"


CHECK = """
import normlint
from normlint.plugins import rule_of
from normlint.testing import check_examples

check_examples(rule_of("ACME101"))
print(normlint.__file__)
"""


def run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
