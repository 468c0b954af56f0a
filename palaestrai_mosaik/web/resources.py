"""Resources: the data of the views by path, such as ``run/ID/curves``, read from a store and a design folder.

:func:`resource` registers a function as a resource; :func:`get` looks it up by path. The server answers requests with
it, and a page in one file carries its results. Import ``get`` from :mod:`.data`, which registers all resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar
from urllib.parse import quote

from palaestrai_mosaik.errors import PalaestraiMosaikError, did_you_mean

from .source import Source

__all__ = ["Maker", "Query", "ResourceError", "Source", "address", "find", "get", "resource"]

T = TypeVar("T")


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

    def integer(self, name: str, default: int | None = None) -> int | None:
        """Return a value as an integer; ``default`` if the query does not have it.

        Raises:
            ResourceError: the value is not an integer.
        """
        return self._number(name, default, int, "a whole number")

    def number(self, name: str, default: float | None = None) -> float | None:
        """Return a value as a number; ``default`` if the query does not have it.

        Raises:
            ResourceError: the value is not a number.
        """
        return self._number(name, default, float, "a number")

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

    def _number(self, name: str, default: T | None, kind: Callable[[str], T], what: str) -> T | None:
        if name not in self._values:
            return default
        try:
            return kind(self._values[name])
        except ValueError:
            raise ResourceError(f"{name}: expected {what}, found {self._values[name]!r}") from None


#: computes a resource from the source, the variable parts of its path, and the query
Maker = Callable[..., object]
_MAKERS: dict[tuple[str, ...], Maker] = {}


def resource(path: str) -> Callable[[Maker], Maker]:
    """Register a function as the resource at ``path``, such as ``run/{run}/curves``.

    It is called with the :class:`Source`, the parts of the path that are in braces, and the :class:`Query`, and returns
    a value for :func:`~.encoding.to_json`.
    """

    def add(maker: Maker) -> Maker:
        _MAKERS[tuple(path.split("/"))] = maker
        return maker

    return add


def get(source: Source, path: str, query: Mapping[str, str] | None = None) -> object:
    """Return the resource at ``path``.

    Raises:
        ResourceError: the path is unknown, or a value of the query is invalid.
        StoreError: the run, phase, agent, environment or column does not exist.
    """
    maker, variables = find("resource", path, _MAKERS)
    return maker(source, *variables, Query(query))


def find(what: str, path: str, known: Mapping[tuple[str, ...], Maker]) -> tuple[Maker, list[str]]:
    """Look up ``path`` in ``known``; return the function and the parts of the path that are in braces.

    Args:
        what: the noun for the error message, such as ``resource``.
        path: the path.
        known: the functions by the parts of their paths.

    Raises:
        ResourceError: the path is unknown.
    """
    parts = path.split("/")
    for pattern, maker in known.items():
        if len(pattern) == len(parts) and all(
            name.startswith("{") or name == part for name, part in zip(pattern, parts, strict=True)
        ):
            return maker, [part for name, part in zip(pattern, parts, strict=True) if name.startswith("{")]
    near = did_you_mean(path, ["/".join(pattern) for pattern in known])
    raise ResourceError(f"no {what} {path!r}{near}")


def address(path: str, query: Mapping[str, str] | None = None) -> str:
    """Return path and query as one text, which is equal for equal requests, as in ``static/data.js``."""
    parameters = "&".join(
        f"{quote(k, safe='')}={quote(str(v), safe='')}" for k, v in sorted((query or {}).items())
    )
    return f"{path}?{parameters}" if parameters else path
