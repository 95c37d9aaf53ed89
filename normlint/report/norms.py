"""The list of normalisations, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normlint.report.documents import dumps
from normlint.report.look import visible
from normlint.report.summary import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from normlint.report.look import Look

SCHEMA = "normlint/norms/1"
_HEAD = ("depth", "kind", "form", "placement", "axes", "epsilon", "where")


def norms_json(models: Sequence[dict[str, Any]]) -> str:
    """Render the document `normlint/norms/1`."""
    return dumps({"schema": SCHEMA, "models": list(models)}, indent=1)


def norms_text(models: Sequence[dict[str, Any]], look: Look) -> str:
    """Render one table a model, with its streams and what only looks like a normalisation."""
    return "\n".join("".join(f"{line}\n" for line in _model(model, look)) for model in models)


def _model(model: dict[str, Any], look: Look) -> Iterator[str]:
    path = look(visible(model["path"]), "bold")
    if "error" in model:
        error = model["error"]
        yield f"{path}: {look(error['code'], 'bold red')} {visible(error['message'])}"
        return
    yield f"{path}: {plural(len(model['norms']), 'normalisation')}"
    for stream in model["streams"]:
        yield (
            f"  stream of {plural(stream['depth'], 'layer')} "
            f"({plural(stream['blocks'], 'residual addition')}), {stream['placement']}, "
            f"{plural(stream['norms'], 'norm')}"
        )
    if model["norms"]:
        yield from _table([_HEAD, *(_row(norm) for norm in model["norms"])], look)
    for norm in model["constant_norms"]:
        yield f"  of constants alone: {norm_place(norm)}"
    for near in model["near_norms"]:
        yield f"  {near_norm_text(near)}"


def near_norm_text(near: dict[str, Any]) -> str:
    """Say what looks like a normalisation, and why it is none."""
    detail = f": {visible(near['detail'])}" if near.get("detail") else ""
    place = visible(near["nodes"][0]) if near["nodes"] else ""
    return f"looks like {near['like']} and is none ({near['reason']}) at {place}{detail}"


def _row(norm: dict[str, Any]) -> tuple[str, ...]:
    return (
        "–" if norm["depth"] is None else str(norm["depth"]),
        norm["kind"],
        _form(norm),
        norm["placement"] or "–",
        "–" if norm["axes"] is None else ",".join(str(axis) for axis in norm["axes"]),
        f"{norm['epsilon']:.3g}",
        _where(norm),
    )


def _form(norm: dict[str, Any]) -> str:
    form: str = norm["form"]
    if norm["op_type"] and norm["op_type"].rpartition("::")[0]:
        form = visible(norm["op_type"])
    if norm["quantized"] != "none":
        form += f", {norm['quantized']} quantised"
    return form


def norm_place(norm: dict[str, Any]) -> str:
    """Name a normalisation by its kind and its module, or its first node."""
    return f"{norm['kind']} at {_where(norm)}"


def _where(norm: dict[str, Any]) -> str:
    graph = "" if norm["graph"] == "graph" else f"{norm['graph']} › "
    return visible(f"{graph}{norm['module'] or norm['nodes'][0]}")


def _table(rows: Sequence[tuple[str, ...]], look: Look) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        line = "  ".join(["", *cells, row[-1]])
        yield look(line, "dim") if number == 0 else line
