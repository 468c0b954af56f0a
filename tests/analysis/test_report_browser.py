"""The report in a real browser: figures are read back from the page, as a reader sees them.

Positions are turned into values by the axis that is drawn, not by the code that drew it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.reports import EVIL, MEANS, OFFSETS, made_up

from palaestrai_mosaik.analysis.plot import _save, draw_panels
from palaestrai_mosaik.analysis.report import ReportData, write_report
from palaestrai_mosaik.analysis.series import Curve, Panel

pytest.importorskip("selenium", reason="no selenium for the browser (extra 'test')")


def _program(*names: str) -> str | None:
    return next((found for name in names if (found := shutil.which(name))), None)


CHROMIUM = _program("chromium", "chromium-browser", "google-chrome")
DRIVER = _program("chromedriver", "/usr/lib/chromium/chromedriver", "/usr/lib/chromium-browser/chromedriver")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="no browser: tests/services/chromium.sh installs Chromium"
)

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-dev-shm-usage "
    "--disable-background-networking --disable-component-update --disable-sync --hide-scrollbars"
)

#: returns of each mark of a panel where it is, in pixels, and the same of the ticks of its axes
READ = """
const svg = document.getElementById(arguments[0]);
const box = (e) => { const r = e.getBoundingClientRect(); return [r.left, r.right, r.top, r.bottom]; };
const at = (e, x, y) => { const p = new DOMPoint(x, y).matrixTransform(e.getScreenCTM()); return [p.x, p.y]; };
const ends = (e) => [at(e, +e.getAttribute('x1'), +e.getAttribute('y1')),
                     at(e, +e.getAttribute('x2'), +e.getAttribute('y2'))];
const points = (e) => [...e.getAttribute('d').matchAll(/[ML](-?[\\d.]+) (-?[\\d.]+)/g)]
  .map((m) => at(e, +m[1], +m[2]));
const axis = (name) => [...svg.querySelectorAll(`.axis.${name} .tick`)].map(
  (t) => [t.querySelector('text').lastChild.textContent, ...ends(t.querySelector('line'))[0]]);
const plain = (e) => { const c = e.cloneNode(true); c.querySelectorAll('title').forEach((t) => t.remove());
                       return c.textContent; };
