"""Time and memory against nodes and against weights, as SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from cases import CHECK, LOAD, NODES, REPAIR
from matplotlib import pyplot as plt
from matplotlib.ticker import NullFormatter

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from tables import Section

mpl.use("svg")
# Text stays text, and the file is the same for the same figures.
mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "normlint", "font.size": 10}
OURS = {CHECK: "#d62728", REPAIR: "#ff7f0e"}
OTHERS = ("#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")


def draw(sections: list[Section], folder: Path) -> list[str]:
    """Write two pictures into a folder, and return the Markdown that shows them."""
    stacks = {s.case.size: s for s in sections if s.case.kind == "nodes"}
    weights = {s.case.size: s for s in sections if s.case.kind == "weights"}
    _draw(stacks, "nodes", folder / "benchmarks-nodes.svg", logarithmic=True)
    _draw({0: stacks[NODES], **weights}, "MB of weights", folder / "benchmarks-weights.svg")
    return [
        "![Time and memory by the number of nodes](benchmarks-nodes.svg)\n",
        "![Time and memory by the weights](benchmarks-weights.svg)\n",
    ]


def _draw(
    sections: dict[int, Section], unit: str, path: Path, *, logarithmic: bool = False
) -> None:
    figure, (time, memory) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    names = list(dict.fromkeys(row.name for s in sections.values() for row in s.rows))
    others = [name for name in names if name not in {*OURS, LOAD}]
    colours = OURS | {LOAD: "black"} | dict(zip(others, OTHERS, strict=False))
    for name in names:
        found = {size: s.result(name) for size, s in sorted(sections.items())}
        points = [(size, r.wall, r.memory) for size, r in found.items() if r is not None]
        sizes, walls, peaks = zip(*points, strict=True) if points else ((), (), ())
        style = {"color": colours[name], "marker": "o", "markersize": 4}
        style |= {"linewidth": 2.4 if name in OURS else 1.2, "zorder": 3 if name in OURS else 2}
        time.plot(sizes, walls, label=name, **style)
        memory.plot(sizes, peaks, **style)
    _label(time, unit, "wall time of the process, s", logarithmic=logarithmic)
    _label(memory, unit, "peak memory, MiB", logarithmic=logarithmic)
    figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _label(axes: Axes, unit: str, what: str, *, logarithmic: bool) -> None:
    if logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(unit)
    axes.set_ylabel(what)
    axes.grid(visible=True, which="both", linewidth=0.3)
