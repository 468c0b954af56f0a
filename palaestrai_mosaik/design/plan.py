"""What generating and executing a design would give, without writing anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from palaestrai_mosaik.errors import Problem

from .estimate import Estimate, cores, estimate, experience
from .expansion import Expansion
from .model import DesignSpec
from .names import run_uid
from .rows import draw_rows, expand
from .writer import Progress


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
        tell(spec.warnings, rows.sample.warnings, expansion.warnings),
    )


def tell(
    design: tuple[Problem, ...], sample: tuple[str, ...], documents: tuple[Problem, ...]
) -> tuple[str, ...]:
    """Return warnings as text; what the design is told is not told of its documents again."""
    known = {problem.message for problem in design}
    new = [problem for problem in documents if problem.message not in known]
    return tuple(dict.fromkeys(map(str, (*design, *sample, *new))))
