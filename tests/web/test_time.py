"""The tab of a run over time: numbers of its figures against the store's frames, zoom, phases, live runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import Browser
from support.records import one_body

import palaestrai_mosaik as pm
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import AgentRecord, BodyRecord, ChannelRecord, EnvironmentRecord, Store
from palaestrai_mosaik.types.arrays import AgentRows, EnvironmentRows
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.data.time import default_patterns, suggestions
from palaestrai_mosaik.web.encoding import places_of_extremes
from palaestrai_mosaik.web.page import single_file
from palaestrai_mosaik.web.resources import ResourceError, Source, address

from .conftest import Serve

TICKS = 5000
BUSES = 15
SPACE = "Box(low=-inf, high=inf, shape=(), dtype=float64)"
VOLTAGES = [ChannelRecord(f"grid.bus-{i}.vm_pu", SPACE, 1) for i in range(BUSES)]
SENSORS = [*VOLTAGES, ChannelRecord("grid.line-7.loading", SPACE, 1)]
CONTROLLED = [ChannelRecord(f"grid.sgen-{i}.q_mvar", SPACE, 1) for i in range(8)]
ATTACKED = [ChannelRecord("grid.sgen-8.q_mvar", SPACE, 1)]
NASTY = "<script>window.planted=1</script><img src=x onerror=window.planted=1>"
MOMENTS = {"sum": 1.0, "mean": 1.0, "min": 1.0, "max": 1.0}


def readings(phase: int, seed: int = 1, ticks: int = TICKS) -> Any:
    """Return voltages near 1 and a loading, of shape (ticks, sensors); two voltages leave the band for a tick."""
    random = np.random.default_rng(seed + phase)
    values = np.column_stack(
        [random.normal(1 + phase / 100, 0.005, (ticks, BUSES)), random.normal(60, 5, ticks)]
    )
    if ticks > 4321:
        values[1234, 3], values[4321, 4] = 1.2, 0.8
    return values


def record_phase(run: Any, number: int, name: str, ticks: int = TICKS) -> None:
    environment = EnvironmentRecord(
        *("grid", "test:Grid", {}, SENSORS, [*CONTROLLED, *ATTACKED], []),
        world_model={"seconds_per_tick": 900},
        start=datetime(2016, 6, 1, tzinfo=UTC),
    )
    agents = [
        one_body(
            "controller", muscle="m", objective="o", sensors=VOLTAGES[:1], actuators=CONTROLLED, rewards=[]
        ),
        one_body("attacker", muscle="m", objective="o", sensors=VOLTAGES[:1], actuators=ATTACKED, rewards=[]),
    ]
    phase = run.begin_phase(
        *(number, name),
        **{"mode": "train", "workers": 1, "episodes": 1, "controller": "vanilla"},
        **{"environments": [environment], "agents": agents},
    )
    for evaluation, length in ((False, ticks), (True, 10)):
        values = readings(number, 50 if evaluation else 1, length)
        for tick, row in enumerate(values):
            phase.environment("grid", evaluation).append(0, 0, tick, tick, row, [], False, False)
            for agent, size, most in (("controller", 8, 0.02), ("attacker", 1, 1.5)):
                setpoints = most * np.cos(tick + np.arange(size))
                parts = (row[:1], setpoints, [], 0.5 + number)
                phase.agent(agent, evaluation).append(0, 0, tick, tick, *parts, False, False, 0.0)
    phase.finish("episodes")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """A store with a run of two phases of 5,000 ticks."""
    with Store(tmp_path_factory.mktemp("time"), create=True) as opened:
        run = opened.begin_run(uid="long", document={}, text="", hash="long", seed=1, version="3.5")
        for number, name in enumerate(("passive", "attacked")):
            record_phase(run, number, name)
        run.finish("finished")
        yield Source(opened)


@pytest.fixture(scope="module")
def dummy(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("store")
    pm.run("scenarios/dummy.yml", store=folder, quiet=True)
    return Source(Store(folder, read_only=True))


def series(source: Source, run: str = "long", **query: object) -> Any:
    return get(source, f"run/{run}/series", {name: str(value) for name, value in query.items()})


# what the page is sent


def test_lines_are_the_columns_of_the_store(dummy: Source) -> None:
    found = series(dummy, "latest", phases=0, episode=1, patterns="myenv.*\nsetpoint.*\nobjective")
    states = dummy.store.environment_states("latest", 0, "myenv", episode=1)
    agents = {
        name: dummy.store.steps("latest", 0, name, episode=1) for name in ("mighty_defender", "evil_attacker")
    }
    assert [panel["kind"] for panel in found["panels"]] == ["lines"] * 3
    for panel, count in zip(found["panels"], (10, 10, 2), strict=True):
        assert len(panel["lines"]) == count
        for line in panel["lines"]:
            frame = agents.get(line["label"].partition(": ")[0], states)
            np.testing.assert_array_equal(line["x"], frame["time"])
            np.testing.assert_array_equal(line["y"], frame[line["column"]])
    assert found["phases"][0]["episode"] == 1
    assert found["phases"][0]["last"] == 2


def test_without_a_choice_the_last_episode_of_the_last_phase_is_shown(source: Source) -> None:
    found = series(source)
    assert found["patterns"] == ["grid.bus-*.vm_pu", "setpoint.grid.sgen-*.q_mvar", "objective"]
    assert [one["name"] for one in found["phases"]] == ["attacked"]
    assert (found["seconds_per_tick"], found["start"]) == (900.0, "2016-06-01T00:00:00.000")
    assert found["span"] == [0, TICKS - 1]


def test_many_columns_are_percentiles_over_them(source: Source) -> None:
    (panel,) = series(source, phases=0, patterns="*.vm_pu", start=100, stop=200)["panels"]
    (band,) = panel["lines"]
    values = np.sort(readings(0)[100:200, :BUSES], axis=1)
    np.testing.assert_array_equal(band["x"], np.arange(100, 200))
    np.testing.assert_array_equal(band["min"], values[:, 0])
    np.testing.assert_array_equal(band["median"], values[:, 7])
    np.testing.assert_array_equal(band["max"], values[:, 14])
    # of 15 values, the 5th percentile lies at 0.7 between the lowest and the next one
    np.testing.assert_allclose(band["low"], values[:, 0] + 0.7 * (values[:, 1] - values[:, 0]))
    np.testing.assert_allclose(band["high"], values[:, 14] - 0.7 * (values[:, 14] - values[:, 13]))
    assert [(one["value"], one["name"]) for one in panel["limits"]] == [(0.95, "limit"), (1.05, "limit")]


def test_long_lines_keep_their_lowest_and_highest_values(source: Source) -> None:
    (panel,) = series(source, phases=0, patterns="grid.bus-[34].vm_pu".replace("[34]", "3"))["panels"]
    (line,) = panel["lines"]
    whole = readings(0)[:, 3]
    assert line["points"] == TICKS
    assert len(line["x"]) <= 2002
    np.testing.assert_array_equal(line["y"], whole[line["x"]])
    assert (line["y"].max(), line["y"].min()) == (whole.max(), whole.min())
    (panel,) = series(source, phases=0, patterns="*.vm_pu")["panels"]
    assert (panel["lines"][0]["max"].max(), panel["lines"][0]["min"].min()) == (1.2, 0.8)


def test_a_window_has_all_points(source: Source) -> None:
    (panel,) = series(source, phases=0, patterns="grid.line-7.loading", start=1000, stop=2500)["panels"]
    (line,) = panel["lines"]
    np.testing.assert_array_equal(line["x"], np.arange(1000, 2500))
    np.testing.assert_array_equal(line["y"], readings(0)[1000:2500, BUSES])


@pytest.mark.parametrize("gaps", [False, True])
def test_each_span_of_a_long_line_keeps_its_extremes(gaps: bool) -> None:
    values = np.random.default_rng(3).normal(size=1003)
    if gaps:
        values[200:400] = np.nan
    kept = places_of_extremes(values, most=100)
    assert len(kept) <= 102
    # 50 spans of 21 points, the last one shorter
    for start in range(0, 1003, 21):
        part = values[start : start + 21]
        inside = values[kept[(kept >= start) & (kept < start + 21)]]
        assert len(inside) >= 1, "a gap is seen"
        if np.isfinite(part).any():
            assert (np.nanmin(inside), np.nanmax(inside)) == (np.nanmin(part), np.nanmax(part))
    assert (kept[0], kept[-1]) == (0, 1002)
    assert places_of_extremes(values[:100], most=100).tolist() == list(range(100))


def test_an_attacker_does_not_flatten_eight_controllers(source: Source) -> None:
    (panel,) = series(source, patterns="setpoint.*q_mvar")["panels"]
    right = {line["label"] for line in panel["lines"] if line["right"]}
    assert (panel["kind"], len(panel["lines"]), right) == ("lines", 9, {"attacker: grid.sgen-8.q_mvar"})
    both = series(source, patterns="setpoint.*q_mvar", phases="0,1")["panels"][0]
    assert len(both["lines"]) == 18
    assert {line["label"] for line in both["lines"] if line["right"]} == right


def test_in_a_grid_the_wind_park_of_the_attacker_is_on_the_right_axis(tmp_path: Path) -> None:
    pytest.importorskip("pandapower", reason="no power grid (extra 'grid')")
    pytest.importorskip("simbench", reason="no power grid (extra 'grid')")
    pm.run("scenarios/cigre_mv_day.yml", store=tmp_path / "store", quiet=True)
    with Store(tmp_path / "store", read_only=True) as opened:
        found = series(Source(opened), "latest", phases="0,2,3", patterns="setpoint.*q_mvar\n*.loading")
        setpoints, loading = found["panels"]
        right = {line["label"] for line in setpoints["lines"] if line["right"]}
        assert right == {"attacker: grid.sgen-8.q_mvar"}
        frame = opened.steps("latest", "both", "attacker")
        line = next(one for one in setpoints["lines"] if one["phase"] == 2 and one["right"])
        np.testing.assert_array_equal(line["y"], frame["setpoint.grid.sgen-8.q_mvar"])
        assert np.abs(line["y"]).max() > 10 * np.abs(frame["setpoint.grid.sgen-5.q_mvar"]).max()
        assert (loading["unit"], loading["kind"], len(loading["lines"])) == ("%", "percentiles", 3)
        assert found["start"] == "2016-06-21T00:00:00.000"


def test_phases_are_laid_over_one_another(source: Source) -> None:
    found = series(source, phases="0,1", patterns="grid.line-7.loading\nobjective", start=0, stop=50)
    assert [one["name"] for one in found["phases"]] == ["passive", "attacked"]
    loading, objective = found["panels"]
    for line in loading["lines"]:
        np.testing.assert_array_equal(line["y"], readings(line["phase"])[:50, BUSES])
    assert [(one["phase"], one["y"][0]) for one in objective["lines"]] == [
        (0, 0.5),
        (0, 0.5),
        (1, 1.5),
        (1, 1.5),
    ]


def test_evaluation_episodes_are_apart(source: Source) -> None:
    (panel,) = series(source, phases=1, evaluation=1, patterns="grid.bus-0.vm_pu")["panels"]
    np.testing.assert_array_equal(panel["lines"][0]["y"], readings(1, 50, 10)[:, 0])


def test_bodies_are_a_band_or_one_of_them(tmp_path: Path) -> None:
    """The reading of body k at tick t is 10 k + t; incarnations and bodies are the same."""
    channels = {kind: [ChannelRecord(f"e.{{body}}.{kind[0]}", "", 1)] for kind in ("sensors", "actuators")}
    body = BodyRecord(count=2, environment="e", objective="O", rewards=[], **channels)
    with Store(tmp_path / "store", create=True) as opened:
        run = opened.begin_run(uid="swarm", document={}, text="", hash="s", seed=1, version="3.5")
        phase = run.begin_phase(
            *(0, "p"),
            **{"mode": "train", "workers": 1, "episodes": 1, "controller": "vanilla"},
            environments=[EnvironmentRecord("e", "E", **channels, incarnations=2)],
            agents=[AgentRecord("a", objective="O", bodies=[body])],
        )
        numbers, never = np.arange(2, dtype=np.int32), np.zeros(2, dtype=bool)
        for tick in range(4):
            values, none = (10.0 * numbers + tick)[:, None], np.empty((2, 0))
            at = (0, 0, np.full(2, tick), np.full(2, tick), numbers, 0 * numbers)
            phase.agent("a").append_rows(
                AgentRows(*at, values, values, none, values[:, 0], never, never, 0.1)
            )
            row = (0, 0, tick, tick, numbers, 0 * numbers, values, none, never, never)
            phase.environment("e").append_rows(EnvironmentRows(*row))
        run.finish("finished")
        here = Source(opened)
        facts: Any = get(here, "run/swarm/time")
        assert (facts["phases"][0]["bodies"], facts["phases"][0]["incarnations"]) == (2, 2)
        for query, expected in (({}, 5.0), ({"body": 1}, 10.0), ({"incarnation": 0}, 0.0)):
            reading = series(here, "swarm", patterns="e.*", **query)["panels"][0]["lines"][0]
            np.testing.assert_array_equal(reading["y"], expected + np.arange(4))
            assert ("low" in reading) == (not query)
        band = series(here, "swarm", patterns="setpoint.e.*")["panels"][0]
        assert band["note"] == "mean over the bodies; band: lowest to highest"
        np.testing.assert_array_equal(band["lines"][0]["high"], 10.0 + np.arange(4))


def test_what_does_not_exist_is_said_with_what_there_is(source: Source) -> None:
    found = series(source, patterns="grid.bus-0.vm_pq", phases=1)
    assert "did you mean 'grid.bus-0.vm_pu'?" in found["problems"][0]["message"]
    with pytest.raises(ResourceError, match="there is no phase 7; there are: 0 'passive', 1 'attacked'"):
        series(source, phases=7)
    with pytest.raises(StoreError, match="'attacked' has no episode 3 of worker 0: it has 0 to 0"):
        series(source, episode=3)
    with pytest.raises(StoreError, match="has no episode of worker 4 that was recorded"):
        series(source, worker=4)


def test_patterns_are_suggested_by_quantity() -> None:
    columns = [f"reading.grid.bus-{i}.vm_pu" for i in range(3)] + [
        "reading.grid.sgen-0.vm_pu",
        "reading.g.x[0]",
    ]
    columns += ["reading.g.x[1]", "setpoint.grid.sgen-0.q_mvar", "reward.r", "objective"]
    found = suggestions(columns)
    by_pattern = {one["pattern"]: (one["kind"], one["unit"], one["count"]) for one in found}
    assert by_pattern["grid.bus-*.vm_pu"] == ("reading", "p.u.", 3)
    assert by_pattern["*.vm_pu"] == ("reading", "p.u.", 4)
    assert by_pattern["g.x[*]"] == ("reading", None, 2)
    assert by_pattern["setpoint.grid.sgen-*.q_mvar"] == ("setpoint", "Mvar", 1)
    assert by_pattern["grid.bus-1.vm_pu"] == ("reading", "p.u.", 1)
    assert default_patterns(found) == ["grid.bus-*.vm_pu", "setpoint.grid.sgen-*.q_mvar", "objective"]


def test_recorded_episodes_are_those_with_rows(source: Source, dummy: Source) -> None:
    frame = dummy.store.recorded_episodes("latest")
    assert frame.to_dict("list") == {
        "phase": [0, 1],
        "worker": [0, 0],
        "evaluation": [False, False],
        "first": [0, 0],
        "last": [2, 0],
    }
    assert source.store.recorded_episodes("long", "passive")["evaluation"].tolist() == [False, True]


# what the page shows


def open_time(browser: Browser, start: str, run: str = "long", query: str = "") -> None:
    browser.open(start)
    browser.open(f"{start.split('?', maxsplit=1)[0]}#/run/{run}/time{query}")
    browser.wait("document.querySelector('.time-panels canvas')")


def numbers(browser: Browser, place: int) -> tuple[list[str], list[list[str]]]:
    """Return the table of a figure: titles of its columns, and its rows."""
    browser.js(f"document.querySelectorAll('figure details')[{place}].open = true")
    browser.wait(f"document.querySelectorAll('figure details')[{place}].querySelector('tbody tr')")
    return browser.js(
        "(() => { const t = document.querySelectorAll('figure details')[arguments[0]].querySelector('table');"
        " const texts = (row) => [...row.cells].map((c) => c.textContent);"
        " return [texts(t.tHead.rows[0]), [...t.tBodies[0].rows].map(texts)]; })()",
        place,
    )


def as_number(text: str) -> float:
    return float(text.replace(",", ""))


def captions(browser: Browser) -> list[str]:
    return browser.js("[...document.querySelectorAll('figure .note')].map((one) => one.textContent)")


def test_numbers_of_the_figures_are_those_of_the_store(
    browser: Browser, serve: Serve, source: Source
) -> None:
    window = "?phases=1&panel=grid.line-7.loading&panel=*.vm_pu&from=100&to=130"
    open_time(browser, serve(source), query=window)
    browser.wait("!document.querySelector('figure .note').textContent.includes('drawn')")
    titles, rows = numbers(browser, 0)
    assert titles == ["tick", "time", "grid.line-7.loading"]
    assert rows[0][1] == "2016-06-02 01:00", "100 quarters of an hour after midnight"
    assert [as_number(row[0]) for row in rows] == list(range(100, 131))
    np.testing.assert_allclose([as_number(row[2]) for row in rows], readings(1)[100:131, BUSES], rtol=1e-5)
    titles, rows = numbers(browser, 1)
    assert [title.split(": ")[1] for title in titles[2:]] == ["lowest", "5 %", "median", "95 %", "highest"]
    expected = np.percentile(readings(1)[100:131, :BUSES], (0, 5, 50, 95, 100), axis=1).T
    found = [[as_number(one) for one in row[2:]] for row in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert captions(browser)[1].endswith("Limits 0.95 and 1.05 p.u. (dashed).")
    assert browser.errors() == []


def test_zooming_by_keys_asks_for_more_detail_and_is_kept_in_the_address(
    browser: Browser, serve: Serve, source: Source
) -> None:
    open_time(browser, serve(source), query="?phases=0&panel=grid.bus-3.vm_pu&panel=grid.line-7.loading")
    assert "of 5,000 points of a line are drawn" in captions(browser)[0]
    browser.js("document.querySelector('.chart').focus()")
    press = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))"
    for _ in range(4):
        browser.js(press, "+")
    browser.wait("!document.querySelector('figure .note').textContent.includes('drawn')")
    # a sixteenth of 0 to 4999, about the middle
    assert browser.js("location.hash").endswith("from=2343.28125&to=2655.71875")
    for place, column in ((0, 3), (1, BUSES)):
        _, rows = numbers(browser, place)
        assert [as_number(row[0]) for row in rows] == list(range(2344, 2656))
        np.testing.assert_allclose(
            [as_number(row[2]) for row in rows], readings(0)[2344:2656, column], rtol=1e-5
        )
    asked = browser.js(
        "performance.getEntriesByType('resource').map((one) => one.name).filter((one) => /start=/.test(one))"
    )
    assert len(asked) >= 1
    assert "start=2343" in asked[-1]
    browser.js(press, "ArrowRight")
    browser.wait("location.hash.includes('from=2421')")
    browser.js(press, "0")
    browser.wait("!location.hash.includes('from')")
    browser.wait("document.querySelector('figure .note').textContent.includes('drawn')")
    assert browser.errors() == []


def test_drawing_over_a_panel_zooms_all_panels_and_a_double_click_shows_all(
    browser: Browser, serve: Serve, source: Source
) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    open_time(browser, serve(source), query="?phases=0&panel=grid.bus-3.vm_pu&panel=grid.line-7.loading")
    canvas = browser.driver.find_element(By.CSS_SELECTOR, ".chart")
    drag = ActionChains(browser.driver).move_to_element_with_offset(canvas, -200, -20).click_and_hold()
    drag.move_by_offset(150, 10).move_by_offset(150, 0).release().perform()
    browser.wait("location.hash.includes('from=')")
    shown = (
        "[...document.querySelectorAll('.chart')].map((one) => {"
        " const z = echarts.getInstanceByDom(one).getOption().dataZoom[0]; return [z.startValue, z.endValue]; })"
    )
    (first, second) = browser.js(shown)
    assert first == pytest.approx(second)
    day = 86_400_000
    # 300 of some 1,150 pixels of 52 days
    assert 10 * day < first[1] - first[0] < 16 * day
    ActionChains(browser.driver).move_to_element(canvas).double_click().perform()
    browser.wait("!location.hash.includes('from=')")
    (first, second) = browser.js(shown)
    assert first == second
    assert first[1] - first[0] == (TICKS - 1) * 900_000
    assert browser.errors() == []


def test_phases_and_panels_are_chosen_and_a_link_shows_the_same(
    browser: Browser, serve: Serve, source: Source
) -> None:
    start = serve(source)
    open_time(browser, start)
    browser.js("document.getElementById('phase-0').click()")
    browser.wait(
        "/passive/.test(document.querySelector('figure .chart').ariaLabel) || location.hash.includes('phases=0%2C1')"
    )
    browser.js("document.getElementById('pattern').value = 'grid.line-*.loading'")
    browser.js("document.querySelector('form.adding button').click()")
    browser.wait("document.querySelectorAll('.time-panels section').length === 4")
    browser.js("document.querySelector('.time-panels section button').click()")
    browser.wait("document.querySelectorAll('.time-panels section').length === 3")
    link = browser.js("location.href")
    browser.open(link)
    browser.wait("document.querySelectorAll('.time-panels canvas').length === 3")
    headings = browser.js("[...document.querySelectorAll('.time-panels h2')].map((one) => one.textContent)")
    assert headings == ["setpoint.grid.sgen-*.q_mvar", "objective", "grid.line-*.loading"]
    assert "Right axis: attacker: grid.sgen-8.q_mvar." in captions(browser)[0]
    titles, rows = numbers(browser, 2)
    assert titles[2:] == ["passive · grid.line-7.loading", "attacked · grid.line-7.loading"]
    first = next([row[2], row[3]] for row in rows if row[0] == "0")
    np.testing.assert_allclose(
        [as_number(one) for one in first], [readings(k)[0, BUSES] for k in (0, 1)], rtol=1e-5
    )
    options = browser.js(
        "(() => { const o = echarts.getInstanceByDom(document.querySelector('.chart')).getOption();"
        " return [o.yAxis.length, o.series.filter((s) => s.yAxisIndex === 1).length, o.series.length]; })()"
    )
    assert options == [2, 2, 18]
    assert browser.errors() == []


def test_the_page_fits_a_phone(browser: Browser, serve: Serve, source: Source) -> None:
    browser.resize(390, 800)
    try:
        open_time(browser, serve(source), query="?phases=0,1")
        assert browser.js("document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.resize(1280, 900)


def test_hostile_names_are_text(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    with Store(tmp_path / "store", create=True) as opened:
        run = opened.begin_run(uid=NASTY, document={}, text="", hash="n", seed=1, version="3.5")
        sensor = ChannelRecord(f"e.{NASTY}{{a|b}}", SPACE, 1)
        phase = run.begin_phase(
            *(0, NASTY),
            **{"mode": "train", "workers": 1, "episodes": 1, "controller": "vanilla"},
            **{"environments": [EnvironmentRecord("e", NASTY, {}, [sensor], [], [])], "agents": []},
        )
        for tick in range(3):
            phase.environment("e").append(0, 0, tick, tick, [tick], [], False, False)
        run.finish("finished")
        open_time(browser, serve(Source(opened)), "latest", "?panel=*onerror*")
        titles, rows = numbers(browser, 0)
        assert titles[-1] == f"e.{NASTY}{{a|b}}"
        assert [row[-1] for row in rows] == ["0", "1", "2"]
        assert browser.js("window.planted") is None
        assert browser.errors() == []


def test_a_running_run_grows(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    with Store(tmp_path / "store", create=True) as opened:
        run = opened.begin_run(uid="live", document={}, text="", hash="l", seed=1, version="3.5")
        environment = EnvironmentRecord("grid", "test:Grid", {}, SENSORS, [], [])
        phase = run.begin_phase(
            *(0, "train"),
            **{"mode": "train", "workers": 1, "episodes": 2, "controller": "vanilla"},
            **{"environments": [environment], "agents": []},
        )
        values = readings(0, ticks=60)

        def add(episode: int, first: int, stop: int) -> None:
            stream = phase.environment("grid")
            for tick in range(first, stop):
                stream.append(0, episode, tick, tick, values[tick], [], False, False)
            stream.flush()

        add(0, 0, 20)
        panels = "?panel=grid.line-7.loading&panel=*.vm_pu"
        open_time(browser, serve(Source(opened)), "live", panels)
        assert len(numbers(browser, 0)[1]) == 20
        numbers(browser, 1)
        add(0, 20, 45)
        rows = "document.querySelectorAll('figure details')[{}].querySelectorAll('tbody tr').length === {}"
        browser.wait(rows.format(0, 45))
        found = [as_number(row[-1]) for row in numbers(browser, 0)[1]]
        np.testing.assert_allclose(found, values[:45, BUSES], rtol=1e-5)
        found = [as_number(row[-1]) for row in numbers(browser, 1)[1]]
        np.testing.assert_allclose(found, values[:45, :BUSES].max(axis=1), rtol=1e-5)
        add(1, 0, 5)
        browser.wait("document.getElementById('episode')?.placeholder === 'last (1)'")
        assert len(numbers(browser, 0)[1]) == 5
        run.finish("finished")
        assert browser.errors() == []


def test_one_file_shows_what_it_carries(browser: Browser, dummy: Source, tmp_path: Path) -> None:
    carried = {name: get(dummy, name) for name in ("run/latest", "run/latest/time")}
    for phase in ("0", "1"):
        asked = {"phases": phase}
        carried[address("run/latest/series", asked)] = get(dummy, "run/latest/series", asked)
    page = tmp_path / "run.html"
    page.write_text(single_file("A run", "#/run/latest/time", carried))
    browser.open(page.as_uri())
    browser.wait("document.querySelectorAll('.time-panels canvas').length === 3")
    assert len(numbers(browser, 2)[1]) == dummy.store.steps("latest", 1)["time"].nunique()
    browser.js("document.getElementById('phase-0').click()")
    browser.wait("document.getElementById('phase-0').checked && location.hash.includes('phases=0%2C1')")
    # both phases, laid over one another
    browser.wait("document.querySelector('.time-panels').textContent.includes('Phases by colour')")
    browser.js("document.getElementById('phase-1').click()")
    browser.wait("!document.querySelector('.time-panels').textContent.includes('Phases by colour')")
    expected = dummy.store.steps("latest", 0, episode=2)["time"].nunique()
    assert len(numbers(browser, 2)[1]) == expected
    assert browser.errors() == []
