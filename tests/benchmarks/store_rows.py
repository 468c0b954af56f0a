"""What recording the rows of many bodies costs: microseconds per tick, with all parts written.

    python tests/benchmarks/store_rows.py [--rows 400000]

Prints for each batch size what one call of ``append_rows`` takes at most times (the median), and
what it takes on average, where writing the parts is included (CPU time).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from palaestrai_mosaik.store import BodyRecord, ChannelRecord
from palaestrai_mosaik.store.streams import AgentStream
from palaestrai_mosaik.types.arrays import AgentRows

SHAPES = ((1, 10, 5), (8, 10, 5), (64, 3, 1), (64, 10, 5), (512, 3, 1))


def channels(count: int) -> list[ChannelRecord]:
    return [ChannelRecord(f"e.{{body}}.{i}", "", 1) for i in range(count)]


def measure(rows: int, batch: int, readings: int, setpoints: int) -> tuple[float, float]:
    """Return the median of a call, and the mean with all parts, in microseconds.

    ``rows`` of bodies are recorded, and at least one tick.
    """
    rng = np.random.default_rng(0)
    record = BodyRecord(
        count=batch, sensors=channels(readings), actuators=channels(setpoints), rewards=["e.{body}.r"]
    )
    never, bodies = np.zeros(batch, dtype=bool), np.arange(batch, dtype=np.int32)
    ticks = [
        AgentRows(
            *(0, 0, np.full(batch, tick), np.full(batch, tick), bodies, np.zeros(batch, dtype=np.int32)),
            *(rng.normal(size=(batch, width)) for width in (readings, setpoints, 1)),
            *(rng.normal(size=batch), never, never, 1e-6),
        )
        for tick in range(50)
    ]
    calls = max(1, min(20_000, rows // batch))
    taken = np.empty(calls)
    with tempfile.TemporaryDirectory() as folder:
        stream = AgentStream(Path(folder) / "agent-a", Path(folder) / "wall-a", record, {}, lambda: None)
        before = process_time()
        for call in range(calls):
            start = perf_counter()
            stream.append_rows(ticks[call % 50])
            taken[call] = perf_counter() - start
        stream.flush()
        whole = process_time() - before
    return float(np.median(taken)) * 1e6, whole / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=400_000, help="of all bodies together")
    arguments = parser.parse_args()
    print("bodies  readings  set-points  append_rows (us)  with parts (us)")
    for shape in SHAPES:
        call, whole = measure(arguments.rows, *shape)
        print(f"{shape[0]:6}  {shape[1]:8}  {shape[2]:10}  {call:16.1f}  {whole:15.1f}")


if __name__ == "__main__":
    main()
