"""Pictures say what happened: unfinished episodes, returns, extremes, identities, phases of one episode, units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.plot.beside import Beside, moments_beside, rows_beside
from palaestrai_mosaik.plot.colours import SHARED, colour_of, numbers_of, numbers_of_agents
from palaestrai_mosaik.plot.figures import draw_panels, run_figure
from palaestrai_mosaik.plot.learning import LearningChoice, learning_panels
from palaestrai_mosaik.plot.series import Curve, Panel, episode_panels, find_moment, time_panels
from palaestrai_mosaik.store import BodyChoice, ChannelRecord, EnvironmentRecord, Store
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.resources import Source
from tests.support.records import begin, one_body

ALL = BodyChoice()
SPACE = "Box(low=-inf, high=inf, shape=(), dtype=float64)"
BOUNDED = "Box(low={0}, high={1}, shape=(), dtype=float64)"
STEPS = 4


def document(steps: int, phases: int) -> dict[str, Any]:
    """A document that plans so many steps per episode."""
    grid = {
        "environment": {
            "name": "palaestrai_mosaik.environment.dummy:DummyEnvironment",
            "params": {"max_iter": steps},
        }
    }
    return {
        "uid": "r",
        "schedule": [{f"p{i}": {"environments": [grid], "phase_config": {}}} for i in range(phases)],
    }


def record(
    store: Store,
    episodes: Sequence[Sequence[int]],
    *,
    accumulate: bool = False,
    agents: str = "ab",
    ended_by: str = "failed",
    uid: str = "r",
    first: str = "",
) -> str:
    """Record phases with episodes of so many steps; one with fewer than ``STEPS`` was cut short.

    The objective of each step is 1 for the first agent, 2 for the next one, and so on; ``first`` is the agent that
    alone is in phase 0.
    """
    run = begin(store, uid, document=document(STEPS, len(episodes)))
    for index, lengths in enumerate(episodes):
        names = first if first and index == 0 else agents
        environment = EnvironmentRecord(
            "grid",
            "test:Grid",
            sensors=[
                ChannelRecord("grid.load", SPACE, 1, "MWh/d"),
                ChannelRecord("grid.bus-0.vm_pu", SPACE, 1),
            ],
            actuators=[
                ChannelRecord(f"grid.{name}.q_mvar", BOUNDED.format(-0.01 * 100**k, 0.01 * 100**k), 1)
                for k, name in enumerate(names)
            ],
            rewards=[],
            rewards_accumulate=accumulate,
        )
        members = [
            one_body(
                name,
                muscle="M",
                sensors=environment.sensors,
                actuators=[environment.actuators[k]],
                rewards=[],
            )
            for k, name in enumerate(names)
        ]
        phase = run.begin_phase(
            *(index, f"p{index}"), mode="train", workers=1, episodes=len(lengths), controller="vanilla",
            environments=[environment], agents=members,
        )  # fmt: skip
        for episode, steps in enumerate(lengths):
            outcome = {}
            for k, name in enumerate(names):
                value = float(agents.index(name) + 1)
                for step in range(steps):
                    phase.agent(name).append(
                        0, episode, step, step, [1.0, 1.0], [0.01 * 100**k], [], value, False, False, 0.0
                    )
                moments = {"sum": value * steps, "mean": value, "min": value, "max": value}
                outcome[name] = {"objective": moments, "rewards": {}}
            for step in range(steps + 1):
                phase.environment("grid").append(
                    0, episode, step, step, [5.0, 1.0 + index / 100], [], False, False
                )
            reason = "x" if steps == STEPS else ended_by
            phase.episode(
                0,
                episode,
                steps=steps,
                ticks=steps,
                ended_by=reason,
                flow="RESET",
                duration=0.1,
                agents=outcome,
            )
        phase.finish("episodes")
    run.finish("finished")
    return run.uid


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store", create=True) as opened:
        yield opened


@pytest.mark.parametrize("ended_by", ["failed", "interrupted"])
def test_an_unfinished_episode_is_no_point_of_a_curve(store: Store, ended_by: str) -> None:
    run = record(store, [(4, 4, 2)], ended_by=ended_by, accumulate=True)
    (panel,) = episode_panels(store, run, None, ALL, "sum")
    assert [curve.y.tolist() for curve in panel.curves] == [[4.0, 4.0], [8.0, 8.0]]
    (learned, _) = learning_panels(store, [run], LearningChoice())
    assert learned.y_label == "sum of the objective"
    assert learned.curves[0].y[1:].tolist() == [4.0, 4.0]
    page: Any = get(Source(store), f"run/{run}/curves")
    assert [curve["sum"].tolist() for curve in page["curves"]] == [[4.0, 4.0], [8.0, 8.0]]
    assert (page["fold"], page["unfinished"]) == ("sum", [])
    compared: Any = get(Source(store), "compare", {"runs": run})
    assert [row["last_sum"] for row in compared["outcomes"]] == [[4.0], [8.0]]
    assert (store.run_rows().loc[0, "objective"], store.objective_curves([run])[run]) == (4.0, [4.0, 4.0])
    # what was recorded stays
    assert len(store.outcomes(run)) == 6


def test_a_phase_with_nothing_else_shows_its_unfinished_episode_open(store: Store) -> None:
    run = record(store, [(4,), (3,)])
    (panel,) = episode_panels(store, run, None, ALL)
    assert [(curve.label, curve.hollow, curve.identity) for curve in panel.curves] == [
        *(("a", False, 0), ("b", False, 1)),
        *(("a: unfinished, 3 of 4 steps", True, 0), ("b: unfinished, 3 of 4 steps", True, 1)),
    ]
    (axes,) = draw_panels([panel], "t").axes
    assert [
        bar.get_facecolor()[3] for bar in axes.patches if np.isfinite(bar.get_height()) and bar.get_x() > 0.5
    ] == [
        0,
        0,
    ]
    page: Any = get(Source(store), f"run/{run}/curves")
    assert {curve["phase"] for curve in page["curves"]} == {0}
    assert [(item["phase"], item["agent"], item["x"], item["mean"], item["label"], item["colour"]) for item in page["unfinished"]] == [
        (1, "a", 0, 1.0, "unfinished, 3 of 4 steps", 0),
        (1, "b", 0, 2.0, "unfinished, 3 of 4 steps", 1),
    ]  # fmt: skip
    # the list has the objective of the last phase that finished an episode
    assert store.run_rows().loc[0, ["objective", "agent", "fold"]].tolist() == [1.0, "a", "mean"]
    assert "(unfinished, 3 of 4 steps)" in str(find_moment(store, run, 1, None))


@pytest.mark.parametrize(("accumulate", "fold", "value"), [(True, "sum", 4.0), (False, "mean", 1.0)])
def test_the_return_opens_where_rewards_accumulate(
    store: Store, accumulate: bool, fold: str, value: float
) -> None:
    run = record(store, [(4, 4)], accumulate=accumulate)
    assert store.fold(run) == fold
    (axes,) = run_figure(store, run).axes
    assert axes.get_ylabel() == f"{fold} of the objective"
    listed: Any = get(Source(store), "runs")
    texts = {name: listed[name]["texts"][listed[name]["codes"][0]] for name in ("agent", "fold")}
    assert (listed["objective"].tolist(), texts) == ([value], {"agent": "a", "fold": fold})


def test_the_highest_of_many_columns_is_drawn() -> None:
    x = np.arange(96)
    curves = [Curve(f"bus-{i}", x, np.full(96, 1.0 + 0.001 * i)) for i in range(99)]
    curves.append(Curve("worst", x, np.where(x == 40, 1.056, 1.02)))
    (axes,) = draw_panels([Panel("t", "time (ticks)", "y", (*curves[:50], curves[-1]))], "t").axes
    highest = max(band.get_paths()[0].vertices[:, 1].max() for band in axes.collections)
    assert highest == pytest.approx(1.056, abs=1e-12)


def test_the_highest_of_long_columns_is_drawn() -> None:
    x = np.arange(6000)
    curves = [Curve(f"bus-{i}", x, np.full(6000, 1.0 + 0.001 * i)) for i in range(20)]
    curves.append(Curve("worst", x, np.where(x == 4001, 1.056, 1.0)))
    for shown in (curves, curves[-5:]):
        (axes,) = draw_panels([Panel("t", "time (ticks)", "y", tuple(shown))], "t").axes
        highest = max(band.get_paths()[0].vertices[:, 1].max() for band in axes.collections)
        assert highest == pytest.approx(1.056, abs=1e-12)


def test_an_agent_has_one_colour_in_all_panels(store: Store) -> None:
    # the document names b first; a is alone in a panel of its own
    run = record(store, [(4, 4), (4, 4)], first="b")
    assert numbers_of_agents(store, run) == {"b": 0, "a": 1} == numbers_of("bab")
    (panel,) = episode_panels(store, run, None, ALL)
    assert {curve.label: curve.identity for curve in panel.curves} == {"b": 0, "a": 1}
    (alone,) = episode_panels(store, run, None, BodyChoice("a"))
    (axes,) = draw_panels([alone], "t").axes
    assert axes.lines[0].get_color() == colour_of(1)
    learned = {
        p.title.split("'")[0].split()[-1]: p.curves[0].colour
        for p in learning_panels(store, [run], LearningChoice())
    }
    assert learned == {"a": 1, "b": 0}
    page: Any = get(Source(store), f"run/{run}/curves")
    assert {curve["agent"]: curve["colour"] for curve in page["curves"]} == {"a": 1, "b": 0}


def test_groups_of_runs_have_the_colours_of_their_order_in_the_store(store: Store) -> None:
    first, second = (record(store, [(4, 4)] * phases, uid=f"r{phases}") for phases in (1, 2))
    for runs in ([first, second], [second, first]):
        panel = learning_panels(store, runs, LearningChoice())[0]
        colours = {curve.label.split(":")[0]: curve.colour for curve in panel.curves}
        assert sorted(colours.values()) == [0, 1]
        assert colours["r1"] == 0, runs


def test_tints_and_what_several_share() -> None:
    assert colour_of(0) == "#0072B2" == colour_of(12)
    assert colour_of(0, 1) == "#59A3CD"
    assert colour_of(SHARED) == "#5A6570"


def test_phases_of_one_episode_are_bars_and_rows(store: Store) -> None:
    run = record(store, [(4,), (4,), (4,)])
    (panel,) = episode_panels(store, run, None, ALL)
    assert (panel.groups, panel.marks) == (("p0", "p1", "p2"), ())
    (axes,) = draw_panels([panel], "t").axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["p0", "p1", "p2"]
    assert sorted(bar.get_height() for bar in axes.patches) == [1.0] * 3 + [2.0] * 3
    moments = moments_beside(store, run)
    (row,) = rows_beside(store, run, moments, ALL, ["grid.bus-*"])
    assert isinstance(row, Beside)
    assert [part.title for part in row.panels] == ["p0", "p1", "p2"]
    assert [part.curves[0].y[0] for part in row.panels] == [1.0, 1.01, 1.02]
    assert [limit.value for limit in row.panels[0].limits] == [0.95, 1.05]
    # set-points that differ by a factor of 100 are in one row, as shares of their bounds
    (setpoints,) = rows_beside(store, run, moments, ALL, ["setpoint.*"])
    assert setpoints.panels[0].y_label == "setpoint (% of the bound)"
    assert {curve.label[0]: curve.y[0] for curve in setpoints.panels[0].curves} == {"a": 100.0, "b": 100.0}
    figure = run_figure(store, run, sensors=["grid.bus-*", "setpoint.*"])
    assert len(figure.axes) == 3 + 3 + 1
    # one phase is drawn by itself
    assert len(run_figure(store, run, phase=0, sensors=["grid.bus-*"]).axes) == 2


def test_a_run_with_several_episodes_has_no_rows(store: Store) -> None:
    assert moments_beside(store, record(store, [(4,), (4, 4)])) == []
    assert moments_beside(store, record(store, [(4,)], uid="one")) == []


def test_identical_curves_are_counted() -> None:
    x = np.arange(5)
    curves = [Curve(f"load-{i}", x, np.zeros(5)) for i in range(10)] + [Curve("other", x, x * 1.0)]
    (axes,) = draw_panels([Panel("t", "x", "y", tuple(curves))], "t").axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["10 identical: load-0, ...", "other"]
    assert len(axes.lines) == 2


def test_a_sensor_has_the_unit_that_it_declares(store: Store) -> None:
    run = record(store, [(4, 4)])
    assert store.units(run) == {"grid.load": "MWh/d"}
    channels = store.channels(run).query("kind == 'sensor' and environment == 'grid'")
    assert channels["unit"].tolist() == ["MWh/d", None]
    moment = find_moment(store, run, None, None)
    panels = time_panels(store, run, moment, ALL, ["grid.*"])
    assert [panel.y_label for panel in panels] == ["reading (MWh/d)", "reading (p.u.)"]
    page: Any = get(Source(store), f"run/{run}/series", {"patterns": "grid.load"})
    assert [panel["unit"] for panel in page["panels"]] == ["MWh/d"]
