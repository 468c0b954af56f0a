"""Sessions out of npz and Parquet files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment.replay import SessionBatchEnvironment, SessionPoolEnvironment
from palaestrai_mosaik.environment.replay.sources import read_npz, read_parquet, read_source


def test_npz_with_one_of_each(tmp_path):
    observed, acted = np.arange(12.0).reshape(2, 3, 2), np.array([[1, 2, 3], [4, 5, 6]], dtype=np.int16)
    np.savez(
        tmp_path / "s.npz",
        observations=observed,
        actions=acted,
        rewards=acted / 10,
        is_alive=[[1, 1, 1], [1, 1, 0]],
        prev_memories=np.array([[1.0], [2.0]]),
        terminated=[True, False],
    )
    pool = read_source({"npz": tmp_path / "s.npz"})
    np.testing.assert_array_equal(pool.observations[0][0], observed[0])
    assert pool.actions[0].tolist() == [[1, 2, 3], [4, 5, 0]]
    assert pool.actions[0].dtype == np.int16
    assert pool.rewards.tolist() == [[0.1, 0.2, 0.3], [0.4, 0.5, 0]]
    assert pool.sessions.by_session["terminated"].tolist() == [True, False]
    assert [one.tolist() for one in pool.previous_memories] == [[[1], [2]]]


def test_npz_with_several_observations_actions_and_rewards(tmp_path):
    arrays = {
        "observations.position": np.ones((2, 4, 3)),
        "observations.door": np.zeros((2, 4), dtype=bool),
        "actions.left": np.ones((2, 3)),
        "actions.right": np.full((2, 3), 2),
        "rewards": np.ones((2, 3, 2)),
    }
    np.savez(tmp_path / "s.npz", **arrays)
    pool = read_npz(tmp_path / "s.npz")
    assert [(f.name, f.shape, f.dtype.kind) for f in pool.signature.observations] == [
        ("position", (3,), "f"),
        ("door", (), "b"),
    ]
    assert [f.name for f in pool.signature.actions] == ["left", "right"]
    assert pool.signature.rewards == ("reward_0", "reward_1")
    assert pool.rewards.shape == (2, 3, 2)
    np.savez(tmp_path / "wrong.npz", observation=np.ones((1, 1, 1)))
    with pytest.raises(ContractError, match=r"'observation' .did you mean 'observations'"):
        read_npz(tmp_path / "wrong.npz")
    np.savez(tmp_path / "short.npz", observations=np.ones((1, 9, 1)), actions=np.ones((1, 1)))
    with pytest.raises(ContractError, match=r"short.npz: observation 'observation' of session 0 has 9 ticks"):
        read_npz(tmp_path / "short.npz")
    with pytest.raises(ContractError, match="cannot read"):
        read_npz(tmp_path / "nowhere.npz")


def test_parquet_with_named_columns_over_several_files(tmp_path):
    # two sessions, whose rows lie in both files and in no order
    rows = {"who": [2, 1, 1, 2, 1], "t": [1, 0, 2, 0, 1], "x": [21.0, 10, 12, 20, 11], "y": [1.0, 2, 3, 4, 5]}
    rows |= {"u": [5, 1, 3, 4, 2], "r": [0.5, 0.1, 0.3, 0.4, 0.2], "over": [False, False, True, False, False]}
    table = pa.table(rows)
    pq.write_table(table.slice(0, 2), tmp_path / "a.parquet")
    pq.write_table(table.slice(2), tmp_path / "b.parquet")
    columns = {"actions": ["u"], "rewards": ["r"], "session": ["who"], "tick": "t", "terminated": "over"}
    for place in (tmp_path, tmp_path / "*.parquet"):
        pool = read_source({"parquet": str(place), "observations": {"xy": ["x", "y"]}, **columns})
        assert pool.observations[0].tolist() == [[[10, 2], [11, 5], [12, 3]], [[20, 4], [21, 1], [0, 0]]]
        assert pool.actions[0].tolist() == [[1, 2, 3], [4, 5, 0]]
        assert pool.rewards.tolist() == [[0.1, 0.2, 0.3], [0.4, 0.5, 0]]
        assert pool.sessions.by_session["terminated"].tolist() == [True, False]
        assert pool.sessions.by_session["final.0"].tolist() == [[12, 3], [21, 1]]
    with pytest.raises(ContractError, match=r"has no column 'z'; it has: who, t, x"):
        read_parquet(tmp_path, observations=["z"], **columns)
    with pytest.raises(ContractError, match="name its observations"):
        read_parquet(tmp_path, **columns)
    with pytest.raises(ContractError, match="there is no Parquet file at"):
        read_parquet(tmp_path / "c.parquet")


def test_whole_numbers_fit_a_declared_space_whatever_their_dtype(tmp_path):
    np.savez(tmp_path / "s.npz", observations=np.ones((2, 3, 1)), actions=np.array([[0, 1, 0], [1, 1, 0]]))
    keys = {"source": {"npz": tmp_path / "s.npz"}, "observations": 1}
    made = SessionPoolEnvironment(actions=[{"name": "action", "space": "Discrete(2)"}], **keys)
    assert made.pool.actions[0].tolist() == [[0, 1, 0], [1, 1, 0]]
    assert made.pool.actions[0].dtype == np.int32
    made = SessionPoolEnvironment(actions=[{"name": "action", "dtype": "bool"}], **keys)
    assert made.pool.actions[0].dtype == bool
    np.savez(tmp_path / "s.npz", observations=np.ones((2, 3, 1)), actions=[[0, 1, 0], [1, 2.5, 0]])
    with pytest.raises(
        ContractError, match=r"action 'action' of session 1 is 2\.5 at tick 1, which is no int32"
    ):
        SessionPoolEnvironment(actions=1, **keys).check_sessions()


def test_rewards_of_one_column_have_the_same_name_everywhere():
    for rewards, names in (
        (np.ones((2, 3)), ["reward"]),
        (np.ones((2, 3, 1)), ["reward"]),
        (None, ["reward"]),
    ):
        made = SessionBatchEnvironment(np.ones((2, 3, 1)), [(1,)], rewards=rewards)
        assert made.reward_names == names and made.rewards.shape == (2, 3)


def test_a_tick_is_there_once_in_a_session_and_folders_are_kept_apart(tmp_path):
    # as in a store: phases and evaluations count worker and episode from 0
    for i, place in enumerate(["phase-0", "phase-0/evaluation", "phase-1"]):
        rows = {"worker": [0, 0], "episode": [0, 0], "step": [0, 1]}
        rows |= {"reading.x": [i * 10.0, i * 10.0 + 1], "setpoint.u": [0.0, 1.0], "reward.r": [1.0, 2.0]}
        (tmp_path / place / "agent").mkdir(parents=True)
        pq.write_table(pa.table(rows), tmp_path / place / "agent" / "part-0.parquet")
    pool = read_source({"parquet": str(tmp_path / "phase-*" / "agent" / "*.parquet")})
    assert pool.observations[0].tolist() == [[0, 1], [20, 21]]
    again = tmp_path / "phase-1" / "agent"
    (again / "part-1.parquet").write_bytes((again / "part-0.parquet").read_bytes())
    with pytest.raises(ContractError, match=r"step 0 is there twice in one session \(worker 0, episode 0\)"):
        read_parquet(again)
    # who names the columns of a session means them
    with pytest.raises(ContractError, match="step 0 is there twice"):
        read_parquet(tmp_path / "phase-*" / "agent" / "part-0.parquet", session=["worker", "episode"])


def test_sessions_may_be_told_apart_by_text_and_dates(tmp_path):
    rows = {
        "day": ["tue", "mon", "tue", "mon"],
        "date": np.array(["2020-01-02", "2020-01-01"] * 2, dtype="datetime64[D]"),
        "gap": ["x", None, "x", "y"],
        "list": [[1], [2], [1], [2]],
        "step": [0, 0, 1, 1],
        "x": [20.0, 10.0, 21.0, 11.0],
    }
    path = tmp_path / "days.parquet"
    pq.write_table(pa.table(rows), path)
    named = {"parquet": str(path), "observations": ["x"], "actions": [], "rewards": []}
    for session in (["day"], ["date"], ["date", "day"]):
        pool = read_source({**named, "session": session})
        assert pool.observations[0].tolist() == [[10, 11], [20, 21]]
    for wrong, message in (
        ({"session": ["gap"]}, "column 'gap' has no value in row 1"),
        ({"session": ["list"]}, "'list' holds list.*; allowed are numbers, text and dates"),
        ({"session": "day"}, "session: names of columns: a list is expected, found 'day'"),
        ({"session": ["day"], "rewards": "x"}, "rewards: names of columns: a list is expected, found 'x'"),
        ({"session": ["day"], "observations": ["day"]}, "column 'day' holds string, not numbers"),
        ({"session": ["day"], "observations": {"a": []}}, "observations.a: name at least one column"),
        ({"session": ["day"], "tick": 3}, "tick: the name of a column is expected, found 3"),
    ):
        with pytest.raises(ContractError, match=f"days.parquet: .*{message}"):
            read_source({**named, **wrong})


def test_damaged_npz_files_are_told_with_their_path(tmp_path):
    path = tmp_path / "s.npz"
    sound = {"observations": np.ones((2, 3, 1)), "actions": np.ones((2, 3)), "rewards": np.ones((2, 3))}
    np.savez(path, **sound)
    whole = path.read_bytes()
    place = whole.index(np.ones(3).tobytes())  # in the data, so that only its sum tells
    for content, message in (
        (whole[:200], "cannot read"),
        (whole[:-30], "cannot read"),
        (whole[:place] + bytes(8) + whole[place + 8 :], "Bad CRC-32"),
        (b"", "No data left"),
    ):
        path.write_bytes(content)
        with pytest.raises(ContractError, match=rf"s\.npz.*{message}|{message}.*s\.npz"):
            read_npz(path)
    for wrong, message in (
        ({"observations": np.full((2, 3, 1), "a")}, r"observations is <U1 of shape \(2, 3, 1\), expected are numbers"),
        ({"observations": np.full((2, 3, 1), 1j)}, "observations is complex128"),
        ({"rewards": np.float64(3)}, r"rewards is float64 of shape \(\), expected are numbers \[session, tick"),
        ({"actions": np.ones((2, 3, 0))}, r"actions is float64 of shape \(2, 3, 0\)"),
        ({"actions.left": np.ones((2, 3))}, "has 'actions' and 'actions.left'"),
    ):  # fmt: skip
        np.savez(path, **{**sound, **wrong})
        with pytest.raises(ContractError, match=rf"s\.npz.*{message}"):
            read_npz(path)
    del sound["observations"]
    np.savez(path, **sound)
    with pytest.raises(ContractError, match=r"s\.npz: observations: there must be at least one"):
        read_npz(path)
    np.save(tmp_path / "one.npy", np.ones((2, 3, 1)))
    with pytest.raises(ContractError, match=r"one\.npy holds one array"):
        read_npz(tmp_path / "one.npy")
    for kind in ("npz", "pool", "parquet"):
        with pytest.raises(ContractError, match=f"source: {kind}: a path is expected, found None"):
            read_source({kind: None})
