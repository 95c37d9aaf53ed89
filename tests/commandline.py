"""The command line, run within the process, and small models to run it on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx import parser
from typer.testing import CliRunner

from normlint.cli import app, pages  # noqa: F401 - the commands besides check

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto

SPELLED = """
<ir_version: 8, opset_import: ["" : 17], producer_name: "tests">
spelled (float[2,3,8] x) => (float[2,3,8] y)
<float[8] scale = {1.5,0.5,1,2,-1,1,0.25,1}, float[8] bias = {0,1,2,3,4,5,6,7},
 float two = {2}, float epsilon = {1e-5}> {
    mean = ReduceMean<axes = [-1]>(x)
    centred = Sub(x, mean)
    square = Pow(centred, two)
    variance = ReduceMean<axes = [-1]>(square)
    shifted = Add(variance, epsilon)
    root = Sqrt(shifted)
    quotient = Div(centred, root)
    scaled = Mul(quotient, scale)
    y = Add(scaled, bias)
}
"""
CLEAN = """
<ir_version: 8, opset_import: ["" : 17]>
clean (float[2,8] x) => (float[2,8] y) { y = Relu(x) }
"""
HOSTILE = (
    "/a[/b]/Add",
    "[red]x[/red]",
    "quote\"s and 's",
    "%0A::error::x",
    "<script>alert(1)</script>",
    "right\u202eot\u2066left",
    "line\nbreak\r\ttab\x1b[31m",
    "back`tick|pipe*star_under",
    "&amp; ]]> --> ```",
    "::error::x",
    "##[stop-commands]x ##vso[task.complete result=Failed;]x",
    "n" * 10_000,
)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def normlint(*arguments: object, stdin: bytes | None = None, **environment: str) -> Outcome:
    result = CliRunner(env=environment).invoke(app, [str(a) for a in arguments], input=stdin)
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        raise error
    return Outcome(result.exit_code, result.stdout, result.stderr)


def write(path: Path, text: str, names: dict[int, str] | None = None) -> Path:
    """Write a model given as ONNX text, its nodes renamed by position."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model(text, names).SerializeToString())
    return path


def model(text: str, names: dict[int, str] | None = None) -> ModelProto:
    proto = parser.parse_model(text)
    for position, node in enumerate(proto.graph.node):
        node.name = (names or {}).get(position, f"/norm/{node.op_type}_{position}")
    return proto
