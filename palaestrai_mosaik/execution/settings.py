"""How runs are executed: what the command line, the design and the user's configuration file say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from palaestrai_mosaik.design.execution import EXECUTION
from palaestrai_mosaik.design.vocabulary import EXECUTORS
from palaestrai_mosaik.errors import ExecutionError

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
        cls, section: Mapping[str, Any] | None, user: Mapping[str, Any] | None = None, **given: Any
    ) -> Self:
        """Return what is ``given``; of what is not, what a design's ``section`` says; then the ``user``'s.

        Both are sections ``execution``; ``None`` says nothing. The settings of ``slurm`` and
        ``parsl`` are joined key by key, so they may be given as mappings. A design comes with its
        documents: where ``allow_modules`` is given, or is the user's, the design's does not
        count, and commands are not taken from it.

        Raises :class:`ExecutionError` for unknown keys, for values that mean nothing, and for
        commands of a design that are not taken.
        """
        design, user = dict(section or {}), dict(user or {})
        if given.get("allow_modules") is not None or user.get("allow_modules") is not None:
            design.pop("allow_modules", None)
            _refuse_commands(design, given)
        for key, kind in (("slurm", SlurmSettings), ("parsl", ParslSettings)):
            if not isinstance(given.get(key), kind):
                given[key] = kind.of(given.get(key), design.get(key), user.get(key))
        return cls(**joined(cls, given, design, user))


def _refuse_commands(design: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    for name in ("slurm", "parsl"):
        said, instead = design.get(name) or {}, given.get(name) or {}
        for key in COMMANDS:
            # (settings that are given whole leave nothing to the design)
            if said.get(key) and isinstance(instead, Mapping) and instead.get(key) is None:
                raise ExecutionError(
                    f"the design gives execution.{name}.{key}, which the cluster would execute, and "
                    "allow_modules says that not all of its code is trusted: give it on the command line "
                    "or in the configuration file, or take it out of the design"
                )
