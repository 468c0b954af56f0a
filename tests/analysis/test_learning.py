"""Learning curves: what is drawn are means, bands and evaluations that can be computed by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from palaestrai_mosaik.analysis import LearningChoice, plot_learning
from palaestrai_mosaik.analysis.learning import learning_panels, learning_title
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.store import AgentRecord, Store

EVERYTHING = LearningChoice()


def moments(value):
    return {"sum": value, "mean": value / 2, "min": 0.0, "max": 0.0}


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
    with Store(tmp_path_factory.mktemp("learning") / "store") as opened:
        record(opened, "one")
        for seed in range(3):
            record(opened, f"ppo-seed-{seed}", seed=seed, offset=100.0 * seed)
        record(opened, "other", params="of another kind")
        record(opened, "workers", workers=3)
        record(opened, "long", episodes=(60, 0))
        yield opened


def panels(store, *names, **choice):
    return learning_panels(store, [store.find_run(name) for name in names], LearningChoice(**choice))


def test_one_run_is_a_line_with_its_evaluations_where_they_were_made(store):
    (panel,) = panels(store, "one")
    assert "a's objective" in panel.title and "Sum" in panel.title
    training, evaluation = panel.curves
    # episode e is done after e + 1 episodes; a point without a value parts the phases
    np.testing.assert_array_equal(training.x, [0.5, 1, 2, 3, 4, 4.5, 5, 6])
    np.testing.assert_array_equal(training.y, [np.nan, 0, 1, 2, 3, np.nan, 100, 101])
    assert training.low is None and training.raw is None
    np.testing.assert_array_equal(evaluation.x, [2, 4])
    np.testing.assert_array_equal(evaluation.y, [1000, 1001])
    assert evaluation.points and evaluation.colour == training.colour
    assert panel.marks == ((0.5, "train"), (4.5, "test"))
    assert panel.shades == ((4.5, 6.5),)
    assert panel.x_label == "episodes, counted over all phases (grey: test mode)"


def test_workers_are_a_mean_and_a_band(store):
    (panel,) = panels(store, "workers", phase="train")
    training, evaluation = panel.curves
    np.testing.assert_array_equal(training.y[1:], [10, 11, 12, 13])
    np.testing.assert_array_equal(training.low[1:], [0, 1, 2, 3])
    np.testing.assert_array_equal(training.high[1:], [20, 21, 22, 23])
    np.testing.assert_array_equal(evaluation.y, [1010, 1011])
    np.testing.assert_array_equal(evaluation.high, [1020, 1021])
    assert panel.note == "mean over the workers; band: lowest to highest"
    assert panel.x_label == "training episodes of each worker" and panel.shades == ()


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
    assert learning_title(store, runs) == "3 runs: ppo (2), other (1)"
    assert learning_title(store, runs[::2]) == "2 runs of ppo"


def test_many_episodes_are_averaged_within_their_phase(store):
    (panel,) = panels(store, "long")
    training = panel.curves[0]
    # a twentieth of 60 episodes: 3
    np.testing.assert_allclose(training.y[1:6], [0, 0.5, 1, 2, 3])
    np.testing.assert_array_equal(training.raw[1:6], [0, 1, 2, 3, 4])
    assert panel.note == "line: mean of the last 3 episodes; pale: each episode"


def test_the_mean_of_the_objective(store):
    (panel,) = panels(store, "one", fold="mean", phase="test")
    np.testing.assert_array_equal(panel.curves[0].y[1:], [50, 50.5])
    assert len(panel.curves) == 1, "there was no evaluation in this phase"


def test_statistics_have_a_panel_for_each_pattern(store):
    _, losses, entropy = panels(store, "one", phase="train", statistics=["loss*", "entropy"])
    assert [curve.label for curve in losses.curves] == ["a: loss", "b: loss_of_critic"]
    np.testing.assert_array_equal(losses.curves[0].y[1:], [0, -1, -2, -3])
    assert [curve.label for curve in entropy.curves] == ["entropy"]
    assert (losses.y_label, entropy.y_label) == ("value", "entropy")
    with pytest.raises(
        StoreError, match=r"'los' \(did you mean 'loss'\?\); there are: entropy, loss, loss_of"
    ):
        panels(store, "one", statistics=["los"])


def test_what_cannot_be_drawn_is_said(store, tmp_path):
    with pytest.raises(StoreError, match="no objective of an agent was recorded"):
        panels(store, "one", agent="b")
    with pytest.raises(StoreError, match=r"no agent 'c'"):
        panels(store, "one", agent="c")
    with Store(tmp_path / "odd") as odd:
        uid = record(odd, "odd")
        document = odd.document(uid)
        document["schedule"][0]["train"]["phase_config"].clear()
        import sqlalchemy as sa

        with odd.database.writing() as session:
            session.execute(sa.text("UPDATE run_documents SET document = '{}'"))
        with pytest.raises(StoreError, match="does not say after how many episodes it evaluates"):
            learning_panels(odd, [uid], EVERYTHING)


def test_pictures_of_all_sizes_are_drawn(store, tmp_path):
    for names in (["one"], ["workers"], ["long"], ["ppo-seed-0", "ppo-seed-1", "other", "one"]):
        path = plot_learning(store, names, tmp_path / f"{names[0]}.svg", LearningChoice(statistics=["*"]))
        text = Path(path).read_text(encoding="utf-8")
        assert "evaluation" in text and "loss" in text
    with Store(tmp_path / "large") as large:
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
