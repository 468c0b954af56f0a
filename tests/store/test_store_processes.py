"""Several processes on one store, and processes that are killed."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.processes import Program
from support.waiting import HANG, until

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.verify import verify
from tests.support import records

TESTS = Path(__file__).parents[1]
PREAMBLE = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support import records
from palaestrai_mosaik.store import Store, row_stream
"""

WRITER = (
    PREAMBLE
    + """
row_stream.PART_SECONDS = 0.02
store = Store(sys.argv[1], create=True)
run = records.begin(store)
phase = records.begin_phase(run)
stream = phase.agent("a")
results = {"objective": records.moments(1.0), "rewards": {}}
phase.episode(0, 0, steps=1, ticks=1, ended_by="x", flow="RESET", duration=0.0, agents={"a": results})
step = 0
while True:
    stream.append(0, 1, step, step, [step, 1], [2 * step], [0], 0.0, False, False, 0.0)
    step += 1
    if stream.parts >= 3 and step % 1000 == 0:
        print(run.uid, flush=True)
"""
)

#: ends a run, and is killed right before or right after the database has its end
ENDING = (
    PREAMBLE
    + """
import os, signal
from palaestrai_mosaik.store.recorder import InstanceRecorder
store = Store(sys.argv[1], create=True)
run = records.begin(store)
phase = records.begin_phase(run)
phase.agent("a").append(0, 0, 0, 0, [0, 1], [2], [0], 0.0, False, False, 0.0)
results = {"objective": records.moments(0.0), "rewards": {"count": records.moments(0.0)}}
phase.episode(0, 0, steps=1, ticks=1, ended_by="x", flow="RESET", duration=0.0, agents={"a": results})
print(repr(run.mark()), flush=True)
end = InstanceRecorder._end

def killed(*arguments):
    if sys.argv[3] == "after":
        end(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

InstanceRecorder._end = killed
run.finish(sys.argv[2])
"""
)


def start(script: str, *arguments: str) -> Program:
    command = [sys.executable, "-c", script, *arguments]
    return Program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_killed_run_is_lost_but_readable(tmp_path):
    with start(WRITER, str(tmp_path / "store")) as process:
        assert process.stdout is not None
        uid = process.stdout.readline().strip()
        with Store(tmp_path / "store", create=False) as store:
            assert store.runs()["status"].tolist() == ["running"]
            during = store.steps(uid, agent="a")
        os.kill(process.pid, signal.SIGKILL)
        # not waited for yet: a zombie does not run either
        with Store(tmp_path / "store", create=False) as store:
            until(lambda: store.runs()["status"].tolist() != ["running"])
        assert process.wait(HANG) == -signal.SIGKILL
    with Store(tmp_path / "store", create=False) as store:
        assert store.runs()[["run", "status", "episodes"]].to_numpy().tolist() == [[uid, "lost", 1]]
        frame = store.steps(uid, agent="a")
        # a beginning of what was appended, without a gap
        assert len(frame) >= len(during) > 0
        assert frame["step"].tolist() == list(range(len(frame)))
        assert (frame["setpoint.myenv.0"] == 2 * frame["reading.myenv.0"]).all()
        assert frame.iloc[: len(during)].equals(during)
        assert not (store.instance_directory(uid) / "complete.json").exists()


def killed_at_its_end(folder: Path, status: str, when: str) -> dict[str, Any]:
    """Let a process be killed while it records how its run ended; return the mark of the run."""
    with start(ENDING, str(folder), status, when) as process:
        out, err = process.communicate(timeout=HANG)
    assert process.returncode == -signal.SIGKILL, err
    return ast.literal_eval(out)


@pytest.mark.parametrize("status", ["finished", "failed", "interrupted"])
def test_a_run_that_is_killed_once_the_database_has_its_end_is_whole(tmp_path, status):
    mark = killed_at_its_end(tmp_path / "store", status, "after")
    with Store(tmp_path / "store", create=False) as store:
        assert store.runs()["status"].tolist() == [status]
        found = verify(store, mark["instance"])
        assert (found.damage, found.unread, found.rows) == ((), (), 1)
        # what it has left is read, and its loss is damage of a run that finished
        (left,) = store.instance_directory(mark["instance"]).glob("complete.json*")
        good = left.read_text()
        for harm, said in (
            (lambda: left.write_text(good.replace('"digests":{"', '"digests":{"x')), "names other digests"),
            (left.unlink, "is missing"),
        ):
            harm()
            damage = verify(store, mark["instance"]).damage
            assert len(damage) == (status == "finished") and all(said in one for one in damage)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_that_is_killed_at_its_end_goes_on_and_leaves_one_marker(tmp_path, when):
    mark = killed_at_its_end(tmp_path / "store", "interrupted", when)
    uid = mark["instance"]
    with Store(tmp_path / "store", create=False) as store:
        assert store.runs()["status"].tolist() == ["lost" if when == "before" else "interrupted"]
        assert verify(store, uid).damage == ()
        phase = records.begin_phase(records.begin(store, "like it"))
        run = store.resume_run(uid, mark)
        run.reopen_phase(0, phase._environment_records, phase._agent_records)
        assert list(run.directory.glob("complete.json*")) == []
        run.finish("finished")
        assert [path.name for path in run.directory.glob("complete.json*")] == ["complete.json"]
        assert verify(store, uid).damage == ()


def test_a_marker_that_cannot_be_written_fails_the_run(tmp_path):
    with Store(tmp_path / "store", create=True) as store:
        run = records.begin(store)
        records.begin_phase(run).finish("done")
        # nothing can take the place of a pipe
        os.mkfifo(run.directory / "complete.json.pending")
        with pytest.raises(StoreError, match=r"cannot write .*complete\.json"):
            run.finish("finished")
        assert store.runs()["status"].tolist() == ["failed"]
        assert store.errors(run.uid)["kind"].tolist() == ["StoreError"]


def test_a_process_with_the_same_number_is_not_the_run(tmp_path):
    import sqlalchemy as sa

    with Store(tmp_path / "store", create=True) as store:
        records.begin(store)
        assert store.runs()["status"].tolist() == ["running"]
        with store.database.writing() as session:
            session.execute(sa.text("UPDATE instances SET pid_started = pid_started - 1000"))
        assert store.runs()["status"].tolist() == ["lost"]
        with store.database.writing() as session:  # elsewhere, nobody can tell
            session.execute(sa.text("UPDATE instances SET host = 'another host'"))
        assert store.runs()["status"].tolist() == ["running"]
