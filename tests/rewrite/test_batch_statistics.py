"""BatchNorms with batch statistics, in old forms, or with parameters that cannot be right."""

from __future__ import annotations

import numpy as np
import pytest
from folding import NORM, assert_same, model_of, ops, reason_of, repaired

BATCH_NORM = "BatchNormalization"


def training(shape: str, opset: int = 17, *, read: str = "", norm: str = NORM) -> str:
    attrs = "<training_mode = 1>" if opset >= 14 else ""
    outputs = "y, a, c" if opset >= 14 else "y, a, c, d, e"
    more = f", float[2] {read}" if read else ""
    return f"""
        <ir_version: 8, opset_import: ["" : {opset}]>
        g (float{shape} x) => (float{shape} y{more}) <{norm}> {{
            {outputs} = BatchNormalization{attrs}(x, s, b, m, v)
        }}"""


@pytest.mark.parametrize("opset", [7, 9, 13, 14, 15, 17])
@pytest.mark.parametrize("shape", ["[1,2,5]", "[1,2,5,4]", "[1,2,3,2,2]"])
def test_a_batch_of_one_is_an_instance_norm(opset: int, shape: str) -> None:
    before = model_of(training(shape, opset))

    report, after = repaired(before, rules=("NL106",), verify="region")

    assert [finding.code for finding in report.findings] == ["NL106"]
    assert ops(after) == ["InstanceNormalization"]
    assert_same(before, after)


def test_new_statistics_that_are_read_stay() -> None:
    report, after = repaired(model_of(training("[1,2,5,4]", read="a")), rules=("NL106",))

    assert [reason_of(finding) for finding in report.findings] == ["batch-statistics"]
    assert ops(after) == [BATCH_NORM]


@pytest.mark.parametrize("opset", [9, 17])
def test_running_statistics_are_used_where_the_user_says_so(opset: int) -> None:
    before = model_of(training("[4,2,5,4]", opset))

    report, kept = repaired(before, rules=("NL106",))
    _, after = repaired(before, rules=("NL106",), unsafe_fixes=True)

    assert [finding.fix.applicability for finding in report.findings if finding.fix] == ["unsafe"]
    assert kept == before
    node = next(node for node in after.graph.node)
    assert len(node.output) == 1
    assert "training_mode" not in {attribute.name for attribute in node.attribute}


def test_untrained_statistics_are_never_used() -> None:
    norm = NORM.replace("m = {0.1,-0.3}", "m = {0,0}").replace("v = {0.5,2}", "v = {1,1}")
    before = model_of(training("[4,2,5,4]", norm=norm))

    report, after = repaired(before, rules=("NL106",), unsafe_fixes=True)

    assert [reason_of(finding) for finding in report.findings] == ["batch-statistics"]
    assert after == before


def test_a_norm_in_training_is_never_folded() -> None:
    text = training("[4,2,5,4]").replace("y, a, c =", "k = Conv(x, w)\n y, a, c =")
    text = text.replace("(x, s,", "(k, s,")
    before = model_of(text.replace(NORM, f"float[2,2,1,1] w = {{1,2,3,4}}, {NORM}"))

    report, after = repaired(before)

    assert not report.findings
    assert after == before


def test_outputs_before_opset_14_mean_training_be_they_read_or_not() -> None:
    text = f"""
        <ir_version: 8, opset_import: ["" : 9]>
        g (float[4,1,5,4] x) => (float[4,2,5,4] y) <float[2,1,1,1] w = {{1,2}}, {NORM}> {{
            k = Conv(x, w)
            y, a, c, d, e = BatchNormalization(k, s, b, m, v)
        }}"""
    before = model_of(text)

    report, after = repaired(before, rules=("NL101", "NL106", "NL110", "NL111"))

    assert sorted(finding.code for finding in report.findings) == ["NL106", "NL110"]
    assert_same(before, after)


def test_types_of_their_own_are_brought_into_line() -> None:
    text = training("[1,2,5,4]").replace("float[1", "float16[1")
    before = model_of(text)

    _, after = repaired(before, rules=("NL106",))

    assert ops(after) == ["InstanceNormalization"]
    assert_same(before, after, tolerance=1e-2)


