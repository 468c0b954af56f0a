"""Data types of sensitivity methods (a study in, indices out), and statistics that several methods share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from palaestrai_mosaik.core.progress import ProgressCallback
from palaestrai_mosaik.types.arrays import FloatArray, IntArray

from ..distributions import whole_numbers
from ..model import DesignSpec, Factor
from ..samplers.sampler import unit_problem

if TYPE_CHECKING:
    from collections.abc import Iterator


#: Fewest values of an integer factor for eFAST and RBD-FAST, which miss variance beyond their harmonics. Measured on
#: an additive model: with two values, first-order indices are 10 % too low, with ten 1 %.
MIN_WHOLE_NUMBERS = 10
#: reasons for a method's restrictions on samplers and factors
NEEDS_SALTELLI = "it needs the blocks of Saltelli's sample"
NEEDS_INDEPENDENT_ROWS = "it needs rows that are drawn independently of each other"
NEEDS_SMOOTH_FACTORS = (
    "its harmonics miss the jumps between levels, so that the indices are too low and change with their order"
)


@dataclass(frozen=True)
class Repetitions:
    """The single runs behind the rows of a study, if these are means over repetitions.

    Attributes:
        row: (runs,) index of each run's row in the study.
        number: (runs,) number of each run's repetition.
        y: (runs,) outcome of each run.
        common: whether runs with the same number share their seed in all rows.
    """

    row: IntArray
    number: IntArray
    y: FloatArray
    common: bool = False


@dataclass(frozen=True)
class Study:
    """One outcome, finite everywhere, over the points of a sample.

    Attributes:
        unit: (rows, axes) points of the unit cube.
        y: (rows,) the outcome.
        block: (rows,) number of the sample's block that each row belongs to.
        names: names of the axes.
        groups: group of each axis; the axis's name if it is in no group.
        sampler: name of the sampler.
        arguments: the sampler's arguments.
        confidence: confidence of the intervals.
        resamples: number of resamples for intervals.
        seed: seed of all resampling.
        repetitions: the single runs; None if every row was run once.
        run: (rows,) number of the executed run that each row uses, from 0 in the order of the rows; None if each
            row has its own run.
        levels: (rows, axes) number of each row's level, -1 if the axis is inactive; None if each coordinate is a
            level.
        progress: called with the number of resamples drawn so far, and their total.
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
        """Number of the executed run that each row uses, (rows,)."""
        return np.arange(len(self.y)) if self.run is None else self.run

    @property
    def players(self) -> tuple[str, ...]:
        """The groups to rank, in the order of their first axes."""
        return tuple(dict.fromkeys(self.groups))

    @property
    def problem(self) -> dict[str, Any]:
        """SALib's problem definition; axes and groups are numbered, because SALib refuses some names."""
        players = self.players
        groups = [f"g{players.index(group)}" for group in self.groups]
        return unit_problem(
            [f"x{i}" for i in range(len(self.names))], groups if self.groups != self.names else None
        )


@dataclass(frozen=True, slots=True)
class Index:
    """One sensitivity index. ``factor2`` is empty except for pairs; ``low`` and ``high`` are NaN without an interval."""

    index: str
    factor: str
    value: float
    low: float = float("nan")
    high: float = float("nan")
    factor2: str = ""


@dataclass(frozen=True)
class Indices:
    """The result of a method: its indices, and notes for the user."""

    rows: Sequence[Index]
    notes: tuple[str, ...] = ()


class Refused(Exception):
    """Raised if a method cannot analyse a study; the text is the reason."""


@dataclass(frozen=True)
class MethodDisplay:
    """How reports show a method.

    Attributes:
        title: heading.
        bars: indices to draw as bars, in this order.
        leading: index that ranks the factors.
        share: whether ``leading`` is a share of the variance.
        says: explanation of the indices.
        pairs: index of pairs of factors, None if the method has none.
        measure: the leading index in words, for a sentence.
        scale: its smallest and largest value; empty if it has none.
    """

    title: str
    bars: tuple[str, ...]
    leading: str
    share: bool
    says: str
    pairs: str | None = None
    measure: str = ""
    scale: str = ""


