"""Queries of descriptions that runs share: topologies of environments, worlds of phases."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from palaestrai_mosaik.types import Topology

from ..database import reads
from ..models import Description, Environment, Phase
from .lookup import Queries


class DescriptionQueries(Queries):
    """Queries of topologies and worlds. Unknown names raise :class:`StoreError`."""

    def topology(self, run: str, environment: str, phase: int | str | None = None) -> Topology | None:
        """Return how the parts of an environment are connected, or ``None`` if it has no topology.

        The uids of sensors and actuators are those of the columns of :meth:`environment_states`, without
        ``reading.``. Those of a batched environment have ``{body}`` for the number of an incarnation.

        Args:
            run: which run, as :meth:`find_run` takes it.
            environment: uid of an environment.
            phase: number or name of a phase; ``None``: the newest one that has a topology of it.

        Raises:
            StoreError: there is no such run, phase or environment.
        """
        self._lookup.check_member(run, phase, "environment", environment)
        content = self._topology(run, environment, phase)
        return None if content is None else Topology.from_data(content)

    @reads
    def _topology(self, run: str, environment: str, phase: int | str | None) -> Any:
        statement = select(Description.content).join(Environment, Environment.topology_id == Description.id)
        with self.database.reading() as session:
            instance, _ = self._lookup.find(session, run)
            ids = self._lookup.phase_ids(session, instance, run, phase)
            statement = statement.where(Environment.uid == environment, Environment.phase_id.in_(ids))
            newest = statement.join(Phase, Phase.id == Environment.phase_id).order_by(Phase.number.desc())
            return session.scalar(newest.limit(1))

    @reads
    def world(self, run: str, phase: int | str | None = None) -> dict[str, Any] | None:
        """Return the world that a phase built for its first episode, or ``None`` if it is unknown.

        It has ``title``, ``simulators`` (each with ``simulator``, its id, ``what`` and ``entities``: ``entity``,
        ``model``, ``count``) and ``connections`` (``source`` and ``target``, each with ``simulator`` and
        ``entity``; ``data``, ``time_shifted``, ``values``), like the output of ``palaestrai-mosaik graph --json``. A
        large world is ``summarised``: an entity can then stand for ``count`` of them, and a connection for all
        between two entities. ``left_out`` has the numbers of simulators and connections that are omitted nevertheless.

        Args:
            run: which run, as :meth:`find_run` takes it.
            phase: number or name of a phase; ``None``: the newest one whose world is known.

        Raises:
            StoreError: there is no such run or phase.
        """
        statement = select(Description.content).join(Phase, Phase.world_id == Description.id)
        with self.database.reading() as session:
            instance, _ = self._lookup.find(session, run)
            ids = self._lookup.phase_ids(session, instance, run, phase)
            newest = statement.where(Phase.id.in_(ids)).order_by(Phase.number.desc())
            world: dict[str, Any] | None = session.scalar(newest.limit(1))
            return world

    @reads
    def described(self, run: str) -> dict[str, list[dict[str, Any]]]:
        """Return all topologies and worlds of a run as plain data, in lists by title, with their phases."""
        with self.database.reading() as session:
            instance, _ = self._lookup.find(session, run)
            of_run = Phase.instance_id == instance
            topologies = select(Phase.number, Environment.uid, Description.content).where(of_run)
            topologies = topologies.join(Environment, Environment.phase_id == Phase.id)
            topologies = topologies.join(Description, Description.id == Environment.topology_id)
            worlds = select(Phase.number, Description.content).where(of_run)
            worlds = worlds.join(Description, Description.id == Phase.world_id)
            queries = {
                "topologies": (("phase", "environment", "topology"), topologies),
                "worlds": (("phase", "world"), worlds),
            }
            return {
                title: [
                    dict(zip(names, row, strict=True))
                    for row in session.execute(statement.order_by(Phase.number, Description.id))
                ]
                for title, (names, statement) in queries.items()
            }
