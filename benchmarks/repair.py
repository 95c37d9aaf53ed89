"""Fold one BatchNorm of a model with 10 GB of weights, and count what is read and written.

python benchmarks/repair.py                   beside the model, in a sparse side file, in place
python benchmarks/repair.py --embedded 3      3 GB inside the model, more than protobuf takes
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cases import GIGABYTES, NORMLINT, Case
from process import Once, once
from tables import operators

PAST_PROTOBUF = 3
"""Gigabytes that no parser takes whole."""


@dataclass(frozen=True)
class Repair:
    """What a repair in place took, and what it left."""

    gigabytes: int
    where: str
    took: Once
    written: int
    """Bytes of all files that are new or changed."""
    norms: int
    """BatchNormalization nodes that are left."""

    @property
    def share(self) -> float:
        """Bytes written over the bytes of the model."""
        return self.written / (self.gigabytes << 30)


def measured(place: Path, kind: str = "external", gigabytes: int = GIGABYTES) -> Repair:
    """Repair the model in place, in a folder of its own."""
    path = Case("", kind, gigabytes).file(place)
    before = {file: _state(file) for file in path.parent.iterdir()}
    took = once([*NORMLINT, "--apply", str(path)])
    files = [file for file in path.parent.iterdir() if before.get(file) != _state(file)]
    written = sum(file.stat().st_size for file in files)
    where = "of external data" if kind == "external" else "embedded"
    return Repair(gigabytes, where, took, written, operators(path).get("BatchNormalization", 0))


def _state(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_ino, status.st_mtime_ns


def text(repair: Repair) -> str:
    """Write the table."""
    return (
        f"\n## Repair of {repair.gigabytes} GB {repair.where}, in place\n\n"
        "One run; the weights are a hole in a file.\n\n"
        "| wall | CPU | peak memory | bytes written | of the model | BatchNormalization left |\n"
        "|---|---|---|---|---|---|\n"
        f"| {repair.took.wall:.2f} s | {repair.took.cpu:.2f} s | {repair.took.memory:.0f} MiB | "
        f"{repair.written:,} | {repair.share:.1e} | {repair.norms} |\n"
    )


def main() -> None:
    """Measure one model and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--embedded", type=int, metavar="GIGABYTES")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        if given.embedded:
            print(text(measured(Path(place), "embedded", given.embedded)))
        else:
            print(text(measured(Path(place))))


if __name__ == "__main__":
    main()
