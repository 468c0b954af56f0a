"""The pool of sessions: what is loaded comes out again, grows, shrinks, and lies on the disk."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment.replay import PoolWriter, SessionPool
from palaestrai_mosaik.environment.replay.sessions import Sessions

#: two sessions of three ticks; a session's number is the first digit of all that it holds
OBSERVED = np.array([[[10.0, 0], [11, 0], [12, 0]], [[20, 0], [21, 0], [22, 0]]])
DONE = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.int32)
REWARDED = np.array([[1.5, 2.5, 3.5], [4.5, 5.5, 6.5]])


def small() -> SessionPool:
    pool = SessionPool(observations=2)
    pool.load_sessions(OBSERVED, DONE, REWARDED)
    return pool


def numbered(first: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sessions of two ticks with one observation, action and reward: their numbers."""
    numbers = np.repeat(np.arange(first, first + count), 2).reshape(count, 2)
    return numbers[..., None].astype(float), numbers, numbers.astype(float)


def same(first: Sessions, second: Sessions) -> bool:
    pairs = [(first.offsets, second.offsets)]
    for one, two in ((first.by_tick, second.by_tick), (first.by_session, second.by_session)):
        assert one.keys() == two.keys()
        pairs += [(one[name], two[name]) for name in one]
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def test_what_is_loaded_comes_out():
    pool = small()
    assert len(pool) == 2
    np.testing.assert_array_equal(pool.observations[0], OBSERVED)
    np.testing.assert_array_equal(pool.actions[0], DONE)
    np.testing.assert_array_equal(pool.rewards, REWARDED)
    assert (pool.observations[0].dtype, pool.actions[0].dtype) == (np.float64, np.int32)
    assert pool.is_alive.all()
    assert pool.previous_memories is None
    # nothing was recorded after the last action, and nothing says that the world ended
    np.testing.assert_array_equal(pool.sessions.by_session["final.0"], [[12, 0], [22, 0]])
    assert not pool.sessions.by_session["terminated"].any()
    # the next ones take their place
    pool.load_sessions(OBSERVED[1:], DONE[1:], REWARDED[1:])
    assert (len(pool), pool.actions[0].tolist()) == (1, [[4, 5, 6]])


def test_several_observations_and_actions_of_their_own_shapes_and_dtypes():
    pool = SessionPool(
        [{"name": "screen", "shape": [2, 2], "dtype": "uint8"}, {"name": "speed", "shape": []}],
        [{"name": "gas", "dtype": "float64"}, {"name": "gear"}],
        rewards=["fun", "cost"],
    )
    screen = np.arange(3 * 4).reshape(1, 3, 2, 2)
    speed, gas = np.array([[0.5, 1.5, 2.5]]), np.array([[0.1, 0.2]])
    pool.load_sessions([screen, speed], [gas, [[3, 4]]], [[[1.0, 10.0], [2.0, 20.0]]])
    found = pool.observations
    np.testing.assert_array_equal(found[0], screen[:, :2])
    np.testing.assert_array_equal(found[1], speed[:, :2])
    assert [one.dtype for one in (*found, *pool.actions)] == [np.uint8, np.float64, np.float64, np.int32]
    np.testing.assert_array_equal(pool.actions[1], [[3, 4]])
    np.testing.assert_array_equal(pool.rewards, [[[1, 10], [2, 20]]])
    # observations have one tick more than actions: it is what was seen after the last one
    sessions = pool.sessions
    assert sessions.by_session["final.0"].tolist() == [[8, 9, 10, 11]]
    assert sessions.by_session["final.1"].tolist() == [[2.5]]


def test_sessions_end_when_they_are_not_alive():
    pool = SessionPool(observations=2)
    pool.load_sessions(OBSERVED, DONE, REWARDED, is_alive=[[1, 1, 0], [1, 1, 1]])
    assert pool.sessions.lengths.tolist() == [2, 3]
    assert pool.is_alive.tolist() == [[True, True, False], [True] * 3]
    assert pool.actions[0].tolist() == [[1, 2, 0], [4, 5, 6]]
    # the first one ended in the world, of the other only the record ended
    assert pool.sessions.by_session["terminated"].tolist() == [True, False]
    pool.load_sessions(OBSERVED, DONE, REWARDED, [[1, 1, 0], [1, 1, 1]], terminated=[False, True])
    assert pool.sessions.by_session["terminated"].tolist() == [False, True]


