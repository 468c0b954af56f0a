"""Environments that replay: what agents see, what was done, when it ends, which sessions are taken."""

from __future__ import annotations

import inspect
from functools import partial

import numpy as np
import pytest

from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment.batch import BatchStepper
from palaestrai_mosaik.environment.replay import SessionBatchEnvironment, SessionPool, SessionPoolEnvironment
from palaestrai_mosaik.testing import check_batch_environment

#: three sessions of 3, 2 and 1 ticks; the first ended in the world, of the last nothing was seen afterwards
OBSERVED = [[[10.0], [11.0], [12.0], [13.0]], [[20.0], [21.0], [22.0]], [[30.0]]]
DONE = [[1, 2, 3], [4, 5], [6]]
REWARDED = [[0.1, 0.2, 0.3], [0.4, 0.5], [0.6]]
ENDED = [True, False, False]


def lived() -> SessionPool:
    pool = SessionPool()
    pool.load_sessions(OBSERVED, DONE, REWARDED, terminated=ENDED)
    return pool


def pool_of(count: int) -> SessionPool:
    """Sessions of one tick that observe their number."""
    pool = SessionPool()
    numbers = np.arange(float(count))[:, None]
    pool.load_sessions(numbers[..., None], numbers, numbers)
    return pool


def environment_over(pool: SessionPool, **params) -> SessionPoolEnvironment:
    environment = SessionPoolEnvironment(source=pool, **{"rng_seed": None, **params})
    environment.uid = "lived"
    environment.setup()
    return environment


def begin(environment: SessionPoolEnvironment, episode: int = 0) -> None:
    """Give generators as the framework does: one of the environment, one for each incarnation."""
    environment.episode = episode
    environment.rng = seeding.generator(1, "environment", episode)
    numbers = range(environment.first, environment.first + environment.batch)
    environment.rngs = [seeding.generator(1, "environment", episode, "body", k) for k in numbers]


def test_a_batch_is_replayed_to_the_end_of_each_session():
    environment = SessionBatchEnvironment.of(lived())
    environment.uid = "lived"
    environment.setup()
    stepper = BatchStepper(environment)
    anything = np.full((3, 1), 77.0)
    states = [stepper.reset(), *(stepper.step(anything) for _ in range(4))]
    assert [s.readings.ravel().tolist() for s in states] == [
        [10, 20, 30],
        [11, 21, 30],
        [12, 22, 30],
        [13, 22, 30],
        [13, 22, 30],
    ]
    # the reward of an action comes with the next state; what has ended gives none
    assert [s.rewards.ravel().tolist() for s in states] == [
        [0, 0, 0],
        [0.1, 0.4, 0.6],
        [0.2, 0.5, 0],
        [0.3, 0, 0],
        [0, 0, 0],
    ]
    assert [s.terminated.tolist() for s in states][2:4] == [[False] * 3, [True, False, False]]
    assert [s.truncated.tolist() for s in states][1:3] == [[False, False, True], [False, True, True]]
    assert [s.recorded.ravel().tolist() for s in states[:3]] == [[1, 4, 6], [2, 5, 6], [3, 5, 6]]


def test_an_incarnation_that_has_ended_begins_its_session_anew():
    environment = SessionBatchEnvironment.of(lived())
    environment.setup()
    stepper = BatchStepper(environment)
    stepper.reset()
    states = [stepper.step(np.zeros((3, 1)), resets=True) for _ in range(5)]
    assert [s.readings[2, 0] for s in states] == [30] * 5
    assert [s.truncated[2] for s in states] == [True, False, True, False, True]
    assert [s.readings[1, 0] for s in states] == [21, 22, 20, 21, 22]
    assert [s.recorded[1, 0] for s in states] == [5, 5, 4, 5, 5]


