"""All commands work on a design of 20,000 rows, and their memory grows so slowly that a laptop has room for a million."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml
from arsenai.execution.folders import environment_now
from support.documents import VANILLA_RUN, agent, environment, named, phase

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.execution.job import JobRecord, with_suffix
from palaestrai_mosaik.arsenai.execution.status import job_path
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.models import Instance, RunDocument

ROWS = 20_000
#: the memory limit of a process, in MiB: 150 for the interpreter and its libraries, and 4.5 KiB for each row
MOST = 240
#: says on standard error how much memory the command took at most, in MiB. (getrusage would do, but what it
#: tells of a process begins with the memory of the one that started it)
COMMAND = """
import re, sys
from palaestrai_mosaik.cli.arsenai import main
code = main(sys.argv[1:])
print(int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) // 1024, file=sys.stderr)
sys.exit(code)
"""


def arsenai(*arguments, code=0):
    """Call ``arsenai``; return what it prints, after a look at its memory."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        env=environment_now(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert int(done.stderr.splitlines()[-1]) < MOST, arguments
    return done.stdout


def finish(folder, runs):
    """Make the folder look as if these runs had finished."""
    date = datetime(2026, 1, 1, tzinfo=UTC)
    documents = [{"hash": run.hash, "uid": run.uid, "document": {}, "text": ""} for run in runs]
    with Store(folder.path / "results", create=True) as store, store.database.writing() as session:
        session.execute(sa.insert(RunDocument), documents)
        ids = dict(session.execute(sa.select(RunDocument.hash, RunDocument.id)).all())
        common = {"seed": 1, "version": "3.5", "status": "finished", "started": date, "ended": date}
        common |= {"host": "h", "pid": 1, "pid_started": 1.0, "packages": {}}
        rows = [{"uid": f"i{run.row}", "run_document_id": ids[run.hash]} | common for run in runs]
        session.execute(sa.insert(Instance), rows)
    (folder.path / "jobs").mkdir()
    for run in runs:
        times = (date.isoformat(), date.isoformat(), 2.0)
        record = JobRecord(run.uid, run.hash, "finished", f"i{run.row}", "", *times, 0, None, "h", 1, 1)
        path = with_suffix(job_path(folder.path, run), ".json")
        path.write_text(json.dumps(dataclasses.asdict(record)))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read where Linux tells it")
def test_a_design_of_many_rows(tmp_path):
    one = agent("a", count=1, muscle=named("arsenai.execution.parts:Doing", do="well", number=0.0))
    del one["brain"]
    only = phase([environment(max_iter=3)], [one])
    path = "schedule[0].phase_0.agents.a.muscle.params.number"
    document = {
        **{"uid": "many", "seed": 5, "version": "3.5", "sampler": {"name": "random", "n": ROWS}},
        "base": {"schedule": [{"phase_0": only}], "run_config": {"conditions": [named(VANILLA_RUN)]}},
        "factors": {"number": {"path": path, "low": 0.0, "high": 1.0}},
    }
    design, where = tmp_path / "many.yml", str(tmp_path / "f")
    design.write_text(yaml.safe_dump(document))
    arsenai("generate", str(design), "-o", where, "--quiet")
    assert arsenai("status", where).split()[-2:] == ["waiting", "20,000"]
    folder = DesignFolder.open(where)
    assert len(folder.documents) == ROWS
    finish(folder, folder.documents[:-4])
    told = arsenai("run", where, "--rows", "19990-19997", "--jobs", "2")
    assert "left out: 6 runs that finished before" in told
    assert "8 of 8 runs finished" in told
    told = arsenai("resume", where, "--executor", "inline")
    assert "runs: 2 finished" in told
    assert "20,000 of 20,000 runs finished" in told
    counts = json.loads(arsenai("status", where, "--json"))
    assert counts["counts"] == {"finished": ROWS}
    # the same again changes nothing
    arsenai("generate", str(design), "-o", where, "--quiet")
    assert json.loads(arsenai("status", where, "--json"))["counts"] == {"finished": ROWS}
