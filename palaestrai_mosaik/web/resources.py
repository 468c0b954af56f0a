"""Resources: the data of the views by path, such as ``run/ID/curves``, read from a store and a design folder.

:data:`resource` registers a function as a resource; :func:`get` looks it up by path. The server answers requests with
it, and a page in one file carries its results. Import ``get`` from :mod:`.data`, which registers all resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, overload
from urllib.parse import quote

from palaestrai_mosaik.core.errors import PalaestraiMosaikError, did_you_mean

from .source import Source

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


class Registry:
    """Functions by path, such as ``run/{run}/curves``; parts in braces match any text.

    As a decorator, ``@registry(path)`` registers a function.

    Args:
        noun: the noun for the functions in error messages.
    """

    def __init__(self, noun: str):
        self._noun = noun
        self._functions: dict[tuple[str, ...], Callable[..., object]] = {}

    def __call__(self, path: str) -> Callable[[T], T]:
        """Return a decorator that registers a function at ``path``."""

        def add(function: T) -> T:
            self._functions[tuple(path.split("/"))] = function
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
    return function(source, *variables, Query(query))


def address(path: str, query: Mapping[str, str] | None = None) -> str:
    """Return path and query as one text, which is equal for equal requests, as in ``static/data.js``."""
    parameters = "&".join(
        f"{quote(k, safe='')}={quote(str(v), safe='')}" for k, v in sorted((query or {}).items())
    )
    return f"{path}?{parameters}" if parameters else path
