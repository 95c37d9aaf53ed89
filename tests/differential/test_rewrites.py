"""Random graphs compute the same after the safe rules, and then nothing is left to do."""

import os
from collections import Counter

import pytest
from differential.judging import judge
from differential.random_graphs import example

BLOCK = 20
BLOCKS = int(os.environ.get("NORMLINT_FUZZ", "300")) // BLOCK
"""NORMLINT_FUZZ=2000 runs so many graphs."""


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.filterwarnings("ignore")
def test_random_graphs_stay_equal_and_come_to_rest(block: int) -> None:
    fixed: Counter[str] = Counter()
    run = 0
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        verdict = judge(example(seed))
        assert not verdict.problems, f"seed {seed}"
        fixed += verdict.fixed
        run += verdict.runs
    assert run >= BLOCK // 2, "most of the graphs should run in an engine"
    assert fixed.total() >= BLOCK // 4, "the graphs should give the rules something to do"
