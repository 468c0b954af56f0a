"""What becomes of the runs of a folder, executed by this process."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal

import psutil
import pytest
import yaml
from arsenai.execution.folders import make_folder, markers, statuses
from support.documents import VANILLA_RUN, agent, environment, named, phase
from support.learning import digests
from support.processes import children
from support.waiting import meanwhile, until

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.folder import RESULTS, DesignFolder
from palaestrai_mosaik.arsenai.execution import (
    FolderProgress,
    RunStatus,
    Settings,
    StoreLocation,
    job_records,
    local,
    make_progress,
    run_folder,
    runs,
)
from palaestrai_mosaik.arsenai.execution.job import Marker
from palaestrai_mosaik.arsenai.execution.processes import SpawnLauncher
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core.errors import DocumentError, ExecutionError
from palaestrai_mosaik.store.process import process_started

DUMMY = "palaestrai_mosaik.agent.library.dummy"
FINISHED, FAILED, INTERRUPTED = RunStatus.FINISHED, RunStatus.FAILED, RunStatus.INTERRUPTED


def execute(folder, which="missing", progress=None, rows=None, **settings):
    return run_folder(folder, which=which, rows=rows, progress=progress, settings=Settings(**settings))


def recorded(folder):
    """Return the digests of every finished run, by run."""
    found = {}
    with StoreLocation.of(folder.path / RESULTS).open() as store:
        table = store.runs()
        assert set(table["experiment"]) == {"doing"}, "runs are grouped by their design"
        for instance, run in table[table["status"] == "finished"][["run", "document"]].to_numpy().tolist():
            found[run] = digests(store, instance)
    return found


def nothing_left(folder, before):
    """Whether no marker is left, and no process but those of ``before``."""
    return markers(folder.path) == {} and children() <= before


class Ends(FolderProgress):
    """Notes the order in which runs end; ``do`` is called with each record."""

    def __init__(self, do=lambda record: None):
        self.runs, self.do = [], do

    def ended(self, record):
        self.runs.append(record.run)
        self.do(record)


def test_a_run_that_fails_or_dies_is_lost_alone(tmp_path, monkeypatch):
    before = children()
    monkeypatch.setattr(local, "PATIENCE", 0.5)
    what = ["slow", "raise", "exit", "kill", "print", "stubborn", "well"]
    folder = make_folder(tmp_path / "f", what, steps=20)
    ends = Ends()
    # no matter of speed: runs that end take less than one second where nothing else is at work
    summary = execute(folder, progress=ends, jobs=2, timeout=15)
    good = {"slow", "print", "well"}
    assert statuses(folder.path) == ["finished" if word in good else "failed" for word in what]
    assert summary.ended == {FINISHED: 3, FAILED: 4}
    assert not summary.whole
    # the first took longest of those that ended well, so they did not end in their order
    assert sorted(ends.runs) == [run.uid for run in folder.runs] != ends.runs

    records = job_records(folder)
    raised, left, killed, hung = (records[f"doing-{i}-r0"] for i in (1, 2, 3, 5))
    assert (raised.exit_code, raised.error) == (1, "ValueError: number 1 has had enough")
    assert (left.exit_code, "exit code 7" in left.error) == (7, True)
    assert (killed.exit_code, "SIGKILL" in killed.error) == (-9, True)
    assert hung.error == "took longer than the time limit of 15 s"
    assert hung.seconds >= 15
    assert {record.run for record in summary.failures} == {r.run for r in (raised, left, killed, hung)}

    logs = {i: (folder.path / "jobs" / f"doing-{i}-r0.log").read_text() for i in range(len(what))}
    for line in ("number 4 prints", "and warns", "a child echoes", "compiled code prints"):
        assert line in logs[4].splitlines()
        assert not any(line in logs[i] for i in logs if i != 4)
    assert "in _raise" in logs[1]
    with StoreLocation.of(folder.path / RESULTS).open() as store:
        found = store.runs().set_index("document")["status"].to_dict()
    assert [found[run.uid] for run in folder.runs] == [
        *("finished", "failed", "lost", "lost", "finished", "lost", "finished")
    ]
    assert nothing_left(folder, before)


def test_runs_that_share_a_process_are_lost_alone_too(tmp_path):
    what = ["well", "kill", "well", "raise", "print", "exit", "well"]
    folder = make_folder(tmp_path / "f", what)
    summary = execute(folder, jobs=1, runs_per_process=10)
    assert statuses(folder.path) == [
        "failed" if word in {"kill", "raise", "exit"} else "finished" for word in what
    ]
    assert summary.ended == {FINISHED: 4, FAILED: 3}
    records = job_records(folder)
    pids = [records[run.uid].pid for run in folder.runs]
    # a new process after each that died, and only then
    assert len({*pids}) == 3
    assert pids[0] == pids[1] != pids[2] == pids[3] == pids[4] == pids[5] != pids[6]
    log = (folder.path / "jobs" / "doing-4-r0.log").read_text()
    assert "compiled code prints" in log


def own_runs(path, runs):
    """Generate a design of runs that name nothing but classes of this package."""
    agents = [
        agent(
            f"a{i}",
            brain=named(f"{DUMMY}:DummyBrain"),
            muscle=named(f"{DUMMY}:DummyMuscle"),
            objective=named(f"{DUMMY}:DummyObjective"),
        )
        for i in range(2)
    ]
    design = {
        "uid": "own",
        "seed": 5,
        "version": "3.5",
        "base": {
            "schedule": [{"phase_0": phase([environment(max_iter=3)], agents)}],
            "run_config": {"conditions": [named(VANILLA_RUN)]},
        },
        "factors": {
            "episodes": {"path": "schedule[0].phase_0.phase_config.episodes", "levels": [*range(1, runs + 1)]}
        },
    }
    return Design.from_mapping(design).generate(path)


def test_short_runs_share_a_process_where_no_users_code_takes_part(tmp_path, monkeypatch):
    monkeypatch.setitem(local.SHARED_SECONDS, "fork", 60.0)
    folder = own_runs(tmp_path / "own", 8)
    assert execute(folder, jobs=1).whole
    # the first shows how long one takes
    pids = [job_records(folder)[run.uid].pid for run in folder.runs]
    assert pids[0] != pids[1]
    assert len({*pids[1:]}) == 1

    folder = make_folder(tmp_path / "theirs", ["well"] * 8)
    assert execute(folder, jobs=1).whole
    assert len({record.pid for record in job_records(folder).values()}) == 8


def test_long_runs_share_no_process(tmp_path, monkeypatch):
    monkeypatch.setitem(local.SHARED_SECONDS, "fork", 1e-3)
    folder = own_runs(tmp_path / "own", 4)
    assert execute(folder, jobs=1).whole
    assert len({record.pid for record in job_records(folder).values()}) == 4


def test_all_executors_give_the_same_results(tmp_path, monkeypatch):
    before = children()
    found = []
    for name, settings in {
        "inline": {"executor": "inline"},
        "forked": {"jobs": 2},
        "spawned": {"jobs": 2, "runs_per_process": 2},
    }.items():
        if name == "spawned":
            monkeypatch.setattr(local, "make_launcher", lambda method, preload: SpawnLauncher())
        folder = make_folder(tmp_path / name, ["well", "well", "print", "raise"])
        summary = execute(folder, **settings)
        assert summary.ended == {FINISHED: 3, FAILED: 1}
        found.append(recorded(folder))
    assert found[0] == found[1] == found[2]
    assert all(len(streams) == 2 for streams in found[0].values())
    assert len({str(streams) for streams in found[0].values()}) == 1  # common random numbers
    assert nothing_left(folder, before)


def test_what_failed_is_left_out_until_it_is_asked_for(tmp_path):
    gate = tmp_path / "gate"
    folder = make_folder(tmp_path / "f", ["well", "print", "raise"], gate=str(gate))
    assert execute(folder, executor="inline").ended == {FINISHED: 1, FAILED: 2}
    again = execute(folder, executor="inline")
    assert (again.before, again.ended, again.whole) == ({FINISHED: 1, FAILED: 2}, {}, False)
    gate.touch()
    assert execute(folder, "failed", rows=[1], executor="inline").whole
    mended = execute(folder, "failed", executor="inline")
    assert (mended.before, mended.ended) == ({FINISHED: 1}, {FINISHED: 1, FAILED: 1})
    record = job_records(folder)["doing-0-r0"]
    assert (record.status, record.attempt) == ("finished", 2)
    assert "there is no" in (folder.path / "jobs" / "doing-0-r0.log").read_text()
    assert execute(folder, "unfinished", executor="inline").ended == {FAILED: 1}


def test_rows_choose_what_is_executed(tmp_path):
    folder = make_folder(tmp_path / "f", ["well"] * 4, repetitions=2)
    summary = execute(folder, rows={1, 3}, executor="inline")
    assert (summary.considered, summary.ended, summary.whole) == (4, {FINISHED: 4}, True)
    done = ["waiting", "waiting", "finished", "finished"]
    assert statuses(folder.path) == [*done, *done]
    with pytest.raises(ExecutionError, match="no row 4: it has rows 0 to 3"):
        execute(folder, rows={0, 4})


@pytest.mark.parametrize("share", [None, 10])
def test_nothing_more_is_begun_after_a_failure_if_the_user_wants_that(tmp_path, share):
    folder = make_folder(tmp_path / "f", ["well", "raise", "well", "well"])
    summary = execute(folder, jobs=1, fail_fast=True, runs_per_process=share)
    assert (summary.ended, summary.not_begun) == ({FINISHED: 1, FAILED: 1}, 2)
    assert statuses(folder.path) == ["finished", "failed", "waiting", "waiting"]


def test_results_count_not_the_files_about_jobs(tmp_path):
    folder = make_folder(tmp_path / "f", ["well", "well"])
    assert execute(folder, executor="inline").whole
    shutil.rmtree(folder.path / "jobs")
    again = execute(folder, executor="inline")
    assert (again.before, again.ended) == ({FINISHED: 2}, {})
    shutil.rmtree(folder.path / "results")
    assert execute(folder, executor="inline").ended == {FINISHED: 2}
    shutil.rmtree(folder.path / "results")
    assert statuses(folder.path) == ["lost", "lost"]


def test_documents_that_were_edited_are_refused(tmp_path):
    folder = make_folder(tmp_path / "f", ["well", "well", "well"])
    for number in (0, 2):
        path = folder.path / folder.documents[number].file
        document = yaml.safe_load(path.read_text())
        document["seed"] += 1
        path.write_text(yaml.safe_dump(document))
    with pytest.raises(DocumentError) as caught:
        execute(folder, executor="inline")
    assert [problem.file for problem in caught.value.problems] == [
        str(folder.path / folder.documents[number].file) for number in (0, 2)
    ]
    assert not (folder.path / "results").exists()


def test_a_record_of_another_document_does_not_count(tmp_path):
    folder = make_folder(tmp_path / "f", ["raise", "well"])
    execute(folder, rows=[0], executor="inline")
    assert job_records(folder).keys() == {"doing-0-r0"}
    path = folder.path / "jobs" / "doing-0-r0.json"
    record = path.read_text()
    other = record.replace(folder.documents[0].hash, "0" * 64)
    for text in (other, re.sub(r'"seconds": [^,]+', '"seconds": null', record), "{}", "[]", '{"run": '):
        path.write_text(text)
        assert job_records(folder) == {}


def test_a_run_goes_on_from_its_checkpoint(tmp_path, monkeypatch, caplog):
    # it waits in its second episode, and is killed there
    gate = tmp_path / "gate"
    keys = {"steps": 2, "episodes": 10, "gate": str(gate)}
    folder = make_folder(tmp_path / "f", ["hang", "well"], **keys)

    def kill():
        until(lambda: list(folder.path.glob("**/checkpoints/[0-9]*")))
        os.kill(markers(folder.path)[folder.runs[0].uid].pid, signal.SIGKILL)

    with meanwhile(kill):
        cut = execute(folder, rows=[0], jobs=1, checkpoint_every=0.000001)
    assert cut.ended == {FAILED: 1}
    gate.touch()
    first = job_records(folder)["doing-0-r0"]
    assert list((folder.path / "results" / "instances" / first.instance / "checkpoints").iterdir())
    shutil.copytree(tmp_path / "f", tmp_path / "colleague")
    assert execute(folder, "unfinished", rows=[0], executor="inline").whole
    assert "from the beginning" not in caplog.text
    second = job_records(folder)["doing-0-r0"]
    assert (second.instance, second.attempt) == (first.instance, 2)
    undisturbed = make_folder(tmp_path / "g", ["hang", "well"], **keys)
    execute(undisturbed, rows=[0], executor="inline")
    assert recorded(folder) == recorded(undisturbed)
    # who does not have the key is told before the run begins anew
    monkeypatch.setenv("PALAESTRAI_MOSAIK_KEY", str(tmp_path / "theirs"))
    execute(DesignFolder.open(tmp_path / "colleague"), "unfinished", rows=[0], jobs=1)
    told = caplog.text
    assert "1 of 1 interrupted runs will start from the beginning" in told
    assert "was written by another user, or on another computer" in told


def test_runs_end_with_the_process_that_starts_them(tmp_path):
    before = children()
    folder = make_folder(tmp_path / "f", ["hang", "slow"], steps=1000)

    def kill_server():
        until(lambda: len(markers(folder.path)) == 2)
        (server,) = children() - before
        server.kill()

    ends = pytest.raises(ExecutionError, match=r"process that starts the runs has ended .*SIGKILL")
    with meanwhile(kill_server), ends:
        execute(folder, jobs=2)
    found = [Marker.read(path) for path in (folder.path / "jobs").glob("*.running")]
    until(lambda: not any(marker.alive for marker in found))
    assert statuses(folder.path) == ["interrupted", "interrupted"]


def test_two_signals_kill_what_does_not_end(tmp_path):
    before = children()
    folder = make_folder(tmp_path / "f", ["hang", "well", "well"])

    def press(record):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    summary = execute(folder, jobs=2, progress=Ends(press))
    assert summary.interrupted
    assert summary.ended[INTERRUPTED] >= 1
    assert statuses(folder.path)[0] == "interrupted"
    assert job_records(folder)["doing-0-r0"].exit_code == -signal.SIGKILL
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert nothing_left(folder, before)


def test_a_marker_of_a_process_that_is_gone_or_another_one_is_dead(tmp_path):
    mine = psutil.Process()
    common = {"run": "r", "hash": "h", "attempt": 1, "started": "2020-01-01T00:00:00+00:00"}
    here = {"host": os.uname().nodename, "pid": mine.pid, "pid_started": process_started()}
    assert Marker(**common, **here).alive
    # a number that was given to another process since
    assert not Marker(**common, **{**here, "pid_started": process_started() - 60}).alive
    assert not Marker(**common, **{**here, "pid": 2**22 + 1}).alive
    assert Marker(**common, **{**here, "host": "elsewhere", "pid": 2**22 + 1}).alive


def test_a_command_that_is_gone_is_waited_for(tmp_path, monkeypatch):
    """Its runs end within seconds; meanwhile nobody else may begin them."""
    monkeypatch.setattr(runs, "GRACE", 0.2)
    folder = make_folder(tmp_path / "f", ["well", "well"])
    (folder.path / "jobs").mkdir()
    mine, planned = psutil.Process(), folder.documents[1]
    path = folder.path / "jobs" / "doing-1-r0.running"
    host = os.uname().nodename
    Marker(planned.uid, planned.hash, 1, host, mine.pid, process_started(), "2020-01-01").write(path)
    summary = execute(folder, executor="inline")
    assert (summary.before, summary.ended, summary.whole) == ({RunStatus.RUNNING: 1}, {FINISHED: 1}, False)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(tmp_path):
    folder = make_folder(tmp_path / "f", ["well", "raise", "well"])
    lines, terminal, quiet = io.StringIO(), Terminal(), io.StringIO()
    execute(folder, rows=[0, 1], executor="inline", progress=make_progress(stream=lines))
    first, last = lines.getvalue().splitlines()
    assert first == "2 runs, up to 1 at the same time"
    assert last.startswith("2 of 2 runs, 1 failed, ")
    execute(folder, "unfinished", executor="inline", progress=make_progress(stream=terminal))
    assert "runs: 100%" in terminal.getvalue()
    assert "2/2 [" in terminal.getvalue()
    assert "1 failed" in terminal.getvalue()
    execute(folder, "failed", executor="inline", progress=make_progress(quiet=True, stream=quiet))
    assert quiet.getvalue() == ""


def test_status_names_documents_that_are_missing(tmp_path, capsys):
    folder = make_folder(tmp_path / "f", ["well", "well"])
    (folder.path / folder.documents[1].file).unlink()
    assert folder.missing_documents() == [folder.documents[1].file]
    assert main(["status", str(folder.path)]) == 0
    said = capsys.readouterr().out
    assert (
        f"1 run document missing ({folder.documents[1].file}); put it back, or generate the design again"
        in said
    )
