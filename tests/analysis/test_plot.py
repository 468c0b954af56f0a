"""Plots: the curves that are drawn are those that were recorded, and they can be read."""

from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.analysis import plot_run
from palaestrai_mosaik.analysis.plot import MOST_LINES, draw_panels
from palaestrai_mosaik.analysis.series import (
    Curve,
    Panel,
    episode_panels,
    find_moment,
    objective_panels,
    time_panels,
    unit_of,
)
from palaestrai_mosaik.errors import PalaestraiMosaikError, StoreError
from palaestrai_mosaik.store import BodyChoice, ChannelRecord, EnvironmentRecord, Store
from tests.support.records import one_body

ALL = BodyChoice()
SPACE = "Box(low=-inf, high=inf, shape=(), dtype=float64)"
SENSORS = [ChannelRecord(f"grid.bus-{i}.vm_pu", SPACE, 1) for i in range(15)]
SENSORS.append(ChannelRecord("grid.line[7].loading", SPACE, 1))
ACTUATORS = [ChannelRecord("grid.sgen-0.q_mvar", SPACE, 1)]
REWARDS = ["grid.voltage"]
STEPS = 4


def record(store, uid="two phases", workers=2, world_model=None, episodes=(2, 1)):
    """Record two phases in which everything can be told from where it stands."""
    run = store.begin_run(uid=uid, document={"uid": uid}, text="", hash=uid, seed=1, version="3.5")
    for index, count in enumerate(episodes):
        environment = EnvironmentRecord(
            uid="grid",
            name="test:Grid",
            params={},
            sensors=SENSORS,
            actuators=ACTUATORS,
            rewards=[ChannelRecord("grid.voltage", SPACE, 1)],
            world_model=world_model,
            start=datetime(2016, 6, 1, tzinfo=UTC),
            step_size=1,
        )
        agents = [
            one_body(name, muscle="test:Muscle", sensors=SENSORS[:2], actuators=ACTUATORS, rewards=REWARDS)
            for name in ("a", "b")
        ]
        phase = run.begin_phase(
            index,
            f"phase {index}",
            mode="train",
            workers=workers,
            episodes=count,
            controller="vanilla",
            environments=[environment],
            agents=agents,
        )
        for episode in range(count):
            for worker in range(workers):
                _record_episode(phase, index, worker, episode)
        phase.finish("episodes")
    run.finish("finished")
    return run.uid


def _record_episode(phase, index, worker, episode):
    for step in range(STEPS + 1):
        readings = 1.0 + np.arange(16) / 100 + step
        phase.environment("grid").append(worker, episode, step, step, readings, [0.5], step == STEPS, False)
        if step < STEPS:
            for k, name in enumerate("ab"):
                row = (worker, episode, step, step, readings[:2], [10.0 * k + step], [0.5], step + k)
                phase.agent(name).append(*row, False, False, 0.0)
    outcome = {}
    for k, name in enumerate("ab"):
        mean = 100.0 * index + 10.0 * episode + worker + k
        moments = {"sum": 4 * mean, "mean": mean, "min": 0.0, "max": 0.0}
        reward = dict.fromkeys(("sum", "mean", "min", "max"), 0.5)
        outcome[name] = {"objective": moments, "rewards": {"grid.voltage": reward}}
    phase.episode(worker, episode, steps=4, ticks=4, ended_by="x", flow="RESET", duration=0.1, agents=outcome)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("plots") / "store", create=True) as opened:
        record(opened)
        record(opened, "dated", workers=1, world_model={"seconds_per_tick": 900}, episodes=(1,))
        yield opened


def test_objective_per_episode_is_the_mean_over_workers_between_lowest_and_highest(store):
    objective, _ = episode_panels(store, "two phases", None, ALL)
    assert [curve.label for curve in objective.curves] == ["a", "b"]
    a = objective.curves[0]
    # two episodes of phase 0, a gap, one episode of phase 1; workers give x and x + 1
    np.testing.assert_array_equal(a.x, [0, 1, 1.5, 2])
    np.testing.assert_array_equal(a.y, [0.5, 10.5, np.nan, 100.5])
    np.testing.assert_array_equal(a.low, [0, 10, np.nan, 100])
    np.testing.assert_array_equal(a.high, [1, 11, np.nan, 101])
    assert objective.marks == ((-0.5, "phase 0"), (1.5, "phase 1"))
    assert "workers" in objective.note


def test_the_sum_of_each_episode(store, tmp_path):
    objective, reward = episode_panels(store, "two phases", 0, BodyChoice("a"), "sum")
    assert objective.title == "Sum of the objective in each episode"
    np.testing.assert_array_equal(objective.curves[0].y, [2, 42])
    np.testing.assert_array_equal(reward.curves[0].y, [0.5, 0.5])
    # of a single episode, too, if it is asked for
    text = plot_run(store, "dated", tmp_path / "sum.svg", fold="sum").read_text()
    assert "Sum of the objective in each episode" in text and "of each step" not in text


