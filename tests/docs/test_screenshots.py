"""The screenshots of the documentation show what the page shows today, and the duel's file of the site plays."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pandapower", reason="the documents need the extra 'grid'")

from PIL import Image

import palaestrai_mosaik as pm
from palaestrai_mosaik.store import Store
from tests.support import screenshots, site_theatre
from tests.support.browser import Browser
from tests.support.pages import ROOT

#: bytes of all screenshots, and of each
LARGEST, LARGEST_OF_ONE = 400_000, 65_000


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if lacks := screenshots.missing():
        pytest.skip(lacks)
    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


def test_each_screenshot_is_there_is_shown_and_is_small() -> None:
    files = {name: screenshots.FOLDER / f"{name}.png" for name in screenshots.SHOTS}
    sizes = {name: file.stat().st_size for name, file in files.items()}
    assert max(sizes.values()) < LARGEST_OF_ONE
    assert sum(sizes.values()) < LARGEST
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for name, file in files.items():
        alternatives = re.findall(rf"!\[([^\]]*)\]\((?:docs/)?_static/{name}\.png\)", text)
        assert alternatives, f"no page shows {name}"
        assert len(set(alternatives)) == 1, f"{name} has several texts for those who do not see it"
        assert len(alternatives[0]) > 100
        with Image.open(file) as image:
            assert image.mode == "P", "as many colours as a palette has"
            assert image.width <= 1200
        assert screenshots.fingerprint_of(file)


def test_the_first_picture_of_the_readme_is_the_grid_in_motion() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((docs/_static/[^)]*)\)", readme)[0] == "docs/_static/page-grid.png"


def test_without_a_browser_the_pictures_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(screenshots, "missing", lambda: "no browser")
    assert screenshots.main(["--output", str(tmp_path)]) == 0
    assert capsys.readouterr().err == "the screenshots stay as they are: no browser\n"
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_screenshot_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        screenshots.main(["page-rum"])
    assert "no screenshot 'page-rum'; there are page-runs" in capsys.readouterr().err


def test_clocks_are_taken_out_of_a_store(tmp_path: Path) -> None:
    """Two executions of one document give the same tables, and a store that can be read."""
    seen = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        pm.run("scenarios/dummy.yml", store=folder, quiet=True)
        screenshots.freeze(folder)
        with sqlite3.connect(folder / "store.db") as database:
            seen.append(
                [
                    database.execute(query).fetchall()
                    for query in (
                        "SELECT uid, started, ended FROM instances",
                        "SELECT started, ended FROM phases",
                        "SELECT duration, ended FROM episodes",
                    )
                ]
            )
        with Store(folder, read_only=True) as store:
            assert store.runs()["duration"].tolist() == [pytest.approx(0.1)]  # 40 steps, 400 a second
            assert len(store.steps("latest", phase="train", agent="evil_attacker")) == 30
    assert seen[0] == seen[1]


def test_lines_of_modules_do_not_count() -> None:
    shot = screenshots.SHOTS["page-failure"]
    first, moved, other = (
        screenshots.fingerprint(shot, [f'File "a.py", line {line}, in f\n  {text}'])
        for line, text in ((3, "x"), (4, "x"), (4, "y"))
    )
    assert first == moved != other


def test_the_last_digits_of_numbers_do_not_count() -> None:
    """They depend on the processor: sums of many numbers are made in another order."""
    shot = screenshots.SHOTS["page-runs"]
    first, same, other = (
        screenshots.fingerprint(shot, [f"0,1 40,{y}"])
        for y in ("15.626397870603586", "15.626397870603591", "15.636397870603586")
    )
    assert first == same != other


def test_all_screenshots_show_what_the_page_shows(tmp_path: Path) -> None:
    if lacks := screenshots.missing():
        pytest.skip(lacks)
    assert screenshots.main(["--output", str(tmp_path)]) == 0
    for name in screenshots.SHOTS:
        found, kept = (
            screenshots.fingerprint_of(folder / f"{name}.png") for folder in (tmp_path, screenshots.FOLDER)
        )
        assert found == kept is not None, f"{name}: make docs takes it; then commit it"


def test_the_site_has_the_duel_where_its_pages_look_for_it() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"tests.support.site_theatre docs/_build/html/{site_theatre.NAME}\n" in makefile
    for page in ("index.md", "tutorial.md"):
        assert f'<a href="{site_theatre.NAME}">' in (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_the_duel_of_the_site_plays_without_a_network(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / site_theatre.NAME
    assert site_theatre.main([str(file)]) == 0
    assert file.stat().st_size < 1_500_000
    browser.open(file.as_uri())
    browser.wait("document.querySelectorAll('.topology .node[fill]').length === 30")
    titles = "[...document.querySelectorAll('.drawings h2')].map((one) => one.textContent)"
    assert browser.js(titles) == ["attacked, episode 0", "defended, episode 0"]
    moment = "document.querySelector('.moment').textContent"
    before = browser.js(moment)
    assert before == "2016-06-01 00:00 · state 0 of 95"
    button = "[...document.querySelectorAll('.player button')].find((one) => one.textContent === %r)"
    browser.js(f"{button % '▶'}.click()")
    browser.wait(f"Number(/state (\\d+)/.exec({moment})[1]) > 3")
    browser.js(f"{button % 'Worst state'}.click()")
    browser.wait("document.querySelectorAll('.topology .node.outside').length > 3")
    requests = (
        "performance.getEntriesByType('resource').filter(({ name }) => !/^(data|blob):/.test(name)).length"
    )
    assert browser.js(requests) == 0
    assert browser.errors() == []


def test_the_commands_of_the_duel_are_those_of_the_tutorial() -> None:
    start, theatre = site_theatre.script().splitlines()
    assert start == "palaestrai-mosaik start duel.yml"
    assert theatre.startswith("palaestrai-mosaik theatre duel ")
    assert theatre.endswith(f" --output {site_theatre.NAME}")
