"""Several processes on one store, and processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from palaestrai_mosaik.store import Store

HERE = Path(__file__).parent
PREAMBLE = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import conftest
from palaestrai_mosaik.store import Store, pace
"""

WRITER = (
    PREAMBLE
    + """
pace.PART_SECONDS = 0.02
store = Store(sys.argv[1])
run = conftest.begin(store)
phase = conftest.begin_phase(run)
stream = phase.agent("a")
results = {"objective": conftest.moments(1.0), "rewards": {}}
phase.episode(0, 0, steps=1, ticks=1, ended_by="x", flow="RESET", duration=0.0, agents={"a": results})
step = 0
while True:
    stream.append(0, 1, step, step, [step, 1], [2 * step], [0], 0.0, False, False, 0.0)
    step += 1
    if stream.parts >= 3 and step % 1000 == 0:
        print(run.uid, flush=True)
"""
)


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


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
            while store.runs()["status"].tolist() == ["running"]:
                assert process.poll() in (None, -signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
    with Store(tmp_path / "store", create=False) as store:
        assert store.runs()[["run", "status", "episodes"]].to_numpy().tolist() == [[uid, "lost", 1]]
        frame = store.steps(uid, agent="a")
        # a beginning of what was appended, without a gap
        assert len(frame) >= len(during) > 0
        assert frame["step"].tolist() == list(range(len(frame)))
        assert (frame["setpoint.myenv.0"] == 2 * frame["reading.myenv.0"]).all()
        assert frame.iloc[: len(during)].equals(during)
        assert not (store.instance_directory(uid) / "complete.json").exists()


def test_a_process_with_the_same_number_is_not_the_run(tmp_path, helpers):
    import sqlalchemy as sa

    with Store(tmp_path / "store") as store:
        helpers("begin")(store)
        assert store.runs()["status"].tolist() == ["running"]
        with store.database.writing() as session:
            session.execute(sa.text("UPDATE instances SET pid_started = pid_started - 1000"))
        assert store.runs()["status"].tolist() == ["lost"]
        with store.database.writing() as session:  # elsewhere, nobody can tell
            session.execute(sa.text("UPDATE instances SET host = 'another host'"))
        assert store.runs()["status"].tolist() == ["running"]
