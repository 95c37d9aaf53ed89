"""Random graphs compute the same after the rules about streams, and then nothing is left to do."""

import os

import pytest
from centring.random_streams import example
from centring.repairing import outcome
from centring.soup_nodes import soup

from normlint.context import Settings

BLOCK = 20
BLOCKS = int(os.environ.get("NORMLINT_FUZZ", "300")) // BLOCK
"""NORMLINT_FUZZ=2000 runs so many graphs."""
EXACT = 1e-7
"""Everything is computed in double; epsilon is rounded to float in an attribute."""
ROUNDED = 1e-6
"""Large means, and chains of norms, leave more."""


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_streams_stay_equal_and_come_to_rest(block: int) -> None:
    made = 0
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        found = outcome(example(seed), settings(seed))
        assert found.error < EXACT, f"seed {seed}"
        assert found.again == 0, f"seed {seed}"
        made += found.made
    assert made >= BLOCK // 2, "the graphs are not about streams any more"


@pytest.mark.parametrize("fused", [False, True], ids=["standard", "fused"])
@pytest.mark.parametrize("block", range(BLOCKS // 5))
def test_random_soups_stay_equal_and_come_to_rest(block: int, *, fused: bool) -> None:
    made = 0
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        found = outcome(soup(seed, fused=fused), settings(seed))
        assert found.error < ROUNDED, f"seed {seed}"
        assert found.again == 0, f"seed {seed}"
        made += found.made
    assert made >= BLOCK // 2, "the graphs have no streams any more"


def settings(seed: int) -> Settings:
    """Vary what may be written: always the operator, or only what pays."""
    policy = "profitable" if seed % 4 == 3 else "always"
    return Settings(target_opset=None if seed % 5 == 4 else 23, rms_norm_policy=policy)
