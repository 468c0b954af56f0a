"""The resources that a page in one file carries, by address, within a size limit."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from .data import get
from .encoding import to_json
from .resources import Source, address

#: size in bytes above which optional parts are left out, and size of a file without data
SIZE, _EMPTY = 5_000_000, 800_000


def packed_size(*values: object) -> int:
    """Return the approximate number of bytes that values take in a file, compressed and as text."""
    return sum(len(gzip.compress(to_json(value, single=True), 6)) * 4 // 3 for value in values)


class Carried:
    """Collects the resources of a file.

    Attributes:
        source: provides the resources.
        resources: the carried resources by address.
        size: the approximate size of the file with these resources, in bytes.
        limit: the size that optional resources may not exceed, in bytes.
    """

    def __init__(self, source: Source):
        self.source = source
        self.resources: dict[str, object] = {}
        self.size = _EMPTY
        self.limit = SIZE

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the resource at ``path`` without carrying it."""
        return cast(Any, get(self.source, path, query))

    def take(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Carry the resource at ``path``, and return it."""
        resource = self.get(path, query)
        self.add({address(path, query): resource})
        return resource

    def add(self, made: Mapping[str, object]) -> None:
        """Carry these resources regardless of their size."""
        self.size += packed_size(*made.values())
        self.resources |= made

    def add_if_small(self, made: Mapping[str, object], most: int | None = None) -> bool:
        """Carry these resources if the file stays below its limit; return whether it did.

        Args:
            made: the resources.
            most: the size that they may have in bytes; ``None``: any.
        """
        size = packed_size(*made.values())
        if (most is not None and size > most) or self.size + size > self.limit:
            return False
        self.size += size
        self.resources |= made
        return True


@contextmanager
def reserved(carried: Carried, size: int) -> Iterator[None]:
    """Reserve ``size`` bytes of the file within the block, for resources that are added after it."""
    before, carried.limit = carried.limit, carried.limit - size
    try:
        yield
    finally:
        carried.limit = before
