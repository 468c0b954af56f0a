"""Open parts: what has been recorded since the last part file is found while a run goes on, and after it was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.waiting import HANG, meanwhile, until

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import (
    AgentRecord,
    BodyRecord,
    ChannelRecord,
    EnvironmentRecord,
    Store,
    open_parts,
    row_stream,
)
from palaestrai_mosaik.store.open_parts import open_part_files
from palaestrai_mosaik.store.parts import columns_of, parts_so_far, read_parts, read_wall
from palaestrai_mosaik.store.streams import AgentStream, EnvironmentStream, StatisticsStream
from palaestrai_mosaik.store.verify import verify


def channels(count: int) -> list[ChannelRecord]:
    return [ChannelRecord(f"e.{i}", "", 1) for i in range(count)]


def agent_stream(folder: Path) -> AgentStream:
    record = BodyRecord(sensors=channels(2), actuators=channels(1), rewards=["r"])
    return AgentStream(folder / "agent-a", folder / "wall-a", record, {"name": "a"}, lambda: None)


def fill(stream: AgentStream, steps: range) -> None:
    for step in steps:
        stream.append(
            1, 2, step, 10 * step, [step, -step], [0.5], [step / 4], step / 2, False, step == 8, 0.25 * step
        )


def rows_of(folder: Path, count: int | None = None) -> Any:
    return read_parts(parts_so_far(folder, count)).to_pandas()


def test_rows_of_an_agent_are_those_of_the_part_that_follows(tmp_path: Path) -> None:
    stream = agent_stream(tmp_path)
    fill(stream, range(3))
    stream.show()
    assert [path.name for path in open_part_files(stream.folder)] == ["part-000000.arrows"]
    assert len(rows_of(stream.folder)) == 3
    fill(stream, range(3, 9))
    stream.show()
    shown, names = rows_of(stream.folder), columns_of(parts_so_far(stream.folder))
    wall = read_wall(parts_so_far(stream.folder))["wall"].to_pylist()
    assert shown["reading.e.1"].tolist() == [-float(step) for step in range(9)]
    stream.flush()
    assert open_part_files(stream.folder) == []
    assert rows_of(stream.folder).equals(shown)
    assert (rows_of(stream.folder).dtypes == shown.dtypes).all()
    assert columns_of(parts_so_far(stream.folder)) == names == list(shown)
    paths = parts_so_far(stream.folder)
    assert read_wall(paths)["wall"].to_pylist() == wall == [0.25 * step for step in range(9)]


def test_rows_behind_a_part_follow_its_rows(tmp_path: Path) -> None:
    stream = agent_stream(tmp_path)
    fill(stream, range(5))
    stream.show()
    stream.flush()
    fill(stream, range(5, 7))
    stream.show()
    assert [path.name for path in parts_so_far(stream.folder)] == [
        "part-000000.parquet",
        "part-000001.arrows",
    ]
    assert rows_of(stream.folder)["step"].tolist() == list(range(7))
    # of a phase that has ended, the database knows how many parts there are
    assert rows_of(stream.folder, 1)["step"].tolist() == list(range(5))
    stream.flush()
    whole = agent_stream(tmp_path / "other")
    (tmp_path / "other").mkdir()
    fill(whole, range(7))
    assert whole.digest() == stream.digest()


def test_states_and_statistics_have_open_parts_too(tmp_path: Path) -> None:
    record = EnvironmentRecord("e", "E", sensors=channels(1))
    states = EnvironmentStream(tmp_path / "environment-e", record, {}, lambda: None)
    statistics = StatisticsStream(tmp_path / "statistics", {}, lambda: None)
    for step, state in enumerate(({"ä": 1}, None, [2])):
        states.append(0, 0, step, step, [1.0], [], False, False, state)
        statistics.append("agent", 0, 0, step, "loss", step / 3)
        states.show()
        statistics.show()
    found = rows_of(states.folder), rows_of(statistics.folder)
    assert [None if text is None else json.loads(text) for text in found[0]["state"]] == [{"ä": 1}, None, [2]]
    assert found[1]["value"].tolist() == [0.0, 1 / 3, 2 / 3]
    states.flush()
    statistics.flush()
    for one, stream in zip(found, (states, statistics), strict=True):
        assert rows_of(stream.folder).equals(one)


def test_a_batch_that_is_not_whole_is_left_out(tmp_path: Path) -> None:
    stream = agent_stream(tmp_path)
    fill(stream, range(3))
    stream.show()
    (path,) = open_part_files(stream.folder)
    first = path.stat().st_size
    fill(stream, range(3, 6))
    stream.show()
    content = path.read_bytes()
    for size in (first, first + 1, first + 9, len(content) - 1):
        path.write_bytes(content[:size])
        assert rows_of(stream.folder)["step"].tolist() == [0, 1, 2]
    path.write_bytes(content[:10])
    with pytest.raises(StoreError, match=r"part-000000\.arrows is damaged"):
        rows_of(stream.folder)


def test_a_reader_who_is_late_takes_the_part(tmp_path: Path) -> None:
    stream = agent_stream(tmp_path)
    fill(stream, range(4))
    stream.show()
    paths = parts_so_far(stream.folder)
    stream.flush()
    assert read_parts(paths)["step"].to_pylist() == list(range(4))
    assert read_wall(paths)["wall"].to_pylist() == [0.0, 0.25, 0.5, 0.75]
    assert columns_of(paths)[0] == "worker"


def test_an_open_part_that_cannot_be_written_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = agent_stream(tmp_path)
    fill(stream, range(2))
    stream.show()

    def refuse(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "append_bytes", refuse)
        fill(stream, range(2, 4))
        stream.show()
    assert open_part_files(stream.folder) == []
    fill(stream, range(4, 6))
    stream.show()
    assert rows_of(stream.folder)["step"].tolist() == list(range(6))
    # the folder of the run is gone: nothing comes up again
    files.remove_tree(tmp_path / "agent-a")
    stream.show()
    assert not (tmp_path / "agent-a").exists()


KILLED = """
import os, signal, sys, time
from palaestrai_mosaik.store import open_parts
open_parts.SECONDS = 0.05
sys.path.insert(0, {tests!r})
from palaestrai_mosaik.store import AgentRecord, BodyRecord, ChannelRecord, EnvironmentRecord, Store
store = Store({folder!r}, create=True)
run = store.begin_run(uid="killed", document={{}}, text="", hash="h", seed=1, version="3.5")
sensors = [ChannelRecord("e.s", "", 1)]
body = BodyRecord(sensors=sensors, actuators=[], rewards=[])
phase = run.begin_phase(0, "phase", mode="test", workers=1, episodes=1, controller="Vanilla",
    environments=[EnvironmentRecord("e", "E", sensors=sensors)], agents=[AgentRecord("a", None, None, None, [body])])