def test_a_single_episode_has_an_axis_of_whole_numbers(store):
    objective, _ = episode_panels(store, "two phases", 1, ALL)
    figure = draw_panels([objective], "title")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    first, last = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if first <= tick <= last] == [0]


def test_agents_with_the_same_rewards_share_a_curve(store):
    _, reward = episode_panels(store, "two phases", None, ALL)
    assert [curve.label for curve in reward.curves] == ["a, b"]
    assert "grid.voltage" in reward.title


def test_one_phase_and_one_agent_can_be_picked(store):
    objective, reward = episode_panels(store, "two phases", "phase 1", BodyChoice("b"))
    np.testing.assert_array_equal(objective.curves[0].y, [101.5])
    assert [curve.label for curve in reward.curves] == ["b"]
    assert len(objective.marks) == 1


def test_the_last_episode_of_the_last_phase_is_meant_unless_another_one_is_named(store):
    moment = find_moment(store, "two phases", None, None)
    assert (moment.phase, moment.episode, str(moment)) == (1, 0, "phase 'phase 1', episode 0")
    assert find_moment(store, "two phases", 0, None).episode == 1
    assert find_moment(store, "two phases", 0, 0).episode == 0
    with pytest.raises(StoreError, match="no episode 2: it has 0 to 1"):
        find_moment(store, "two phases", 0, 2)


def test_patterns_choose_readings_by_bare_name_and_everything_by_whole_name(store):
    moment = find_moment(store, "two phases", None, None)
    patterns = ["grid.bus-1?.vm_pu", "setpoint.*", "grid.line[7].loading", "grid.bus-3.vm_pu"]
    many, setpoints, line, one = time_panels(store, "two phases", moment, ALL, patterns)
    assert [c.label for c in many.curves] == [f"grid.bus-{i}.vm_pu" for i in range(10, 15)]
    assert many.y_label == "reading (p.u.)"
    assert many.x_label == "time (ticks)"
    assert [c.label for c in setpoints.curves] == ["a: grid.sgen-0.q_mvar", "b: grid.sgen-0.q_mvar"]
    assert setpoints.y_label == "setpoint (Mvar)"
    np.testing.assert_array_equal(setpoints.curves[1].y, [10, 11, 12, 13])
    assert [c.label for c in line.curves] == ["grid.line[7].loading"]
    np.testing.assert_allclose(one.curves[0].y, 1.03 + np.arange(5))  # every state, the last one too


def test_what_an_agent_saw_is_shown_if_it_is_named(store):
    moment = find_moment(store, "two phases", None, None)
    (panel,) = time_panels(store, "two phases", moment, BodyChoice("a"), ["grid.bus-*"])
    assert [curve.label for curve in panel.curves] == ["grid.bus-0.vm_pu", "grid.bus-1.vm_pu"]
    np.testing.assert_allclose(panel.curves[1].y, 1.01 + np.arange(4))


def test_a_pattern_that_matches_nothing_names_what_is_near(store):
    moment = find_moment(store, "two phases", None, None)
    with pytest.raises(StoreError, match=r"did you mean 'grid\.bus-3\.vm_pu'"):
        time_panels(store, "two phases", moment, ALL, ["grid.bus-3.vmpu"])


def test_time_is_a_date_where_the_environment_tells_how_long_a_tick_is(store):
    moment = find_moment(store, "dated", None, None)
    (panel,) = time_panels(store, "dated", moment, ALL, ["grid.bus-0.vm_pu"])
    assert panel.x_label == "time"
    assert panel.curves[0].x[1] == np.datetime64("2016-06-01T00:15")


def test_a_single_episode_is_shown_step_by_step(store, tmp_path):
    moment = find_moment(store, "dated", None, None)
    objective, reward = objective_panels(store, "dated", moment, ALL)
    assert [curve.label for curve in objective.curves] == ["a", "b"]
    np.testing.assert_array_equal(objective.curves[1].y, [1, 2, 3, 4])
    assert [curve.label for curve in reward.curves] == ["a, b"]
    path = plot_run(store, "dated", tmp_path / "dated.svg")
    assert "Objective of each step" in _drawn_comments(path)


def _drawn_comments(path):
    # matplotlib draws text as paths, and leaves the text in a comment
    return path.read_text()


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        ("reading.grid.bus-3.vm_pu", "p.u."),
        ("reading.grid.line-0.loading", "%"),
        ("setpoint.grid.sgen-12.q_mvar", "Mvar"),
        ("reading.grid.vm_pu[3]", "p.u."),
        ("reading.grid.storage-1.soc", None),
        ("reading.myenv.0", None),
    ],
)
def test_units_are_told_by_names(column, unit):
    assert unit_of(column) == unit


def panel_of(curves):
    return Panel("title", "time (ticks)", "reading", tuple(curves))


