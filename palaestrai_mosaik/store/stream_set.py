"""The streams of one phase: those of its training episodes, or those of its evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import StoreError, did_you_mean

from .parts import wall_folder
from .records import AgentRecord, EnvironmentRecord, slug
from .statistic_stream import StatisticsStream
from .streams import AgentStream, EnvironmentStream

#: the folder of an instance's directory that holds the streams
TRAJECTORIES = "trajectories"
#: the folder of a phase's folder that holds the streams of its evaluations
EVALUATION = "evaluation"

S = TypeVar("S")
AnyStream = AgentStream | EnvironmentStream | StatisticsStream


class StreamSet:
    """One stream for each group of an agent's bodies and for each environment of a phase, one for statistics.

    ``directory`` is that of the instance, which must be there. No stream's folder is made before
    there are rows.
    """

    def __init__(
        self,
        directory: Path,
        phase: int,
        environments: Sequence[EnvironmentRecord],
        agents: Sequence[AgentRecord],
        on_part: Callable[[], None],
        *,
        evaluation: bool = False,
    ):
        self.evaluation = evaluation
        self._directory = directory
        self._phase = phase
        root = directory / TRAJECTORIES / f"phase-{phase}"
        if evaluation:
            root = root / EVALUATION
        if not directory.is_dir():
            raise StoreError(f"{directory} is gone: the store was moved or deleted while the run went on")
        try:
            files.make_folder(root, parents=True)
        except OSError as error:
            raise StoreError(f"cannot make {root}: {error}") from error
        self._agents: dict[str, list[AgentStream]] = {}
        self._environments: dict[str, EnvironmentStream] = {}
        taken: set[str] = set()
        for record in agents:
            groups = self._agents[record.name] = []
            for body in record.bodies:
                # an agent without bodies has its own name
                alone = body.name is None and body.count == 1 and len(record.bodies) == 1
                wanted = record.name if alone else f"{record.name}-bodies-{body.group}"
                name = slug(wanted, taken)
                taken.add(name)
                metadata = self._metadata("agent", record.name) | ({} if alone else {"group": body.group})
                folder = root / f"agent-{name}"
                groups.append(AgentStream(folder, wall_folder(folder), body, metadata, on_part))
        taken.clear()
        for environment in environments:
            name = slug(environment.uid, taken)
            taken.add(name)
            folder, metadata = root / f"environment-{name}", self._metadata("environment", environment.uid)
            self._environments[environment.uid] = EnvironmentStream(folder, environment, metadata, on_part)
        self.statistics = StatisticsStream(root / "statistics", self._metadata("statistics", ""), on_part)

    def agent(self, name: str, group: int = 0) -> AgentStream:
        """Return the stream of a group of bodies of the agent ``name``, always the same object."""
        groups = self._find(self._agents, "agent", name)
        if not 0 <= group < len(groups):
            raise StoreError(
                f"phase {self._phase}: agent {name!r} has no group {group!r} of bodies, only 0 to {len(groups) - 1}"
            )
        return groups[group]

    def environment(self, uid: str) -> EnvironmentStream:
        """Return the stream of the environment ``uid``, always the same object."""
        return self._find(self._environments, "environment", uid)

    def table(self) -> Iterator[dict[str, Any]]:
        """Yield ``kind``, ``name``, ``body_group``, ``folder`` and ``evaluation`` of every folder of part files."""
        for name, groups in self._agents.items():
            for group, stream in enumerate(groups):
                yield self._row("agent", name, stream.folder, group)
                yield self._row("wall", name, wall_folder(stream.folder), group)
        for uid, environment in self._environments.items():
            yield self._row("environment", uid, environment.folder)
        yield self._row("statistics", "", self.statistics.folder)

    def __iter__(self) -> Iterator[tuple[str, AnyStream]]:
        """Yield every stream with its folder, relative to the instance's directory."""
        agents = [stream for groups in self._agents.values() for stream in groups]
        streams: list[AnyStream] = [*agents, *self._environments.values(), self.statistics]
        for stream in streams:
            yield self._relative(stream.folder), stream

    def _relative(self, folder: Path) -> str:
        return folder.relative_to(self._directory).as_posix()

    def _row(self, kind: str, name: str, folder: Path, group: int = 0) -> dict[str, Any]:
        return {
            "kind": kind,
            "name": name,
            "body_group": group,
            "evaluation": self.evaluation,
            "folder": self._relative(folder),
        }

    def _metadata(self, kind: str, name: str) -> dict[str, Any]:
        # No uid, no date: the parts of two runs of one document and seed can be compared.
        metadata = {"kind": kind, "name": name, "phase": self._phase}
        return metadata | {"evaluation": True} if self.evaluation else metadata

    def _find(self, streams: dict[str, S], kind: str, name: str) -> S:
        try:
            return streams[name]
        except KeyError:
            hint = did_you_mean(name, streams) or f"; there are {', '.join(streams) or 'none'}"
            raise StoreError(f"phase {self._phase} has no {kind} {name!r}{hint}") from None
