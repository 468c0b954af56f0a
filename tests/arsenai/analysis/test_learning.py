"""Learning curves: what is drawn are means, bands and evaluations that can be computed by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.plot import LearningChoice, plot_learning
from palaestrai_mosaik.plot.figures import STYLE, draw_panels
from palaestrai_mosaik.plot.learning import find_groups, learning_panels, learning_title
from palaestrai_mosaik.store import AgentRecord, BodyChoice, Store
from palaestrai_mosaik.store.query.runs import short_ids

EVERYTHING = LearningChoice(fold="sum")


def moments(value):
    return {"sum": value, "mean": value / 2, "min": 0.0, "max": 0.0}


def learn(  # noqa: PLR0913  (all that tests vary)
    store,
    uid,
    values,
    *,
    seed=1,
    losses=(),
    workers=1,
    evaluate_every=None,
    evaluations=(),
    agents=("a",),
    params=None,
    config=None,
    load=None,
):
    """One phase: ``values`` are agent a's objectives by episode, ``losses`` (worker, episode, loss)."""
    phase = {"phase_config": {"evaluate_every": evaluate_every, **(config or {})}, "agents": [{"load": load}]}
    document = {"uid": uid, "seed": seed, "params": params, "schedule": [{"train": phase}]}
    told = {"uid": uid, "document": document, "text": "", "hash": repr(document), "seed": seed}
    run = store.begin_run(**told, version="1")
    phase = run.begin_phase(
        *(0, "train"),
        mode="train",
        workers=workers,
        episodes=len(values),
        controller="vanilla",
        environments=[],
        agents=[AgentRecord(name) for name in agents],
    )
    ended = {"steps": 2, "ticks": 2, "ended_by": "x", "flow": "RESET", "duration": 0.0}
    for evaluation, told in ((False, values), (True, evaluations)):
        for episode, value in enumerate(told):
            for worker in range(workers):
                result = {name: {"objective": moments(value), "rewards": {}} for name in agents}
                phase.episode(worker, episode, **ended, agents=result, evaluation=evaluation)
    for worker, episode, loss in losses:
        phase.statistic("a", worker, episode, 1, "loss", loss)
    phase.finish("episodes")
    run.finish("finished")
    return run.uid


def record(  # noqa: PLR0913  (all that tests vary)
    store, uid, *, seed=1, offset=0.0, episodes=(4, 2), workers=1, evaluate_every=2, params=None
):
    """Two phases, train and test; every worker evaluates after each ``evaluate_every`` episodes.

    In episode e of phase p, agent ``a`` of worker w has the objective 100 p + 10 w + e + offset,
    in evaluation k 1000 + 10 w + k + offset; agent ``b`` has none. The loss is minus e.
    """
    configs = [{"evaluate_every": evaluate_every} if evaluate_every else {}, {"evaluate_every": None}]
    schedule = [{name: {"phase_config": c}} for name, c in zip(("train", "test"), configs, strict=True)]
    document = {"uid": uid, "seed": seed, "params": params, "schedule": schedule}
    run = store.begin_run(uid=uid, document=document, text="", hash=f"{uid} {seed}", seed=seed, version="1")
    for number, (name, count) in enumerate(zip(("train", "test"), episodes, strict=True)):
        phase = run.begin_phase(
            *(number, name),
            mode=name,
            workers=workers,
            episodes=count,
            controller="vanilla",
            environments=[],
            agents=[AgentRecord("a"), AgentRecord("b")],
        )
        ended = {"steps": 2, "ticks": 2, "ended_by": "x", "flow": "RESET", "duration": 0.0}
        nothing = {"objective": moments(float("nan")), "rewards": {}}
        for episode in range(count):
            for worker in range(workers):
                value = 100.0 * number + 10.0 * worker + episode + offset
                result = {"a": {"objective": moments(value), "rewards": {}}, "b": nothing}
                phase.episode(worker, episode, **ended, agents=result)
                phase.statistic("a", worker, episode, 1, "loss", -float(episode))
                phase.statistic("b", worker, episode, 1, "loss_of_critic", 5.0)
                phase.statistic("b", worker, episode, 1, "entropy", 7.0)
            done = episode + 1
            if number == 0 and evaluate_every and done % evaluate_every == 0:
                for worker in range(workers):
                    index = done // evaluate_every - 1
                    result = {
                        "a": {"objective": moments(1000.0 + 10 * worker + index + offset), "rewards": {}}
                    }
                    phase.episode(worker, index, **ended, agents=result, evaluation=True)
        phase.finish("episodes")
    run.finish("finished")
    return run.uid


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("learning") / "store", create=True) as opened:
        record(opened, "one")
        for seed in range(3):
            record(opened, f"ppo-seed-{seed}", seed=seed, offset=100.0 * seed)
        record(opened, "other", params="of another kind")
        record(opened, "workers", workers=3)
        record(opened, "long", episodes=(60, 0))
        yield opened