def test_sequences_of_a_batch_as_they_were_given():
    observed = [np.arange(24.0).reshape(2, 3, 2, 2), np.array([[1, 2, 3], [4, 5, 6]], dtype=np.int8)]
    acted = [np.array([[1, 2, 3], [4, 5, 6]]), np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])]
    rewarded = np.array([[1.0, 2, 3], [4, 5, 6]])
    environment = SessionBatchEnvironment(
        observed,
        [(2, 2), ()],
        acted,
        "all_scalar",
        rewarded,
        [[1, 1, 1], [1, 0, 0]],
        np.array([[7.0], [8.0]]),
    )
    baseline = environment.setup()
    assert [s.uid for s in baseline.sensors] == ["observation", "observation_1"]
    assert [a.uid for a in baseline.actuators] == ["action", "action_1"]
    assert [one.dtype for one in environment.observations] == [np.float64, np.int8]
    np.testing.assert_array_equal(environment.observations[0][0], observed[0][0])
    assert environment.observations[1].tolist() == [[1, 2, 3], [4, 0, 0]]
    assert environment.actions[1].tolist() == [[0.1, 0.2, 0.3], [0.4, 0, 0]]
    assert environment.rewards.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert environment.is_alive.tolist() == [[True] * 3, [True, False, False]]
    assert [one.tolist() for one in environment.preceding_agent_memories] == [[[7], [8]]]
    stepper = BatchStepper(environment)
    stepper.reset()
    state = stepper.step(np.zeros((2, 2)))
    assert state.readings.tolist() == [[4, 5, 6, 7, 2], [12, 13, 14, 15, 4]]
    assert state.recorded.tolist() == [[2, 0.2], [4, 0.4]]
    assert (state.terminated.tolist(), state.truncated.tolist()) == ([False, True], [False, False])
    # without actions there is no actuator, without rewards they are 0
    bare = SessionBatchEnvironment([[[1.0], [2.0]]], [(1,)])
    assert not bare.setup().actuators
    assert bare.rewards.tolist() == [[0, 0]]


def test_a_chosen_batch_is_exactly_these_sessions():
    environment = environment_over(lived(), batch=2)
    batch = environment.select_session_batch(np.array([2, 0, 2]))
    assert batch.actions[0].tolist() == [[6, 0, 0], [1, 2, 3], [6, 0, 0]]
    batch.setup()
    stepper = BatchStepper(batch)
    assert stepper.reset().readings.ravel().tolist() == [30, 10, 30]
    for _ in range(3):
        state = stepper.step(np.zeros((3, 1)))
    assert state.readings.ravel().tolist() == [30, 13, 30]
    assert state.terminated.tolist() == [False, True, False]
    environment.rng = seeding.generator(3)
    assert environment.sample_session_batch(64).batch == 3
    assert environment.sample_session_batch(64, replace=True).batch == 64
    assert environment.rewards.tolist() == [[0.1, 0.2, 0.3], [0.4, 0.5, 0], [0.6, 0, 0]]
    with pytest.raises(ContractError, match="nothing to draw sessions with"):
        environment_over(lived()).sample_session_batch(1)


@pytest.mark.parametrize("replace", [False, True])
def test_a_sampled_batch_is_drawn_anew_at_each_iteration(replace):
    """From the whole pool, uniformly, with or without replacement; what it holds is what it replays."""
    environment = environment_over(pool_of(10), rng_seed=3)
    batch = environment.sample_session_batch(4, replace, selector_dtype="int16")
    batch.setup()
    stepper = BatchStepper(batch)
    drawn = []
    for _ in range(1000):
        readings = stepper.reset().readings[:, 0].tolist()
        if not drawn:
            first = readings
        assert readings == batch.observations[0][:, 0, 0].tolist() == batch.selector.tolist()
        assert batch.rewards[:, 0].tolist() == readings
        drawn.append(readings)
    assert batch.selector.dtype == np.int16
    # 400 expected of each, standard deviation 19
    assert (abs(np.bincount(np.concatenate(drawn).astype(int)) - 400) < 100).all()
    assert all(len(set(one)) == 4 for one in drawn) != replace
    assert (
        environment_over(pool_of(10), rng_seed=3).sample_session_batch(4, replace).selector.tolist() == first
    )


def test_who_begins_again_alone_replays_the_same_session_of_a_sampled_batch():
    numbers = np.repeat(np.arange(30.0)[:, None], 3, axis=1)
    pool = SessionPool()
    pool.load_sessions(numbers[..., None], numbers, numbers)
    batch = environment_over(pool, rng_seed=3).sample_session_batch(4)
    batch.setup()
    stepper = BatchStepper(batch)
    readings = stepper.reset().readings.tolist()
    for _ in range(5):
        stepper.end(np.array([1]))
        assert stepper.step(np.zeros((4, 1)), resets=True).readings.tolist() == readings
        stepper.end(np.array([0, 2, 3]))
        assert stepper.step(np.zeros((4, 1)), resets=True).readings.tolist() == readings
    assert stepper.reset().readings.tolist() != readings


