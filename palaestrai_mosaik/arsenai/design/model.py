"""The contents of a design, after it has been read, resolved and checked, and their description as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from html import escape
from typing import Any, Final, Literal, NamedTuple

from palaestrai_mosaik.core.errors import Problem, did_you_mean
from palaestrai_mosaik.core.printing import count, listed
from palaestrai_mosaik.experiment.model import Place, join, nearest_line

Kind = Literal["float", "int", "levels"]
Distribution = Literal["uniform", "loguniform", "triangular", "normal", "lognormal"]
SeedPolicy = Literal["common", "independent"]
Fold = Literal["mean", "median", "sum", "min", "max", "first", "last"]
SearchSampler = Literal["tpe", "cmaes", "gp", "nsgaii", "random"]
Failures = Literal["worst", "exclude"]
Pruner = Literal["none", "halving", "hyperband", "median", "wilcoxon"]
Topic = Literal["environments", "agents", "simulation", "phase_config", "sensors", "actuators"]


class _Inactive(Enum):
    INACTIVE = "inactive"

    def __repr__(self) -> str:
        return "INACTIVE"


#: Value of a factor in a row in which its ``when`` is false: it sets nothing.
INACTIVE: Final = _Inactive.INACTIVE


def is_number(value: Any) -> bool:
    """Return whether ``value`` is an int or a float, but no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


class Choice(NamedTuple):
    """The part of the schedule that a factor chooses: one alternative of a phase's ``topic``.

    Attributes:
        phase: index of the phase.
        topic: the topic.
        agent: key of the agent in the definitions, for ``sensors`` and ``actuators``.
    """

    phase: int
    topic: Topic
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Factor:
    """One variable of a design.

    A factor either sets the value at ``path`` of the run document, or is a ``choice`` of the schedule.

    Attributes:
        name: unique name.
        kind: ``"levels"`` for a factor with levels, else ``"float"`` or ``"int"``. An ``"int"`` takes whole numbers
            from ``low`` to ``high``, both included, with the same width for each; see ``distributions``.
        path: path in the run document, None for a choice.
        choice: choice of the schedule, None for a path.
        low: smallest value of a continuous factor, None if it is unbounded.
        high: largest value of a continuous factor, None if it is unbounded.
        dist: distribution of a continuous factor.
        params: parameters of the distribution: ``mean``, ``std``, ``mode``.
        levels: levels as plain data; for a choice, the alternatives as written.
        labels: unique names of the levels in tables.
        weights: positive weights of the levels, which sum to 1.
        ordered: whether distances between levels are meaningful.
        create: whether ``path`` may create its last key, and the ``params`` of a class that hold it.
        when: expression over other factors; if it is false, the factor is inactive and sets nothing.
        uncertain: whether the factor cannot be chosen, so that no value of it is recommended.
    """

    name: str
    kind: Kind
    path: str | None = None
    choice: Choice | None = None
    low: float | None = None
    high: float | None = None
    dist: Distribution = "uniform"
    params: Mapping[str, float] = field(default_factory=dict)
    levels: tuple[Any, ...] = ()
    labels: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    ordered: bool = False
    create: bool = False
    when: str | None = None
    uncertain: bool = False

    @property
    def nominal(self) -> bool:
        """Whether the levels have no order, so that distances between them are meaningless."""
        return self.kind == "levels" and not self.ordered

    @property
    def row_levels(self) -> tuple[Any, ...]:
        """The levels as rows hold them: the labels of a choice, else the levels themselves."""
        return self.levels if self.choice is None else self.labels


def did_you_mean_factor(name: str, factors: Sequence[Factor]) -> str:
    """Return a hint with the nearest factor's name and all names, for a message."""
    names = [factor.name for factor in factors]
    return f"{did_you_mean(name, names)}; factors: {', '.join(names) or 'none'}"


@dataclass(frozen=True, slots=True)
class Axis:
    """One coordinate of the unit cube: a factor, or several zipped factors that vary as one."""

    name: str
    factors: tuple[Factor, ...]
    group: str | None = None

    @property
    def nominal(self) -> bool:
        """Whether the order of the coordinate is meaningless."""
        return any(factor.nominal for factor in self.factors)

    @property
    def levels(self) -> int | None:
        """The number of levels, or None if the coordinate is continuous."""
        counts = {len(factor.levels) for factor in self.factors if factor.kind == "levels"}
        return counts.pop() if counts else None


