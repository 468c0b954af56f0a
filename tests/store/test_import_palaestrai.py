"""Results of palaestrAI in our store, compared with what its own database says when it is asked in plain SQL.

``tests/data/palaestrai-3.5/results.db.gz`` was written by palaestrAI 3.5.18 (see ``make.py`` there).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from palaestrai_mosaik.agent.dumper import FileBrainDumper
from palaestrai_mosaik.cli import arsenai
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.interop.palaestrai.results import Imported, import_results
from palaestrai_mosaik.interop.palaestrai.results import database as palaestrai_database
from palaestrai_mosaik.interop.palaestrai.results.database import (
    PalaestraiDatabase,
    informations,
    numbers,
    plain,
)
from palaestrai_mosaik.interop.palaestrai.results.phase import zone_of
from palaestrai_mosaik.runner.brains import keep_brain
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.verify import verify
from tests.support import postgresql

DATA = Path(__file__).parents[1] / "data" / "palaestrai-3.5" / "results.db.gz"


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    path = tmp_path / "peer.db"
    with gzip.open(DATA) as data, open(path, "wb") as file:
        shutil.copyfileobj(data, file)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results", create=True) as store:
        yield store


def ask(peer: Path, question: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(peer)) as connection, connection:
        return connection.execute(question).fetchall()


def bring(peer: Path | str, store: Store, **options: Any) -> list[Imported]:
    return list(import_results(str(peer), store, keep_brain, **options))


def digests(store: Store, run: str) -> dict[str, str]:
    table = store.streams(run)
    table = table[table["digest"].notna()]
    return dict(zip(table["folder"], table["digest"], strict=True))


def value(column: str, place: int) -> str:
    """Return the SQL of a number; palaestrAI writes plain ones, numpy's, and arrays of one as lists."""
    path = f"""json_extract({column}, '$[{place}]."py/state".value"""
    return f"coalesce({path}.value'), {path}[0]'), {path}'))"


def in_order(rows: Any) -> list[list[float]]:
    """Return rows of numbers in order; what is not there is -1."""
    table = np.nan_to_num(np.array(rows, dtype=np.float64), nan=-1.0)
    return sorted(table.tolist())


def test_every_row_is_what_palaestrai_recorded(peer: Path, store: Store) -> None:
    assert [one.outcome for one in bring(peer, store)] == ["imported"] * 3
    compared = 0
    for run in ("evaluated", "two workers", "raising"):
        for name, first, count in (("defender", 0, 2), ("attacker", 2, 3)):
            for phase, mode in ((0, "train"), (0, "evaluate"), (1, "test")):
                columns = [value("sensor_readings", i) for i in range(count)]
                columns += [value("applied_actuator_setpoints", i) for i in range(count)]
                expected = ask(
                    peer,
                    f"""select {", ".join(columns)}, {value("rewards", 0)}, objective, m.done
                    from muscle_actions m join agents a on a.id = agent_id
                    join experiment_run_phases p on p.id = a.experiment_run_phase_id
                    join experiment_run_instances i on i.id = p.experiment_run_instance_id
                    join experiment_runs r on r.id = i.experiment_run_id
                    where r.uid = '{run}' and a.name = '{name}' and p.number = {phase} and p.mode = '{mode}'
                    order by m.rollout_worker_uid, m.id""",
                )
                if mode == "evaluate" and run != "evaluated":
                    assert not expected
                    continue
                uids = range(first, first + count)
                names = [f"reading.myenv.{i}" for i in uids] + [f"setpoint.myenv.{i}" for i in uids]
                names += ["reward.myenv.Dummy Reward", "objective", "terminated"]
                found = store.steps(run, phase, name, evaluation=mode == "evaluate")
                # (which of the workers has which number is another question)
                assert in_order(found[names].astype(float).to_numpy()) == in_order(expected)
                compared += len(expected)
    assert compared == ask(peer, "select count(*) from muscle_actions")[0][0]
    # its muscles raised at the third step of the first phase; palaestrAI has recorded it as finished
    warned = " ".join(store.warnings("raising")["text"])
    assert "agent 'defender' set no actuator at 1 of its steps in phase 'learn'" in warned
    assert "set no actuator" not in " ".join(store.warnings("evaluated")["text"])


