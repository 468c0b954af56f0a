"""What a run hands over is found again: streams, digests, episodes, failures."""

from __future__ import annotations

import json
import os
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import BodyRecord, ChannelRecord, EnvironmentRecord, row_stream
from palaestrai_mosaik.store.streams import AgentStream, EnvironmentStream
from tests.support import records


def channel_list(count, size=1):
    return [ChannelRecord(f"e.{i}", "", size) for i in range(count)]


def make_agent_stream(folder: Path, sensors=2, actuators=1, on_look=lambda: None) -> AgentStream:
    record = BodyRecord(sensors=channel_list(sensors), actuators=channel_list(actuators), rewards=["r"])
    folder.mkdir(exist_ok=True)
    return AgentStream(folder / "agent-a", folder / "wall-a", record, {"name": "a"}, on_look)


def fill(stream: AgentStream, rows: list[tuple[int, int]]) -> AgentStream:
    """Append one row for each (worker, step), with values that follow from both."""
    for worker, step in rows:
        values = np.array([worker + step / 7, -step])
        stream.append(worker, 0, step, step, values, values[:1], [step], step / 3, False, False, 0.5)
    return stream


def test_every_value_comes_back_bit_by_bit(store):
    special = [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 0.1, 1e308]
    run = records.begin(store)
    phase = records.begin_phase(run)
    for step, value in enumerate(special):
        phase.agent("a").append(
            *(3, 2_000_000_000, step, 2**62 + step, [value, step], [-value], [value]),
            *(value, step % 2 == 0, step % 3 == 0, 0.25),
        )
    phase.finish("done")
    run.finish("finished")
    frame = store.steps(run.uid, agent="a")
    wanted = np.array(special)
    for column, values in {
        "reading.myenv.0": wanted,
        "setpoint.myenv.0": -wanted,
        "reward.count": wanted,
        "objective": wanted,
    }.items():
        assert frame[column].to_numpy().tobytes() == values.tobytes(), column
    assert frame["time"].tolist() == [2**62 + i for i in range(8)]
    assert frame["worker"].dtype == np.int16 and set(frame["worker"]) == {3}
    assert frame["episode"].dtype == np.int32 and set(frame["episode"]) == {2_000_000_000}
    assert frame["terminated"].tolist() == [True, False] * 4
    assert frame["truncated"].tolist() == [i % 3 == 0 for i in range(8)]


def test_a_row_is_copied_when_it_is_appended(store):
    phase = records.begin_phase(records.begin(store))
    readings = np.array([1.0, 2.0])
    phase.agent("a").append(0, 0, 0, 0, readings, [0.0], [0.0], 0.0, False, False, 0.0)
    readings[:] = 9.0
    phase.finish("done")
    assert store.steps("latest", agent="a")["reading.myenv.0"].tolist() == [1.0]


def test_values_with_several_floats_become_indexed_columns(tmp_path):
    sensors = [ChannelRecord("e.x", "", 3), ChannelRecord("e.none", "", 0), ChannelRecord("e.x[1]", "", 1)]
    record = BodyRecord(sensors=sensors, rewards=[])
    stream = AgentStream(tmp_path / "agent-a", tmp_path / "wall-a", record, {}, lambda: None)
    stream.append(0, 0, 0, 0, [1, 2, 3, 4], [], [], 0.0, False, False, 0.0)
    stream.flush()
    from palaestrai_mosaik.store.parts import read_parts

    table = read_parts([tmp_path / "agent-a" / "part-000000.parquet"])
    values = {name: table[name].to_pylist() for name in table.schema.names if name.startswith("reading")}
    # a sensor whose own name looks like an index is told apart
    assert values == {
        "reading.e.x[0]": [1],
        "reading.e.x[1]": [2],
        "reading.e.x[2]": [3],
        "reading.e.x[1]#2": [4],
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"readings": [1.0]}, r"readings of shape \(1,\), expected \(2,\)"),
        ({"readings": 1.0}, r"readings of shape \(\)"),
        ({"setpoints": np.zeros((1, 1, 2))}, "setpoints of shape"),
        ({"rewards": []}, r"rewards of shape \(0,\), expected \(1,\)"),
        ({"worker": 40_000}, "cannot record"),
        ({"objective": None}, "cannot record"),
        ({"readings": ["x", 1]}, "cannot record"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_and_leaves_no_trace(tmp_path, change, message):
    stream = fill(make_agent_stream(tmp_path), [(0, 0)])
    before = stream.digest()
    row = {
        **{"worker": 0, "episode": 0, "step": 1, "time": 1, "readings": [1.0, 2.0], "setpoints": [1.0]},
        **{"rewards": [1.0], "objective": 0.0, "terminated": False, "truncated": False, "wall": 0.0},
    }
    with pytest.raises(StoreError, match=message):
        stream.append(**(row | change))
    assert stream.rows == 1
    assert stream.digest() == before


@settings(max_examples=25)
@given(cuts=st.lists(st.integers(0, 40), max_size=6), capacity=st.integers(16, 50))
def test_the_digest_does_not_depend_on_how_parts_are_cut(tmp_path_factory, cuts, capacity):
    rows = [(0, step) for step in range(41)]
    whole = fill(make_agent_stream(tmp_path_factory.mktemp("whole")), rows).digest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_stream, "PART_ROWS", capacity)
        stream = make_agent_stream(tmp_path_factory.mktemp("cut"))
    for row in rows:
        fill(stream, [row])
        if row[1] in cuts:
            stream.flush()
    assert stream.digest() == whole
    stream.flush()
    assert stream.digest() == whole
    assert stream.rows == stream.rows_written == 41


