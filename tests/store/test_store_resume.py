"""A run that goes on from a mark ends with what it would have recorded undisturbed."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.processes import Program

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import Store
from tests.support import records

TESTS = Path(__file__).parents[1]


class Player:
    """Records what a list of operations says; all values follow from counters.

    The operations: ``("row" | "statistic" | "episode", worker, evaluation)``, ``"flush"``,
    ``"warning"``, and ``"phase"``, which ends the phase and begins the next one.
    """

    def __init__(self, run):
        self.run = run
        self.index = 0
        self.counts: dict[object, int] = {}
        self.phase = records.begin_phase(run)

    def count(self, *key):
        self.counts[key] = self.counts.get(key, -1) + 1
        return self.counts[key]

    def play(self, operations):
        for operation in operations:
            if operation == "phase":
                self.phase.finish("done")
                self.index += 1
                self.phase = records.begin_phase(self.run, self.index)
            elif operation == "warning":
                self.run.warning(f"warning {self.count('warning')}")
            elif operation == "flush":
                self.phase.agent("a").flush()
            else:
                getattr(self, operation[0])(*operation[1:])
        return self

    def row(self, worker, evaluation):
        step = self.count("row", self.index, worker, evaluation)
        episode = self.counts.get(("episode", self.index, worker, evaluation), -1) + 1
        values = [step / 7, np.nan if step % 3 else -0.0]
        state = {"nested": [step, float("inf")]} if step % 2 else None
        self.phase.environment("myenv", evaluation).append(
            worker, episode, step, 2 * step, values, [step / 3], step % 5 == 4, False, state
        )
        for name in ("a", "b"):
            self.phase.agent(name, evaluation).append(
                worker, episode, step, 2 * step, values, [-step], [step / 3], step**2, False, False, 0.25
            )

    def statistic(self, worker, evaluation):
        step = self.count("statistic", self.index, worker, evaluation)
        for key in ("loss", "größe"):
            self.phase.statistic("b", worker, 0, step, key, step / 9, evaluation)

    def episode(self, worker, evaluation):
        number = self.count("episode", self.index, worker, evaluation)
        moments = records.moments(float(number), 1.0)
        result = {"objective": moments, "rewards": {"count": moments}}
        ended = {"steps": number, "ticks": 9, "ended_by": "x", "flow": "RESET", "duration": 0.5}
        self.phase.episode(worker, number, **ended, agents={"a": result}, evaluation=evaluation)

    def end(self):
        self.phase.finish("done")
        self.run.finish("finished")
        return self.run.uid

    def resumed(self, store, mark):
        """Another player, that goes on from where this one is; the mark travels as JSON."""
        other = copy.copy(self)
        other.counts = dict(self.counts)
        other.mark = json.loads(json.dumps(mark))

        def go_on():
            other.run = store.resume_run(self.run.uid, other.mark)
            record = records.agent_record
            environments = self.phase._environment_records
            other.phase = other.run.reopen_phase(other.index, environments, [record("a"), record("b")])
            return other

        return go_on


def crash(store, run, how):
    """Let a run end before its time: in order, killed, or killed while its end was recorded."""
    if how in ("interrupted", "failed"):
        run.finish(how, ValueError("not the end"))
        return
    with store.database.writing() as session:
        session.execute(sa.text("UPDATE instances SET pid_started = 0 WHERE uid = :uid"), {"uid": run.uid})


def everything(store, uid):
    """All that can be asked about a run, without times."""
    streams = ["phase", "kind", "name", "evaluation", "folder", "rows", "digest"]
    marker = json.loads((store.instance_directory(uid) / "complete.json").read_text())
    files = (store.instance_directory(uid) / "trajectories").rglob("*")
    return {
        "digests": marker["digests"],
        "status": store.runs().set_index("run").loc[uid, ["status", "episodes", "steps", "error"]].tolist(),
        "phases": store.phases(uid).drop(columns=["started", "ended"]),
        "episodes": store.episodes(uid, evaluation=None).drop(columns="ended"),
        "outcomes": store.outcomes(uid, evaluation=None),
        "steps": store.steps(uid, evaluation=None),
        "walls": store.steps(uid, columns=["objective", "wall"], evaluation=None),
        "states": store.environment_states(uid, evaluation=None),
        "statistics": store.statistics(uid, evaluation=None),
        "streams": store.streams(uid)[streams],
        "warnings": store.warnings(uid)["text"].tolist(),
        "errors": store.errors(uid)["message"].tolist(),
        "folders": sorted({file.parent.name for file in files if file.is_file()}),
        "agents": store.agents(uid).drop(columns=["sensors"]),
        "channels": len(store.channels(uid)),
    }


def assert_same(one, other):
    assert one.keys() == other.keys()
    for key, value in one.items():
        if isinstance(value, pd.DataFrame):
            pd.testing.assert_frame_equal(value, other[key], obj=key, check_exact=True)
        else:
            assert value == other[key], key


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["row", "row", "row", "statistic", "episode"]),
            st.sampled_from([0, 1, 2]),
            st.booleans(),
        ),
        st.sampled_from(["flush", "warning", "phase"]),
    ),
    min_size=8,
    max_size=30,
)


@settings(max_examples=8, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    operations=OPERATIONS,
    cuts=st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 12), st.sampled_from(["interrupted", "failed", "lost"])),
        min_size=1,
        max_size=2,
    ),
)
def test_any_interruption_leaves_no_trace(tmp_path_factory, operations, cuts):
    """``cuts``: after how many operations (of the rest) comes the mark, and how many are lost."""
    with Store(tmp_path_factory.mktemp("store"), create=True) as store:
        undisturbed = Player(records.begin(store)).play(operations).end()
        player, rest = Player(records.begin(store)), operations
        for before, lost, how in cuts:
            player.play(rest[:before])
            rest = rest[before:]
            go_on = player.resumed(store, player.run.mark())
            player.play(rest[:lost])
            crash(store, player.run, how)
            player = go_on()
            assert store.runs()["status"].tolist()[1] == "running"
        uid = player.play(rest).end()
        assert_same(everything(store, undisturbed), everything(store, uid))


PLAN = [
    *[("row", 0, False)] * 3,
    *(("statistic", 0, False), ("episode", 0, False), ("row", 0, True), ("episode", 0, True), "phase"),
    *[("row", 0, False)] * 4,
    *("flush", ("row", 0, False), ("episode", 0, False)),
]


@pytest.fixture
def marked(store):
    """A run that was killed some time after a mark in its second phase, and that mark."""
    player = Player(records.begin(store)).play(PLAN)
    mark = player.run.mark()
    player.play([("row", 0, False), ("row", 0, True), ("episode", 0, False), "flush", "phase", "warning"])
    crash(store, player.run, "lost")
    return player.run, json.loads(json.dumps(mark))


def test_a_mark_says_how_far_the_recording_is(store, marked):
    _, mark = marked
    assert [phase["finished"] for phase in mark["phases"]] == [True, False]
    assert mark["phases"][0]["episodes"] == [[False, 0, 0, 1], [True, 0, 0, 1]]
    told = mark["phases"][1]["streams"]["trajectories/phase-1/agent-a"]
    assert (told["rows"], told["parts"]) == (5, 2), "four rows were flushed before, one by the mark"
    assert (mark["phases"][0]["evaluation"], mark["phases"][1]["evaluation"]) == (True, False)


def test_what_came_after_the_mark_is_gone(store, marked):
    run, mark = marked
    assert len(store.steps(run.uid, 1, "a")) == 6
    assert len(store.phases(run.uid)) == 3
    again = store.resume_run("my-run", mark)
    assert again.uid == run.uid and again.directory == run.directory
    assert store.steps(run.uid, 1, "a")["step"].tolist() == [0, 1, 2, 3, 4]
    assert store.steps(run.uid, 1, "a", columns=["wall"])["wall"].tolist() == [0.25] * 5
    assert store.steps(run.uid, 1, "a", evaluation=True).empty
    assert len(store.steps(run.uid, 0, "a", evaluation=True)) == 1
    phases = store.phases(run.uid)
    assert phases["reason"].tolist() == ["done", None]
    assert phases["episodes_done"].tolist() == [1, 1]
    row = store.runs().iloc[0]
    assert (row["status"], row["pid"]) == ("running", os.getpid())
    assert store.warnings(run.uid).empty
    folders = {path.name for path in (run.directory / "trajectories").iterdir()}
    assert folders == {"phase-0", "phase-1"}
    assert not (run.directory / "trajectories" / "phase-1" / "evaluation").exists()


def test_a_run_between_two_phases_goes_on_with_a_new_one(store):
    player = Player(records.begin(store)).play(PLAN)
    player.phase.finish("done")
    mark = player.run.mark()
    crash(store, player.run, "failed")
    run = store.resume_run("latest", mark)
    with pytest.raises(StoreError, match=r"phase 1 .* was not open at the mark; open was none"):
        run.reopen_phase(1, [], [])
    phase = records.begin_phase(run, 2)
    phase.finish("done")
    run.finish("finished")
    marker = json.loads((run.directory / "complete.json").read_text())
    assert {key.split("/")[0] for key in marker["digests"]} == {"phase-0", "phase-1"}
    assert len(store.phases("latest")) == 3


def test_names_that_a_database_cannot_hold_are_found_again(store):
    agents = tuple(records.agent_record(name) for name in ("a\0b", "c\ud800"))
    environments = records.begin_phase(records.begin(store))._environment_records
    environments = [dataclasses.replace(environments[0], uid="e\0")]
    run = records.begin(store)
    settings = {"mode": "train", "workers": 1, "episodes": 2, "controller": "Vanilla"}
    run.begin_phase(0, "train", **settings, environments=environments, agents=agents)
    mark = run.mark()
    crash(store, run, "failed")
    resumed = store.resume_run(run.uid, mark)
    phase = resumed.reopen_phase(0, environments, agents)
    given = {"objective": records.moments(1.0), "rewards": {}}
    ended = {"steps": 1, "ticks": 1, "ended_by": "x", "flow": "RESET", "duration": 0.0}
    phase.episode(0, 0, **ended, agents={"a\0b": given, "c\ud800": given})
    resumed.finish("finished")
    assert store.outcomes(run.uid)["agent"].tolist() == ["a\\x00b", "c\\ud800"]
    # the order of the names still counts
    other = records.begin(store)
    other.begin_phase(0, "train", **settings, environments=environments, agents=agents)
    mark = other.mark()
    crash(store, other, "failed")
    with pytest.raises(StoreError, match=r"now they are c\\ud800, a\\x00b"):
        store.resume_run(other.uid, mark).reopen_phase(0, environments, agents[::-1])


def test_a_resumed_run_that_fails_before_its_phase_is_open_can_be_resumed_again(store, marked):
    run, mark = marked
    first = store.resume_run(run.uid, mark)
    assert first.mark() == mark
    first.finish("failed", ValueError("too early"))
    second = store.resume_run(run.uid, mark)
    assert store.errors(run.uid).empty
    record = records.agent_record
    with pytest.raises(StoreError, match="agents a, b; now they are a"):
        second.reopen_phase(1, records.begin_phase(records.begin(store))._environment_records, [record("a")])
    environments = records.begin_phase(records.begin(store))._environment_records
    with pytest.raises(StoreError, match=r"has the columns reading.myenv.0, .*; now they would be"):
        second.reopen_phase(1, environments, [record("a", 1), record("b")])
    second.reopen_phase(1, environments, [record("a"), record("b")])
    with pytest.raises(StoreError, match="was not open at the mark"):
        second.reopen_phase(1, environments, [record("a"), record("b")])


@pytest.mark.parametrize("step", ["_take_over", "_set_back", "_remove_files"])
def test_a_crash_while_resuming_can_be_resumed(store, marked, monkeypatch, step):
    from palaestrai_mosaik.store import resume

    run, mark = marked

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(resume, step, killed)
        with pytest.raises(KeyboardInterrupt):
            store.resume_run(run.uid, mark)
    crash(store, run, "lost")
    assert store.runs()["status"].tolist() == ["lost"]
    store.resume_run(run.uid, mark)
    assert store.steps(run.uid, 1, "a")["step"].tolist() == [0, 1, 2, 3, 4]
    assert len(store.phases(run.uid)) == 2


def damage(store, run, how):
    phase = run.directory / "trajectories" / ("phase-0" if "finished" in how else "phase-1")
    part = phase / "agent-a" / "part-000000.parquet"
    if "missing" in how:
        part.unlink()
    elif "wall" in how:
        (phase / "wall-a" / part.name).unlink()
    elif "cut" in how:
        part.write_bytes(part.read_bytes()[:-20])
    elif "exchanged" in how:
        other = phase / "agent-a" / "part-000001.parquet"
        first, second = part.read_bytes(), other.read_bytes()
        part.write_bytes(second)
        other.write_bytes(first)
    else:
        with store.database.writing() as session:
            table = how.split()[-1]
            if table == "phases":
                session.execute(sa.text("UPDATE phases SET number = number + 10"))
            elif table == "streams":
                session.execute(sa.text("UPDATE streams SET folder = 'x' || folder"))
            else:
                session.execute(sa.text("DELETE FROM outcomes"))
                session.execute(sa.text("DELETE FROM episodes WHERE NOT evaluation"))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", r"phase-1/agent-a/part-000000.parquet is missing"),
        ("missing of a finished phase", r"phase-0/agent-a/part-000000.parquet is missing"),
        ("wall", r"phase-1/wall-a/part-000000.parquet is missing"),
        ("cut", r"part-000000.parquet is damaged"),
        ("exchanged", r"agent-a is damaged: its first 2 parts hold other rows"),
        ("without phases", "the database has no phase 0 of the run .*, but the mark has"),
        ("without streams", "the database has no stream 'trajectories/phase-0/agent-a'"),
        ("without episodes", "the mark has 1 episodes of worker 0, the database 0"),
    ],
)
def test_what_does_not_fit_the_mark_is_refused_and_nothing_is_changed(store, marked, how, message):
    run, mark = marked
    damage(store, run, how)
    files = sorted(str(path) for path in run.directory.rglob("*"))
    with pytest.raises(StoreError, match=message):
        store.resume_run(run.uid, mark)
    assert store.runs()["status"].tolist() == ["lost"]
    assert sorted(str(path) for path in run.directory.rglob("*")) == files


def test_a_run_that_still_runs_or_has_finished_is_refused(store):
    run = records.begin(store)
    mark = run.mark()
    with pytest.raises(StoreError, match=rf"still runs in the process {os.getpid()}"):
        store.resume_run("latest", mark)
    run.finish("finished")
    with pytest.raises(StoreError, match="has finished"):
        store.resume_run("latest", mark)
    with pytest.raises(StoreError, match="no run 'x'"):
        store.resume_run("x", mark)
    other = records.begin(store)
    with pytest.raises(StoreError, match=rf"a mark of the instance {run.uid}, not of {other.uid}"):
        store.resume_run(other.uid, mark)
    with pytest.raises(StoreError, match="is finished"):
        run.mark()


def test_a_run_of_another_host_is_taken_over_with_a_warning(store):
    run = records.begin(store)
    mark = run.mark()
    with store.database.writing() as session:
        session.execute(sa.text("UPDATE instances SET host = 'node 7'"))
    store.resume_run("latest", mark)
    assert "it may still run on host node 7" in store.warnings("latest")["text"][0]


KILLED = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
import json
from support import records
from palaestrai_mosaik.store import Store, row_stream
row_stream.PART_SECONDS = 0.02
run = records.begin(Store(sys.argv[1], create=True))
phase = records.begin_phase(run)
for step in range(100_000):
    phase.agent("a").append(0, 0, step, step, [step, 1], [2 * step], [0], 0.0, False, False, 0.0)
    if step == 3000:
        print(json.dumps(run.mark()), flush=True)
while True:
    phase.agent("a").flush()
"""


