"""The whole model is run before and after its repairs."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from normlint.model import ModelFile, open_model
from normlint.verify.whole import compare_models

TEXT = """
<ir_version: 10, opset_import: ["" : 17]>
g (float[N,4] x) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}> { a = Mul(x, w)  y = Neg(a) }
"""


@pytest.fixture
def model() -> ModelFile:
    return open_model(parser.parse_model(TEXT).SerializeToString(), name="m")


def changed(factor: float) -> onnx.ModelProto:
    proto = parser.parse_model(TEXT)
    values = np.float32([1, 2, 3, 4]) * np.float32(factor)
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(values, "w"))
    return proto


def test_an_equal_model_passes(model: ModelFile) -> None:
    assert compare_models(model, changed(1.0), (), None) is None


def test_moved_outputs_are_named(model: ModelFile) -> None:
    problem = compare_models(model, changed(1.1), (), None)

    assert problem is not None
    assert problem.startswith("y by ")


def test_the_users_own_inputs(model: ModelFile, tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.zeros((2, 4), np.float32))

    assert compare_models(model, changed(1.1), (), tmp_path / "inputs.npz") is None


def test_inputs_that_do_not_fit_prove_nothing(model: ModelFile, tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.zeros((2, 5), np.float32))

    problem = compare_models(model, changed(1.0), (), tmp_path / "inputs.npz")

    assert problem is not None
    assert "--inputs" in problem


def test_a_model_that_no_runtime_loads_is_not_proved(model: ModelFile) -> None:
    odd = changed(1.0)
    odd.graph.node[0].domain = "com.example"

    problem = compare_models(model, odd, (), None)

    assert problem is not None
    assert "cannot be run" in problem
