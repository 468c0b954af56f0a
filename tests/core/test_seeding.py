"""The tree of random generators."""

import hashlib
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.core.seeding import generator, global_state_digest, integer_seed, seed_sequence

paths = st.lists(st.one_of(st.text(max_size=6), st.integers(-3, 1000)), max_size=4).map(tuple)
seeds = st.integers(-(2**70), 2**70)


def draw(seed, *path):
    return generator(seed, *path).integers(0, 2**63, 4).tolist()


@settings(max_examples=50)
@given(seeds, paths)
def test_a_path_always_leads_to_the_same_stream(seed, path):
    assert draw(seed, *path) == draw(seed, *path)


@settings(max_examples=100)
@given(seeds, paths, seeds, paths)
def test_different_paths_lead_to_different_streams(seed, path, other_seed, other_path):
    same = (seed, path) == (other_seed, other_path)
    assert (draw(seed, *path) == draw(other_seed, *other_path)) is same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, "a", "b"), (1, "ab")),
        ((1, "a", ""), (1, "a")),
        ((1, 1), (1, "1")),
        ((1, "a", "b"), (1, "b", "a")),
        ((5,), (-5,)),
        ((0, "x"), (1, "x")),
    ],
)
def test_paths_that_look_alike_are_told_apart(one, other):
    assert draw(*one) != draw(*other)


def test_the_stream_is_numpys_pcg64_of_the_seed_sequence():
    expected = np.random.Generator(np.random.PCG64(seed_sequence(42, "phase", "agent", 0))).random(3)
    assert np.array_equal(generator(42, "phase", "agent", 0).random(3), expected)


def test_streams_are_the_same_in_every_process():
    code = "from palaestrai_mosaik.core.seeding import *; print(generator(7, 'a', 1).integers(0, 2**62, 3).tolist())"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert printed == {str(generator(7, "a", 1).integers(0, 2**62, 3).tolist())}


@settings(max_examples=50)
@given(seeds | st.integers(-(2**200), 2**200), paths)
def test_the_words_are_those_of_a_spawn_key(seed, path):
    key = [
        int.from_bytes(hashlib.sha256(f"{type(name).__name__}:{name}".encode()).digest()[i : i + 4], "little")
        for name in (seed < 0, *path)
        for i in (0, 4, 8, 12)
    ]
    expected = np.random.SeedSequence(abs(seed), spawn_key=key)
    found = seed_sequence(seed, *path)
    for one, other in zip([found, *found.spawn(2)], [expected, *expected.spawn(2)], strict=True):
        assert one.generate_state(9).tolist() == other.generate_state(9).tolist()


@settings(max_examples=50)
@given(seeds, paths)
def test_integer_seeds_fit_31_bits(seed, path):
    number = integer_seed(seed, *path)
    assert 0 <= number < 2**31
    assert number == integer_seed(seed, *path)


def test_no_global_generator_is_touched():
    before = global_state_digest()
    generator(1, "a").random(100)
    integer_seed(1, "a")
    assert global_state_digest() == before


@pytest.mark.parametrize(
    "draw_globally",
    [random.random, np.random.random, np.random.normal, lambda: np.random.seed(3)],  # noqa: NPY002
)
def test_use_of_a_global_generator_shows_in_the_digest(draw_globally):
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        before = global_state_digest()
        draw_globally()
        assert global_state_digest() != before
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