def panels(store, *names, **choice):
    choice = {"fold": "sum", **choice}
    return learning_panels(store, [store.find_run(name) for name in names], LearningChoice(**choice))


def test_one_run_is_a_line_with_its_evaluations_where_they_were_made(store):
    (panel,) = panels(store, "one")
    assert "a's objective" in panel.title and "Sum" in panel.title
    training, evaluation = panel.curves
    # the first episode is 0, as in the store; a point without a value parts the phases
    np.testing.assert_array_equal(training.x, [-0.5, 0, 1, 2, 3, 3.5, 4, 5])
    np.testing.assert_array_equal(training.y, [np.nan, 0, 1, 2, 3, np.nan, 100, 101])
    assert training.low is None and training.raw is None
    # the evaluations ran after the episodes 1 and 3
    np.testing.assert_array_equal(evaluation.x, [1, 3])
    np.testing.assert_array_equal(evaluation.y, [1000, 1001])
    assert evaluation.points and evaluation.colour == training.colour
    assert panel.marks == ((-0.5, "train"), (3.5, "test"))
    assert panel.shades == ((3.5, 5.5),)
    assert panel.x_label == "episode, counted in each phase (grey: test mode)"
    assert panel.y_label == "sum of the objective"


def test_workers_are_a_mean_and_a_band(store):
    (panel,) = panels(store, "workers", phase="train")
    training, evaluation = panel.curves
    np.testing.assert_array_equal(training.y[1:], [10, 11, 12, 13])
    np.testing.assert_array_equal(training.low[1:], [0, 1, 2, 3])
    np.testing.assert_array_equal(training.high[1:], [20, 21, 22, 23])
    np.testing.assert_array_equal(evaluation.y, [1010, 1011])
    np.testing.assert_array_equal(evaluation.high, [1020, 1021])
    assert panel.note == "mean over the workers; band: lowest to highest"
    assert panel.x_label == "training episode of each worker" and panel.shades == ()


def test_other_seeds_of_one_document_are_one_curve_and_other_documents_another(store):
    (panel,) = panels(store, "ppo-seed-0", "other", "ppo-seed-1", "ppo-seed-2", phase=0)
    assert [curve.label for curve in panel.curves] == [
        *("ppo: training", "ppo: evaluation", "other: training", "other: evaluation")
    ]
    ppo, evaluated, other, _ = panel.curves
    np.testing.assert_array_equal(ppo.y[1:], [100, 101, 102, 103])
    np.testing.assert_array_equal(ppo.low[1:], [0, 1, 2, 3])
    np.testing.assert_array_equal(ppo.high[1:], [200, 201, 202, 203])
    np.testing.assert_array_equal(evaluated.y, [1100, 1101])
    np.testing.assert_array_equal(other.y[1:], [0, 1, 2, 3])
    assert other.low is None
    assert ppo.colour == evaluated.colour != other.colour
    assert panel.note == "mean over 3 runs; band: lowest to highest"
    runs = [store.find_run(name) for name in ("ppo-seed-0", "other", "ppo-seed-1")]
    assert learning_title(find_groups(store, runs)) == "3 runs: ppo (2), other (1)"
    assert learning_title(find_groups(store, runs[::2])) == "2 runs of ppo"


def test_many_episodes_are_averaged_within_their_phase(store):
    (panel,) = panels(store, "long")
    training = panel.curves[0]
    # a twentieth of 60 episodes: 3
    np.testing.assert_allclose(training.y[1:6], [0, 0.5, 1, 2, 3])
    np.testing.assert_array_equal(training.raw[1:6], [0, 1, 2, 3, 4])
    assert panel.note == "line: mean of the last 3 episodes; pale: each episode"


def test_the_mean_of_the_objective(store):
    assert LearningChoice().fold is None, "as in a plot without --learning"
    (panel,) = panels(store, "one", fold=None, phase="test")
    assert panel.y_label == "mean of the objective"
    np.testing.assert_array_equal(panel.curves[0].y[1:], [50, 50.5])
    assert len(panel.curves) == 1, "there was no evaluation in this phase"


