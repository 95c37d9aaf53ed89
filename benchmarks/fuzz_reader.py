"""Give normlint files that are wrong on purpose, and count what comes of them.

    python benchmarks/fuzz_reader.py --inputs 100000 --job read
    python benchmarks/fuzz_reader.py --inputs 5000 --job repair --save failures

Each input is read, checked or repaired in a process that may take 1 GB more than it takes at the
start and 5 s of processor time. Anything but a finding or a clean run is a failure.
"""

from __future__ import annotations

import argparse
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from hostile import running
from hostile.mutations import bytes_of, model_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MEMORY = 1 << 30
SECONDS = 5.0
WHOLE = 600.0
"""Seconds of wall time after which a process is given up."""


class TooLongError(Exception):
    """An input took more than its time."""


def data_of(job: str, seed: int) -> bytes:
    """Give an input: any bytes for the reader, mostly what parses for the rest."""
    return bytes_of(seed) if job == "read" else model_of(seed).SerializeToString()


def bounded() -> None:
    """Let this process take so much memory more than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def late(*_: Any) -> None:
        raise TooLongError

    signal.signal(signal.SIGPROF, late)


def outcome(run: Callable[[bytes], Any], data: bytes) -> str:
    """Run one input; give what is wrong with it, or nothing."""
    try:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        report = run(data)
        said = [f.message for f in getattr(report, "findings", ()) if "contradicts" in f.message]
        if said:
            print("?")
    except Exception as fault:  # noqa: BLE001 - that is what is looked for
        place = fault.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = ""
        if place is not None:
            where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
        return f"{type(fault).__name__} at {where}: {str(fault)[:200]!r}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def work(job: str, first: int, count: int) -> None:
    """Run inputs one after the other; say which one is being run, and what was wrong with it."""
    warnings.simplefilter("ignore")
    run = {"read": running.read, "check": running.look, "repair": running.repair}[job]
    run(data_of(job, first))  # everything is imported before memory is counted
    bounded()
    for seed in range(first, first + count):
        data = data_of(job, seed)
        print(f"> {seed}", flush=job != "read")
        problem = outcome(run, data)
        if problem:
            print(f"! {seed} {problem}", flush=True)


def chunks(job: str, first: int, count: int, refused: Counter[str]) -> Iterator[tuple[int, str]]:
    """Run all inputs, in a new process wherever one dies; give those that failed.

    `refused` takes up how many models were refused in the middle of the analysis.
    """
    end = first + count
    while first < end:
        size = min(end - first, 20_000 if job == "read" else 500)
        command = [sys.executable, __file__, "--job", job, "--worker", str(first), str(size)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=WHOLE * 10
            )
            output, code, words = done.stdout, done.returncode, done.stderr[-300:]
        except subprocess.TimeoutExpired as late:
            output, code, words = (late.stdout or b"").decode(), -1, "hangs"
        last = first - 1
        for line in output.splitlines():
            mark, _, rest = line.partition(" ")
            if mark == ">":
                last = int(rest)
            elif mark == "?":
                refused[job] += 1
            elif mark == "!":
                seed, _, problem = rest.partition(" ")
                yield int(seed), problem
        if code:
            yield max(last, first), f"the process ended with {code}: {words}"
        first = max(last, first) + 1


def main() -> int:
    """Run so many inputs and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--job", choices=("read", "check", "repair"), default="read")
    parser.add_argument("--save", type=Path, metavar="DIR", help="keep the inputs that fail")
    parser.add_argument("--worker", type=int, nargs=2, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.worker:
        work(wanted.job, *wanted.worker)
        return 0
    start, failures, refused = time.monotonic(), Counter[str](), Counter[str]()
    for seed, problem in chunks(wanted.job, wanted.first, wanted.inputs, refused):
        kind = problem.partition(": ")[0]
        failures[kind] += 1
        if failures[kind] <= 3:
            print(f"input {seed}: {problem}", flush=True)
        if wanted.save:
            wanted.save.mkdir(parents=True, exist_ok=True)
            (wanted.save / f"{wanted.job}_{seed}.onnx").write_bytes(data_of(wanted.job, seed))
    for kind, count in failures.most_common():
        print(f"{count} times {kind}")
    seconds = time.monotonic() - start
    print(
        f"{wanted.inputs} inputs for {wanted.job}: {failures.total()} failures in {seconds:.0f} s; "
        f"{refused.total()} models were refused because they contradict themselves"
    )
    return int(failures.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
