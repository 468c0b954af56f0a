"""How runs are executed: what the command line, the design and the user's configuration file say.

::

    store: "@/home/me/.palaestrai-store"   # where results go if --store is not given
    execution:                             # as in a design, which goes before it
      slurm: {account: grid, partition: short, prologue: [module load python]}

It is the file that ``$PALAESTRAI_MOSAIK_CONFIG`` names (empty: none at all), else ``palaestrai-mosaik/config.yml``
in ``$XDG_CONFIG_HOME`` or ``~/.config``. There need not be one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from palaestrai_mosaik.design.execution import EXECUTION, EXECUTORS, PARSL, SLURM, read_execution
from palaestrai_mosaik.design.merge import read_file
from palaestrai_mosaik.errors import DocumentError, ExecutionError
from palaestrai_mosaik.experiment.fields import MAYBE_TEXT
from palaestrai_mosaik.experiment.located import Field, Findings, Located, Section
from palaestrai_mosaik.importing import only_modules, refusal
from palaestrai_mosaik.runner.checkpoint import INTERVAL as CHECKPOINT_EVERY

from .cluster.settings import COMMANDS, ParslSettings, SlurmSettings, keep, merged_sections

__all__ = ["EXECUTORS", "Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How runs are executed.

    Args:
        executor: ``local``, ``inline``, ``slurm`` or ``parsl``.
        jobs: runs at the same time on this machine; ``None``: one per core that this process may use.
        timeout: seconds that a run may take; ``None`` or 0: any.
        runs_per_process: runs that share a process, one after the other; ``None``: see
            :class:`~.local.LocalExecutor`.
        fail_fast: start no more runs after a failure; no two share a process then.
        checkpoint_every: seconds between the checkpoints of a run that trains; 0: none.
        allow_modules: modules of which documents may name classes, those inside of them included; ``None``:
            all.
        slurm: settings of this executor.
        parsl: settings of this executor.

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
        **given: Any,
    ) -> Self:
        """Return the settings that sections ``execution`` and keywords say; the first of these that gives a
        value counts.

        The order is: ``given``, ``before``, ``section``, ``user``. The settings of ``slurm`` and ``parsl``
        are joined key by key, so they may be given as mappings. Folders and designs come with their
        documents: where ``allow_modules`` is given, is the user's, or was said before, the design's does not
        count, and commands are taken neither from the design nor from before, unless the user says the same.
        What was allowed before must be within what the user's section allows.

        Args:
            section: the section of the design; ``None``: it has none.
            user: the section of the user's configuration file; ``None``: it has none.
            before: the settings of a submission that is resumed, as the folder has them; ``None``: none is
                resumed.
            given: settings by name; ``None`` says nothing.

        Raises:
            ExecutionError: a key is unknown, a value is not allowed, a command is not taken, or a module of
                before is not allowed by the user's section.
        """
        design, user, before = dict(section or {}), dict(user or {}), dict(before or {})
        if given.get("allow_modules") is None:
            _refuse_modules(before.get("allow_modules"), user.get("allow_modules"))
        if any(one.get("allow_modules") is not None for one in (given, user, before)):
            design.pop("allow_modules", None)
            _refuse_commands(_BEFORE, before, user, given)
            _refuse_commands(_DESIGN, design, user, given, before)
        for key, kind in (("slurm", SlurmSettings), ("parsl", ParslSettings)):
            if not isinstance(given.get(key), kind):
                given[key] = kind.of(given.get(key), before.get(key), design.get(key), user.get(key))
        return cls(**merged_sections(cls, given, before, design, user))


#: who says a command, and what to do where it is not taken
_DESIGN = "the design gives", "on the command line or in the configuration file, or take it out of the design"
_BEFORE = (
    "the submission was made with",
    "again, on the command line of arsenai submit or in the configuration file",
)


def _refuse_modules(before: Any, user: Any) -> None:
    """Raise :class:`ExecutionError` for a module of ``before`` that ``user`` does not allow, where both say some."""
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
    """Raise :class:`ExecutionError` for a command that ``said`` gives, unless ``user`` or one of ``instead`` does."""
    for name, table in (("slurm", SLURM), ("parsl", PARSL)):
        here, users = said.get(name) or {}, user.get(name) or {}
        for key in COMMANDS:
            value = here.get(key)
            if not value or any(_says(one.get(name), key) for one in instead):
                continue
            if not _is_same(table.keys[key], value, users.get(key)):
                raise ExecutionError(
                    f"{author[0]} execution.{name}.{key}, which the cluster would execute, and "
                    f"allow_modules says that not all of its code is trusted: give it {author[1]}"
                )


def _says(section: Any, key: str) -> bool:
    # (settings that are given whole leave nothing to others)
    return section is not None and (not isinstance(section, Mapping) or section.get(key) is not None)


def _is_same(key: Field, one: Any, other: Any) -> bool:
    """Whether both are sound values of ``key`` that settings keep as the same."""
    if any(key.faults(one)) or any(key.faults(other)):
        return False
    return bool(key.convert(one) == key.convert(other))


#: the environment variable that names the file
CONFIG_VARIABLE = "PALAESTRAI_MOSAIK_CONFIG"
_SECTION = Section("the configuration", {"store": MAYBE_TEXT, "execution": Field({})})


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the user's configuration file says: the ``store``, and the section ``execution``."""

    store: str | None = None
    execution: Mapping[str, Any] = field(default_factory=dict)


def read_configuration(environment: Mapping[str, str] = os.environ) -> Configuration:
    """Return what the user's configuration file says; nothing where there is none.

    Raises :class:`~palaestrai_mosaik.errors.DocumentError` for a file that is not sound, and where
    ``$PALAESTRAI_MOSAIK_CONFIG`` names one that is not there.
    """
    named = environment.get(CONFIG_VARIABLE)
    if named == "":
        return Configuration()
    path = Path(named).expanduser() if named is not None else _default(environment)
    if named is None and not path.exists():
        return Configuration()
    data, source, lines = read_file(path)
    found = Findings(source, lines)
    parts = found.section(Located({} if data is None else data, ()), _SECTION) or {}
    store, execution = (parts.get(key) for key in _SECTION.keys)
    configuration = Configuration(
        MAYBE_TEXT.read(found, store, "store"),
        {} if execution is None or execution.value is None else read_execution(found, execution) or {},
    )
    if found.errors:
        raise DocumentError(found.errors)
    return configuration


def allowed_modules(
    section: Mapping[str, Any] | None, given: tuple[str, ...] | None = None
) -> tuple[str, ...] | None:
    """Return the modules that documents of a design may name: those ``given``, else those of the user, else of its ``section``."""
    user = read_configuration().execution
    said = (one.get("allow_modules") for one in ({"allow_modules": given}, user, section or {}))
    return Settings(allow_modules=next((one for one in said if one is not None), None)).allow_modules


def _default(environment: Mapping[str, str]) -> Path:
    given = Path(environment.get("XDG_CONFIG_HOME") or "")
    # (what is not absolute does not count, by the specification of these folders)
    folder = given if given.is_absolute() else Path("~/.config").expanduser()
    return folder / "palaestrai-mosaik" / "config.yml"


def user_settings(section: Mapping[str, Any] | None, **given: Any) -> Settings:
    """Return what is ``given``, what the ``section`` of a design says, and what the user's file says.

    See :meth:`Settings.of`, and :func:`read_configuration` for what is raised.
    """
    return Settings.of(section, read_configuration().execution, **given)
