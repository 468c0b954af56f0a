"""What the adapters share: their base class, and global random generators for each part.

palaestrAI runs every brain, every muscle and every environment in a process of its own, so each has
global generators (of Python, numpy and torch) that no other part draws from, and published learners
rely on them. Here they are parts of one process: :class:`GlobalGenerators` gives each part its own.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from numbers import Real
from types import TracebackType
from typing import Any, ClassVar

import numpy as np
import palaestrai.types
from numpy.random.mtrand import get_bit_generator, set_bit_generator

from palaestrai_mosaik import seeding
from palaestrai_mosaik.types import Mode

#: An objective's NaN as its bits. A row that has no objective has Python's own NaN, and what is on its way to
#: the brain has one number for both, so that the two differ in a bit of which arithmetic makes no use.
_COMPUTED = struct.pack("<Q", 0x7FF8_0000_0000_0001)
#: the objective of a row for which NaN was computed (a part of palaestrAI gets it, as in palaestrAI)
COMPUTED_NAN: float = struct.unpack("<d", _COMPUTED)[0]

_MODES = {Mode.TRAIN: palaestrai.types.Mode.TRAIN, Mode.TEST: palaestrai.types.Mode.TEST}


def their_mode(mode: Mode) -> Any:
    """Return palaestrAI's mode. Evaluations are test mode, in palaestrAI and here."""
    return _MODES[mode]


def is_known(objective: float) -> bool:
    """Whether a row has an objective: a number, or a NaN that was computed."""
    return objective == objective or struct.pack("<d", objective) == _COMPUTED  # noqa: PLR0124 (NaN)


class Adapted:
    """An adapter: keeps the document's ``params`` until the part is made from them (:meth:`_make`).

    ``part`` is the object of palaestrAI's class, ``generators`` are the global generators that it sees.
    """

    wrapped_class: ClassVar[type]
    part: Any
    generators: GlobalGenerators

    def __init__(self, **params: Any):
        self.params = params

    def _make(self, seed: int) -> None:
        """Make the part; its global generators are seeded from ``seed``."""
        self.generators = GlobalGenerators(seed)
        with self.generators:
            self.part = self.wrapped_class(**deepcopy(self.params))


@dataclass(slots=True)
class MuscleData:
    """What a muscle of palaestrAI gave for its brain, for filters to change on the way."""

    data: Any


def numeric_statistics(statistics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the figures among what a part of palaestrAI reports, which may be anything.

    Of several numbers (an array, a list, a mapping to numbers) it is their mean; what else there is
    cannot be stored as a figure, and is left out.
    """
    for key, value in statistics.items():
        several = list(value.values()) if isinstance(value, Mapping) else value
        if isinstance(several, Real):
            yield key, float(several)
            continue
        if isinstance(several, str | bytes) or several is None:
            continue
        try:
            array = np.asarray(several, dtype=np.float64)
        except (TypeError, ValueError):
            continue
        if array.ndim <= 1 and array.size:
            yield key, float(array.mean())


class GlobalGenerators:
    """The global generators of one part: ``with generators:`` puts them in place for a block.

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
        """Restart from ``seed``; not inside a block."""
        self.seed = seed
        self._python: Any = random.Random(seeding.integer_seed(seed, "random")).getstate()
        self._numpy: Any = np.random.MT19937(seeding.seed_sequence(seed, "numpy"))
        #: a state, once there has been a block with torch
        self._torch: Any = None

    def renew(self, rng: np.random.Generator, *names: str | int) -> None:
        """Restart if ``rng`` is not the one of the last call; not inside a block.

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
