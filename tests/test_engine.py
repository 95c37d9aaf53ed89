"""From a file to a report: what is repaired is proved, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from graphs import parse

from normlint.context import Context, Settings
from normlint.engine import Options, check_model
from normlint.plugins import load_rules
from normlint.rule import Applicability, Computed, Diagnostic, NewNode, Replace, Rewrite, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.results import ModelReport

SAMPLES = Path(__file__).parent.parent / "sample_models"
MODELS = sorted(SAMPLES.glob("*.onnx"))


def repaired(
    source: Path, target: Path, *, rules: tuple[Rule, ...] | None = None, **settings: Any
) -> ModelReport:
    return check_model(
        source,
        name=source.name,
        rules=load_rules() if rules is None else rules,
        settings=Settings(**settings),
        options=Options(apply=True, output=target),
    )


def run(path: Path, seed: int) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(seed)
    feed = {}
    for value in session.get_inputs():
        shape = [extent if isinstance(extent, int) else 2 for extent in value.shape]
        if "int64" in value.type:
            feed[value.name] = generator.integers(0, 4, shape)
        else:
            feed[value.name] = generator.standard_normal(shape).astype(np.float32)
    return [np.asarray(result) for result in session.run(None, feed)]


def is_valid(model: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True


@pytest.mark.parametrize("settings", [{}, {"target_opset": 23}], ids=["own opset", "opset 23"])
@pytest.mark.parametrize("source", MODELS, ids=lambda path: path.stem)
def test_a_repaired_model_computes_the_same_and_has_lost_nothing(
    source: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    target, again = tmp_path / "once.onnx", tmp_path / "twice.onnx"

    report = repaired(source, target, **settings)

    before, after = onnx.load(source), onnx.load(target)
    assert not [finding for finding in report.findings if finding.code == "NL990"]
    assert is_valid(after) or not is_valid(before)
    for seed in range(2):
        for old, new in zip(run(source, seed), run(target, seed), strict=True):
            scale = np.abs(old).max(initial=1e-30)
            assert np.isfinite(new).all() or not np.isfinite(old).all()
            assert np.nanmax(np.abs(old - new) / scale, initial=0) < 1e-4
    assert_nothing_lost(before, after)
    second = repaired(target, again, **settings)
    assert second.written is None
    assert again.read_bytes() == target.read_bytes()


def assert_nothing_lost(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Compare what no rewrite has to do with, field by field."""
    for model in (before, after):
        assert model.IsInitialized()
    for name in ("ir_version", "producer_name", "producer_version", "domain", "model_version"):
        assert getattr(before, name) == getattr(after, name)
    assert before.doc_string == after.doc_string
    assert list(before.metadata_props) == list(after.metadata_props)
    assert list(before.training_info) == list(after.training_info)
    assert list(before.graph.input) == list(after.graph.input)
    assert list(before.graph.output) == list(after.graph.output)
    assert before.graph.name == after.graph.name
    kept = {tensor.name: tensor for tensor in before.graph.initializer}
    for tensor in after.graph.initializer:
        if tensor.name in kept:
            assert tensor.SerializeToString() == kept[tensor.name].SerializeToString()
    old = {tuple(node.output): node for node in before.graph.node}
    for node in after.graph.node:
        twin = old.get(tuple(node.output))
        if twin is None or list(twin.input) != list(node.input) or twin.op_type != node.op_type:
            continue
        assert node.doc_string == twin.doc_string
        assert list(node.metadata_props) == list(twin.metadata_props)
        assert node.name == twin.name


class Double(Rule):
    """Claims that a Mul by a constant may be doubled."""

    code = "XX001"
    applicability = Applicability.SAFE

    def check(self, context: Context) -> Iterator[Diagnostic]:
        for node in context.graph.nodes:
            if node.op == "Mul" and node.inputs[1].is_constant:
                weight = node.inputs[1]
                double = Computed(
                    weight.shape, weight.dtype, lambda weight=weight: weight.values * 2.0
                )
                recipe = NewNode("Mul", (node.inputs[0], double), like=node)
                yield Diagnostic(
                    "a product",
                    node,
                    rewrite=Rewrite(
                        "double", Applicability.SAFE, (Replace((node.y,), recipe),), (node,)
                    ),
                )


PRODUCT = """
g (float[N,4] x) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}> { a = Mul(x, w)  y = Neg(a) }
"""


def written(tmp_path: Path, text: str = PRODUCT) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(parse(text).SerializeToString())
    return path