@settings(max_examples=25)
@given(order=st.permutations([0] * 5 + [1] * 5 + [2] * 3))
def test_the_digest_does_not_depend_on_how_workers_take_turns(tmp_path_factory, order):
    steps = {0: 0, 1: 0, 2: 0}
    rows = []
    for worker in order:
        rows.append((worker, steps[worker]))
        steps[worker] += 1
    folder = tmp_path_factory.mktemp("workers")
    assert fill(make_agent_stream(folder), rows).digest() == (
        fill(make_agent_stream(folder), sorted(rows)).digest()
    )


def test_the_digest_sees_every_value_but_not_the_wall_clock(tmp_path):
    def digest(**change):
        row = {
            **{"worker": 0, "episode": 0, "step": 1, "time": 1, "readings": [1.0, 2.0], "setpoints": [1.0]},
            **{"rewards": [1.0], "objective": 0.0, "terminated": False, "truncated": False, "wall": 0.0},
        }
        stream = make_agent_stream(tmp_path)
        stream.append(**(row | change))
        return stream.digest()

    assert digest(wall=1.0) == digest()
    changes = [
        *({"worker": 1}, {"episode": 1}, {"step": 2}, {"time": 2}, {"readings": [1.0, 2.1]}),
        *({"setpoints": [0.9]}, {"rewards": [0.0]}, {"objective": -0.0}),
        *({"terminated": True}, {"truncated": True}),
    ]
    assert len({digest(), *(digest(**change) for change in changes)}) == len(changes) + 1


def test_the_digest_of_an_environment_sees_its_states(tmp_path):
    def digest(*states, flush=False):
        record = EnvironmentRecord("e", "E", sensors=channel_list(1))
        stream = EnvironmentStream(tmp_path / "environment-e", record, {}, lambda: None)
        for step, state in enumerate(states):
            stream.append(0, 0, step, step, [1.0], [], False, False, state)
            if flush:
                stream.flush()
        return stream.digest()

    assert digest({"a": 1}, None) == digest({"a": 1}, None, flush=True)
    assert len({digest({"a": 1}, None), digest({"a": 2}, None), digest(None, {"a": 1})}) == 3
    with pytest.raises(StoreError, match="cannot be stored as JSON"):
        digest(object())


def test_parts_appear_while_a_run_goes_on(tmp_path, monkeypatch):
    """With a clock of our own: one row a second, so a part about every four rows at first."""
    now = [0.0]
    monkeypatch.setattr(row_stream, "monotonic", lambda: now[0])
    told = []
    stream = make_agent_stream(tmp_path, on_look=lambda: told.append(stream.rows_written))
    for step in range(3600):
        fill(stream, [(0, step)])
        now[0] += 1.0
    assert next(filter(None, told)) == 4, "the first part comes after four seconds"
    assert stream.rows - stream.rows_written < 3600 / 20
    # the gaps grow: some hundred files an hour, not 900
    assert 50 < stream.parts < 200