def test_statistics_have_a_panel_for_each_pattern(store):
    _, losses, entropy = panels(store, "one", phase="train", statistics=["loss*", "entropy"])
    assert [curve.label for curve in losses.curves] == ["a: loss", "b: loss_of_critic"]
    np.testing.assert_array_equal(losses.curves[0].y[1:], [0, -1, -2, -3])
    assert [curve.label for curve in entropy.curves] == ["entropy"]
    assert (losses.y_label, entropy.y_label) == ("mean of the values", "mean of entropy")
    with pytest.raises(
        StoreError, match=r"'los' \(did you mean 'loss'\?\); there are: entropy, loss, loss_of"
    ):
        panels(store, "one", statistics=["los"])


def test_what_cannot_be_drawn_is_said(store, tmp_path):
    with pytest.raises(StoreError, match="no objective of an agent was recorded"):
        panels(store, "one", bodies=BodyChoice("b"))
    with pytest.raises(StoreError, match=r"no agent 'c'"):
        panels(store, "one", bodies=BodyChoice("c"))
    with Store(tmp_path / "odd", create=True) as odd:
        uid = record(odd, "odd")
        document = odd.document(uid)
        document["schedule"][0]["train"]["phase_config"].clear()
        import sqlalchemy as sa

        with odd.database.writing() as session:
            session.execute(sa.text("UPDATE run_documents SET document = '{}'"))
        with pytest.raises(StoreError, match="does not say after how many episodes it evaluates"):
            learning_panels(odd, [uid], EVERYTHING)


def known(curve):
    """The places where the curve has values, and these."""
    there = np.isfinite(curve.y)
    return dict(zip(curve.x[there].tolist(), curve.y[there].tolist(), strict=True))


def test_a_statistic_told_now_and_then_is_averaged_over_episodes(tmp_path):
    with Store(tmp_path / "store", create=True) as own:
        # a loss in every 20th episode: 0, 1, 2, ...; the window is 100 episodes, so 5 values
        uid = learn(own, "x", np.zeros(2000), losses=[(0, 20 * k, float(k)) for k in range(100)])
        _, loss = learning_panels(own, [uid], LearningChoice(statistics=["loss"]))
    assert loss.note == "line: mean of the last 100 episodes; pale: each episode"
    drawn = known(loss.curves[0])
    assert drawn[0] == 0 and drawn[80] == 2
    assert drawn[1980] == (95 + 96 + 97 + 98 + 99) / 5
    np.testing.assert_array_equal(loss.curves[0].raw[1:], np.arange(100))


def test_a_brain_has_one_series_whichever_worker_was_the_occasion(tmp_path):
    # worker 1 is ahead; the count rises in the order in which it was recorded
    losses = [(0, 0, 1.0), (1, 3, 2.0), (0, 1, 3.0), (1, 4, 4.0)]
    with Store(tmp_path / "store", create=True) as own:
        uid = learn(own, "x", np.zeros(6), losses=losses, workers=2)
        _, loss = learning_panels(own, [uid], LearningChoice(statistics=["loss"]))
    (curve,) = loss.curves
    assert known(curve) == {0: 1, 3: 2.5, 4: 4}
    assert curve.low is None and loss.note == ""


def test_runs_that_tell_losses_at_other_episodes_meet_where_all_have_begun(tmp_path):
    with Store(tmp_path / "store", create=True) as own:
        told = [[(0, 0, 0.0), (0, 8, 8.0)], [(0, 2, 10.0), (0, 6, 10.0)]]
        uids = [learn(own, f"x-{k}", np.zeros(9), seed=k, losses=told[k]) for k in range(2)]
        _, loss = learning_panels(own, uids, LearningChoice(statistics=["loss"]))
    mean, early, *_ = loss.curves
    # the first loss is e at episode e, between the episodes that tell it, the second always 10
    assert known(mean) == {2: 6, 6: 8}
    assert known(replace(mean, y=mean.low)) == {2: 2, 6: 6}
    assert known(early) == {0: 0, 2: 2, 6: 6, 8: 8} and early.faint


