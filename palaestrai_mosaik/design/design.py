"""A design in the hands of a program: load it, plan it, generate it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palaestrai_mosaik.errors import Problem

from .estimate import Estimate, cores, estimate, experience
from .expansion import Expansion
from .folder import OUTPUTS, DesignFolder
from .load import from_mapping, load
from .model import DesignSpec
from .rows import draw_rows, expand
from .run_names import run_uid, slug
from .writer import Progress, Written, write_folder


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a design.

    Of the ``drawn`` points the constraints leave ``rows``; with ``repetitions`` each they are
    ``runs``, of which ``documents`` differ in more than their uid: so many are executed. The
    documents take ``size`` bytes. ``warnings`` are those of the design, the sampler, the documents.
    """

    spec: DesignSpec
    drawn: int
    rows: int
    documents: int
    size: int
    estimate: Estimate
    warnings: tuple[str, ...]

    @property
    def repetitions(self) -> int:
        """How often every row is executed, with other seeds."""
        return self.spec.repetitions

    @property
    def runs(self) -> int:
        """Every repetition of every row."""
        return self.rows * self.repetitions


def make_plan(
    spec: DesignSpec,
    folder: Path,
    seconds_per_run: float | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Return the plan of ``spec``; ``folder`` is asked for what earlier runs of it took.

    Raises :class:`~palaestrai_mosaik.errors.DocumentError` where a document is not sound.
    """
    expansion, rows = Expansion(spec), draw_rows(spec)
    own = size = 0
    for row in expand(rows, expansion):
        if row.first == row.number:
            own += 1
            text, _ = row.documents.document(run_uid(spec.uid, row.number, 0), expansion.seed(row.name, 0))
            size += len(text.encode("utf-8"))
        if progress is not None:
            progress((row.number + 1) * spec.repetitions, rows.count * spec.repetitions)
    jobs = (spec.resolved.get("execution") or {}).get("jobs")
    documents = own * spec.repetitions
    return Plan(
        spec,
        rows.drawn,
        rows.count,
        documents,
        size * spec.repetitions,
        estimate(
            documents,
            jobs if isinstance(jobs, int) and jobs > 0 else cores(),
            seconds_per_run,
            experience(folder),
        ),
        merge_warnings(spec.warnings, rows.sample.warnings, expansion.warnings),
    )


def merge_warnings(
    design: tuple[Problem, ...], sample: tuple[str, ...], documents: tuple[Problem, ...]
) -> tuple[str, ...]:
    """Return warnings as text; what the design is told is not told of its documents again."""
    known = {problem.message for problem in design}
    new = [problem for problem in documents if problem.message not in known]
    return tuple(dict.fromkeys(map(str, (*design, *sample, *new))))


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
