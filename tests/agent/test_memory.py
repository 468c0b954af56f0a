"""The memory against a plain list of rows, which is what it means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from palaestrai_mosaik.agent import Memory

READINGS, SETPOINTS, REWARDS = 2, 1, 3


def row(number: int) -> dict[str, Any]:
    """Return a row that nothing else looks like; nothing is known yet of how it ends."""
    return {
        "sensor_readings": np.arange(READINGS) + 10.0 * number,
        "actuator_setpoints": np.full(SETPOINTS, -1.0 * number),
        "rewards": np.full(REWARDS, 0.5 * number),
        "objective": np.nan,
        "terminated": False,
        "truncated": False,
        "additional_data": {"number": number},
    }


def append(memory: Memory, one: dict[str, Any]) -> None:
    memory.append(one["sensor_readings"], one["actuator_setpoints"], one["rewards"], one["additional_data"])


def filled(rows: int, size_limit: int = 100_000) -> Memory:
    memory = Memory(size_limit)
    for number in range(rows):
        append(memory, row(number))
    return memory


def readings(memory: Memory, n: int = 10**6) -> list[float]:
    """The first reading of the last ``n`` rows."""
    return memory.tail(n).sensor_readings[:, 0].tolist() if len(memory) else []


class AgainstAList(RuleBasedStateMachine):
    """Whatever is done in whatever order, the memory is the list."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory()
        self.rows: list[dict[str, Any]] = []
        self.limit = 100_000
        self.count = 0

    @rule(times=st.one_of(st.just(1), st.integers(1, 150)))
    def append(self, times: int) -> None:
        for _ in range(times):
            self.count += 1
            self.rows.append(row(self.count))
            append(self.memory, self.rows[-1])
            self.rows = self.rows[-self.limit :]

    @rule(objective=st.floats(allow_nan=False))
    def append_with_objective(self, objective: float) -> None:
        self.count += 1
        one = {**row(self.count), "objective": objective}
        self.rows = [*self.rows, one][-self.limit :]
        values = (one["sensor_readings"], one["actuator_setpoints"], one["rewards"])
        self.memory.append(*values, one["additional_data"], objective)

    @precondition(lambda self: self.rows)
    @rule(objective=st.floats(allow_nan=False))
    def close(self, objective: float) -> None:
        self.memory.close(objective)
        self.rows[-1]["objective"] = objective

    @rule(terminated=st.booleans(), truncated=st.booleans())
    def mark_end(self, terminated: bool, truncated: bool) -> None:
        self.memory.mark_end(terminated=terminated, truncated=truncated)
        if self.rows:
            self.rows[-1].update(terminated=terminated, truncated=truncated)

    @rule(n=st.integers(0, 200))
    def truncate(self, n: int) -> None:
        self.memory.truncate(n)
        self.rows = self.rows[len(self.rows) - min(n, len(self.rows)) :]

    @rule(limit=st.integers(1, 200))
    def limit_size(self, limit: int) -> None:
        self.memory.size_limit = self.limit = limit
        self.rows = self.rows[-limit:]

    @rule()
    def clear(self) -> None:
        self.memory.clear()
        self.rows = []

    @rule(n=st.integers(0, 400))
    def tail(self, n: int) -> None:
        shard = self.memory.tail(n)
        wanted = self.rows[-n:] if n else []
        assert len(shard) == len(wanted) == len(shard.additional_data)
        for name in wanted[0] if wanted else ():
            np.testing.assert_array_equal(getattr(shard, name), [one[name] for one in wanted])
        ended = [one["terminated"] or one["truncated"] for one in wanted]
        assert shard.dones.tolist() == ended

    @invariant()
    def same_length_and_newest_row(self) -> None:
        assert len(self.memory) == len(self.rows)
        assert self.memory.size_limit == self.limit
        self.tail(2)


TestAgainstAList = AgainstAList.TestCase
TestAgainstAList.settings = settings(max_examples=30, stateful_step_count=25)


