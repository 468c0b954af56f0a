"""Scalars of a run, read back with TensorBoard's own reader and compared with what the store has."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.documents import document, named, phase
from support.learning import HERE, Own, digests, learner, track, write

from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.experiment import load
from palaestrai_mosaik.runner import checkpoint, earlier_run, execute, scalars
from palaestrai_mosaik.store import Store

ROOT = Path(__file__).parents[2]


def learning(*, workers: int = 1, broken: Path | None = None, **keys: Any) -> Any:
    """Return a document of 4 episodes of 5 steps, evaluated after every second one; it may fail in the fourth."""
    conditions = [named(f"{HERE}:Tiring", steps=5)]
    if broken is not None:
        conditions.append(named(f"{HERE}:FailsWhile", path=str(broken), episode=3, time=2))
    one = learner(
        muscle=named(f"{HERE}:WandererMuscle"),
        brain=named(f"{HERE}:Wanderer"),
        objective=named(f"{HERE}:Drift"),
    )
    config = {"workers": workers, "episodes": 4, "evaluate_every": 2, **keys}
    return document(phase([track(steps=5)], [one], conditions, **config))


def points_of(file: Path) -> list[tuple[str, float, int, int]]:
    """Return the points in a file of JSON lines, without wall times and what depends on them."""
    told = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [
        (one["tag"], one["value"], one["episode"], one["steps"])
        for one in told
        if "steps_per_second" not in one["tag"]
    ]


def test_tensorboard_shows_what_the_store_has(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    names = (f"tensorboard:{tmp_path}/tb", f"jsonl:{tmp_path}/points.jsonl")
    with Store(tmp_path / "plain", create=True) as plain, Store(tmp_path / "s", create=True) as store:
        execute(learning(), store=plain)
        result = execute(learning(), store=store, scalars=names)
        assert digests(store) == digests(plain)
        assert result.warnings == []
        (agent,) = set(store.agents("latest")["agent"])
        expected: dict[str, dict[tuple[int, int], float]] = {}
        steps = store.episodes("latest")["steps"].cumsum().tolist()
        for evaluation, kind in ((False, "train"), (True, "evaluation")):

            def place_of(episode: int, evaluation: bool = evaluation) -> tuple[int, int]:
                # evaluations are after the second and the fourth episode
                return (2 * episode + 2, steps[2 * episode + 1]) if evaluation else (episode, steps[episode])

            for row in store.outcomes("latest", evaluation=evaluation).itertuples(index=False):
                what = "objective" if row.kind == "objective" else f"reward/{row.name}"
                for moment in ("sum", "mean"):
                    if not np.isnan(getattr(row, moment)):
                        tag = f"phase_0/{kind}/{agent}/{what}_{moment}"
                        expected.setdefault(tag, {})[place_of(row.episode)] = getattr(row, moment)
            told = store.statistics("latest", evaluation=evaluation)
            for (episode, key), value in told.groupby(["episode", "key"])["value"].mean().items():
                tag = f"phase_0/{kind}/{agent}/statistic/{key}"
                expected.setdefault(tag, {})[place_of(episode)] = value
    (run,) = (tmp_path / "tb").iterdir()
    assert run.name == result.instance
    for axis, place in (("episodes", 0), ("steps", 1)):
        events = reader.EventAccumulator(str(run / axis))
        events.Reload()
        tags = set(events.Tags()["scalars"])
        assert tags - set(expected) == {
            f"phase_0/{kind}/{what}"
            for kind in ("train", "evaluation")
            for what in ("steps", "steps_per_second")
        }
        for tag, values in expected.items():
            found = {one.step: one.value for one in events.Scalars(tag)}
            assert len(found) == len(events.Scalars(tag))
            # (TensorBoard keeps 32 bits)
            assert found == pytest.approx({at[place]: v for at, v in values.items()}, rel=1e-6), tag
    lines = points_of(tmp_path / "points.jsonl")
    told = {(tag, episode, steps): value for tag, value, episode, steps in lines}
    assert len(told) == len(lines)
    for tag, values in expected.items():
        for (episode, steps), value in values.items():
            assert told[tag, episode, steps] == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_resumed_run_writes_nothing_twice(
    tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_SHARE", 1e9)
    monkeypatch.setattr(scalars, "INTERVAL", 0.0)
    whole, file, broken = tmp_path / "whole.jsonl", tmp_path / "points.jsonl", tmp_path / "broken"
    doc = learning(workers=workers, broken=broken)
    with Store(tmp_path / "plain", create=True) as store:
        execute(doc, store=store, scalars=[f"jsonl:{whole}"])
    broken.touch()
    with Store(tmp_path / "s", create=True) as store:
        with pytest.raises(Own, match="not mended yet"):
            # (no checkpoint after the first one: the third episode is run, and written, twice)
            execute(doc, store=store, checkpoint_every=1e-9, scalars=[f"jsonl:{file}"])
        before = points_of(file)
        assert {episode for _, _, episode, _ in before} == {0, 1, 2}
        broken.unlink()
        instance = earlier_run(doc, store).instance
        newest = sorted((store.instance_directory(instance) / checkpoint.FOLDER).iterdir())[-1]
        for path in sorted(newest.rglob("*"), reverse=True):
            path.unlink()
        newest.rmdir()
        execute(doc, store=store, resume=instance, scalars=[f"jsonl:{file}"])
    assert sorted(points_of(file)) == sorted(points_of(whole))
    assert len(set(points_of(file))) == len(points_of(file))
    ends = {tag.rpartition("/")[2] for tag, *_ in before}
    assert ("worker-1" in ends) is (workers == 2)


#: kills itself at the end of the last training episode, with a checkpoint after each one before
KILLED = """
import os, signal, sys
from palaestrai_mosaik.experiment import load
from palaestrai_mosaik.runner import checkpoint, execute
from palaestrai_mosaik.runner.progress import Progress
from palaestrai_mosaik.store import Store

