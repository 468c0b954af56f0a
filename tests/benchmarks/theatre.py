"""How large a run as one file is, and how long a browser takes to open it.

    python tests/benchmarks/theatre.py [--steps 672] [--repeat 5]

Executes scenarios/rural_week.yml (99 buses, seven phases), writes it as ``palaestrai-mosaik theatre`` does, and opens the
file in Chromium. Prints bytes, seconds to write, and seconds until the first state is drawn (median). Without Chromium or
Selenium, nothing is opened.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import yaml

import palaestrai_mosaik as pm
from palaestrai_mosaik.web.theatre import run_page

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.browser import Browser, no_browser  # noqa: E402

DRAWN = "document.querySelector('.topology .node[fill^=rgb]')"


def opened(file: Path, times: int) -> list[float]:
    """Return the seconds from opening the file until its first state is drawn, each time."""
    taken = []
    with tempfile.TemporaryDirectory() as home:
        browser = Browser(Path(home))
        for _ in range(times):
            browser.driver.get("about:blank")
            start = perf_counter()
            browser.driver.get(file.as_uri())
            browser.wait(DRAWN)
            taken.append(perf_counter() - start)
        browser.close()
    return taken


@dataclass(frozen=True)
class Theatre:
    """A run as one file: its phases, bytes, seconds to write it, and seconds of each time that it was opened."""

    phases: int
    bytes: int
    written: float
    opened: list[float]


def measure(steps: int, repeat: int, *, browse: bool) -> Theatre:
    """Execute the rural week, write it as one file, and open that ``repeat`` times, if there is a browser."""
    document = yaml.safe_load((ROOT / "scenarios" / "rural_week.yml").read_text(encoding="utf-8"))
    grid = document["schedule"][0]["passive"]["environments"][0]["environment"]
    grid["params"]["steps"] = steps
    with tempfile.TemporaryDirectory() as folder:
        run = pm.run(document, store=Path(folder, "results"), quiet=True)
        start = perf_counter()
        page = run_page(run.store, run.instance)
        written = perf_counter() - start
        run.close()
        file = Path(folder, "run.html")
        file.write_text(page.html, encoding="utf-8")
        taken = opened(file, repeat) if browse else []
        return Theatre(len(page.phases), file.stat().st_size, written, taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=672, help="of each phase, 15 minutes each")
    parser.add_argument("--repeat", type=int, default=5, help="how often the file is opened")
    arguments = parser.parse_args()
    missing = no_browser()
    found = measure(arguments.steps, arguments.repeat, browse=missing is None)
    print(
        f"{found.phases} phases, {arguments.steps} steps: {found.bytes:,} bytes, made in {found.written:.2f} s"
    )
    taken = found.opened
    print(
        f"opened and drawn in {statistics.median(taken):.2f} s (median of {len(taken)}, at most {max(taken):.2f} s)"
        if taken
        else f"not opened: {missing}"
    )


if __name__ == "__main__":
    main()
