"""How runs are executed: what the command line, the design and the user's configuration file say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from palaestrai_mosaik.design.execution import EXECUTION, PARSL, SLURM, Key, Table
from palaestrai_mosaik.design.vocabulary import EXECUTORS
from palaestrai_mosaik.errors import ExecutionError
from palaestrai_mosaik.importing import only_modules, refusal

from .cluster.settings import COMMANDS, ParslSettings, SlurmSettings, joined, keep
from .job import CHECKPOINT_EVERY

__all__ = ["EXECUTORS", "Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How runs are executed.

    ``executor``: ``local``, ``inline``, ``slurm`` or ``parsl``. ``jobs``: runs at the same time on
    this machine (``None``: one per core that this process may use). ``timeout``: seconds that a run may
    take (``None`` or 0: any). ``runs_per_process``: so many share a process, one after the other.
    ``fail_fast``: begin no more runs once one has failed. ``checkpoint_every``: seconds between the
    checkpoints of a run that trains (0: none). ``allow_modules``: of which modules, those inside of
    them included, documents may name classes (``None``: of all). ``slurm``, ``parsl``: of these executors.

    Raises :class:`ExecutionError` for values that mean nothing.
    """

    executor: str = "local"
    jobs: int | None = None
    timeout: float | None = None
    runs_per_process: int = 1
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
        """Return what is ``given``; of what is not, what was said ``before``, then a design's ``section``, the ``user``'s.

        All are sections ``execution``; ``None`` says nothing. ``before`` are the settings of a submission
        whose runs go on, as the folder tells them. The settings of ``slurm`` and ``parsl`` are joined key
        by key, so they may be given as mappings. Folders and designs come with their documents: where
        ``allow_modules`` is given, is the user's, or was said before, the design's does not
        count, and commands are taken neither from the design nor from before, unless the user says
        the same. What was allowed before must be within what the user's section allows.

        Raises :class:`ExecutionError` for unknown keys, for values that mean nothing, for
        commands that are not taken, and for modules of before that the user's section does not allow.
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
        return cls(**joined(cls, given, before, design, user))


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
                    "of it: say --allow-modules again, on the command line"
                )


def _refuse_commands(
    who: tuple[str, str], said: Mapping[str, Any], user: Mapping[str, Any], *instead: Mapping[str, Any]
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
                    f"{who[0]} execution.{name}.{key}, which the cluster would execute, and "
                    f"allow_modules says that not all of its code is trusted: give it {who[1]}"
                )


def _says(section: Any, key: str) -> bool:
    # (settings that are given whole leave nothing to others)
    return section is not None and (not isinstance(section, Mapping) or section.get(key) is not None)


def _is_same(key: Key | Table, one: Any, other: Any) -> bool:
    """Whether both are sound values of ``key`` that settings keep as the same."""
    if not isinstance(key, Key) or any(key.faults(one)) or any(key.faults(other)):
        return False
    return bool(key.keep(one) == key.keep(other))
