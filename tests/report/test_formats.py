"""Every format: valid, whole, and harmless whatever the names in a model say."""

from __future__ import annotations

import html as html_
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from commandline import HOSTILE
from report import made

from normlint.plugins import load_cards
from normlint.report import FORMATS, render
from normlint.report.look import Look, fit, visible, wants_colour
from normlint.report.view import View
from normlint.results import Report
from normlint.verdict import Gate, judge

if TYPE_CHECKING:
    from collections.abc import Callable

# https://github.com/oasis-tcs/sarif-spec, sarif-2.1/schema/sarif-schema-2.1.0.json, as of e058381.
SARIF_SCHEMA = json.loads((Path(__file__).parent / "sarif-schema-2.1.0.json").read_text())
EMPTY = Report(())


def view(report: Report, **fields: Any) -> View:
    return View(verdict=judge(report, Gate()), rules=load_cards(), **fields)


def rendered(form: str, report: Report, **fields: Any) -> str:
    return render(form, report, view(report, **fields))


@pytest.mark.parametrize("form", ["full", "concise", "grouped", "markdown", "github", "junit"])
def test_golden(form: str, golden: Callable[[str, str], None]) -> None:
    golden(f"report.{form}.txt", rendered(form, made.report()))


def test_golden_diff_and_statistics(golden: Callable[[str, str], None]) -> None:
    golden("report.diff.txt", rendered("full", made.report(), diff=True, statistics=True))


@pytest.mark.parametrize("report", [EMPTY, made.report(), made.hostile("x\x00y")])
def test_json_is_one_document(report: Report) -> None:
    document = json.loads(rendered("json", report))

    assert document["schema"] == "normlint/check/1"
    assert len(document["models"]) == len(report.models)
    assert set(document) == {"schema", "version", "models", "summary"}
    assert document["summary"]["exit_code"] == view(report).verdict.code


def test_json_has_the_fields_of_the_contract() -> None:
    document = json.loads(rendered("json", made.report()))
    model = document["models"][0]
    finding, fixed = model["findings"][0], model["findings"][12]

    assert {"path", "producer", "opset", "nodes", "norms", "findings", "written"} <= set(model)
    assert set(finding) == {
        *("code", "rule", "severity", "message", "graph", "node", "op_type", "output", "nodes"),
        *("module", "source", "evidence", "fix", "not_fixed", "suppressed", "fingerprint"),
    }
    assert set(finding["fix"]) == {"applicability", "title", "applied", "verification"}
    assert fixed["fix"]["verification"] == {
        "method": "region",
        "max_abs": 3e-7,
        "max_rel": 4e-7,
        "tolerance": 1e-5,
        "inputs": 8,
    }
    assert model["findings"][13]["not_fixed"] == {
        "reason": "activation-between",
        "at": "relu2",
        "detail": "Relu stands between",
    }
    assert document["summary"] == {
        "models": 3,
        "findings": {"error": 2, "warning": 12, "info": 1},
        "fixed": 1,
        "suppressed": 1,
        "exit_code": 1,
    }


def test_json_lines() -> None:
    lines = [json.loads(line) for line in rendered("jsonl", made.report()).splitlines()]

    assert [line["type"] for line in lines] == ["finding"] * 17 + ["summary"]
    assert lines[0]["path"] == "models/enc.onnx"


@pytest.mark.parametrize(
    "report", [EMPTY, made.report(), *(made.hostile(name) for name in HOSTILE)]
)
def test_sarif_is_valid_and_what_github_asks_for(report: Report) -> None:
    document = json.loads(rendered("sarif", report))
    jsonschema.validate(document, SARIF_SCHEMA)
    [run] = document["runs"]

    assert run["invocations"][0]["executionSuccessful"]
    for rule in run["tool"]["driver"]["rules"]:
        assert 0 < len(rule["shortDescription"]["text"]) <= 1024
        assert rule["help"]["text"]
    for result in run["results"]:
        location = result["locations"][0]["physicalLocation"]
        assert not location["artifactLocation"]["uri"].startswith(("./", "/"))
        assert location["region"]["startLine"] == 1
        assert result["message"]["text"]
        assert result["partialFingerprints"]["primaryLocationLineHash"]
        if "ruleIndex" in result:
            assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_sarif_leaves_out_what_does_not_count_and_tells_of_unread_files() -> None:
    [run] = json.loads(rendered("sarif", made.report()))["runs"]
    codes = [result["ruleId"] for result in run["results"]]

    assert codes.count("NL201") == 12
    assert "NL101" not in codes
    assert codes[0] in {"NL401", "NL903"}
    [note] = run["invocations"][0]["toolExecutionNotifications"]
    assert "models/empty.onnx was not checked" in note["message"]["text"]


