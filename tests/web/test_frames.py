"""Rendered frames on the page: the pixels that a browser shows are those of the states."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import Browser
from support.documents import document
from support.live_runs import running
from support.painted import HEIGHT, WIDTH, decoded, painted, painted_phase

import palaestrai_mosaik as pm
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web import carried
from palaestrai_mosaik.web.carried import Films
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.data.episodes import TOGETHER
from palaestrai_mosaik.web.resources import ResourceError, Source
from palaestrai_mosaik.web.theatre import MotionChoice, run_page

from .conftest import Serve
from .test_grid import choose, set_state

LONG = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    phases = [
        painted_phase({"every": 2}, params={"steps": LONG}, mode="train", episodes=3, evaluate_every=3),
        painted_phase({"step_every": 7}, params={"steps": 20}, episodes=1),
    ]
    pm.run(document(*phases, uid="<script>window.planted = 1</script>"), store=folder, quiet=True)
    pm.run(document(painted_phase(None, episodes=1), uid="plain"), store=folder, quiet=True)
    return folder


@pytest.fixture
def source(folder: Path):
    with Store(folder, read_only=True) as store:
        yield Source(store)


def run_of(source: Source) -> str:
    runs = source.store.runs()
    return str(runs.loc[runs["document"] != "plain", "run"].iloc[0])


def pixels(browser: Browser, side: int = 0) -> np.ndarray[Any, Any]:
    """Return the numbers of the image that is shown, (height, width, 3)."""
    found = browser.driver.execute_async_script(
        """
        const [side, done] = arguments, image = document.querySelectorAll("img.frame")[side];
        image.decode().then(() => {
          const canvas = document.createElement("canvas");
          canvas.width = image.naturalWidth;
          canvas.height = image.naturalHeight;
          const pen = canvas.getContext("2d");
          pen.drawImage(image, 0, 0);
          done([canvas.height, canvas.width, [...pen.getImageData(0, 0, canvas.width, canvas.height).data]]);
        });""",
        side,
    )
    height, width, numbers = found
    return np.array(numbers, np.uint8).reshape(height, width, 4)[:, :, :3]


def expect(
    browser: Browser, source: Source, step: int, phase: int = 0, episode: int = 2, side: int = 0
) -> None:
    """Wait until the frame of a step is shown, and compare it with the state."""
    browser.wait(f"document.querySelectorAll('img.frame')[{side}]?.dataset.step === '{step}'")
    states = source.store.environment_states(run_of(source), phase, episode=episode)
    level = states.set_index("step")["reading.world.level"][step]
    assert np.array_equal(pixels(browser, side), painted(step, episode, round(level * 255)))


def show(browser: Browser, serve: Serve, source: Source, query: str = "", run: str | None = None) -> None:
    start = serve(source)
    browser.open(start)
    browser.open(f"{start.split('?')[0]}#/run/{run or run_of(source)}/frames{query}")


def titles(browser: Browser) -> list[str]:
    found: list[str] = browser.js("[...document.querySelectorAll('.drawings h2')].map((h) => h.textContent)")
    return found


def test_the_page_shows_each_frame(browser: Browser, serve: Serve, source: Source) -> None:
    show(browser, serve, source, "?at=0.0.2.world")
    expect(browser, source, 0)
    assert titles(browser) == ["phase_0, episode 2"]
    assert browser.js("document.querySelector('nav.tabs [aria-current]').textContent") == "Frames"
    # across the images that are fetched together, and to the end
    for state in (1, 24, 25, 49, 50, LONG):
        set_state(browser, state)
        expect(browser, source, state)
    assert browser.js("document.querySelector('.player output').textContent") == f"tick {LONG} of tick {LONG}"
    assert browser.js("document.querySelector('img.frame').alt") == f"phase_0, episode 2, tick {LONG}"
    # small frames are enlarged by a whole factor
    assert browser.js("document.querySelector('img.frame').width") % WIDTH == 0
    assert browser.js("document.querySelector('img.frame').width") > 5 * WIDTH
    options = browser.js(
        "[...document.querySelector('[aria-label=Episode]').options].map((o) => o.textContent)"
    )
    assert options == [
        "phase_0, episode 0",
        "phase_0, episode 2",
        "phase_0, evaluation 0",
        "phase_1, episode 0",
    ]
    assert browser.js("window.planted") is None
    assert browser.errors() == []


def test_it_plays_and_jumps(browser: Browser, serve: Serve, source: Source) -> None:
    show(browser, serve, source, "?at=0.0.0.world")
    browser.wait("document.querySelector('img.frame')?.dataset.step === '0'")
    speed = "(one => { one.value = '100'; one.dispatchEvent(new Event('change')); })(document.querySelector('[aria-label=Speed]'))"
    browser.js(speed)
    browser.js("document.querySelector('[aria-label=Play]').click()")
    browser.wait(f"document.querySelector('img.frame').dataset.step === '{LONG}'")
    assert browser.js("document.querySelector('[aria-label=Play]') !== null")
    browser.js("document.querySelector(\"[aria-label='First state']\").click()")
    expect(browser, source, 0, episode=0)
    browser.js("document.querySelector(\"[aria-label='One state forward']\").click()")
    expect(browser, source, 1, episode=0)
    assert browser.errors() == []


def test_two_episodes_stand_beside_each_other(browser: Browser, serve: Serve, source: Source) -> None:
    show(browser, serve, source, "?at=0.0.2.world&beside=1.0.0.world&state=2")
    expect(browser, source, 2)
    # of the second one, every seventh state was rendered, and the last one: both show the same time
    expect(browser, source, 0, phase=1, episode=0, side=1)
    set_state(browser, 15)
    expect(browser, source, 15)
    expect(browser, source, 14, phase=1, episode=0, side=1)
    set_state(browser, 40)
    expect(browser, source, 40)
    expect(browser, source, 20, phase=1, episode=0, side=1)
    choose(browser, "Beside it", "")
    browser.wait("document.querySelectorAll('img.frame').length === 1")
    choose(browser, "Episode", "1.0.0.world")
    browser.wait("document.querySelector('.drawings h2').textContent === 'phase_1, episode 0'")
    assert browser.js("document.querySelector('.note').textContent") == "4 of 21 states were rendered."
    assert browser.errors() == []


def test_a_phone_shows_frames_within_its_width(browser: Browser, serve: Serve, source: Source) -> None:
    browser.resize(360, 700)
    try:
        show(browser, serve, source, "?at=0.0.2.world&beside=1.0.0.world")
        expect(browser, source, 0)
        assert browser.js("document.documentElement.scrollWidth <= 360")
    finally:
        browser.resize(1280, 900)


def test_a_run_without_frames_has_no_such_tab(browser: Browser, serve: Serve, source: Source) -> None:
    assert "frames" not in get(source, "run/plain")["views"]  # type: ignore[index]
    assert get(source, f"run/{run_of(source)}")["views"] == ["overview", "time", "agent", "frames", "record"]  # type: ignore[index]
    show(browser, serve, source, run="plain")
    browser.wait("document.querySelector('nav.tabs')")
    assert browser.js("[...document.querySelectorAll('nav.tabs a')].map((a) => a.textContent)") == [
        "Overview",
        "Time",
        "Agent",
        "Record",
    ]


def test_the_resources_are_those_of_the_store(source: Source) -> None:
    run = run_of(source)
    asked = {"environment": "world", "phase": "0", "worker": "0", "episode": "2"}
    film: Any = get(source, f"run/{run}/film", asked)
    assert film["frames"] == LONG + 1 and film["step"] == film["time"] == list(range(LONG + 1))
    frames = source.store.frames(run, 0, "world", episode=2)["png"].tolist()
    found = []
    for first in range(0, LONG + 1, TOGETHER):
        part: Any = get(source, f"run/{run}/images", {**asked, "from": str(first)})
        found += [base64.b64decode(one) for one in part["png"]]
    assert found == frames
    assert get(source, f"run/{run}/images", {**asked, "from": "1000"}) == {"png": []}
    for wrong in ({}, {**asked, "from": "-1"}, {**asked, "from": "x"}):
        with pytest.raises(ResourceError):
            get(source, f"run/{run}/images", wrong)
    with pytest.raises(StoreError):
        get(source, f"run/{run}/film", {**asked, "environment": "other"})


def test_frames_appear_while_the_run_goes_on(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    slow = painted_phase({"every": 1}, params={"steps": 100_000, "seconds": 0.05}, episodes=1)
    with (
        running(document(slow, uid="slow"), tmp_path / "store"),
        Store(tmp_path / "store", read_only=True) as store,
    ):
        show(browser, serve, Source(store), run="slow")
        browser.wait("Number(document.querySelector('img.frame')?.dataset.step) > 0")
        first = browser.js("Number(document.querySelector('img.frame').dataset.step)")
        browser.wait(f"Number(document.querySelector('img.frame').dataset.step) > {first}")
        # also those that follow the last one of before, which was fetched when there were fewer
        browser.js("document.querySelector('label input[type=checkbox]').click()")
        set_state(browser, first + 1)
        browser.wait(f"document.querySelector('img.frame').dataset.step === '{first + 1}'")
        assert browser.errors() == []


def test_one_file_shows_the_frames_without_a_network(
    browser: Browser, source: Source, tmp_path: Path
) -> None:
    page = run_page(source.store, run_of(source), MotionChoice(beside="phase_1"))
    assert page.phases == ("phase_0", "phase_1") and page.thinned == page.left_out == ()
    file = tmp_path / "run.html"
    file.write_text(page.html, encoding="utf-8")
    browser.open(file.as_uri())
    expect(browser, source, 0)
    expect(browser, source, 0, phase=1, episode=0, side=1)
    for state in (30, LONG):
        set_state(browser, state)
        expect(browser, source, state)
    assert browser.js("[...document.querySelectorAll('nav.tabs a')].map((a) => a.textContent)") == [
        "Overview",
        "Time",
        "Frames",
        "Record",
    ]
    assert (
        browser.js(
            "performance.getEntriesByType('resource').filter((r) => !r.name.startsWith('data:')"
            " && !r.name.startsWith('blob:')).length"
        )
        == 0
    )
    assert browser.js("window.planted") is None
    assert browser.errors() == []


def test_a_file_has_fewer_frames_rather_than_a_larger_size(
    browser: Browser, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(source)
    rooms: list[float] = []
    add = Films.add

    def noted(films: Films, *arguments: Any) -> None:
        rooms.append(arguments[-1])
        add(films, *arguments)

    monkeypatch.setattr(Films, "add", noted)
    whole = run_page(source.store, run, MotionChoice(episode=0))
    assert whole.thinned == ()
    size = int(source.store.recorded_frames(run, 0)["bytes"].max())
    # room for about half of the frames of the longer episode
    monkeypatch.setattr(carried, "SIZE", carried.SIZE - rooms[0] + int(size * 1.4))
    page = run_page(source.store, run, MotionChoice(episode=0))
    assert page.thinned == ("phase_0",) and len(page.html) < len(whole.html)
    file = tmp_path / "run.html"
    file.write_text(page.html, encoding="utf-8")
    browser.open(file.as_uri())
    expect(browser, source, 0, episode=0)
    assert browser.js("document.querySelector('input[type=range]').max") == str(LONG // 2)
    set_state(browser, 1)
    expect(browser, source, 2, episode=0)
    set_state(browser, 1000)
    expect(browser, source, LONG, episode=0)
    with pytest.raises(
        StoreError, match="phase 0 has no frames of environment 'world' in episode 1; it has frames of: 0, 2"
    ):
        run_page(source.store, run, MotionChoice(episode=1))
    with pytest.raises(StoreError, match="no phase 'phase_7' with a topology or frames"):
        run_page(source.store, run, MotionChoice(["phase_7"]))


def test_frames_are_as_they_were_painted(source: Source) -> None:
    image = decoded(source.store.frames(run_of(source))["png"].iloc[0])
    assert image.shape == (HEIGHT, WIDTH, 3) and image[1, 2].tolist() == [255, 255, 255]
