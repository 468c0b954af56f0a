"""Our own upper bounds, by the benchmarks beside this folder: bare mosaik, a bare loop, a bare solver."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from .contestants import HERE, Ours

_BENCHMARKS = HERE.parent
GRID = "cigre_mv"


def measure(ours: Ours, folder: Path, steps: int, repeats: int) -> list[dict[str, Any]]:
    """Return name, median, min, max and unit of each bound; an entry with ``error`` where one did not run."""
    return [
        *_run(ours, folder, "engine.py", "--steps", str(steps), "--repeat", str(repeats)),
        *_run(ours, folder, "grid_solver.py", "--steps", str(max(200, steps // 4)), GRID),
    ]


def _run(ours: Ours, folder: Path, program: str, *arguments: str) -> list[dict[str, Any]]:
    try:
        printed = ours.ask(_BENCHMARKS / program, *arguments, folder=folder)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        return [{"name": program, "error": said[0]}]
    return read_engine(printed) if program == "engine.py" else read_solver(printed)


def read_engine(printed: str) -> list[dict[str, Any]]:
    """Read the table of ``engine.py``."""
    found = []
    for line in printed.splitlines()[1:]:
        match = re.fullmatch(r"(.+?)\s+(\d+)\s+(\d+)\s+(\d+)(?:\s+[\d.]+){2}", line.strip())
        if match:
            name, *values = match.groups()
            median, low, high = map(float, values)
            found.append(
                {"name": name, "median": median, "min": low, "max": high, "unit": "steps per CPU second"}
            )
    return found


def read_solver(printed: str) -> list[dict[str, Any]]:
    """Read the table of ``grid_solver.py``: power flows a second from microseconds each."""
    found = []
    for line in printed.splitlines()[1:]:
        words = line.split()
        if len(words) >= 5:
            for name, micros in (("fixed point", words[2]), ("runpp", words[4])):
                rate = 1e6 / float(micros)
                told = {"median": rate, "min": rate, "max": rate, "unit": "power flows per CPU second"}
                found.append({"name": f"power flow of {words[0]}, {name}", **told})
    return found