def test_a_rewrite_that_moves_the_numbers_is_not_made(tmp_path: Path) -> None:
    path = written(tmp_path)
    before = path.read_bytes()

    report = repaired(path, path, rules=(Double(),))

    assert path.read_bytes() == before
    assert report.written is None
    assert [finding.code for finding in report.findings] == ["NL990", "XX001"]
    assert report.findings[1].not_fixed is not None
    assert report.findings[1].not_fixed.reason == "verification"


def test_without_proof_the_user_gets_what_was_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path)

    report = check_model(
        path,
        name="m",
        rules=(Once(),),
        settings=Settings(),
        options=Options(apply=True, verify="none"),
    )

    assert report.written is not None
    assert report.findings[0].fix is not None
    assert report.findings[0].fix.verification is None


class Once(Double):
    """The same, and at rest after one rewrite."""

    code = "XX002"

    def check(self, context: Context) -> Iterator[Diagnostic]:
        if context.constants.values(context.graph.nodes[0].inputs[1])[0] == 1:
            yield from super().check(context)


def test_the_whole_model_speaks_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)
    before = path.read_bytes()
    monkeypatch.setattr("normlint.repair.verify_rewrite", lambda *_: None)

    report = check_model(
        path,
        name="m",
        rules=(Once(),),
        settings=Settings(),
        options=Options(apply=True, verify="model"),
    )

    assert path.read_bytes() == before
    assert [finding.code for finding in report.findings] == ["XX002", "NL990"]
    assert report.findings[0].fix is not None
    assert not report.findings[0].fix.applied


def test_an_unchanged_model_is_copied_to_where_it_was_wanted(tmp_path: Path) -> None:
    path, target = written(tmp_path), tmp_path / "other" / "copy.onnx"
    target.parent.mkdir()

    report = repaired(path, target, rules=())

    assert report.written is None
    assert target.read_bytes() == path.read_bytes()


def test_the_opset_rises_only_as_far_as_it_is_needed_and_allowed(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 13]>
    g (float[N,T,4] x) => (float[N,T,4] y, float[N,T,1] n)
    <float two = {2}, float eps = {1e-5}> {
        m = ReduceMean<axes = [-1]>(x)
        d = Sub(x, m)
        s = Pow(d, two)
        v = ReduceMean<axes = [-1]>(s)
        e = Add(v, eps)
        r = Sqrt(e)
        y = Div(d, r)
        n = ReduceL1<axes = [-1]>(x)
    }
    """
    path, target = written(tmp_path, text), tmp_path / "target.onnx"

    kept = repaired(path, target)
    assert onnx.load(target).opset_import[0].version == 13
    assert "opset" in {f.not_fixed.reason for f in kept.findings if f.not_fixed is not None}

    repaired(path, target, target_opset=20)
    model = onnx.load(target)
    assert model.opset_import[0].version == 17
    assert {node.op_type for node in model.graph.node} == {"LayerNormalization", "ReduceL1"}


def test_a_model_that_cannot_be_written_is_reported_and_kept(tmp_path: Path) -> None:
    path = written(tmp_path)
    before = path.read_bytes()
    (tmp_path / "file").write_text("no folder")
    target = tmp_path / "file" / "m.onnx"

    report = check_model(
        path,
        name="m",
        rules=(Once(),),
        settings=Settings(),
        options=Options(apply=True, verify="none", output=target),
    )

    assert path.read_bytes() == before
    assert not target.exists()
    assert [finding.code for finding in report.findings] == ["XX002", "NL990"]
    assert report.findings[0].fix is not None
    assert not report.findings[0].fix.applied


def test_what_goes_with_another_repair_is_told_as_repaired(tmp_path: Path) -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 17]>
    keras (float[2,3,4] x) => (float[2,3,4] y)
    <int64[4] rows = {1, 6, 4, 1}, int64[3] back = {2, 3, 4},
     float[6] ones = {1, 1, 1, 1, 1, 1}, float[6] zeros = {0, 0, 0, 0, 0, 0},
     float[4] scale = {1, 2, 3, 4}, float[4] bias = {4, 3, 2, 1}> {
        r = Reshape(x, rows)
        n, m, v = BatchNormalization<training_mode = 1>(r, ones, zeros, zeros, ones)
        b = Reshape(n, back)
        s = Mul(b, scale)
        y = Add(s, bias)
    }
    """
    path, target = written(tmp_path, text), tmp_path / "target.onnx"

    report = repaired(path, target)

    assert {finding.code for finding in report.findings if not finding.is_open} >= {
        "NL106",
        "NL201",
    }
    assert not [finding for finding in report.findings if finding.is_open]
    assert {n.op_type for n in onnx.load(target).graph.node} == {"LayerNormalization"}
