"""Plots: the curves that are drawn are those that were recorded, and they can be read."""

from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.core.errors import PalaestraiMosaikError, StoreError
from palaestrai_mosaik.plot import LearningChoice, plot_run
from palaestrai_mosaik.plot.columns import unit_of
from palaestrai_mosaik.plot.figures import MOST_LINES, draw_panels, run_figure
from palaestrai_mosaik.plot.learning import learning_panels
from palaestrai_mosaik.plot.limits import Limit, bounds_of, limits_of
from palaestrai_mosaik.plot.series import (
    Curve,
    Panel,
    by_scale,
    episode_panels,
    find_moment,
    objective_panels,
    split_by_scale,
    time_panels,
)
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
    extremes, wide, narrow = (band.get_paths()[0].vertices[:, 1] for band in axes.collections)
    assert (extremes.min(), extremes.max()) == (0, 102)
    assert (wide.min(), wide.max()) == (5, 97)
    assert (narrow.min(), narrow.max()) == (25, 77)
    assert "101 curves" in axes.get_legend().get_title().get_text().replace("\n", " ")


def test_curves_of_different_times_meet_in_the_percentiles():
    early, late = np.array([0, 2]), np.array([1, 3])
    curves = [Curve(f"c{i}", (early, late)[i % 2], np.full(2, i % 2 + 1e-9 * i)) for i in range(14)]
    (axes,) = draw_panels([panel_of(curves)], "t").axes
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[0, 0], [1, 1], [2, 0], [3, 1]], atol=1e-7)


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


@settings(max_examples=25)
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


def many_phases(lengths, names=None):
    """A panel with a curve over phases of so many episodes."""
    starts = np.cumsum([0, *lengths[:-1]])
    x = np.sort(np.concatenate([np.arange(sum(lengths)), starts - 0.5]))
    y = np.where(x == np.floor(x), x, np.nan)
    names = names or [f"phase {i}" for i in range(len(lengths))]
    marks = tuple(zip((starts - 0.5).tolist(), names, strict=True))
    return Panel(
        "title", "episode, counted in each phase", "mean of the objective", (Curve("a", x, y),), marks
    )


def ticks_of(axes):
    return [
        (place, text.get_text())
        for place, text in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    ]


def test_episodes_are_counted_in_their_phases_as_the_store_does(store):
    objective, _ = episode_panels(store, "two phases", None, ALL)
    (axes,) = draw_panels([objective], "t").axes
    assert ticks_of(axes) == [(0, "0"), (1, "1"), (2, "0")]
    numbers = store.episodes("two phases").query("agent == 'a' and worker == 0")[["phase", "episode"]]
    assert numbers.to_numpy().tolist() == [[0, 0], [0, 1], [1, 0]]
    assert axes.get_xlabel() == "episode, counted in each phase"
    assert axes.get_ylabel() == "mean of the objective"
    assert axes.get_xlim() == (-0.5, 2.5)


@pytest.mark.parametrize("fold", ["mean", "sum"])
def test_axes_say_which_statistic_they_show(store, fold):
    labels = [panel.y_label for panel in episode_panels(store, "two phases", None, ALL, fold)]
    assert labels == [f"{fold} of the objective", f"{fold} of the reward"]
    (panel, *_) = learning_panels(store, [store.find_run("two phases")], LearningChoice(fold=fold))
    assert panel.y_label == f"{fold} of the objective"


def test_both_kinds_of_plot_draw_an_episode_at_the_same_place(store):
    plain = episode_panels(store, "two phases", None, ALL)[0].curves[0]
    learned = learning_panels(store, [store.find_run("two phases")], LearningChoice())[0].curves[0]
    for number in range(3):
        assert plain.y[plain.x == number] == learned.y[learned.x == number]


