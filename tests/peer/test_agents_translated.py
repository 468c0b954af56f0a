"""Spaces, information objects and memories: what palaestrAI's classes get for ours, and back."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from dataclasses import fields
from datetime import datetime

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("palaestrai")

import gymnasium.spaces
import palaestrai.agent as their
from palaestrai.agent.memory import MemoryShard, _MuscleMemory

from palaestrai_mosaik.core.errors import ActionError, SpaceError
from palaestrai_mosaik.interop.palaestrai import translate
from palaestrai_mosaik.interop.palaestrai.base import GlobalGenerators
from palaestrai_mosaik.interop.palaestrai.memory import LazyMemory
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    SensorInformation,
    Tuple,
)
from palaestrai_mosaik.types.vectors import Layout

SPACES = [
    Box(0, 1, shape=()),
    Box(-1, 1, (2, 3), np.float32),
    Box(0, 255, (2,), np.uint8),
    Box(-np.inf, np.inf, shape=()),
    Discrete(4),
    Discrete(5, 2),
    MultiDiscrete([2, 3]),
    MultiBinary(3),
    Tuple(Discrete(2), Box(0, 1, (2,))),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_and_values_there_and_back(space):
    theirs = translate.their_space(space)
    assert translate.our_space(theirs) == space
    assert translate.their_space(space) is theirs
    flat = space.flatten(space.sample(np.random.default_rng(1)))
    for to, back, ours in (
        (translate.their_sensor, translate.our_sensor, SensorInformation),
        (translate.their_actuator, translate.our_actuator, ActuatorInformation),
    ):
        # palaestrAI checks the value, and its type, against its space
        info = to(ours(space.unflatten(flat), space, "e.x"))
        found = back(info)
        assert (found.uid, found.space) == ("e.x", space)
        np.testing.assert_array_equal(space.flatten(found.value), flat)
    assert translate.their_sensor(SensorInformation(None, space, "e.x")).value is None


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_bound_space_samples_from_its_generator_alone(space):
    one, again = (translate.their_space(space.bound(np.random.default_rng(7))).sample() for _ in range(2))
    np.testing.assert_array_equal(space.flatten(one), space.flatten(again))
    assert space.contains(one)


def test_a_space_without_a_vector_form_is_told():
    with pytest.raises(SpaceError, match="no vector form; allowed are Box"):
        translate.our_space(gymnasium.spaces.Text(3))


def test_an_array_of_bits_is_a_box_because_palaestrai_cannot_write_it():
    space = MultiBinary([2, 2])
    info = translate.their_sensor(SensorInformation([[0, 1], [1, 1]], space, "e.x"))
    np.testing.assert_array_equal(space.flatten(info.value), [0, 1, 1, 1])
    assert translate.our_space(info.space) == Box(0, 1, (2, 2), np.int8)


def test_ticks_are_times_from_the_start():
    found = translate.their_simtime(90, datetime(2024, 1, 1), 2.0)
    assert (found.simtime_ticks, found.simtime_timestamp) == (90, datetime(2024, 1, 1, 0, 3))
    assert translate.their_simtime(3).simtime_timestamp is None


def test_vectors_become_objects_and_objects_vectors():
    layout = Layout(["e.a", "e.b", "e.c"], [Discrete(4), Box(0, 1, (2,), np.float32), Box(0, 1, shape=())])
    make = translate.PalaestraiChannels(layout, their.ActuatorInformation, gaps=True)
    vector = np.array([3, 0.25, 0.5, np.nan])
    found = make(vector)
    assert [type(one.value) for one in found] == [np.int64, np.ndarray, type(None)]
    assert found[1].value.dtype == np.float32
    np.testing.assert_array_equal(translate.vector_of(layout, found[::-1], "it"), vector)
    # at every step new ones, which may be changed
    found[0].value = 1
    assert make(vector)[0].value == 3
    assert [one.value for one in make.empty()] == [None] * 3
    with pytest.raises(ActionError, match=r"it has 'e.a' twice"):
        translate.vector_of(layout, [found[0], found[0]], "it")
    stranger = their.ActuatorInformation(1, translate.their_space(Discrete(2)), "e.d")
    with pytest.raises(ActionError, match=r"it has no 'e.d' \(did you mean"):
        translate.vector_of(layout, [stranger], "it")


def _infos(draw, make, count, kind):
    space = {
        "array": Box(0, 1, (2,)),
        "discrete": Discrete(4),
        "short": Box(0, 1, (), np.float32),
        "single": Box(0, 1, (1,), np.float32),
    }.get(kind, Box(0, 1, shape=()))
    uids = [f"e.{i}" for i in range(count)]
    vector = np.array([draw.randrange(2) for _ in range(count * space.size)], dtype=np.float64)
    channels = translate.PalaestraiChannels(Layout(uids, [space] * count), make)
    return channels(vector) if kind == "objects" else translate.PalaestraiInfos(channels, vector)


def _rows(seed):
    draw = random.Random(seed)
    for number in range(draw.randrange(70)):
        kind = (
            draw.choice(["plain", "array", "discrete", "short", "single", "objects"]) if seed % 2 else "plain"
        )
        row = {
            "sensor_readings": _infos(draw, their.SensorInformation, 3 if seed % 3 else 3 + number % 2, kind),
            "actuator_setpoints": _infos(draw, their.ActuatorInformation, 2, kind),
            "rewards": _infos(draw, their.RewardInformation, draw.randrange(3) if seed % 4 == 1 else 1, kind),
            "done": number % 7 == 0,
        }
        if seed % 5:
            row["objective"] = np.array([draw.random()])
        if seed % 3 == 0:
            row |= {"terminated": False, "truncated": True, "decision_index": number}
            row |= {"observations": np.arange(3.0), "actions": np.arange(2.0), "additional_data": {"x": 1}}
        yield draw.choice("ab"), row


def _same(found, wanted):
    for field in fields(MemoryShard):
        one, other = getattr(found, field.name), getattr(wanted, field.name)
        if isinstance(other, pd.DataFrame):
            pd.testing.assert_frame_equal(one, other)
        elif isinstance(other, np.ndarray):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        else:
            assert one == other
    assert len(found) == len(wanted)


def test_the_quick_memory_shows_what_palaestrais_own_shows():
    compared = Counter()
    for seed in range(12):
        quick, slow = LazyMemory(50), their.Memory(50)
        for muscle, row in _rows(seed):
            quick.append(muscle, **row)
            slow.append(
                muscle,
                **{k: list(v) if isinstance(v, translate.PalaestraiInfos) else v for k, v in row.items()},
            )
        copy = pickle.loads(pickle.dumps(quick))
        for n in (0, 1, 2, 5, 100):
            for only in (None, ["a"], ["nobody"]):
                try:
                    wanted = slow.tail(n, only)
                except ValueError:  # rows that palaestrAI cannot put together
                    continue
                _same(quick.tail(n, only), wanted)
                _same(copy.tail(n, only), wanted)
                compared[len(wanted) > 0] += 1
        assert len(quick) == len(slow)
        assert quick.tags == slow.tags
    assert compared[True] > 40


def test_arrays_of_one_number_are_put_together_at_once(monkeypatch):
    spaces = [Box(0, 9, (1,), np.float32), Discrete(9), Box(0, 9, (1, 1)), MultiDiscrete([9])]
    channels = translate.PalaestraiChannels(Layout("abcd", spaces), their.RewardInformation)
    quick, slow = LazyMemory(50), their.Memory(50)
    for i in range(4):
        rewards = translate.PalaestraiInfos(channels, np.arange(4.0) + i)
        quick.append("m", rewards=rewards)
        slow.append("m", rewards=list(rewards.channels(rewards.vector)))
    wanted = slow.tail(3).rewards
    monkeypatch.setattr(_MuscleMemory, "_infos_to_df", None)
    pd.testing.assert_frame_equal(quick.tail(3).rewards, wanted)


def test_streams_go_on_from_block_to_block_also_from_a_pickle():
    torch = pytest.importorskip("torch")

    def drawn(streams):
        with streams:
            return random.random(), np.random.rand(), float(torch.rand(()))  # noqa: NPY002

    outside = random.getstate(), torch.get_rng_state().tolist()
    one, other = GlobalGenerators(1), GlobalGenerators(2)
    first, _, second = drawn(one), drawn(other), drawn(one)
    assert (random.getstate(), torch.get_rng_state().tolist()) == outside
    again = GlobalGenerators(1)
    assert (drawn(again), drawn(pickle.loads(pickle.dumps(again)))) == (first, second)
    again.reseed(1)
    assert drawn(again) == first != second
