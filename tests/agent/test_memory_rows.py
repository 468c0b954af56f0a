"""Rows of several muscles in one memory, what each saw next, and what may be drawn at random."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from palaestrai_mosaik.agent import Memory
from palaestrai_mosaik.agent.memory import Experience

MUSCLES = ["a.0", "a.1", "a.2"]
OBSERVATIONS, ACTIONS = 3, 2

muscles = st.sampled_from(MUSCLES)
some_muscles = st.lists(muscles, unique=True)


def known_next(rows: list[dict[str, Any]], place: int) -> np.ndarray:
    """The definition: the same muscle's next row, its final observation, or not known."""
    one = rows[place]
    if one["done"]:
        return np.full(OBSERVATIONS, np.nan) if one["final"] is None else one["final"]
    later = (row for row in rows[place + 1 :] if row["muscle"] == one["muscle"])
    return next((row["observations"] for row in later), np.full(OBSERVATIONS, np.nan))


def is_complete(rows: list[dict[str, Any]], place: int) -> bool:
    one = rows[place]
    return one["done"] or any(row["muscle"] == one["muscle"] for row in rows[place + 1 :])


def check(shard: Any, rows: list[dict[str, Any]], places: list[int]) -> None:
    """Hold ``shard`` against the rows at ``places``."""
    assert len(shard) == len(places)
    wanted = [rows[i] for i in places]
    assert shard.muscles == [row["muscle"] for row in wanted]
    assert shard.additional_data == [row["number"] for row in wanted]
    assert shard.dones.tolist() == [row["done"] for row in wanted]
    for name in ("observations", "actions", "sensor_readings") if places else ():
        np.testing.assert_array_equal(getattr(shard, name), [row[name] for row in wanted])
    for i, place in enumerate(places):
        np.testing.assert_array_equal(shard.next_observations[i], known_next(rows, place))