def test_few_curves_are_lines_that_differ_in_colour():
    x = np.arange(200)
    figure = draw_panels([panel_of(Curve(f"c{i}", x, x * float(i)) for i in range(MOST_LINES))], "t")
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [f"c{i}" for i in range(MOST_LINES)]
    looks = {(line.get_color(), line.get_linestyle(), tuple(line.get_xydata()[-1])) for line in axes.lines}
    assert len(looks) == MOST_LINES
    assert len({look[:2] for look in looks}) == MOST_LINES


def test_many_curves_are_percentiles():
    x = np.arange(3)
    # at every x the values are k, 1 + k, ..., 100 + k
    figure = draw_panels([panel_of(Curve(f"c{i}", x, i + x.astype(float)) for i in range(101))], "t")
    (axes,) = figure.axes
    (median,) = axes.lines
    np.testing.assert_allclose(median.get_ydata(), [50, 51, 52])
    wide, narrow = (band.get_paths()[0].vertices[:, 1] for band in axes.collections)
    assert (wide.min(), wide.max()) == (5, 97)
    assert (narrow.min(), narrow.max()) == (25, 77)
    assert "101 curves" in axes.get_legend().get_title().get_text().replace("\n", " ")


def test_curves_of_different_times_meet_in_the_percentiles():
    early, late = np.array([0, 2]), np.array([1, 3])
    curves = [Curve(f"c{i}", (early, late)[i % 2], np.full(2, float(i % 2))) for i in range(14)]
    (axes,) = draw_panels([panel_of(curves)], "t").axes
    np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[0, 0], [1, 1], [2, 0], [3, 1]])


def test_long_series_are_means_with_their_extremes():
    y = np.tile([0.0, 10.0], 3000)
    (axes,) = draw_panels([panel_of([Curve("c", np.arange(6000), y)])], "t").axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 5.0)
    assert len(axes.lines[0].get_xdata()) == 300
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (0, 10)
    assert (
        axes.get_legend()
        .get_title()
        .get_text()
        .replace("\n", " ")
        .startswith("each point is the mean of 20 steps")
    )


def test_long_series_with_dates_are_daily_means():
    x = np.datetime64("2016-01-01", "m") + np.arange(96 * 100) * np.timedelta64(15, "m")
    y = np.repeat(np.arange(100.0), 96) + np.tile(np.linspace(-1, 1, 96), 100)
    panel = Panel("title", "time", "reading", (Curve("c", x, y),))
    (axes,) = draw_panels([panel], "t").axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), np.arange(100.0), atol=1e-12)
    assert axes.get_legend().get_title().get_text().startswith("daily means")


@settings(max_examples=25, deadline=None)
@given(st.integers(2001, 9000), st.integers(0, 50))
def test_means_stay_between_the_extremes_and_ignore_what_is_missing(points, missing):
    rng = np.random.default_rng(points)
    y = rng.normal(size=points)
    y[rng.integers(0, points, missing)] = np.nan
    (axes,) = draw_panels([panel_of([Curve("c", np.arange(points), y)])], "t").axes
    drawn = axes.lines[0].get_ydata()
    assert np.isfinite(drawn).all()
    assert np.nanmin(y) <= drawn.min() <= drawn.max() <= np.nanmax(y)
    assert abs(drawn.mean() - np.nanmean(y)) < 0.1


@pytest.mark.parametrize(("ending", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_pictures_are_files_of_their_format(store, tmp_path, ending, start):
    path = tmp_path / f"plot{ending}"
    assert plot_run(store, "two phases", path, sensors=["*vm_pu", "setpoint.*"]) == path
    assert path.read_bytes().startswith(start)


def test_the_same_results_give_the_same_drawing(store, tmp_path):
    first = plot_run(store, "dated", tmp_path / "a.svg", sensors=["*"])
    second = plot_run(store, "dated", tmp_path / "b.svg", sensors=["*"])
    assert first.read_bytes() == second.read_bytes()
    assert ElementTree.parse(first).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_impossible_pictures_are_clear_errors(store, tmp_path):
    with pytest.raises(PalaestraiMosaikError, match=r"\.gif.*must end with \.png, \.svg, \.pdf"):
        plot_run(store, "dated", tmp_path / "plot.gif")
    with pytest.raises(PalaestraiMosaikError, match="cannot write"):
        plot_run(store, "dated", tmp_path / "nowhere" / "plot.png")


def test_a_run_that_recorded_nothing_has_no_picture(tmp_path):
    with Store(tmp_path / "store", create=True) as opened:
        run = opened.begin_run(uid="empty", document={}, text="", hash="0", seed=1, version="3.5")
        run.finish("failed", ValueError("at once"))
        with pytest.raises(StoreError, match="nothing was recorded"):
            plot_run(opened, "empty", Path(tmp_path) / "plot.png")