def test_sessions_of_different_length():
    pool = SessionPool()
    pool.load_sessions(
        [[[1.0], [2.0], [9.0]], [[3.0]]], [np.array([7, 8]), np.array([5])], [[0.1, 0.2], [0.3]]
    )
    assert pool.sessions.lengths.tolist() == [2, 1]
    assert pool.sessions.by_session["final.0"].ravel().tolist() == [9.0, 3.0]
    assert pool.rewards.tolist() == [[0.1, 0.2], [0.3, 0.0]]


def test_append_keeps_the_newest_and_leaves_what_was_taken():
    pool = SessionPool()
    pool.load_sessions(*numbered(0, 3))
    taken = pool.sessions
    for first in range(3, 40):
        pool.append_sessions(*numbered(first, 1), max_pool_size=5)
        newest = list(range(max(0, first - 4), first + 1))
        assert pool.actions[0][:, 1].tolist() == newest
        assert pool.rewards[:, 0].tolist() == newest
        assert pool.sessions.by_session["final.0"].ravel().tolist() == newest
    assert taken.by_tick["action.0"].ravel().tolist() == [0, 0, 1, 1, 2, 2]
    pool.append_sessions(*numbered(40, 8), max_pool_size=2)
    assert pool.actions[0].tolist() == [[46, 46], [47, 47]]
    pool.append_sessions(*numbered(48, 2))
    assert len(pool) == 4
    pool.load_sessions(*numbered(7, 1))
    assert pool.actions[0].tolist() == [[7, 7]]


def test_previous_memories():
    pool = SessionPool()
    pool.load_sessions(*numbered(0, 2), prev_memories=[np.array([[1.0, 2], [3, 4]]), np.array([5, 6])])
    pool.append_sessions(*numbered(2, 1), None, [np.array([[7.0, 8]]), np.array([9])], max_pool_size=2)
    memories = pool.previous_memories
    assert [one.tolist() for one in memories] == [[[3, 4], [7, 8]], [6, 9]]
    assert [one.tolist() for one in pool.select([1]).previous_memories] == [[[7, 8]], [9]]
    with pytest.raises(
        ContractError, match=r"memories of the pool are float64\[2\], int64\[\], but these are none"
    ):
        pool.append_sessions(*numbered(3, 1))
    assert len(pool) == 2


def test_memories_are_what_is_declared(tmp_path):
    hidden = {"name": "hidden", "shape": [2], "dtype": "float32"}
    pool = SessionPool(agent_memories=[hidden, {"name": "calls", "dtype": "int8"}])
    pool.load_sessions(*numbered(0, 2), prev_memories=[np.array([[1.0, 2], [3, 4]]), np.array([5.0, 6])])
    assert [one.dtype for one in pool.previous_memories] == [np.float32, np.int8]
    pool.save(tmp_path / "pool")
    opened = SessionPool.open(tmp_path / "pool")
    assert opened.signature == pool.signature and opened.signature.memories[0].shape == (2,)
    pool.load_sessions(*numbered(0, 2))  # what is not known need not be there
    assert pool.previous_memories is None
    for wrong, message in (
        ([np.zeros((2, 2))], "2 of them are declared by agent_memories, found 1"),
        ([np.zeros((2, 3)), np.zeros(2)], r"'hidden' has shape \(3,\) for each session, declared is \(2,\)"),
        ([np.zeros((2, 2)), np.array([0, 0.5])], "'calls' is 0.5 at session 1, which is no int8"),
    ):
        with pytest.raises(ContractError, match=message):
            pool.load_sessions(*numbered(0, 2), prev_memories=wrong)
    two = SessionPool(agent_memories=2)  # of any shape
    two.load_sessions(*numbered(0, 2), prev_memories=[np.zeros((2, 2)), np.zeros(2)])
    with pytest.raises(ContractError, match="2 of them are declared by agent_memories, found 1"):
        two.load_sessions(*numbered(0, 2), prev_memories=np.zeros(2))
    with pytest.raises(ContractError, match="observations and agent_memories: the name 'observation'"):
        SessionPool(agent_memories=[{"name": "observation"}])
    # a description that does not go with the columns
    place = tmp_path / "pool" / "pool.json"
    written = place.read_text()
    place.write_text(written.replace("<f4", "<f8"))
    with pytest.raises(ContractError, match=r"damaged: .*memory.0.npy is float32, expected is float64"):
        SessionPool.open(tmp_path / "pool")
    place.write_text(json.dumps(json.loads(written) | {"memories": 1}))
    with pytest.raises(ContractError, match=r"damaged: .*pool.json: .*1 of them are declared"):
        SessionPool.open(tmp_path / "pool")


