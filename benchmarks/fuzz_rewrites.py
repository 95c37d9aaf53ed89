"""Repair random graphs with the safe rules and hold them to what they computed before.

    python benchmarks/fuzz_rewrites.py --graphs 10000 --save failures

prints how many graphs there were, how many rewrites each rule made, and what went wrong; each
failure is shrunk and saved as a small model.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from differential.judging import Verdict, judge
from differential.random_graphs import example
from differential.shrinking import shrunk

if TYPE_CHECKING:
    from differential.random_graphs import Example


@dataclass
class Count:
    """What came of the graphs so far."""

    graphs: int = 0
    run: int = 0
    repaired: int = 0
    failures: int = 0
    rewrites: Counter[str] = field(default_factory=Counter)

    def add(self, verdict: Verdict) -> None:
        """Count one graph."""
        self.graphs += 1
        self.run += verdict.runs
        self.repaired += bool(verdict.fixed)
        self.failures += bool(verdict.problems)
        self.rewrites.update(verdict.fixed)

    def __str__(self) -> str:
        rewrites = ", ".join(f"{code} {count}" for code, count in sorted(self.rewrites.items()))
        return (
            f"{self.graphs} graphs, of which an engine runs {self.run} and {self.repaired} were "
            f"repaired: {self.failures} failures\n{self.rewrites.total()} rewrites: {rewrites}"
        )


def judged(one: Example) -> Verdict:
    """Judge a graph; an exception is a problem."""
    try:
        return judge(one)
    except Exception as fault:  # noqa: BLE001 - that is what is looked for
        return Verdict(problems=[f"{type(fault).__name__}: {fault}"])


def kind(problem: str) -> str:
    """Give what a problem is about, without the names and numbers in it."""
    return "moved" if " moved on " in problem and "refused" not in problem else problem[:24]


def report(one: Example, verdict: Verdict, folder: Path | None) -> None:
    """Print a failure; shrink and save it where that is wanted."""
    print(f"seed {one.seed}: {'; '.join(problem[:300] for problem in verdict.problems[:3])}")
    if folder is None:
        return
    sought = kind(verdict.problems[0])
    small = shrunk(one, lambda e: any(kind(problem) == sought for problem in judged(e).problems))
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(small.model, folder / f"seed_{one.seed}.onnx")


def main() -> int:
    """Run the graphs of so many seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--save", type=Path, metavar="DIR", help="shrink failures and keep them")
    wanted = parser.parse_args()
    warnings.simplefilter("ignore")
    count, start = Count(), time.monotonic()
    for seed in range(wanted.first, wanted.first + wanted.graphs):
        one = example(seed)
        verdict = judged(one)
        count.add(verdict)
        if verdict.problems:
            report(one, verdict, wanted.save)
    print(f"{count}\n{time.monotonic() - start:.0f} s")
    return int(count.failures > 0)


if __name__ == "__main__":
    sys.exit(main())
