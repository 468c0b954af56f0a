"""Registry of actions by path, such as ``run/ID/cancel``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from palaestrai_mosaik.core.errors import PalaestraiMosaikError

from ..resources import READ_ONLY, Registry, ResourceError, Source
from ..workplace import Workplace

logger = logging.getLogger(__name__)

#: registers actions, which are called with the :class:`~..resources.Source`, the parts of the path that are in braces,
#: and the :class:`Body`, and return a mapping with ``done``, a sentence that describes their effect
action = Registry("action")


class Refused(PalaestraiMosaikError):
    """An action that is not possible now; the message has the reason."""


class Body(dict[str, Any]):
    """The body of an action's request. Its methods raise :class:`ResourceError` for a value of another kind."""

    def text(self, name: str, default: str | None = None) -> str:
        """Return a value as a text; a missing value without a default is an error."""
        value = self.get(name, default)
        if not isinstance(value, str):
            raise ResourceError(f"{name}: expected a text, found {value!r}")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a value as a text; ``None`` if it is missing or ``null``."""
        return None if self.get(name) is None else self.text(name)

    def texts(self, name: str) -> list[str]:
        """Return a value as a list of texts; an empty list if it is missing."""
        value = self.get(name, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise ResourceError(f"{name}: expected a list of texts, found {value!r}")
        return value

    def integer(self, name: str) -> int | None:
        """Return a value as an integer; ``None`` if it is missing."""
        value = self.get(name)
        if value is not None and type(value) is not int:
            raise ResourceError(f"{name}: expected a whole number, found {value!r}")
        return value


def perform(source: Source, path: str, body: Mapping[str, Any]) -> object:
    """Perform the action at ``path``, and return its answer.

    Raises:
        ResourceError: the action does not exist, or a value of the body is invalid.
        Refused: the action is not possible now.
        PalaestraiMosaikError: the run does not exist, or a document has problems.
    """
    function, variables = action.find(path)
    try:
        answer = function(source, *variables, Body(body))
    except PalaestraiMosaikError as error:
        logger.info("%s: refused: %s", path, error)
        raise
    logger.info("%s: %s", path, answer.get("done") if isinstance(answer, Mapping) else answer)
    return answer


def workplace_of(source: Source) -> Workplace:
    """Return the workplace that executes actions.

    Raises:
        Refused: the page is read-only.
    """
    if source.workplace is None:
        raise Refused(READ_ONLY)
    return source.workplace