return {
  x: axis('x'), y: axis('y'),
  texts: [...svg.querySelectorAll('text')].map((e) => [plain(e), ...box(e)]),
  frame: box(svg),
  rows: [...svg.querySelectorAll('.row')].map((row) => ({
    name: (row.querySelector('text.name > title, circle > title') || {}).textContent,
    value: (row.querySelector('text.value') || {}).textContent,
    bars: [...row.querySelectorAll('.bar')].map(box),
    points: [...row.querySelectorAll('.point')].map(box),
    dots: [...row.querySelectorAll('.dots')].map(points),
    whiskers: [...row.querySelectorAll('.whisker')].map(
      (e) => { const m = e.getAttribute('d').match(/M(-?[\\d.]+) (-?[\\d.]+)H(-?[\\d.]+)/);
               return [at(e, +m[1], 0)[0], at(e, +m[3], 0)[0]]; }),
  })),
  bars: [...svg.querySelectorAll('rect.bar')].map(box),
  cells: [...svg.querySelectorAll('.cell')].map(
    (e) => [e.querySelector('title').textContent, +getComputedStyle(e).fillOpacity, e.classList.contains('sure')]),
  dots: [...svg.querySelectorAll('.dots')].map(points),
  heat: svg.querySelectorAll('.heat').length,
  lines: [...svg.querySelectorAll('.level')].map(
    (e) => [e.querySelector('title').textContent, points(e.querySelector('.line'))]),
};
"""


class Page:
    """The report of made-up data, opened from its file."""

    def __init__(self, driver: Any, directory: Path, data: ReportData):
        self.driver = driver
        self.data = data
        self.file = write_report(data, directory)
        self.show(self.file)

    def show(self, file: Path, width: int = 1280) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        # the driver sometimes returns while the page is read: wait for the new document, all of it
        self.driver.execute_script("window.former = true")
        self.driver.get(file.as_uri())
        ready = "return !window.former && document.readyState === 'complete'"
        WebDriverWait(self.driver, 30).until(lambda driver: driver.execute_script(ready))

    def panel(self, identity: str) -> dict[str, Any]:
        return dict(self.driver.execute_script(READ, identity))

    def js(self, code: str) -> Any:
        return self.driver.execute_script(f"return {code}")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    home = tmp_path_factory.mktemp("browser")
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in [*FLAGS.split(), f"--user-data-dir={home / 'data'}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(str(DRIVER), env={**os.environ, "HOME": str(home)})
    browser = webdriver.Chrome(options=options, service=service)
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def page(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return Page(driver, tmp_path_factory.mktemp("report"), made_up(evil=EVIL))


@pytest.fixture(autouse=True)
def shown(page: Page) -> None:
    """Every test begins with the page as a desktop shows it."""
    page.show(page.file)


def reading(ticks: list[tuple[str, float, float]], place: int, *, log: bool = False) -> Any:
    """Return what turns pixels into values, by the numbers that stand at an axis."""
    values = np.array([float(text.replace(",", "")) for text, *_ in ticks])
    pixels = np.array([tick[1 + place] for tick in ticks])
    assert len(values) >= 2
    values = np.log10(values) if log else values
    slope, start = np.polyfit(pixels, values, 1)
    assert np.abs(np.polyval((slope, start), pixels) - values).max() < abs(slope) / 2, "ticks are not even"
    return lambda pixel: np.polyval((slope, start), pixel), abs(slope)


def near(found: Any, expected: Any, pixel: float) -> None:
    """Check that what was read differs by less than a pixel."""
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=0, atol=pixel)


def check_bars(page: Page, identity: str, method: str, indices: list[str]) -> None:
    panel = page.panel(identity)
    value, pixel = reading(panel["x"], 0)
    frame = page.data.sensitivity
    own = frame[(frame["method"] == method) & frame["factor2"].isna()].set_index(["factor", "index"])
    assert len(panel["rows"]) == len(page.data.spec.factors)
    for row in panel["rows"]:
        for index, (left, right, *_), whisker in zip(indices, row["bars"], row["whiskers"], strict=True):
            told = own.loc[(row["name"], index)]
            end = right if told["value"] >= 0 else left
            near(value(end), told["value"], pixel)
            near(value(left if told["value"] >= 0 else right), 0, pixel)
            near(value(np.array(whisker)), [told["low"], told["high"]], pixel)


def test_bars_end_at_the_values_of_the_indices(page: Page) -> None:
    check_bars(page, "violations-sobol-bars", "sobol", ["S1", "ST"])
    check_bars(page, "violations-morris-bars", "morris", ["mu_star"])
    names = [row["name"] for row in page.panel("violations-sobol-bars")["rows"]]
    assert names == ["gain", EVIL, "sensors", "learning_rate"], "by their total index, the largest first"


def test_a_picture_runs_nothing_that_it_shows(page: Page, tmp_path: Path) -> None:
    """An SVG is a document that a browser would run scripts of; the names are in its comments."""
    evil = f"--></script>{EVIL}" + r"$\frac{a$"
    x = np.arange(5.0)
    panel = Panel(evil, evil, evil, (Curve(evil[:40], x, x), Curve("b", x, x)), ((1.0, evil), (3.0, evil)))
    page.show(_save(draw_panels([panel], evil), tmp_path / "picture.svg"))
    assert page.js("document.documentElement.tagName") == "svg"
    assert page.js("[...document.querySelectorAll('script, img, foreignObject, a')].length") == 0
    assert page.js("window.planted") is None
    assert page.js("document.querySelector('svg').getBoundingClientRect().width") > 100


def test_a_bar_that_is_wrong_is_noticed(page: Page, tmp_path: Path) -> None:
    """Were it not, the test above could not fail."""
    text = page.file.read_text()
    found = re.search(r'<rect class="bar c0"[^>]* width="([\d.]+)"', text)
    assert found is not None
    planted = tmp_path / "planted.html"
    bar = found[0].replace(f'width="{found[1]}"', f'width="{float(found[1]) + 2}"')
    planted.write_text(text.replace(found[0], bar, 1))
    page.show(planted)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_bars(page, "violations-sobol-bars", "sobol", ["S1", "ST"])


def test_the_plane_of_morris(page: Page) -> None:
    panel = page.panel("violations-morris-plane")
    (x, wide), (y, high) = reading(panel["x"], 0), reading(panel["y"], 1)
    frame = page.data.sensitivity
    own = frame[frame["method"] == "morris"].pivot(index="factor", columns="index", values="value")
    for row in panel["rows"]:
        ((left, right, top, bottom),) = row["points"]
        told = own.loc[row["name"].split(": mu* ")[0]]
        near(x((left + right) / 2), told["mu_star"], wide)
        near(y((top + bottom) / 2), told["sigma"], high)
    assert len(panel["rows"]) == len(own)


def test_cells_of_pairs_are_the_darker_the_larger(page: Page) -> None:
    frame = page.data.sensitivity
    own = frame[frame["factor2"].notna()]
    values = {frozenset((r["factor"], r["factor2"])): r for _, r in own.iterrows()}
    cells = page.panel("violations-sobol-pairs")["cells"]
    assert len(cells) == len(values)
    found = []
    for told, opacity, sure in cells:
        pair = frozenset(told.rpartition(": ")[0].split(" and "))
        found.append((max(values[pair]["value"], 0), opacity))
        assert sure == (values[pair]["low"] > 0)
    shares = np.array(sorted(found))
    # from nearly white to nearly full, in proportion
    near(np.interp(shares[:, 0], shares[[0, -1], 0], shares[[0, -1], 1]), shares[:, 1], 0.01)
    assert shares[-1, 1] - shares[0, 1] > 0.5


def test_points_lie_where_rows_are(page: Page) -> None:
    by_row = page.data.runs.groupby("row")["violations"].mean()
    order = {"gain": 0, "learning_rate": 3}
    for factor, place in order.items():
        panel = page.panel(f"violations-at-{place}")
        (x, wide), (y, high) = reading(panel["x"], 0, log=place == 3), reading(panel["y"], 1)
        expected = np.array([row[factor] for row in page.data.values])[by_row.notna()]
        expected = np.log10(expected) if place == 3 else expected
        points = np.array(panel["dots"][0])
        assert len(points) == by_row.notna().sum()
        near(x(points[:, 0]), expected, wide)
        near(y(points[:, 1]), by_row.dropna(), high)


def test_lines_and_intervals_lie_where_the_numbers_are(page: Page) -> None:
    (compared,) = page.data.comparisons
    comparison = compared.comparison
    identity = "comparison-0-violations"
    for panel_name, frame, columns in (
        ("learning-0", page.data.learning[0].lines, ("episode", "value")),
        (f"{identity}-profiles", comparison.profiles, ("score", "share")),
    ):
        panel = page.panel(panel_name)
        (x, wide), (y, high) = reading(panel["x"], 0), reading(panel["y"], 1)
        assert [name for name, _ in panel["lines"]] == list(frame["level"].unique())
        for name, points in panel["lines"]:
            own = frame[frame["level"] == name]
            drawn = np.array(points)
            # a profile falls in steps: two points for each but the last
            drawn = drawn[::2] if columns[1] == "share" else drawn
            near(x(drawn[:, 0]), own[columns[0]], wide)
            near(y(drawn[:, 1]), own[columns[1]], high)
    for column, frame, name in (
        ("iqm", comparison.levels, lambda r: r["level"]),
        ("difference", comparison.pairs, lambda r: f"{r['a']} less {r['b']}"),
    ):
        panel = page.panel(f"{identity}-{column}")
        value, pixel = reading(panel["x"], 0)
        for (_, told), row in zip(frame.iterrows(), panel["rows"], strict=True):
            assert row["name"] == name(told)
            near(value(np.mean(row["points"][0][:2])), told[column], pixel)
            near(value(np.array(row["whiskers"][0])), told[[f"{column}_low", f"{column}_high"]], pixel)
            # a dot for each seed
            levels = [told["level"]] if column == "iqm" else [told["a"], told["b"]]
            seeds = [np.add(np.mean(MEANS[one][0]), MEANS[one][1] * np.array(OFFSETS)) for one in levels]
            near(value(np.array(row["dots"][0])[:, 0]), np.sort(seeds[0] - sum(seeds[1:])), pixel)


def test_bars_of_the_histogram_hold_all_runs(page: Page) -> None:
    panel = page.panel("violations-spread")
    value, pixel = reading(panel["y"], 1)
    counts = [value(top) - value(bottom) for _, _, top, bottom in panel["bars"]]
    near(sum(counts), page.data.runs["violations"].notna().sum(), pixel * len(counts))


def test_tables_say_what_their_files_say(page: Page) -> None:
    tables = page.js("""[...document.querySelectorAll('table')].map((t) => ({
        file: t.querySelector('caption a').getAttribute('href'),
        head: [...t.querySelectorAll('thead th')].map((c) => c.textContent),
        rows: [...t.querySelectorAll('tbody tr')].map((r) => [...r.children].map((c) => c.textContent))}))""")
    assert len(tables) >= 7
    for table in tables:
        file = pd.read_csv(page.file.parent / table["file"], dtype=str, keep_default_na=False)
        assert set(table["head"]) <= set(file.columns)
        assert table["head"] == list(file.columns) or table["file"].startswith("comparison")
        file = file[table["head"]]
        assert 0 < len(table["rows"]) <= len(file)
        for cells, (_, row) in zip(table["rows"], file.iterrows(), strict=False):
            for cell, written in zip(cells, row, strict=True):
                if re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", written):
                    assert float(cell.replace(",", "")) == pytest.approx(float(written), rel=5e-4)
                else:
                    assert cell.replace(",", "") == written.replace(",", "")
    links = page.js("[...document.querySelectorAll('a[href$=\".csv\"]')].map((a) => a.getAttribute('href'))")
    assert sorted(links) == sorted(path.name for path in page.file.parent.glob("*.csv"))


def test_nothing_is_loaded_and_nothing_complains(page: Page) -> None:
    logs = {kind: page.driver.get_log(kind) for kind in ("browser", "performance")}
    page.show(page.file)
    assert page.js("performance.getEntriesByType('resource').map((e) => e.name)") == []
    assert page.driver.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in page.driver.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    # its icon is empty, and part of the page
    assert {url for url in asked if not url.startswith("data:")} == {page.file.as_uri()}
    assert logs["browser"] == []


def test_what_users_name_is_text(page: Page) -> None:
    assert page.js("window.planted") is None
    assert page.js("document.querySelectorAll('script, img, iframe, object, form').length") == 0
    names = page.js("[...document.querySelectorAll('#table-factors tbody th')].map((c) => c.textContent)")
    assert names == [factor.name for factor in page.data.spec.factors]


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_the_screen(page: Page, width: int) -> None:
    page.show(page.file, width)
    assert page.js("document.documentElement.scrollWidth") <= width
    wide = page.js("""[...document.querySelectorAll('main *')].filter(
        (e) => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.outerHTML.slice(0, 200))""")
    assert wide == []
    smallest = page.js("""Math.min(...[...document.querySelectorAll('svg.panel text')].map((t) =>
        parseFloat(getComputedStyle(t).fontSize) * Math.hypot(t.getScreenCTM().a, t.getScreenCTM().b)))""")
    assert smallest > 9, "the text of figures is too small to be read"
    for identity in page.js("[...document.querySelectorAll('svg.panel')].map((e) => e.id)"):
        panel = page.panel(identity)
        left, right, top, bottom = panel["frame"]
        for text, a, b, c, d in panel["texts"]:
            inside = a >= left - 1 and b <= right + 1 and c >= top - 2 and d <= bottom + 2
            assert inside, f"{text!r} leaves {identity}"


def test_it_is_accessible(page: Page) -> None:
    levels = page.js("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels)), "a level of headings is left out"
    identities = page.js("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(set(identities)) == len(identities)
    assert page.js("""[...document.querySelectorAll('svg.panel')].every((e) => e.querySelector(':scope > title')
        && e.querySelector(':scope > desc').textContent.length > 10)""")
    assert page.js("""[...document.querySelectorAll('table')].every((t) => t.caption.textContent
        && [...t.querySelectorAll('th')].every((h) => h.scope))""")
    assert page.js(
        "[...document.querySelectorAll('a[href^=\"#\"]')].every((a) => document.getElementById(a.hash.slice(1)))"
    )
    assert page.js("document.documentElement.lang") == "en"


def test_it_is_readable_on_a_dark_screen(page: Page) -> None:
    """All text, in figures too, stands out from what is behind it (WCAG 2: 4.5 to 1)."""
    code = """(() => { const light = (c) => { const v = c.match(/[\\d.]+/g).slice(0, 3).map((x) => x / 255)
        .map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
        return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
      const back = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (!/, 0\\)$/.test(c) && c !== 'transparent') return c; } return 'rgb(255, 255, 255)'; };
      return Math.min(...[...document.querySelectorAll(
        'p, li, td, th, dt, dd, a, figcaption, h1, h2, h3, h4, svg.panel text:not(.dark)')].map((e) => {
        const own = e instanceof SVGElement ? getComputedStyle(e).fill : getComputedStyle(e).color;
        const [a, b] = [light(own), light(back(e))]; return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); }));
    })()"""
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        assert page.js("matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
        assert page.js(code) >= 4.5, scheme
    page.driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"media": "", "features": [{"name": "prefers-color-scheme", "value": ""}]},
    )


def test_it_can_be_printed(page: Page) -> None:
    printed = page.driver.execute_cdp_cmd(
        "Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True}
    )
    pdf = base64.b64decode(printed["data"])
    assert pdf.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    assert 2 <= pages <= 12
    assert len(pdf) > 50_000


def test_many_rows_are_drawn_as_cells(page: Page, tmp_path: Path) -> None:
    """A report of ten thousand runs opens, and shows no points."""
    data = made_up(rows=10_000, repetitions=1)
    file = write_report(data, tmp_path)
    assert file.stat().st_size < 5_000_000
    page.show(file)
    panel = page.panel("violations-at-0")
    assert panel["heat"] > 2
    assert panel["dots"] == []
    assert page.js("document.body.innerText.includes('All 9,500 rows are shown, as cells')")