@dataclass(frozen=True, slots=True)
class SamplerSpec:
    """A sampler's canonical ``name``, its size ``n`` and its other ``options``."""

    name: str
    n: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a search; it ends at the first limit that it reaches. None means no limit.

    Attributes:
        runs: number of runs of settings, over all seeds.
        steps: number of steps of environments in these runs.
        hours: execution time in hours.
    """

    runs: int | None = None
    steps: int | None = None
    hours: float | None = None


@dataclass(frozen=True, slots=True)
class SearchSpec:
    """A design's search for the best settings.

    Attributes:
        sampler: algorithm that proposes settings.
        budget: limits of the search.
        seeds: number of seeds that each setting is executed with, unless it is pruned.
        prune: algorithm that stops settings early.
        objectives: outcomes to optimise, in the mean over the seeds.
        confirm: number of new seeds that the best few settings are confirmed with; 0 confirms none.
        failures: whether the sampler sees a failed setting as the worst of all, or does not see it.
        confirm_pruned: number of pruned settings to confirm, too.
    """

    sampler: SearchSampler
    budget: Budget
    seeds: int
    prune: Pruner
    objectives: tuple[str, ...]
    confirm: int
    failures: Failures = "worst"
    confirm_pruned: int = 0


@dataclass(frozen=True, slots=True)
class OutcomeSpec:
    """One number per run, computed from its results.

    Attributes:
        name: unique name.
        of: ``objective``, ``reward.NAME``, ``reading.ID``, ``setpoint.ID``, ``statistic.NAME`` or ``steps``. An id may
            be a shell pattern; its matches are combined.
        phase: index or name of the phase, None for the last.
        agent: name of the agent; None if the phase has only one, or the outcome belongs to no agent.
        step: fold over the steps of an episode.
        episode: fold over episodes and workers.
        outside: a band; each step's value is then its distance from the band, 0 inside.
        evaluation: whether to use evaluation episodes instead of training episodes.
        better: which direction is good, None if not specified.
    """

    name: str
    of: str
    phase: int | str | None = None
    agent: str | None = None
    step: Fold = "sum"
    episode: Fold = "mean"
    outside: tuple[float, float] | None = None
    evaluation: bool = False
    better: Literal["higher", "lower"] | None = None


@dataclass(frozen=True, slots=True)
class RobustnessSpec:
    """An analysis of how good decisions are over scenarios.

    Attributes:
        by: factors of the decision; empty for the compared ones.
        over: factors, or axes, of the scenarios; empty for all others.
        satisfice: conditions on outcomes; the analysis counts the scenarios in which each holds.
    """

    by: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    satisfice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnalysisSpec:
    """The analysis of a design's results.

    Attributes:
        methods: sensitivity methods; empty for those that support the sampler.
        compare: factors to compare the levels of; empty for all choices and other nominal factors, unless the design is
            a sensitivity sample.
        baseline: label that others are compared with; None compares all pairs.
        confidence: confidence of intervals.
        resamples: number of bootstrap resamples.
        discover: conditions on outcomes; for each, the analysis searches boxes of factors in which it holds.
        robustness: analysis of decisions over scenarios, or None.
    """

    methods: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()
    baseline: str | None = None
    confidence: float = 0.95
    resamples: int = 1000
    discover: tuple[str, ...] = ()
    robustness: RobustnessSpec | None = None


@dataclass(frozen=True)
class DesignSpec:
    """One valid design document.

    A design with a ``search`` has no sample: its rows are the settings that the search tries, and ``repetitions`` is
    the number of seeds of each.

    Attributes:
        uid: unique name of the design, which the uids of its runs begin with.
        seed: seed of the sample and of the runs' seeds.
        version: version of the run documents.
        repetitions: number of runs of each row, each with another seed.
        max_runs: largest number of rows of a factorial, None for no limit.
        output: folder for the design's folder, None for the default.
        base: run document to vary, as plain data without ``uid`` and ``seed``; None for arsenAI's form.
        definitions: definitions of arsenAI's form, as written.
        schedule: schedule of arsenAI's form, as written.
        axes: coordinates of the sample, in order; their factors are ``factors``.
        constraints: expressions over factors; rows in which one is false are rejected.
        sampler: sampler of the rows.
        seed_policy: ``"common"`` if all rows have the same seeds, ``"independent"`` if each has its own.
        outcomes: numbers to compute from the results of each run.
        analysis: analysis of the outcomes.
        resolved: the whole design as plain data, which can be loaded again: parents merged, the base inlined, defaults
            written out, keys in a fixed order.
        hash: identity of the design: the SHA-256 (hex) of the canonical JSON of ``resolved`` and of the order of the
            axes. It does not include ``output``, ``execution``, the sampler's ``until``, or the budget and confirmation
            of a search, so that a search or a sample can be continued with more.
        search: search for the best settings, None for a design with a sample.
        source: name of the document in messages.
        warnings: warnings about the document.
        lines: number of the line of each path in the document.
        places: place of each factor of the section ``factors`` in the document, by name.
    """

    uid: str
    seed: int
    version: str
    repetitions: int
    max_runs: int | None
    output: str | None
    base: Mapping[str, Any] | None
    definitions: Mapping[str, Any] | None
    schedule: tuple[Any, ...]
    axes: tuple[Axis, ...]
    constraints: tuple[str, ...]
    sampler: SamplerSpec
    seed_policy: SeedPolicy
    outcomes: tuple[OutcomeSpec, ...]
    analysis: AnalysisSpec
    resolved: Mapping[str, Any] = field(repr=False)
    search: SearchSpec | None = None
    hash: str = ""
    source: str = ""
    warnings: tuple[Problem, ...] = field(default=(), compare=False)
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    places: Mapping[str, Place] = field(default_factory=dict, repr=False, compare=False)

    @property
    def factors(self) -> tuple[Factor, ...]:
        """All factors, in the order of the axes."""
        return tuple(factor for axis in self.axes for factor in axis.factors)

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups, in order of their first axis; empty without groups."""
        return tuple(dict.fromkeys(axis.group for axis in self.axes if axis.group is not None))

    def factor(self, name: str) -> Factor:
        """Return the factor ``name``.

        Args:
            name: name of a factor, not of an axis.

        Raises:
            KeyError: there is no such factor.
        """
        return {factor.name: factor for factor in self.factors}[name]

    def outcome(self, name: str) -> OutcomeSpec:
        """Return the outcome ``name``.

        Args:
            name: name of an outcome.

        Raises:
            KeyError: there is no such outcome.
        """
        return {outcome.name: outcome for outcome in self.outcomes}[name]

    def written_at(self, path: Place) -> Place:
        """Return where ``path`` stands in the document; factors of a list are found by name.

        Args:
            path: keys and indices, such as ``"factors", "gain", "low"``.
        """
        factor = self.places.get(str(path[1])) if len(path) > 1 and path[0] == "factors" else None
        return path if factor is None else (*factor, *path[2:])

    def problem(self, message: str, *path: str | int) -> Problem:
        """Build a problem of the design, for messages.

        Args:
            message: the problem.
            path: keys and indices in the document as written, such as ``"factors", 0, "low"``.

        Returns:
            The problem, with the file and the line of the path, or of the nearest part above it.
        """
        return Problem(message, join(path), self.source, nearest_line(self.lines, self.written_at(path)))


