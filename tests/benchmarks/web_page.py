"""How fast the page is: its figures as one table in Markdown.

    python tests/benchmarks/web_page.py [--runs 10 1000 10000] [--repeat 5] [--seconds 20] [--pairs 15] [--week 672]

Serves stores with ``palaestrai-mosaik serve`` and looks at them with headless Chromium. Prints

* the time to the first view of the list of runs, from the request of the page to the frame with rows, by number of runs;
* the longest frame while the longest list is scrolled from end to end in three seconds;
* the lag of a live curve: a run records what time it is, and in each frame the page is asked for the newest points that its
  charts have. An episode's objective and a statistic (of episodes of half a second), and a sensor over time (20 steps/s);
* the cost to a run, as web_cost.py measures it: steps per second with the page divided by those without;
* size and time of a run as one file, as theatre.py measures it (needs the extra ``grid``).

Without Chromium and Selenium, only the cost and the file's size are measured. Of all times, median and maximum.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import web_cost

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.browser import Browser, no_browser  # noqa: E402
from support.clock import clock_document  # noqa: E402
from support.live_runs import running  # noqa: E402
from support.many_runs import insert_runs  # noqa: E402

ROW = "table.window tbody tr:not(.space)"
#: notes when the first rows are on the screen, in milliseconds since the page was asked for
NOTE = f"""(function look() {{
  if (document.querySelector('{ROW}')) requestAnimationFrame(() => {{ window.seenAt = performance.now(); }});
  else requestAnimationFrame(look);
}})();"""
#: scrolls the list from end to end in some milliseconds, and returns how long the frames took
SCROLL = """
const [milliseconds, done] = arguments, box = document.querySelector('.scroll.window'), frames = [];
const began = performance.now(), way = box.scrollHeight - box.clientHeight;
let last = began;
requestAnimationFrame(function frame(now) {
  frames.push(now - last);
  last = now;
  box.scrollTop = way * Math.min(1, (now - began) / milliseconds);
  if (now - began < milliseconds) requestAnimationFrame(frame);
  else done(frames.slice(1));
});"""
#: notes each new point of each chart: the text of the figure, the point's value, and when it was drawn
WATCH = """
window.points = [];
const known = new Map();
(function look() {
  for (const canvas of document.querySelectorAll('.chart')) {
    const data = echarts.getInstanceByDom(canvas)?.getModel().getSeriesByIndex(0)?.getRawData();
    if (!data) continue;
    const count = data.count(), before = known.get(canvas) ?? count, title = canvas.closest('figure').innerText;
    for (let i = before; i < count; i += 1) window.points.push([title, data.get('y', i), Date.now() / 1000]);
    known.set(canvas, count);
  }
  requestAnimationFrame(look);
})();"""
STEPS = 10


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a store; give the first address."""
    arguments = ("serve", str(folder), "--port", "0", "--quiet", "--read-only")
    with web_cost.child("-m", "palaestrai_mosaik", *arguments) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()


def enter(browser: Browser, address: str, view: str) -> None:
    """Open the page with its token, and then a view in a new document."""
    browser.open(address)
    browser.open(address.partition("?")[0] + view)


def list_of_runs(
    browser: Browser, folder: Path, repeat: int, scrolled: int
) -> tuple[list[float], list[float]]:
    """Return the seconds to the first view, and the milliseconds of frames while scrolling."""
    with served(folder) as address:
        browser.open(address)
        note = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": NOTE})
        seen = []
        for _ in range(repeat):
            browser.open(address.partition("?")[0] + "#/runs")
            seen.append(browser.wait("window.seenAt") / 1000)
        browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", note)
        browser.driver.set_script_timeout(60)
        return seen, browser.driver.execute_async_script(SCROLL, scrolled)


