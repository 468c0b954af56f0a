"""Runs that were killed, interrupted or have failed go on as if nothing had happened."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.documents import document, named, phase
from support.learning import HERE, Own, digests, learner, noted, track, write
from support.processes import Program
from support.waiting import HANG, until

from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import CheckpointError, RunInterrupted, StoreError
from palaestrai_mosaik.runner import Earlier, Interrupt, Progress, checkpoint, earlier_run, execute
from palaestrai_mosaik.runner.checkpoint import versions
from palaestrai_mosaik.store import Store

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
ALWAYS = 1e-9
NORM = "palaestrai_mosaik.agent.filters:NormFilter"


def wandering(tmp_path, *, workers=1, fails=None, steps=6, **world):
    """Return a document of two phases in which all that lasts from episode to episode counts.

    ``fails``: phase, episode and time at which it raises, as long as there is a file "broken".
    """
    one = learner(
        muscle=named(f"{HERE}:WandererMuscle"),
        brain=named(f"{HERE}:Wanderer"),
        objective=named(f"{HERE}:Drift"),
        filters=[named(NORM)],
        snapshots={"every": 2, "best": True},
    )
    phases = []
    for index in (0, 1):
        conditions = [named(f"{HERE}:Tiring", steps=steps)]
        if fails is not None and fails[0] == index:
            path = str(tmp_path / "broken")
            conditions.append(named(f"{HERE}:FailsWhile", path=path, episode=fails[1], time=fails[2]))
        phases.append(
            phase(
                [track(steps=steps, **world)],
                [{**one, "load": {} if index else None}, learner("rule")],
                conditions,
                workers=workers,
                sync_every=4,
                episodes=6,
                evaluate_every=2,
            )
        )
    return document(*phases)


def everything(store, run="latest"):
    """Return all that a run has left, but for times, as plain data."""
    found = {"digests": digests(store, run)}
    clock = ["duration", "ended", "started", "instance", "run"]
    for flag in (False, True):
        table = store.episodes(run, evaluation=flag).drop(columns=clock, errors="ignore")
        found[f"episodes {flag}"] = table.to_json(orient="records", double_precision=15)
    found["phases"] = store.phases(run)[["name", "reason"]].to_numpy().tolist()
    found["statistics"] = store.statistics(run).to_json(orient="records", double_precision=15)
    root = store.instance_directory(store.find_run(run)) / "brains"
    found["brains"] = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.bin"))}
    return found


def checkpoints(store, run):
    folder = store.instance_directory(run) / checkpoint.FOLDER
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def break_and_mend(tmp_path, store, doc):
    """Run ``doc`` into its fault, and mend that; return the instance."""
    (tmp_path / "broken").touch()
    with pytest.raises(Own, match="not mended yet"):
        execute(doc, store=store, checkpoint_every=ALWAYS)
    (tmp_path / "broken").unlink()
    found = earlier_run(doc, store)
    instance, status = found.instance, found.status
    assert status == "failed"
    return instance


@pytest.fixture
def eager(monkeypatch):
    """Let a checkpoint be written after every round, however long that takes."""
    monkeypatch.setattr(checkpoint, "_SHARE", 1e9)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return what the run leaves that nothing disturbs; by the number of workers."""
    found = {}

    def of(workers):
        if workers not in found:
            path = tmp_path_factory.mktemp("undisturbed")
            with Store(path, create=True) as store:
                execute(wandering(path, workers=workers), store=store, checkpoint_every=0)
                found[workers] = everything(store)
        return found[workers]

    return of