def test_a_sampled_batch_takes_as_many_as_are_asked_for_or_there():
    environment = environment_over(pool_of(5), rng_seed=3)
    assert environment.sample_session_batch(64).batch == 5
    assert environment.sample_session_batch(64, replace=True).batch == 64
    assert environment.sample_session_batch(2).selector.dtype == np.int32
    chosen = environment.select_session_batch([3, 1])
    assert chosen.selector.tolist() == [3, 1]
    with pytest.raises(ContractError, match="selector_dtype must be a dtype of whole numbers, not 'float32'"):
        environment.sample_session_batch(2, selector_dtype="float32")
    # later, from what the pool has then
    batch = environment.sample_session_batch(5)
    batch.setup()
    BatchStepper(batch).reset()
    environment.append_sessions([[[7.0]]] * 5, [[7]] * 5, [[7.0]] * 5, max_pool_size=5)
    assert BatchStepper(batch).reset().readings.tolist() == [[7]] * 5
    environment.load_sessions([[[1.0]]], [[1]], [[1.0]])
    with pytest.raises(ContractError, match="its pool has 1 sessions now, fewer than the 5 of the batch"):
        BatchStepper(batch).reset()


@pytest.mark.parametrize("sample", ["shuffled", "with_replacement"])
def test_with_a_seed_of_its_own_the_seed_of_the_run_does_not_matter(sample):
    def drawn(run: int, rng_seed: int | None) -> list[list[float]]:
        environment = environment_over(pool_of(50), batch=4, sample=sample, rng_seed=rng_seed)
        found = []
        for episode in range(3):
            environment.episode = episode
            environment.rng = seeding.generator(run, episode)
            environment.rngs = [seeding.generator(run, episode, k) for k in range(4)]
            found.append(BatchStepper(environment).reset().readings[:, 0].tolist())
        return found

    assert drawn(1, 7) == drawn(2, 7)
    assert drawn(1, 7) != drawn(1, 8)
    assert drawn(1, None) != drawn(2, None)
    assert drawn(1, 1337) == drawn(1, SessionPoolEnvironment().rng_seed)
    assert len({tuple(one) for one in drawn(1, 7)}) == 3
    with pytest.raises(ContractError, match="rng_seed must be a whole number, not '7'"):
        SessionPoolEnvironment(rng_seed="7")


def test_a_pool_takes_the_arguments_and_defaults_of_agentnet():
    parameters = list(inspect.signature(SessionPoolEnvironment).parameters.values())
    assert [(one.name, one.default) for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD] == [
        ("observations", 1),
        ("actions", 1),
        ("agent_memories", 1),
        ("default_action_dtype", "int32"),
        ("rng_seed", 1337),
    ]
    environment = SessionPoolEnvironment(2, 3, 2, "int8", 7)
    held = [np.zeros((1, 4)), np.zeros(1)]
    environment.load_sessions(
        np.zeros((1, 5, 2)), [np.zeros((1, 5))] * 3, np.zeros((1, 5)), prev_memories=held
    )
    assert [array.shape for array in environment.observations] == [(1, 5, 2)]
    assert [(array.shape, array.dtype) for array in environment.actions] == [((1, 5), np.int8)] * 3
    assert environment.rng_seed == 7
    # one of each if nothing is declared
    plain = SessionPoolEnvironment()
    plain.load_sessions(OBSERVED, DONE, REWARDED, prev_memories=[np.ones((3, 8))])
    assert [array.dtype for array in plain.actions] == [np.int32]
    with pytest.raises(ContractError, match="1 of them are declared by agent_memories, found 2"):
        plain.load_sessions(OBSERVED, DONE, REWARDED, prev_memories=[np.ones((3, 8)), np.ones(3)])


def test_a_number_that_is_declared_beside_a_source_is_checked():
    wide = SessionPool(observations=2)
    wide.load_sessions(np.zeros((1, 3, 2)), np.zeros((1, 3)), np.zeros((1, 3)))
    assert environment_over(wide).observation_shapes == [(2,)]
    declared = environment_over(wide, observations=1)
    with pytest.raises(ContractError, match=r"declared are observation float64\[1\]"):
        declared.pool  # noqa: B018


@pytest.mark.parametrize("known", [True, False])
def test_what_a_pool_holds_is_there_before_the_first_episode(known):
    environment = environment_over(SessionPool())
    environment.load_sessions(
        OBSERVED, DONE, REWARDED, prev_memories=np.array([7.0, 8, 9]) if known else None
    )
    for _ in range(2):
        assert environment.is_alive.tolist() == [[True] * 3, [True, True, False], [True, False, False]]
        memories = environment.previous_memories
        assert memories is None if not known else [one.tolist() for one in memories] == [[7, 8, 9]]
        begin(environment)
        BatchStepper(environment).reset()
    assert environment_over(lived()).replayed.tolist() == []