class Dying(Progress):
    def episode(self, worker, number, steps, means):
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)

checkpoint._SHARE = 1e9
path, folder, sink = sys.argv[1:]
with Store(folder, create=True) as store:
    execute(load(path), store=store, progress=Dying(), checkpoint_every=1e-9, scalars=[sink])
"""


def test_a_killed_run_loses_nothing(tmp_path: Path) -> None:
    whole, file, path = tmp_path / "whole.jsonl", tmp_path / "points.jsonl", tmp_path / "run.yml"
    doc = load(write(path, learning()))
    with Store(tmp_path / "plain", create=True) as store:
        execute(doc, store=store, scalars=[f"jsonl:{whole}"])
    command = [sys.executable, "-c", KILLED, str(path), str(tmp_path / "s"), f"jsonl:{file}"]
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    assert subprocess.run(command, check=False, env=os.environ | paths).returncode == -9
    # all that the last checkpoint has, though it took less than the second that points may wait
    assert {episode for _, _, episode, _ in points_of(file)} >= {0, 1, 2}
    with Store(tmp_path / "s", create=True) as store:
        execute(doc, store=store, resume=earlier_run(doc, store).instance, scalars=[f"jsonl:{file}"])
    assert sorted(points_of(file)) == sorted(points_of(whole))


def test_a_run_that_goes_on_with_scalars_has_the_steps_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_SHARE", 1e9)
    whole, file, broken = tmp_path / "whole.jsonl", tmp_path / "points.jsonl", tmp_path / "broken"
    doc = learning(broken=broken)
    with Store(tmp_path / "plain", create=True) as store:
        execute(doc, store=store, scalars=[f"jsonl:{whole}"])
    broken.touch()
    with Store(tmp_path / "s", create=True) as store:
        with pytest.raises(Own, match="not mended yet"):
            execute(doc, store=store, checkpoint_every=1e-9)
        broken.unlink()
        execute(doc, store=store, resume=earlier_run(doc, store).instance, scalars=[f"jsonl:{file}"])
    last = [point for point in points_of(whole) if point[2] >= 3]
    assert sorted(points_of(file)) == sorted(last)


def test_json_lines_are_json(tmp_path: Path) -> None:
    """Which has no infinite numbers."""
    sink = scalars.JsonLines(str(tmp_path / "points.jsonl"), scalars.RunName("run", ""))
    sink.write([scalars.Point("gain", value, 0, 5, 1.0) for value in (2.5, math.inf, -math.inf)])
    sink.close()
    lines = (tmp_path / "points.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line, parse_constant=pytest.fail)["value"] for line in lines] == [2.5, None, None]


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_sink_that_fails_ends_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalars, "INTERVAL", 0.0)
    # what is written to it finds the disk full
    opened = files.open_append
    monkeypatch.setattr(
        files,
        "open_append",
        lambda path: os.open("/dev/full", os.O_WRONLY) if "full" in str(path) else opened(path),
    )
    with Store(tmp_path / "s", create=True) as store:
        result = execute(
            learning(),
            store=store,
            scalars=[f"jsonl:{tmp_path}/full.jsonl", f"jsonl:{tmp_path}/points.jsonl"],
        )
        assert store.runs()["status"].tolist() == ["finished"]
        (warning,) = result.warnings
        assert warning.startswith(f"no more scalars to jsonl:{tmp_path}/full.jsonl: OSError: [Errno 28]")
        assert store.warnings("latest")["text"].tolist() == [warning]
    assert {episode for _, _, episode, _ in points_of(tmp_path / "points.jsonl")} == {0, 1, 2, 3, 4}


def test_what_an_option_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "run.yml", learning(evaluate_every=None))
    file = tmp_path / "points.jsonl"
    assert main(["start", str(path), "--no-store", "--quiet", "--scalars", "tensorbord:x"]) == 2
    assert "did you mean 'tensorboard'" in capsys.readouterr().err
    assert main(["start", str(path), "--no-store", "--quiet", "--scalars", f"jsonl:{tmp_path}/none/x"]) == 1
    assert "No such file" in capsys.readouterr().err
    assert main(["start", str(path), "--no-store", "--quiet", "--scalars", f"jsonl:{file}"]) == 0
    # statistics go by the store, all else does not
    tags = {tag for tag, *_ in points_of(file)}
    assert "phase_0/train/a/objective_mean" in tags
    assert {json.loads(line)["run"] for line in file.read_text().splitlines()} == {learning().uid}


def test_weights_and_biases_is_named_where_it_is_missing() -> None:
    if scalars.importable("wandb"):
        pytest.skip("it is there")
    with pytest.raises(PalaestraiMosaikError, match=r"needs wandb: .*pip install.* wandb"):
        scalars.check_sinks(["wandb:study"])