LEGACY = """
    <ir_version: 8, opset_import: ["" : {opset}]>
    g (float[1,2,{h},{w}] x) => (float[1,2,{h},{w}] y) <{norm}> {{
        {outputs} = BatchNormalization{attrs}(x, s, b, m, v)
    }}"""


def legacy(opset: int, attrs: str, outputs: str = "y") -> str:
    return LEGACY.format(opset=opset, attrs=attrs, outputs=outputs, norm=NORM, h=3, w=4)


@pytest.mark.parametrize(
    ("opset", "attrs", "outputs"),
    [
        (8, "<spatial = 0>", "y"),
        (9, "<spatial = 1>", "y"),
        (9, "<is_test = 1>", "y"),
        (13, "<consumed_inputs = [0,0,0,1,1]>", "y"),
        (17, "", "y, a, c"),
    ],
)
def test_what_no_runtime_takes_is_dropped(opset: int, attrs: str, outputs: str) -> None:
    text = legacy(opset, attrs, outputs)

    report, after = repaired(model_of(text), rules=("NL110",), verify="region")

    assert [finding.fix.applied for finding in report.findings if finding.fix] == [True]
    plain = legacy(opset, "", "y")
    assert_same(model_of(plain), after)


def test_a_value_for_each_feature_becomes_mul_and_add() -> None:
    shape = "[2,1,2]"
    norm = ", ".join(
        f"float{shape} {name} = {{{values}}}"
        for name, values in (
            ("s", "1.5,-2,1,3"),
            ("b", "0.5,1,0,2"),
            ("m", "0.1,-0.3,1,2"),
            ("v", "0.5,2,1,3"),
        )
    )
    text = LEGACY.format(opset=8, attrs="<spatial = 0>", outputs="y", norm=norm, h=1, w=2)
    before = model_of(text)

    _, after = repaired(before, rules=("NL101", "NL110", "NL111"), verify="region")

    assert ops(after) == ["Mul", "Add"]
    assert_same(before, after)


def chain(variances: list[str]) -> str:
    nodes, norms = [], []
    for k, variance in enumerate(variances):
        norms.append(
            f"float[3] s{k} = {{1,1,1}}, float[3] b{k} = {{0,1,0}}, float[3] m{k} = {{0,0,1}}, "
            f"float[3] v{k} = {{{variance}}}"
        )
        source = f"r{k - 1}" if k else "x"
        nodes.append(f"n{k} = BatchNormalization({source}, s{k}, b{k}, m{k}, v{k})")
        nodes.append(f"r{k} = Relu(n{k})")
    last = f"r{len(variances) - 1}"
    return f"""
        g (float[1,3,2,2] x) => (float[1,3,2,2] {last}) <{", ".join(norms)}> {{
            {chr(10).join(nodes)}
        }}"""


def test_the_bad_channels_are_named() -> None:
    report, _ = repaired(model_of(chain(["1,-0.5,2", "1,1,1"])), rules=("NL107",))

    (finding,) = report.findings
    assert finding.evidence["channels"] == [1]
    assert not finding.evidence["misaligned"]


def test_channel_0_everywhere_points_to_the_import() -> None:
    report, _ = repaired(model_of(chain(["-1,1,2"] * 3)), rules=("NL107",))

    assert len(report.findings) == 3
    assert all("misaligned import" in finding.message for finding in report.findings)


def test_a_variance_within_epsilon_is_sound() -> None:
    report, _ = repaired(model_of(chain(["0,-0.000001,2"])), rules=("NL107",))

    assert not report.findings


def test_numbers_that_are_none_are_found() -> None:
    model = model_of(chain(["1,1,2"]))
    scale = next(t for t in model.graph.initializer if t.name == "s0")
    scale.ClearField("float_data")
    scale.raw_data = np.array([1, np.nan, np.inf], np.float32).tobytes()

    report, _ = repaired(model, rules=("NL107",))

    assert [finding.evidence["channels"] for finding in report.findings] == [[1, 2]]
