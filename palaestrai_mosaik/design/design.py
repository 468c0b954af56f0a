"""A design in the hands of a program: load, plan, generate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .folder import OUTPUTS, DesignFolder
from .load import from_mapping, load
from .model import DesignSpec
from .names import slug
from .plan import Plan, make_plan
from .writer import Progress, Written, write_folder


class Design:
    """A sound design document (``spec``).

    ::

        folder = Design.load("design.yml").generate()
        for run in folder.documents:
            print(run.uid, folder.path / run.file)
    """

    def __init__(self, spec: DesignSpec):
        self.spec = spec

    @classmethod
    def load(cls, path: str | Path) -> Design:
        """Read the design at ``path``.

        Raises :class:`~palaestrai_mosaik.errors.DocumentError` with every problem found.
        """
        return cls(load(path))

    @classmethod
    def from_mapping(
        cls, data: Mapping[str, Any], source: str = "<mapping>", directory: Path | None = None
    ) -> Design:
        """Make a design of plain ``data``; files that it names are looked for in ``directory``.

        Raises :class:`~palaestrai_mosaik.errors.DocumentError` with every problem found.
        """
        return cls(from_mapping(data, source, directory))

    @property
    def folder(self) -> Path:
        """Where it is generated, unless told otherwise: named as its uid, in ``output``.

        Without ``output``, that is ``_outputs``.
        """
        return Path(self.spec.output or OUTPUTS, slug(self.spec.uid))

    def plan(
        self,
        folder: str | Path | None = None,
        seconds_per_run: float | None = None,
        progress: Progress | None = None,
    ) -> Plan:
        """Return how many runs there are and what they will take; nothing is written.

        Without ``seconds_per_run``, it is that of earlier runs in the folder, if there are any.
        Raises :class:`~palaestrai_mosaik.errors.DocumentError` where a run document is not sound.
        """
        return make_plan(
            self.spec, self.folder if folder is None else Path(folder), seconds_per_run, progress
        )

    def generate(
        self, folder: str | Path | None = None, force: bool = False, progress: Progress | None = None
    ) -> DesignFolder:
        """Write all run documents into ``folder`` and return it; with another design in it: ``force``.

        A folder that is as the design makes it is left alone.
        Raises :class:`~palaestrai_mosaik.errors.DocumentError` where the folder is refused or
        a run document is not sound; nothing is written then.
        """
        return DesignFolder.open(self.write(folder, force, progress).path)

    def write(
        self, folder: str | Path | None = None, force: bool = False, progress: Progress | None = None
    ) -> Written:
        """Do what :meth:`generate` does, and return what became of the folder."""
        path = self.folder if folder is None else Path(folder)
        return write_folder(self.spec, path, force=force, progress=progress)