def test_a_mean_ends_where_the_first_run_ends(tmp_path):
    with Store(tmp_path / "store", create=True) as own:
        uids = [
            learn(own, f"x-{k}", [value] * length, seed=k, evaluate_every=1, evaluations=[value] * length)
            for k, (value, length) in enumerate([(100.0, 2), (100.0, 2), (1.0, 4)])
        ]
        (panel,) = learning_panels(own, uids, EVERYTHING)
    mean, rest, evaluated, evaluated_rest = panel.curves
    for whole, part in ((mean, rest), (evaluated, evaluated_rest)):
        assert known(whole) == {0: 67, 1: 67}
        assert known(replace(whole, y=whole.low)) == {0: 1, 1: 1}
        assert known(part) == {1: 1, 2: 1, 3: 1}
        assert part.faint and not whole.faint and whole.points == part.points
    assert panel.note.endswith(
        "mean over 3 runs; band: lowest to highest; faint: single runs, where not all have values"
    )
    (axes,) = draw_panels([panel], "title").axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["training", "evaluation"]


def test_namesakes_are_told_apart_by_what_differs(tmp_path):
    with Store(tmp_path / "store", create=True) as own:
        params = [{"lr": 0.1, "net": [8, 8]}, {"lr": 0.2, "net": [8]}, {"lr": 0.2, "net": [8, 8]}]
        one = [learn(own, "x", [1.0], params={"brain": {"params": each}}) for each in params]
        assert [group.label for group in find_groups(own, one[::2])] == [
            "x [brain.lr=0.1]",
            "x [brain.lr=0.2]",
        ]
        assert find_groups(own, one[:2])[1].label == "x [brain.lr=0.2, brain.net=[8]]"
        many = learn(own, "x", [1.0], params={"a": 1, "b": 2, "c": 3})
        labels = [group.label for group in find_groups(own, [one[0], many])]
        short = short_ids(own.runs()["run"].tolist())
        assert labels == [f"x [{short[one[0]]}]", f"x [{short[many]}]"]
        (panel,) = learning_panels(own, [one[0], many], EVERYTHING)
        assert [curve.label for curve in panel.curves] == [f"{label}: training" for label in labels]


def test_runs_that_load_their_own_brains_by_uid_are_repetitions_of_those_that_name_no_run(tmp_path):
    with Store(tmp_path / "store", create=True) as own:
        uids = [learn(own, f"x-{k}", [1.0], seed=k, load={"experiment_run": f"x-{k}"}) for k in range(2)]
        uids.append(learn(own, "x-2", [1.0], seed=2, load={}))
        foreign = learn(own, "x-3", [1.0], seed=3, load={"experiment_run": "x-0"})
        assert [group.runs for group in find_groups(own, [*uids, foreign])] == [tuple(uids), (foreign,)]


def test_the_same_seed_once_more_is_no_further_repetition_unless_workers_are_asynchronous(tmp_path):
    with Store(tmp_path / "store", create=True) as own:
        first, second, again = (learn(own, f"x-{k % 2}", [float(k)], seed=k % 2) for k in range(3))
        (group,) = find_groups(own, [first, second, again])
        assert (group.runs, group.left_out) == ((second, again), (first,))
        (panel,) = learning_panels(own, [first, second, again], EVERYTHING)
        assert known(panel.curves[0]) == {0: 1.5}
        assert panel.note == "mean over 2 runs; band: lowest to highest; of runs with one seed the newest"
        path = plot_learning(own, [first, again], tmp_path / "x.svg")
        assert "x-0, run of" in path.read_text(encoding="utf-8"), "the title of a single run"
        free = [learn(own, "free", [1.0], config={"asynchronous": True}) for _ in range(2)]
        assert find_groups(own, free)[0].runs == tuple(free)


def test_more_lines_than_can_be_told_apart_are_refused(tmp_path):
    with Store(tmp_path / "store", create=True) as own:
        names = [f"agent-{k}" for k in range(13)]
        uid = learn(own, "x", [1.0], agents=names)
        uids = [learn(own, f"name {k}", [1.0], params=k) for k in range(13)]
        with pytest.raises(StoreError, match=r"13 different runs .* \(at most 12\): name 0, name 1, "):
            learning_panels(own, uids, EVERYTHING)
        assert len(learning_panels(own, uids[:12], EVERYTHING)[0].curves) == 12
        assert len(learning_panels(own, [uid], EVERYTHING)) == 13, "panels are not limited"
        uids = [record(own, f"other {k}", params=k, episodes=(2, 0)) for k in range(5)]
        wanted = r"'\*' means 15 lines in 5 different runs.*: entropy, loss, loss_of_critic"
        with pytest.raises(StoreError, match=wanted):
            learning_panels(own, uids, LearningChoice(statistics=["*"]))
        assert len(learning_panels(own, uids[:4], LearningChoice(statistics=["*"]))[1].curves) == 12


