"""The commands beside `check`: norms, show, explain, rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from commandline import CLEAN, HOSTILE, SPELLED, normlint, write
from onnx import TensorProto, helper

from normlint.plugins import load_cards, load_rules
from normlint.report.look import visible

if TYPE_CHECKING:
    from pathlib import Path

KEEPDIMS = SPELLED.replace("axes = [-1]", "axes = [-1], keepdims = 0").replace("2,3,8", "8,8,8")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_norms_as_a_table_and_as_a_document(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)

    text = normlint("norms", "m.onnx")
    document = json.loads(normlint("norms", "m.onnx", "--output-format", "json").out)
    [norm] = document["models"][0]["norms"]

    assert text.code == 0
    assert text.out.splitlines()[0] == "m.onnx: 1 normalisation"
    assert "LayerNorm" in text.out
    assert document["schema"] == "normlint/norms/1"
    assert (norm["kind"], norm["form"], norm["axes"]) == ("LayerNorm", "decomposed", [-1])
    assert norm["epsilon"] == pytest.approx(1e-5)
    assert set(document["models"][0]) == {
        *("path", "norms", "near_norms", "constant_norms", "streams"),
    }


def test_norms_of_what_is_no_model(folder: Path) -> None:
    (folder / "page.onnx").write_text("<html></html>")
    write(folder / "m.onnx", SPELLED)

    text = normlint("norms", ".")
    document = json.loads(normlint("norms", ".", "--output-format", "json").out)

    assert text.code == 1
    assert "page.onnx: NL904" in text.out
    assert [len(model["norms"]) for model in document["models"]] == [1, 0]
    assert document["models"][1]["error"]["code"] == "NL904"


def test_misses_are_explained(folder: Path) -> None:
    write(folder / "m.onnx", KEEPDIMS)

    text = normlint("check", "--explain-misses", "--select", "NL2")
    document = json.loads(normlint("check", "--explain-misses", "--output-format", "json").out)

    assert "m.onnx: looks like LayerNorm and is none (keepdims) at /norm/ReduceMean_0" in text.out
    assert document["models"][0]["near_norms"][0]["reason"] == "keepdims"


def test_show_a_model_as_text(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)

    lines = normlint("show", "m.onnx").out.splitlines()

    assert lines[:3] == ["ir_version 8", "opset ai.onnx 17", "producer tests"]
    assert "  input x: float[2, 3, 8]" in lines
    assert "  initializer scale: float[8]" in lines
    assert "  y = Add(scaled, bias)  (/norm/Add_8)" in lines


def test_show_subgraphs_functions_and_odd_types(folder: Path) -> None:
    inner = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["z"])],
        "inner",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    outer = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], "choice", then_branch=inner, else_branch=inner)],
        "outer",
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("x", 99, ["n", None, 3]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [TensorProto(name="odd", data_type=77, dims=[2])],
    )
    function = helper.make_function(
        "f", "F", ["a"], ["b"], [helper.make_node("Elu", ["a"], ["b"])], []
    )
    proto = helper.make_model(outer, functions=[function])
    (folder / "m.onnx").write_bytes(proto.SerializeToString())

    out = normlint("show", "m.onnx").out

    assert "graph/choice.then_branch inner" in out
    assert "function f::F(a)" in out
    assert "  input s: sequence" in out
    assert "  input x: type 99[n, ?, 3]" in out
    assert "  initializer odd: type 77[2]" in out


def test_show_a_part(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)

    text = normlint("show", "m.onnx", "--node", "*/Sqrt*")
    drawn = normlint("show", "m.onnx", "--node", "*/Sqrt*", "--format", "svg")

    assert [line[:6] for line in text.out.splitlines()] == ["  Add(", "> Sqrt", "  Div("]
    assert ET.fromstring(drawn.out).tag.endswith("svg")  # noqa: S314 - our own document


def test_show_a_finding_before_and_after(folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)
    document = json.loads(normlint("check", "m.onnx", "--output-format", "json").out)
    name = document["models"][0]["findings"][0]["fingerprint"]

    text = normlint("show", "m.onnx", "--finding", name[:6])
    drawn = normlint("show", "m.onnx", "--finding", name, "--format", "mermaid")

    assert text.code == 0
    assert "> LayerNormalization(x) -> y" in text.out.replace("  (y)", "")
    assert drawn.out.count("flowchart TD") == 2
    picture = normlint("show", "m.onnx", "--finding", name, "--format", "svg").out
    assert picture.count('class="match"') == 9
    assert picture.count('class="new"') == 1
    assert ET.fromstring(picture).tag.endswith("svg")  # noqa: S314 - our own document


@pytest.mark.parametrize(
    "arguments",
    [
        ["none.onnx"],
        ["m.onnx", "--format", "svg"],
        ["m.onnx", "--node", "nothing*"],
        ["m.onnx", "--finding", "zzzz"],
        ["m.onnx", "--stream", "7"],
        ["m.onnx", "--node", "*", "--stream", "0"],
    ],
)
def test_show_what_is_not_there(arguments: list[str], folder: Path) -> None:
    write(folder / "m.onnx", SPELLED)

    outcome = normlint("show", *arguments)

    assert outcome.code == 2
    assert outcome.err.startswith("normlint: ")


def test_show_what_is_no_model(folder: Path) -> None:
    (folder / "m.onnx").write_bytes(b"")

    outcome = normlint("show", "m.onnx")

    assert outcome.code == 1
    assert outcome.err.startswith("m.onnx: NL903 ")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_in_every_command(name: str, folder: Path) -> None:
    path = write(folder / "m.onnx", SPELLED, dict.fromkeys(range(9), name))

    for arguments in (["norms"], ["show"], ["check"], ["check", "--diff"], ["norms", "--map"]):
        outcome = normlint(*arguments, path)

        assert outcome.code in {0, 1}
        assert "\x1b" not in outcome.out
    assert visible(f"({name}") in normlint("show", path).out


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.name)
def test_explain(rule) -> None:  # noqa: ANN001 - a Rule
    outcome = normlint("explain", rule.name)

    assert outcome.code == 0
    assert outcome.out.startswith(f"{rule.code} {rule.name}\nseverity: ")
    assert ("## Reported, for example" in outcome.out) is bool(rule.bad)


def test_cards_say_what_the_rules_say() -> None:
    from normlint.cards import card_of

    assert load_cards() == tuple(card_of(rule) for rule in load_rules())


def test_rules_in_three_formats() -> None:
    text = normlint("rules").out.splitlines()
    document = json.loads(normlint("rules", "--format", "json").out)
    markdown = normlint("rules", "--format", "markdown").out.splitlines()

    assert len(text) == len(document["rules"]) == len(markdown) - 2
    assert document["schema"] == "normlint/rules/1"
    for entry in document["rules"]:
        assert set(entry) == {"code", "name", "severity", "fix", "preview", "summary", "page"}


def test_the_shell_completes_rules() -> None:
    from normlint.flags import complete_rule

    assert complete_rule("NL90") == [f"NL90{number}" for number in range(1, 8)]
    assert complete_rule("decomposed-layer") == ["decomposed-layer-norm"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("normlint che", ["check"]),
        ("normlint check --sel", ["--select"]),
        ("normlint check --select NL901", ["NL901"]),
        ("normlint check --output-format j", ["json", "jsonl", "junit"]),
        ("normlint check --targets o", ["onnx", "onnxruntime", "openvino"]),
        ("normlint check --fail-on w", ["warning"]),
        ("normlint baseline p", ["prune"]),
    ],
)
def test_the_shell_completes(words: str, expected: list[str]) -> None:
    environment = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    outcome = normlint(_NORMLINT_COMPLETE="complete_bash", **environment)

    assert outcome.out.split() == expected


def test_a_clean_model_has_nothing_to_show(folder: Path) -> None:
    write(folder / "m.onnx", CLEAN)

    assert normlint("norms").out.startswith("m.onnx: 0 normalisations")
    assert normlint("check").out == "No findings in 1 model.\n"
