"""What a design says, once it is read, resolved and checked.

All classes are frozen; levels and parameters are plain data (strings, numbers, booleans,
``None``, lists, mappings) that nobody writes to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Final, Literal

from palaestrai_mosaik.errors import Problem
from palaestrai_mosaik.experiment.model import Place, join

Kind = Literal["float", "int", "levels"]
Distribution = Literal["uniform", "loguniform", "triangular", "normal", "lognormal"]
SeedPolicy = Literal["common", "independent"]
Fold = Literal["mean", "median", "sum", "min", "max", "first", "last"]
SearchSampler = Literal["tpe", "cmaes", "gp", "nsgaii", "random"]
Pruner = Literal["none", "halving", "hyperband", "median", "wilcoxon"]
Topic = Literal["environments", "agents", "simulation", "phase_config", "sensors", "actuators"]


class _Inactive(Enum):
    INACTIVE = "inactive"

    def __repr__(self) -> str:
        return "INACTIVE"


#: The value of a factor in a row in which its ``when`` is false: it sets nothing.
INACTIVE: Final = _Inactive.INACTIVE


@dataclass(frozen=True, slots=True)
class Choice:
    """What a factor of the schedule chooses: one of the alternatives of a phase's ``topic``.

    ``phase`` is the phase's index; ``agent`` the key of the agent among the definitions, for
    ``sensors`` and ``actuators``.
    """

    phase: int
    topic: Topic
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Factor:
    """One thing that a design varies.

    It either sets the value at ``path`` of the run document, or is a ``choice`` of the
    schedule. ``kind`` is ``"levels"`` where it has ``levels`` (plain data; for a choice the
    alternatives as written), else the factor is continuous from ``low`` to ``high``
    (``None``: unbounded) with the distribution ``dist`` and its parameters (``mean``, ``std``,
    ``mode``), rounded to whole numbers for ``"int"`` (each with the same share for
    ``uniform``; ``high`` included). ``labels`` name the levels in tables, one each and no
    two alike; ``weights`` are positive and sum to 1. ``ordered`` levels may be treated as
    having a distance. ``create`` lets ``path`` make the last key. ``when`` is an expression
    over the other factors; where it is false the factor is inactive and sets nothing.
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

    @property
    def nominal(self) -> bool:
        """Whether the levels have no order, so that no distance between them means anything."""
        return self.kind == "levels" and not self.ordered


@dataclass(frozen=True, slots=True)
class Axis:
    """One coordinate of the unit cube: a factor, or several that are zipped and vary as one."""

    name: str
    factors: tuple[Factor, ...]
    group: str | None = None

    @property
    def nominal(self) -> bool:
        """Whether the order of the coordinate means nothing."""
        return any(factor.nominal for factor in self.factors)

    @property
    def levels(self) -> int | None:
        """The number of levels, ``None`` where the coordinate is continuous."""
        counts = {len(factor.levels) for factor in self.factors if factor.kind == "levels"}
        return counts.pop() if counts else None


