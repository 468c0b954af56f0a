"""Cost of replaying sessions out of a pool on the disk.

A pool of ``--sessions`` sessions of ``--ticks`` ticks, each with ``--numbers`` float64
observations and one action and reward, is written piece by piece (seconds and MB are told), and
then opened by a process of its own, which has not seen it. There, in milliseconds (median of
``--repeat``, and the first one, which finds nothing of it in memory: the kernel is asked to drop
the pages):

* ``choose``: draw ``--batch`` of all sessions without replacement;
* ``read``: copy these sessions to memory (``SessionPool.select``), and ``read again``, when their
  pages are in memory;
* ``begin``: a ``SessionPoolEnvironment`` of this batch begins, and reads the first observations;
* ``tick``: it makes a step (mean over an episode; the second time, the same sessions).

At the end, the largest resident memory of that process, and how much of it is pages of the files,
which the kernel takes back when it needs them.

    python tests/benchmarks/session_pool.py [--sessions 10000] [--ticks 200] [--numbers 60] [--batch 64]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np

from palaestrai_mosaik.environment.batch import BatchStepper
from palaestrai_mosaik.environment.replay import PoolWriter, SessionPool, SessionPoolEnvironment

PIECE = 250


def write(directory: Path, sessions: int, ticks: int, numbers: int) -> None:
    """Write random sessions, a piece at a time."""
    rng = np.random.default_rng(0)
    piece = SessionPool(observations=numbers)
    with PoolWriter(directory, piece.signature) as writer:
        for first in range(0, sessions, PIECE):
            count = min(PIECE, sessions - first)
            shape = (count, ticks)
            piece.load_sessions(rng.random((*shape, numbers)), rng.integers(0, 5, shape), rng.random(shape))
            writer.append(piece.sessions)


def drop_pages(directory: Path) -> None:
    """Ask the kernel to forget what it has read of the files."""
    for path in directory.iterdir():
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(action: Callable[[], object]) -> float:
    """Return how many milliseconds ``action`` takes."""
    started = perf_counter()
    action()
    return 1e3 * (perf_counter() - started)


def measure(directory: Path, batch: int, repeat: int) -> dict[str, float]:
    """Return the times, first and median, and the memory of this process (MB)."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng = np.random.default_rng(1)
    pool = SessionPool.open(directory)
    chosen = pool.sample(batch, rng)
    environment = SessionPoolEnvironment(source={"pool": str(directory)}, rng_seed=None, batch=batch)
    environment.rng = rng
    environment.setup()
    stepper = BatchStepper(environment)
    found: dict[str, float] = {}

    def draw() -> None:
        nonlocal chosen
        chosen = pool.sample(batch, rng)

    for name, action in (("choose", draw), ("read", lambda: pool.select(chosen)), ("begin", stepper.reset)):
        times = []
        for _ in range(repeat):
            draw()
            times.append(timed(action))
        found[f"{name}, first"], found[name] = times[0], statistics.median(times)
    found["read again"] = statistics.median(timed(lambda: pool.select(chosen)) for _ in range(repeat))
    ticks = int(pool.sessions.lengths.min())
    idle = np.zeros((batch, 1))
    environment.rng = np.random.default_rng(2)
    stepper.reset()
    found["tick, first"] = timed(lambda: [stepper.step(idle) for _ in range(ticks)]) / ticks
    environment.rng = np.random.default_rng(2)
    stepper.reset()
    found["tick"] = timed(lambda: [stepper.step(idle) for _ in range(ticks)]) / ticks
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
    )
    found["peak RSS (MB)"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found["peak RSS before (MB)"] = before / 1024
    found["of it pages of files (MB)"] = int(status["RssFile"].split()[0]) / 1024
    return found


def main() -> None:
    """Write the pool, measure in another process, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (
        ("sessions", 10_000),
        ("ticks", 200),
        ("numbers", 60),
        ("batch", 64),
        ("repeat", 20),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(Path(given.measure), given.batch, given.repeat)))
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "pool"
        took = timed(lambda: write(place, given.sessions, given.ticks, given.numbers))
        size = sum(path.stat().st_size for path in place.iterdir())
        print(f"{given.sessions} sessions, {size / 1e6:.0f} MB, written in {took / 1e3:.1f} s")
        drop_pages(place)
        command = [sys.executable, __file__, "--measure", str(place)]
        command += ["--batch", str(given.batch), "--repeat", str(given.repeat)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        for name, value in json.loads(done.stdout).items():
            print(f"{name:>28} {value:10.3f}")


if __name__ == "__main__":
    main()
