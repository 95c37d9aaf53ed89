"""How many models an hour a core checks: one process, several, and a cluster of this machine.

    python benchmarks/folders.py FOLDER...

checks all `*.onnx` of the folders and prints the table; `run.py` does so with copies of the sample
models. The start of the cluster is not counted, that of everything else is.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cases import NORMLINT, ROOT
from process import Once, once
from tools import installed

COPIES = 40
RUNS = 2
REGISTRY, CORES = 100_000, 64
ONE = "--jobs 1"


@dataclass(frozen=True)
class Folder:
    """What a folder took, by how it was checked."""

    models: int
    bytes: int
    workers: int
    """Processes, where there are several."""
    rows: dict[str, list[Once]]

    @property
    def gain(self) -> float:
        """How many times faster several processes are than one."""
        return self.wall(ONE) / self.wall(f"--jobs {self.workers}")

    def wall(self, row: str) -> float:
        """Return the median of the wall times, in seconds."""
        return statistics.median(run.wall for run in self.rows[row])

    @property
    def text(self) -> str:
        """The table."""
        how = (
            f"{self.bytes / self.models / 1024:.0f} KiB a model; medians of {RUNS} runs. The last "
            f"column is for {REGISTRY:,} such models on {CORES} cores.\n"
        )
        lines = [
            f"\n## A folder of {self.models:,} models\n",
            how,
            f"| normlint check | wall | CPU | models an hour a core | {REGISTRY:,} models |",
            "|---|---|---|---|---|",
        ]
        for name, runs in self.rows.items():
            cores = 1 if name == ONE else self.workers
            rate = 3600 * self.models / self.wall(name) / cores
            cpu = statistics.median(run.cpu for run in runs)
            lines.append(
                f"| {name} | {self.wall(name):.2f} s | {cpu:.2f} s | {rate:,.0f} | "
                f"{60 * REGISTRY / rate / CORES:.0f} minutes |"
            )
        said = f"\n{self.workers} processes are {self.gain:.2f} times as fast as one.\n"
        return "\n".join([*lines, said])


def measured(models: list[Path], workers: int) -> Folder:
    """Check models with one process, with several, and by a cluster, in turn."""
    names = [str(model) for model in models]
    ways = {f"--jobs {jobs}": [*NORMLINT, "--jobs", str(jobs), *names] for jobs in (1, workers)}
    rows: dict[str, list[Once]] = {way: [] for way in ways}
    for _ in range(RUNS):
        for way, command in ways.items():
            rows[way].append(once(command))
    if installed("distributed"):
        rows[f"--scheduler, {workers} workers"] = _on_cluster(names, workers)
    return Folder(len(models), sum(model.stat().st_size for model in models), workers, rows)


def _on_cluster(names: list[str], workers: int) -> list[Once]:
    from distributed import LocalCluster  # noqa: PLC0415 - the rest goes without it

    with LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as cluster:
        command = [*NORMLINT, "--scheduler", str(cluster.scheduler_address), *names]
        return [once(command) for _ in range(RUNS)]


def of_samples(place: Path) -> Folder:
    """Check copies of the sample models."""
    models = []
    for copy in range(COPIES):
        folder = place / f"copy_{copy}"
        folder.mkdir()
        samples = sorted((ROOT / "sample_models").glob("*.onnx"))
        models += [Path(shutil.copy(sample, folder)) for sample in samples]
    return measured(models, os.cpu_count() or 1)


def main() -> None:
    """Print the table for the folders of the command line."""
    found = [path for folder in sys.argv[1:] for path in sorted(Path(folder).glob("*.onnx"))]
    with tempfile.TemporaryDirectory() as place:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = place
        once([*NORMLINT, str(found[0])])
        print(measured(found, os.cpu_count() or 1).text)


if __name__ == "__main__":
    main()
