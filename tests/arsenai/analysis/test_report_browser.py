"""The report in a real browser: figures are read back from the page, as a reader sees them.

Positions are turned into values by the axis that is drawn, not by the code that drew it.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.browser import CHROMIUM, DRIVER, FLAGS, NO_BROWSER
from support.reports import EVIL, MEANS, OFFSETS, made_up
from support.waiting import HANG

from palaestrai_mosaik.arsenai.analysis.report import ReportData, write_report
from palaestrai_mosaik.arsenai.analysis.report.pictures.parallel import MOST_RUNS
from palaestrai_mosaik.plot.figures import draw_panels, save_figure
from palaestrai_mosaik.plot.series import Curve, Panel

pytest.importorskip("selenium", reason="no selenium for the browser (extra 'test')")


pytestmark = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=NO_BROWSER)

#: returns of each mark of a picture where it is, in pixels, and the same of the ticks of its axes
READ = """
const svg = document.getElementById(arguments[0]);
const box = (e) => { const r = e.getBoundingClientRect(); return [r.left, r.right, r.top, r.bottom]; };
const at = (e, x, y) => { const p = new DOMPoint(x, y).matrixTransform(e.getScreenCTM()); return [p.x, p.y]; };
const points = (e) => [...e.getAttribute('d').matchAll(/[ML](-?[\\d.]+) (-?[\\d.]+)/g)]
  .map((m) => at(e, +m[1], +m[2]));
const path = (e) => points(e.querySelector('path'));
const title = (e) => { const t = e.querySelector(':scope > title'); return t ? t.textContent : ''; };
const all = (kind) => [...svg.querySelectorAll(`.${kind}`)];
const ticks = [...svg.querySelectorAll('.axis .tick')].filter((t) => t.querySelector('path') && t.querySelector('text'))
  .map((t) => [t.querySelector('text').textContent, path(t)]);
const side = (k) => ticks.filter(([, p]) => Math.abs(p[0][k] - p[1][k]) < 0.01 && Math.abs(p[0][1 - k] - p[1][1 - k]) > 1)
  .map(([text, p]) => [text, ...p[0]]);
const within = (kind, [, , top, bottom]) => all(kind).filter((e) => {
  const b = box(e); const middle = (b[2] + b[3]) / 2; return middle >= top && middle <= bottom; });