def test_states_episodes_and_outcomes(peer: Path, store: Store) -> None:
    bring(peer, store)
    states = store.environment_states("two workers", "learn", "myenv")
    expected = ask(
        peer,
        f"""select w.simtime_ticks, {", ".join(value("state_dump", i) for i in range(10))}
        from world_states w join environments e on e.id = environment_id
        join experiment_run_phases p on p.id = experiment_run_phase_id
        where p.uid = 'learn' and p.experiment_run_instance_id = 2 order by w.environment_id, w.id""",
    )
    names = ["time", *(f"reading.myenv.{i}" for i in range(10))]
    assert states.sort_values(["worker", "step"])[names].to_numpy().tolist() == [
        list(row) for row in expected
    ]
    # 4 steps an episode: the environment counts to 4, which is 0 again; all are rewards of both agents
    episodes = store.episodes("evaluated", "learn", "defender")
    assert episodes[["worker", "episode", "steps", "ticks"]].to_numpy().tolist() == [
        [0, 0, 4, 4],
        [0, 1, 4, 4],
    ]
    assert episodes["objective_sum"].tolist() == [6.0, 6.0]
    assert episodes["reward.myenv.Dummy Reward_max"].tolist() == [3.0, 3.0]
    evaluations = store.episodes("evaluated", "learn", "defender", evaluation=True)
    assert evaluations["objective_mean"].tolist() == [1.5, 1.5]
    assert store.evaluate_every("evaluated")[0] == 1
    assert store.episodes("two workers", "learn", "attacker")["worker"].tolist() == [0, 1]
    # taking turns: each of the two agents acts at every other step
    assert store.steps("evaluated", "try", "attacker")["time"].tolist() == [1, 3]
    assert store.episodes("evaluated", "try", "attacker")["steps"].tolist() == [4]


def test_what_is_known_about_a_run(peer: Path, store: Store) -> None:
    bring(peer, store)
    runs = store.runs().set_index("document")
    created = dict(
        ask(
            peer,
            "select r.uid, i.created_at from experiment_run_instances i join experiment_runs r on r.id = experiment_run_id",
        )
    )
    for uid, row in runs.iterrows():
        assert str(row["started"])[:19] == created[str(uid)]
        assert 10 < row["duration"] < 90  # it was started a minute at most before its last row
    assert set(runs["status"]) == {"finished"}
    assert set(runs["experiment"]) == {"old experiment"}
    assert runs["seed"].to_dict() == {"evaluated": 42, "two workers": 43, "raising": 44}
    assert runs.loc["evaluated", "packages"] == {"palaestrai": "3.5.18"}
    phases = store.phases("evaluated")
    assert phases[["name", "mode", "workers", "controller", "reason"]].to_numpy().tolist() == [
        ["learn", "train", 1, "vanilla", "max_episodes"],
        ["try", "test", 1, "taking_turns", "max_episodes"],
    ]
    assert (phases["started"] < phases["ended"]).all()
    channels = store.channels("two workers", "learn").set_index(["agent", "kind", "uid"])
    assert channels.loc[("defender", "sensor", "myenv.0"), "space"].startswith("Box(low=0")
    assert not verify(store, store.find_run("two workers")).damage
    # the document is the same but for where it ran: none of ours is taken for it
    assert store.document("evaluated")["uid"] == "evaluated"
    assert "palaestrai.agent.dummy_brain:DummyBrain" in store.document_text("evaluated")


def test_brains_are_where_load_finds_them(peer: Path, store: Store) -> None:
    bring(peer, store)
    folder = store.instance_directory(store.find_run("evaluated")) / "brains"
    found = FileBrainDumper(folder, "evaluated", "learn", "defender").load().read()
    (expected,) = ask(
        peer,
        """select state from brain_states b join agents a on a.id = agent_id
        join experiment_run_phases p on p.id = a.experiment_run_phase_id
        where p.experiment_run_instance_id = 1 and p.uid = 'learn' and p.mode = 'train' and a.name = 'defender'
        order by b.id desc limit 1""",
    )
    assert found == expected[0]
    assert hashlib.sha256(found).hexdigest() in (
        (folder / "evaluated" / "learn" / "defender" / "brain.bin").read_bytes().decode("latin-1")
    )
    warned = store.warnings("evaluated")["text"]
    assert any("older state of a brain" in text for text in warned)