def test_a_fast_stream_writes_full_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(row_stream, "monotonic", lambda: 0.0)
    stream = fill(make_agent_stream(tmp_path), [(0, step) for step in range(40_001)])
    assert (stream.parts, stream.rows_written, stream.rows) == (2, 40_000, 40_001)


def test_many_columns_stay_below_32_mb(tmp_path):
    record = BodyRecord(sensors=channel_list(1000), rewards=[])
    values = np.random.default_rng(0).uniform(size=1000)
    fill(make_agent_stream(tmp_path / "before"), [(0, 0)]).flush()  # so that imports are not counted
    tracemalloc.start()
    stream = AgentStream(tmp_path / "agent-a", tmp_path / "wall-a", record, {}, lambda: None)
    for step in range(4000):
        stream.append(0, 0, step, step, values, [], [], 0.0, False, False, 0.0)
    stream.flush()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert stream.parts >= 2
    assert peak < 32 * 2**20


def test_same_rows_same_digests_in_sql_and_marker(store):
    first = records.record_small_run(store)
    second = records.record_small_run(store)
    markers = [
        json.loads((store.instance_directory(uid) / "complete.json").read_text()) for uid in (first, second)
    ]
    assert markers[0]["uid"] == first != second == markers[1]["uid"]
    assert markers[0]["hash"] == "hash of my-run"
    assert markers[0]["status"] == "finished"
    assert markers[0]["digests"] == markers[1]["digests"]
    assert set(markers[0]["digests"]) == {
        *("phase-0/agent-a", "phase-0/agent-b", "phase-0/environment-myenv", "phase-0/statistics")
    }
    frame = store.streams(first)
    in_sql = {
        folder.removeprefix("trajectories/"): digest
        for folder, digest in zip(frame["folder"], frame["digest"], strict=True)
        if digest is not None
    }
    assert in_sql == markers[0]["digests"]
    # and the trajectory files themselves are the same, byte by byte
    for key in in_sql:
        files = [
            (store.instance_directory(uid) / "trajectories" / key / "part-000000.parquet").read_bytes()
            for uid in (first, second)
        ]
        assert files[0] == files[1], key


def test_episodes_are_committed_in_batches_and_none_is_lost(store):
    from sqlalchemy import event

    commits = []
    event.listen(store.database.engine, "commit", lambda _: commits.append(1))
    phase = records.begin_phase(records.begin(store))
    before = len(commits)
    results = {"objective": records.moments(1.0, 2.0), "rewards": {}}
    for episode in range(1000):
        phase.episode(
            0,
            episode,
            steps=10,
            ticks=10,
            ended_by="e",
            flow="RESET",
            duration=0.0,
            agents={"a": results, "b": results},
        )
    assert len(store.episodes("latest")) > 0, "some are visible before the phase ends"
    phase.finish("done")
    assert len(commits) - before < 30
    assert len(store.outcomes("latest")) == 2000
    assert store.episodes("latest", agent="b")["episode"].tolist() == list(range(1000))


def test_a_failed_run_keeps_its_traceback_and_what_was_recorded(store):
    run = records.begin(store)
    phase = records.begin_phase(run)
    phase.agent("a").append(0, 0, 0, 0, [1, 2], [3], [4], 5.0, False, False, 0.0)
    try:
        raise ValueError("muscle \0 of \ud800 steel")
    except ValueError as error:
        run.finish("failed", error)
    row = store.runs().iloc[0]
    assert (row["status"], row["error"]) == ("failed", "ValueError: muscle \\x00 of \\ud800 steel")
    failure = store.errors("latest").iloc[0]
    assert failure["phase"] == 0
    assert "test_store_recording.py" in failure["traceback"]
    assert store.phases("latest").iloc[0]["reason"] == "failed"
    assert len(store.steps("latest", agent="a")) == 1
    assert json.loads((run.directory / "complete.json").read_text())["status"] == "failed"
    with pytest.raises(StoreError, match="is finished"):
        run.finish("finished")
    with pytest.raises(StoreError, match="is finished"):
        records.begin_phase(run, 1)


