"""Which executor executes the runs of a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from palaestrai_mosaik.design.folder import DesignFolder
from palaestrai_mosaik.experiment.classes import canonical_name

from .executor import Executor, InlineExecutor, OwnClass
from .local import LocalExecutor
from .settings import Settings

#: executors that give each run a store of its own
CLUSTER = ("slurm", "parsl")
_OURS = re.compile(r"(palaestrai_mosaik\.(?:environment|agent)\.[\w.]+):(\w+)")
#: modules that import what takes seconds and starts threads
_LEFT_OUT = re.compile(r"palaestrai_mosaik\.agent\.library\.sb3")


def make_executor(settings: Settings, folder: DesignFolder) -> Executor:
    """Return the executor of ``settings`` for the runs of ``folder``."""
    if settings.executor == "inline":
        return InlineExecutor()
    if settings.executor == "slurm":
        from .cluster.slurm_executor import SlurmExecutor

        return SlurmExecutor(folder, settings)
    if settings.executor == "parsl":
        from .cluster.parsl_executor import ParslExecutor

        return ParslExecutor(folder, settings)
    return LocalExecutor(
        settings.jobs,
        timeout=settings.timeout or None,
        runs_per_process=settings.runs_per_process,
        preload=own_classes(folder.spec.resolved),
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