def test_a_killed_process_is_resumed_and_the_digest_is_that_of_all_rows(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "store")]
    with Program(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        mark = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    with Store(tmp_path / "store", create=False) as store:
        run = store.resume_run("latest", mark)
        player = Player(records.begin(store))
        phase = run.reopen_phase(
            0, player.phase._environment_records, [records.agent_record(name) for name in "ab"]
        )
        stream, whole = phase.agent("a"), player.phase.agent("a")
        for step in range(5000):
            row = (0, 0, step, step, [step, 1], [2 * step], [0], 0.0, False, False, 0.0)
            whole.append(*row)
            if step > 3000:
                stream.append(*row)
        assert stream.digest() == whole.digest()
        run.finish("finished")
        assert store.steps(run.uid, agent="a")["step"].tolist() == list(range(5000))


def test_dumps_of_phases_after_the_mark_are_gone(store, marked):
    run, mark = marked
    for number in (0, 1, 2):
        store.keep_brain(run.uid, number, "a", b"weights")
    store.resume_run(run.uid, mark)
    assert store.brains(run.uid)["phase"].tolist() == [0, 1]


@pytest.mark.skipif(
    "PALAESTRAI_MOSAIK_TEST_POSTGRESQL" not in os.environ,
    reason="PALAESTRAI_MOSAIK_TEST_POSTGRESQL holds no URL of a PostgreSQL",
)
def test_resuming_on_postgresql(tmp_path):
    url = os.environ["PALAESTRAI_MOSAIK_TEST_POSTGRESQL"]
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    engine.dispose()
    more = [("row", 0, False), ("row", 1, True), ("episode", 0, False), "phase", "warning", ("row", 0, True)]
    with Store(url, directory=tmp_path / "files", create=True) as store:
        undisturbed = Player(records.begin(store)).play(PLAN).play(more).end()
        player = Player(records.begin(store)).play(PLAN)
        go_on = player.resumed(store, player.run.mark())
        player.play(more)
        crash(store, player.run, "failed")
        assert_same(everything(store, undisturbed), everything(store, go_on().play(more).end()))
