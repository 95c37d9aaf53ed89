"""The graph that rules see and rewrites edit; the only door to onnx_graphsurgeon."""

from normlint.graph.exporting import export_graph
from normlint.graph.importing import build_graph, collector_held, plain_value
from normlint.graph.ordering import topological
from normlint.graph.provenance import Addresses, graph_path, metadata, module, source
from normlint.graph.types import (
    FLOATS,
    Constant,
    Graph,
    Node,
    Origin,
    Shape,
    Tensor,
    Values,
    Variable,
    hidden,
)

__all__ = [
    "FLOATS",
    "Addresses",
    "Constant",
    "Graph",
    "Node",
    "Origin",
    "Shape",
    "Tensor",
    "Values",
    "Variable",
    "build_graph",
    "collector_held",
    "export_graph",
    "graph_path",
    "hidden",
    "metadata",
    "module",
    "plain_value",
    "source",
    "topological",
]