for step in range(3):
    phase.agent("a").append(0, 0, step, step, [step], [], [], 1.0, False, False, 0.5)
    phase.environment("e").append(0, 0, step, step, [step], [], False, False)
    phase.statistic("a", 0, 0, step, "loss", step)
time.sleep(1.5)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_what_a_killed_run_recorded_is_found(tmp_path: Path) -> None:
    code = KILLED.format(tests=str(Path(__file__).parents[1]), folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    with Store(tmp_path, read_only=True) as store:
        assert store.runs()["status"].tolist() == ["lost"]
        steps = store.steps("killed", columns=["wall", "reading.e.s"])
        assert steps["reading.e.s"].tolist() == [0.0, 1.0, 2.0]
        assert steps["wall"].tolist() == [0.5] * 3
        assert store.environment_states("killed")["step"].tolist() == [0, 1, 2]
        assert store.statistics("killed")["value"].tolist() == [0.0, 1.0, 2.0]
        assert store.recorded_episodes("killed")["last"].tolist() == [0]
        assert store.body_episodes("killed")["steps"].tolist() == [3]
        assert verify(store, "killed").damage == ()
        written = store.export("killed", tmp_path / "exported", format="csv")
        table = next(
            path for path in written if path.name == "statistics.csv" and path.parent.name == "phase-0"
        )
        assert len(table.read_text().splitlines()) == 4


def test_rows_are_found_while_nothing_is_appended(tmp_path: Path) -> None:
    """The thread of a phase shows them, and ends with the phase."""
    with Store(tmp_path, create=True) as store:
        run = store.begin_run(uid="live", document={}, text="", hash="h", seed=1, version="3.5")
        body = BodyRecord(sensors=channels(1), actuators=[], rewards=[])
        phase = run.begin_phase(
            *(0, "phase"),
            mode="test",
            workers=1,
            episodes=1,
            controller="Vanilla",
            environments=[EnvironmentRecord("e", "E", sensors=channels(1))],
            agents=[AgentRecord("a", None, None, None, [body])],
        )
        phase.agent("a").append(0, 0, 0, 0, np.ones(1), [], [], 1.0, False, False, 0.0)
        until(lambda: not store.steps(run.uid).empty)
        run.finish("finished")
        assert not phase._updates._thread.is_alive()
        assert len(store.steps(run.uid)) == 1
        assert list(tmp_path.rglob("*.arrows")) == []
        assert verify(store, run.uid, outcomes=False).damage == ()


def test_a_recorder_that_is_forgotten_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_parts, "SECONDS", 0.01)

    class Owner:
        def streams(self) -> list[Any]:
            return []

    owner = Owner()
    updates = open_parts.OpenPartUpdates(owner.streams)
    updates.start()
    del owner
    updates._thread.join(HANG)
    assert not updates._thread.is_alive()
    updates.stop()


def test_readers_never_see_a_row_twice_or_lose_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts take the place of open parts all the time, while another thread reads."""
    monkeypatch.setattr(open_parts, "SECONDS", 0.002)
    monkeypatch.setattr(open_parts, "SHARE", 0.5)
    monkeypatch.setattr(row_stream, "PART_SECONDS", 0.01)
    with Store(tmp_path, create=True) as store:
        run = store.begin_run(uid="live", document={}, text="", hash="h", seed=1, version="3.5")
        body = BodyRecord(sensors=channels(2), actuators=[], rewards=[])
        phase = run.begin_phase(
            *(0, "phase"),
            mode="test",
            workers=1,
            episodes=1,
            controller="Vanilla",
            environments=[EnvironmentRecord("e", "E", sensors=channels(2))],
            agents=[AgentRecord("a", None, None, None, [body])],
        )
        stream = phase.agent("a")
        written = threading.Event()

        def record() -> None:
            for step in range(3000):
                stream.append(0, 0, step, step, [step, 1], [], [], 1.0, False, False, step / 8)
                time.sleep(0.0002)
            written.set()

        seen = [0]
        with meanwhile(record):
            while not written.is_set():
                steps = store.steps(run.uid, 0, "a", columns=["wall", "reading.e.0"])
                count = len(steps)
                assert steps["step"].tolist() == list(range(count))
                assert steps["reading.e.0"].tolist() == list(range(count))
                assert steps["wall"].tolist() == [step / 8 for step in range(count)]
                seen.append(count)
        assert seen == sorted(seen)
        run.finish("finished")
        assert len(store.steps(run.uid)) == 3000
        assert stream.parts > 3
        assert verify(store, run.uid, outcomes=False).damage == ()