@dataclass(frozen=True, slots=True)
class SamplerSpec:
    """The sampler's ``name`` (canonical), its size ``n`` and its other ``options``."""

    name: str
    n: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a search may spend; the first limit that is reached ends it. ``None``: no limit of this kind.

    ``runs``: runs of settings, those with other seeds included; ``steps``: steps of environments in them;
    ``hours`` in which runs are executed.
    """

    runs: int | None = None
    steps: int | None = None
    hours: float | None = None


@dataclass(frozen=True, slots=True)
class SearchSpec:
    """How a design looks for its best settings.

    ``sampler`` proposes settings; each is executed with ``seeds`` seeds, unless ``prune`` stops it early. The means of
    the outcomes ``objectives`` are what is sought. The best few settings are then executed with ``confirm`` seeds that
    the search has not used (0: they are not).
    """

    sampler: SearchSampler
    budget: Budget
    seeds: int
    prune: Pruner
    objectives: tuple[str, ...]
    confirm: int


@dataclass(frozen=True, slots=True)
class OutcomeSpec:
    """One number per run, taken from its results.

    ``of``: ``objective``, ``reward.NAME``, ``reading.ID``, ``setpoint.ID`` (an id, or a shell
    pattern whose matches are taken together), ``statistic.NAME`` or ``steps``. ``phase``: index
    or name, ``None``: the last. ``agent``: ``None`` where the phase has one agent only, or the
    outcome does not belong to an agent. ``step`` folds the steps of an episode, ``episode`` the
    episodes and workers. ``outside``: a band; the value of a step is then how far it lies
    outside (0 inside). ``evaluation``: evaluation episodes instead of training ones.
    ``better``: which direction is good, ``None``: not said.
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
    """Which decision is to be good in which scenarios.

    ``by``: factors of the decision, empty: those that are compared. ``over``: factors, or axes, that make the
    scenarios, empty: all others. ``satisfice``: conditions on outcomes; it counts in how many scenarios each holds.
    """

    by: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    satisfice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnalysisSpec:
    """How results are looked at.

    ``methods``: sensitivity methods, empty: those that fit the sampler. ``compare``: the factor
    (or factors) whose levels are compared, empty: all choices and other nominal factors where
    the design is no sensitivity sample. ``baseline``: the label that others are compared with
    (``None``: all pairs). ``confidence`` of intervals, ``resamples`` of bootstraps. ``discover``:
    conditions on outcomes; boxes of factors are looked for in which they hold. ``robustness``: of decisions over
    scenarios, ``None``: it is not asked for.
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
    """One sound design document.

    ``base`` is the run document that is varied, as plain data without ``uid`` and ``seed``
    where it was given as such; for arsenAI's form it is ``None`` and ``definitions`` and
    ``schedule`` are as written. ``axes`` are the coordinates of the sample, in order; their
    factors are ``factors``. ``constraints`` are expressions over factors; a row in which
    one is false is rejected. ``resolved`` is the whole design as plain data: parents merged,
    the base inlined, defaults written out, keys in a fixed order; itself loadable. ``hash``, the
    design's identity, is the SHA-256 (hex) of the canonical JSON of that without ``output`` and
    ``execution``, and of the order of the axes. A design with a ``search`` has no sample: its rows are the settings
    that the search tries, and ``repetitions`` is the number of seeds of each. How much it may spend, and how it is
    confirmed, is no part of its identity: a search may go on with more. The same is true for ``until`` of the sampler.
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

    @property
    def factors(self) -> tuple[Factor, ...]:
        """All factors, in the order of the axes."""
        return tuple(factor for axis in self.axes for factor in axis.factors)

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups, in order of their first axis; empty without groups."""
        return tuple(dict.fromkeys(axis.group for axis in self.axes if axis.group is not None))

    def factor(self, name: str) -> Factor:
        """Return the factor ``name``. Raises ``KeyError``."""
        for factor in self.factors:
            if factor.name == name:
                return factor
        raise KeyError(name)

    def outcome(self, name: str) -> OutcomeSpec:
        """Return the outcome ``name``. Raises ``KeyError``."""
        for outcome in self.outcomes:
            if outcome.name == name:
                return outcome
        raise KeyError(name)

    def problem(self, message: str, *place: str | int) -> Problem:
        """Return a problem at ``place`` of the document as written: ``("factors", 0, "low")``."""
        line = None
        for length in range(len(place), 0, -1):
            line = self.lines.get(join(place[:length]))
            if line is not None:
                break
        written: Place = place
        return Problem(message, join(written), self.source, line)


# --- as plain data ------------------------------------------------------------------------

#: keys that do not identify the design: where and how its runs are made
_NO_IDENTITY = ("output", "execution")
#: keys of the search that do not identify it: how far it goes
_NO_IDENTITY_OF_SEARCH = ("budget", "confirm")
#: the option of samplers that says how far they go
NO_IDENTITY_OF_SAMPLER = "until"


def resolved(spec: DesignSpec, execution: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the design as plain data, itself loadable: one spelling, defaults written out."""
    whole: dict[str, Any] = {
        "uid": spec.uid,
        "seed": spec.seed,
        "version": spec.version,
    }
    if spec.search is None:
        whole |= {"repetitions": spec.repetitions, "max_runs": spec.max_runs}
    whole["output"] = spec.output
    if spec.base is not None:
        whole["base"] = dict(spec.base)
    else:
        whole["definitions"] = spec.definitions
        whole["schedule"] = list(spec.schedule)
    whole |= {
        "factors": [_plain_factor(factor) for factor in spec.factors if factor.choice is None],
        "zip": {axis.name: [one.name for one in axis.factors] for axis in spec.axes if len(axis.factors) > 1},
        "groups": {group: _members(spec, group) for group in spec.groups},
        "constraints": list(spec.constraints),
    }
    if spec.search is None:
        whole["sampler"] = {"name": spec.sampler.name, "n": spec.sampler.n, **spec.sampler.options}
    else:
        whole["search"] = _plain_search(spec.search)
    whole |= {
        "seeds": {"policy": spec.seed_policy},
        "outcomes": {one.name: _plain_outcome(asdict(one)) for one in spec.outcomes},
        "analysis": _plain_analysis(spec.analysis),
        "execution": dict(execution) if execution is not None else None,
    }
    return whole


