"""Random generators: only this module makes them.

All randomness of a run comes from one tree: the run's seed is the root, and a *path of
names* (phase, environment, agent, worker, episode) leads to a generator. A generator
depends on its own path alone, so adding an agent, a worker or an episode changes no
other stream. No global generator is read or set.

Source: numpy's ``SeedSequence`` (O'Neill 2015, "Developing a seed_seq alternative").
"""

from __future__ import annotations

import hashlib
import random
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

#: words in the pool of a ``SeedSequence``
_POOL = 4


def _spawn_key(path: tuple[str | int, ...]) -> tuple[int, ...]:
    # Each name is hashed separately with its type, so that ("a", "b") and ("ab",), or
    # 1 and "1", give different keys.
    return tuple(chain.from_iterable(map(_words, path)))


@lru_cache(maxsize=1024, typed=True)
def _words(name: str | int) -> tuple[int, ...]:
    digest = hashlib.sha256(f"{type(name).__name__}:{name}".encode()).digest()
    return tuple(int.from_bytes(digest[i : i + 4], "little") for i in (0, 4, 8, 12))


@lru_cache(maxsize=64)
def _root(seed: int) -> tuple[int, ...]:
    """Split ``abs(seed)`` into words of 32 bits, at least four, like ``SeedSequence`` before a spawn key."""
    remaining = abs(seed)
    words: list[int] = []
    while remaining or len(words) < _POOL:
        words.append(remaining & 0xFFFFFFFF)
        remaining >>= 32
    return tuple(words)


def seed_sequence(seed: int, *path: str | int) -> np.random.SeedSequence:
    """Build the seed sequence at ``path`` below the run's ``seed``."""
    seed = int(seed)
    # numpy makes the same words of SeedSequence(entropy=abs(seed), spawn_key=...), one by one, which takes
    # ten times as long. Sequences spawned from it are the same, too.
    return np.random.SeedSequence(np.array((*_root(seed), *_spawn_key((seed < 0, *path))), dtype=np.uint32))


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """Build a new generator for ``path`` below the run's ``seed``."""
    return np.random.Generator(np.random.PCG64(seed_sequence(seed, *path)))


def integer_seed(seed: int, *path: str | int) -> int:
    """Derive a seed (0 to 2**31 - 1) for libraries that take an integer."""
    return int(seed_sequence(seed, *path).generate_state(1)[0] & 0x7FFFFFFF)


def global_state_digest() -> str:
    """Hash the state of Python's and numpy's global generators.

    A run compares it before and after to notice code that draws from a global
    generator, which would make the results irreproducible.
    """
    state: Any = np.random.get_state(legacy=True)  # noqa: NPY002 (looked at, not drawn from)
    digest = hashlib.sha256(repr(random.getstate()).encode())
    digest.update(np.asarray(state[1]).tobytes())
    # without the cached normal number: it is lost when code borrows the global generator,
    # and the position shows each second draw
    digest.update(repr(state[2]).encode())
    return digest.hexdigest()