@pytest.mark.parametrize("lengths", [(64, 1, 1, 1), (1, 1, 1, 1), (3, 200, 2), (1,) * 12])
def test_names_of_phases_and_numbers_of_episodes_do_not_overlap(lengths):
    figure = draw_panels([many_phases(lengths)], "t")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    names = [text for text in axes.texts if text.get_text()]
    assert [text.get_text() for text in names] == [f"phase {i}" for i in range(len(lengths))]
    for texts in (names, axes.get_xticklabels()):
        boxes = [text.get_window_extent() for text in texts]
        assert not [1 for i, one in enumerate(boxes) for other in boxes[:i] if one.overlaps(other)]
    title = axes.title if axes.title.get_text() else axes._left_title
    assert not [text for text in names if text.get_window_extent().overlaps(title.get_window_extent())]
    assert ticks_of(axes)[0] == (0, "0")


def test_names_of_phases_without_room_are_left_out():
    (axes,) = draw_panels([many_phases((1,) * 300)], "t").axes
    shown = [text.get_text() for text in axes.texts if text.get_text()]
    assert 1 < len(shown) < 200 and shown[-1] == "phase 299"


def test_labels_are_shown_whole():
    x = np.arange(3.0)
    names = ["controller, attacker: grid.voltage_band_of_all_buses", "a_name_without_a_space_" * 5, "x" * 100]
    figure = draw_panels([panel_of(Curve(name, x, x + i) for i, name in enumerate(names))], "long " * 40)
    figure.draw_without_rendering()
    texts = figure.axes[0].get_legend().get_texts()
    assert [text.get_text().replace("\n", "").replace(" ", "") for text in texts] == [
        name.replace(" ", "") for name in names
    ]
    assert texts[0].get_text() == "controller, attacker:\ngrid.voltage_band_of_all_buses"
    box = figure.axes[0].get_legend().get_window_extent()
    assert all(figure.bbox.contains(*corner) for corner in box.corners())
    assert figure.get_suptitle().split() == ["long"] * 40


def test_agents_that_all_rewards_share_are_said_once(tmp_path):
    with Store(tmp_path / "store", create=True) as opened:
        run = opened.begin_run(uid="r", document={}, text="", hash="r", seed=1, version="3.5")
        phase = run.begin_phase(
            *(0, "p"), mode="test", workers=1, episodes=1, controller="vanilla", environments=[], agents=[
                one_body(name, muscle="M", sensors=[], actuators=[], rewards=["e.near", "e.far"]) for name in "ab"
            ]
        )  # fmt: skip
        told = {
            name: dict.fromkeys(("sum", "mean", "min", "max"), v)
            for name, v in (("e.near", 1.0), ("e.far", 0.5))
        }
        outcome = {"objective": dict.fromkeys(("sum", "mean", "min", "max"), 1.0), "rewards": told}
        phase.episode(
            0,
            0,
            steps=1,
            ticks=1,
            ended_by="x",
            flow="RESET",
            duration=0.1,
            agents=dict.fromkeys("ab", outcome),
        )
        run.finish("finished")
        _, reward = episode_panels(opened, run.uid, None, ALL)
    assert sorted(curve.label for curve in reward.curves) == ["e.far", "e.near"]
    assert reward.note == "of a, b"


@pytest.mark.parametrize("points", [10, 200])
def test_all_lines_of_a_panel_differ_in_colour(points):
    x = np.arange(points)
    (axes,) = draw_panels([panel_of(Curve(f"c{i}", x, x * float(i)) for i in range(MOST_LINES))], "t").axes
    assert len({line.get_color() for line in axes.lines}) == MOST_LINES


def test_a_single_point_is_marked():
    one = np.array([0.0])
    x = np.arange(100.0)
    gaps = np.where(np.isin(x, [50, 52]), np.nan, x)  # 51 is alone
    curves = [Curve("step", one, one, steps=True), Curve("gaps", x, gaps), Curve("line", x, x)]
    (axes,) = draw_panels([panel_of(curves)], "t").axes
    step, alone, line = axes.lines
    assert (step.get_marker(), alone.get_marker(), line.get_marker()) == ("o", "o", "None")
    assert (step.get_markevery(), alone.get_markevery()) == ([0], [51])


def test_the_band_of_a_single_point_is_a_bar():
    one = np.array([2.0])
    (axes,) = draw_panels([panel_of([Curve("c", one, one, one - 1, one + 3)])], "t").axes
    bar = axes.collections[-1].get_segments()[0]
    np.testing.assert_array_equal(bar, [[2, 1], [2, 5]])


