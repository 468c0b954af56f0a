"""The screenshots of the documentation: the page, with runs of the documentation's documents, in a browser.

``python -m tests.support.screenshots`` (``make docs``) executes the documents, opens their views in headless Chromium and
writes pictures into ``docs/_static``, where they are committed. Without a browser, these stay as they are.

What depends on the clock or the machine (dates, durations, uids of runs, paths) is replaced, in the store before it is
served or in the page. Each picture has a fingerprint of what it shows: its texts, the numbers of its charts, the colours of
its grids. One with the same fingerprint stays as it is, so that another Chromium or other fonts change no file;
``--redraw`` takes it nevertheless, after a change of colours or spaces.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import io
import json
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from PIL import Image, PngImagePlugin

import palaestrai_mosaik as pm
from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.execution import Settings, run_folder
from palaestrai_mosaik.core.errors import ActionError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.web.resources import Source
from palaestrai_mosaik.web.workplace import Workplace
from tests.support.browser import CHROMIUM, DRIVER, NO_BROWSER, Browser
from tests.support.page_server import served
from tests.support.pages import ROOT
from tests.support.pictures import FOLDER, KEY, document_of, fingerprint_of

#: around what is shown (pixels)
_MARGIN = 8
#: what all runs of the pictures seem to have begun with, and how fast they seem to be
_BEGIN, _STEPS_PER_SECOND = datetime(2026, 3, 2, 9, tzinfo=UTC), 400
#: where the package seems to be installed
_LIBRARY = "/home/me/venv/lib/python3.12/site-packages"
_DESIGN = ROOT / "designs" / "cigre_morris.yml"
_WORST = "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Worst state').click()"


def _hide(selector: str) -> str:
    """Return what hides an element, also one that the view draws again."""
    return (
        "const sheet = new CSSStyleSheet();"
        f"sheet.replaceSync({json.dumps(selector + ' { display: none }')});"
        "document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];"
    )


_CHOOSE_DEMAND = (
    "const factor = [...document.querySelectorAll('select')].find((one) => [...one.options].some(({ text }) => text === 'demand'));"
    "factor.value = [...factor.options].find(({ text }) => text === 'demand').value;"
    "factor.dispatchEvent(new Event('change'))"
)
_NAMED = "document.querySelector('h1')"
_DRAWN = "[...document.querySelectorAll('figure .chart')].every((one) => one.querySelector('canvas'))"
#: the document that is checked in the page: two mistakes
_MISTAKEN = """\
uid: first
seed: 1
schedule:
  - train:
      environments:
        - environment:
            uid: grid
            name: grid
            params: {grid: cigre_mv, start: 2016-06-01, steps: 96}
      agents:
        - name: controller
          muscle: droop_controler
          sensors: ["grid.sgen-[0-7].vm_pu"]
          actuators: ["grid.sgen-[0-7].q_mvar"]
      phase_config: {mode: train, epsiodes: 10}
