"""What agents do: actions, distance from doing nothing, and deviations, against figures computed by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import Browser
from support.records import one_body

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import ChannelRecord, EnvironmentRecord, Store
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.resources import ResourceError, Source

from .conftest import Serve

NAN = math.nan
#: reactive powers of two inverters, within -2 to 2 and -1 to 3 Mvar, and the scaling of a load, within 0 to 2
FIRST = ChannelRecord("grid.sgen-0.q_mvar", "Box(low=-2.0, high=2.0, shape=(), dtype=float64)", 1)
SECOND = ChannelRecord("grid.sgen-1.q_mvar", "Box(low=-1.0, high=3.0, shape=(), dtype=float64)", 1)
LOAD = ChannelRecord("grid.load-0.scaling", "Box(low=0.0, high=2.0, shape=(), dtype=float64)", 1)
FREE = ChannelRecord("grid.extra", "Box(low=-inf, high=inf, shape=(), dtype=float64)", 1)
SENSOR = ChannelRecord("grid.bus-0.vm_pu", "Box(low=0.0, high=2.0, shape=(), dtype=float64)", 1)
#: phase -> set-points of "a" (both inverters) and of "b" (second inverter, load, and one without bounds)
STEPS: dict[str, tuple[list[list[float]], list[list[float]]]] = {
    "idle": ([[NAN, NAN]] * 3, [[NAN, NAN, NAN]] * 3),
    "acting": (
        [[2.0, 0.0], [NAN, 3.0], [0.0, 0.0]],
        [[0.0, 1.0, 0.0], [3.0, 2.0, 5.0], [2.0, 0.0, -10.0]],
    ),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    with Store(tmp_path_factory.mktemp("agents"), create=True) as store:
        run = store.begin_run(uid="acts", document={}, text="", hash="acts", seed=1, version="3.5")
        for number, (name, rows) in enumerate(STEPS.items()):
            environment = EnvironmentRecord(
                "grid", "test:Grid", {}, [SENSOR], [FIRST, SECOND, LOAD, FREE], []
            )
            agents = [
                one_body("a", sensors=[SENSOR], actuators=[FIRST, SECOND], rewards=[]),
                one_body("b", sensors=[SENSOR], actuators=[SECOND, LOAD, FREE], rewards=[]),
                one_body("watcher", sensors=[SENSOR], actuators=[], rewards=[]),
            ]
            phase = run.begin_phase(
                *(number, name),
                **{"mode": "test", "workers": 1, "episodes": 1, "controller": "vanilla"},
                **{"environments": [environment], "agents": agents},
            )
            reading = np.ones(1)
            for step in range(3):
                time = 10 * step
                phase.environment("grid").append(0, 0, step, time, reading, [], False, False)
                for agent, values in zip("ab", rows, strict=True):
                    setpoints = np.array(values[step])
                    phase.agent(agent).append(
                        0, 0, step, time, reading, setpoints, [], 0.0, False, False, 0.0
                    )
                phase.agent("watcher").append(
                    0, 0, step, time, reading, np.empty(0), [], 0.0, False, False, 0.0
                )
            phase.finish("episodes")
        run.finish("finished")
        yield Source(store)


def agent(source: Source, **query: object) -> Any:
    return get(source, "run/acts/agent", {name: str(value) for name, value in query.items()})


def test_neutral_values_and_ranges_are_those_of_the_spaces(source: Source) -> None:
    answer = agent(source)
    assert answer["neutral"] == {
        "grid.sgen-0.q_mvar": 0.0,
        "grid.sgen-1.q_mvar": 0.0,
        "grid.load-0.scaling": 1.0,
        "grid.extra": 0.0,
    }
    # without bounds, the range is the largest distance from 0 in all phases
    assert answer["range"] == {
        "grid.sgen-0.q_mvar": 4.0,
        "grid.sgen-1.q_mvar": 4.0,
        "grid.load-0.scaling": 2.0,
        "grid.extra": 10.0,
    }


def test_distances_from_doing_nothing(source: Source) -> None:
    answer = agent(source)
    series = {(entry["phase"], entry["agent"]): entry for entry in answer["series"]}
    # an agent without actuators does nothing that could be shown
    assert set(series) == {(0, "a"), (0, "b"), (1, "a"), (1, "b")}
    idle, first, second = series[0, "a"], series[1, "a"], series[1, "b"]
    assert idle["distance"].tolist() == [0, 0, 0] and idle["set"] == 0 and idle["largest"] == 0
    assert first["x"].tolist() == [0, 10, 20]
    # sqrt(((2/4)^2 + 0) / 2), sqrt((0 + (3/4)^2) / 2), 0
    assert first["distance"] == pytest.approx([math.sqrt(1 / 8), math.sqrt(9 / 32), 0])
    assert first["norm"] == pytest.approx([2, 3, 0]) and first["unit"] == "Mvar"
    assert first["set"] == pytest.approx(5 / 6)
    assert (first["at"], first["largest"]) == (10, pytest.approx(math.sqrt(9 / 32)))
    assert first["mean"] == pytest.approx((math.sqrt(1 / 8) + math.sqrt(9 / 32)) / 3)
    # shares: (0, 0, 0), (3/4, 1/2, 1/2), (1/2, -1/2, -1)
    expected = [0, math.sqrt((9 / 16 + 1 / 4 + 1 / 4) / 3), math.sqrt((1 / 4 + 1 / 4 + 1) / 3)]
    assert second["distance"] == pytest.approx(expected)
    assert second["norm"] is None and second["unit"] is None


def test_bands_of_actions_by_unit(source: Source) -> None:
    series = {(entry["phase"], entry["agent"]): entry for entry in agent(source)["series"]}
    (band,) = series[1, "a"]["bands"]
    assert (band["unit"], band["count"], band["low_bound"]) == ("Mvar", 2, None)
    assert band["min"] == pytest.approx([0, 3, 0]) and band["max"] == pytest.approx([2, 3, 0])
    assert band["median"] == pytest.approx([1, 3, 0])
    assert [line["uid"] for line in band["lines"]] == ["grid.sgen-0.q_mvar", "grid.sgen-1.q_mvar"]
    np.testing.assert_array_equal(band["lines"][0]["y"], [2, NAN, 0])
    units = {band["unit"]: band for band in series[1, "b"]["bands"]}
    assert units["Mvar"]["low_bound"] == -1 and units["Mvar"]["high_bound"] == 3


def test_deviations_of_agents_and_of_phases(source: Source) -> None:
    answer = agent(source)
    names = [(entry["phase"], entry["agent"]) for entry in answer["series"]]
    pairs = {(names[entry["first"]], names[entry["second"]]): entry for entry in answer["deviations"]}
    assert set(pairs) == {
        ((0, "a"), (0, "b")),
        ((0, "a"), (1, "a")),
        ((0, "b"), (1, "b")),
        ((1, "a"), (1, "b")),
    }
    # both have the second inverter: 0 and 0, 3 and 3, 0 and 2 of a range of 4
    shared = pairs[(1, "a"), (1, "b")]
    assert shared["actuators"] == 1 and shared["distance"] == pytest.approx([0, 0, 0.5])
    assert (shared["since"], shared["spans"], shared["share"]) == (20, [[20, 20]], pytest.approx(1 / 3))
    # an idle phase is the neutral value, so the deviation is the distance from doing nothing
    own = pairs[(0, "a"), (1, "a")]
    assert own["distance"] == pytest.approx([math.sqrt(1 / 8), math.sqrt(9 / 32), 0])
    assert (own["since"], own["spans"], own["at"]) == (0, [[0, 10]], 10)
    assert agent(source, tolerance=0.4)["deviations"][1]["spans"] == [[10, 10]]


def test_queries_select_and_refuse(source: Source) -> None:
    (entry,) = agent(source, phases=1)["phases"]
    assert (entry["phase"], entry["name"], entry["last"]) == (1, "acting", 0)
    swapped = agent(source, reference=1)
    names = [(entry["phase"], entry["agent"]) for entry in swapped["series"]]
    firsts = {names[entry["first"]][0] for entry in swapped["deviations"] if names[entry["first"]][1] == "a"}
    assert firsts == {0, 1}
    own = [e for e in swapped["deviations"] if names[e["second"]] == (0, "a")]
    assert [names[e["first"]] for e in own] == [(1, "a")]
    window = agent(source, phases=1, start=10, stop=20)
    assert window["series"][0]["x"].tolist() == [10]
    for query in ({"tolerance": "x"}, {"tolerance": -1}, {"reference": 5}, {"phases": "9"}):
        with pytest.raises(ResourceError):
            agent(source, **query)
    with pytest.raises(StoreError, match="no episode 3"):
        agent(source, episode=3)


def test_a_run_without_rows_has_no_actions(tmp_path: Path) -> None:
    with Store(tmp_path / "empty", create=True) as store:
        store.begin_run(uid="acts", document={}, text="", hash="h", seed=1, version="3.5").finish("finished")
        answer = agent(Source(store))
        assert answer["series"] == answer["deviations"] == answer["phases"] == []


def test_the_tab_shows_distances_and_deviations(browser: Browser, serve: Serve, source: Source) -> None:
    assert "agent" in get(source, "run/acts")["views"]  # type: ignore[index]
    start = serve(source)
    browser.open(start)
    browser.open(start.split("?", maxsplit=1)[0] + "#/run/acts/agent?tolerance=0.4")
    browser.wait("document.querySelectorAll('.view figure canvas').length === 6")
    distances, deviations = (f"document.querySelectorAll('.view .scroll > table')[{n}]" for n in (0, 1))
    rows = {(row["phase"], row["agent"]): row for row in browser.rows(distances)}
    assert set(rows) == {("idle", "a"), ("idle", "b"), ("acting", "a"), ("acting", "b")}
    # sqrt(9/32) at 10, and 5 of 6 set-points
    assert [rows["acting", "a"][name] for name in ("set", "largest", "at")] == ["83.3 %", "0.53", "10"]
    assert [rows["idle", "a"][name] for name in ("set", "largest")] == ["0 %", "0"]
    pairs = {(row["what"], row["deviates from"]): row for row in browser.rows(deviations)}
    own, shared = pairs["a in acting", "a in idle"], pairs["b in acting", "a in acting"]
    assert (own["ticks above 0.4"], own["the first at"]) == ("33.3 %", "10")
    assert (shared["common actuators"], shared["the first at"], shared["largest"]) == ("1", "20", "0.5")
    # other choices are in the address
    browser.js(
        "(one => { one.value = '1'; one.dispatchEvent(new Event('change')); })"
        "(document.getElementById('reference'))"
    )
    browser.wait("document.querySelector('.view').textContent.includes('a in idlea in acting')")
    browser.wait("location.hash === '#/run/acts/agent?reference=1&tolerance=0.4'")
    assert browser.errors() == []
