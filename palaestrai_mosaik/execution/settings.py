"""How runs are executed: what the command line and the design say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from palaestrai_mosaik.design.vocabulary import EXECUTORS
from palaestrai_mosaik.errors import ExecutionError, did_you_mean
from palaestrai_mosaik.experiment.names import canonical_name

from .executor import Executor, OwnClass
from .inline import InlineExecutor
from .job import CHECKPOINT_EVERY
from .local import LocalExecutor

_OURS = re.compile(r"(palaestrai_mosaik\.(?:environment|agent)\.[\w.]+):(\w+)")
#: modules that import what takes seconds and starts threads
_LEFT_OUT = re.compile(r"palaestrai_mosaik\.agent\.library\.sb3")


@dataclass(frozen=True, slots=True)
class Settings:
    """How runs are executed.

    ``executor``: ``local`` or ``inline``. ``jobs``: runs at the same time (``None``: one per core
    that this process may use). ``timeout``: seconds that a run may take (``None`` or 0: any).
    ``runs_per_process``: so many share a process, one after the other. ``fail_fast``: begin
    no more runs once one has failed. ``checkpoint_every``: seconds between the checkpoints of a
    run that trains (0: none).

    Raises :class:`ExecutionError` for values that mean nothing.
    """

    executor: str = "local"
    jobs: int | None = None
    timeout: float | None = None
    runs_per_process: int = 1
    fail_fast: bool = False
    checkpoint_every: float = CHECKPOINT_EVERY

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            hint = did_you_mean(self.executor, EXECUTORS)
            raise ExecutionError(
                f"there is no executor {self.executor!r}{hint}: it is {' or '.join(EXECUTORS)}"
            )
        for name in ("jobs", "runs_per_process"):
            value = getattr(self, name)
            if value is None and name == "jobs":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ExecutionError(f"{name} must be a whole number from 1, not {value!r}")
        for name in ("timeout", "checkpoint_every"):
            value = getattr(self, name)
            if value is None and name == "timeout":
                continue
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            if not plain or not 0 <= value < float("inf"):
                raise ExecutionError(f"{name} must be 0 or a number of seconds, not {value!r}")
        if not isinstance(self.fail_fast, bool):
            raise ExecutionError(f"fail_fast must be true or false, not {self.fail_fast!r}")

    @classmethod
    def of(cls, section: Mapping[str, Any] | None, **given: Any) -> Self:
        """Return what the section ``execution`` of a design says, replaced by what is ``given``.

        What is given as ``None`` is not given.
        """
        said = {key: value for key, value in {**(section or {})}.items() if value is not None}
        return replace(cls(), **said | {key: value for key, value in given.items() if value is not None})


def make_executor(settings: Settings, design: Mapping[str, Any]) -> Executor:
    """Return the executor of ``settings``; ``design``, as plain data, says what to import for it."""
    if settings.executor == "inline":
        return InlineExecutor()
    return LocalExecutor(
        settings.jobs,
        timeout=settings.timeout or None,
        runs_per_process=settings.runs_per_process,
        preload=own_classes(design),
    )


def own_classes(design: Mapping[str, Any]) -> list[OwnClass]:
    """Return the classes of this package that a design names, with their parameters, each once.

    Those are left out that import torch; users' classes always are.
    """
    found: dict[str, OwnClass] = {}
    for entry in _mappings(design):
        match = _OURS.fullmatch(canonical_name(str(entry.get("name"))))
        if match and not _LEFT_OUT.match(match[1]):
            params = entry.get("params")
            params = dict(params) if isinstance(params, Mapping) else {}
            found.setdefault(f"{match[0]} {params!r}", (match[1], match[2], params))
    return [found[key] for key in sorted(found)]


def _mappings(value: Any) -> Iterator[Mapping[Any, Any]]:
    if isinstance(value, Mapping):
        yield value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _mappings(part)