def identity(spec: DesignSpec, whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the hash of the design ``whole`` (resolved) is made of.

    The order of the axes belongs to it, as the sample does; the canonical form of a mapping has none.
    """
    kept = {key: value for key, value in whole.items() if key not in _NO_IDENTITY}
    if "sampler" in kept:
        sampler = whole["sampler"].items()
        kept["sampler"] = {key: value for key, value in sampler if key != NO_IDENTITY_OF_SAMPLER}
    if spec.search is not None:
        search = whole["search"].items()
        kept["search"] = {key: value for key, value in search if key not in _NO_IDENTITY_OF_SEARCH}
    return kept | {"axes": [axis.name for axis in spec.axes]}


def _plain_analysis(analysis: AnalysisSpec) -> dict[str, Any]:
    plain: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in asdict(analysis).items()
    }
    # what says nothing does not change the hash, which designs had before there were these keys
    if not analysis.discover:
        del plain["discover"]
    if analysis.robustness is None:
        del plain["robustness"]
    else:
        plain["robustness"] = {name: list(value) for name, value in asdict(analysis.robustness).items()}
    return plain


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
        whole = factor.kind == "int"
        entry |= {
            "type": factor.kind,
            "low": _plain_end(factor.low, whole),
            "high": _plain_end(factor.high, whole),
        }
        entry |= {"dist": factor.dist, **factor.params}
    return entry | {"create": factor.create, "when": factor.when}


def _plain_search(search: SearchSpec) -> dict[str, Any]:
    return {
        "sampler": search.sampler,
        "budget": {key: value for key, value in asdict(search.budget).items() if value is not None},
        "seeds_per_setting": search.seeds,
        "prune": search.prune,
        "objectives": list(search.objectives),
        "confirm": search.confirm,
    }


def _plain_end(value: float | None, whole: bool) -> float | int | None:
    return int(value) if whole and value is not None else value


def _members(spec: DesignSpec, group: str) -> list[str]:
    axes: list[Axis] = [axis for axis in spec.axes if axis.group == group]
    return [factor.name for axis in axes for factor in axis.factors]


def _plain_outcome(entry: dict[str, Any]) -> dict[str, Any]:
    del entry["name"]
    if entry["outside"] is not None:
        entry["outside"] = list(entry["outside"])
    return entry
