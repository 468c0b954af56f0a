"""What a sensitivity method is, what it is given, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from palaestrai_mosaik.progress import ProgressCallback
from palaestrai_mosaik.types.arrays import FloatArray, IntArray

from ..distributions import whole_numbers
from ..model import DesignSpec, Factor

if TYPE_CHECKING:
    from collections.abc import Iterator


#: eFAST and RBD-FAST lose what lies beyond their harmonics. Measured on an additive model: with
#: two whole numbers first-order indices are 10 % too low, with ten 1 %.
MIN_WHOLE_NUMBERS = 10
#: why methods do not fit other samplers, or other factors
NEEDS_SALTELLI = "it needs the blocks of Saltelli's sample"
NEEDS_INDEPENDENT_ROWS = "it needs rows that are drawn independently of each other"
NEEDS_SMOOTH_FACTORS = (
    "its harmonics miss the jumps between levels, so that the indices are too low and change with their order"
)


@dataclass(frozen=True)
class Repetitions:
    """The runs of which the rows of a study are means.

    ``row``: (runs,) the index of each run's row in the study; ``number``: (runs,) its repetition;
    ``y``: (runs,) its outcome. ``common``: the runs of one number share their seed in all rows.
    """

    row: IntArray
    number: IntArray
    y: FloatArray
    common: bool = False


@dataclass(frozen=True)
class Study:
    """One outcome over the points of a sample, all of it finite.

    ``unit``: (rows, axes) points of the unit cube, ``y``: (rows,) the outcome, ``block``: (rows,)
    as of the sample. ``names`` are those of the axes, ``groups`` the name of each axis's group,
    or its own where it has none. ``sampler`` and ``arguments`` are what made the points.
    ``seed`` seeds all resampling. ``repetitions``: ``None`` where every row was run once.
    ``run``: (rows,) the number of the run that was executed for each row, counted from 0 in the order of
    the rows; ``None`` where each row has its own. ``levels``: (rows, axes) the number of each row's
    level, -1 where the axis is inactive; ``None``: each coordinate is a level. ``progress`` is called with how
    many resamples are drawn, and of how many.
    """

    unit: FloatArray
    y: FloatArray
    block: IntArray
    names: tuple[str, ...]
    groups: tuple[str, ...]
    sampler: str = "random"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    confidence: float = 0.95
    resamples: int = 1000
    seed: int = 0
    repetitions: Repetitions | None = None
    run: IntArray | None = None
    levels: IntArray | None = None
    progress: ProgressCallback = lambda done, total: None

    @property
    def executed(self) -> IntArray:
        """The number of the run that was executed for each row."""
        return np.arange(len(self.y)) if self.run is None else self.run

    @property
    def players(self) -> tuple[str, ...]:
        """What is told apart: the groups, in the order of their first axes."""
        return tuple(dict.fromkeys(self.groups))

    @property
    def problem(self) -> dict[str, Any]:
        """The problem as SALib knows it: always the unit cube.

        Axes have numbers for names, because SALib refuses some names.
        """
        numbers = [f"x{i}" for i in range(len(self.names))]
        problem: dict[str, Any] = {
            "num_vars": len(numbers),
            "names": numbers,
            "bounds": [[0.0, 1.0]] * len(numbers),
        }
        if self.groups != self.names:
            players = self.players
            problem["groups"] = [f"g{players.index(group)}" for group in self.groups]
        return problem


@dataclass(frozen=True, slots=True)
class Index:
    """One sensitivity index: ``factor2`` is empty but for pairs; no interval is NaN."""

    index: str
    factor: str
    value: float
    low: float = float("nan")
    high: float = float("nan")
    factor2: str = ""


@dataclass(frozen=True)
class Indices:
    """What a method gives, and what has to be told about it."""

    rows: Sequence[Index]
    notes: tuple[str, ...] = ()


class Refused(Exception):
    """A study cannot be analysed by a method; the text says why."""


@dataclass(frozen=True)
class MethodDisplay:
    """How a method is shown: ``bars`` are its indices that are drawn as bars, in this order;
    ``leading`` is the one by which factors are ranked; ``share``: it is a share of the variance;
    ``says`` what the indices mean; ``pairs``: the index of pairs of factors.
    """

    title: str
    bars: tuple[str, ...]
    leading: str
    share: bool
    says: str
    pairs: str | None = None


@dataclass(frozen=True)
class Method:
    """A method of sensitivity analysis.

    ``analyse`` computes the indices; ``indices`` are those that every factor has.

    What it can be used on. ``samplers``: those whose samples it fits, ``why`` only those (a sampler may name
    it, too: :attr:`~palaestrai_mosaik.design.samplers.Sampler.methods`). ``factors``: which it holds for:
    ``"any"``; ``"smooth"``: numbers, whole ones if there are many; ``"ordered"``: no
    nominal levels; ``"float"``: numbers with a derivative. ``reason``: why on no others.
    ``groups``: gives indices of groups rather than of axes. ``default_rows``: fewest rows on which it is
    chosen where the design names no method. ``check`` returns what else a design lacks, ``None`` if nothing.

    What it can do without. ``drops``: what is left out where a row has no finite outcome: the ``row``, the
    ``block`` of rows that belong together, or ``nothing``, because the method needs all rows; ``run``: the
    method is about single runs, and does without those that are missing.
    ``shared_runs``: what an executed run is that several rows share. Of ``points``, at which the outcome is taken
    for a function of the factors, it gives the values at all of them; for a ``sample``, all rows count in the
    estimate, and what is drawn anew for its error are executed runs; as ``observations`` go into tests, it is
    one of them.

    ``display``: how the report shows it; by default its indices and its name. ``resamples``: how many it draws of a
    study, for the progress; by default those of the design.
    """

    name: str
    analyse: Callable[[Study], Indices]
    indices: tuple[str, ...]
    samplers: tuple[str, ...]
    why: str
    factors: Literal["any", "smooth", "ordered", "float"] = "any"
    reason: str = ""
    groups: bool = False
    default_rows: int = 0
    check: Callable[[DesignSpec], str | None] = field(default=lambda spec: None)
    drops: Literal["run", "row", "block", "nothing"] = "row"
    shared_runs: Literal["points", "sample", "observations"] = "points"
    display: MethodDisplay | None = None
    resamples: Callable[[Study], int] = field(default=lambda study: study.resamples)

    def refuses(self, factor: Factor) -> bool:
        """Whether the method does not hold where ``factor`` varies."""
        if self.factors == "smooth":
            numbers = whole_numbers(factor)
            return factor.kind == "levels" or (numbers is not None and numbers < MIN_WHOLE_NUMBERS)
        if self.factors == "float":
            return factor.kind != "float"
        return self.factors == "ordered" and factor.nominal


def no_resamples(study: Study) -> int:
    """Return how many resamples a method draws that draws none."""
    return 0


def around(index: str, factor: str, value: float, half: float, factor2: str = "") -> Index:
    """Return an index whose interval reaches ``half`` to either side."""
    return Index(index, factor, float(value), float(value - half), float(value + half), factor2)


def above_zero(index: str, factor: str, value: float, half: float) -> Index:
    """Return an index that cannot be negative, with an interval of ``half`` to either side that ends at 0.

    An estimate below 0 (of a corrected bias) is the end of its interval.
    """
    return Index(index, factor, float(value), float(max(value - half, min(value, 0.0))), float(value + half))


@contextmanager
def global_generator_untouched(seed: int) -> Iterator[None]:
    """Seed numpy's global generator, from which parts of SALib draw, and put it back afterwards."""
    state = np.random.get_state()  # noqa: NPY002  (put back, not drawn from)
    try:
        np.random.seed(seed)  # noqa: NPY002
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def ranks(values: FloatArray, seed: int) -> FloatArray:
    """Return the ranks of ``values`` as (rank + 1/2)/n; ties in an order drawn from ``seed``.

    Methods that cut a coordinate into slices of equal size then do so within a level too,
    where the order of the rows must not matter.
    """
    shuffle = np.random.Generator(np.random.PCG64(seed)).permutation(len(values))
    order = shuffle[np.argsort(values[shuffle], kind="stable")]
    result = np.empty(len(values))
    result[order] = (np.arange(len(values)) + 0.5) / len(values)
    return result