def test_again_changes_nothing_and_more_is_brought_up_to_date(peer: Path, store: Store) -> None:
    bring(peer, store)
    before = store.runs()
    kept = {run: digests(store, run) for run in before["run"]}
    moved = peer.rename(peer.with_name("elsewhere.db"))
    assert [one.outcome for one in bring(moved, store)] == ["known"] * 3
    assert store.runs().equals(before)
    ask(moved, "delete from muscle_actions where id > (select max(id) - 2 from muscle_actions)")
    ask(moved, "delete from world_states where id = (select max(id) from world_states)")
    outcomes = {one.document: one for one in bring(moved, store)}
    assert {uid: one.outcome for uid, one in outcomes.items()} == {
        "evaluated": "known",
        "two workers": "known",
        "raising": "renewed",
    }
    assert len(store.runs()) == 3
    # the last rows were the end of its episode: nobody can know that the run was over
    assert outcomes["raising"].status == "lost"
    assert "nobody knows how this run ended" in outcomes["raising"].notes[-1]
    for run in before["run"]:
        assert (digests(store, run) == kept[run]) is (run != outcomes["raising"].run)


def test_an_import_that_is_cut_off_leaves_nothing_half(peer: Path, store: Store) -> None:
    def stop(done: int, total: int) -> None:
        assert total == 108
        if done == 70:  # in the second run
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring(peer, store, progress=stop)
    assert store.runs()["document"].tolist() == ["evaluated"]
    assert len(list((store.directory / "instances").iterdir())) == 1
    assert not list(store.directory.rglob(".import-*"))
    assert [one.outcome for one in bring(peer, store)] == ["known", "imported", "imported"]


