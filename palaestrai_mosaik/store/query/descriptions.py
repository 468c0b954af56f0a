"""Queries of what runs describe once and share: topologies of environments, worlds of phases."""

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
        """Return how the parts of an environment are connected, or ``None`` where it does not say so.

        The uids of sensors and actuators are those of the columns of :meth:`environment_states`, without
        ``reading.``. Those of a batched environment have ``{body}`` in the place of the number of an incarnation.

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
        asked = select(Description.content).join(Environment, Environment.topology_id == Description.id)
        with self.database.reading() as session:
            instance, _ = self._lookup.find(session, run)
            ids = self._lookup.phase_ids(session, instance, run, phase)
            asked = asked.where(Environment.uid == environment, Environment.phase_id.in_(ids))
            newest = asked.join(Phase, Phase.id == Environment.phase_id).order_by(Phase.number.desc())
            return session.scalar(newest.limit(1))

    @reads
    def described(self, run: str) -> dict[str, list[dict[str, Any]]]:
        """Return all topologies of a run as plain data, by phase and environment, with the title of their list."""
        with self.database.reading() as session:
            instance, _ = self._lookup.find(session, run)
            asked = select(Phase.number, Environment.uid, Description.content).where(
                Phase.instance_id == instance
            )
            asked = asked.join(Environment, Environment.phase_id == Phase.id)
            asked = asked.join(Description, Description.id == Environment.topology_id)
            rows = session.execute(asked.order_by(Phase.number, Environment.id)).all()
        names = ("phase", "environment", "topology")
        return {"topologies": [dict(zip(names, row, strict=True)) for row in rows]}