def worth(run: IntArray) -> float:
    """Return how many independent observations rows are worth of which some share an executed run.

    ``run``: (rows,) which one. Kish's effective sample size (1965, "Survey Sampling", section 11.2): the
    variance of a mean in which runs have these weights is that of so many runs of one weight.
    """
    counts = np.unique(run, return_counts=True)[1]
    return len(run) ** 2 / float((counts.astype(float) ** 2).sum())


def few(study: Study, least: int, method: str) -> None:
    """Raise :class:`Refused` where rows share so few executed runs that they are worth fewer than ``least``."""
    if study.run is None:
        return
    found = worth(study.run)
    if found < least:
        raise Refused(
            f"{len(study.run):,} rows share {study.run.max() + 1:,} executed runs and are worth {found:.0f} independent ones, "
            f"too few for {method}, which needs {least}: rows that differ only in what is inactive are one run "
            "(seeds: {policy: independent} gives each row its own)"
        )


def rows_of(run: IntArray, drawn: IntArray) -> IntArray:
    """Return all rows of each of the ``drawn`` runs, one run after the other; ``run``: (rows,) as of a study."""
    order = np.argsort(run, kind="stable")
    counts = np.bincount(run)
    starts = np.cumsum(counts) - counts
    sizes = counts[drawn]
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.asarray(order[np.repeat(starts[drawn], sizes) + within])


def half_samples(count: int, resamples: int, seed: int) -> Iterator[IntArray]:
    """Yield the indices of ``resamples`` random halves of ``count`` points.

    The standard deviation of an estimate over random halves drawn without replacement is the
    standard error of the estimate from all points (Shao and Wu 1989, "A general theory for
    jackknife variance estimation", Annals of Statistics 17: the delete-d jackknife with
    d = n/2). Unlike a bootstrap they hold no point twice, which smooth estimators take for structure.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    for _ in range(resamples):
        yield np.sort(rng.permutation(count)[: count // 2])


def normal_quantile(confidence: float) -> float:
    """Return how many standard errors an interval of this confidence reaches to either side."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + confidence / 2))
