"""Models that are made wrong afterwards, and the draws that say how."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from differential.random_graphs import example
from model.building import rich_model, small_model

SAMPLES = Path(__file__).parents[2] / "sample_models"


class Random(random.Random):
    """Draws with a few words of its own."""

    def one(self, chance: float) -> bool:
        return self.random() < chance


@cache
def originals() -> tuple[bytes, ...]:
    """Give real models and small ones of every kind, serialised."""
    files = [path.read_bytes() for path in sorted(SAMPLES.rglob("*.onnx"))]
    made = [small_model(), rich_model(), *(example(seed).model for seed in range(60))]
    return (*files, *(model.SerializeToString() for model in made))
