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
from pathlib import Path
from time import perf_counter

import yaml

import palaestrai_mosaik as pm
from palaestrai_mosaik.web.theatre import run_page

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.browser import CHROMIUM, DRIVER, Browser  # noqa: E402

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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=672, help="of each phase, 15 minutes each")
    parser.add_argument("--repeat", type=int, default=5, help="how often the file is opened")
    arguments = parser.parse_args()
    document = yaml.safe_load((ROOT / "scenarios" / "rural_week.yml").read_text(encoding="utf-8"))
    grid = document["schedule"][0]["passive"]["environments"][0]["environment"]
    grid["params"]["steps"] = arguments.steps
    with tempfile.TemporaryDirectory() as folder:
        run = pm.run(document, store=Path(folder, "results"), quiet=True)
        start = perf_counter()
        page = run_page(run.store, run.instance)
        written = perf_counter() - start
        run.close()
        file = Path(folder, "run.html")
        file.write_text(page.html, encoding="utf-8")
        print(
            f"{len(page.phases)} phases, {arguments.steps} steps: {file.stat().st_size:,} bytes, made in {written:.2f} s"
        )
        try:
            import selenium  # noqa: F401
        except ImportError:
            print("not opened: no selenium")
            return
        if CHROMIUM is None or DRIVER is None:
            print("not opened: no Chromium")
            return
        taken = opened(file, arguments.repeat)
        print(
            f"opened and drawn in {statistics.median(taken):.2f} s (median of {len(taken)}, at most {max(taken):.2f} s)"
        )


if __name__ == "__main__":
    main()