@pytest.mark.parametrize(
    "fails", [(0, 1, 3), (0, 2, 0), (0, 4, 1), (0, 5, 2), (1, 0, 2), (1, 3, 3), (1, 5, 4)]
)
def test_a_run_that_has_failed_goes_on_as_if_nothing_had_happened(tmp_path, fails, eager, undisturbed):
    doc = wandering(tmp_path, fails=fails)
    with Store(tmp_path / "s", create=True) as store:
        instance = break_and_mend(tmp_path, store, doc)
        assert 1 <= len(checkpoints(store, instance)) <= 2
        result = execute(doc, store=store, resume=instance, checkpoint_every=ALWAYS)
        assert result.instance == instance
        assert store.runs()["status"].tolist() == ["finished"]
        assert everything(store) == undisturbed(1)
        assert [outcome.episodes for outcome in result.phases] == [6, 6]
        # they are of no use any more
        assert checkpoints(store, instance) == []
        assert len(store.errors("latest")) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_values_outside_of_their_space_are_counted_on(tmp_path, eager, workers):
    def warnings(doc, store, **how):
        found = execute(doc, store=store, **how).warnings
        values = [text for text in found if "outside of" in text]
        assert [text for text in store.warnings("latest")["text"] if "outside of" in text] == values
        return values

    with Store(tmp_path / "undisturbed", create=True) as store:
        expected = warnings(wandering(tmp_path, workers=workers, name="NarrowTrack"), store)
    doc = wandering(tmp_path, workers=workers, name="NarrowTrack", fails=(0, 4, 1))
    with Store(tmp_path / "s", create=True) as store:
        instance = break_and_mend(tmp_path, store, doc)
        assert [text for text in store.warnings("latest")["text"] if "outside of" in text] not in (
            [],
            expected,
        )
        assert warnings(doc, store, resume=instance) == expected
    assert [text[:16] for text in expected] == ["phase 'phase_0':", "phase 'phase_1':"]


def test_the_undisturbed_run_depends_on_all_that_is_kept(undisturbed):
    """Else the tests around this one would not see what a checkpoint forgets."""
    found = undisturbed(1)
    weights = [row["value"] for row in json.loads(found["statistics"])]
    assert len(set(weights)) == len(weights) > 50
    lengths = [row["steps"] for row in json.loads(found["episodes False"]) if row["agent"] == "a"]
    # every fourth episode is short, evaluations counted
    assert set(lengths) == {4, 6}
    assert any("best" in name for name in found["brains"])
    assert any("filters" in name for name in found["brains"])


def test_a_damaged_checkpoint_is_left_for_the_one_before(tmp_path, eager, undisturbed):
    doc = wandering(tmp_path, fails=(0, 4, 1))
    with Store(tmp_path / "s", create=True) as store:
        instance = break_and_mend(tmp_path, store, doc)
        older, newer = checkpoints(store, instance)
        state = store.instance_directory(instance) / checkpoint.FOLDER / newer / "state.pickle"
        state.write_bytes(state.read_bytes()[:-7])
        stray = state.parents[1] / ".000099.1"
        stray.mkdir()
        execute(doc, store=store, resume=instance, checkpoint_every=ALWAYS)
        assert everything(store) == undisturbed(1)
    assert older < newer


@pytest.mark.parametrize("damage", ["state cut", "state changed", "no state", "no manifest", "manifest cut"])
def test_without_a_whole_checkpoint_nothing_is_changed(tmp_path, eager, damage):
    doc = wandering(tmp_path, fails=(0, 4, 1))
    with Store(tmp_path / "s", create=True) as store:
        instance = break_and_mend(tmp_path, store, doc)
        before = everything(store)
        for name in checkpoints(store, instance):
            folder = store.instance_directory(instance) / checkpoint.FOLDER / name
            state, manifest = folder / "state.pickle", folder / "manifest.json"
            if damage == "state cut":
                state.write_bytes(state.read_bytes()[:100])
            elif damage == "state changed":
                content = bytearray(state.read_bytes())
                content[50] ^= 1
                state.write_bytes(content)
            elif damage == "manifest cut":
                manifest.write_bytes(manifest.read_bytes()[:30])
            else:
                (state if damage == "no state" else manifest).unlink()
        with pytest.raises(CheckpointError, match=r"no checkpoint in .* is whole: 0+\d+, 0+\d+"):
            execute(doc, store=store, resume=instance)
        assert everything(store) == before
        assert earlier_run(doc, store) == Earlier(instance, "failed", True)


def change_manifest(path, **keys):
    """Write other values into a manifest that stays whole and signed."""
    body = json.dumps(json.loads(path.read_bytes().partition(b"\n")[2]) | keys).encode()
    head = f"{hashlib.sha256(body).hexdigest()} {checkpoint.sign(body)}\n"
    path.write_bytes(head.encode() + body)