return {
  x: side(0), y: side(1),
  texts: [...svg.querySelectorAll('text')].map((e) => [e.textContent, ...box(e)]),
  frame: box(svg),
  rows: all('row').map((row) => { const b = box(row.querySelector('path')); return {
    name: title(row), points: within('point', b).map(box), titles: within('point', b).map(title),
    intervals: within('interval', b).map((e) => path(e).map((p) => p[0])),
    dots: within('dots', b).map(path) }; }),
  marks: all('point').map((e) => [title(e), ...box(e)]),
  bars: all('bar').map(box),
  cells: all('cell').map((e) => [title(e), +getComputedStyle(e.querySelector('path')).opacity, e.classList.contains('sure')]),
  dots: all('dots').map(path),
  image: svg.querySelectorAll('image.cells').length,
  lines: all('line').map((e) => [title(e), path(e)]),
  best: all('best').map((e) => [title(e), path(e)]),
  worst: all('worst').map((e) => [title(e), path(e)]),
  others: all('runs').map((e) => e.querySelector('path').getAttribute('d').split('M').length - 1),
  coordinates: all('coordinate').map((e) => [title(e), path(e)]),
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
        WebDriverWait(self.driver, HANG).until(lambda driver: driver.execute_script(ready))

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


def number_of(text: str) -> float:
    """Return the number that a tick shows: ``0.5``, ``\u22121``, ``10\u207b\u2074``."""
    found = re.fullmatch(r"10([\u207b⁰¹²³⁴⁵⁶⁷⁸⁹]+)", text)
    if found is not None:
        return 10.0 ** int(found[1].translate(str.maketrans("\u207b⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))
    return float(text.replace(",", "").replace("\u2212", "-"))


def reading(ticks: list[tuple[str, float, float]], place: int, *, log: bool = False) -> Any:
    """Return what turns pixels into values, by the numbers that stand at an axis."""
    values = np.array([number_of(text) for text, *_ in ticks])
    pixels = np.array([tick[1 + place] for tick in ticks])
    assert len(values) >= 2
    values = np.log10(values) if log else values
    slope, start = np.polyfit(pixels, values, 1)
    assert np.abs(np.polyval((slope, start), pixels) - values).max() < abs(slope) / 2, "ticks are not even"
    return lambda pixel: np.polyval((slope, start), pixel), abs(slope)


def near(found: Any, expected: Any, pixel: float) -> None:
    """Check that what was read differs by less than a pixel."""
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=0, atol=pixel)


def check_rows(page: Page, identity: str, method: str, indices: list[str]) -> None:
    panel = page.panel(identity)
    value, pixel = reading(panel["x"], 0)
    frame = page.data.sensitivity
    own = frame[(frame["method"] == method) & frame["factor2"].isna()].set_index(["factor", "index"])
    assert len(panel["rows"]) == len(page.data.spec.factors)
    for row in panel["rows"]:
        assert len(row["points"]) == len(row["intervals"]) == len(indices)
        for index, title, (left, right, *_), interval in zip(
            indices, row["titles"], row["points"], row["intervals"], strict=True
        ):
            factor = title.rpartition(": ")[0]
            told = own.loc[(factor, index)]
            assert row["name"].startswith(f"{factor}: ")
            near(value((left + right) / 2), told["value"], pixel)
            near(value(np.array(interval)), [told["low"], told["high"]], pixel)


def test_points_and_intervals_lie_at_the_values_of_the_indices(page: Page) -> None:
    check_rows(page, "violations-sobol-rows", "sobol", ["S1", "ST"])
    check_rows(page, "violations-morris-rows", "morris", ["mu_star"])
    names = [row["name"].rpartition(": ")[0] for row in page.panel("violations-sobol-rows")["rows"]]
    assert names == ["gain", EVIL, "sensors", "learning_rate"], "by their total index, the largest first"


def test_the_answer_comes_before_all_pictures(page: Page) -> None:
    first = page.js("document.querySelector('svg').closest('section').className")
    assert first == "outcome"
    assert page.js("document.querySelector('.card .answer').textContent").startswith("gain explains 70")


def test_a_picture_runs_nothing_that_it_shows(page: Page, tmp_path: Path) -> None:
    """An SVG is a document that a browser would run scripts of; the names are in its comments."""
    evil = f"--></script>{EVIL}" + r"$\frac{a$"
    x = np.arange(5.0)
    panel = Panel(evil, evil, evil, (Curve(evil[:40], x, x), Curve("b", x, x)), ((1.0, evil), (3.0, evil)))
    page.show(save_figure(draw_panels([panel], evil), tmp_path / "picture.svg"))
    assert page.js("document.documentElement.tagName") == "svg"
    assert page.js("[...document.querySelectorAll('script, img, foreignObject, a')].length") == 0
    assert page.js("window.planted") is None
    assert page.js("document.querySelector('svg').getBoundingClientRect().width") > 100


def test_a_point_that_is_wrong_is_noticed(page: Page, tmp_path: Path) -> None:
    """Were it not, the test above could not fail."""
    text = page.file.read_text()
    picture = text[text.index('id="violations-sobol-rows"') :]
    found = re.search(r'class="point"><title>gain: S1.*?<use href="[^"]*" x="([\d.]+)"', picture)
    assert found is not None
    planted = tmp_path / "planted.html"
    moved = found[0].replace(f'x="{found[1]}"', f'x="{float(found[1]) + 2}"')
    planted.write_text(text.replace(picture, picture.replace(found[0], moved, 1)))
    page.show(planted)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_rows(page, "violations-sobol-rows", "sobol", ["S1", "ST"])


def test_the_plane_of_morris(page: Page) -> None:
    panel = page.panel("violations-morris-plane")
    (x, wide), (y, high) = reading(panel["x"], 0), reading(panel["y"], 1)
    frame = page.data.sensitivity
    own = frame[frame["method"] == "morris"].pivot(index="factor", columns="index", values="value")
    for title, left, right, top, bottom in panel["marks"]:
        told = own.loc[title.split(": mu* ")[0]]
        near(x((left + right) / 2), told["mu_star"], wide)
        near(y((top + bottom) / 2), told["sigma"], high)
    assert len(panel["marks"]) == len(own)


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
    order = {"gain": 0, "learning_rate": 2}
    for factor, place in order.items():
        panel = page.panel(f"violations-at-{place}")
        (x, wide), (y, high) = reading(panel["x"], 0, log=place == 2), reading(panel["y"], 1)
        expected = np.array([row[factor] for row in page.data.values])[by_row.notna()]
        expected = np.log10(expected) if place == 2 else expected
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
        # the best level first, and lower is better
        ("iqm", comparison.levels.sort_values("iqm"), lambda r: r["level"]),
        ("difference", comparison.pairs, lambda r: f"{r['a']} \N{MINUS SIGN} {r['b']}"),
    ):
        panel = page.panel(f"{identity}-{column}")
        value, pixel = reading(panel["x"], 0)
        for (_, told), row in zip(frame.iterrows(), panel["rows"], strict=True):
            assert row["name"].startswith(f"{name(told)}: ")
            near(value(np.mean(row["points"][0][:2])), told[column], pixel)
            near(value(np.array(row["intervals"][0])), told[[f"{column}_low", f"{column}_high"]], pixel)
            # a dot for each seed
            levels = [told["level"]] if column == "iqm" else [told["a"], told["b"]]
            seeds = [np.add(np.mean(MEANS[one][0]), MEANS[one][1] * np.array(OFFSETS)) for one in levels]
            near(value(np.array(row["dots"][0])[:, 0]), np.sort(seeds[0] - sum(seeds[1:])), pixel)


def test_parallel_coordinates_go_through_the_values_of_each_run(page: Page) -> None:
    panel = page.panel("violations-runs")
    runs = page.data.runs.set_index("uid")
    known = runs["violations"].dropna().sort_values(kind="stable")
    assert [name.split(":")[0] for name, _ in panel["best"]] == list(known.index[:10])
    assert sorted(name.split(":")[0] for name, _ in panel["worst"]) == sorted(known.index[-10:])
    assert sum(panel["others"]) == len(known) - 20
    names = [name for name, _ in panel["coordinates"]]
    assert names == ["gain", EVIL, "sensors", "learning_rate", "violations"]
    ends = {
        "gain": (0, 10),
        EVIL: (0, 1),
        "learning_rate": (-5, -1),
        "violations": (known.min(), known.max()),
    }
    for title, points in panel["best"] + panel["worst"]:
        uid = title.split(":")[0]
        row = page.data.values[runs.loc[uid, "row"]] | {"violations": runs.loc[uid, "violations"]}
        assert len(points) == len(names)
        for (name, ((x, top), (_, bottom))), (at, y) in zip(panel["coordinates"], points, strict=True):
            top, bottom = sorted((top, bottom))
            if name == "sensors":
                share = ("few", "all", "none").index(row[name]) / 2
            else:
                value = np.log10(row[name]) if name == "learning_rate" else row[name]
                share = (value - ends[name][0]) / (ends[name][1] - ends[name][0])
            near([at, y], [x, bottom - share * (bottom - top)], 1.0)


def test_bars_of_the_histogram_hold_all_runs(page: Page) -> None:
    panel = page.panel("violations-spread")
    value, pixel = reading(panel["y"], 1)
    counts = [value(top) - value(bottom) for _, _, top, bottom in panel["bars"]]
    near(sum(counts), page.data.runs["violations"].notna().sum(), pixel * len(counts))


def check_cell(cell: str, unit: str, row: Any, name: str) -> None:
    """Check that a cell says what the row of the file says, rounded to the last decimal that is shown."""
    written = [row[name]]
    for end in (" low", " high", "_low", "_high"):
        if f"{name}{end}" in row and row[f"{name}{end}"] != "":
            written.append(row[f"{name}{end}"])
    try:
        values = list(map(float, written))
    except ValueError:
        assert cell.replace(",", "") == written[0].replace(",", "")
        return
    if cell.startswith("<"):
        assert values[0] < 0.001
        return
    digits = "\u207b⁰¹²³⁴⁵⁶⁷⁸⁹"
    power = str.maketrans(digits, "-0123456789")
    scale = 10.0 ** int(unit.removeprefix("\u00d710").translate(power) or 0)
    shown = re.findall(rf"\u2212?[\d,]+(?:\.\d+)?(?:\u00d710[{digits}]+)?", cell)
    assert len(shown) == (len(values) if " to " in cell else 1), (cell, written)
    for text, value in zip(shown, values, strict=False):
        number, _, own = text.replace(",", "").replace("\u2212", "-").partition("\u00d710")
        unit_of = scale * 10.0 ** int(own.translate(power) or 0)
        decimals = len(number.partition(".")[2])
        assert abs(float(number) * unit_of - value) <= 0.5000001 * 10.0**-decimals * unit_of, (cell, written)


def test_tables_say_what_their_files_say(page: Page) -> None:
    tables = page.js("""[...document.querySelectorAll('table')].map((t) => ({
        file: t.closest('details').querySelector('.file a').getAttribute('href'),
        head: [...t.querySelectorAll('thead th')].map((c) => c.dataset.column).filter((c) => c),
        units: [...t.querySelectorAll('thead th[data-column]')].map((c) => (c.querySelector('.unit') || {textContent: ''}).textContent),
        rows: [...t.querySelectorAll('tbody tr')].map((r) => [...r.children]
            .filter((c) => !c.classList.contains('links')).map((c) => c.textContent))}))""")
    assert len(tables) >= 7
    for table in tables:
        file = pd.read_csv(page.file.parent / table["file"], dtype=str, keep_default_na=False)
        assert set(table["head"]) <= set(file.columns)
        for column, key in (("violations", "uid"), ("iqm", "level")):
            if {column, key} <= set(table["head"]):
                # the best first
                file = file.loc[pd.to_numeric(file[column]).sort_values(kind="stable").index]
        assert 0 < len(table["rows"]) <= len(file)
        for cells, (_, row) in zip(table["rows"], file.iterrows(), strict=False):
            for name, cell, unit in zip(table["head"], cells, table["units"], strict=True):
                check_cell(cell, unit, row, name)
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
    assert page.js("document.querySelectorAll('img, iframe, object, form').length") == 0
    assert page.js("document.querySelectorAll('script').length") == 1, "that of the page itself"
    names = page.js("[...document.querySelectorAll('#table-factors tbody th')].map((c) => c.textContent)")
    assert names == [factor.name for factor in page.data.spec.factors]


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_the_screen(page: Page, width: int) -> None:
    page.show(page.file, width)
    assert page.js("document.documentElement.scrollWidth") <= width
    wide = page.js("""[...document.querySelectorAll('main *')].filter(
        (e) => !e.closest('.scroll') && !e.closest('svg') && e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.outerHTML.slice(0, 200))""")
    assert wide == []
    smallest = page.js("""Math.min(...[...document.querySelectorAll('svg.picture text')].filter((t) => t.getClientRects().length)
        .map((t) => parseFloat(getComputedStyle(t).fontSize) * Math.hypot(t.getScreenCTM().a, t.getScreenCTM().b)))""")
    assert smallest > 9, "the text of figures is too small to be read"
    shown = page.js(
        "[...document.querySelectorAll('svg.picture')].filter((e) => e.getClientRects().length).map((e) => e.id)"
    )
    assert any(identity.endswith("-narrow") for identity in shown) == (width < 640)
    assert len(shown) > 10
    for identity in shown:
        panel = page.panel(identity)
        left, right, top, bottom = panel["frame"]
        for text, a, b, c, d in panel["texts"]:
            inside = a >= left - 1 and b <= right + 1 and c >= top - 2 and d <= bottom + 2
            assert inside, f"{text!r} leaves {identity}"


def test_no_text_of_a_table_runs_into_another(page: Page) -> None:
    """Long headings, and paths that have no place to break."""
    wide = page.js("""[...document.querySelectorAll('details')].map((fold) => { fold.open = true; }) && [
        ...document.querySelectorAll('th, td')].filter((e) => e.scrollWidth > e.clientWidth + 1)
        .map((e) => e.textContent)""")
    assert wide == []


def test_it_is_accessible(page: Page) -> None:
    levels = page.js("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels)), "a level of headings is left out"
    identities = page.js("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(set(identities)) == len(identities)
    assert page.js("""[...document.querySelectorAll('svg.picture')].every((e) => e.querySelector(':scope > title')
        && e.querySelector(':scope > desc').textContent.length > 10 && e.getAttribute('role') === 'img')""")
    assert page.js("""[...document.querySelectorAll('table')].every((t) => t.ariaLabel
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
        'p, li, td, th, dt, dd, a, summary, figcaption, h1, h2, h3, h4, svg.picture :not(.symbol) > text')].map((e) => {
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
    assert 4 <= pages <= 20
    assert len(pdf) > 50_000


def test_the_report_is_printed_on_a4(tmp_path: Path) -> None:
    file = write_report(made_up(rows=8), tmp_path / "report", "pdf")
    content = file.read_bytes()
    assert content.startswith(b"%PDF-")
    boxes = {
        tuple(map(float, box))
        for box in re.findall(rb"/MediaBox \[([\d.]+) ([\d.]+) ([\d.]+) ([\d.]+)\]", content)
    }
    assert boxes, "pages of A4, in points"
    for left, bottom, right, top in boxes:
        assert (left, bottom) == (0, 0) and abs(right - 595.3) < 1 and abs(top - 841.9) < 1.5
    # the same folder, without a PDF: an old one does not stay
    write_report(made_up(rows=8), tmp_path / "report")
    assert not file.exists()


def test_many_rows_are_drawn_as_cells(page: Page, tmp_path: Path) -> None:
    """A report of ten thousand runs opens, and shows no points."""
    data = made_up(rows=10_000, repetitions=1)
    file = write_report(data, tmp_path)
    assert file.stat().st_size < 5_000_000
    page.show(file)
    panel = page.panel("violations-at-0")
    assert panel["image"] == 1
    assert panel["dots"] == []
    drawn = page.panel("violations-runs")
    assert sum(drawn["others"]) + len(drawn["best"]) + len(drawn["worst"]) == MOST_RUNS + 20
    assert page.js(
        f"document.body.innerText.includes('{MOST_RUNS + 20} of 9,500 runs with a value are drawn')"
    )
    assert page.js("document.body.innerText.includes('All 9,500 rows are shown as cells')")


def test_a_click_on_a_heading_sorts_the_table(page: Page) -> None:
    page.js("document.getElementById('table-runs').closest('details').open = true")
    column = "[...document.querySelectorAll('#table-runs tbody tr')].map((r) => r.cells[{}].textContent)"
    place = page.js(
        "[...document.querySelectorAll('#table-runs thead th')].findIndex((h) => h.dataset.column === 'gain')"
    )
    button = f"document.querySelectorAll('#table-runs thead th')[{place}].querySelector('button')"
    values = [float(text) for text in page.js(column.format(place))]
    assert values != sorted(values)
    page.driver.execute_script(f"{button}.click()")
    assert [float(text) for text in page.js(column.format(place))] == sorted(values)
    page.driver.execute_script(f"{button}.click()")
    assert [float(text) for text in page.js(column.format(place))] == sorted(values, reverse=True)
    assert (
        page.js("document.querySelector('#table-runs th[aria-sort]').getAttribute('aria-sort')")
        == "descending"
    )


def test_a_link_opens_the_fold_that_it_leads_to(page: Page) -> None:
    assert not page.js("document.getElementById('table-runs').closest('details').open")
    page.driver.execute_script("location.hash = '#table-runs'")
    page.driver.execute_async_script("setTimeout(arguments[0], 50)")
    assert page.js("document.getElementById('table-runs').closest('details').open")


def test_without_a_script_all_can_be_read(page: Page) -> None:
    """Folds open by themselves, headings are text, pictures are there."""
    page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.driver.get(page.file.as_uri())
        root = page.driver.execute_cdp_cmd("DOM.getDocument", {"depth": -1})["root"]

        def found(selector: str) -> list[int]:
            told = page.driver.execute_cdp_cmd(
                "DOM.querySelectorAll", {"nodeId": root["nodeId"], "selector": selector}
            )
            return list(told["nodeIds"])

        assert len(found("svg.picture")) > 20
        assert found("th button") == []
        assert len(found("table tbody tr")) > 100
        (summary,) = found("details:has(#table-runs) > summary")
        page.driver.execute_cdp_cmd("DOM.scrollIntoViewIfNeeded", {"nodeId": summary})
        quad = page.driver.execute_cdp_cmd("DOM.getBoxModel", {"nodeId": summary})["model"]["content"]
        place = {"x": quad[0] + 20, "y": quad[1] + 5, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            page.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, **place})
        assert len(found("details[open]:has(#table-runs)")) == 1
    finally:
        page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_folds_are_open_on_paper(page: Page) -> None:
    """By the style sheet alone: nothing is printed here, so that no script is told."""
    height = "document.querySelector('#table-runs tbody tr').getBoundingClientRect().height"
    assert page.js("CSS.supports('selector(::details-content)')"), "of the browsers of 2024 and later"
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert page.js(f"{height} > 5")
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
