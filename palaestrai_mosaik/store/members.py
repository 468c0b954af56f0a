"""Queries of who takes part in a phase: environments, agents, their bodies and channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Select

from .lookup import Lookup
from .models import Agent, Body, Channel, Environment, Phase

if TYPE_CHECKING:
    import pandas as pd


class Members(Lookup):
    """Queries of environments and agents. Unknown names raise :class:`StoreError`."""

    def environments(self, run: str, phase: int | str | None = None) -> pd.DataFrame:
        """Return one row per phase and environment.

        Columns: ``phase``, ``environment`` (uid), ``name``, ``params``, ``world_model``,
        ``start`` (ISO date of tick 0), ``step_size`` (ticks), ``incarnations`` (of a batched
        environment, else 1).
        """
        columns = {
            "phase": Phase.number,
            "environment": Environment.uid,
            "name": Environment.name,
            "params": Environment.params,
            "world_model": Environment.world_model,
            "start": Environment.start,
            "step_size": Environment.step_size,
            "incarnations": Environment.incarnations,
        }
        return self._table(run, columns, lambda s: s.join(Environment), [Environment.id], phase)

    def agents(self, run: str, phase: int | str | None = None) -> pd.DataFrame:
        """Return one row per phase and agent.

        Columns: ``phase``, ``agent`` (name), ``brain``, ``muscle``, ``objective`` (class
        names), ``sensors``, ``actuators``, ``rewards`` (lists of uids, those of all bodies).
        """
        columns = {
            "phase": Phase.number,
            "agent": Agent.name,
            "brain": Agent.brain,
            "muscle": Agent.muscle,
            "objective": Agent.objective,
        }
        result = self._table(run, columns, lambda s: s.join(Agent), [Agent.id], phase)
        return self._with_channels(result, run, phase, ["phase", "agent"])

    def _bodies(self, run: str, phase: int | str | None, agent: str | None) -> pd.DataFrame:
        columns = {
            "phase": Phase.number,
            "agent": Agent.name,
            "group": Body.body_group,
            "name": Body.name,
            "first": Body.first,
            "count": Body.count,
            "environment": Body.environment,
            "number": Body.number,
            "incarnations": Body.incarnations,
            "muscle": Body.muscle,
            "objective": Body.objective,
            "proposed": Body.proposed,
        }

        def joined(statement: Select[Any]) -> Select[Any]:
            statement = statement.join(Body, Body.phase_id == Phase.id).join(Agent, Agent.id == Body.agent_id)
            return statement if agent is None else statement.where(Agent.name == agent)

        result = self._table(run, columns, joined, [Agent.id, Body.body_group], phase)
        return self._with_channels(result, run, phase, ["phase", "agent", "group"])

    def _with_channels(
        self, owners: pd.DataFrame, run: str, phase: int | str | None, keys: list[str]
    ) -> pd.DataFrame:
        """Add the uids of the channels of each owner, which ``keys`` tell apart."""
        import pandas as pd

        channels = self.channels(run, phase)
        channels = channels[channels["agent"].notna()].drop_duplicates([*keys, "kind", "uid"])
        owned = channels.groupby([*keys, "kind"])["uid"].agg(list)
        for kind in ("sensor", "actuator", "reward"):
            lists = [owned.get((*key, kind), []) for key in owners[keys].itertuples(index=False)]
            owners[f"{kind}s"] = pd.Series(lists, dtype=object)
        return owners

    def channels(self, run: str, phase: int | str | None = None) -> pd.DataFrame:
        """Return one row per sensor, actuator and reward of every environment and agent.

        Columns: ``phase``, ``environment``, ``agent`` (one of the two is the owner), ``group``
        (of the agent's bodies, else 0), ``kind`` (``sensor``, ``actuator``, ``reward``), ``position``, ``uid``, ``space``
        (its text), ``size`` (floats).
        """
        columns = {
            "phase": Phase.number,
            "environment": Environment.uid,
            "agent": Agent.name,
            "group": Channel.body_group,
            "kind": Channel.kind,
            "position": Channel.position,
            "uid": Channel.uid,
            "space": Channel.space,
            "size": Channel.size,
        }

        def joined(statement: Select[Any]) -> Select[Any]:
            statement = statement.join(Channel, Channel.phase_id == Phase.id)
            statement = statement.outerjoin(Environment, Environment.id == Channel.environment_id)
            return statement.outerjoin(Agent, Agent.id == Channel.agent_id)

        return self._table(run, columns, joined, [Channel.id], phase)
