"""Actions by their path, such as ``run/ID/cancel``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from palaestrai_mosaik.errors import PalaestraiMosaikError

from ..resources import Maker, ResourceError, Source, find
from ..workplace import Workplace

logger = logging.getLogger(__name__)

_ACTIONS: dict[tuple[str, ...], Maker] = {}


class Refused(PalaestraiMosaikError):
    """An action is not possible now; the message says why."""


class Body(dict[str, Any]):
    """What the request of an action says."""

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text.

        Raises:
            ResourceError: it is something else, or missing where there is no default.
        """
        value = self.get(name, default)
        if not isinstance(value, str):
            raise ResourceError(f"{name}: expected a text, found {value!r}")
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of texts, none where the body does not have it.

        Raises:
            ResourceError: it is something else.
        """
        value = self.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ResourceError(f"{name}: expected a list of texts, found {value!r}")
        return value

    def integer(self, name: str) -> int | None:
        """Return a whole number, ``None`` where the body does not have it.

        Raises:
            ResourceError: it is something else.
        """
        value = self.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ResourceError(f"{name}: expected a whole number, found {value!r}")
        return value


def action(path: str) -> Callable[[Maker], Maker]:
    """Make a function the one that does what ``path``, such as ``run/{run}/cancel``, asks for.

    It is called with the :class:`~..resources.Source`, the parts of the path that are in braces, and the :class:`Body`.
    It returns a mapping with ``done``, a sentence that says what was done.
    """

    def add(maker: Maker) -> Maker:
        _ACTIONS[tuple(path.split("/"))] = maker
        return maker

    return add


def perform(source: Source, path: str, body: Mapping[str, Any]) -> object:
    """Do what ``path`` asks for, and return what was done.

    Raises:
        ResourceError: there is no such action, or the body has a value that is not allowed.
        Refused: it is not possible now.
        PalaestraiMosaikError: there is no such run, or a document is not sound.
    """
    act, given = find("action", path, _ACTIONS)
    try:
        done: object = act(source, *given, Body(body))
    except PalaestraiMosaikError as error:
        logger.info("%s: refused: %s", path, error)
        raise
    logger.info("%s: %s", path, done.get("done") if isinstance(done, Mapping) else done)
    return done


def workplace_of(source: Source) -> Workplace:
    """Return where actions are executed.

    Raises:
        Refused: the page only shows.
    """
    if source.workplace is None:
        raise Refused("this page only shows (--read-only): it starts, cancels and checks nothing")
    return source.workplace
