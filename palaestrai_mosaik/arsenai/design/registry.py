"""Samplers and sensitivity methods by name: those of this package, and those of installed distributions.

To add one to this package:

1. Write one module: ``design/samplers/NAME.py`` with ``NAME = Sampler(...)``, or
   ``design/methods/NAME.py`` with ``NAME = Method(...)``. Import scipy and SALib inside functions:
   this package is imported by every command.
2. Add ``NAME`` to the registry, which is one line: ``SAMPLERS`` in ``arsenai/design/samplers/__init__.py``, or
   ``METHODS`` in ``arsenai/design/methods/__init__.py``.

To add one from another distribution, declare an entry point with the name of the
sampler or method. It is available as soon as the distribution is installed::

    [project.entry-points."palaestrai_mosaik.samplers"]
    halton = "my_package.halton:HALTON"

    [project.entry-points."palaestrai_mosaik.analysis_methods"]
    correlation = "my_package.correlation:CORRELATION"

Each pair of sampler and method is declared once. A method lists the ``samplers`` that it supports. A sampler lists
in ``methods`` those that analyse its points by default; these then support it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, TypeVar

from palaestrai_mosaik.core.errors import NameResolutionError
from palaestrai_mosaik.core.importing import load_entry_point


class Named(Protocol):
    """An item of a registry, which has a name."""

    @property
    def name(self) -> str:
        """The name in designs."""


T = TypeVar("T", bound=Named)


class Registry(Mapping[str, T]):
    """Samplers or methods by name: those of this package, then those of entry points.

    Entry points are read only if a name is not among ``items``, or if all names are requested. A name of ``items`` cannot be
    replaced. If an entry point cannot be used, a lookup raises
    :class:`~palaestrai_mosaik.core.errors.NameResolutionError`, which names the distribution.

    Args:
        kind: class of the items.
        label: name of the kind of items, for messages.
        group: group of the entry points.
        items: items of this package.
    """

    def __init__(self, kind: type[T], label: str, group: str, items: Iterable[T]):
        self._kind, self._label, self._group = kind, label, group
        self._items = {item.name: item for item in items}
        self._loaded: dict[EntryPoint, T] = {}

    def __getitem__(self, name: str) -> T:
        if name in self._items:
            return self._items[name]
        entries = list(entry_points(group=self._group, name=name))
        if not entries:
            raise KeyError(name)
        if len(entries) > 1:
            sources = ", ".join(sorted(_distribution(entry) for entry in entries))
            raise NameResolutionError(
                f"several distributions bring a {self._label} {name!r}: {sources}; keep one of them"
            )
        if entries[0] not in self._loaded:
            self._loaded[entries[0]] = self._load(entries[0])
        return self._loaded[entries[0]]

    def __iter__(self) -> Iterator[str]:
        yield from self._items
        yield from sorted({entry.name for entry in entry_points(group=self._group)} - self._items.keys())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _load(self, entry: EntryPoint) -> T:
        source = f"the {self._label} {entry.name!r} of the distribution {_distribution(entry)}"
        try:
            item = load_entry_point(entry)
        except NameResolutionError as error:
            raise NameResolutionError(f"{source} cannot be loaded: {error}") from error.__cause__
        if not isinstance(item, self._kind):
            kind = f"{self._kind.__module__}:{self._kind.__qualname__}"
            raise NameResolutionError(f"{source} must be a {kind}, found {type(item).__qualname__}")
        if item.name != entry.name:
            raise NameResolutionError(f"{source} calls itself {item.name!r}: the two names must be equal")
        return item


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else f"that has {entry.value}"