def test_a_state_that_cannot_be_read_changes_nothing(tmp_path, eager):
    """The hash is right, but the classes are not what they were."""
    doc = wandering(tmp_path, fails=(0, 4, 1))
    with Store(tmp_path / "s", create=True) as store:
        instance = break_and_mend(tmp_path, store, doc)
        before = everything(store)
        for name in checkpoints(store, instance):
            folder = store.instance_directory(instance) / checkpoint.FOLDER / name
            state = (folder / "state.pickle").read_bytes().replace(b"WandererMuscle", b"WandererNobody")
            (folder / "state.pickle").write_bytes(state)
            change_manifest(folder / "manifest.json", state=hashlib.sha256(state).hexdigest())
        with pytest.raises(CheckpointError, match=r"cannot be read.*WandererNobody"):
            execute(doc, store=store, resume=instance)
        assert everything(store) == before
        assert earlier_run(doc, store) == Earlier(instance, "failed", True)


def test_checkpoints_of_other_documents_and_versions_are_refused(tmp_path, eager):
    doc = wandering(tmp_path, fails=(0, 4, 1))
    with Store(tmp_path / "s", create=True) as store:
        instance = break_and_mend(tmp_path, store, doc)
        other = wandering(tmp_path, fails=(0, 5, 1))
        assert earlier_run(other, store) is None
        with pytest.raises(CheckpointError, match="belongs to a document with the hash"):
            execute(other, store=store, resume=instance)
        for name in checkpoints(store, instance):
            path = store.instance_directory(instance) / checkpoint.FOLDER / name / "manifest.json"
            change_manifest(path, versions={**versions(), "numpy": "1.0"})
        with pytest.raises(CheckpointError, match=r"written with other versions.*numpy: 1.0 then"):
            execute(doc, store=store, resume=instance)
        assert earlier_run(doc, store) == Earlier(instance, "failed", True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_part_that_cannot_be_pickled_costs_the_checkpoints_not_the_run(tmp_path, workers, eager):
    one = learner(
        muscle=named(f"{HERE}:NotPicklableMuscle"), brain=named("support.parts:RaisingBrain", where="")
    )
    doc = document(phase([track()], [one], workers=workers, episodes=3))
    with Store(tmp_path, create=True) as store:
        result = execute(doc, store=store, checkpoint_every=ALWAYS)
        (warning,) = result.warnings
        assert "no more checkpoints are written, so the run cannot be resumed from now on" in warning
        assert "cannot be pickled" in warning
        assert store.warnings("latest")["text"].tolist() == [warning]
        assert checkpoints(store, result.instance) == []
        assert result.phases[0].episodes == 3 * workers


@pytest.mark.parametrize("lasts", [True, False])
def test_what_keeps_checkpoints_from_being_written_is_told_once(tmp_path, monkeypatch, eager, lasts):
    (tmp_path / "file").touch()
    written = checkpoint.Checkpoints.write
    calls = []

    def write(self, *args):
        calls.append(args)
        try:
            if not lasts and len(calls) < 4:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise CheckpointError(f"cannot write: {error}") from error
        written(self, *args)

    monkeypatch.setattr(checkpoint.Checkpoints, "write", write)
    if lasts:  # there is no home
        monkeypatch.setenv("PALAESTRAI_MOSAIK_KEY", str(tmp_path / "file" / "key"))
    doc = wandering(tmp_path)
    with Store(tmp_path / "s", create=True) as store:
        result = execute(doc, store=store, checkpoint_every=ALWAYS)
        told = [text for text in store.warnings("latest")["text"] if "checkpoint" in text]
        assert told == [text for text in result.warnings if "checkpoint" in text]
    (warning,) = told
    if lasts:
        assert (
            "no more checkpoints" in warning
            and "the private key" in warning
            and "cannot be written" in warning
        )
        assert len(calls) == 1
    else:
        assert "the checkpoint was skipped" in warning and "No space left on device" in warning
        assert len(calls) > 4


def test_resume_of_a_finished_run_does_nothing_and_of_none_begins_one(tmp_path, capsys):
    path = write(tmp_path / "run.yml", wandering(tmp_path))
    arguments = ["start", str(path), "--store", str(tmp_path / "s"), "--resume"]
    assert main(arguments) == 0
    assert "nothing to resume, starting from the beginning" in capsys.readouterr().err
    with Store(tmp_path / "s", create=True) as store:
        before = everything(store)
        assert main(arguments) == 0
        assert "has finished already" in capsys.readouterr().err
        assert everything(store) == before
        assert store.runs()["status"].tolist() == ["finished"]
        with pytest.raises(CheckpointError, match="there is no checkpoint in"):
            execute(wandering(tmp_path), store=store, resume="latest")


def test_a_run_that_has_finished_is_not_resumed(tmp_path, eager):
    """Not even where one of its checkpoints is put back."""
    doc = wandering(tmp_path, fails=(0, 4, 1))
    with Store(tmp_path / "s", create=True) as store:
        instance = break_and_mend(tmp_path, store, doc)
        kept = store.instance_directory(instance) / checkpoint.FOLDER
        shutil.copytree(kept, tmp_path / "kept")
        execute(doc, store=store, resume=instance)
        shutil.copytree(tmp_path / "kept", kept)
        with pytest.raises(StoreError, match="has finished"):
            execute(doc, store=store, resume=instance)


class Command:
    """``start --resume`` of a document whose environments note their resets."""

    def __init__(self, tmp_path, workers):
        self.log = tmp_path / "log"
        self.store = tmp_path / "s"
        doc = wandering(tmp_path, workers=workers, seconds=0.008, log=str(self.log))
        self.path = write(tmp_path / "run.yml", doc)

    def start(self):
        return Program(
            [
                *[sys.executable, "-m", "palaestrai_mosaik.cli.main", "start", str(self.path)],
                *["--store", str(self.store), "--resume", "--checkpoint-every", "0.01"],
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )

    def disturb(self, number, resets, delay):
        """Begin or go on, and send a signal after so many episodes and seconds; return what was said."""
        before = len(noted(self.log))
        with self.start() as process:
            until(lambda: len(noted(self.log)) >= before + resets or process.poll() is not None)
            time.sleep(delay)
            process.send_signal(number)
            return process.communicate(timeout=HANG)[1]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_is_killed_again_and_again_goes_on_as_if_nothing_had_happened(
    tmp_path, workers, undisturbed
):
    command = Command(tmp_path, workers)
    moments = np.random.default_rng(workers)
    said = [
        # of the 18 episodes of a worker (12 and 6 evaluations), each time at least 4 more
        command.disturb(number, 4 * workers + int(moments.integers(2 * workers)), moments.uniform(0, 0.05))
        for number in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL)
    ]
    with command.start() as process:
        said.append(process.communicate(timeout=HANG)[1])
    assert process.returncode == 0, said
    assert any("resuming instance" in text for text in said[1:]), said
    with Store(command.store, create=False) as store:
        assert everything(store) == undisturbed(workers)
        assert store.runs()["status"].iloc[-1] == "finished"


class _AtTheEnd(Progress):
    """Asks for the end of a run after so many episodes, between two of them."""

    def __init__(self, interrupt, after):
        self._interrupt, self._left = interrupt, after

    def episode(self, worker, episode, steps, objectives):
        self._left -= 1
        if not self._left:
            self._interrupt.request()


def test_a_run_that_is_cancelled_in_its_first_minute_is_resumed(tmp_path, undisturbed):
    """With the default time between two checkpoints: one is written before the end, where the state is whole."""
    doc = wandering(tmp_path)
    with Store(tmp_path / "s", create=True) as store:
        interrupt = Interrupt()
        with pytest.raises(RunInterrupted):
            execute(doc, store=store, interrupt=interrupt, progress=_AtTheEnd(interrupt, 3))
        found = earlier_run(doc, store)
        assert (found.status, found.has_checkpoint) == ("interrupted", True)
        result = execute(doc, store=store, resume=found.instance)
        assert [outcome.episodes for outcome in result.phases] == [6, 6]
        assert everything(store) == undisturbed(1)


def test_the_time_between_two_checkpoints_grows_to_the_interval(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])
    monkeypatch.setenv("PALAESTRAI_MOSAIK_KEY", str(tmp_path / "key"))
    kept = checkpoint.Checkpoints(tmp_path, "h", {}, checkpoint.INTERVAL)
    written = []
    for second in range(300):
        clock[0] = 100.0 + second
        if kept.is_due():
            kept.write({}, {}, clock[0])
            written.append(second)
    assert written == [5, 10, 20, 40, 80, 140, 200, 260]
    assert not kept.is_due() and kept.is_due(ending=True)
    clock[0] += 10.0
    # one that takes long is not worth the time that a run has to end
    kept.write({}, {}, clock[0] - 3.0)
    assert not kept.is_due(ending=True)
    assert not checkpoint.Checkpoints(tmp_path, "h", {}, 0.0).is_due(ending=True)
