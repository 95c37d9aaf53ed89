"""`normlint measure`, and the statistics that it keeps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from commandline import SPELLED, normlint
from onnx import parser

from normlint.measure import Samples
from normlint.measure.statistics import Histogram
from normlint.usage import UsageError

if TYPE_CHECKING:
    from pathlib import Path

OPERATOR = """
<ir_version: 8, opset_import: ["" : 17]>
operator (float[2,4] x) => (float[2,4] y) <float[4] scale = {1,2,3,4}> {
    y = LayerNormalization(x, scale)
}
"""


class Input:
    """What a session says of an input."""

    def __init__(self, name: str, shape: list[int | str], kind: str = "tensor(float)") -> None:
        self.name, self.shape, self.type = name, shape, kind


def measured(folder: Path, text: str, x: np.ndarray) -> dict:
    path, data = folder / "model.onnx", folder / "data.npz"
    onnx.save(parser.parse_model(text), path)
    np.savez(data, x=x)
    ran = normlint("measure", str(path), "--data", str(data), "--output-format", "json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["schema"] == "normlint/measure/1"
    return document["models"][0]


@pytest.mark.parametrize("text", [SPELLED, OPERATOR], ids=["spelled out", "operator"])
def test_statistics_are_those_of_the_data(tmp_path: Path, text: str) -> None:
    shape = (5, 2, 3, 8) if text is SPELLED else (5, 2, 4)
    x = np.random.default_rng(0).normal(3, 2, shape).astype(np.float32)

    model = measured(tmp_path, text, x)

    (norm,) = model["norms"]
    deviation, mean = x.std(-1), x.mean(-1)
    assert model["samples"] == 5
    assert norm["rows"] == mean.size
    assert norm["range"] == pytest.approx([x.min(), x.max()], rel=1e-5)
    assert norm["deviation"]["max"] == pytest.approx(deviation.max(), rel=1e-5)
    assert norm["deviation"]["min"] == pytest.approx(deviation.min(), rel=1e-5)
    assert norm["mean_over_deviation"]["max"] == pytest.approx(
        np.abs(mean / deviation).max(), rel=1e-5
    )
    best = (mean / deviation**2).sum() / (1 / deviation**2).sum()
    assert norm["best_constant"] == pytest.approx(best, rel=1e-4)
    assert sum(norm["histogram"]) == mean.size


def test_outlier_channels_are_named(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((5, 2, 3, 8)).astype(np.float32)
    x[..., 6] *= 50

    (norm,) = measured(tmp_path, SPELLED, x)["norms"]

    assert norm["outlier_channels"] == [6]


def test_the_table_draws_each_norm(tmp_path: Path) -> None:
    path, data = tmp_path / "model.onnx", tmp_path / "data.npz"
    onnx.save(parser.parse_model(SPELLED), path)
    np.savez(data, x=np.ones((2, 3, 8), np.float32) * np.arange(8, dtype=np.float32))

    ran = normlint("measure", str(path), "--data", str(data))

    assert ran.code == 0
    assert "1 norm, 1 sample" in ran.out
    assert "LayerNorm" in ran.out
    assert "▁▁▂▃▅▆▇█" in ran.out, "its channels grow from left to right"
    assert "0 … 7" in ran.out


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", b"text"])
def test_data_that_is_none(tmp_path: Path, content: bytes) -> None:
    path, data = tmp_path / "model.onnx", tmp_path / "data.npz"
    onnx.save(parser.parse_model(SPELLED), path)
    data.write_bytes(content)

    ran = normlint("measure", str(path), "--data", str(data))

    assert ran.code == 2
    assert "data.npz" in ran.err


def test_a_model_that_is_none(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.zeros(3))
    (tmp_path / "model.onnx").write_bytes(b"")

    for name in ("model.onnx", "missing.onnx"):
        ran = normlint("measure", str(tmp_path / name), "--data", str(tmp_path / "data.npz"))
        assert ran.code == 2
        assert name in ran.err


def test_samples_along_an_axis_in_front() -> None:
    samples = Samples({"x": np.zeros((3, 2, 4))})

    feeds = list(samples.feeds([Input("x", ["batch", 4])]))

    assert [feed["x"].shape for feed in feeds] == [(2, 4)] * 3
    assert feeds[0]["x"].dtype == np.float32


def test_samples_along_a_batch_that_is_fixed() -> None:
    samples = Samples({"ids": np.zeros((3, 7), np.int64), "mask": np.ones((1, 7), np.int64)})
    inputs = [Input("ids", [1, 7], "tensor(int64)"), Input("mask", [1, 7], "tensor(int64)")]

    feeds = list(samples.feeds(inputs))

    assert [feed["ids"].shape for feed in feeds] == [(1, 7)] * 3
    assert all(feed["mask"].sum() == 7 for feed in feeds)


def test_one_sample_of_an_open_batch() -> None:
    samples = Samples({"x": np.zeros((3, 4))})

    assert len(list(samples.feeds([Input("x", ["batch", 4])]))) == 1


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"y": np.zeros((1, 4))}, "no array for the input 'x', but y"),
        ({}, "no array for the input 'x', but nothing"),
        ({"x": np.zeros((3, 1, 4)), "y": np.zeros((2, 1, 4))}, r"arrays of \[2, 3\] samples"),
        ({"x": np.zeros((1, 5)), "y": np.zeros((1, 4))}, r"'x' .* \[1, 5\], .* wants \[1, 4\]"),
        ({"x": np.zeros((1, 4)), "y": np.zeros(4)}, r"'y' .* shape \[4\], .* wants \[1, 4\]"),
        ({"x": np.zeros((0, 1, 4)), "y": np.zeros((1, 4))}, "'x' in data.npz is empty"),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict[str, np.ndarray], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        list(Samples(arrays, "data.npz").feeds([Input("x", [1, 4]), Input("y", [1, 4])]))


def test_a_histogram_keeps_what_is_beyond_its_ends() -> None:
    histogram = Histogram()
    histogram.add(np.array([0.0, 1e-30, 1.0, 1e30, np.nan, np.inf]))

    assert histogram.counts.sum() == 4
    assert (histogram.least, histogram.most) == (0.0, 1e30)
    assert histogram.quantile(0.5) < 1
    assert histogram.quantile(1.0) == 1e30
    assert Histogram().quantile(0.5) == 0.0


def test_the_page_draws_what_the_norms_saw(tmp_path: Path) -> None:
    path, data = tmp_path / "model.onnx", tmp_path / "data.npz"
    onnx.save(parser.parse_model(OPERATOR), path)
    np.savez(data, x=np.random.default_rng(0).standard_normal((3, 2, 4)).astype(np.float32))
    given = ["--data", str(data), "--output-format", "html"]

    page = normlint("check", str(path), *given).out

    assert "What the norms saw on the data" in page
    assert page.count('<svg role="img" aria-label="Rows by') == 2
    assert page.count('<svg role="img" aria-label="Largest magnitude along the channels') == 1
    assert "What the norms saw" not in normlint("check", str(path), *given[2:]).out


FUNCTION = """
<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
called (float[2,4] x) => (float[2,4] y) <float[4] scale = {1,2,3,4}> {
    h = local.norm(x, scale)
    z = local.norm(h, scale)
    y = Identity(z)
}
<domain: "local", opset_import: ["" : 17]>
norm (a, s) => (b) {
    double = Add(a, a)
    b = LayerNormalization(double, s)
}
"""
BRANCH = """
<ir_version: 8, opset_import: ["" : 17]>
branch (float[2,4] x, bool take) => (float[2,4] y) <float[4] scale = {1,2,3,4}> {
    y = If (take) <
        then_branch = one () => (float[2,4] p) {
            twice = Add(x, x)
            p = LayerNormalization(twice, scale)
        },
        else_branch = other () => (float[2,4] q) { q = Identity(x) }
    >
}
"""
LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
loop (float[2,4] x) => (float[2,4] y)
<float[4] scale = {1,2,3,4}, int64 trips = {3}, bool on = {1}> {
    y = Loop (trips, on, x) <
        body = step (int64 i, bool c, float[2,4] carried) => (bool go, float[2,4] next) {
            go = Identity(c)
            twice = Add(carried, carried)
            normed = LayerNormalization(twice, scale)
            next = Add(normed, carried)
        }
    >
}
"""