def test_unknown_agents_and_environments_are_refused_with_the_nearest_name(store):
    phase = records.begin_phase(records.begin(store), 0, (records.agent_record("defender"),))
    assert phase.agent("defender") is phase.agent("defender")
    with pytest.raises(StoreError, match=r"no agent 'defnder' .did you mean 'defender'"):
        phase.agent("defnder")
    with pytest.raises(StoreError, match=r"no environment 'env'.*myenv"):
        phase.environment("env")
    with pytest.raises(StoreError, match="no agent 'x'"):
        phase.episode(
            *(0, 0), steps=1, ticks=1, ended_by="", flow="", duration=0.0, agents={"x": {"objective": {}}}
        )
    with pytest.raises(StoreError, match=r"statistic 'loss'.*not a number"):
        phase.statistic("defender", 0, 0, 0, "loss", "high")


def test_a_document_is_stored_once_per_hash_and_seeds_of_any_size(store):
    for text in ("a: 1", "a: 1  # again"):
        records.begin(store, text=text).finish("finished")
    run = store.begin_run(
        uid="other", document={"x": [1e-5, None]}, text="x", hash="h", seed=2**127, version="1"
    )
    run.finish("interrupted")
    assert [store.document_text(uid) for uid in store.runs()["run"]] == ["a: 1", "a: 1", "x"]
    assert store.document(run.uid) == {"x": [1e-5, None]}
    last = store.runs().iloc[2]
    assert (last["seed"], last["status"]) == (2**127, "interrupted")
    assert set(last["packages"]) >= {"palaestrai_mosaik", "mosaik", "numpy", "python"}


def test_ctrl_c_while_a_part_is_written_neither_loses_nor_repeats_rows(store, monkeypatch):
    """The worst moment: the part has its name, and nothing after that happened."""
    run = records.begin(store)
    phase = records.begin_phase(run)
    phase.agent("a").append(0, 0, 0, 0, [1, 2], [3], [4], 5.0, False, False, 0.0)
    phase.environment("myenv").append(0, 0, 0, 0, [1, 2], [3], False, False, {"a": 1})
    phase.statistic("a", 0, 0, 0, "loss", 1.0)
    replace = os.replace

    def interrupted(source, target, **folders):
        replace(source, target, **folders)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    for flush in (phase.agent("a").flush, phase.environment("myenv").flush, phase._training.statistics.flush):
        with pytest.raises(KeyboardInterrupt):
            flush()
    monkeypatch.setattr(os, "replace", replace)
    phase.agent("a").append(0, 0, 1, 1, [1, 2], [3], [4], 5.0, False, False, 0.0)
    phase.environment("myenv").append(0, 0, 1, 1, [1, 2], [3], False, False, None)
    run.finish("interrupted", KeyboardInterrupt())
    assert store.steps("latest", agent="a", columns=["wall"])["step"].tolist() == [0, 1]
    assert store.environment_states("latest")["state"].tolist() == [{"a": 1}, None]
    assert len(store.statistics("latest")) == 1
    assert store.runs()["status"].tolist() == ["interrupted"]


@pytest.mark.parametrize("after", [True, False])
def test_ctrl_c_while_episodes_are_committed_neither_loses_nor_repeats_them(store, monkeypatch, after):
    phase = records.begin_phase(records.begin(store))
    results = {"objective": records.moments(1.0), "rewards": {}}
    end = {
        "steps": 1,
        "ticks": 1,
        "ended_by": "x",
        "flow": "RESET",
        "duration": 0.0,
        "agents": {"a": results},
    }
    writing = store.database.writing

    @contextmanager
    def interrupted(**options):
        with writing(**options) as session:
            yield session
            if not after:
                raise KeyboardInterrupt
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store.database, "writing", interrupted)
        with pytest.raises(KeyboardInterrupt):
            phase.episode(0, 0, **end)
    phase.episode(0, 1, **end)
    phase.finish("interrupted")
    assert store.episodes("latest")["episode"].tolist() == [0, 1]
    assert len(store.outcomes("latest")) == 2
    # whereas an episode that is recorded twice by mistake is an error
    again = records.begin_phase(records.begin(store))
    again.episode(0, 0, **end)
    with pytest.raises(StoreError, match="cannot write"):
        again.episode(0, 0, **end)
        again.finish("done")
