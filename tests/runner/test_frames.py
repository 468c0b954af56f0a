"""Rendered frames that a document requests: which are stored, what they show, and that nothing else changes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.documents import document
from support.painted import decoded, painted, painted_phase

import palaestrai_mosaik as pm
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import ContractError, DocumentError, SimulatorError
from palaestrai_mosaik.experiment import RunDocument, describe, from_mapping
from palaestrai_mosaik.runner import checkpoint, earlier_run, execute
from palaestrai_mosaik.runner.preflight import inspect
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.recorder import MARKER
from palaestrai_mosaik.store.verify import verify


@pytest.fixture
def store(tmp_path: Path):
    with Store(tmp_path / "store", create=True) as opened:
        yield opened


def digests(store: Store, run: str) -> dict[str, str]:
    """Return the digests of a finished run."""
    marker = json.loads((store.instance_directory(run) / MARKER).read_text(encoding="utf-8"))
    found: dict[str, str] = marker["digests"]
    return found


def problem_of(doc: RunDocument) -> str:
    (problem,) = inspect(doc)
    assert problem.path.endswith("environments.0.frames")
    return problem.message


def check_frames(store: Store, evaluation: bool = False, run: str = "latest") -> list[tuple[int, ...]]:
    """Compare each frame with the state that it is of; return phase, worker, episode and step of all frames."""
    frames = store.frames(run, evaluation=evaluation)
    states = store.environment_states(run, evaluation=evaluation)
    keys = ["phase", "environment", "worker", "episode", "step", "time"]
    both = frames.merge(states, on=keys, validate="one_to_one")
    assert len(both) == len(frames)
    for png, step, episode, level in both[["png", "step", "episode", "reading.world.level"]].itertuples(
        index=False
    ):
        assert np.array_equal(decoded(png), painted(step, episode, round(level * 255)))
    return [tuple(map(int, row)) for row in frames[["phase", "worker", "episode", "step"]].to_numpy()]


@pytest.mark.parametrize(
    ("frames", "episodes", "steps"),
    [
        (True, [0, 1, 2, 3], [0, 1, 2, 3, 4]),
        ({}, [0, 1, 2, 3], [0, 1, 2, 3, 4]),
        ({"every": 3}, [0, 3], [0, 1, 2, 3, 4]),
        # the last state of an episode is always rendered
        ({"episodes": [2, 1], "step_every": 3}, [1, 2], [0, 3, 4]),
        ({"every": 2, "step_every": 100}, [0, 2], [0, 4]),
        ({"episodes": [17]}, [], []),
        (False, [], []),
    ],
)
def test_the_frames_are_those_of_the_states_that_are_requested(
    store: Store, frames: Any, episodes: list[int], steps: list[int]
) -> None:
    execute(document(painted_phase(frames)), store=store)
    assert check_frames(store) == [(0, 0, episode, step) for episode in episodes for step in steps]


def test_what_is_not_requested_costs_nothing(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for frames in (None, False):
        execute(document(painted_phase(frames, params={"log": str(log)})), store=store)
    assert not log.exists()
    assert not (store.streams("latest")["kind"] == "frames").any()
    execute(document(painted_phase({"every": 3, "step_every": 2}, params={"log": str(log)})), store=store)
    assert log.read_text().split("\n") == ["0 0 0", "0 0 2", "0 0 4", "0 3 0", "0 3 2", "0 3 4", ""]


@pytest.mark.parametrize("workers", [1, 2])
def test_digests_are_those_of_a_run_without_frames(store: Store, workers: int) -> None:
    for frames in (None, {"every": 2}):
        execute(document(painted_phase(frames, workers=workers, mode="train")), store=store)
    plain, rendered = store.runs()["run"]
    assert digests(store, plain) == digests(store, rendered) != {}
    assert store.frames(plain).empty
    wanted = [
        (0, worker, episode, step) for worker in range(workers) for episode in (0, 2) for step in range(5)
    ]
    assert sorted(check_frames(store)) == wanted
    one = store.frames(rendered, worker=workers - 1, episode=2, start=1, stop=3)
    assert one[["worker", "episode", "time"]].to_numpy().tolist() == [
        [workers - 1, 2, 1],
        [workers - 1, 2, 2],
    ]


def test_evaluations_have_frames_of_their_own(store: Store) -> None:
    doc = document(painted_phase({"episodes": [1]}, mode="train", evaluate_every=2))
    execute(doc, store=store)
    assert {row[2] for row in check_frames(store)} == {1}
    assert check_frames(store, evaluation=True) == [(0, 0, 1, step) for step in range(5)]
    both = store.frames("latest", evaluation=None)
    assert list(both)[:5] == ["phase", "environment", "worker", "episode", "evaluation"]
    assert both["evaluation"].sum() == 5 and len(both) == 10


def test_frames_of_a_later_phase_are_inherited(store: Store) -> None:
    second = {"phase_config": {"episodes": 1}}
    execute(document(painted_phase({"step_every": 4}, episodes=1), second), store=store)
    assert check_frames(store) == [(phase, 0, 0, step) for phase in (0, 1) for step in (0, 4)]
    found = store.recorded_frames("latest")
    assert found[["phase", "frames"]].to_numpy().tolist() == [[0, 2], [1, 2]]
    assert found["bytes"].sum() == store.frames("latest")["png"].map(len).sum()


def test_a_state_may_have_no_picture(store: Store) -> None:
    execute(document(painted_phase(params={"frame": "none"})), store=store)
    assert store.frames("latest").empty
    assert list(store.frames("latest", phase=0, environment="world")) == [
        "worker",
        "episode",
        "step",
        "time",
        "png",
    ]


@pytest.mark.parametrize(
    ("frame", "said"),
    [("flat", r"uint8 of shape \(3, 3\)"), ("floats", r"float64 of shape \(3, 3, 3\)"), ("text", "a str")],
)
def test_a_frame_of_another_kind_ends_the_run(store: Store, frame: str, said: str) -> None:
    with pytest.raises(
        ContractError, match=rf"environment 'world' rendered {said}; a frame is a uint8 array"
    ):
        execute(document(painted_phase(params={"frame": frame})), store=store)


def test_who_cannot_render_is_refused_before_the_run() -> None:
    said = problem_of(document(painted_phase(name="support.painted:Unseen")))
    assert said.startswith(
        "environment 'world' cannot render frames: its class Unseen has no method 'render'"
    )
    # nothing is wrong where nothing is requested
    assert inspect(document(painted_phase(None, name="support.painted:Unseen"))) == []


def test_another_interpreter_renders_the_same(store: Store) -> None:
    entries = [{}, {"interpreter": sys.executable}]
    runs = [execute(document(painted_phase({"every": 2}, **one)), store=store).instance for one in entries]
    frames = [store.frames(run) for run in runs]
    assert digests(store, runs[0]) == digests(store, runs[1])
    assert len(frames[0]) == 10 and frames[0].equals(frames[1])
    refused = document(painted_phase(name="support.painted:Unseen", interpreter=sys.executable))
    assert "its class Unseen has no method 'render'" in problem_of(refused)
    broken = document(painted_phase(params={"frame": "text"}, interpreter=sys.executable))
    with pytest.raises((ContractError, SimulatorError), match="a str"):
        execute(broken, store=store)


@pytest.mark.parametrize("every", [1, 2])
def test_a_run_that_goes_on_has_the_frames_of_one_that_nothing_disturbed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(checkpoint, "_SHARE", 1e9)
    broken = tmp_path / "broken"
    phases = [
        painted_phase({"every": every}, params={"broken": str(broken)}, episodes=6),
        {"phase_config": {"episodes": 2}},
    ]
    doc = document(*phases)
    whole = execute(doc, store=store).instance
    broken.touch()
    with pytest.raises(RuntimeError, match="it is broken"):
        execute(doc, store=store, checkpoint_every=1e-9)
    broken.unlink()
    earlier = earlier_run(doc, store)
    assert earlier is not None and earlier.status == "failed"
    # the frames of the unfinished episode are there, and are rendered again
    assert len(store.frames(earlier.instance, phase=0, episode=3)) == (2 if every == 1 else 0)
    execute(doc, store=store, resume=earlier.instance, checkpoint_every=1e-9)
    assert store.frames(earlier.instance).equals(store.frames(whole))
    assert check_frames(store, run=earlier.instance)
    assert verify(store, earlier.instance).damage == ()
    columns = ["kind", "name", "rows", "digest"]
    pair = [store.streams(run)[columns] for run in (earlier.instance, whole)]
    assert pair[0].equals(pair[1])


def test_a_document_says_what_is_wrong_with_its_request() -> None:
    def messages(frames: Any) -> list[str]:
        with pytest.raises(DocumentError) as raised:
            document(painted_phase(frames))
        return [problem.message for problem in raised.value.problems]

    assert messages(3) == ["frames must be true, false or a mapping, found the number 3"]
    assert messages({"evry": 3}) == [
        "unknown key 'evry' in frames (did you mean 'every'?); allowed: every, episodes, step_every"
    ]
    assert messages({"every": 0}) == [
        "frames' every (a number of episodes) must be an integer of at least 1 or null, found the number 0"
    ]
    assert messages({"episodes": []}) == [
        "frames' episodes (their numbers) must be a list of at least one number, found an empty list"
    ]
    assert messages({"episodes": [1, -2]}) == [
        "frames' episodes (their numbers) must be an integer of at least 0, found the number -2"
    ]
    assert messages({"episodes": [1], "every": 2}) == ["frames takes 'every' or 'episodes', not both"]


def test_the_identity_of_a_document_without_frames_stays() -> None:
    hashes = {
        str(frames): document(painted_phase(frames)).hash for frames in (None, False, True, {}, {"every": 1})
    }
    assert hashes["None"] == hashes["False"]
    assert hashes["True"] == hashes["{}"] == hashes["{'every': 1}"] != hashes["None"]
    doc = document(painted_phase({"episodes": [4, 2], "step_every": 5}))
    again = from_mapping(doc.canonical)
    assert again.hash == doc.hash and again.phases == doc.phases
    assert "frames of episodes 4, 2, every 5 steps" in describe(doc)


def test_python_gets_the_frames_of_a_run(tmp_path: Path) -> None:
    recorded = pm.run(document(painted_phase({"every": 2})), store=tmp_path / "store", quiet=True)
    frames = recorded.frames("phase_0", environment="world", episode=2)
    assert list(frames) == ["worker", "episode", "step", "time", "png"]
    assert frames["step"].tolist() == [0, 1, 2, 3, 4]
    assert list(recorded.frames())[:3] == ["phase", "phase_name", "environment"]
    assert recorded.frames(episode=1).empty
    # the page of a notebook carries them
    assert recorded.view().phases == ("phase_0",)
    recorded.close()


def test_frames_are_stored_beside_live_scalars(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    doc = document(painted_phase({"every": 3}))
    with pm.run(
        doc, store=tmp_path / "store", quiet=True, scalars=[f"tensorboard:{tmp_path / 'sink'}"]
    ) as recorded:
        assert {row[2] for row in check_frames(recorded.store)} == {0, 3}


def test_frames_are_requested_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yml"
    file.write_text(json.dumps(document(painted_phase(None)).canonical), encoding="utf-8")
    command = ["start", str(file), "--store", str(tmp_path / "store"), "--set"]
    assert main([*command, "environments.world.frames={every: 3}"]) == 0
    with Store(tmp_path / "store", read_only=True) as store:
        assert {row[2] for row in check_frames(store)} == {0, 3}
    assert (
        main(["check", str(file), "--set", "environments.world.environment.name=support.painted:Unseen"]) == 0
    )
    refused = ["environments.world.frames=true", "environments.world.environment.name=support.painted:Unseen"]
    assert main(["check", str(file), *(part for text in refused for part in ("--set", text))]) == 2
    assert "environment 'world' cannot render frames" in "".join(capsys.readouterr())
