"""The user's configuration file: what holds for all designs, on this machine or cluster.

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
from typing import Any

from palaestrai_mosaik.design.execution import EXECUTION
from palaestrai_mosaik.design.merge import read_file
from palaestrai_mosaik.errors import DocumentError
from palaestrai_mosaik.experiment.located import Findings, Located
from palaestrai_mosaik.experiment.readers import identifier
from palaestrai_mosaik.experiment.vocabulary import Section

from .settings import Settings

#: the environment variable that names the file
CONFIG_VARIABLE = "PALAESTRAI_MOSAIK_CONFIG"
_SECTION = Section("the configuration", ("store", "execution"))


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
        None if store is None or store.value is None else identifier(found, store, "store"),
        {} if execution is None or execution.value is None else EXECUTION.read(found, execution) or {},
    )
    if found.errors:
        raise DocumentError(found.errors)
    return configuration


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
