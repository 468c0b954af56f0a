"""Settings of executors for clusters, from the command line, the design and the user's configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from palaestrai_mosaik.arsenai.design.execution import NESTED, PARSL, SLURM
from palaestrai_mosaik.core.errors import ExecutionError, did_you_mean
from palaestrai_mosaik.experiment.fields import Section

#: keys with commands or parts of commands as values, which may execute any code
COMMANDS = ("prologue", "directives", "python", "options")


def merged_sections(kind: type[Any], *sections: Mapping[str, Any] | None) -> dict[str, Any]:
    """Merge sections; the first value of each key counts.

    Args:
        kind: a dataclass with the valid keys as fields.
        sections: the sections, in descending priority. ``None`` values are ignored.

    Raises:
        ExecutionError: a key is not a field of ``kind``.
    """
    values: dict[str, Any] = {}
    for section in sections:
        for key, value in (section or {}).items():
            if value is not None:
                values.setdefault(key, value)
    names = [field.name for field in fields(kind)]
    for key in values:
        if key not in names:
            hint = did_you_mean(key, names)
            raise ExecutionError(f"there is no setting {key!r}{hint}; there are {', '.join(names)}")
    return values


class _Section:
    """Settings of a subsection of ``execution``."""

    __slots__ = ()

    @classmethod
    def of(cls, *sections: Mapping[str, Any] | None, **keywords: Any) -> Self:
        """Merge keywords and sections into settings; the first value of each key counts.

        Args:
            sections: the sections, in descending priority. ``None`` values are ignored.
            keywords: settings by name, with the highest priority.

        Raises:
            ExecutionError: a key is unknown, or a value is invalid.
        """
        return cls(**merged_sections(cls, keywords, *sections))


@dataclass(frozen=True, slots=True)
class SlurmSettings(_Section):
    """Settings of runs as job arrays of Slurm. ``None`` leaves a setting to the cluster, unless stated otherwise.

    Attributes:
        partition: the partition.
        time: the time limit of a task in Slurm's notation (``30``, ``2:30:00``, ``1-00:00``).
        memory: the memory of a task, such as ``4G``.
        cpus: the number of cores of a task.
        account: the account.
        qos: the quality of service.
        throttle: the maximum number of concurrent tasks of an array; ``None``: no limit.
        processes: the number of concurrent runs of a task; ``None``: ``cpus``.
        runs_per_task: the total number of runs of a task; ``None``: so many that a task takes minutes, estimated from
            earlier runs of the folder.
        requeue: the maximum number of times that a task is requeued after a timeout to resume its runs; 0: never.
        warning: the number of seconds before the time limit at which runs are asked to stop.
        directives: additional directives, without ``#SBATCH`` (``--constraint=fast``).
        prologue: shell lines executed before the runs, such as ``module load python``.
        python: the interpreter on the nodes; ``None``: the path of this one.

    Raises:
        ExecutionError: a value is invalid.
    """

    partition: str | None = None
    time: str | None = None
    memory: str | None = None
    cpus: int = 1
    account: str | None = None
    qos: str | None = None
    throttle: int | None = None
    processes: int | None = None
    runs_per_task: int | None = None
    requeue: int = 0
    warning: int = 120
    directives: tuple[str, ...] = ()
    prologue: tuple[str, ...] = ()
    python: str | None = None

    def __post_init__(self) -> None:
        keep(self, SLURM, "slurm: ")
        limit = self.time_limit
        if limit is not None and limit <= self.warning:
            raise ExecutionError(
                f"slurm: the time limit {self.time} ({limit:,} s) leaves runs no time before the warning, which "
                f"comes {self.warning:,} s before it; give more time, or a shorter warning"
            )

    @property
    def time_limit(self) -> int | None:
        """``time`` in seconds."""
        return None if self.time is None else slurm_seconds(self.time)

    @property
    def runs_at_a_time(self) -> int:
        """The number of concurrent runs of a task."""
        return self.cpus if self.processes is None else self.processes


@dataclass(frozen=True, slots=True)
class ParslSettings(_Section):
    """Settings of runs in Parsl's pilot jobs.

    Attributes:
        provider: the provider that starts pilots (``local``, ``slurm``, ``pbspro``, ``torque``, ``lsf``,
            ``grid_engine``, ``condor``, ``kubernetes``).
        options: additional parameters of the provider.
        workers: the number of workers per node; ``None``: one per core.
        nodes: the number of nodes of a pilot (Parsl: block).
        min_blocks: the minimum number of live pilots.
        max_blocks: the maximum number of live pilots.
        walltime: the time limit of a pilot, ``HH:MM:SS``.
        runs_per_task: the number of runs that a worker gets at once.
        retries: the number of times that a task is retried after the death of its worker.
        partition: see :class:`SlurmSettings`.
        account: see :class:`SlurmSettings`.
        directives: additional directives, in the syntax of the scheduler.
        prologue: see :class:`SlurmSettings`.
        python: see :class:`SlurmSettings`.
        address: the IP address of this machine for pilots; ``None``: pilots try all of its addresses.

    Raises:
        ExecutionError: a value is invalid.
    """

    provider: str = "local"
    options: dict[str, Any] | None = None
    workers: int | None = None
    nodes: int = 1
    min_blocks: int = 0
    max_blocks: int = 1
    walltime: str | None = None
    runs_per_task: int = 1
    retries: int = 2
    partition: str | None = None
    account: str | None = None
    directives: tuple[str, ...] = ()
    prologue: tuple[str, ...] = ()
    python: str | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        keep(self, PARSL, "parsl: ")
        if self.min_blocks > self.max_blocks:
            raise ExecutionError(
                f"parsl: there cannot be at least {self.min_blocks} (min_blocks) and at most "
                f"{self.max_blocks} (max_blocks) blocks"
            )


def keep(settings: Any, table: Section, where: str = "") -> None:
    """Validate the fields of a frozen dataclass, and convert their values to plain ones in place.

    Args:
        settings: the dataclass. A field may be ``None`` if this is its default.
        table: the valid values by key. Other fields are not checked.
        where: a prefix for keys in error messages.

    Raises:
        ExecutionError: a value is invalid.
    """
    for field in fields(settings):
        key, value = table.keys.get(field.name), getattr(settings, field.name)
        if key is None or field.name in NESTED or (value is None and field.default is None):
            continue
        for path, message in key.faults(value):
            item = "".join(f"[{part!r}]" for part in path)
            raise ExecutionError(f"{where}{field.name}{item} {message}")
        object.__setattr__(settings, field.name, key.convert(value))


def slurm_seconds(time: str) -> int:
    """Return the seconds of a time in Slurm's notation: ``30`` are minutes, ``1-12`` is a day and a half."""
    days, dash, clock = time.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if not dash:
        # minutes, minutes:seconds, hours:minutes:seconds
        hours, minutes, seconds = parts if len(parts) == 3 else [0, *parts, 0][:3]
        return hours * 3600 + minutes * 60 + seconds
    hours, minutes, seconds = [*parts, 0, 0][:3]
    return int(days) * 86_400 + hours * 3600 + minutes * 60 + seconds
