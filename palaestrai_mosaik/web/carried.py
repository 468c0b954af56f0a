"""What a page in one file carries: resources by their address, as many as it may have."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from .data import get
from .encoding import to_json
from .resources import Source, address

#: parts are left out of a file that would be larger (bytes); without its data, a file has about this size
SIZE, _EMPTY = 5_000_000, 800_000


def packed_size(*values: object) -> int:
    """Return about how many bytes values take in a file: packed, and as text."""
    return sum(len(gzip.compress(to_json(one, single=True), 6)) * 4 // 3 for one in values)


class Carried:
    """The resources of a file.

    Attributes:
        source: where they come from.
        resources: what the file has, by address.
        size: about how large the file is with them, in bytes.
        limit: how large it may become by what can be left out, in bytes.
    """

    def __init__(self, source: Source):
        self.source = source
        self.resources: dict[str, object] = {}
        self.size = _EMPTY
        self.limit = SIZE

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return what the source has at ``path``; it is not carried yet."""
        return cast(Any, get(self.source, path, query))

    def take(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Carry what the source has at ``path``, and return it."""
        found = self.get(path, query)
        self.add({address(path, query): found})
        return found

    def add(self, made: Mapping[str, object]) -> None:
        """Carry these resources, however large they are."""
        self.size += packed_size(*made.values())
        self.resources |= made

    def add_if_small(self, made: Mapping[str, object], most: int | None = None) -> bool:
        """Carry these resources if they take at most ``most`` bytes, and the file stays small; return whether they are."""
        size = packed_size(*made.values())
        if (most is not None and size > most) or self.size + size > self.limit:
            return False
        self.size += size
        self.resources |= made
        return True


@contextmanager
def reserved(carried: Carried, size: int) -> Iterator[None]:
    """Keep ``size`` bytes of the file free within the block, for what comes after it."""
    before, carried.limit = carried.limit, carried.limit - size
    try:
        yield
    finally:
        carried.limit = before