# --- as plain data ------------------------------------------------------------------------

#: keys that are no part of a design's identity: its folder, and how runs are executed
_NO_IDENTITY = ("output", "execution")
#: option of samplers that is no part of a design's identity: how far they go
NO_IDENTITY_OF_SAMPLER = "until"
#: keys of sections that are no part of a design's identity: how far a sample or a search goes
_NO_IDENTITY_IN = {"sampler": (NO_IDENTITY_OF_SAMPLER,), "search": ("budget", "confirm", "confirm_pruned")}


def resolved(spec: DesignSpec, execution: Mapping[str, Any] | None) -> dict[str, Any]:
    """Convert the design to plain data that can be loaded again, in canonical spelling, with defaults written out."""
    search = spec.search
    rows = {"repetitions": spec.repetitions, "max_runs": spec.max_runs} if search is None else {}
    if spec.base is not None:
        documents: dict[str, Any] = {"base": dict(spec.base)}
    else:
        documents = {"definitions": spec.definitions, "schedule": list(spec.schedule)}
    if search is not None:
        sampling: dict[str, Any] = {"search": _plain_search(search)}
    else:
        sampling = {"sampler": {"name": spec.sampler.name, "n": spec.sampler.n, **spec.sampler.options}}
    return {
        "uid": spec.uid,
        "seed": spec.seed,
        "version": spec.version,
        **rows,
        "output": spec.output,
        **documents,
        **_plain_axes(spec),
        "constraints": list(spec.constraints),
        **sampling,
        "seeds": {"policy": spec.seed_policy},
        "outcomes": {outcome.name: _plain_outcome(outcome) for outcome in spec.outcomes},
        "analysis": _plain_analysis(spec.analysis),
        "execution": dict(execution) if execution is not None else None,
    }


