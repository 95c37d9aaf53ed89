"""Where a node comes from: its address in the file, its module and its line of source."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from normlint.graph.types import Graph, Node

_SCOPES = "pkg.torch.onnx.name_scopes"
_TRACE = "pkg.torch.onnx.stack_trace"
_OF_A_LIBRARY = re.compile(r"(site|dist)-packages|(^|[\\/])torch[\\/](nn|_|onnx|utils|fx)")
"""Files that the user did not write: installed packages, and those of the framework."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def metadata(node: Node) -> dict[str, str]:
    """Give the metadata_props of a node, or of the node that it replaces."""
    proto = node.proto
    if proto is None:
        return {}
    return {entry.key: entry.value for entry in proto.metadata_props}


def module(node: Node) -> str | None:
    """Give the path of the module that made the node, as the exporter wrote it down.

    The newer PyTorch exporter writes it into the metadata, the older one into the node's name
    (`/encoder/layer.3/norm/ReduceMean`).
    """
    scopes = metadata(node).get(_SCOPES)
    if scopes:
        try:
            names = [name for name in ast.literal_eval(scopes) if name]
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            names = []
        if len(names) > 1:
            return str(names[-2])
    name = node.name or (node.proto.name if node.proto is not None else "")
    parts = name.split("/")
    if len(parts) < 3 or parts[0]:
        return None
    return ".".join(parts[1:-1])


def source(node: Node) -> str | None:
    """Give `file:line` of the innermost frame of the user's own code, where it was kept."""
    frames = _FRAME.findall(metadata(node).get(_TRACE, ""))
    if not frames:
        return None
    own = [frame for frame in frames if not _OF_A_LIBRARY.search(frame[0])] or frames
    path, line = own[-1]
    return f"{path}:{line}"


def graph_path(node: Node) -> str:
    """Give the graph that a node stands in: `graph`, a subgraph's path, or `fn:domain::name`."""
    origin = node.origin or (node.like.origin if node.like is not None else None)
    if origin is not None and origin.functions:
        return f"fn:{origin.functions[-1]}"
    return node.graph.path


class Addresses:
    """Stable names of nodes: the name where it is there and unique, else `#index:Op@output`."""

    def __init__(self, graph: Graph) -> None:
        self._names = {
            scope: Counter(node.name for node in scope.nodes) for scope in graph.scopes()
        }

    def __call__(self, node: Node) -> str:
        """Give the address of a node within its graph."""
        names = self._names.get(node.graph)
        if node.name and (names is None or names[node.name] <= 1):
            return node.name
        index = node.origin.index if node.origin is not None else node.order[0]
        output = node.outputs[0].name if node.outputs else ""
        return f"#{index}:{node.op}@{output}"
