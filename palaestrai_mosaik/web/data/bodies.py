"""What each body of an agent came to in the episodes of a run: read from the recorded steps, and not too often."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from palaestrai_mosaik.analysis.series import body_outcomes, has_many_bodies
from palaestrai_mosaik.store import BodyChoice, Store

if TYPE_CHECKING:
    import pandas as pd

#: of a run that goes on, at most one part of so many of the time goes into reading
_SHARE = 10
#: so many runs are remembered of a store
_MOST = 32
_EPISODE = ["phase", "evaluation", "worker", "episode", "agent"]
_COLUMNS = ["phase", "worker", "body", "episode", "evaluation", "agent", "kind", "name", "sum", "mean"]


class BodyOutcomes:
    """The outcomes of the bodies of a run's agents, as far as they have been read.

    Attributes:
        version: how often they have been read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.version = 0
        #: the rows that were read last, as :meth:`look` returns them
        self.rows: pd.DataFrame | None = None
        self._episodes = -1
        self._looked = self._cost = 0.0

    def look(self, store: Store, uid: str, episodes: int, running: Callable[[], bool]) -> pd.DataFrame | None:
        """Return the rows of the agents with several bodies; ``None`` where no agent has.

        Args:
            store: the store.
            uid: uid of the run.
            episodes: how many episodes have ended, or what else grows as they do: they are read again if it is more,
                but of a run that goes on not as long as reading would take most of the time.
            running: says whether the run goes on.

        Returns:
            The columns ``phase``, ``worker``, ``body``, ``episode``, ``evaluation``, ``agent``, ``kind``, ``name``,
            ``sum`` and ``mean``, as :func:`~palaestrai_mosaik.analysis.series.body_outcomes` has them.
        """
        with self._lock:
            waited = time.monotonic() - self._looked
            if episodes != self._episodes and (waited >= _SHARE * self._cost or not running()):
                begun = time.monotonic()
                self.rows = _read(store, uid)
                self._looked = time.monotonic()
                self._cost = self._looked - begun
                self._episodes = episodes
                self.version += 1
            return self.rows


def _read(store: Store, uid: str) -> pd.DataFrame | None:
    import pandas as pd

    agents = agents_with_several_bodies(store, uid)
    frames = [body_outcomes(store, uid, None, BodyChoice(agent), evaluation=None) for agent in agents]
    frames = [one[_COLUMNS] for one in frames if len(one)]
    return pd.concat(frames, ignore_index=True) if frames else None


def agents_with_several_bodies(store: Store, uid: str) -> list[str]:
    """Return the names of the agents of a run that have several bodies in a phase."""
    return sorted(has_many_bodies(store, uid, None, BodyChoice()))


_KNOWN: WeakKeyDictionary[Store, dict[str, BodyOutcomes]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def outcomes_of_bodies(store: Store, uid: str) -> BodyOutcomes:
    """Return what knows the outcomes of the bodies of a run, the same for the same store and run."""
    with _LOCK:
        own = _KNOWN.setdefault(store, {})
        if uid not in own and len(own) >= _MOST:
            del own[next(iter(own))]
        return own.setdefault(uid, BodyOutcomes())


def by_member(outcomes: pd.DataFrame, bodies: pd.DataFrame | None) -> pd.DataFrame:
    """Return outcomes of agents, with a row for each body in place of that of the agent, where bodies are known.

    Args:
        outcomes: as ``Store.outcomes`` returns them, of training, test and evaluation episodes.
        bodies: as :meth:`BodyOutcomes.look` returns them.

    Returns:
        The columns of ``bodies``; ``body`` is -1 in the rows of whole agents. The sum of a whole agent with several
        bodies is their mean, so that it is comparable to that of a body.
    """
    import pandas as pd

    rows = outcomes.assign(body=-1)[_COLUMNS]
    if bodies is None:
        return rows
    ended = pd.MultiIndex.from_frame(rows[_EPISODE])
    known = pd.MultiIndex.from_frame(bodies[_EPISODE].astype(rows[_EPISODE].dtypes.to_dict()))
    # (an episode that has not ended has no part)
    read = bodies[known.isin(ended)]
    counts = bodies.groupby("agent")["body"].nunique()
    whole = rows[~ended.isin(known)]
    many = whole["agent"].map(counts).fillna(1)
    return pd.concat([whole.assign(sum=whole["sum"] / many), read], ignore_index=True)
