"""Global random generators of one's own, for parts that draw from global ones.

palaestrAI runs every brain, every muscle and every environment in a process of its own, so each has
global generators (of Python, numpy and torch) that nobody else draws from, and published learners
rely on them. Here they are parts of one process. :class:`Streams` gives each of them what it is
used to, and keeps what the others do apart.
"""

from __future__ import annotations

import random
import sys
from types import TracebackType
from typing import Any

import numpy as np
from numpy.random.mtrand import get_bit_generator, set_bit_generator

from palaestrai_mosaik import seeding


class Streams:
    """The global generators of one part: ``with streams:`` puts them in place for a block.

    All of them are seeded from ``seed``, so that what is drawn does not depend on what other parts
    draw, nor on the process. They go on from block to block, and can be pickled. torch's is there if
    torch has been imported; on a GPU, its generators are seeded once, and belong to all parts.

    Blocks may be nested, also those of different streams. A block costs about 30 us, most of which
    is due to Python's generator.
    """

    #: the generator of the running episode, where they are seeded from those (:meth:`renew`)
    _episode: np.random.Generator | None = None

    def __init__(self, seed: int):
        self.reseed(seed)
        #: what was in place before; of nested blocks, the outermost one
        self._before: tuple[Any, Any, Any] | None = None
        self._depth = 0

    def reseed(self, seed: int) -> None:
        """Begin anew from ``seed``; not inside a block."""
        self.seed = seed
        self._python: Any = random.Random(seeding.integer_seed(seed, "random")).getstate()
        self._numpy: Any = np.random.MT19937(seeding.seed_sequence(seed, "numpy"))
        #: a state, once there has been a block with torch
        self._torch: Any = None

    def renew(self, rng: np.random.Generator, *names: str | int) -> None:
        """Begin anew if ``rng`` is not the one of the last call; not inside a block.

        ``rng`` is what another part has for the running episode. The new seed is that of its place in
        the tree of seeds, and of ``names``; nothing is drawn from it.
        """
        if rng is self._episode:
            return
        self._episode = rng
        words: Any = rng.bit_generator.seed_seq
        self.reseed(seeding.integer_seed(int(words.generate_state(1, np.uint64)[0]), *names))

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        torch = sys.modules.get("torch")
        generator = None if torch is None else torch.default_generator
        self._before = (
            random.getstate(),
            get_bit_generator(),
            None if generator is None else generator.get_state(),
        )
        random.setstate(self._python)
        set_bit_generator(self._numpy)
        if generator is None:
            return
        if self._torch is None:
            assert torch is not None
            generator.manual_seed(seeding.integer_seed(self.seed, "torch"))
            if torch.cuda.is_available():
                torch.cuda.manual_seed_all(seeding.integer_seed(self.seed, "torch"))
        else:
            generator.set_state(self._torch)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        assert self._before is not None
        python, bits, torch_state = self._before
        self._before = None
        self._python = random.getstate()
        random.setstate(python)
        self._numpy = get_bit_generator()
        set_bit_generator(bits)
        if torch_state is not None:
            generator = sys.modules["torch"].default_generator
            self._torch = generator.get_state()
            generator.set_state(torch_state)

    def __getstate__(self) -> dict[str, Any]:
        torch_state = None if self._torch is None else self._torch.numpy()
        return {
            "seed": self.seed,
            "python": self._python,
            "numpy": self._numpy.state,
            "torch": torch_state,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["seed"])  # type: ignore[misc]
        self._python = state["python"]
        self._numpy.state = state["numpy"]
        if state["torch"] is not None:
            import torch

            self._torch = torch.from_numpy(state["torch"])