def lags(browser: Browser, folder: Path, seconds: float) -> dict[str, list[float]]:
    """Return by curve the seconds between each value and the frame that shows it."""
    found: dict[str, list[float]] = {}

    def watch(view: str, names: dict[str, tuple[str, float]]) -> None:
        with served(folder) as address:
            enter(browser, address, view)
            browser.wait("document.querySelector('.chart canvas')")
            browser.driver.execute_script(WATCH)
            time.sleep(seconds)
            for text, value, drawn in browser.js("window.points"):
                for name, (begin, factor) in names.items():
                    if text.startswith(begin):
                        found.setdefault(name, []).append(drawn - factor * value)

    with running(clock_document("short", 100_000, steps=STEPS, seconds=0.05), folder / "short"):
        folder = folder / "short"
        # (of an episode the mean is drawn, and all rewards but the last are 0)
        watch("#/run/latest", {"objective": ("Objective", STEPS), "statistic": ("Statistic", 1)})
    folder = folder.parent / "long"
    with running(clock_document("long", 1, steps=1_000_000, seconds=0.05), folder):
        watch("#/run/latest/time?panel=clock.x", {"sensor over time": ("", 1)})
    return found


def of(values: Sequence[float], unit: str, digits: int = 2) -> str:
    """Return median and maximum as text."""
    return (
        f"{statistics.median(values):.{digits}f} {unit} (at most {max(values):.{digits}f} {unit})"
        if values
        else "no value"
    )


def rows(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield what is measured, and its figure."""
    missing = no_browser()
    if missing is not None:
        print(f"not opened: {missing}", file=sys.stderr)
    else:
        with tempfile.TemporaryDirectory() as name:
            home = Path(name)
            browser = Browser(home)
            frames: list[float] = []
            for count in arguments.runs:
                insert_runs(home / f"runs-{count}", count)
                seen, frames = list_of_runs(
                    browser, home / f"runs-{count}", arguments.repeat, arguments.scroll
                )
                yield f"list of {count:,} runs: first view", of(seen, "s")
            yield f"list of {count:,} runs: a frame while it is scrolled", of(frames, "ms", 0)
            for curve, found in lags(browser, home, arguments.seconds).items():
                yield f"lag of a live curve: {curve}", of(found, "s")
            browser.close()
    cost = web_cost.measure(arguments.steps, arguments.pairs, 0.5, pin=True)
    for i, clock in ((1, "CPU time"), (0, "wall-clock time")):
        ratios = cost.ratios(i)
        quarter = len(ratios) // 4
        yield (
            f"speed of a run with the page, relative to that without ({clock})",
            f"{statistics.median(ratios):.3f} (middle half {ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})",
        )
    if not arguments.week or importlib.util.find_spec("simbench") is None:
        print("no run as one file: simbench is not installed (extra grid), or --week is 0", file=sys.stderr)
        return
    import theatre

    one = theatre.measure(arguments.week, arguments.repeat, browse=missing is None)
    yield "rural week as one file (99 buses, 7 phases): size", f"{one.bytes / 1e6:.2f} MB"
    if one.opened:
        yield "rural week as one file: opened and drawn", of(one.opened, "s")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[10, 1000, 10_000], help="lengths of the list")
    parser.add_argument("--repeat", type=int, default=5, help="how often a page is opened")
    parser.add_argument("--scroll", type=int, default=3000, help="milliseconds from end to end")
    parser.add_argument("--seconds", type=float, default=20.0, help="for which a live curve is watched")
    parser.add_argument("--steps", type=int, default=20_000, help="of a run with and without the page")
    parser.add_argument("--pairs", type=int, default=15, help="of runs with and without the page")
    parser.add_argument(
        "--week", type=int, default=672, help="steps of each phase of the rural week; 0: none"
    )
    arguments = parser.parse_args()
    print("| what | figure |")
    print("|---|---|")
    for what, figure in rows(arguments):
        print(f"| {what} | {figure} |", flush=True)


if __name__ == "__main__":
    main()