def test_percentiles_at_a_single_place_are_bars():
    one = np.array([2.0])
    (axes,) = draw_panels([panel_of(Curve(f"c{i}", one, np.array([float(i)])) for i in range(101))], "t").axes
    assert axes.lines[0].get_marker() == "o"
    bars = [bar.get_segments()[0][:, 1].tolist() for bar in axes.collections[-2:]]
    assert bars == [[5, 95], [25, 75]]


def lines_at(axes):
    """The values of the horizontal lines across the axes, by their entry in the legend."""
    lines = [line for line in axes.lines if line.get_transform() == axes.get_yaxis_transform()]
    return [float(line.get_ydata()[0]) for line in lines], [
        line.get_label() for line in lines if not line.get_label().startswith("_")
    ]


def time_axes(store, *patterns, **options):
    figure = run_figure(store, "dated", sensors=patterns, **options)
    return figure.axes[2:]


def test_voltages_have_their_limits(store):
    (axes,) = time_axes(store, "grid.bus-?.vm_pu")
    assert lines_at(axes) == ([0.95, 1.05], ["limits 0.95 and 1.05"])
    low, high = axes.get_ylim()
    assert low < 0.95 and high > 1.05
    assert axes.get_legend().get_texts()[-1].get_text() == "limits 0.95 and 1.05"
    (many,) = time_axes(store, "grid.bus-*.vm_pu")
    assert lines_at(many)[0] == [0.95, 1.05], "percentiles have them, too"
    (axes,) = time_axes(store, "grid.bus-?.vm_pu", limits=False)
    assert lines_at(axes) == ([], [])


@pytest.mark.parametrize(("highest", "shown"), [(80.0, [100]), (120.0, [100]), (25.0, [100]), (5.0, [])])
def test_the_limit_of_loadings_is_drawn_where_it_is_in_sight(highest, shown):
    y = np.linspace(0, highest, 5)
    limits = limits_of(["reading.grid.line-7.loading"], {}, True, several=False)
    panel = Panel("t", "time (ticks)", "reading (%)", (Curve("c", y, y),), limits=limits)
    assert lines_at(draw_panels([panel], "t").axes[0])[0] == shown


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["reading.grid.vm_pu[3]"], [0.95, 1.05]),
        (["reading.grid.3.bus-1.vm_pu"], [0.95, 1.05]),
        (["reading.grid.line-0.loading_percent"], [100]),
        (["reading.grid.trafo.loading-1"], [100]),
        (["setpoint.grid.gen-1.vm_pu"], []),
        (["reading.grid.unloading"], []),
        (["reading.e.a"], [0, 1]),
        (["reading.e.a[2]"], [0, 1]),
        (["reading.e.a", "reading.e.b"], []),
        (["reading.e.a", "setpoint.e.a"], []),
        (["reading.e.c"], [-1]),
    ],
)
def test_limits_are_told_by_names_and_spaces(columns, expected):
    bounds = {"e.a": (0.0, 1.0), "e.b": (0.0, 2.0), "e.c": (-1.0, None)}
    assert [one.value for one in limits_of(columns, bounds, True, several=False)] == expected


@pytest.mark.parametrize(
    ("values", "shown"),
    [((0.1, 0.9), [0, 1]), ((0.7, 0.9), [1]), ((0.45, 0.55), []), ((0.5, 0.5), []), ((np.nan, np.nan), [])],
)
def test_bounds_are_drawn_where_they_are_in_sight(values, shown):
    y = np.array(values)
    limits = tuple(Limit(value, "bound", 0.5) for value in (0.0, 1.0))
    panel = Panel("t", "time (ticks)", "reading", (Curve("c", np.arange(2), y),), limits=limits)
    assert lines_at(draw_panels([panel], "t").axes[0])[0] == shown