def test_the_environment_has_the_sequences_of_its_pool():
    environment = environment_over(lived())
    assert environment.observations[0][..., 0].tolist() == [[10, 11, 12], [20, 21, 0], [30, 0, 0]]
    assert environment.actions[0].tolist() == [[1, 2, 3], [4, 5, 0], [6, 0, 0]]
    assert environment.rewards.tolist() == [[0.1, 0.2, 0.3], [0.4, 0.5, 0], [0.6, 0, 0]]


@pytest.mark.parametrize("known", [True, False])
def test_memories_that_are_declared_can_be_read_at_every_tick(known):
    environment = SessionPoolEnvironment(
        sample="in_order", batch=3, agent_memories=[{"name": "hidden", "shape": [2]}, {"name": "calls"}]
    )
    held = [np.array([[1.0, 2], [3, 4], [5, 6]]), np.array([7.0, 8, 9])]
    environment.load_sessions(OBSERVED, DONE, REWARDED, prev_memories=held if known else None)
    environment.uid = "lived"
    assert [s.uid for s in environment.setup().sensors] == ["observation", "hidden", "calls"]
    stepper = BatchStepper(environment)
    states = [stepper.reset(), *(stepper.step(np.zeros((3, 1))) for _ in range(3))]
    assert [s.readings[:, 0].tolist() for s in states] == [
        [10, 20, 30],
        [11, 21, 30],
        [12, 22, 30],
        [13, 22, 30],
    ]
    expected = np.column_stack(held) if known else np.full((3, 3), np.nan)
    for state in states:
        np.testing.assert_array_equal(state.readings[:, 1:], expected)
    # where only their number is said, they are kept and handed out, no more
    plain = SessionPoolEnvironment(agent_memories=2)
    assert [s.uid for s in plain.setup().sensors] == ["observation"]
    with pytest.raises(ContractError, match="2 of them are declared by agent_memories, found 1"):
        plain.load_sessions(OBSERVED, DONE, REWARDED, prev_memories=held[0])


def test_memories_of_a_source_are_read_as_declared(tmp_path):
    pool = SessionPool()
    pool.load_sessions(OBSERVED, DONE, REWARDED, prev_memories=np.array([7, 8, 9]))
    pool.save(tmp_path / "pool")
    source = {"pool": str(tmp_path / "pool")}
    for declared in ({}, {"observations": 1}):
        environment = SessionPoolEnvironment(
            source=source, batch=3, sample="in_order", agent_memories=[{"name": "calls"}], **declared
        )
        environment.uid = "lived"
        environment.setup()
        assert BatchStepper(environment).reset().readings.tolist() == [[10, 7], [20, 8], [30, 9]]
    wrong = SessionPoolEnvironment(source=source, agent_memories=[{"name": "calls", "shape": [2]}])
    with pytest.raises(ContractError, match=r"'calls' has shape \(\) for each session, declared is \(2,\)"):
        wrong.setup()


@pytest.mark.parametrize("sample", ["shuffled", "with_replacement"])
def test_an_incarnation_takes_the_same_sessions_in_any_batch(sample):
    """Number 5 of a batch of 8, and a batch of 1 that is number 5; each has two episodes of its own."""
    many = environment_over(pool_of(20), batch=8, sample=sample)
    alone = environment_over(pool_of(20), batch=1, first=5, sample=sample)
    for episode in range(3):
        taken = []
        for environment in (many, alone):
            begin(environment, episode)
            stepper = BatchStepper(environment)
            states = [
                stepper.reset(),
                *(stepper.step(np.zeros((environment.batch, 1)), resets=True) for _ in range(4)),
            ]
            taken.append([s.readings[:, 0] for s in states[::2]])
        assert [one[5] for one in taken[0]] == [one[0] for one in taken[1]]
        if sample == "shuffled":
            assert all(len(set(one)) == 8 for one in taken[0])
        assert len({tuple(one) for one in taken[0]}) == 3


def test_sessions_are_drawn_anew_at_each_episode_and_the_same_with_the_same_generators():
    environment = environment_over(pool_of(100), batch=10)
    drawn = []
    for episode in (0, 1, 0):
        begin(environment, episode)
        drawn.append(BatchStepper(environment).reset().readings[:, 0].tolist())
        assert drawn[-1] == environment.replayed.tolist()
    assert drawn[0] == drawn[2] != drawn[1]


