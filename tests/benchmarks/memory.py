"""Cost of remembering: the memory beside a deque of objects and a pandas frame.

A row has 10 readings, 5 set-points, a reward and an objective. For memories that hold so
many rows already, the columns are microseconds per call (median of ``--repeat`` rounds):

* ``append``: add a row and set its objective;
* ``tail(n)``: the readings, rewards and objective of the last ``n`` rows as arrays;
* ``sample(256)``: the readings of as many random rows, and what was seen next.

``memory (4)`` has rows of four muscles in turn. ``deque`` keeps one object per row, and makes
arrays of the last rows when asked. ``frame`` adds a row with ``loc`` and takes the last ones
with ``tail``; appending copies it all, so only few rows are added, and none beyond 1e5.

At the end: resident memory before and after ``--steps`` appends to a memory with a size
limit, and what its rows alone take.

    python tests/benchmarks/memory.py [--sizes 1000 10000 100000 1000000] [--repeat 5]
"""

from __future__ import annotations

import argparse
import resource
import statistics
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
import psutil

from palaestrai_mosaik.agent import Memory

READINGS, SETPOINTS = 10, 5
#: beyond it, a frame takes seconds per row
LARGEST_FRAME = 100_000
ROW = (np.arange(float(READINGS)), np.arange(float(SETPOINTS)), np.ones(1))


@dataclass(slots=True)
class Row:
    """A row as an object."""

    readings: np.ndarray
    setpoints: np.ndarray
    rewards: np.ndarray
    objective: float


class InMemory:
    """The package's memory, with rows of some muscles in turn."""

    def __init__(self, size: int, muscles: int = 1):
        self.memory = Memory(size, rng=np.random.default_rng(0))
        self.names = [f"agent.{i}" for i in range(muscles)]
        self.count = 0
        for _ in range(size):
            self.append()

    def append(self) -> None:
        self.count += 1
        self.memory.append(*ROW, muscle=self.names[self.count % len(self.names)])
        self.memory.close(1.0)

    def tail(self, n: int) -> Any:
        shard = self.memory.tail(n)
        return shard.sensor_readings, shard.rewards, shard.objective

    def sample(self, n: int) -> Any:
        shard = self.memory.sample(n)
        return shard.sensor_readings, shard.next_observations


class InDeque:
    """A deque of objects."""

    def __init__(self, size: int):
        self.rows: deque[Row] = deque((Row(*(a.copy() for a in ROW), 1.0) for _ in range(size)), maxlen=size)

    def append(self) -> None:
        self.rows.append(Row(*(array.copy() for array in ROW), 1.0))

    def tail(self, n: int) -> Any:
        last = list(islice(reversed(self.rows), n))[::-1]
        return (
            np.array([row.readings for row in last]),
            np.array([row.rewards for row in last]),
            np.array([row.objective for row in last]),
        )


class InFrame:
    """A pandas frame with a column for each number."""

    def __init__(self, size: int):
        self.names = [*(f"r{i}" for i in range(READINGS)), *(f"s{i}" for i in range(SETPOINTS)), "w", "o"]
        self.values = np.concatenate([*ROW, [1.0]])
        self.frame = pd.DataFrame(np.tile(self.values, (size, 1)), columns=self.names)

    def append(self) -> None:
        self.frame.loc[len(self.frame)] = self.values

    def tail(self, n: int) -> Any:
        last = self.frame.tail(n)
        return last[self.names[:READINGS]].to_numpy(), last[["w"]].to_numpy(), last["o"].to_numpy()


def microseconds(call: Callable[[], Any], times: int, repeat: int) -> float:
    """Return the median CPU time of a call, of ``repeat`` rounds of ``times`` calls."""
    rounds = []
    for _ in range(repeat):
        started = process_time()
        for _ in range(times):
            call()
        rounds.append((process_time() - started) / times * 1e6)
    return statistics.median(rounds)


def kinds(size: int) -> Iterator[tuple[str, Any, int]]:
    """Yield each kind of memory with ``size`` rows, and how many rows to append in a round."""
    yield "memory", InMemory(size), 20_000
    yield "memory (4)", InMemory(size, 4), 20_000
    yield "deque", InDeque(size), 20_000
    if size <= LARGEST_FRAME:
        yield "frame", InFrame(size), 10


def resident() -> float:
    """Return the resident memory of this process in MB."""
    return float(psutil.Process().memory_info().rss / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4_000_000)
    parser.add_argument("--limit", type=int, default=1_000_000)
    arguments = parser.parse_args()

    before = resident()
    memory = Memory(arguments.limit)
    for _ in range(arguments.steps):
        memory.append(*ROW)
        memory.close(1.0)
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3  # (kB on Linux)
    rows = arguments.limit * (8 * (READINGS + SETPOINTS + 2) + 2 + 8) / 1e6
    print(
        f"{arguments.steps} steps with a limit of {arguments.limit} rows: {before:.0f} MB before, "
        f"{resident():.0f} MB after, at most {highest:.0f} MB; the rows alone take {rows:.0f} MB\n"
    )
    del memory

    print(f"{'rows':>9} {'':<10} {'append':>9} {'tail(100)':>10} {'tail(1000)':>11} {'sample(256)':>12}")
    for size in arguments.sizes:
        for name, kind, times in kinds(size):
            figures = [
                microseconds(kind.append, times, arguments.repeat),
                microseconds(lambda: kind.tail(100), 200, arguments.repeat),  # noqa: B023 (called at once)
                microseconds(lambda: kind.tail(1000), 200, arguments.repeat),  # noqa: B023
            ]
            sampled = ""
            if isinstance(kind, InMemory):
                sampled = f"{microseconds(lambda: kind.sample(256), 200, arguments.repeat):12.1f}"  # noqa: B023
            print(
                f"{size:9d} {name:<10} {figures[0]:9.2f} {figures[1]:10.2f} {figures[2]:11.2f} {sampled:>12}"
            )


if __name__ == "__main__":
    main()