def test_shapes_and_types_of_a_shard() -> None:
    shard = filled(5).tail(3)
    assert shard.sensor_readings.shape == (3, READINGS)
    assert shard.actuator_setpoints.shape == (3, SETPOINTS)
    assert shard.rewards.shape == (3, REWARDS)
    assert shard.objective.shape == shard.terminated.shape == shard.truncated.shape == (3,)
    assert {a.dtype for a in (shard.sensor_readings, shard.objective)} == {np.dtype(np.float64)}
    assert shard.terminated.dtype == shard.dones.dtype == np.bool_


def test_an_empty_memory_has_an_empty_tail() -> None:
    shard = Memory().tail(3)
    assert len(shard) == 0
    assert shard.dones.tolist() == []


@pytest.mark.parametrize(
    "name", ["sensor_readings", "actuator_setpoints", "rewards", "objective", "terminated", "truncated"]
)
def test_views_are_read_only(name: str) -> None:
    memory = filled(5)
    view = getattr(memory.tail(2), name)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        view += 1


def test_the_list_of_data_is_the_callers_own() -> None:
    memory = filled(3)
    memory.tail(2).additional_data.clear()
    assert [d["number"] for d in memory.tail(3).additional_data] == [0, 1, 2]


def test_a_row_is_copied_in() -> None:
    """What an environment or a muscle does to its arrays later does not matter."""
    memory, vector = Memory(), np.ones(1)
    memory.append(vector, vector, vector)
    vector[0] = 5.0
    assert memory.tail(1).sensor_readings[0, 0] == 1.0
    assert memory.tail(1).rewards[0, 0] == 1.0


@pytest.mark.parametrize("rows", [10, 100, 5_000])
def test_a_tail_is_no_copy(rows: int) -> None:
    """Two tails, however long, look at the same memory: asking costs the same at any size."""
    memory = filled(rows, size_limit=1_000)
    short, long = memory.tail(3), memory.tail(rows)
    for name in ("sensor_readings", "actuator_setpoints", "rewards", "objective", "terminated", "truncated"):
        one, other = getattr(short, name), getattr(long, name)
        assert np.shares_memory(one, other), name
        assert not one.flags.owndata
        # the last three rows of the one are the rows of the other, at the same place
        assert one.__array_interface__["data"] == other[-3:].__array_interface__["data"]


def test_a_tail_sees_what_is_closed_later() -> None:
    memory = filled(2)
    shard = memory.tail(1)
    memory.close(7.0)
    memory.mark_end(terminated=False, truncated=True)
    assert shard.objective[0] == 7.0
    assert shard.truncated[0]


def test_the_buffers_do_not_grow_without_bound() -> None:
    memory = filled(10_000, size_limit=50)
    assert readings(memory) == [10.0 * n for n in range(9_950, 10_000)]
    assert memory.tail(1).sensor_readings.base.shape[0] <= 2 * (50 + 1)
    assert len(memory._columns.data) <= 2 * (50 + 1)


def test_a_limit_forgets_at_once_and_from_then_on() -> None:
    memory = filled(10)
    memory.size_limit = 3
    assert readings(memory) == [70.0, 80.0, 90.0]
    append(memory, row(10))
    assert readings(memory) == [80.0, 90.0, 100.0]
    memory.size_limit = 4
    append(memory, row(11))
    assert readings(memory) == [80.0, 90.0, 100.0, 110.0]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_memory_of_nothing_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match=f"size_limit must be at least 1, not {limit}"):
        Memory(limit)
    memory = filled(2)
    with pytest.raises(ValueError, match="size_limit"):
        memory.size_limit = limit
    assert len(memory) == 2


def test_a_row_of_another_width_is_refused() -> None:
    memory = filled(1)
    with pytest.raises(ValueError):
        memory.append(np.ones(READINGS + 1), np.ones(SETPOINTS), np.ones(REWARDS))
    assert readings(memory) == [0.0]