class AgainstRows(RuleBasedStateMachine):
    """Whatever is done in whatever order, rows of several muscles are a list of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory(rng=np.random.default_rng(3))
        self.rows: list[dict[str, Any]] = []
        self.limit = 100_000
        self.count = 0

    @rule(names=st.lists(muscles, min_size=1, max_size=90))
    def append(self, names: list[str]) -> None:
        for name in names:
            self.count += 1
            readings = np.array([self.count, -self.count], dtype=float)
            row: dict[str, Any] = {
                "muscle": name,
                "number": self.count,
                "sensor_readings": readings,
                "observations": np.full(OBSERVATIONS, float(self.count)),
                "actions": np.full(ACTIONS, 0.5 * self.count),
                "done": False,
                "final": None,
            }
            self.memory.append(
                readings,
                np.zeros(1),
                np.zeros(1),
                self.count,
                muscle=name,
                observations=row["observations"],
                actions=row["actions"],
            )
            self.rows = [*self.rows, row][-self.limit :]

    @rule(name=st.one_of(st.none(), muscles), told=st.booleans())
    def end(self, name: str | None, told: bool) -> None:
        final = np.full(OBSERVATIONS, -float(self.count)) if told else None
        self.memory.mark_end(terminated=True, truncated=False, muscle=name, final_observations=final)
        mine = [row for row in self.rows if name in (None, row["muscle"])]
        if mine:
            mine[-1]["done"] = True
            if told:
                mine[-1]["final"] = final

    @rule(n=st.integers(0, 150))
    def truncate(self, n: int) -> None:
        self.memory.truncate(n)
        self.rows = self.rows[max(0, len(self.rows) - n) :]

    @rule(limit=st.integers(1, 100))
    def limit_size(self, limit: int) -> None:
        self.memory.size_limit = self.limit = limit
        self.rows = self.rows[-limit:]

    @rule()
    def clear(self) -> None:
        self.memory.clear()
        self.rows = []

    @rule()
    def travel(self) -> None:
        self.memory = pickle.loads(pickle.dumps(self.memory))

    @rule(n=st.integers(0, 120), names=st.one_of(st.none(), some_muscles))
    def tail(self, n: int, names: list[str] | None) -> None:
        places = [i for i, row in enumerate(self.rows) if names is None or row["muscle"] in names]
        check(self.memory.tail(n, names), self.rows, places[len(places) - min(n, len(places)) :])

    @rule(n=st.integers(0, 120), names=st.one_of(st.none(), some_muscles))
    def sample(self, n: int, names: list[str] | None) -> None:
        complete = {
            row["number"]: i
            for i, row in enumerate(self.rows)
            if is_complete(self.rows, i) and (names is None or row["muscle"] in names)
        }
        shard = self.memory.sample(n, names)
        drawn = shard.additional_data
        assert len(set(drawn)) == len(drawn) == min(n, len(complete))
        check(shard, self.rows, [complete[number] for number in drawn])

    @precondition(lambda self: len(self.rows) < 100)
    @rule()
    def iterate(self) -> None:
        shards = list(self.memory)
        assert len(shards) == len(self.rows)
        for i, shard in enumerate(shards):
            check(shard, self.rows, [i])

    @invariant()
    def tags(self) -> None:
        assert self.memory.tags == {row["muscle"] for row in self.rows}
        assert len(self.memory) == len(self.rows)


TestAgainstRows = AgainstRows.TestCase
TestAgainstRows.settings = settings(max_examples=40, stateful_step_count=25)


@pytest.mark.parametrize("limit", [1, 7, 60, 150])
def test_a_long_history_is_that_of_its_newest_rows(limit: int) -> None:
    """The buffers are replaced many times, with rows, ends and final observations in them."""
    rng = np.random.default_rng(limit)
    machine = AgainstRows()
    machine.limit_size(limit)
    for _ in range(30):
        for name in rng.choice(MUSCLES, 25).tolist():
            machine.append([name])
            if rng.random() < 0.2:
                machine.end(name, told=rng.random() < 0.7)
        machine.tail(limit, None)
        machine.tail(limit, MUSCLES[:1])
        machine.sample(limit, None)
        if rng.random() < 0.1:
            machine.clear()


def memory_of(*values: float, muscle: str = "a.0", **kwargs: Any) -> Memory:
    memory = Memory(**kwargs)
    for value in values:
        memory.append(np.array([value]), np.array([-value]), np.ones(1), muscle=muscle)
    return memory


def test_what_is_seen_next_by_hand() -> None:
    memory = Memory()
    for muscle, value in [("a", 1.0), ("b", 10.0), ("a", 2.0), ("a", 3.0), ("b", 20.0)]:
        memory.append(np.array([value]), np.zeros(1), np.zeros(1), muscle=muscle)
        if value == 2.0:
            memory.mark_end(terminated=False, truncated=True, muscle="a", final_observations=np.array([2.5]))
    shard = memory.tail(9)
    assert shard.muscles == ["a", "b", "a", "a", "b"]
    np.testing.assert_array_equal(shard.next_observations[:, 0], [2.0, 20.0, 2.5, np.nan, np.nan])
    np.testing.assert_array_equal(memory.tail(2, ["a"]).next_observations[:, 0], [2.5, np.nan])
    assert memory.tail(2, ["a"]).truncated.tolist() == [True, False]
    assert memory.tail(9, []).muscles == memory.tail(9, ["c"]).muscles == []


def test_the_end_of_an_older_muscles_row_may_be_told_late() -> None:
    memory = Memory()
    for muscle in "ab":
        memory.append(np.zeros(1), np.zeros(1), np.zeros(1), muscle=muscle)
    memory.mark_end(terminated=True, truncated=False, muscle="a")
    assert memory.tail(2).terminated.tolist() == [True, False]
    memory.mark_end(terminated=True, truncated=False, muscle="nobody")
    assert memory.tail(2).terminated.tolist() == [True, False]


@pytest.mark.parametrize("muscle", ["a", None])
def test_an_end_whose_row_is_gone_changes_nothing(muscle: str | None) -> None:
    """A brain may clear its memory before the framework tells that the episode is over."""
    memory = memory_of(1.0, muscle="a")
    memory.clear()
    memory.mark_end(terminated=True, truncated=False, muscle=muscle)
    memory.append(np.zeros(1), np.zeros(1), np.zeros(1), muscle="b")
    memory.mark_end(terminated=True, truncated=False, muscle="a")
    assert memory.tail(1).dones.tolist() == [False]


def test_observations_and_actions_cost_nothing_where_they_are_the_same() -> None:
    memory = memory_of(1.0, 2.0)
    shard = memory.tail(2)
    assert np.shares_memory(shard.observations, shard.sensor_readings)
    assert np.shares_memory(shard.actions, shard.actuator_setpoints)


def test_observations_that_begin_to_differ_leave_the_older_rows_as_they_are() -> None:
    memory = memory_of(1.0, 2.0)
    before = memory.tail(2)
    memory.append(np.array([3.0]), np.array([-3.0]), np.ones(1), muscle="a.0", observations=np.array([30.0]))
    memory.append(np.array([4.0]), np.array([-4.0]), np.ones(1), muscle="a.0", actions=np.array([-40.0]))
    shard = memory.tail(4)
    assert shard.observations[:, 0].tolist() == [1.0, 2.0, 30.0, 4.0]
    assert shard.actions[:, 0].tolist() == [-1.0, -2.0, -3.0, -40.0]
    assert shard.sensor_readings[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert before.observations[:, 0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("widths", "extra", "message"),
    [
        ((2, 1, 1), {}, r"lengths \(2, 1, 1\) does not go with .* which have \(1, 1, 1\)"),
        ((1, 1, 3), {}, r"lengths \(1, 1, 3\)"),
        ((1, 1, 1), {"observations": np.zeros(4)}, "a row with 4 observations .* which have 1"),
        ((1, 1, 1), {"actions": np.zeros(2)}, "a row with 2 actions .* which have 1"),
    ],
)
def test_other_lengths_are_refused_unless_the_memory_is_empty(
    widths: tuple[int, int, int], extra: dict[str, Any], message: str
) -> None:
    memory = memory_of(1.0, 2.0)
    row = [np.full(width, 7.0) for width in widths]
    with pytest.raises(ValueError, match=message):
        memory.append(*row, "data", 5.0, muscle="b", **extra)
    # nothing is left of it, neither in the rows nor in what comes next
    assert len(memory) == 2
    assert memory.tags == {"a.0"}
    memory.append(np.zeros(1), np.zeros(1), np.zeros(1))
    assert np.isnan(memory.tail(1).objective[0])
    memory.clear()
    memory.append(*row, "data", 5.0, **extra)
    shard = memory.tail(3)
    assert shard.sensor_readings.shape == (1, widths[0])
    assert shard.observations.shape == (1, len(extra.get("observations", row[0])))
    assert shard.actions.shape == (1, len(extra.get("actions", row[1])))
    assert shard.objective.tolist() == [5.0]


def test_final_observations_have_the_length_of_observations() -> None:
    memory = memory_of(1.0)
    with pytest.raises(ValueError, match=r"shape \(2,\), but a row has \(1,\)"):
        memory.mark_end(terminated=True, truncated=False, final_observations=np.zeros(2))
    assert memory.tail(1).dones.tolist() == [False]


def test_an_experience_is_a_row() -> None:
    memory = Memory()
    readings, setpoints = np.array([1.0, 2.0]), np.array([3.0])
    going_on = Experience("a.1", readings, setpoints, np.ones(1), 0.5, "sent", readings, setpoints)
    memory.append_experience(going_on)
    assert np.shares_memory(memory.tail(1).observations, memory.tail(1).sensor_readings)
    last = Experience(
        "a.1",
        readings,
        setpoints,
        np.ones(1),
        np.nan,
        None,
        np.array([5.0, 6.0]),
        np.array([7.0]),
        truncated=True,
        final_observations=np.array([8.0, 9.0]),
    )
    memory.append_experience(last)
    shard = memory.tail(2)
    assert shard.muscles == ["a.1", "a.1"]
    assert shard.additional_data == ["sent", None]
    np.testing.assert_array_equal(shard.objective, [0.5, np.nan])
    assert shard.observations.tolist() == [[1.0, 2.0], [5.0, 6.0]]
    assert shard.actions.tolist() == [[3.0], [7.0]]
    assert shard.next_observations.tolist() == [[5.0, 6.0], [8.0, 9.0]]
    assert shard.truncated.tolist() == [False, True]
    assert shard.terminated.tolist() == [False, False]


def test_samples_come_from_the_memorys_own_generator() -> None:
    def drawn() -> list[float]:
        memory = memory_of(*range(100), rng=np.random.default_rng(1))
        return memory.sample(10).sensor_readings[:, 0].tolist()

    first = drawn()
    assert first == drawn()
    assert first != sorted(first)
    with pytest.raises(RuntimeError, match="no generator"):
        memory_of(1.0).sample(1)


def test_samples_are_uniform_over_complete_rows() -> None:
    """Four rows of one muscle and two of another; the newest of each is not complete."""
    memory = Memory(rng=np.random.default_rng(5))
    for number, muscle in enumerate("aabbaa"):
        memory.append(np.array([number]), np.zeros(1), np.zeros(1), muscle=muscle)
    drawn = np.concatenate([memory.sample(2).sensor_readings[:, 0] for _ in range(4000)])
    counts = np.bincount(drawn.astype(int), minlength=6)
    assert counts[[3, 5]].tolist() == [0, 0]
    # 8000 draws of 4 rows: 2000 each, standard deviation 32 (drawing two without replacement)
    assert np.all(np.abs(counts[[0, 1, 2, 4]] - 2000) < 5 * 32)


def test_a_shard_stays_when_its_rows_are_dropped() -> None:
    memory = memory_of(*range(10), size_limit=10)
    shard, single = memory.tail(3), next(iter(memory))
    for value in range(1000):
        memory.append(np.array([-value]), np.zeros(1), np.zeros(1), muscle="b")
    assert shard.sensor_readings[:, 0].tolist() == [7.0, 8.0, 9.0]
    np.testing.assert_array_equal(shard.next_observations[:, 0], [8.0, 9.0, np.nan])
    assert shard.muscles == ["a.0"] * 3
    assert single.next_observations.tolist() == [[1.0]]


def test_a_pickle_holds_live_rows_only() -> None:
    memory = Memory(size_limit=10)
    for number in range(1000):
        memory.append(
            np.full(50, float(number)), np.zeros(1), np.zeros(1), bytes(1000), muscle=f"m{number % 2}"
        )
    data = pickle.dumps(memory)
    # ten rows of 50 floats and 1000 bytes each, and little else
    assert len(data) < 10 * (8 * 50 + 1000) + 4000
    other = pickle.loads(data)
    assert other.tail(20).sensor_readings[:, 0].tolist() == [float(n) for n in range(990, 1000)]
    assert other.tail(20).next_observations[:, 0].tolist()[:8] == [float(n) for n in range(992, 1000)]


def test_a_copy_is_its_own() -> None:
    memory = memory_of(1.0, rng=np.random.default_rng(0))
    for twin in (copy.copy(memory), copy.deepcopy(memory)):
        twin.append(np.array([2.0]), np.zeros(1), np.zeros(1), muscle="b")
        twin.close(3.0)
        assert (len(memory), memory.tags) == (1, {"a.0"})
        assert twin.tags == {"a.0", "b"}


def test_a_pickled_shard_holds_its_rows_only() -> None:
    memory = memory_of(*range(5000))
    memory.mark_end(terminated=True, truncated=False, final_observations=np.array([-1.0]))
    data = pickle.dumps(memory.tail(2))
    assert len(data) < 2000
    shard = pickle.loads(data)
    assert shard.sensor_readings[:, 0].tolist() == [4998.0, 4999.0]
    assert shard.next_observations[:, 0].tolist() == [4999.0, -1.0]
    assert shard.muscles == ["a.0", "a.0"]
    assert shard.terminated.tolist() == [False, True]


@pytest.mark.parametrize("several", [False, True])
def test_a_pickled_shard_cannot_be_written_to_either(several: bool) -> None:
    memory = memory_of(1.0, 2.0)
    if several:
        memory.append(np.zeros(1), np.zeros(1), np.zeros(1), muscle="b", observations=np.ones(1))
    shard = memory.tail(2)
    for one in (shard, pickle.loads(pickle.dumps(shard))):
        for name in (
            "sensor_readings",
            "actuator_setpoints",
            "rewards",
            "objective",
            "observations",
            "actions",
        ):
            assert not getattr(one, name).flags.writeable, name
        assert not one.terminated.flags.writeable
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(shard))))
    np.testing.assert_array_equal(again.next_observations, shard.next_observations)
    assert again.muscles == shard.muscles


def test_a_text_is_no_list_of_ids() -> None:
    memory = memory_of(1.0)
    with pytest.raises(TypeError, match=r"not the text 'a\.0'"):
        memory.tail(1, "a.0")


@pytest.mark.parametrize("call", ["tail", "sample"])
def test_a_negative_number_is_refused(call: str) -> None:
    memory = memory_of(1.0, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="n must not be negative, not -1"):
        getattr(memory, call)(-1)


def test_what_was_seen_last_stays_with_the_first_row_that_is_left() -> None:
    """Rows 1 and 2 are left of three; the episode ended with row 1, and with row 0 before it."""
    memory = Memory(size_limit=2)
    for i in range(3):
        memory.append(np.full(1, float(i)), np.zeros(1), np.zeros(1), None, 0.0, muscle="a")
        if i < 2:
            memory.mark_end(terminated=True, truncated=False, final_observations=np.full(1, 10.0 + i))
    for one in (memory, pickle.loads(pickle.dumps(memory))):
        np.testing.assert_array_equal(one.tail(2).next_observations, [[11.0], [np.nan]])
