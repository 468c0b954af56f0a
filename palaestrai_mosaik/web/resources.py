"""Resources: the data of the views by path, such as ``run/ID/curves``, read from a store and a design folder.

:data:`resource` registers a function as a resource; :func:`get` looks it up by path. The server answers requests with
it, and a page in one file carries its results. Import ``get`` from :mod:`.data`, which registers all resources.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, overload
from urllib.parse import quote

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.core.errors import PalaestraiMosaikError, did_you_mean
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.database import MissingStoreError
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.store.urls import is_database

if TYPE_CHECKING:
    from .workplace import Workplace


#: the answer to actions on a read-only page
READ_ONLY = "this page is read-only (--read-only): it cannot start, cancel, check or label anything"
#: seconds between two checks for a store that does not exist yet
_LOOK_AGAIN = 1.0
#: digits that an integer of a database can have
_DIGITS = 18


class Source:
    """The data that a page shows.

    Args:
        store: the store of the runs, opened for reading; or its location, if the store may not exist before the first
            run.
        folder: the folder of the design that has the runs, if a design is shown.
        workplace: executes the actions of the page; ``None``: the page is read-only.
    """

    def __init__(
        self,
        store: Store | StoreLocation,
        folder: DesignFolder | None = None,
        workplace: Workplace | None = None,
    ):
        self.folder = folder
        self.workplace = workplace
        self._location = store if isinstance(store, StoreLocation) else None
        self._store = store if isinstance(store, Store) else None
        self._opening = threading.Lock()
        self._empty: Store | None = None
        self._empty_folder: tempfile.TemporaryDirectory[str] | None = None
        self._looked = 0.0

    @property
    def store(self) -> Store:
        """The store; an empty one until a store exists at the location.

        Raises:
            StoreError: the store exists, but cannot be opened.
        """
        return self._store or self._open()

    def look_again(self) -> None:
        """Look for the store at the next use of :attr:`store`, without waiting for the next check."""
        self._looked = float("-inf")

    def close(self) -> None:
        """Close the store."""
        for store in (self._store, self._empty):
            if store is not None:
                store.close()
        if self._empty_folder is not None:
            self._empty_folder.cleanup()

    def _open(self) -> Store:
        with self._opening:
            location = self._location
            if self._store is not None or location is None:
                assert self._store is not None
                return self._store
            if self._empty is None or time.monotonic() - self._looked > _LOOK_AGAIN:
                self._looked = time.monotonic()
                try:
                    self._store = location.look()
                    return self._store
                except MissingStoreError:
                    pass
            if self._empty is None:
                self._empty = self._make_empty(location)
            return self._empty

    def _make_empty(self, location: StoreLocation) -> Store:
        """Create an empty database in a temporary folder.

        Its folder of files is the one that the store will have; nothing is created at the location.
        """
        self._empty_folder = tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-")
        database = Path(self._empty_folder.name, "empty.db")
        files = location.directory if is_database(location.location) else location.location
        return Store(f"sqlite:///{database}", directory=files, create=True)


__all__ = ["Query", "Registry", "ResourceError", "Source", "address", "get", "resource"]

T = TypeVar("T", bound=Callable[..., object])


class ResourceError(PalaestraiMosaikError):
    """A request that cannot be answered: an unknown path, or an invalid value in its query."""


class Query(Mapping[str, str]):
    """The query of a request: texts by name, with conversion to numbers."""

    def __init__(self, values: Mapping[str, str] | None = None):
        self._values = dict(values or {})

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def integer(self, name: str, default: int) -> int: ...
    @overload
    def integer(self, name: str, default: None = None) -> int | None: ...
    def integer(self, name: str, default: int | None = None) -> int | None:
        """Return a value as an integer; ``default`` if the query does not have it.

        Raises:
            ResourceError: the value is not an integer.
        """
        if name not in self._values:
            return default
        try:
            return int(self._values[name])
        except ValueError:
            raise ResourceError(f"{name}: expected a whole number, found {self._values[name]!r}") from None

    def flag(self, name: str, default: bool = False) -> bool:
        """Return whether a value is ``1``, not ``0``; ``default`` if the query does not have it.

        Raises:
            ResourceError: the value is neither.
        """
        text = self._values.get(name, "01"[default])
        if text not in ("0", "1"):
            raise ResourceError(f"{name}: expected 0 or 1, found {text!r}")
        return text == "1"

    def texts(self, name: str) -> list[str]:
        """Return the comma-separated texts of a value; an empty list if the query does not have it."""
        return [text for text in self._values.get(name, "").split(",") if text]

    def ids(self) -> list[int]:
        """Return the ids of runs in ``ids``, separated by commas, without what cannot be one."""
        return [int(text) for text in self.texts("ids") if text.isdecimal() and len(text) <= _DIGITS]


class Registry:
    """Functions by path, such as ``run/{run}/curves``; parts in braces match any text.

    As a decorator, ``@registry(path)`` registers a function.

    Args:
        noun: the noun for the functions in error messages.

    Attributes:
        fixed: the functions that return the same for a finished run each time.
    """

    def __init__(self, noun: str):
        self._noun = noun
        self._functions: dict[tuple[str, ...], Callable[..., object]] = {}
        self.fixed: set[Callable[..., object]] = set()

    def __call__(self, path: str, *, fixed: bool = False) -> Callable[[T], T]:
        """Return a decorator that registers a function at ``path``.

        Args:
            path: the path.
            fixed: whether the answer depends on nothing but the run, the query, and what a run records until it
                finishes.
        """

        def add(function: T) -> T:
            self._functions[tuple(path.split("/"))] = function
            if fixed:
                self.fixed.add(function)
            return function

        return add

    def find(self, path: str) -> tuple[Callable[..., object], list[str]]:
        """Return the function at ``path``, and the parts of the path that are in braces.

        Raises:
            ResourceError: the path is unknown.
        """
        parts = path.split("/")
        for pattern, function in self._functions.items():
            pairs = list(zip(pattern, parts, strict=False))
            if len(pattern) == len(parts) and all(name[:1] == "{" or name == part for name, part in pairs):
                return function, [part for name, part in pairs if name[:1] == "{"]
        near = did_you_mean(path, ["/".join(pattern) for pattern in self._functions])
        raise ResourceError(f"no {self._noun} {path!r}{near}")


#: registers resources, which are called with the :class:`Source`, the parts of the path that are in braces, and the
#: :class:`Query`, and return a value for :func:`~.encoding.to_json`
resource = Registry("resource")


def get(source: Source, path: str, query: Mapping[str, str] | None = None) -> object:
    """Return the resource at ``path``.

    Raises:
        ResourceError: the path is unknown, or a value of the query is invalid.
        StoreError: the run, phase, agent, environment or column does not exist.
    """
    function, variables = resource.find(path)
    with source.store.remembering():
        return function(source, *variables, Query(query))


def address(path: str, query: Mapping[str, str] | None = None) -> str:
    """Return path and query as one text, which is equal for equal requests, as in ``static/data.js``."""
    parameters = "&".join(
        f"{quote(k, safe='')}={quote(str(v), safe='')}" for k, v in sorted((query or {}).items())
    )
    return f"{path}?{parameters}" if parameters else path