@dataclass(frozen=True)
class Method:
    """A method of sensitivity analysis.

    Attributes:
        name: name in a design's ``analysis``.
        analyse: computes the indices; raises :class:`Refused` if ``needs`` returns a reason.
        indices: names of the indices that every factor gets.
        samplers: names of the samplers that the method supports. A sampler may also name the method:
            :attr:`~palaestrai_mosaik.arsenai.design.samplers.Sampler.methods`.
        why: reason for supporting only these samplers.
        factors: supported factors. ``"any"``; ``"smooth"``: numbers, and integers with many values; ``"ordered"``:
            no nominal levels; ``"float"``: numbers with a derivative.
        reason: reason for supporting only these factors.
        groups: whether the method computes indices of groups instead of axes.
        default_rows: fewest rows for which the method is a default, if the design names no method.
        check: returns what else a design lacks, or None.
        needs: returns why the rows of a study are not enough, whatever their outcomes, or None.
            :mod:`~palaestrai_mosaik.arsenai.design.rules` reports it before the runs.
        drops: what to leave out if a row has no finite outcome. ``"row"``: the row; ``"block"``: its block;
            ``"nothing"``: no row, because the method needs all of them; ``"run"``: the missing run only, because the
            method analyses single runs.
        shared_runs: how rows that share an executed run count. ``"points"``: the outcome is a function of the factors,
            and the run gives its value at all of these points; ``"sample"``: all rows enter the estimate, and executed
            runs are resampled for its error; ``"observations"``: the run is one observation of a test.
        display: how reports show the method; None shows its indices under its name.
        resamples: returns the number of resamples of a study, for the progress; the design's number by default.
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
    needs: Callable[[Study], str | None] = field(default=lambda study: None)
    drops: Literal["run", "row", "block", "nothing"] = "row"
    shared_runs: Literal["points", "sample", "observations"] = "points"
    display: MethodDisplay | None = None
    resamples: Callable[[Study], int] = field(default=lambda study: study.resamples)

    def refuses(self, factor: Factor) -> bool:
        """Return whether the method does not support designs in which ``factor`` varies."""
        if self.factors == "smooth":
            numbers = whole_numbers(factor)
            return factor.kind == "levels" or (numbers is not None and numbers < MIN_WHOLE_NUMBERS)
        if self.factors == "float":
            return factor.kind != "float"
        return self.factors == "ordered" and factor.nominal


def no_resamples(study: Study) -> int:
    """Return 0, the number of resamples of a method without resampling."""
    return 0


def around(index: str, factor: str, value: float, half: float, factor2: str = "") -> Index:
    """Build an index with a symmetric interval of half-width ``half``."""
    return Index(index, factor, float(value), float(value - half), float(value + half), factor2)


def above_zero(index: str, factor: str, value: float, half: float) -> Index:
    """Build an index that cannot be negative; its interval, of half-width ``half``, is cut at 0.

    A bias correction can move the estimate below 0. The estimate is then the lower end of the interval.
    """
    return Index(index, factor, float(value), float(max(value - half, min(value, 0.0))), float(value + half))


def ranks(values: FloatArray, seed: int) -> FloatArray:
    """Compute the ranks of ``values`` as (rank + 1/2)/n, with ties in random order.

    Ties are random because methods that cut a coordinate into slices of equal size also cut within a level, and the
    order of the rows must not matter there.

    Args:
        values: (n,) the values.
        seed: seed of the order of ties.

    Returns:
        (n,) ranks in (0, 1).
    """
    shuffle = np.random.Generator(np.random.PCG64(seed)).permutation(len(values))
    order = shuffle[np.argsort(values[shuffle], kind="stable")]
    result = np.empty(len(values))
    result[order] = (np.arange(len(values)) + 0.5) / len(values)
    return result


def worth(run: IntArray) -> float:
    """Compute how many independent observations the rows are worth, if some share an executed run.

    This is Kish's effective sample size (1965, "Survey Sampling", section 11.2): a mean that weights each run by its
    number of rows has the variance of an unweighted mean over this many runs.

    Args:
        run: (rows,) number of each row's executed run.
    """
    counts = np.unique(run, return_counts=True)[1]
    return len(run) ** 2 / float((counts.astype(float) ** 2).sum())


def require(lacking: str | None) -> None:
    """Raise :class:`Refused` if ``lacking`` holds a reason."""
    if lacking is not None:
        raise Refused(lacking)


def few(study: Study, least: int, method: str) -> str | None:
    """Return why the rows are too few, or None if they are worth at least ``least`` independent ones.

    Args:
        study: the study; rows that share an executed run count as :func:`worth` says.
        least: fewest independent rows.
        method: name of the method, for the message.
    """
    count = len(study.y)
    if count < least:
        rows = "1 row is" if count == 1 else f"{count} rows are"
        return f"{rows} too few for {method}, which needs {least}"
    independent = worth(study.executed)
    if independent >= least:
        return None
    return (
        f"{count:,} rows share {study.executed.max() + 1:,} executed runs and are worth {independent:.0f} independent ones, "
        f"too few for {method}, which needs {least}: rows that differ only in what is inactive are one run "
        "(seeds: {policy: independent} gives each row its own)"
    )


def rows_of(run: IntArray, drawn: IntArray) -> IntArray:
    """Return the indices of all rows of the drawn runs, one run after the other.

    Args:
        run: (rows,) number of each row's executed run.
        drawn: (draws,) numbers of runs, possibly repeated.
    """
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
    d = n/2). Unlike a bootstrap, no half holds a point twice, which smooth estimators would take for structure.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    for _ in range(resamples):
        yield np.sort(rng.permutation(count)[: count // 2])


def normal_quantile(confidence: float) -> float:
    """Return the half-width of a normal interval of this confidence, in standard errors."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + confidence / 2))
