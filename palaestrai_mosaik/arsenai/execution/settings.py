"""Settings of the execution of runs, from the command line, the design and the user's configuration file.

A configuration file looks like this::

    store: "@/home/me/.palaestrai-store"   # the default of --store
    execution:                             # as in a design, which overrides it
      slurm: {account: grid, partition: short, prologue: [module load python]}

Its path is ``$PALAESTRAI_MOSAIK_CONFIG`` (empty: no file is read), else ``palaestrai-mosaik/config.yml`` in
``$XDG_CONFIG_HOME`` or ``~/.config``. The file is optional.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from palaestrai_mosaik.arsenai.design.merge import read_file
from palaestrai_mosaik.arsenai.design.vocabulary import (
    EXECUTION,
    EXECUTORS,
    NESTED,
    PARSL,
    SLURM,
    read_execution,
)
from palaestrai_mosaik.core.errors import DocumentError, ExecutionError, did_you_mean
from palaestrai_mosaik.core.importing import only_modules, refusal
from palaestrai_mosaik.experiment.fields import MAYBE_TEXT, Field, Findings, Located, Section
from palaestrai_mosaik.runner.checkpoint import INTERVAL as CHECKPOINT_EVERY

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
    for attribute in fields(settings):
        key, value = table.keys.get(attribute.name), getattr(settings, attribute.name)
        if key is None or attribute.name in NESTED or (value is None and attribute.default is None):
            continue
        for path, message in key.faults(value):
            item = "".join(f"[{part!r}]" for part in path)
            raise ExecutionError(f"{where}{attribute.name}{item} {message}")
        object.__setattr__(settings, attribute.name, key.convert(value))


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


__all__ = ["EXECUTORS", "Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the execution of runs.

    Args:
        executor: ``local``, ``inline``, ``slurm`` or ``parsl``.
        jobs: the number of concurrent runs on this machine; ``None``: one per core that this process may use.
        timeout: the time limit of a run in seconds; ``None`` or 0: no limit.
        runs_per_process: the number of runs that share a process, one after the other; ``None``: see
            :class:`~.local.LocalExecutor`.
        fail_fast: start no more runs after a failure; runs then do not share processes.
        checkpoint_every: seconds between the checkpoints of a training run; 0: no checkpoints.
        allow_modules: the modules, including their submodules, with classes that documents may name; ``None``: all.
        slurm: settings of the executor ``slurm``.
        parsl: settings of the executor ``parsl``.

    Raises:
        ExecutionError: a value is not allowed.
    """

    executor: str = "local"
    jobs: int | None = None
    timeout: float | None = None
    runs_per_process: int | None = None
    fail_fast: bool = False
    checkpoint_every: float = CHECKPOINT_EVERY
    allow_modules: tuple[str, ...] | None = None
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    parsl: ParslSettings = field(default_factory=ParslSettings)

    def __post_init__(self) -> None:
        keep(self, EXECUTION)

    @classmethod
    def of(
        cls,
        section: Mapping[str, Any] | None,
        user: Mapping[str, Any] | None = None,
        *,
        before: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Self:
        """Merge sections ``execution`` and keywords into settings. The first value of each setting counts.

        The order is: ``keywords``, ``before``, ``section``, ``user``. The settings of ``slurm`` and ``parsl`` may be
        mappings, and are merged key by key.

        Folders and designs may come from other users. Therefore, if ``keywords``, ``user`` or ``before`` has
        ``allow_modules``, the value of the design is ignored, and commands of the design and of ``before`` are
        refused unless the user gives the same ones. The modules that ``before`` allows must be allowed by ``user``.

        Args:
            section: the section of the design; ``None``: the design has no such section.
            user: the section of the user's configuration file; ``None``: the file has no such section.
            before: the settings of a resumed submission, as read from the folder; ``None``: no submission is resumed.
            keywords: settings by name; ``None`` values are ignored.

        Returns:
            The merged settings.

        Raises:
            ExecutionError: a key is unknown, a value is not allowed, a command is refused, or ``user`` does not allow
                a module of ``before``.
        """
        design, user, before = dict(section or {}), dict(user or {}), dict(before or {})
        if keywords.get("allow_modules") is None:
            _refuse_modules(before.get("allow_modules"), user.get("allow_modules"))
        if any(source.get("allow_modules") is not None for source in (keywords, user, before)):
            design.pop("allow_modules", None)
            _refuse_commands(_BEFORE, before, user, keywords)
            _refuse_commands(_DESIGN, design, user, keywords, before)
        sources = (keywords, before, design, user)
        for key, kind in (("slurm", SlurmSettings), ("parsl", ParslSettings)):
            if not isinstance(keywords.get(key), kind):
                keywords[key] = kind.of(*(source.get(key) for source in sources))
        return cls(**merged_sections(cls, *sources))


#: the source of a refused command, and the advice for the user
_DESIGN = "the design gives", "on the command line or in the configuration file, or take it out of the design"
_BEFORE = (
    "the submission was made with",
    "again, on the command line of arsenai submit or in the configuration file",
)


def _refuse_modules(before: Any, user: Any) -> None:
    """Raise :class:`ExecutionError` if ``user`` does not allow a module of ``before``. ``None`` allows all modules."""
    if before is None or user is None:
        return
    with only_modules(Settings(allow_modules=user).allow_modules):
        for name in Settings(allow_modules=before).allow_modules or ():
            if refusal(name, ours=False) is not None:
                raise ExecutionError(
                    f"the submission was made with allow_modules, and the configuration file does not allow {name!r} "
                    "of it: repeat --allow-modules on the command line"
                )


def _refuse_commands(
    author: tuple[str, str], said: Mapping[str, Any], user: Mapping[str, Any], *instead: Mapping[str, Any]
) -> None:
    """Raise :class:`ExecutionError` for a command of ``said`` that is not trusted.

    A command is trusted if ``user`` has the same one. It is ignored if one of ``instead`` overrides it.
    """
    for name, table in (("slurm", SLURM), ("parsl", PARSL)):
        here, users = said.get(name) or {}, user.get(name) or {}
        for key in COMMANDS:
            value = here.get(key)
            if not value or any(_says(section.get(name), key) for section in instead):
                continue
            if not _is_same(table.keys[key], value, users.get(key)):
                raise ExecutionError(
                    f"{author[0]} execution.{name}.{key}, which the cluster would execute, and "
                    f"allow_modules says that not all of its code is trusted: give it {author[1]}"
                )


def _says(section: Any, key: str) -> bool:
    # settings that are not a mapping set every key
    return section is not None and (not isinstance(section, Mapping) or section.get(key) is not None)


def _is_same(key: Field, value: Any, other: Any) -> bool:
    """Whether both values of ``key`` are valid and convert to the same value."""
    if any(key.faults(value)) or any(key.faults(other)):
        return False
    return bool(key.convert(value) == key.convert(other))


#: the environment variable with the path of the configuration file
CONFIG_VARIABLE = "PALAESTRAI_MOSAIK_CONFIG"
_SECTION = Section("the configuration", {"store": MAYBE_TEXT, "execution": Field({})})


@dataclass(frozen=True, slots=True)
class Configuration:
    """The user's configuration file: its ``store``, and its section ``execution``."""

    store: str | None = None
    execution: Mapping[str, Any] = field(default_factory=dict)


def read_configuration(environment: Mapping[str, str] = os.environ) -> Configuration:
    """Read the user's configuration file; return an empty configuration if there is no file.

    Args:
        environment: the environment variables.

    Raises:
        DocumentError: the file is invalid, or the file ``$PALAESTRAI_MOSAIK_CONFIG`` does not exist.
    """
    value = environment.get(CONFIG_VARIABLE)
    if value == "":
        return Configuration()
    path = Path(value).expanduser() if value is not None else _default(environment)
    if value is None and not path.exists():
        return Configuration()
    data, source, lines = read_file(path)
    findings = Findings(source, lines)
    parts = findings.section(Located({} if data is None else data, ()), _SECTION) or {}
    store, execution = (parts.get(key) for key in _SECTION.keys)
    configuration = Configuration(
        MAYBE_TEXT.read(findings, store, "store"),
        {} if execution is None or execution.value is None else read_execution(findings, execution) or {},
    )
    if findings.errors:
        raise DocumentError(findings.errors)
    return configuration


def allowed_modules(
    section: Mapping[str, Any] | None, modules: tuple[str, ...] | None = None
) -> tuple[str, ...] | None:
    """Return the modules that documents of a design may name; ``None``: all.

    Args:
        section: the section ``execution`` of the design, which counts if the others have no value.
        modules: the modules of the caller, which count before those of the user's configuration file.
    """
    user = read_configuration().execution
    values = (modules, user.get("allow_modules"), (section or {}).get("allow_modules"))
    return Settings(allow_modules=next((value for value in values if value is not None), None)).allow_modules


def _default(environment: Mapping[str, str]) -> Path:
    base = Path(environment.get("XDG_CONFIG_HOME") or "")
    # the XDG specification ignores relative paths
    folder = base if base.is_absolute() else Path("~/.config").expanduser()
    return folder / "palaestrai-mosaik" / "config.yml"


def user_settings(section: Mapping[str, Any] | None, **keywords: Any) -> Settings:
    """Merge keywords, the design's section and the user's configuration file into settings.

    Args:
        section: the section ``execution`` of the design.
        keywords: settings by name; see :meth:`Settings.of`.

    Raises:
        DocumentError: see :func:`read_configuration`.
        ExecutionError: see :meth:`Settings.of`.
    """
    return Settings.of(section, read_configuration().execution, **keywords)
