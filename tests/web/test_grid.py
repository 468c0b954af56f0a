"""The grid in motion: what is drawn is what the store has."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import Browser, dark
from support.live_runs import running
from support.small_grid import HOSTILE, small_grid_document
from support.waiting import until

import palaestrai_mosaik as pm
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import Edge, Node, Topology
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.data.grid import motion
from palaestrai_mosaik.web.encoding import compact
from palaestrai_mosaik.web.layout import SIZE, positions
from palaestrai_mosaik.web.resources import Query, Source

from .conftest import Serve

# the colours of a scale have steps of about a thousandth of a p.u.
STEP = 0.002


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("store")
    pm.run(small_grid_document(), store=folder, quiet=True)
    pm.run(small_grid_document("longer", steps=20), store=folder, quiet=True)
    return Source(Store(folder, read_only=True))


def voltages(source: Source, phase: str, run: str = "small") -> np.ndarray[Any, Any]:
    states = source.store.environment_states(run, phase, "net")
    return states[[f"reading.net.bus-{k}.vm_pu" for k in range(5)]].to_numpy()


def show(browser: Browser, serve: Serve, source: Source, query: str = "", run: str = "small") -> None:
    start = serve(source)
    browser.open(start)
    browser.open(f"{start.split('?')[0]}#/run/{run}/grid{query}")
    browser.wait("document.querySelector('.node[fill]')")


def set_state(browser: Browser, state: int) -> None:
    browser.driver.execute_script(
        "const s = document.querySelector('input[type=range]'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('input'))",
        state,
    )


def choose(browser: Browser, label: str, value: str) -> None:
    browser.driver.execute_script(
        "const s = document.querySelector(`[aria-label='${arguments[0]}']`); s.value = arguments[1];"
        "s.dispatchEvent(new Event('change'))",
        label,
        value,
    )


def drawn_voltages(browser: Browser, side: int = 0) -> list[float | None]:
    """Turn the colours of the buses back into voltages with the scale of the legend; ``None``: no colour."""
    scale: list[Any] = browser.js(
        "[...document.querySelector('.scale').querySelectorAll('stop')]"
        ".map((s) => [Number(s.dataset.value), s.getAttribute('stop-color')])"
    )
    stops = [(value, np.array(_rgb(text))) for value, text in scale]
    fills = browser.js(
        f"[...document.querySelectorAll('.topology')[{side}].querySelectorAll('.node')].map((n) => n.getAttribute('fill'))"
    )
    return [None if fill == "none" else _value(np.array(_rgb(fill)), stops) for fill in fills]


def _rgb(text: str) -> list[int]:
    return [int(one) for one in re.findall(r"\d+", text)]


def _value(rgb: np.ndarray[Any, Any], stops: list[tuple[float, np.ndarray[Any, Any]]]) -> float:
    found = []
    for (low, first), (high, last) in pairwise(stops):
        along = last - first
        share = float(np.clip(np.dot(rgb - first, along) / np.dot(along, along), 0, 1))
        found.append((float(np.abs(first + share * along - rgb).max()), low + share * (high - low)))
    return min(found)[1]


def lines(browser: Browser) -> dict[str, str]:
    """Return the class of each line."""
    pairs: list[tuple[str, str]] = browser.js(
        "[...document.querySelectorAll('.topology g[data-part^=\"edge:\"] > path.edge')]"
        ".map((e) => [e.parentElement.dataset.part.slice(5), e.getAttribute('class')])"
    )
    return dict(pairs)


# ----- data


def test_motion_is_what_the_store_has(source: Source) -> None:
    query = Query({"environment": "net", "phase": "1", "worker": "0", "episode": "0"})
    found = motion(source, "small", query, 1_000_000)
    shown = found["readings"]["values"].reshape(13, -1)
    np.testing.assert_array_equal(shown[:, :5], voltages(source, "high"))
    steps = source.store.steps("small", "high", "operator")["setpoint.net.sgen-0.q_mvar"].to_numpy()
    place = found["setpoints"]["uids"].index("net.sgen-0.q_mvar")
    setpoints = found["setpoints"]["values"].reshape(13, -1)[:, place]
    # a state shows the set-points that led to it: the first one has none
    assert np.isnan(setpoints[0])
    np.testing.assert_array_equal(setpoints[1:], steps)
    assert (found["setpoints"]["low"][place], found["setpoints"]["high"][place]) == (-2.0, 2.0)
    assert [found["agents"][i] for i in found["setpoints"]["agent"]] == ["operator", "operator"]


def test_the_worst_state_is_the_one_of_numpy(source: Source) -> None:
    for phase, name in ((0, "calm"), (1, "high")):
        found: Any = get(source, "run/small/motion", {"environment": "net", "phase": str(phase)})
        values = voltages(source, name)
        values = np.where(values > 0, values, 1.0)  # (a bus without voltage is none with a bad one)
        index, bus = np.unravel_index(np.abs(values - 1).argmax(), values.shape)
        worst = found["worst"]
        assert (worst["index"], worst["node"]) == (index, f"bus-{bus}")
        assert worst["value"] == values[index, bus]
        assert worst["outside"] is bool(abs(values[index, bus] - 1) > 0.05)


def test_a_long_episode_is_thinned_and_keeps_its_worst_state(source: Source) -> None:
    query = Query({"environment": "net", "phase": "1"})
    whole, few = (motion(source, "longer", query, most) for most in (1_000_000, 60))
    assert few["states"] == len(whole["step"]) == 21 > len(few["step"])
    assert few["step"][few["worst"]["index"]] == whole["worst"]["index"]
    assert few["step"][-1] == 20
    width = len(few["readings"]["uids"])
    np.testing.assert_array_equal(
        few["readings"]["values"].reshape(-1, width),
        whole["readings"]["values"].reshape(-1, width)[few["step"]],
    )


def test_the_index_names_phases_with_the_same_topology_once(source: Source) -> None:
    found: Any = get(source, "run/small/grid")
    assert found["environments"] == [{"environment": "net", "incarnations": 1, "topologies": {0: 0, 1: 0}}]
    assert [one["name"] for one in found["phases"]] == ["calm", "high"]
    assert found["phases"][0]["episodes"] == [{"worker": 0, "episode": 0, "evaluation": False}]
    assert not found["running"]


def test_a_copy_of_a_batched_environment_has_its_own_states(tmp_path: Path) -> None:
    pytest.importorskip("pandapower", reason="the grid needs the extra 'grid'")
    grid = {"grid": "cigre_mv", "batch": 2, "start": "2016-06-01", "spread": 5, "steps": 8}
    grid |= {"sensors": ["bus.vm_pu"], "actuators": ["sgen.q_mvar"]}
    body = {"environment": "grid", "count": 2}
    body |= {"sensors": ["grid.{body}.bus-*.vm_pu"], "actuators": ["grid.{body}.sgen-*.q_mvar"]}
    phase = {
        "environments": [{"environment": {"uid": "grid", "name": "batch_grid", "params": grid}}],
        "agents": [{"name": "both", "muscle": "random", "bodies": [body]}],
        "simulation": {
            "name": "vanilla",
            "conditions": [{"name": "environment", "params": {"when": "all"}}],
        },
        "phase_config": {"mode": "test", "episodes": 1},
    }
    pm.run({"uid": "copies", "seed": 1, "schedule": [{"only": phase}]}, store=tmp_path, quiet=True)
    store = Store(tmp_path, read_only=True)
    index: Any = get(Source(store), "run/copies/grid")
    assert index["environments"] == [{"environment": "grid", "incarnations": 2, "topologies": {0: 0}}]
    query = Query({"environment": "grid", "phase": "0", "incarnation": "1"})
    found = motion(Source(store), "copies", query, 1_000_000)
    for name, frame, first in (
        ("readings", store.environment_states("copies", 0, "grid", incarnation=1), 0),
        ("setpoints", store.steps("copies", 0, "both", body=1), 1),
    ):
        shown = found[name]["values"].reshape(len(found["step"]), -1)[first:]
        prefix = {"readings": "reading", "setpoints": "setpoint"}[name]
        expected = frame[[f"{prefix}.{uid}" for uid in found[name]["uids"]]].to_numpy()
        assert expected.shape[1] > 5
        np.testing.assert_array_equal(shown, expected[: len(shown)])


def test_an_environment_without_a_topology_has_no_such_view(tmp_path: Path) -> None:
    pm.run("scenarios/dummy.yml", store=tmp_path, quiet=True)
    source = Source(Store(tmp_path, read_only=True))
    facts: Any = get(source, "run/latest")
    assert "grid" not in facts["views"]
    with pytest.raises(StoreError, match="has no topology"):
        get(source, "run/latest/topology", {"environment": "myenv"})


# ----- layout


def test_coordinates_are_kept_with_north_above() -> None:
    nodes = (Node("a", x=0.0, y=0.0), Node("b", x=2.0, y=0.0), Node("c", x=0.0, y=1.0), Node("d"))
    found = positions(Topology(nodes, (Edge("d", "d", "b"),)))
    a, b, c, d = found
    assert a[1] == b[1] and a[0] == c[0] and c[1] == 0.0
    assert (b[0] - a[0]) / (a[1] - c[1]) == pytest.approx(2, rel=1e-3)
    # what has no coordinates is drawn beside its neighbour
    assert 0 < np.linalg.norm(d - b) < (b[0] - a[0]) / 2
    assert found.max() == SIZE


@pytest.mark.parametrize("size", [1, 2, 12, 3000])
def test_a_layout_is_the_same_each_time_and_puts_no_two_nodes_at_one_place(size: int) -> None:
    rng = np.random.default_rng(1)
    nodes = tuple(Node(f"n{i}") for i in range(size))
    edges = tuple(Edge(f"e{i}", f"n{i}", f"n{rng.integers(0, i)}") for i in range(1, size))
    drawn = Topology(nodes, edges)
    first = positions(drawn).copy()
    positions.cache_clear()
    np.testing.assert_array_equal(first, positions(drawn))
    assert first.shape == (size, 2) and np.isfinite(first).all()
    assert len(np.unique(first, axis=0)) == size


# ----- numbers in few bytes


def test_compact_numbers_keep_six_digits_and_what_is_missing() -> None:
    rng = np.random.default_rng(2)
    values = np.column_stack([rng.normal(1, 0.01, 50).cumsum(), np.zeros(50), rng.normal(0, 1e-5, 50)])
    values = np.column_stack([values, values[:, 0]])
    values[:3, 2] = np.nan
    found = compact(values)
    assert len(found["quantum"]) == 3  # the first column is also the last one
    planes = [np.asarray(plane, dtype=np.int64).reshape(3, 50) for plane in found["planes"]]
    coded = sum(plane << (8 * i) for i, plane in enumerate(planes))
    changes = np.where(coded % 2 == 1, -(coded + 1) // 2, coded // 2)
    columns = changes.cumsum(axis=1) * np.array(found["quantum"])[:, None]
    columns[np.asarray(found["missing"]).reshape(3, 50) == 1] = np.nan
    again = columns[found["of"]].T
    np.testing.assert_array_equal(np.isnan(again), np.isnan(values))
    allowed = 1e-6 * np.nanmax(np.abs(values), axis=0)
    assert (np.nan_to_num(np.abs(again - values)) <= allowed).all()


# ----- the browser


@pytest.mark.parametrize("night", [False, True])
def test_colours_are_the_voltages_of_the_store(
    browser: Browser, serve: Serve, source: Source, night: bool
) -> None:
    dark(browser, night)
    try:
        show(browser, serve, source, "?at=1.0.0")
        expected = voltages(source, "high")
        for state in (0, 3, 6, 12):
            set_state(browser, state)
            shown = drawn_voltages(browser)
            for value, wanted in zip(shown, expected[state], strict=True):
                if wanted == 0:
                    assert value is None
                else:
                    assert value == pytest.approx(np.clip(wanted, 0.9, 1.1), abs=STEP)
        assert browser.errors() == []
    finally:
        dark(browser, False)


def test_shapes_and_dashes_say_what_is_wrong(browser: Browser, serve: Serve, source: Source) -> None:
    show(browser, serve, source, "?at=1.0.0")
    set_state(browser, 1)
    assert lines(browser)["line-4"] == "edge off"  # (never in service)
    assert lines(browser)["line-2"] == "edge"
    nodes = "[...document.querySelectorAll('.node')].map((n) => n.getAttribute('class'))"
    outside = voltages(source, "high")[1] > 1.05
    assert browser.js(nodes) == ["node outside" if one else "node" for one in outside]
    set_state(browser, 6)  # the agent opened the line in steps 4 to 6
    assert lines(browser)["line-2"] == "edge off"
    assert browser.js(nodes)[3] == "node dead"
    set_state(browser, 8)
    assert lines(browser)["line-2"] == "edge"
    dash = "getComputedStyle(document.querySelector('.edge.off')).strokeDasharray"
    assert browser.js(dash) != "none"


def test_bars_are_the_set_points_within_their_bounds(browser: Browser, serve: Serve, source: Source) -> None:
    show(browser, serve, source, "?at=0.0.0")
    setpoints = source.store.steps("small", "calm")["setpoint.net.sgen-0.q_mvar"]
    for state in (4, 8):
        set_state(browser, state)
        height = float(
            browser.js(
                "document.querySelector('.bar[data-uid=\"net.sgen-0.q_mvar\"]').getAttribute('height')"
            )
        )
        # between -2 and 2, from 0 on
        assert height == pytest.approx(setpoints[state - 1] / 4)
    assert browser.js("document.querySelector('.legends .agent').textContent") == "O operator"
    letters = browser.js("[...document.querySelectorAll('.device .letter')].map((one) => one.textContent)")
    assert letters == ["O", "~", "O"]  # the inverter, the grid behind bus 0, the switched line


def test_the_worst_state_is_found_and_said(browser: Browser, serve: Serve, source: Source) -> None:
    show(browser, serve, source, "?at=1.0.0")
    browser.js(
        "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Worst state').click()"
    )
    assert browser.js("Number(document.querySelector('input[type=range]').value)") == 8
    said = browser.js("document.querySelector('.note').textContent")
    assert "(bus-4): 1.1091 p.u., outside of 0.95 to 1.05, tick 8." in said


def test_the_player_plays_and_keys_step(browser: Browser, serve: Serve, source: Source) -> None:
    from selenium.webdriver.common.keys import Keys

    show(browser, serve, source)
    place = "Number(document.querySelector('input[type=range]').value)"
    body = browser.driver.find_element("css selector", "body")
    for key, wanted in ((Keys.ARROW_RIGHT, 1), (Keys.END, 12), (Keys.ARROW_LEFT, 11), (Keys.HOME, 0)):
        body.send_keys(key)
        assert browser.js(place) == wanted
    choose(browser, "Speed", "50")
    body.send_keys(" ")
    browser.wait(f"{place} === 12")
    assert browser.wait("document.querySelector('[aria-label=Play]')")  # it stands still at the end
    assert "tick 12" in browser.js("document.querySelector('.moment').textContent")


def test_pointing_at_a_bus_shows_its_values(browser: Browser, serve: Serve, source: Source) -> None:
    show(browser, serve, source, "?at=1.0.0")
    set_state(browser, 2)
    browser.driver.execute_script(
        "document.querySelector('[data-part=\"node:bus-2\"]').dispatchEvent("
        "new PointerEvent('pointerover', { bubbles: true }))"
    )
    values = voltages(source, "high")[:, 2]
    assert f"{values[2]:.6g} p.u." in browser.js("document.querySelector('.part').textContent")
    browser.js("document.querySelector('aside details.numbers').setAttribute('open', '')")
    cells = "[...document.querySelectorAll('aside tbody tr')].map((row) => row.lastChild.textContent)"
    browser.wait(f"{cells}.length === 13")
    assert [float(text) for text in browser.js(cells)] == pytest.approx(values.tolist(), rel=1e-5)
    # and by keyboard: to the next part in the drawing
    from selenium.webdriver.common.keys import Keys

    drawing = browser.driver.find_element("css selector", ".topology")
    drawing.send_keys(Keys.PAGE_DOWN)
    assert browser.js("document.querySelector('.part h2').textContent") == "Bus 3 (bus-3)"


def test_the_table_has_the_numbers_of_the_state(browser: Browser, serve: Serve, source: Source) -> None:
    show(browser, serve, source, "?at=1.0.0")
    set_state(browser, 5)
    browser.js("document.querySelector('details.values summary').click()")
    rows = "[...document.querySelectorAll('details.values table')[arguments[0]].querySelectorAll('tbody tr')]"
    cells = f"{rows}.map((row) => [...row.children].map((cell) => cell.textContent))"
    browser.wait("document.querySelectorAll('details.values table').length === 3")
    buses = browser.js(cells, 0)
    assert [float(row[1]) for row in buses] == pytest.approx(voltages(source, "high")[5].tolist(), rel=1e-5)
    assert buses[3][2] == "without voltage"
    edges = browser.js(cells, 1)
    assert [row[2] for row in edges] == ["", "", "switched off", "above 100 %", "switched off"]
    assert (
        "set in_service 0" in browser.js(cells, 2)[0][1] or "set q_mvar 1 Mvar" in browser.js(cells, 2)[0][1]
    )


def test_two_phases_and_two_runs_go_in_step(browser: Browser, serve: Serve, source: Source) -> None:
    show(browser, serve, source, "?at=0.0.0&beside=1.0.0")
    browser.wait("document.querySelectorAll('.topology').length === 2")
    set_state(browser, 10)
    for side, phase in enumerate(("calm", "high")):
        expected = np.clip(voltages(source, phase)[10], 0.9, 1.1).tolist()
        assert drawn_voltages(browser, side) == pytest.approx(expected, abs=STEP)
    choose(browser, "Another run beside it", "longer")
    browser.wait("document.querySelectorAll('.drawings h2')[1]?.textContent.startsWith('longer: high')")
    assert browser.js("Number(document.querySelector('input[type=range]').max)") == 20
    set_state(browser, 18)
    # the shorter episode stays at its last state
    expected = np.clip(voltages(source, "calm")[12], 0.9, 1.1).tolist()
    assert drawn_voltages(browser, 0) == pytest.approx(expected, abs=STEP)
    expected = np.clip(voltages(source, "high", "longer")[18], 0.9, 1.1).tolist()
    assert drawn_voltages(browser, 1) == pytest.approx(expected, abs=STEP)
    # the address leads back to it
    assert "other=longer" in browser.js("location.hash")
    assert browser.errors() == []


def test_the_problem_of_another_run_goes_with_its_name(
    browser: Browser, serve: Serve, source: Source
) -> None:
    show(browser, serve, source)
    choose(browser, "Another run beside it", "nonsense")
    assert "no run 'nonsense'" in browser.wait("document.querySelector('main .problem')?.textContent")
    choose(browser, "Another run beside it", "")
    browser.wait("!document.querySelector('main .problem')")
    browser.errors()


def test_a_running_episode_grows_and_is_followed(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    document = small_grid_document("live", steps=100_000, seconds=0.02)
    with running(from_mapping(document), tmp_path):
        source = Source(Store(tmp_path, read_only=True))
        until(lambda: len(source.store.environment_states("live", columns=[])))
        show(browser, serve, source, run="live")
        length = "Number(document.querySelector('input[type=range]').max)"
        before = browser.js(length)
        browser.wait(f"{length} > {before}")
        place = "Number(document.querySelector('input[type=range]').value)"
        browser.wait(f"{place} === {length}")
        state = browser.js(place)
        expected = np.clip(voltages(source, "calm", "live")[state], 0.9, 1.1).tolist()
        assert drawn_voltages(browser) == pytest.approx(expected, abs=STEP)
        # whoever does not follow stays where they are
        browser.js("document.querySelector('input[type=checkbox]').click()")
        set_state(browser, 1)
        before = browser.js(length)
        browser.wait(f"{length} > {before}")
        assert browser.js(place) == 1
    assert browser.errors() == []


def test_the_drawing_zooms_and_moves(browser: Browser, serve: Serve, source: Source) -> None:
    show(browser, serve, source)
    seen = "document.querySelector('.topology').getAttribute('viewBox')"
    whole = browser.js(seen)
    browser.js("document.querySelector('[aria-label=\"Zoom in\"]').click()")
    assert float(browser.js(seen).split()[2]) < float(whole.split()[2])
    browser.js("document.querySelector('.zooms button:last-child').click()")
    assert browser.js(seen) == whole
    browser.driver.execute_script(
        "document.querySelector('.topology').dispatchEvent(new WheelEvent('wheel', { deltaY: -100, cancelable: true,"
        "clientX: 300, clientY: 500 }))"
    )
    assert float(browser.js(seen).split()[2]) < float(whole.split()[2])


def test_marks_of_devices_are_not_cut(browser: Browser, serve: Serve, source: Source) -> None:
    for width in (390, 1280):
        browser.resize(width, 800)
        show(browser, serve, source)
        outside = browser.js(
            "[...document.querySelectorAll('.topology .device')].filter((one) => { const own = one.getBoundingClientRect(),"
            " all = one.ownerSVGElement.getBoundingClientRect(); return own.left < all.left || own.right > all.right"
            " || own.top < all.top || own.bottom > all.bottom; }).map((one) => one.dataset.part)"
        )
        assert outside == []
    assert "device without an agent" not in browser.js("document.querySelector('.legends').textContent")


def test_hostile_names_are_text(browser: Browser, serve: Serve, source: Source) -> None:
    show(browser, serve, source)
    choose(browser, "Show the values of", "node:bus-4")
    assert browser.wait("document.querySelector('.part h2').textContent") == f"{HOSTILE} (bus-4)"
    browser.js("document.querySelector('details.values summary').click()")
    assert browser.js("window.planted") is None
    assert browser.js("document.querySelectorAll('main img, main script').length") == 0
    assert browser.errors() == []


def test_a_phone_shows_it_without_sideways_scrolling(browser: Browser, serve: Serve, source: Source) -> None:
    browser.resize(390, 800)
    try:
        show(browser, serve, source, "?at=0.0.0&beside=1.0.0")
        browser.wait("document.querySelectorAll('.topology').length === 2")
        choose(browser, "Show the values of", "node:bus-4")
        browser.js("document.querySelector('details.values summary').click()")
        assert browser.js("document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.resize(1280)
