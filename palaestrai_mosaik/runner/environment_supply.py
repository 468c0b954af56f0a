"""The environments of a run document: each is set up once, to be inspected, and then taken by the run."""

from __future__ import annotations

import logging
import time

from palaestrai_mosaik.experiment import EnvironmentSpec
from palaestrai_mosaik.simulation.environment_handle import EnvironmentHandle

from .factory import make_handle
from .recorded_sessions import DEFAULT_SESSIONS, StoredSessions

logger = logging.getLogger(__name__)


def _pop(
    handles: list[tuple[EnvironmentSpec, EnvironmentHandle]], spec: EnvironmentSpec
) -> EnvironmentHandle | None:
    """Remove and return the first environment of ``spec``; ``None`` if there is none."""
    number = next((i for i, (entry, _) in enumerate(handles) if entry == spec), None)
    return None if number is None else handles.pop(number)[1]


class SharedEnvironments:
    """Environments shared by several documents; the most recently used ones are kept, at most ``most``."""

    def __init__(self, most: int = 8):
        self._most = most
        self._handles: list[tuple[EnvironmentSpec, EnvironmentHandle]] = []

    def get(self, spec: EnvironmentSpec) -> EnvironmentHandle | None:
        """Return the environment of ``spec``, or ``None`` if it is not set up."""
        handle = _pop(self._handles, spec)
        if handle is not None:
            self._handles.append((spec, handle))
        return handle

    def add(self, spec: EnvironmentSpec, handle: EnvironmentHandle) -> None:
        """Keep an environment that has been set up."""
        self._handles.append((spec, handle))

    def trim(self) -> None:
        """Shut down the least recently used environments in excess of ``most``. Call between two documents."""
        while len(self._handles) > self._most:
            self._handles.pop(0)[1].domain.shutdown()

    def close(self) -> None:
        """Shut down all environments."""
        while self._handles:
            self._handles.pop()[1].domain.shutdown()


class EnvironmentSupply:
    """Sets up the environments of a run document, and hands them to the run.

    Args:
        stored: reads recorded sessions.
        shared: environments shared with other documents, which are set up once and shut down by their owner.
    """

    def __init__(self, stored: StoredSessions = DEFAULT_SESSIONS, shared: SharedEnvironments | None = None):
        self.stored = stored
        self._shared = shared
        self._handles: list[tuple[EnvironmentSpec, EnvironmentHandle]] = []
        self._unused: list[tuple[EnvironmentSpec, EnvironmentHandle]] = []

    def find(self, spec: EnvironmentSpec) -> EnvironmentHandle | None:
        """Return the environment of ``spec`` if an earlier phase or another document has set it up."""
        existing = next((handle for handle_spec, handle in self._handles if handle_spec == spec), None)
        if existing is None and self._shared is not None:
            existing = self._shared.get(spec)
            if existing is not None:
                self._handles.append((spec, existing))
        return existing

    def handle(self, spec: EnvironmentSpec) -> EnvironmentHandle:
        """Return the environment that was set up for ``spec``."""
        return next(handle for handle_spec, handle in self._handles if handle_spec == spec)

    def set_up(self, spec: EnvironmentSpec) -> EnvironmentHandle:
        """Set up the environment of ``spec``, without catching its errors."""
        began = time.perf_counter()
        handle = make_handle(spec, self.stored)
        logger.info("environment %r set up in %.2f s", spec.uid, time.perf_counter() - began)
        self._handles.append((spec, handle))
        if self._shared is None:
            self._unused.append((spec, handle))
        else:
            self._shared.add(spec, handle)
        return handle

    def take(self, spec: EnvironmentSpec) -> EnvironmentHandle:
        """Return an unused environment for ``spec``, creating one if necessary."""
        return _pop(self._unused, spec) or make_handle(spec, self.stored)

    def close(self) -> None:
        """Shut down the unused environments."""
        while self._unused:
            self._unused.pop()[1].domain.shutdown()
