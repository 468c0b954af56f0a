"""Random states for a library that draws from the global generators.

Stable-Baselines3 and torch draw from the global generators of numpy and torch, and seed
them. Here they use separate states while they run; afterwards, the global states are restored.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread.

    Sums are then the same on machines with any number of cores, and small networks gain nothing
    from more.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class PrivateRandomness:
    """A state of numpy's legacy generator and one of torch's, both made from ``seed``.

    They equal the states after ``numpy.random.seed(seed)`` and ``torch.manual_seed(seed)``.
    ``numpy`` and ``torch`` may be drawn from directly, ``torch`` while no context is open.
    """

    def __init__(self, seed: int, device: str = "cpu"):
        self.numpy = np.random.RandomState(seed)
        self.torch = torch.Generator().manual_seed(seed)
        self.device = device
        self.cuda_state: torch.Tensor | None = None
        if torch.device(device).type == "cuda":
            self.cuda_state = torch.Generator(device).manual_seed(seed).get_state()

    @contextmanager
    def for_torch(self) -> Iterator[None]:
        """Make torch draw from this state."""
        generator = torch.default_generator
        outside = generator.get_state()
        generator.set_state(self.torch.get_state())
        cuda_outside = None
        if self.cuda_state is not None:
            cuda_outside = torch.cuda.get_rng_state(self.device)
            torch.cuda.set_rng_state(self.cuda_state, self.device)
        try:
            with one_thread():
                yield
        finally:
            self.torch.set_state(generator.get_state())
            generator.set_state(outside)
            if cuda_outside is not None:
                self.cuda_state = torch.cuda.get_rng_state(self.device)
                torch.cuda.set_rng_state(cuda_outside, self.device)

    @contextmanager
    def for_all(self) -> Iterator[None]:
        """Make torch and the functions of ``numpy.random`` draw from these states.

        Python's ``random`` is restored afterwards: the constructors of Stable-Baselines3 seed it,
        and the first update imports parts of torch that draw from it.
        """
        python = random.getstate()
        # exchanging the bit generator discards a normal deviate cached for the next call
        kept: Any = np.random.get_state(legacy=False)  # noqa: NPY002
        outside = np.random.get_bit_generator()  # type: ignore[attr-defined]
        with self.for_torch():
            np.random.set_bit_generator(self.numpy._bit_generator)  # type: ignore[attr-defined]
            try:
                yield
            finally:
                np.random.set_bit_generator(outside)  # type: ignore[attr-defined]
                if kept["has_gauss"]:
                    np.random.set_state(kept)  # noqa: NPY002
                random.setstate(python)