HALF = """
<ir_version: 8, opset_import: ["" : 17]>
half (float16[2,4] x) => (float16[2,4] y) <float[4] g = {1,2,3,4}> {
    scale = Cast<to = 10>(g)
    big = Mul(x, x)
    y = LayerNormalization(big, scale)
}
"""


def test_norms_in_functions_are_measured_call_by_call(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(3, 2, (5, 2, 4)).astype(np.float32)

    first, second = measured(tmp_path, FUNCTION, x)["norms"]

    assert first["graph"] == second["graph"] == "fn:local::norm"
    assert first["range"] == pytest.approx([2 * x.min(), 2 * x.max()], rel=1e-5)
    assert second["rows"] == 10
    assert second["range"] != first["range"]


@pytest.mark.parametrize("take", [True, False])
def test_norms_in_branches_are_measured_where_they_run(tmp_path: Path, *, take: bool) -> None:
    path, data = tmp_path / "model.onnx", tmp_path / "data.npz"
    onnx.save(parser.parse_model(BRANCH), path)
    x = np.random.default_rng(0).normal(3, 2, (5, 2, 4)).astype(np.float32)
    np.savez(data, x=x, take=np.full(5, take))

    ran = normlint("measure", str(path), "--data", str(data), "--output-format", "json")

    norms = json.loads(ran.out)["models"][0]["norms"]
    assert [norm["rows"] for norm in norms] == ([10] if take else [])
    for norm in norms:
        assert norm["range"] == pytest.approx([2 * x.min(), 2 * x.max()], rel=1e-5)


def test_norms_in_loops_are_measured_in_each_iteration(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(3, 2, (5, 2, 4)).astype(np.float32)

    (norm,) = measured(tmp_path, LOOP, x)["norms"]

    assert norm["rows"] == 5 * 2 * 3
    assert norm["graph"].startswith("graph/")
    assert norm["range"][1] > 2 * x.max()


def test_what_overflowed_is_written_as_none(tmp_path: Path) -> None:
    x = np.full((3, 2, 4), 300, np.float16)
    path, data = tmp_path / "model.onnx", tmp_path / "data.npz"
    onnx.save(parser.parse_model(HALF), path)
    np.savez(data, x=x)

    ran = normlint("measure", str(path), "--data", str(data), "--output-format", "json")

    (norm,) = json.loads(ran.out)["models"][0]["norms"]
    assert norm["range"] == [None, None]
    table = normlint("measure", str(path), "--data", str(data)).out
    assert "– … –" in table
    assert "████" in table, "all channels"