def test_sarif_points_to_the_source_where_it_lies_in_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "my model.py").write_text("")
    sources = ["my model.py:7", "none.py:7", "my model.py:0", "my model.py", "/etc/hostname:1"]
    sources += ["x\0y:1", "n" * 5000 + ":1", "my model.py:" + "9" * 30]
    findings = [
        replace(made.layer_norm(number), source=source) for number, source in enumerate(sources)
    ]
    document = json.loads(rendered("sarif", Report((made.model("m.onnx", *findings),))))
    jsonschema.validate(document, SARIF_SCHEMA)
    related = [result.get("relatedLocations") for result in document["runs"][0]["results"]]

    assert related[1:] == [None] * 7
    [place] = related[0]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "my%20model.py"},
        "region": {"startLine": 7},
    }


def test_sarif_uris_are_encoded() -> None:
    report = Report((made.model("a b/ü%.onnx", made.STAYS),))
    [result] = json.loads(rendered("sarif", report))["runs"][0]["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]

    assert uri.endswith("a%20b/%C3%BC%25.onnx")


def test_github_puts_findings_of_a_rule_together_worst_first() -> None:
    lines = rendered("github", made.report()).splitlines()

    assert [line.partition(" ")[0] for line in lines] == [
        *("::error", "::error", "::warning", "::notice")
    ]
    assert ",line=1,title=normlint NL201::12 times: 9 nodes can" in lines[2]
    assert "/layer.2/norm/ReduceMean and 9 more)" in lines[2]


@pytest.mark.parametrize("report", [EMPTY, made.report()])
def test_gitlab_has_the_required_fields(report: Report) -> None:
    entries = json.loads(rendered("gitlab", report))
    fingerprints = [entry["fingerprint"] for entry in entries]

    assert len(set(fingerprints)) == len(fingerprints)
    for entry in entries:
        assert set(entry) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert entry["severity"] in {"info", "minor", "major", "critical", "blocker"}
        assert entry["location"]["lines"]["begin"] == 1
        assert not entry["location"]["path"].startswith("./")


def test_junit_counts_and_a_clean_model_passes() -> None:
    root = ET.fromstring(rendered("junit", made.report()))  # noqa: S314 - our own document
    clean = root.find("testsuite[@name='models/clean.onnx']")
    whole = root.find("testsuite[@name='models/enc.onnx']")

    assert clean is not None
    assert whole is not None
    assert clean.attrib["tests"] == "1"
    assert clean.attrib["failures"] == "0"
    assert (whole.attrib["failures"], whole.attrib["skipped"]) == ("14", "1")
    assert root.attrib["errors"] == "1"


def test_markdown_keeps_below_the_limit_of_a_step_summary() -> None:
    words = ["".join(chr(97 + int(digit)) for digit in str(number)) for number in range(1000)]
    findings = [replace(made.layer_norm(0), message=f"{word} {'m' * 2000}") for word in words]
    text = rendered("markdown", Report((made.model("m.onnx", *findings),)))

    assert len(text.encode()) < 1024 * 1024
    assert "more kinds of findings did not fit" in text
    assert text.count("```mermaid") <= 40


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href"}]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page(text: str) -> _Page:
    parsed = _Page()
    parsed.feed(text)
    parsed.close()
    return parsed


def test_html_is_one_file_with_pictures() -> None:
    parsed = page(rendered("html", made.report()))

    assert parsed.links == ["#f0-0"]
    assert parsed.tags.count("svg") == 2
    assert parsed.tags.count("article") == 5
    assert "No findings." in parsed.text


@pytest.mark.parametrize("name", ["/layer.0/norm", "a|b", "<i>"])
def test_what_norms_saw_is_in_the_documents(name: str) -> None:
    report = made.measured(name)
    row = next(r for r in rendered("markdown", report).splitlines() if "| 0.1 | 2 | 1 |" in r)

    assert html_.unescape(row.split(" | ")[0]) == f"| LayerNorm {name}"
    assert row.count("|") == 8
    [measured] = json.loads(rendered("json", report))["models"][0]["measured"]
    assert measured["node"] == name
    assert f"LayerNorm {name}" in "".join(page(rendered("html", report)).text)


def test_html_says_where_it_draws_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normlint.report.html._MAX_PICTURES", 1)
    findings = [replace(made.layer_norm(0), message=message) for message in ("one", "two", "three")]

    text = rendered("html", Report((made.model("m.onnx", *findings),)))

    assert text.count("<figure>") == 2
    assert text.count("Not drawn: this page draws 1 findings.") == 2


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("form", FORMATS)
def test_a_hostile_name_is_shown_whole_and_does_no_harm(form: str, name: str) -> None:
    report = made.hostile(name)
    text = rendered(form, report)
    tame = rendered(form, made.hostile("tame"))

    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)
    assert form == "github" or not re.search(r"^\s*::", text, re.MULTILINE)
    assert not re.search(r"##\w*\[", text)
    if form == "html":
        assert page(text).tags == page(tame).tags
        assert visible(name) in "".join(page(text).text)
    elif form == "junit":
        root = ET.fromstring(text)  # noqa: S314 - our own document
        assert visible(name) in root[0][0].attrib["name"]
    elif form in {"json", "jsonl"}:
        findings = json.loads(text.splitlines()[0] if form == "jsonl" else text)
        findings = findings if form == "jsonl" else findings["models"][0]["findings"][0]
        assert findings["node"] == name
    elif form == "sarif":
        [result] = json.loads(text)["runs"][0]["results"]
        assert visible(name) in result["message"]["text"]
        assert result["locations"][0]["logicalLocations"][0]["name"] == name
    elif form == "gitlab":
        assert visible(name) in json.loads(text)[0]["description"]
    elif form == "markdown":
        assert visible(name) in html_.unescape(text)
        assert len(text.splitlines()) == len(tame.splitlines())
    else:
        shown = text.replace("%25", "%") if form == "github" else text
        assert visible(name) in shown
        assert len(text.splitlines()) == len(tame.splitlines())


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("form", FORMATS)
def test_a_hostile_name_of_a_file_does_no_harm_either(form: str, name: str) -> None:
    path = f"{name.replace('/', '|')}\udcff.onnx"
    text = rendered(form, Report((made.model(path, made.layer_norm(0)), made.model("m.onnx"))))
    tame = rendered(form, Report((made.model("t.onnx", made.layer_norm(0)), made.model("m.onnx"))))

    text.encode()
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)
    assert form == "github" or not re.search(r"^\s*::", text, re.MULTILINE)
    assert not re.search(r"##\w*\[", text)
    assert len(text.splitlines()) == len(tame.splitlines())
    if form == "html":
        assert page(text).tags == page(tame).tags
    if form == "junit":
        suite = ET.fromstring(text)[0]  # noqa: S314 - our own document
        assert suite.attrib["name"] == visible(path)
    if form in {"json", "sarif", "gitlab"}:
        json.loads(text)


