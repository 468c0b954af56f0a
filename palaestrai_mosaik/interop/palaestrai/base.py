"""The adapters' base class, and global random generators for each part.

palaestrAI runs every brain, muscle and environment in its own process. Each therefore has its own global generators (of
Python, NumPy and torch), and published learners rely on this. Here, the parts share a process, so
:class:`GlobalGenerators` provides separate generators.
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

from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.types import Mode

#: The bits of an objective's computed NaN. A missing objective is Python's NaN. Both are sent to the brain as one
#: float, so they must differ in a bit that arithmetic ignores.
_COMPUTED = struct.pack("<Q", 0x7FF8_0000_0000_0001)
#: the objective of a row with a computed NaN, which palaestrAI parts get as in palaestrAI
COMPUTED_NAN: float = struct.unpack("<d", _COMPUTED)[0]

_MODES = {Mode.TRAIN: palaestrai.types.Mode.TRAIN, Mode.TEST: palaestrai.types.Mode.TEST}


def their_mode(mode: Mode) -> Any:
    """Return palaestrAI's mode. Evaluations run in test mode, as in palaestrAI."""
    return _MODES[mode]


def is_known(objective: float) -> bool:
    """Return whether a row has an objective: a number or a computed NaN."""
    return objective == objective or struct.pack("<d", objective) == _COMPUTED  # noqa: PLR0124 (NaN)


class Adapted:
    """Base class of adapters. Keeps the document's ``params`` until :meth:`_make` creates the part.

    ``part`` is the object of palaestrAI's class. ``generators`` are the global generators that it uses.
    """

    wrapped_class: ClassVar[type]
    part: Any
    generators: GlobalGenerators
    _mode: Mode = Mode.TRAIN

    def __init__(self, **params: Any):
        self.params = params

    @property
    def mode(self) -> Mode:
        """The mode: the part explores and learns in train mode only."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        if hasattr(self, "part"):
            self._switch(their_mode(mode))

    def _switch(self, mode: Any) -> None:
        """Set palaestrAI's mode of the part."""
        self.part._mode = mode

    def _make(self, seed: int) -> None:
        """Create the part from a copy of the params, with global generators seeded from ``seed``."""
        self.generators = GlobalGenerators(seed)
        with self.generators:
            self.part = self.wrapped_class(**deepcopy(self.params))


@dataclass(slots=True)
class MuscleData:
    """Data from a palaestrAI muscle to its brain, which filters may replace."""

    data: Any


def numeric_statistics(statistics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the numeric statistics of a palaestrAI part, which may report any objects.

    Arrays, lists and mappings of numbers are averaged. Other values are skipped.
    """
    for key, value in statistics.items():
        numbers = list(value.values()) if isinstance(value, Mapping) else value
        if isinstance(numbers, Real):
            yield key, float(numbers)
            continue
        if isinstance(numbers, str | bytes) or numbers is None:
            continue
        try:
            array = np.asarray(numbers, dtype=np.float64)
        except (TypeError, ValueError):
            continue
        if array.ndim <= 1 and array.size:
            yield key, float(array.mean())


class GlobalGenerators:
    """The global random generators of one part, which are active inside ``with generators:``.

    All are seeded from ``seed``, so their numbers depend neither on other parts nor on the process. Their state
    persists between blocks and can be pickled. torch's generator is included if torch has been imported; on a GPU, its
    generators are seeded once and shared by all parts.

    Blocks may be nested, including those of different objects. A block costs about 30 us, mostly because of Python's
    generator.
    """

    #: the episode's generator of the last :meth:`renew`
    _episode: np.random.Generator | None = None

    def __init__(self, seed: int):
        self.reseed(seed)
        #: the previous generators, saved by the outermost block
        self._before: tuple[Any, Any, Any] | None = None
        self._depth = 0

    def reseed(self, seed: int) -> None:
        """Restart from ``seed``. Must not be called inside a block."""
        self.seed = seed
        self._python: Any = random.Random(seeding.integer_seed(seed, "random")).getstate()
        self._numpy: Any = np.random.MT19937(seeding.seed_sequence(seed, "numpy"))
        #: the generator's state, after the first block with torch
        self._torch: Any = None

    def renew(self, rng: np.random.Generator, *names: str | int) -> None:
        """Restart if ``rng`` differs from that of the last call. Must not be called inside a block.

        ``rng`` is another part's generator of the current episode. The new seed is derived from its seed sequence and
        ``names``, without drawing from it.
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
