"""What is said about a cluster: on the command line, in the design, in the user's configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from palaestrai_mosaik.design.execution import NESTED, PARSL, SLURM
from palaestrai_mosaik.errors import ExecutionError, did_you_mean
from palaestrai_mosaik.experiment.located import Section

#: keys whose values are commands, or become a part of some: who gives them may execute anything
COMMANDS = ("prologue", "directives", "python", "options")


def merged_sections(kind: type[Any], *sections: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return for each field of the dataclass ``kind`` what the first of ``sections`` says that says it.

    ``None`` says nothing. Raises :class:`ExecutionError` for a key that is no field.
    """
    said: dict[str, Any] = {}
    for section in sections:
        for key, value in (section or {}).items():
            if value is not None:
                said.setdefault(key, value)
    known = [field.name for field in fields(kind)]
    for key in said:
        if key not in known:
            hint = did_you_mean(key, known)
            raise ExecutionError(f"there is no setting {key!r}{hint}; there are {', '.join(known)}")
    return said


class _Section:
    """Settings that a section of ``execution`` gives."""

    __slots__ = ()

    @classmethod
    def of(cls, *sections: Mapping[str, Any] | None, **given: Any) -> Self:
        """Return what is ``given``, and of what is not, what the first of ``sections`` says that says it.

        ``None`` says nothing. Raises :class:`ExecutionError` for unknown keys, and values that mean nothing.
        """
        return cls(**merged_sections(cls, given, *sections))


@dataclass(frozen=True, slots=True)
class SlurmSettings(_Section):
    """How runs are executed as job arrays of Slurm; what is not given is left to the cluster.

    ``time``: the time limit of a task, as Slurm writes it (``30``, ``2:30:00``, ``1-00:00``).
    ``memory``: of a task, such as ``4G``. ``cpus``: cores of a task, which executes ``processes`` runs at
    the same time (default: as many). ``runs_per_task``: how many runs a task executes in all (default: so
    many that a task takes minutes, by what runs of the folder took). ``throttle``: tasks of an array at
    the same time. ``requeue``: how often a task is requeued after a timeout to resume its runs (0:
    never). ``warning``: seconds before the time limit at which runs are asked to stop.
    ``directives``: more of them, without ``#SBATCH`` (``--constraint=fast``). ``prologue``: shell lines
    before the runs begin, such as ``module load python``. ``python``: the interpreter on the nodes.

    Raises :class:`ExecutionError` for values that mean nothing.
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
        """Return ``time`` in seconds."""
        return None if self.time is None else slurm_seconds(self.time)

    @property
    def runs_at_a_time(self) -> int:
        """How many runs a task executes at the same time."""
        return self.cpus if self.processes is None else self.processes


@dataclass(frozen=True, slots=True)
class ParslSettings(_Section):
    """How runs are executed by Parsl's pilot jobs.

    ``provider``: who starts pilots (``local``, ``slurm``, ``pbspro``, ``torque``, ``lsf``,
    ``grid_engine``, ``condor``, ``kubernetes``); ``options`` are handed to it as they are. A pilot
    (Parsl: block) has ``nodes`` nodes with ``workers`` workers each; at least ``min_blocks`` and at
    most ``max_blocks`` live. ``walltime``: of a pilot, ``HH:MM:SS``. ``runs_per_task``: runs that a
    worker is handed at once. ``retries``: how often a task whose worker died is tried again.
    ``prologue``, ``directives`` (lines as the scheduler takes them), ``account``, ``partition``,
    ``python``: as in :class:`SlurmSettings`. ``address``: the IP address at which pilots reach this
    machine (default: all that it has).

    Raises :class:`ExecutionError` for values that mean nothing.
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
    """Check the fields of the frozen ``settings`` that ``table`` knows; keep their plain form.

    A field may be ``None`` where that is its default. Raises :class:`ExecutionError`, ``where`` before
    the key.
    """
    for field in fields(settings):
        key, value = table.keys.get(field.name), getattr(settings, field.name)
        if key is None or field.name in NESTED or (value is None and field.default is None):
            continue
        for place, message in key.faults(value):
            item = "".join(f"[{part!r}]" for part in place)
            raise ExecutionError(f"{where}{field.name}{item} {message}")
        object.__setattr__(settings, field.name, key.convert(value))


def slurm_seconds(time: str) -> int:
    """Return the seconds of a time as Slurm takes it: ``30`` is minutes, ``1-12`` a day and a half."""
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if not dash:
        # minutes, minutes:seconds, hours:minutes:seconds
        hours, minutes, seconds = parts if len(parts) == 3 else [0, *parts, 0][:3]
        return hours * 3600 + minutes * 60 + seconds
    hours, minutes, seconds = [*parts, 0, 0][:3]
    return int(days) * 86_400 + hours * 3600 + minutes * 60 + seconds