def test_findings_that_differ_in_numbers_are_told_once_with_what_differs() -> None:
    findings = [
        replace(made.layer_norm(layer), message=f"off by {layer}.{layer}e-3 of t{layer}")
        for layer in range(3)
    ]
    report = Report((made.model("m.onnx", *findings),))

    text = rendered("full", report)

    assert text.count("m.onnx: NL201") == 1
    assert "3 × off by 0.0e-3 of t0\n" in text
    assert "   where off by 2.2e-3 of t2\n" in text
    assert "off by 2.2e-3 of t2" in rendered("html", report)
    assert "off by 2.2e-3 of t2" in rendered("markdown", report)


def test_colour_only_where_it_is_wanted() -> None:
    for form in ("full", "concise", "grouped"):
        plain = rendered(form, made.report())
        painted = rendered(form, made.report(), look=Look(colour=True))

        assert "\x1b" not in plain
        assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain


@pytest.mark.parametrize(
    ("choice", "environment", "terminal", "expected"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"CLICOLOR_FORCE": "0"}, False, False),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_who_decides_on_colour(
    choice: str, environment: dict[str, str], *, terminal: bool, expected: bool
) -> None:
    assert wants_colour(choice, environment, terminal=terminal) is expected


def test_simple_signs_where_the_encoding_has_no_others() -> None:
    text = rendered("full", made.report())

    fitted = fit(text, "cp1252")

    assert fitted.encode("cp1252").decode("cp1252") == fitted
    assert fit(text, "utf-8") == text
    assert "graph > /layer.0" in fit(text, "ascii")
