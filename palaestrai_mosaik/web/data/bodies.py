"""The outcomes of an agent's bodies in the episodes of a run, read from recorded steps at limited intervals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from palaestrai_mosaik.plot.series import body_outcomes, has_many_bodies
from palaestrai_mosaik.store import BodyChoice, Store

if TYPE_CHECKING:
    import pandas as pd

#: reading a running run takes at most one part in this number of the time
_SHARE = 10
#: maximum number of runs per store that are remembered
_MOST = 32
_EPISODE = ["phase", "evaluation", "worker", "episode", "agent"]
_COLUMNS = ["phase", "worker", "body", "episode", "evaluation", "agent", "kind", "name", "sum", "mean"]


class BodyOutcomes:
    """The outcomes of the bodies of a run's agents that have been read so far.

    Attributes:
        version: the number of times that they have been read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.version = 0
        #: the rows of the last read, as :meth:`look` returns them
        self.rows: pd.DataFrame | None = None
        self._episodes = -1
        self._looked = self._cost = 0.0

    def look(self, store: Store, uid: str, episodes: int, running: Callable[[], bool]) -> pd.DataFrame | None:
        """Return the rows of agents with several bodies; ``None`` if no agent has several.

        Args:
            store: the store.
            uid: uid of the run.
            episodes: the number of ended episodes, or a number that grows with it. If it has changed, the outcomes are
                read again; for a running run, only if reading does not take most of the time.
            running: returns whether the run is running.

        Returns:
            The columns ``phase``, ``worker``, ``body``, ``episode``, ``evaluation``, ``agent``, ``kind``, ``name``,
            ``sum`` and ``mean``, as in :func:`~palaestrai_mosaik.plot.series.body_outcomes`.
        """
        with self._lock:
            elapsed = time.monotonic() - self._looked
            if episodes != self._episodes and (elapsed >= _SHARE * self._cost or not running()):
                started = time.monotonic()
                self.rows = _read(store, uid)
                self._looked = time.monotonic()
                self._cost = self._looked - started
                self._episodes = episodes
                self.version += 1
            return self.rows


def _read(store: Store, uid: str) -> pd.DataFrame | None:
    import pandas as pd

    agents = agents_with_several_bodies(store, uid)
    frames = [body_outcomes(store, uid, None, BodyChoice(agent), evaluation=None) for agent in agents]
    frames = [frame[_COLUMNS] for frame in frames if len(frame)]
    return pd.concat(frames, ignore_index=True) if frames else None


def agents_with_several_bodies(store: Store, uid: str) -> list[str]:
    """Return the names of a run's agents that have several bodies in a phase."""
    return sorted(has_many_bodies(store, uid, None, BodyChoice()))


_OUTCOMES: WeakKeyDictionary[Store, dict[str, BodyOutcomes]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def outcomes_of_bodies(store: Store, uid: str) -> BodyOutcomes:
    """Return the shared outcomes of the bodies of a run, the same object for the same store and run."""
    with _LOCK:
        by_run = _OUTCOMES.setdefault(store, {})
        if uid not in by_run and len(by_run) >= _MOST:
            del by_run[next(iter(by_run))]
        return by_run.setdefault(uid, BodyOutcomes())


def by_member(outcomes: pd.DataFrame, bodies: pd.DataFrame | None) -> pd.DataFrame:
    """Return the outcomes of agents, with a row per body instead of the agent's row if bodies are known.

    Args:
        outcomes: the result of ``Store.outcomes`` for training, test and evaluation episodes.
        bodies: the result of :meth:`BodyOutcomes.look`.

    Returns:
        The columns of ``bodies``; ``body`` is -1 in the rows of whole agents. The sum of a whole agent with several
        bodies is their mean, so that it is comparable to that of a body.
    """
    import pandas as pd

    rows = outcomes.assign(body=-1)[_COLUMNS]
    if bodies is None:
        return rows
    ended = pd.MultiIndex.from_frame(rows[_EPISODE])
    of_bodies = pd.MultiIndex.from_frame(bodies[_EPISODE].astype(rows[_EPISODE].dtypes.to_dict()))
    # bodies of unfinished episodes are left out
    finished = bodies[of_bodies.isin(ended)]
    counts = bodies.groupby("agent")["body"].nunique()
    whole = rows[~ended.isin(of_bodies)]
    many = whole["agent"].map(counts).fillna(1)
    return pd.concat([whole.assign(sum=whole["sum"] / many), finished], ignore_index=True)
