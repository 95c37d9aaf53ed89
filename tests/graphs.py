"""Small graphs from ONNX text, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import numpy_helper, parser

from normlint.context import Context, Settings
from normlint.graph import build_graph

if TYPE_CHECKING:
    from normlint.graph import Graph
    from normlint.normalization import Normalization


def parse(text: str, opset: int = 17, ir_version: int = 10) -> onnx.ModelProto:
    """Parse a graph, or a whole model that has its own header."""
    text = text.strip()
    if not text.startswith("<"):
        imports = f'["" : {opset}, "com.microsoft" : 1]'
        text = f"<ir_version: {ir_version}, opset_import: {imports}>\n{text}"
    return parser.parse_model(text)


def graph_of(text: str, opset: int = 17, ir_version: int = 10) -> Graph:
    return build_graph(parse(text, opset, ir_version), numpy_helper.to_array)


def context_of(text: str, opset: int = 17, **settings: object) -> Context:
    return Context(graph_of(text, opset), Settings(**settings))  # type: ignore[arg-type]


def norms_of(text: str, opset: int = 17) -> tuple[Normalization, ...]:
    return context_of(text, opset).norms


def norm_of(text: str, opset: int = 17) -> Normalization:
    """Give the one normalisation of a graph."""
    (norm,) = norms_of(text, opset)
    return norm
