"""How much slower a run is while a page shows it.

    python tests/benchmarks/web_cost.py [--steps 20000] [--repeat 15] [--every 0.5] [--pin]

The dummy document runs with a store, in this process, while ``palaestrai-mosaik serve`` shows the store in another one. A third
process asks for the list of runs, the facts of the run and its overview, as the page in a browser does, every half second
(the page itself asks less often). Runs with and without these requests alternate. Prints steps per second of wall-clock time and
of the run's CPU time (medians), for each the median ratio of the pairs with the range of the middle half, and the seconds of
CPU that the server has used per second. On a machine that does other work only the CPU time says something. What a
browser itself needs is not in it. ``--pin`` gives the run a core of its own, and the server and the page the others: then
only what they do to each other is left, not how the system shares out the cores.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import HTTPError

import psutil

from palaestrai_mosaik.experiment import RunDocument, from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

#: what the page asks for while it shows the list of runs, and the overview of the newest one
ASKED = ("store", "runs", "run/latest", "run/latest/curves")
ROOT = Path(__file__).parents[2]


def document(steps: int) -> RunDocument:
    """Return the dummy document with episodes of 100 steps."""
    agents = [
        {
            "name": f"agent-{i}",
            "brain": "dummy",
            "muscle": "dummy",
            "objective": "dummy",
            "sensors": [f"world.{n}" for n in range(5 * i, 5 * i + 5)],
            "actuators": [f"world.{n}" for n in range(5 * i, 5 * i + 5)],
        }
        for i in range(2)
    ]
    world = {"uid": "world", "name": "dummy", "params": {"discrete": True, "max_iter": 100}}
    phase = {
        "environments": [{"environment": world}],
        "agents": agents,
        "phase_config": {"episodes": max(1, steps // 100)},
    }
    return from_mapping({"uid": "benchmark", "seed": 1, "schedule": [{"train": phase}]})


def ask(address: str, every: float) -> None:
    """Ask for all resources again and again, until this process is ended."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    opener.open(address).read()
    base = address.partition("?")[0]
    print("asking", flush=True)
    while True:
        began = time.monotonic()
        for path in ASKED:
            try:
                opener.open(f"{base}api/{path}").read()
            except HTTPError as error:
                # (before the first run there is nothing to show)
                if error.code != 404:
                    raise
        time.sleep(max(0.0, every - (time.monotonic() - began)))


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def speed(store: Store, steps: int) -> tuple[float, float]:
    """Return steps per second of one run: of wall-clock time, of CPU time."""
    whole, count = document(steps), max(1, steps // 100) * 100
    began, used = time.perf_counter(), time.process_time()
    execute(whole, store=store)
    return count / (time.perf_counter() - began), count / (time.process_time() - used)


@dataclass(frozen=True)
class Cost:
    """What was measured: pairs of steps per second (of wall-clock time, of CPU time), and the server's share of a core."""

    alone: list[tuple[float, float]]
    shown: list[tuple[float, float]]
    server: float

    def ratios(self, clock: int) -> list[float]:
        """Return for each pair the speed with the page divided by that without, sorted; 0: wall-clock, 1: CPU."""
        return sorted(b[clock] / a[clock] for a, b in zip(self.alone, self.shown, strict=True))


def measure(steps: int, repeat: int, every: float, *, pin: bool = False) -> Cost:
    """Execute the run with and without the page in turn."""
    alone: list[tuple[float, float]] = []
    shown: list[tuple[float, float]] = []
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    pin = pin and len(cores) > 1
    with tempfile.TemporaryDirectory() as folder, Store(folder, create=True) as store:
        speed(store, min(steps, 1000))  # (what is imported first)
        if pin:
            os.sched_setaffinity(0, cores[1:])  # children have the same
        serve = ("-m", "palaestrai_mosaik", "serve", folder, "--port", "0", "--quiet", "--read-only")
        with child(*serve) as server:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            used, took = 0.0, 0.0
            with child(__file__, "--ask", address, "--every", str(every)) as page:
                assert page.stdout is not None
                page.stdout.readline()
                if pin:
                    os.sched_setaffinity(0, cores[:1])
                for i in range(2 * repeat):
                    # (off, on, on, off, ...)
                    asks = i % 4 in (1, 2)
                    page.send_signal(signal.SIGCONT if asks else signal.SIGSTOP)
                    time.sleep(every)
                    times, began = psutil.Process(server.pid).cpu_times(), time.perf_counter()
                    (shown if asks else alone).append(speed(store, steps))
                    if asks:
                        after = psutil.Process(server.pid).cpu_times()
                        used += after.user + after.system - times.user - times.system
                        took += time.perf_counter() - began
                page.send_signal(signal.SIGCONT)
        if pin:
            os.sched_setaffinity(0, cores)
    return Cost(alone, shown, used / took)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two rounds of requests")
    parser.add_argument("--pin", action="store_true", help="a core for the run, the others for the page")
    parser.add_argument("--ask", metavar="ADDRESS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ask:
        ask(arguments.ask, arguments.every)
    cost = measure(arguments.steps, arguments.repeat, arguments.every, pin=arguments.pin)
    print(
        f"{arguments.steps} steps, {arguments.repeat} pairs, a round of requests every {arguments.every:g} s"
    )
    for i, clock in enumerate(("wall-clock", "CPU")):
        without, beside = [pair[i] for pair in cost.alone], [pair[i] for pair in cost.shown]
        ratios = cost.ratios(i)
        quarter = len(ratios) // 4
        print(
            f"{clock:>10}: {statistics.median(without):6.0f} steps/s without the page, {statistics.median(beside):6.0f} with it, "
            f"ratio {statistics.median(ratios):.3f} (middle half {ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})"
        )
    print(f"CPU of the server {cost.server:8.3f} s per second")


if __name__ == "__main__":
    main()
