"""Sessions out of npz and Parquet files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palaestrai_mosaik.environment.replay.sources import read_npz, read_parquet, read_source
from palaestrai_mosaik.errors import ContractError


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