def test_actions_that_declare_no_dtype_have_the_default_one():
    for declared in (1, [{"name": "action"}]):
        assert SessionPool(actions=declared).signature.actions[0].dtype == np.int32
        pool = SessionPool(actions=declared, default_action_dtype="float32")
        pool.load_sessions([[[1.0]]], [[0.5]], None)
        assert (pool.actions[0].dtype, pool.actions[0].tolist()) == (np.float32, [[0.5]])
    own = [{"name": "action", "dtype": "int8"}]
    assert SessionPool(actions=own, default_action_dtype="float32").signature.actions[0].dtype == np.int8
    with pytest.raises(ContractError, match="default_action_dtype: 'text' is no dtype of numbers"):
        SessionPool(default_action_dtype="text")


def test_sampling_is_uniform_and_without_replacement_if_not_asked_for():
    pool = SessionPool()
    pool.load_sessions(*numbered(0, 10))
    draws = [pool.sample(4, np.random.default_rng(i)) for i in range(3000)]
    assert all(len(set(one.tolist())) == 4 for one in draws)
    counts = np.bincount(np.concatenate(draws), minlength=10)
    # 1200 expected of each, standard deviation 26.8
    assert (abs(counts - 1200) < 140).all()
    assert sorted(pool.sample(64, np.random.default_rng(0))) == list(range(10))
    many = np.array([pool.sample(12, np.random.default_rng(i), replace=True) for i in range(1000)])
    assert many.shape == (1000, 12)
    # 1200 expected of each, standard deviation 32.9; and each place of a sample has all of them
    assert (abs(np.bincount(many.ravel(), minlength=10) - 1200) < 170).all()
    assert all(len(set(column)) == 10 for column in many.T.tolist())
    assert draws[5].tolist() == pool.sample(4, np.random.default_rng(5)).tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((OBSERVED[..., :1], DONE, REWARDED), r"'observation' of session 0 has shape \(3, 1\), expected is \(ticks, 2\)"),
        ((OBSERVED, DONE[..., None], REWARDED), r"'action' of session 0 has shape \(3, 1\), expected is \(ticks\)"),
        ((OBSERVED, np.add(DONE, [[0, 0, 0], [0, 0.5, 0]]), REWARDED), r"action 'action' of session 1 is 5.5 at tick 1, which is no int32"),
        ((OBSERVED, [[1, 2, 3], [4]], REWARDED), "rewards of session 1 has 3 ticks, but the actions have 1; expected are 1"),
        ((OBSERVED, DONE[:, :1], REWARDED[:, :1]), "of session 0 has 3 ticks, but the actions have 1; expected are 1, or 2"),
        ((OBSERVED, DONE, REWARDED[:1]), "rewards: there are 1 sessions, but 2 of the actions"),
        ((OBSERVED, DONE, REWARDED, [[1, 1, 1], [1, 0, 1]]), "session 1 has ended by tick 1, but is alive again at tick 2"),
        ((OBSERVED, DONE, REWARDED, [[1, 1, 1], [0, 0, 0]]), "session 1 is not alive at tick 0"),
        ((OBSERVED, DONE, REWARDED, [[1, 1, 1], [2, 1, 0]]), "is_alive of session 1 is 2 at tick 0, which is no bool"),
        ((OBSERVED, DONE, REWARDED, None, np.zeros(3)), r"previous memories: numbers of shape \(2, ...\)"),
        (("nonsense", DONE, REWARDED), r"\[session, tick, ...\] is expected"),
        (([], [], []), "there is no session"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_with_session_and_tick(arguments, message):
    pool = SessionPool(observations=2)
    pool.load_sessions(OBSERVED, DONE, REWARDED)
    with pytest.raises(ContractError, match=message):
        pool.load_sessions(*arguments)
    assert pool.actions[0].tolist() == DONE.tolist()


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"observations": 0}, "observations: a number of at least 1"),
        ({"observations": []}, "there must be at least one"),
        ({"observations": [{"name": "x", "dtyp": "int8"}]}, r"observations.0: .*'dtyp' \(did you mean 'dtype'"),
        ({"actions": [{"name": "a"}, {"name": "a"}]}, "actions: the name 'a' is given twice"),
        ({"actions": [{"name": "a", "shape": [0]}]}, r"actions.0: a shape is a list of whole numbers above 0"),
        ({"actions": [{"name": "a", "space": "Box(0, 1, shape=(2,))", "shape": [3]}]}, "which is not the shape"),
        ({"actions": [{"name": "a", "dtype": "str"}]}, "is no dtype of numbers"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_told(declared, message):
    with pytest.raises(ContractError, match=message):
        SessionPool(**declared)


def test_a_selector_must_be_places():
    for wrong, message in (([2], "there is no session 2: the pool has 2"), ([0.5], "whole numbers")):
        with pytest.raises(ContractError, match=message):
            small().select(wrong)
    assert small().select([1, 1, 0]).actions[0].tolist() == [[4, 5, 6], [4, 5, 6], [1, 2, 3]]


def test_a_pool_on_disk_is_the_same(tmp_path):
    pool = SessionPool(
        [{"name": "a", "dtype": "int8", "space": "Discrete(5)"}, {"name": "b", "shape": [1]}], 2
    )
    acted = [[[1, 2], [3]], [[4, 5], [6]]]
    pool.load_sessions(
        [[np.array([1, 2]), np.array([4])], [np.array([[0.5], [0.6]]), np.array([[0.8]])]],
        acted,
        [[1.0, 2.0], [3.0]],
        None,
        np.array([[1, 2], [3, 4]]),
        terminated=[True, False],
    )
    pool.save(tmp_path / "pool")
    opened = SessionPool.open(tmp_path / "pool")
    assert opened.signature == pool.signature
    assert same(opened.sessions, pool.sessions)
    assert opened.select([1]).observations[1].tolist() == [[[0.8]]]
    # plain npy files, which any program can read
    np.testing.assert_array_equal(np.load(tmp_path / "pool" / "reward.npy"), [[1], [2], [3]])
    with pytest.raises(ContractError, match="is there already"):
        pool.save(tmp_path / "pool")
    # what is mapped may be added to: that goes to memory, not to the files
    opened.append_sessions([[[9]], [[[9.0]]]], [[[9]], [[9]]], [[9.0]], None, np.array([[9, 9]]))
    assert (len(opened), len(SessionPool.open(tmp_path / "pool"))) == (3, 2)


def test_a_pool_is_written_piece_by_piece_and_there_as_a_whole(tmp_path):
    place = tmp_path / "pool"
    whole = SessionPool()
    whole.load_sessions(*numbered(0, 9))
    with PoolWriter(place, whole.signature) as writer:
        for first in range(0, 9, 2):
            writer.append(whole.select(range(first, min(first + 2, 9))).sessions)
            assert not place.exists()
    assert same(SessionPool.open(place).sessions, whole.sessions)
    assert [path.name for path in tmp_path.iterdir()] == ["pool"]
    with pytest.raises(RuntimeError), PoolWriter(tmp_path / "other", whole.signature) as writer:
        writer.append(whole.sessions)
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["pool"]
    other = SessionPool()
    other.load_sessions(*numbered(0, 1), prev_memories=[[1]])
    with (
        pytest.raises(ContractError, match="memory"),
        PoolWriter(place / "x", whole.signature) as writer,
    ):
        writer.append(whole.sessions)
        writer.append(other.sessions)


def test_a_half_written_or_damaged_pool_is_told_from_a_whole_one(tmp_path):
    script = f"""
        import os
        from palaestrai_mosaik.environment.replay import PoolWriter, SessionPool
        pool = SessionPool()
        pool.load_sessions([[[1.0]]], [[1]], [[1.0]])
        with PoolWriter({str(tmp_path / "pool")!r}, pool.signature) as writer:
            writer.append(pool.sessions)
            os._exit(9)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False).returncode == 9
    (half,) = tmp_path.iterdir()
    assert half.name.startswith("pool.")
    with pytest.raises(ContractError, match=r"is no whole pool of sessions: it has no pool.json"):
        SessionPool.open(half)
    with pytest.raises(ContractError, match="it is no folder"):
        SessionPool.open(tmp_path / "pool")
    pool = small()
    pool.save(tmp_path / "pool")  # what the other left behind is in nobody's way
    assert same(SessionPool.open(tmp_path / "pool").sessions, pool.sessions)
    column = tmp_path / "pool" / "observation.0.npy"
    column.write_bytes(column.read_bytes()[:-8])
    with pytest.raises(ContractError, match="the pool is damaged"):
        SessionPool.open(tmp_path / "pool")
    described = tmp_path / "pool" / "pool.json"
    described.write_text(json.dumps({"format": 99}))
    with pytest.raises(ContractError, match="of format 2"):
        SessionPool.open(tmp_path / "pool")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rows", None, "pool.json has no rows"),
        ("observations", None, "pool.json has no observations"),
        ("rows", [], "pool.json: rows: a number for each column is expected"),
        ("rows", {"reward": 6}, "pool.json: rows: the columns offsets, observation.0, .* are expected, found reward"),
        ("actions", -1, "pool.json: actions: a number of at least 0"),
        ("observations", 3, r"observation.0.npy is float64 of shape \(6, 2\), expected is float64 of shape \(6, 3\)"),
        ("rewards", [], r"reward.npy is float64 of shape \(6, 1\), expected is float64 of shape \(6, 0\)"),
    ],
)  # fmt: skip
def test_a_pool_whose_description_is_damaged_is_refused(tmp_path, key, value, message):
    small().save(tmp_path / "pool")
    place = tmp_path / "pool" / "pool.json"
    description = json.loads(place.read_text())
    description = {k: v for k, v in description.items() if k != key} | (
        {key: value} if value is not None else {}
    )
    place.write_text(json.dumps(description))
    with pytest.raises(ContractError, match=f"pool is damaged: .*{message}"):
        SessionPool.open(tmp_path / "pool")


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("offsets", [0, 3, 106], "must rise from 0 to the 6 rows .* it goes from 0 to 106"),
        ("offsets", [0, 7, 6], "must rise from 0"),
        ("offsets", [1, 3, 6], "must rise from 0"),
        ("offsets", [0.0, 3.0, 6.0], "is float64 of shape .*, expected is int64"),
        ("observation.0", np.ones((6, 1)), r"is float64 of shape \(6, 1\), expected is float64 of shape \(6, 2\)"),
        ("action.0", np.ones((6, 1)), "is float64 .*, expected is int32"),
        ("final.0", np.ones((2, 2, 1)), r"expected is float64 of shape \(2, 2\)"),
        ("terminated", np.ones(2), "expected is bool"),
        ("memory.0", np.array(["a", "b"]), "expected is numbers with a row for each of 2 sessions"),
        ("reward", np.float64(1), "has a single number, not 6 rows"),
        ("reward", None, "its content is not valid"),
    ],
)  # fmt: skip
def test_a_pool_whose_columns_are_damaged_is_refused(tmp_path, column, values, message):
    pool = SessionPool(observations=2)
    pool.load_sessions(OBSERVED, DONE, REWARDED, prev_memories=np.array([1, 2]))
    pool.save(tmp_path / "pool")
    place = tmp_path / "pool" / f"{column}.npy"
    assert place.exists()
    if values is None:
        place.write_bytes(b"")
    else:
        np.save(place, values)
    with pytest.raises(ContractError, match=rf"pool is damaged: .*{column}\.npy.*{message}"):
        SessionPool.open(tmp_path / "pool")


def test_a_pool_without_sessions_is_not_written(tmp_path):
    with pytest.raises(ContractError, match="needs at least one session"):
        small().select([]).save(tmp_path / "pool")
    assert not any(tmp_path.iterdir())


def test_a_pool_may_be_larger_than_memory(tmp_path):
    """96 MB of sessions are replayed by a process that may allocate a fraction of that."""
    rng = np.random.default_rng(0)
    piece = SessionPool(observations=60)
    with PoolWriter(tmp_path / "pool", piece.signature) as writer:
        for first in range(0, 1000, 100):
            observed = rng.random((100, 200, 60))
            observed[:, 0, 0] = range(first, first + 100)
            piece.load_sessions(observed, np.zeros((100, 200), int), np.ones((100, 200)))
            writer.append(piece.sessions)
    size = sum(path.stat().st_size for path in (tmp_path / "pool").iterdir())
    assert size > 96e6
    script = f"""
        import resource
        import numpy as np
        from palaestrai_mosaik.environment.batch import BatchStepper
        from palaestrai_mosaik.environment.replay import SessionPoolEnvironment
        used = 1024 * next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmData"))
        resource.setrlimit(resource.RLIMIT_DATA, (used + 40_000_000,) * 2)
        environment = SessionPoolEnvironment(source={{"pool": {str(tmp_path / "pool")!r}}}, batch=64)
        environment.rng = np.random.default_rng(1)
        environment.setup()
        stepper = BatchStepper(environment)
        try:
            np.load({str(tmp_path / "pool" / "observation.0.npy")!r})
        except MemoryError:
            print("too large")
        seen = set()
        for _ in range(20):
            seen.update(stepper.reset().readings[:, 0])
            for _ in range(200):
                state = stepper.step(np.zeros((64, 1)))
            assert state.truncated.all()
        environment.sample_session_batch(8).observations
        print(len(seen))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told, seen = done.stdout.split("\n")[:2]
    assert told == "too large"
    assert int(seen) > 600  # 1000 * (1 - (1 - 0.064)**20) = 734 expected