def test_what_cannot_be_read_is_told_and_the_rest_imported(
    peer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = "select min(m.id) from muscle_actions m join agents a on a.id = agent_id where experiment_run_phase_id > 3"
    ask(peer, f"""update muscle_actions set rewards = '[{{"py/reduce": 1}}]' where id = ({first})""")
    ask(peer, """update muscle_actions set statistics = '{"loss": 0.5, "name": "x"}' where id = 1""")
    results = str(tmp_path / "results")
    assert main(["import", str(peer), "--store", results]) == 1
    said = capsys.readouterr()
    assert "2 runs imported" in said.out
    assert "two workers: not imported: cannot read {'py/reduce': 1}" in said.err
    assert "not imported: 1 x statistic 'name' of agent" in said.err
    with Store(results, create=True) as store:
        assert store.statistics("evaluated")[["key", "value"]].to_numpy().tolist() == [["loss", 0.5]]
    assert main(["import", str(peer), "--store", results, "--experiment-run", "evalated"]) == 2
    assert "did you mean 'evaluated'" in capsys.readouterr().err
    for command in (["list"], ["show", "raising"], ["export", "evaluated", str(tmp_path / "out")]):
        assert main([*command, "--store", results]) == 0
    assert (
        main(["plot", "evaluated", "--learning", "--store", results, "--output", str(tmp_path / "a.svg")])
        == 0
    )


#: a table, its column, a value in a row of the second run, and what is said of it
UNREADABLE = [
    ("experiment_runs", "document_json", None, "the run document of 'two workers' is not there"),
    ("experiment_runs", "document_json", '{"seed": "abc", "schedule": []}', "seed 'abc'"),
    ("experiment_runs", "document_json", '{"schedule": null}', "its schedule is no list"),
    ("experiment_runs", "document_json", '{"schedule": ["a"]}', "its schedule is no list"),
    ("experiment_runs", "document_json", '{"schedule": [{"a": null}]}', "a phase of its schedule"),
    ("experiment_run_phases", "configuration", "[1]", "the configuration of phase 'learn', a mapping"),
    ("experiment_run_phases", "number", "first", "the number of a phase"),
    ("agents", "configuration", '{"a": {"py/id": 0}}', "it refers to what it is in"),
    ("muscle_actions", "simtimes", '{"a": 5}', "the time of environment 'a'"),
    ("muscle_actions", "simtimes", '{"a": {"simtime_ticks": "x"}}', "the time of environment 'a'"),
    ("muscle_actions", "objective", "abc", "an objective"),
    ("muscle_actions", "rewards", "[" * 20_000 + "]" * 20_000, "in one another"),
    ("muscle_actions", "statistics", '["loss"]', "a mapping"),
    ("muscle_actions", "walltime", "0001-01-01 00:00:00.000000", "expected is a date"),
    ("brain_states", "state", 5, "it is no bytes"),
    ("experiment_run_instances", "created_at", "yesterday", "yesterday"),
]


def test_what_cannot_be_read_ends_the_import_of_its_run_only(peer: Path, store: Store) -> None:
    phases = "(select id from experiment_run_phases where experiment_run_instance_id = 2)"
    agents = f"(select id from agents where experiment_run_phase_id in {phases})"
    of_second = {
        "experiment_runs": "id = 2",
        "experiment_run_instances": "id = 2",
        "experiment_run_phases": f"id in {phases}",
        "agents": f"id in {agents}",
        "muscle_actions": f"agent_id in {agents}",
        "brain_states": f"agent_id in {agents}",
    }
    with closing(sqlite3.connect(peer)) as connection:
        for table, column, written, said in UNREADABLE:
            order = "desc" if table == "brain_states" else "asc"  # (only the newest is read)
            of = f"from {table} where {of_second[table]} order by id {order} limit 1"
            row, before = connection.execute(f"select id, {column} {of}").fetchone()
            with connection:
                connection.execute(f"update {table} set {column} = ? where id = ?", (written, row))
            (one,) = bring(peer, store, experiment_run="two workers")
            assert one.outcome == "failed" and said in str(one.problem), (column, written, one)
            if column != "created_at":
                with connection:
                    connection.execute(f"update {table} set {column} = ? where id = ?", (before, row))
    # the last date was left: it is read before anything is imported, and keeps no other from it
    assert [one.outcome for one in bring(peer, store)] == ["failed", "imported", "imported"]
    assert not list(store.directory.rglob(".import-*"))


#: kills itself at a step of bringing a run up to date, in processes that share one start
KILLED = """
import os, signal, sys
from palaestrai_mosaik.core import files
from palaestrai_mosaik.runner.brains import keep_brain
from palaestrai_mosaik.interop.palaestrai import results
from palaestrai_mosaik.interop.palaestrai.results import importer
from palaestrai_mosaik.store import Store

def dying(owner, name, calls, after):
    real, left = getattr(owner, name), [calls]
    def call(*given, **named):
        left[0] -= 1
        result = real(*given, **named) if after or left[0] else None
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, call)

peer, folder = sys.argv[1:]
for step, how in enumerate([
    (importer, "remove_rows", 1, True),  # nothing is committed
    (files, "move", 1, False),  # the files are as they were
    (files, "move", 1, True),  # the old ones are set aside
    (files, "move", 2, True),  # the new ones are in their place
    (files, "discard_tree", 1, False),  # and the rows are, too
]):
    child = os.fork()
    if not child:
        dying(*how)
        with Store(f"{folder}/{step}", create=True) as store:
            list(results.import_results(peer, store, keep_brain))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_renewal_that_is_killed_keeps_the_old_results_or_has_the_new(peer: Path, tmp_path: Path) -> None:
    ask(peer, "delete from experiment_run_instances where id != 3")
    with Store(tmp_path / "old", create=True) as store:
        (one,) = bring(peer, store)
        old = digests(store, one.run)
    ask(peer, "update muscle_actions set objective = 100")
    ask(peer, "update brain_states set tag = 'another'")
    ask(peer, "delete from brain_states where id = (select max(id) from brain_states)")
    with Store(tmp_path / "new", create=True) as store:
        bring(peer, store)
        new = digests(store, one.run)
    assert old != new
    for step in range(5):
        shutil.copytree(tmp_path / "old", tmp_path / str(step))
    command = [sys.executable, "-c", KILLED, str(peer), str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.split() == ["-9"] * 5
    whole = ask(peer, "select document_json from experiment_runs where id = 3")[0][0]
    for step in range(5):
        with Store(tmp_path / str(step), create=True) as store:
            # one that cannot be imported any more takes nothing away
            ask(peer, "update experiment_runs set document_json = '[]'")
            (failed,) = bring(peer, store)
            assert failed.outcome == ("failed" if step < 4 else "known")
            assert digests(store, one.run) == (old if step < 4 else new)
            assert not verify(store, one.run).damage
            ask(peer, f"update experiment_runs set document_json = '{whole}'")
            assert bring(peer, store)[0].outcome == ("renewed" if step < 4 else "known")
            assert digests(store, one.run) == new
            assert not verify(store, one.run).damage
            names = [path.name for path in (store.directory / "instances").iterdir()]
            assert names == [one.run]


def test_many_values_are_asked_for_in_parts(peer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def everything() -> list[Any]:
        with PalaestraiDatabase(str(peer)) as database:
            phases = [row.id for row in database.rows("experiment_run_phases", "id")]
            agents = [row.id for row in database.rows("agents", "experiment_run_phase_id", phases)]
            return [
                agents,
                list(database.rows("muscle_actions", "agent_id", agents)),
                database.count("muscle_actions", "agent_id", agents),
                list(database.newest_brains(agents)),
            ]

    found = everything()
    assert found[2] == ask(peer, "select count(*) from muscle_actions")[0][0]
    monkeypatch.setattr(palaestrai_database, "_TOGETHER", 1)
    assert everything() == found


def test_the_zone_of_rows() -> None:
    start = datetime(2026, 7, 1, 12, tzinfo=UTC)
    late = timedelta(minutes=50)

    def hours(zone: float) -> timedelta:
        return timedelta(hours=zone)

    for zone in (-9.5, -5, 0, 2, 9.5):
        # the end of a phase tells, however late the first row came; without it, zones in use
        first = start + late + hours(zone)
        ended = (first + timedelta(minutes=3), start + late + timedelta(minutes=3, seconds=1))
        assert zone_of(start, first + hours(3), [(ended[0], ended[1])]) == hours(zone)
        assert zone_of(start, start + timedelta(minutes=20) + hours(zone), []) == hours(zone)
    assert zone_of(start, start + late + hours(2), []) == hours(2)


def test_durations_where_the_first_row_came_late(peer: Path, store: Store) -> None:
    """Two hours of a zone, and 50 minutes between the instance and its first row (and so its end)."""
    ask(peer, "delete from experiment_run_instances where id != 1")
    for table in ("muscle_actions", "world_states"):
        ask(peer, f"update {table} set walltime = datetime(walltime, '+170 minutes') || '.000000'")
    terminated = "strftime('%Y-%m-%d %H:%M:%f', terminated_at, '+50 minutes') || '000'"
    ask(peer, f"update phase_termination_events set terminated_at = {terminated}")
    bring(peer, store)
    (row,) = store.runs().to_dict("records")
    assert 50 * 60 < row["duration"] < 52 * 60
    assert str(row["started"])[:19] == ask(peer, "select created_at from experiment_run_instances")[0][0]


def test_what_no_importable_database_is(peer: Path, store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no database at"):
        bring(tmp_path / "none.db", store)
    with pytest.raises(StoreError, match="a store of this package already"):
        bring(store.directory / "store.db", store)
    other = tmp_path / "other.db"
    ask(other, "create table t (id int)")
    with pytest.raises(StoreError, match="has none of its tables"):
        bring(other, store)
    ask(peer, "alter table muscle_actions rename column rewards to reward")
    with pytest.raises(StoreError, match=r"muscle_actions lacks the column rewards.*database-migrate"):
        bring(peer, store)
    assert not len(store.runs())


def test_a_database_of_an_older_release(peer: Path, store: Store, tmp_path: Path) -> None:
    """The columns and tables that revisions 4d1a7e5c9b2f to e32f4a6b7c8d have added are not there."""
    bring(peer, store)
    for index in ("ix_muscle_actions_agent_worker_episode_decision",):
        ask(peer, f"drop index {index}")
    for index in ask(
        peer, "select name from sqlite_master where type = 'index' and tbl_name = 'world_states'"
    ):
        if not str(index[0]).startswith("sqlite_"):
            ask(peer, f'drop index "{index[0]}"')
    added = {
        "muscle_actions": ("applied_actuator_setpoints", "terminated", "truncated", "decision_index", "mode"),
        "world_states": ("setpoints", "mode", "execution_id", "step_index"),
        "experiment_run_instances": ("status", "user"),
    }
    for table, columns in added.items():
        for column in columns:
            ask(peer, f'alter table {table} drop column "{column}"')
    for table in ("stored_evaluation_results", "phase_termination_events", "checkpoint_refs", "templates"):
        ask(peer, f"drop table {table}")
    with Store(tmp_path / "older", create=True) as older:
        assert {one.status for one in bring(peer, older)} == {"finished"}
        for run in store.runs()["run"]:
            assert digests(older, run) == digests(store, run)


def test_filters_and_sensors_that_come_later(peer: Path, store: Store) -> None:
    other = json.dumps(
        [
            {
                "py/object": "x.ActuatorInformation",
                "py/state": {"uid": "myenv.0", "value": 77, "space": "Discrete(100)"},
            },
            {
                "py/object": "x.ActuatorInformation",
                "py/state": {"uid": "myenv.1", "value": 78, "space": "Discrete(100)"},
            },
        ]
    )
    more = json.dumps(
        [
            {
                "py/object": "x.SensorInformation",
                "py/state": {"uid": "myenv.9", "value": [5, 6], "space": "MultiDiscrete([9, 9])"},
            }
        ]
    )
    defender = "agent_id = (select min(id) from agents where name = 'defender')"
    rows = [row[0] for row in ask(peer, f"select id from muscle_actions where {defender} order by id")]
    proposed = ask(peer, f"select {value('actuator_setpoints', 0)} from muscle_actions where id = {rows[2]}")
    ask(peer, f"update muscle_actions set applied_actuator_setpoints = '{other}' where id = {rows[2]}")
    ask(peer, f"update muscle_actions set sensor_readings = '{more}' where id = {rows[5]}")
    bring(peer, store, experiment_run="evaluated")
    steps = store.steps("evaluated", "learn", "defender")
    assert steps.loc[2, ["setpoint.myenv.0", "setpoint.myenv.1"]].tolist() == [77, 78]
    assert steps.loc[2, "proposed.myenv.0"] == proposed[0][0]
    assert (steps["proposed.myenv.0"] == steps["setpoint.myenv.0"]).sum() == len(steps) - 1
    assert steps.loc[5, ["reading.myenv.9[0]", "reading.myenv.9[1]"]].tolist() == [5, 6]
    assert steps["reading.myenv.9[0]"].notna().sum() == 1
    assert np.isnan(steps.loc[5, "reading.myenv.0"])


def test_episodes_that_palaestrai_does_not_count(peer: Path, store: Store) -> None:
    """Where every episode has the number of the one before, what is done or begins again tells them apart."""
    ask(peer, "update muscle_actions set episode = 1")
    ask(peer, "update world_states set episode = 1, done = 0")
    bring(peer, store, experiment_run="evaluated")
    assert store.steps("evaluated", 0, "defender")["episode"].tolist() == [0] * 4 + [1] * 4
    assert store.environment_states("evaluated", 0, "myenv")["episode"].tolist() == [0] * 4 + [1] * 4
    assert store.episodes("evaluated", 0, "defender")["steps"].tolist() == [4, 4]


def test_old_and_new_in_one_comparison(peer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/import-results.md shows, with a design of two of the runs that palaestrAI has executed."""
    monkeypatch.chdir(tmp_path)
    document = json.loads(
        ask(peer, "select document_json from experiment_runs where uid = 'evaluated'")[0][0]
    )
    del document["user"]
    design = {
        "uid": "both",
        "seed": 42,
        "base": document,
        "factors": [
            {
                "name": "length",
                "path": "schedule.learn.environments.myenv.environment.params.max_iter",
                "levels": [4, 8],
            }
        ],
        "outcomes": {"gain": {"of": "objective", "phase": "learn", "agent": "defender"}},
    }
    Path("design.yml").write_text(json.dumps(design))
    folder = "_outputs/both"
    assert arsenai.main(["generate", "design.yml"]) == 0
    assert arsenai.main(["run", folder, "--executor", "inline"]) == 0
    # palaestrAI has executed the document of the first row; that of the second is longer there
    ask(peer, "update experiment_runs set uid = 'both-0-r0' where uid = 'evaluated'")
    assert main(["import", str(peer), "--store", f"{folder}/results"]) == 0
    page = (Path(__file__).parents[2] / "docs" / "import-results.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(snippet, "import-results.md", "exec"), names)
    table = names["both"].set_index(["origin", "length"])["gain"]
    # 4 steps an episode with the rewards 1, 2, 3 and 0; the other has 8 steps and was not executed there
    assert table["here", 4] == table["palaestrAI", 4] == 6
    assert table["here", 8] == 28
    assert np.isnan(table["palaestrAI", 8])
    (pair,) = names["comparison"].pairs.to_dict("records")
    assert (pair["a"], pair["b"], pair["n"], pair["difference"]) == ("here", "palaestrAI", 1, 0)


@postgresql.needs_server
def test_from_and_into_postgresql(
    peer: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(peer, store)
    source = sa.create_engine(f"sqlite:///{peer}")
    tables = sa.MetaData()
    tables.reflect(source)
    with postgresql.fresh_database() as url, postgresql.fresh_database() as target:
        engine = sa.create_engine(url)
        with source.connect() as old, engine.begin() as new:
            rows = {
                table: [dict(r._mapping) for r in old.execute(sa.select(table))]
                for table in tables.sorted_tables
            }
            for column in (column for table in tables.sorted_tables for column in table.c):
                # as palaestrAI has them there
                column.type = JSONB() if isinstance(column.type, sa.JSON) else column.type.as_generic()
            for table in tables.sorted_tables:
                table.indexes.clear()
                for constraint in table.constraints:
                    constraint.name = None  # (too long there)
            tables.create_all(new)
            for table, found in rows.items():
                if found:
                    new.execute(sa.insert(table), found)
        engine.dispose()
        monkeypatch.setenv("OLD_RESULTS", url)
        with Store(target, directory=tmp_path / "files", create=True) as other:
            assert [one.outcome for one in bring("env:OLD_RESULTS", other)] == ["imported"] * 3
            assert [one.outcome for one in bring(url, other)] == ["known"] * 3
            for run in store.runs()["run"]:
                assert digests(other, run) == digests(store, run)
            assert "***" in str(other.runs()["host"][0]) or ":@" not in url


def test_objects_written_once_and_arrays() -> None:
    """As jsonpickle 4.0 writes a list in which a value stands twice, and a numpy array of 20 numbers."""
    twice = [
        {
            "py/object": "a.S",
            "py/state": {
                "uid": "e.0",
                "value": {"py/object": "numpy.float32", "dtype": "float32", "value": 2.5},
                "space": "s",
            },
        },
        {"py/object": "a.S", "py/state": {"uid": "e.1", "value": {"py/id": 3}, "space": "s"}},
    ]
    # 0 is the list, 1 the object, 2 its state, 3 the number
    assert [(one.uid, list(numbers(one.value))) for one in informations(json.dumps(twice))] == [
        ("e.0", [2.5]),
        ("e.1", [2.5]),
    ]
    array = np.arange(20.0).reshape(4, 5)
    packed = base64.b64encode(zlib.compress(array.tobytes())).decode()
    written = {
        "py/object": "numpy.ndarray",
        "dtype": "float64",
        "values": packed,
        "shape": [4, 5],
        "order": "C",
    }
    assert list(numbers(written)) == list(range(20))
    assert plain(json.dumps({"a": {"py/tuple": [1, written]}})) == {"a": [1, array.tolist()]}
    with pytest.raises(StoreError, match="expected is a number"):
        list(numbers("x"))
    with pytest.raises(StoreError, match="1 objects stand before it"):
        informations(json.dumps([{"py/id": 7}]))


def packed_array(size: int, **keys: Any) -> dict[str, Any]:
    values = base64.b64encode(zlib.compress(bytes(size), 9)).decode()
    return {"py/object": "numpy.ndarray", "dtype": "float64", "values": values, "shape": [4], **keys}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (10**400, "cannot be so large"),
        (packed_array(32, dtype="(1,"), "is no type of numbers"),
        (packed_array(32, dtype="O"), "is no type of numbers"),
        (packed_array(32, shape=[-1]), "expected is a shape"),
        (packed_array(32, shape=[10**9, 10**9]), "expected is a shape"),
        (packed_array(31), "does not have the 32 bytes"),
        (json.loads("[" * 200 + "]" * 200), "in one another"),
    ],
    ids=["large", "tuple", "object", "negative", "huge", "short", "deep"],
)
def test_values_that_are_none(value: Any, why: str) -> None:
    with pytest.raises(StoreError, match=re.escape(why)):
        list(numbers(value))


def test_what_would_become_too_large() -> None:
    bomb = packed_array(100_000_000)
    tracemalloc.start()
    with pytest.raises(StoreError, match="does not have the 32 bytes"):
        list(numbers(bomb))
    # (10 lists of the 10 lists before them, and so on: 10**12 numbers)
    nested: list[Any] = [[1] * 10]
    nested += [[{"py/id": place}] * 10 for place in range(1, 12)]
    with pytest.raises(StoreError, match="more than 10,000,000 values"):
        plain(json.dumps(nested))
    (_, most) = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 5_000_000
    with pytest.raises(StoreError, match="it refers to what it is in"):
        informations('[{"py/object": "x", "py/state": {"uid": "r", "space": "s", "value": {"py/id": 2}}}]')