def test_the_note_tells_runs_and_workers_apart(tmp_path):
    with Store(tmp_path / "store", create=True) as own:
        losses = [(0, 0, 1.0), (0, 1, 1.0)]
        three = [learn(own, f"a-{k}", [1.0, 2.0], seed=k, losses=losses) for k in range(3)]
        single = learn(own, "b", [1.0, 2.0], params="b", workers=2, losses=losses)
        two = [learn(own, f"c-{k}", [1.0, 2.0], params="c", seed=k, losses=losses) for k in range(2)]

        def note(runs, **choice):
            return learning_panels(own, runs, LearningChoice(**choice))[-1].note

        band = "; band: lowest to highest"
        assert note(three) == f"mean over 3 runs{band}"
        assert note([single]) == f"mean over the workers{band}"
        assert note([*three, *two]) == f"mean over 2 to 3 runs{band}"
        assert note([*two, single]) == f"mean over 2 runs or the workers of a single run{band}"
        assert note([*two, single], statistics=["loss"]) == f"mean over 2 runs{band}"
        assert note([single], statistics=["loss"]) == ""


def test_lines_are_named_after_the_modes_of_their_phases(store):
    names = [panels(store, "one", phase=phase)[0].curves[0].label for phase in ("train", "test", None)]
    assert names == ["training", "test", "training and test"]


def test_statistics_of_a_run_without_any_objective(store):
    (entropy,) = panels(store, "one", bodies=BodyChoice("b"), statistics=["entropy"])
    assert known(entropy.curves[0]) == dict.fromkeys([0, 1, 2, 3, 4, 5], 7)
    assert entropy.marks == ((-0.5, "train"), (3.5, "test"))


def test_a_panel_is_as_high_as_its_legend_and_dashes_are_seen(tmp_path):
    with Store(tmp_path / "store", create=True) as own:
        names = [f"experiment on a grid with a long name, number {k}" for k in range(12)]
        uids = [
            learn(own, name, [1.0, 2.0 + k], params=k, losses=[(0, 0, 1.0 + k)])
            for k, name in enumerate(names)
        ]
        found = learning_panels(own, uids, LearningChoice(statistics=["loss"]))
    with mpl.rc_context(STYLE):
        figure = draw_panels(found, "title")
        figure.draw_without_rendering()
    boxes = [axes.get_legend().get_window_extent() for axes in figure.axes]
    assert not boxes[0].overlaps(boxes[1])
    assert all(figure.bbox.contains(*corner) for box in boxes for corner in box.corners())
    texts = [text.get_text().replace("\n", " ") for text in figure.axes[0].get_legend().get_texts()]
    assert texts == [f"{name}: training" for name in names]
    handle = figure.axes[0].get_legend().get_lines()[1]
    assert np.ptp(handle.get_xdata()) > 2 * (5 + 1.5) * 1.4, "two dashes and their gaps (points)"


def test_pictures_of_all_sizes_are_drawn(store, tmp_path):
    for names in (["one"], ["workers"], ["long"], ["ppo-seed-0", "ppo-seed-1", "other", "one"]):
        path = plot_learning(store, names, tmp_path / f"{names[0]}.svg", LearningChoice(statistics=["*"]))
        text = Path(path).read_text(encoding="utf-8")
        assert "evaluation" in text and "loss" in text
    with Store(tmp_path / "large", create=True) as large:
        record(large, "large", episodes=(3000, 0), evaluate_every=20)
        path = plot_learning(large, ["latest"], tmp_path / "large.svg")
        assert path.stat().st_size < 400_000, "thousands of episodes are thinned"


def test_on_the_command_line(store, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALAESTRAI_MOSAIK_STORE", str(store.directory))
    command = [
        "plot",
        "ppo-seed-0",
        "ppo-seed-1",
        "--learning",
        "--objective",
        "mean",
        "--statistics",
        "loss",
    ]
    assert main(command) == 0
    name = capsys.readouterr().out.strip()
    assert name.startswith("ppo-seed-0-") and name.endswith("-learning.png")
    assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    for arguments, message in (
        (["one", "other"], "several runs can be plotted together with --learning only"),
        (["one", "--statistics", "x"], "--statistics has no meaning for a plot without --learning"),
        (["one", "--learning", "--episode", "0"], "--episode has no meaning for --learning"),
        (["one", "--learning", "--statistics", "los"], "did you mean 'loss'"),
    ):
        assert main(["plot", *arguments]) == 2
        assert message in capsys.readouterr().err