def test_bounds_are_those_of_the_spaces(tmp_path):
    texts = {
        "a": "Box(low=0.0, high=1.0, shape=(), dtype=float64)",
        "b": "Box(low=-inf, high=[2.0, 2.0], shape=(2,), dtype=float64)",
        "c": "Box(low=[0.0, 1.0], high=[2.0, 2.0], shape=(2,), dtype=float64)",
        "d": "Discrete(5)",
        "e": "what another program wrote",
    }
    sensors = [ChannelRecord(uid, text, 1) for uid, text in texts.items()]
    with Store(tmp_path / "store", create=True) as opened:
        run = opened.begin_run(uid="r", document={}, text="", hash="r", seed=1, version="3.5")
        run.begin_phase(
            *(0, "p"),
            mode="test",
            workers=1,
            episodes=1,
            controller="vanilla",
            environments=[EnvironmentRecord("e", "E", sensors=sensors)],
            agents=[],
        )
        found = bounds_of(opened, run.uid, 0)
    none = (None, None)
    assert found == {"a": (0, 1), "b": (None, 2), "c": none, "d": (0, 4), "e": none}


def test_limits_can_be_chosen_for_all_patterns_or_for_each(store):
    patterns = ["grid.bus-0.vm_pu", "grid.line[7].loading"]
    both = time_axes(store, *patterns, limits=[(0.5, None)])
    assert [lines_at(axes)[0] for axes in both] == [[0.5], [0.5]]
    each = time_axes(store, *patterns, limits=[(0.9, 1.1), (None, 80.0)])
    assert [lines_at(axes) for axes in each] == [
        ([0.9, 1.1], ["limits 0.9 and 1.1"]),
        ([80], ["limit 80"]),
    ]
    with pytest.raises(
        PalaestraiMosaikError, match="one pair for all 2 patterns of sensors, or one for each, found 3"
    ):
        time_axes(store, *patterns, limits=[(1, 2)] * 3)


@pytest.mark.parametrize("pair", [0.9, (1.0,), (2.0, 1.0), (None, None), ("0.9", 1.1), (0.9, float("nan"))])
def test_limits_that_are_none_are_clear_errors(store, pair):
    with pytest.raises(PalaestraiMosaikError, match="limits are pairs such as"):
        time_axes(store, "grid.bus-0.vm_pu", limits=[pair])


def test_curves_that_would_be_flat_have_a_panel_of_their_own():
    x = np.arange(3.0)
    curves = [Curve(f"{size:g}", x, np.full(3, size)) for size in (0.02, -0.04, 1.5, 0.0, 0.03)]
    assert [(size, [curve.label for curve in group]) for size, group in by_scale(curves)] == [
        (1.5, ["1.5"]),
        (0.04, ["0.02", "-0.04", "0", "0.03"]),
    ]
    near = [Curve("a", x, x), Curve("b", x, 9.9 * x)]
    assert [group for _, group in by_scale(near)] == [near]
    steps = [Curve(f"1e{k}", x, x * 10.0 ** (2 * k)) for k in range(5)]
    assert len(by_scale(steps)) == 3
    panels = split_by_scale(panel_of(curves))
    assert [panel.title for panel in panels] == ["title: 1.5", "title: -0.04 to 0.03"]


def test_columns_of_other_units_have_a_panel_of_their_own(store):
    moment = find_moment(store, "dated", None, None)
    panels = time_panels(store, "dated", moment, ALL, ["grid.*"])
    assert [panel.y_label for panel in panels] == ["reading (p.u.)", "reading (%)"]
    everything = time_panels(store, "dated", moment, ALL, ["*"])
    labels = {panel.y_label for panel in everything}
    assert labels == {
        *("reading (p.u.)", "reading (%)", "setpoint (Mvar)", "reward", "objective"),
        *("terminated", "truncated"),
    }


def test_a_time_axis_has_the_date(store):
    (axes,) = time_axes(store, "grid.bus-0.vm_pu")
    assert axes.get_xlabel() == "time, 2016-06-01"
    x = np.datetime64("2016-01-01", "m") + np.arange(96) * np.timedelta64(60, "m")
    (axes,) = draw_panels([Panel("t", "time", "y", (Curve("c", x, np.arange(96.0)),))], "t").axes
    assert axes.get_xlabel() == "time, 2016-01-01 to 2016-01-04"
