"""What rendered frames cost: steps per second with and without them, and how large they are.

    python tests/benchmarks/frames.py [--steps 2000] [--repeat 5] [--environment pole]

Executes CartPole, in turns: without a request, with frames that no episode is chosen for, with every tenth state rendered,
and with every state rendered. Prints steps per second of CPU time (medians), their ratio to the run without a request, the bytes
of a frame in the store, and the size of the run as one file. "pole" is this package's CartPole, which draws itself with Pillow;
"gymnasium" is Gymnasium's (extra ``rl`` and pygame), with frames of 600 x 400 pixels.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import palaestrai_mosaik as pm
from palaestrai_mosaik.web.theatre import run_page

ENVIRONMENTS = {
    "pole": {"name": "cartpole", "params": {"max_steps": None}},
    "gymnasium": {"name": "gymnasium", "params": {"id": "CartPole-v1"}},
}
#: what is requested, by the name that is printed
REQUESTS: dict[str, Any] = {
    "no request": None,
    "no episode chosen": {"episodes": [10**9]},
    "every tenth state": {"step_every": 10},
    "every state": True,
}


def document(environment: str, steps: int, frames: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"environment": {"uid": "world", **ENVIRONMENTS[environment]}, "frames": frames}
    # (episodes of random pushes have about 22 steps)
    return {
        "uid": "frames",
        "seed": 1,
        "schedule": [
            {
                "watch": {
                    "environments": [entry],
                    "agents": [{"name": "pusher", "muscle": "random"}],
                    "phase_config": {"mode": "test", "episodes": max(1, steps // 22)},
                }
            }
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=2000, help="of a run, about")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--environment", choices=list(ENVIRONMENTS), default="pole")
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in REQUESTS}
    sizes: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(arguments.repeat + 1):
            for name, frames in REQUESTS.items():
                given = document(arguments.environment, arguments.steps, frames)
                start = process_time()
                with pm.run(given, store=Path(folder, "results"), quiet=True) as run:
                    seconds = process_time() - start
                    # (the first turn imports and compiles)
                    if turn:
                        rates[name].append(int(run.summary["steps"]) / seconds)
                    sizes[name] = _sizes(run)
    before = statistics.median(rates["no request"])
    for name, found in rates.items():
        rate = statistics.median(found)
        print(f"{name:18} {rate:9,.0f} steps/s  ratio {rate / before:.3f}  {sizes[name]}")


def _sizes(run: pm.RecordedRun) -> str:
    counted = run.store.recorded_frames(run.instance)
    if counted.empty:
        return ""
    number, taken = int(counted["frames"].sum()), int(counted["bytes"].sum())
    page = run_page(run.store, run.instance)
    return f"{number:,} frames of {taken / number:,.0f} bytes; one file: {len(page.html):,} bytes"


if __name__ == "__main__":
    main()
