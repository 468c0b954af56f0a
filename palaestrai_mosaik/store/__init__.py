"""Recording of runs, in SQL and in Parquet files, and queries of recorded runs.

:class:`Store` opens a store. :meth:`Store.begin_run` returns an
:class:`InstanceRecorder`, which has a :class:`PhaseRecorder` for each phase;
:class:`EnvironmentRecord`, :class:`AgentRecord`, :class:`BodyRecord` and
:class:`ChannelRecord` describe a phase's members. :meth:`Store.resume_run` continues from a mark of
:meth:`InstanceRecorder.mark`. The query methods of :class:`Store` (``runs``,
``episodes``, ``steps``, ...; :mod:`.query`) return pandas frames. :mod:`.models` describes the tables,
:mod:`.streams` and :mod:`.parts` the files::

    palaestrai-results/
      store.db                                    SQLite
      instances/<instance uid>/
        complete.json                             once the run has ended
        log.txt                                   the log
        trajectories/phase-<number>/
          agent-<name>/part-000000.parquet        readings, set-points, rewards, objective
          agent-<name>-bodies-<group>/...         the same, of each group of an agent's bodies
          wall-<name>/part-000000.parquet         wall-clock times of the same rows
          environment-<uid>/part-000000.parquet   states
          statistics/part-000000.parquet
          .../part-000001.arrows                  rows that are not in a part yet, during the run
          evaluation/...                          the same four, if there are evaluations
        brains/<run>/<phase>/<agent>/             dumps of brains
        checkpoints/<number>/                     the newest two, until the run has finished
"""

from .query.members import BodyChoice
from .recorder import InstanceRecorder, PhaseRecorder
from .records import AgentRecord, BodyRecord, ChannelRecord, EnvironmentRecord
from .store import Store
from .streams import AgentStream, EnvironmentStream

__all__ = [
    "AgentRecord",
    "AgentStream",
    "BodyChoice",
    "BodyRecord",
    "ChannelRecord",
    "EnvironmentRecord",
    "EnvironmentStream",
    "InstanceRecorder",
    "PhaseRecorder",
    "Store",
]
