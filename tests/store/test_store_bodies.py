"""Bodies and incarnations: rows of many at once, found again by agent, environment and body."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import (
    AgentRecord,
    BodyRecord,
    ChannelRecord,
    EnvironmentRecord,
    Store,
    row_stream,
)
from palaestrai_mosaik.store.parts import part_files
from palaestrai_mosaik.store.resume import read_kept
from palaestrai_mosaik.store.streams import AgentStream, EnvironmentStream
from palaestrai_mosaik.types.arrays import AgentRows, EnvironmentRows
from tests.support import records

BATCH = 5
LENGTHS = np.array([2, 3, 3, 4, 6])
TICKS = 12


def channel(uid: str, size: int = 1) -> ChannelRecord:
    return ChannelRecord(uid, "", size)


def swarm(first: int = 0, **changes: Any) -> BodyRecord:
    """Five bodies in the batched environment."""
    return BodyRecord(
        **{
            **{"first": first, "count": BATCH, "environment": "pendulum"},
            "sensors": [channel("pendulum.{body}.observation", 2)],
            "actuators": [channel("pendulum.{body}.action")],
            "rewards": ["pendulum.{body}.reward"],
            **changes,
        }
    )


def environment(batch: int = BATCH) -> EnvironmentRecord:
    body = swarm()
    rewards = [channel("pendulum.{body}.reward")]
    return EnvironmentRecord(
        "pendulum", "P", sensors=body.sensors, actuators=body.actuators, rewards=rewards, incarnations=batch
    )


def rows_of(tick: int, bodies: np.ndarray, worker: int = 0, episode: int = 0) -> AgentRows:
    """The rows of some bodies: body ``k`` lives for episodes of ``LENGTHS[k]`` steps."""
    length, n = LENGTHS[bodies % BATCH], len(bodies)
    ends = (tick + 1) % length == 0
    values = bodies + tick / 7.0
    return AgentRows(
        *(worker, episode, np.full(n, 3 * tick), np.full(n, tick)),
        *(bodies.astype(np.int32), (tick // length).astype(np.int32)),
        *(np.column_stack([values, -values]), values[:, None] / 3, np.ones((n, 1))),
        *(values * 2, ends & (bodies % 2 == 0), ends & (bodies % 2 == 1), 0.25),
    )


def append_each(stream: AgentStream, rows: AgentRows) -> None:
    for i in range(len(rows.body)):
        stream.append(
            *(rows.worker, rows.episode, int(rows.step[i]), int(rows.time[i])),
            *(rows.readings[i], rows.setpoints[i], rows.rewards[i], float(rows.objective[i])),
            *(bool(rows.terminated[i]), bool(rows.truncated[i]), rows.wall),
            *(int(rows.body[i]), int(rows.environment_episode[i])),
            *(() if rows.proposed is None else (rows.proposed[i],)),
        )


def stream_in(folder: Path, record: BodyRecord | None = None) -> AgentStream:
    folder.mkdir(exist_ok=True)
    return AgentStream(folder / "agent-a", folder / "wall-a", record or swarm(), {}, lambda: None)


@settings(max_examples=20)
@given(
    single=st.lists(st.booleans(), min_size=TICKS, max_size=TICKS),
    orders=st.lists(st.permutations(range(BATCH)), min_size=TICKS, max_size=TICKS),
    cuts=st.sets(st.integers(0, TICKS), max_size=4),
)
def test_digests_are_the_same_whether_rows_come_one_by_one_or_together(
    tmp_path_factory, single, orders, cuts
):
    """Nor does the order of bodies within a tick matter, nor how parts are cut."""
    folder = tmp_path_factory.mktemp("digests")
    whole = stream_in(folder / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_stream, "PART_ROWS", 16)  # fewer than four ticks
        mixed = stream_in(folder / "mixed")
    for tick in range(TICKS):
        whole.append_rows(rows_of(tick, np.arange(BATCH)))
        rows = rows_of(tick, np.array(orders[tick]))
        (append_each if single[tick] else AgentStream.append_rows)(mixed, rows)
        if tick in cuts:
            mixed.flush()
    assert mixed.digest() == whole.digest()
    mixed.flush()
    assert mixed.rows == BATCH * TICKS
    # and a run that goes on behind these parts has it too
    kept = read_kept("agent", mixed.folder, mixed.parts)
    assert kept.digest.hexdigest() == whole.digest()


def test_the_files_are_the_same_byte_by_byte_and_digests_see_whose_row_it_is(tmp_path):
    together, alone = stream_in(tmp_path / "together"), stream_in(tmp_path / "alone")
    for tick in range(TICKS):
        together.append_rows(rows_of(tick, np.arange(BATCH)))
        append_each(alone, rows_of(tick, np.arange(BATCH)))
    together.flush()
    alone.flush()
    names = [path.relative_to(tmp_path / "alone") for path in sorted((tmp_path / "alone").rglob("*.parquet"))]
    assert len(names) == 2, "the trajectory and its wall-clock"
    for name in names:
        assert (tmp_path / "together" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()

    def digest(**change: Any) -> str:
        stream = stream_in(tmp_path / "x")
        stream.append(*(0, 0, 1, 3, [1, 2], [3], [4], 5.0, False, False, 0.0), **change)
        return stream.digest()

    changed = [digest(body=1), digest(environment_episode=1), digest(body=1, environment_episode=1)]
    assert len({digest(), digest(body=0, environment_episode=0), *changed}) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"readings": np.zeros((BATCH, 1))}, r"readings of shape \(5, 1\), expected \(5, 2\)"),
        ({"objective": np.zeros(1)}, r"objective of shape \(1,\), expected \(5,\)"),
        ({"body": np.arange(BATCH) + 2**32}, "whole numbers of 32 bits"),
        ({"worker": 40_000}, "cannot record these rows"),
        ({"proposed": np.zeros((BATCH, 1))}, "the record says that there are no proposed set-points"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_leave_no_trace(tmp_path, change, message):
    stream = stream_in(tmp_path)
    rows = rows_of(0, np.arange(BATCH))
    fields = {name: getattr(rows, name) for name in AgentRows.__slots__}
    with pytest.raises(StoreError, match=message):
        stream.append_rows(AgentRows(**(fields | change)))
    assert stream.rows == 0


def test_what_an_agent_would_have_done_stands_beside_what_was_done(tmp_path):
    stream = stream_in(tmp_path, swarm(proposed=True))
    rows = rows_of(0, np.arange(BATCH))
    fields = {name: getattr(rows, name) for name in AgentRows.__slots__}
    proposed = AgentRows(**(fields | {"proposed": rows.setpoints + 1}))
    stream.append_rows(proposed)
    append_each(stream, proposed)
    with pytest.raises(StoreError, match="the record says that there are proposed set-points"):
        stream.append_rows(rows)
    stream.flush()
    (part,) = part_files(stream.folder)
    table = pq.read_table(part)
    done, would = (table[f"{k}.pendulum.{{body}}.action"].to_numpy() for k in ("setpoint", "proposed"))
    assert done.tolist() == rows.setpoints[:, 0].tolist() * 2
    assert would.tolist() == (done + 1).tolist()


def test_states_of_incarnations_are_the_same_one_by_one_or_together(tmp_path):
    streams = [
        EnvironmentStream(tmp_path / f"environment-{i}", environment(), {}, lambda: None) for i in range(2)
    ]
    for tick in range(TICKS):
        rows = rows_of(tick, np.arange(BATCH))
        states = EnvironmentRows(
            *(0, 0, 3 * tick, tick, rows.body, rows.environment_episode),
            *(rows.readings, rows.rewards, rows.terminated, rows.truncated),
        )
        streams[0].append_rows(states)
        for k in range(BATCH):
            streams[1].append(
                *(0, 0, tick, 3 * tick, rows.readings[k], rows.rewards[k]),
                *(rows.terminated[k], rows.truncated[k], None, k, int(rows.environment_episode[k])),
            )
    assert streams[0].digest() == streams[1].digest()
    for stream in streams:
        stream.flush()
    first, second = (part_files(stream.folder)[0].read_bytes() for stream in streams)
    assert first == second


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Any:
    """A swarm in a batched environment with a scout of its own there, a duel, and a plain agent."""
    with Store(tmp_path_factory.mktemp("bodies"), create=True) as store:
        run = records.begin(store)
        scout = swarm(BATCH, group=1, name="scout", count=1, number=3, sensors=[channel("pendulum.3.extra")])
        sides = [
            BodyRecord(
                *(i, side, i, 1, "arena", "M", "O"),
                sensors=[channel(f"arena.{side}.x")],
                actuators=[channel(f"arena.{side}.u")],
                rewards=["arena.score"],
            )
            for i, side in enumerate(("left", "right"))
        ]
        plain = BodyRecord(sensors=[channel("arena.left.x"), channel("pendulum.3.extra")])
        arena = EnvironmentRecord("arena", "A", sensors=[channel("arena.left.x"), channel("arena.right.x")])
        pendulum = environment()
        pendulum.sensors.append(channel("pendulum.3.extra"))
        phase = run.begin_phase(
            *(0, "phase_0"),
            mode="train",
            workers=1,
            episodes=1,
            controller="Vanilla",
            environments=[pendulum, arena],
            agents=[
                AgentRecord("learner", "B", "M", "O", [swarm(), scout]),
                AgentRecord("duel", "B", "M", "O", sides),
                AgentRecord("plain", bodies=[plain]),
            ],
        )
        for tick in range(TICKS):
            rows = rows_of(tick, np.arange(BATCH))
            phase.agent("learner").append_rows(rows)
            step = (0, 0, tick, 3 * tick)
            phase.agent("learner", group=1).append(
                *(*step, [tick], [0.5], [2.0], 1.0, False, tick == TICKS - 1, 0.1), BATCH, tick // 4
            )
            for i in range(2):
                value = [10.0 * i + tick]
                end = tick == TICKS - 1
                phase.agent("duel", group=i).append(*(*step, value, value, [1.0], np.nan, end, False, 0.1), i)
            phase.agent("plain").append(*step, [tick, tick], [], [], float("nan"), False, False, 0.0)
            states = np.column_stack([rows.readings, rows.readings[:, 0]])
            phase.environment("pendulum").append_rows(
                EnvironmentRows(
                    *(0, 0, 3 * tick, tick, rows.body, rows.environment_episode, states, rows.rewards),
                    *(rows.terminated, rows.truncated),
                )
            )
            phase.environment("arena").append(*step, [0, 0], [], tick == TICKS - 1, False)
        run.finish("finished")
        yield store


def test_each_group_of_bodies_has_a_folder_of_its_own(recorded):
    root = recorded.instance_directory(recorded.find_run("latest")) / "trajectories" / "phase-0"
    agents = {
        "agent-learner-bodies-0",
        "agent-learner-bodies-1",
        "agent-duel-bodies-0",
        "agent-duel-bodies-1",
    }
    assert {path.name for path in root.iterdir() if path.name.startswith("agent-")} == agents | {
        "agent-plain"
    }
    bodies = recorded.bodies("latest")
    told = bodies[["agent", "group", "name", "first", "count", "environment"]].values.tolist()
    assert told == [
        ["learner", 0, None, 0, 5, "pendulum"],
        ["learner", 1, "scout", 5, 1, "pendulum"],
        ["duel", 0, "left", 0, 1, "arena"],
        ["duel", 1, "right", 1, 1, "arena"],
        ["plain", 0, None, 0, 1, None],
    ]
    assert recorded.environments("latest")["incarnations"].tolist() == [5, 1]
    duel = recorded.agents("latest").set_index("agent").loc["duel"]
    assert (duel["sensors"], duel["rewards"]) == (["arena.left.x", "arena.right.x"], ["arena.score"])


def test_steps_are_found_by_agent_environment_and_body(recorded):
    keys = ["worker", "episode", "body", "environment_episode", "step", "time"]
    everything = recorded.steps("latest")
    assert list(everything)[:9] == ["phase", "agent", "environment", *keys][:9]
    assert len(everything) == TICKS * (6 + 2 + 1)
    one = recorded.steps("latest", 0, "learner", body=3)
    assert list(one)[:5] == ["worker", "episode", "environment_episode", "step", "time"]
    assert one["environment_episode"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    wanted = 3 + np.arange(TICKS) / 7.0
    assert one["reading.pendulum.{body}.observation[0]"].tolist() == wanted.tolist()
    walls = recorded.steps("latest", 0, "learner", body=[1, "scout"], columns=["wall"])
    assert walls.groupby("body")["wall"].agg(["count", "max"]).values.tolist() == [
        [TICKS, 0.25],
        [TICKS, pytest.approx(0.1)],
    ]
    # bodies of different channels: a column of one is NaN for the other
    duel = recorded.steps("latest", 0, "duel")
    assert duel.loc[duel["body"] == 1, "reading.arena.left.x"].isna().all()
    assert set(recorded.steps("latest", environment="arena")["agent"]) == {"duel", "plain"}
    # an agent with one body has the columns that it always had, unless one asks
    plain = recorded.steps("latest", 0, "plain")
    assert list(plain)[:4] == ["worker", "episode", "step", "time"]
    assert list(recorded.steps("latest", 0, "plain", columns=["body", "environment"]))[:3] == [
        *("environment", "worker", "episode")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"body": 6}, r"has no body 6; it has: learner 0 to 5, duel 0 to 1, plain 0$"),
        (
            {"agent": "learner", "body": 6, "environment": "pendulum"},
            "has no body 6; it has: 0 to 5$",
        ),
        ({"body": True}, "body True: expected is a number or a label"),
        ({"body": []}, "no body is named: expected is at least one"),
        (
            {"agent": "learner", "body": "scoot"},
            r"agent 'learner' .* has no body 'scoot' .did you mean 'scout'",
        ),
        ({"agent": "learner", "environment": "arena"}, "has no body in 'arena'; it has bodies in: pendulum"),
        ({"environment": "pendulm"}, "did you mean 'pendulum'"),
        ({"agent": "plain", "body": "left"}, "its bodies have numbers, but no labels"),
        ({"body": 1.5}, "expected is a number or a label"),
    ],
)
def test_bodies_that_are_not_there_are_named(recorded, arguments, message):
    with pytest.raises(StoreError, match=message):
        recorded.steps("latest", **arguments)


def test_states_are_found_by_incarnation_or_by_who_sits_there(recorded):
    states = recorded.environment_states("latest", 0, "pendulum")
    assert list(states)[:6] == [*("worker", "episode", "incarnation", "environment_episode", "step", "time")]
    assert len(states) == TICKS * BATCH
    scout = recorded.environment_states("latest", agent="learner", body="scout")
    third = recorded.environment_states("latest", environment="pendulum", incarnation=3)
    assert set(scout["incarnation"]) == {3}
    column = "reading.pendulum.{body}.observation[1]"
    assert scout[column].tolist() == third[column].tolist() == (-3 - np.arange(TICKS) / 7.0).tolist()
    one = recorded.environment_states("latest", 0, "pendulum", incarnation=np.array(3))
    assert one.equals(recorded.environment_states("latest", 0, "pendulum", incarnation=3))
    with pytest.raises(StoreError, match="there is no incarnation 5: they are 0 to 4"):
        recorded.environment_states("latest", 0, "pendulum", incarnation=5)
    with pytest.raises(StoreError, match="incarnation False: expected is a number"):
        recorded.environment_states("latest", 0, "pendulum", incarnation=False)


def test_each_episode_of_each_body_is_one_row(recorded):
    """By hand: in 12 ticks, episodes of 2, 3, 3, 4 and 6 steps; DuckDB says the same of all rows."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (extra 'test')")
    found = recorded.body_episodes("latest", agent="learner")
    swarm_rows = found[found["body"] < BATCH]
    assert swarm_rows.groupby("body").size().tolist() == [6, 4, 4, 3, 2]
    assert swarm_rows["complete"].all()
    assert swarm_rows["time"].is_monotonic_increasing, "in the order in which they ended"
    second = found[(found["body"] == 3) & (found["environment_episode"] == 1)].iloc[0]
    objectives = [2 * (3 + tick / 7.0) for tick in range(4, 8)]
    assert second["objective_sum"] == pytest.approx(sum(objectives))
    assert second["objective_mean"] == pytest.approx(sum(objectives) / 4)
    assert (second["steps"], second["time"], second["reward.pendulum.{body}.reward_sum"]) == (4, 21, 4.0)
    assert (second["terminated"], second["truncated"]) == (False, True)
    # the scout sits in incarnation 3, which ended by itself each time, though its rows say it once
    scout = found[found["body"] == BATCH]
    assert scout["truncated"].tolist() == [False, False, True]
    assert scout["complete"].tolist() == [True, True, True]
    # no objective anywhere is NaN, and its episode was cut
    plain = recorded.body_episodes("latest", agent="plain").iloc[0]
    assert np.isnan(plain["objective_sum"]) and np.isnan(plain["objective_mean"])
    folder = recorded.instance_directory(recorded.find_run("latest")) / "trajectories" / "phase-0"
    told = duckdb.sql(
        f"SELECT body, environment_episode, count(*), sum(objective), bool_or(terminated) FROM "
        f"read_parquet('{folder}/agent-learner-bodies-0/*.parquet') GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    columns = ["body", "environment_episode", "steps", "objective_sum", "terminated"]
    ours = swarm_rows.sort_values(["body", "environment_episode"])[columns].itertuples(index=False, name=None)
    for row, other in zip(ours, told, strict=True):
        assert row[:3] == other[:3] and row[4] == other[4]
        assert row[3] == pytest.approx(other[3], rel=1e-12)


def test_an_episode_that_nothing_ended_is_not_complete(store):
    phase = records.begin_phase(records.begin(store))
    for step in range(2):
        phase.environment("myenv").append(0, 0, step, step, [0, 0], [0], False, False)
        phase.agent("a").append(0, 0, step, step, [0, 0], [0], [0], 1.0, False, step == 1, 0.0)
    phase.finish("a condition")
    (row,) = store.body_episodes("latest").to_dict("records")
    assert (row["environment"], row["truncated"], row["complete"]) == (None, True, False)


def test_only_some_bodies_are_exported(recorded, tmp_path):
    paths = recorded.export("latest", tmp_path / "out", environment="pendulum", body=[1, "scout"])
    folder = tmp_path / "out" / "trajectories" / "phase-0"
    assert {path.stem for path in paths if path.parent == folder} == {
        *("agent-learner-bodies-0", "agent-learner-bodies-1", "environment-pendulum"),
        *("wall-learner-bodies-0", "wall-learner-bodies-1"),
    }
    assert set(pq.read_table(folder / "agent-learner-bodies-0.parquet")["body"].to_pylist()) == {1}
    assert set(pq.read_table(folder / "environment-pendulum.parquet")["incarnation"].to_pylist()) == {1, 3}


def test_records_say_what_is_wrong_with_groups():
    with pytest.raises(StoreError, match="group 0: 2 incarnations for 3 bodies; expected is one for each"):
        BodyRecord(count=3, incarnations=(0, 1))
    with pytest.raises(StoreError, match="agent 'a': group 1 with 1 bodies from number 0 on cannot follow"):
        AgentRecord("a", bodies=[BodyRecord(), BodyRecord(group=1)])
    with pytest.raises(StoreError, match="agent 'a' has no body"):
        AgentRecord("a", bodies=[])


def test_a_group_that_is_not_there_is_named(recorded, store):
    phase = records.begin_phase(records.begin(store))
    with pytest.raises(StoreError, match="agent 'a' has no group 1 of bodies, only 0 to 0"):
        phase.agent("a", group=1)