def identity(spec: DesignSpec, whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of the resolved design ``whole`` that its hash is computed from.

    They include the order of the axes, because the sample depends on it; the canonical form of a mapping has no order.
    """
    kept = {key: value for key, value in whole.items() if key not in _NO_IDENTITY}
    for section, keys in _NO_IDENTITY_IN.items():
        if section in kept:
            kept[section] = {key: value for key, value in kept[section].items() if key not in keys}
    return kept | {"axes": [axis.name for axis in spec.axes]}


def _plain(entry: Any) -> dict[str, Any]:
    """Convert a part of a design to plain data."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(entry).items()}


def _plain_analysis(analysis: AnalysisSpec) -> dict[str, Any]:
    plain = _plain(analysis)
    plain["robustness"] = analysis.robustness and _plain(analysis.robustness)
    # empty values are left out, so that designs without these keys keep their hash
    return {name: value for name, value in plain.items() if value or name not in ("discover", "robustness")}


def _plain_outcome(outcome: OutcomeSpec) -> dict[str, Any]:
    return {name: value for name, value in _plain(outcome).items() if name != "name"}


def _plain_axes(spec: DesignSpec) -> dict[str, Any]:
    names = {axis.name: [factor.name for factor in axis.factors] for axis in spec.axes}
    groups: dict[str, list[str]] = {group: [] for group in spec.groups}
    for axis in spec.axes:
        if axis.group is not None:
            groups[axis.group] += names[axis.name]
    return {
        "factors": [_plain_factor(factor) for factor in spec.factors if factor.choice is None],
        "zip": {axis: factors for axis, factors in names.items() if len(factors) > 1},
        "groups": groups,
    }


def _plain_factor(factor: Factor) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": factor.name, "path": factor.path}
    if factor.kind == "levels":
        entry |= {
            "levels": list(factor.levels),
            "labels": list(factor.labels),
            "weights": list(factor.weights),
            "ordered": factor.ordered,
        }
    else:
        ends = {"low": factor.low, "high": factor.high}
        if factor.kind == "int":
            ends = {word: None if end is None else int(end) for word, end in ends.items()}
        entry |= {"type": factor.kind, **ends, "dist": factor.dist, **factor.params}
    entry |= {"create": factor.create, "when": factor.when}
    # designs without the key keep their hash
    return entry | ({"uncertain": True} if factor.uncertain else {})


def _plain_search(search: SearchSpec) -> dict[str, Any]:
    return {
        "sampler": search.sampler,
        "budget": {key: value for key, value in asdict(search.budget).items() if value is not None},
        "seeds_per_setting": search.seeds,
        "prune": search.prune,
        "objectives": list(search.objectives),
        "confirm": search.confirm,
        "confirm_pruned": search.confirm_pruned,
        "failures": search.failures,
    }


#: largest number of levels listed per factor
_LEVELS = 8


def described(spec: DesignSpec, more: str = "") -> str:
    """Format a design as HTML; ``more`` is another line about it, which is escaped."""
    sampler = spec.sampler.name if spec.sampler.n is None else f"{spec.sampler.name}, n {spec.sampler.n:,}"
    facts = f"sampler {sampler}, {count(spec.repetitions, 'repetition')}, seeds {spec.seed_policy}"
    rows = "".join(_rows(spec))
    outcomes = [
        f"{outcome.name}{f' ({outcome.better} is better)' if outcome.better else ''}"
        for outcome in spec.outcomes
    ]
    return (
        f"<p><b>{escape(spec.uid)}</b></p>"
        f"{f'<p>{escape(more)}</p>' if more else ''}<p>{escape(facts)}</p>"
        f"<table><thead><tr><th>factor</th><th>values</th><th>active when</th></tr></thead><tbody>{rows}</tbody></table>"
        f"{f'<p>Outcomes: {escape(listed(outcomes, len(outcomes)))}</p>' if outcomes else ''}"
    )


def _rows(spec: DesignSpec) -> Iterator[str]:
    for factor in spec.factors:
        cells = (factor.name, values_of(factor), factor.when or "")
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def values_of(factor: Factor) -> str:
    """Describe the possible values of a factor: its levels, or its range and distribution."""
    if factor.kind == "levels":
        return listed(factor.labels, _LEVELS)
    ends = "" if factor.low is None or factor.high is None else f" from {factor.low:g} to {factor.high:g}"
    kind = "whole numbers" if factor.kind == "int" else "numbers"
    params = "".join(f", {name} {value:g}" for name, value in factor.params.items())
    return f"{kind}{ends}" + ("" if factor.dist == "uniform" else f", {factor.dist}") + params