"""


#: the head of the page
_TOP = ("header.page",)


@dataclass(frozen=True)
class Shot:
    """A picture of a view.

    Attributes:
        view: the address below that of the page.
        ready: an expression that is true once the view is complete.
        parts: selectors of what is shown: the rectangle around the first elements that they find.
        height: so many pixels are shown, where they are not as many as the parts have.
        after: what is done in the view before the picture is taken.
        then: an expression that is true once that is done.
        width: of the page, in pixels.
        colours: of the palette; fewer make a smaller file.
        source: ``runs`` or ``design``.
    """

    view: str
    ready: str
    parts: tuple[str, ...] = _TOP
    height: int = 0
    after: str = ""
    then: str = "true"
    width: int = 1000
    colours: int = 256
    source: str = "runs"


#: name of a picture -> what it shows
SHOTS = {
    "page-runs": Shot(
        "#/runs", "document.querySelectorAll('table.window tbody tr:not(.space)').length === 6", height=424
    ),
    "page-overview": Shot(
        "#/run/learned",
        f"document.querySelectorAll('figure').length === 6 && {_DRAWN}",
        parts=("header.page", "figure"),
    ),
    "page-time": Shot(
        "#/run/duel/time?phases=0,1,2&panel=grid.bus-*.vm_pu&panel=objective",
        f"document.querySelectorAll('figure').length === 2 && {_DRAWN}",
        parts=("fieldset.phases", ".time-panels"),
    ),
    "page-grid": Shot(
        "#/run/duel/grid?at=1.0.0&beside=2.0.0",
        "document.querySelectorAll('.topology .node[fill]').length === 30",
        parts=(".player", ".drawings"),
        # (the list of parts beside the drawings has nothing to show)
        after="document.querySelector('aside').remove();"
        "document.querySelector('.scenes').style.gridTemplateColumns = 'minmax(0, 1fr)';" + _WORST,
        then="document.querySelectorAll('.topology .node.outside').length > 3",
    ),
    "page-failure": Shot(
        "#/run/broken/record",
        "document.querySelector('.record .line.marked')",
        parts=("header.page", "pre.document"),
        # (of the traceback, the end: the frames before it change with this package)
        after="const end = document.querySelector('pre.traceback');"
        "end.textContent = end.textContent.trim().split('\\n').slice(-8).join('\\n');"
        "document.querySelector('pre.document').style.maxHeight = '15rem';"
        "document.querySelector('.line.marked').scrollIntoView({ block: 'center' }); scrollTo(0, 0);",
    ),
    "page-design": Shot(
        "#/design",
        f"document.querySelectorAll('figure').length > 1 && {_DRAWN}",
        parts=("header.page", "figure"),
        source="design",
        # (the time of a run is that of this machine)
        after=_hide("[data-tile=per-run]") + _CHOOSE_DEMAND,
        then=_DRAWN,
    ),
    "page-parallel": Shot(
        "#/design",
        f"document.querySelectorAll('figure').length > 1 && {_DRAWN}",
        parts=("figure.design-parallel",),
        width=1200,
        colours=64,
        source="design",
    ),
    "page-documents": Shot(
        "#/documents",
        "document.querySelector('textarea.yaml')",
        height=680,
        after="const area = document.querySelector('textarea.yaml');"
        f"area.value = {json.dumps(_MISTAKEN)}; area.dispatchEvent(new Event('input'));"
        "document.querySelector('p code').textContent = '/home/me/study';"
        "document.querySelector('[data-action=check]').click()",
        then="document.querySelectorAll('.problems .error').length",
    ),
}

#: what is seen within a rectangle [left, top, right, bottom]: texts, numbers of charts, parts of drawings
_SEEN = """(([left, top, right, bottom]) => {
  // (what a box has scrolled away is not seen)
  const within = (rectangle, element) => {
    let { left: a, top: b, right: c, bottom: d } = rectangle;
    for (let one = element; one; one = one.parentElement) {
      if (getComputedStyle(one).overflowY === "visible") continue;
      const box = one.getBoundingClientRect();
      [a, b, c, d] = [Math.max(a, box.left), Math.max(b, box.top), Math.min(c, box.right), Math.min(d, box.bottom)];
    }
    return c > a && d > b && a + scrollX < right && c + scrollX > left && b + scrollY < bottom && d + scrollY > top;
  };
  const found = [], range = document.createRange();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    range.selectNodeContents(texts.currentNode);
    const text = texts.currentNode.data.trim();
    if (text && within(range.getBoundingClientRect(), texts.currentNode.parentElement)) found.push(text);
  }
  for (const one of document.querySelectorAll("input, textarea, select")) {
    if (within(one.getBoundingClientRect(), one.parentElement)) found.push(`${one.type} ${one.value} ${one.checked ?? ""}`);
  }
  const short = (key, value) => (typeof value === "number" ? value.toPrecision(4) : value);
  for (const one of document.querySelectorAll(".chart")) {
    if (!within(one.getBoundingClientRect(), one.parentElement)) continue;
    const { series } = echarts.getInstanceByDom(one).getOption();
    for (const { name, type, data } of series) found.push(JSON.stringify([name, type, data], short));
  }
  for (const one of document.querySelectorAll(".topology path, .topology .bar, .spark polyline")) {
    if (!within(one.getBoundingClientRect(), one.parentElement)) continue;
    found.push(["class", "fill", "stroke", "points", "height"].map((name) => one.getAttribute(name) ?? "").join(" "));
  }
  return found;
})(arguments[0])"""
_RECTANGLE = """((parts, height) => {
  const all = parts.map((one) => document.querySelector(one).getBoundingClientRect());
  const top = Math.min(...all.map((one) => one.top)) + scrollY;
  return [Math.min(...all.map((one) => one.left)), top, Math.max(...all.map((one) => one.right)),
    height ? top + height : Math.max(...all.map((one) => one.bottom)) + scrollY];
})(...arguments)"""


def missing() -> str:
    """Return what the pictures need and this machine lacks; nothing if it has all."""
    for module, extra in (
        ("selenium", "test"),
        ("starlette", "web"),
        ("uvicorn", "web"),
        ("pandapower", "grid"),
    ):
        if importlib.util.find_spec(module) is None:
            return f"no {module} (extra {extra!r})"
    return NO_BROWSER if CHROMIUM is None or DRIVER is None else ""


def _execute(store: Path) -> None:
    """Execute the runs of the pictures: two of the tutorials, one that fails, and some small ones."""
    folder = store.parent
    for seed in (1, 2, 3):
        pm.run(ROOT / "scenarios" / "dummy.yml", store=store, quiet=True, overrides={"seed": seed})
    failing = document_of("duel").replace("uid: duel", "uid: broken")
    # more reactive power than the inverters have
    failing = failing.replace(
        "muscle: integrating_voltage_controller", "muscle: {name: constant, params: {values: 0.5}}"
    )
    for uid, text in (
        ("broken", failing),
        ("learned", document_of("learned")),
        ("duel", document_of("duel")),
    ):
        document = folder / f"{uid}.yml"
        document.write_text(text, encoding="utf-8")
        with contextlib.suppress(ActionError):
            pm.run(document, store=store, quiet=True)


def freeze(store: Path) -> None:
    """Replace what a store has of the clock and of the machine: another execution then gives the same.

    Runs begin at fixed times, one after the other, and make as many steps per second as any other.
    """
    with contextlib.closing(sqlite3.connect(store / "store.db")) as database, database:

        def every(query: str, *values: object) -> list[tuple[int, ...]]:
            return list(database.execute(query, values))

        def put(table: str, key: str, row: int, **values: object) -> None:
            names = ", ".join(f"{name} = ?" for name in values)
            database.execute(f"UPDATE {table} SET {names} WHERE {key} = ?", (*values.values(), row))

        text = "%Y-%m-%d %H:%M:%S.%f"
        for place, (instance, uid) in enumerate(every("SELECT id, uid FROM instances ORDER BY id")):
            begin = now = _BEGIN + timedelta(minutes=7 * place)
            for (phase,) in every("SELECT id FROM phases WHERE instance_id = ? ORDER BY number", instance):
                start = now
                for worker, episode, evaluation, steps in every(
                    "SELECT worker, episode, evaluation, steps FROM episodes WHERE phase_id = ? ORDER BY 2, 3, 1",
                    phase,
                ):
                    took = steps / _STEPS_PER_SECOND
                    now += timedelta(seconds=took)
                    database.execute(
                        "UPDATE episodes SET duration = ?, ended = ? WHERE (phase_id, worker, episode, evaluation) = (?, ?, ?, ?)",
                        (took, now.strftime(text), phase, worker, episode, evaluation),
                    )
                put("phases", "id", phase, started=start.strftime(text), ended=now.strftime(text))
            named = f"{begin:%Y%m%dT%H%M%S}000000-{place:08x}"
            put(
                "instances", "id", instance, uid=named, started=begin.strftime(text), ended=now.strftime(text)
            )
            put("errors", "instance_id", instance, time=now.strftime(text))
            database.execute("UPDATE errors SET traceback = replace(traceback, ?, ?)", (str(ROOT), _LIBRARY))
            with contextlib.suppress(FileNotFoundError):
                (store / "instances" / str(uid)).rename(store / "instances" / named)


@contextlib.contextmanager
def _sources(folder: Path, wanted: set[str]) -> Iterator[dict[str, str]]:
    """Execute what ``wanted`` sources have, and serve them: {source: address}."""
    with contextlib.ExitStack() as stack:
        found = {}
        if "runs" in wanted:
            _execute(folder / "results")
            freeze(folder / "results")
            location = StoreLocation(str(folder / "results"))
            found["runs"] = stack.enter_context(served(Source(location, workplace=Workplace(location, None))))
        if "design" in wanted:
            design = Design.load(_DESIGN).generate(folder / "design")
            run_folder(design, settings=Settings(executor="inline"))
            store = stack.enter_context(Store(design.path / "results", read_only=True))
            found["design"] = stack.enter_context(served(Source(store, design)))
        yield found


def take(browser: Browser, shot: Shot, address: str, file: Path, *, redraw: bool = False) -> bool:
    """Write a picture of a view, unless the file already shows the same; return whether it was written."""
    browser.resize(shot.width, 900)
    browser.open(address)
    browser.open(address.split("?", maxsplit=1)[0] + shot.view)
    browser.wait(_NAMED)
    browser.wait(f"Boolean({shot.ready})")
    if shot.after:
        browser.driver.execute_script(shot.after)
        browser.wait(f"Boolean({shot.then})")
    browser.driver.execute_script("document.activeElement?.blur()")
    (left, top, right, bottom), seen = _settled(browser, shot)
    mark = fingerprint(shot, seen)
    if not redraw and fingerprint_of(file) == mark:
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    around = 0 if shot.parts[0] in _TOP else _MARGIN
    box = (left - around, top - around, right - left + 2 * around, bottom - top + 2 * around)
    with tempfile.TemporaryDirectory() as place:
        taken = Path(place, "taken.png")
        browser.screenshot(taken, clip=box)
        save(taken.read_bytes(), file, mark, shot.colours)
    return True


def _settled(browser: Browser, shot: Shot) -> tuple[list[float], list[str]]:
    """Return the rectangle of a picture and what is seen there, once that is the same several times in a row."""
    last: tuple[list[float], list[str]] | None = None
    same = 0
    for _ in range(100):
        place = browser.js(_RECTANGLE, list(shot.parts), shot.height)
        found = (place, browser.js(_SEEN, place))
        same = same + 1 if found == last else 0
        if same == 4:
            return found
        last = found
        time.sleep(0.25)
    raise RuntimeError(f"{shot.view} does not come to rest")


def fingerprint(shot: Shot, seen: Sequence[str]) -> str:
    """Return a hash of what a picture shows, and of how it is taken.

    Lines of this package's modules move. The last digits of a number depend on the processor, and nobody sees them.
    """
    moved = (re.sub(r", line \d+, in", ", in", text) for text in seen)
    shown = [re.sub(r"\d+\.\d{6,}", lambda found: f"{float(found[0]):.6g}", text) for text in moved]
    return hashlib.sha256(json.dumps([astuple(shot), shown]).encode()).hexdigest()[:16]


def save(picture: bytes, file: Path, mark: str, colours: int) -> None:
    """Write a PNG with few colours and its fingerprint."""
    information = PngImagePlugin.PngInfo()
    information.add_text(KEY, mark)
    with Image.open(io.BytesIO(picture)) as image:
        small = image.convert("RGB").quantize(colours, kmeans=2, dither=Image.Dither.NONE)
    small.save(file, format="PNG", optimize=True, pnginfo=information)


def draw(names: Sequence[str], folder: Path, *, redraw: bool = False) -> list[Path]:
    """Take the pictures ``names``; return the files that were written."""
    written = []
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        addresses = stack.enter_context(_sources(place, {SHOTS[name].source for name in names}))
        browser = Browser(place / "browser")
        stack.callback(browser.close)
        browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
        for name in names:
            file = folder / f"{name}.png"
            if take(browser, SHOTS[name], addresses[SHOTS[name].source], file, redraw=redraw):
                written.append(file)
            if said := browser.errors():
                raise RuntimeError(f"{name}: the browser says {said}")
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the pictures; print the files that changed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.screenshots", description=__doc__.split("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SHOTS)} (default: all)")
    parser.add_argument("--output", type=Path, default=FOLDER, metavar="FOLDER", help="default: docs/_static")
    parser.add_argument("--redraw", action="store_true", help="also pictures that would show the same")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in SHOTS]
    if unknown:
        parser.error(f"no screenshot {unknown[0]!r}; there are {', '.join(SHOTS)}")
    if lacks := missing():
        print(f"the screenshots stay as they are: {lacks}", file=sys.stderr)
        return 0
    for file in draw(options.names or list(SHOTS), options.output, redraw=options.redraw):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
