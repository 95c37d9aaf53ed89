"""The ignores that a model carries: in its own metadata, and in that of its nodes."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from normlint.outline import address, graphs
from normlint.suppress import METADATA_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onnx import GraphProto, ModelProto


def carried_ignores(model: ModelProto) -> str:
    """Give them as one JSON list; the text of the model's own where no node has any.

    A node's entry has the same form as the model's and speaks of that node alone. Few tools keep
    the metadata of nodes, so the model's is the better place.
    """
    own = _entry(model.metadata_props)
    of_nodes = [table for _, graph in graphs(model) for table in _of_nodes(graph)]
    return json.dumps([*_tables(own), *of_nodes]) if of_nodes else own


def _of_nodes(graph: GraphProto) -> Iterator[dict[str, Any]]:
    carrying = [(n, node) for n, node in enumerate(graph.node) if _entry(node.metadata_props)]
    counts = Counter(node.name for node in graph.node) if carrying else Counter()
    for number, node in carrying:
        place = {"node": address(node, number, counts)}
        yield from (table | place for table in _tables(_entry(node.metadata_props)))


def _entry(entries: Iterable[Any]) -> str:
    return next((str(entry.value) for entry in entries if entry.key == METADATA_KEY), "")


def _tables(text: str) -> list[dict[str, Any]]:
    try:
        tables = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [t for t in tables if isinstance(t, dict)] if isinstance(tables, list) else []