def test_in_order_all_sessions_are_replayed_once():
    environment = environment_over(pool_of(6), batch=2, sample="in_order")
    seen = []
    for episode in range(4):
        begin(environment, episode)
        seen += BatchStepper(environment).reset().readings[:, 0].tolist()
    assert seen == [0, 1, 2, 3, 4, 5, 0, 1]
    # another part of the batch, which begins with number 2
    part = environment_over(pool_of(6), batch=2, first=2, sample="in_order")
    begin(part)
    assert BatchStepper(part).reset().readings[:, 0].tolist() == [2, 3]
    odd = environment_over(pool_of(7), batch=3, sample="in_order")
    for episode, expected in enumerate(([0, 1, 2], [3, 4, 5], [6, 0, 1])):
        begin(odd, episode)
        assert BatchStepper(odd).reset().readings[:, 0].tolist() == expected
    # the next episode of its own is a batch further on
    begin(environment)
    stepper = BatchStepper(environment)
    states = [stepper.reset(), *(stepper.step(np.zeros((2, 1)), resets=True) for _ in range(4))]
    assert [s.readings[:, 0].tolist() for s in states[::2]] == [[0, 1], [2, 3], [4, 5]]


def test_a_batch_without_replacement_is_no_larger_than_the_pool():
    def from_source(**params):
        environment = SessionPoolEnvironment(source={"run": "any"}, rng_seed=None, **params)
        environment.read_store = lambda source: pool_of(3)
        environment.setup()
        return environment

    assert from_source(batch=64).batch == 3
    assert from_source(batch=64, sample="with_replacement").batch == 64
    # one that is read later has been told its size already
    late = from_source(batch=64, observations=1, actions=1)
    begin(late)
    with pytest.raises(ContractError, match="its pool has 3 sessions, fewer than its batch of 64"):
        BatchStepper(late).reset()
    other = from_source(batch=2, observations=2, actions=1)
    begin(other)
    with pytest.raises(
        ContractError, match=r"observation float64\[1\], but declared are observation float64\[2\]"
    ):
        BatchStepper(other).reset()


def test_what_is_appended_takes_part_when_all_begin():
    environment = environment_over(pool_of(1), sample="in_order")
    stepper = BatchStepper(environment)
    assert stepper.reset().readings.tolist() == [[0]]
    environment.append_sessions([[[5.0], [6.0]]], [[1]], [[0.5]], max_pool_size=1)
    assert stepper.step(np.zeros((1, 1))).readings.tolist() == [[0]]
    assert stepper.reset().readings.tolist() == [[5]]
    assert stepper.step(np.zeros((1, 1))).readings.tolist() == [[6]]
    environment.load_sessions([[[7.0]]], [[1]], [[0.5]], prev_memories=[[9.0]])
    assert stepper.reset().readings.tolist() == [[7]]
    assert [one.tolist() for one in environment.previous_memories] == [[[9.0]]]


def test_the_contract_of_batched_environments_is_kept(tmp_path):
    pool = SessionPool([{"name": "a", "shape": [2]}, {"name": "b", "dtype": "int8"}], 2, ["x", "y"])
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 12, size=30)
    pool.load_sessions(
        [[rng.random((n + 1, 2)) for n in lengths], [rng.integers(0, 9, n + 1) for n in lengths]],
        [[rng.integers(0, 9, n) for n in lengths]] * 2,
        [rng.random((n, 2)) for n in lengths],
        terminated=rng.random(30) < 0.5,
    )
    pool.save(tmp_path / "pool")
    source = {"pool": str(tmp_path / "pool")}
    check_batch_environment(partial(SessionPoolEnvironment, source=source, sample="with_replacement"))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"sample": "suffled"}, "did you mean 'shuffled'"),
        ({"batch": 0}, "batch must be"),
        ({"source": {"npy": "x"}}, "found npy"),
        ({"source": {"phase": 1, "run": "y"}}, "a store can be read where a run is executed"),
        ({"source": {"pool": "nowhere", "path": 1}}, "there is no key 'path'"),
        ({"source": "nowhere"}, "a mapping is expected"),
        ({"source": {"pool": "nowhere"}}, "there is no pool of sessions at nowhere"),
    ],
)
def test_wrong_parameters_are_told(params, message):
    with pytest.raises(ContractError, match=message):
        SessionPoolEnvironment(**params).setup()
