"""Proposals of settings by Optuna's samplers.

Every setting has a new sampler, seeded by the setting's number, so proposals depend only on the journal. A continuous axis
is searched in [0, 1], which the inverse distribution function of its factors maps to values. With ``search.failures: worst``,
a failed setting appears to be slightly worse than the worst finished one, so the sampler leaves the region of failures.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from palaestrai_mosaik.arsenai.design.decode import decode, keep
from palaestrai_mosaik.arsenai.design.distributions import INSIDE, bounded, middles, whole_numbers
from palaestrai_mosaik.arsenai.design.expressions import Expression
from palaestrai_mosaik.arsenai.design.growing import GrowingFolder, Setting
from palaestrai_mosaik.arsenai.design.model import INACTIVE, Axis, DesignSpec, SearchSampler, SearchSpec
from palaestrai_mosaik.arsenai.design.settings import RETRIES, SETTING
from palaestrai_mosaik.arsenai.execution.job import now
from palaestrai_mosaik.arsenai.execution.journal import Journal, optuna, quiet
from palaestrai_mosaik.core.errors import ExecutionError
from palaestrai_mosaik.core.installation import install_extra
from palaestrai_mosaik.core.seeding import integer_seed

from .settings import Trials, first_of, marked_settings, retried

#: distance of a failure to the worst finished setting, as a share of the range of finished ones
_MARGIN = 0.1


def shown_to_sampler(search: SearchSpec, journal: Journal) -> Any:
    """Return Optuna's storage as the sampler should see it."""
    if search.failures == "exclude":
        return journal.storage
    # NSGA-II remembers the parents of a generation, so failures must not vanish from it.
    return _Shown(journal, () if search.sampler == "nsgaii" else marked_settings(journal))


class _Shown:
    """The storage of ``journal``, with failed settings as complete ones."""

    def __init__(self, journal: Journal, marked: Collection[int]):
        self._storage, self._study, self._marked = journal.storage, journal.study, marked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[Any] | None = None
    ) -> list[Any]:
        """Return the trials, as Optuna's storages do."""
        trials = self._storage.get_all_trials(study_id, deepcopy=False)
        values = _worse_than_all(trials, [direction.name for direction in self._study.directions])
        visible = trials if values is None else _completed(trials, _failed(trials, self._marked), values)
        kept = visible if states is None else [trial for trial in visible if trial.state in states]
        return copy.deepcopy(kept) if deepcopy else kept


def _failed(trials: Sequence[Any], marked: Collection[int]) -> set[int]:
    """Return the failed settings and those that repeat one, except settings marked for another execution."""
    failed = {trial.number for trial in trials if trial.state.name == "FAIL"}
    return {number for number in failed if first_of(trials[number]) in failed and number not in marked}


def _worse_than_all(trials: Sequence[Any], directions: Sequence[str]) -> list[float] | None:
    """Return, for each objective, a value worse than all finished ones, or None if no setting has finished."""
    complete = [trial.values for trial in trials if trial.state.name == "COMPLETE"]
    if not complete:
        return None
    worst = []
    for column, direction in zip(zip(*complete, strict=True), directions, strict=True):
        low, high = min(column), max(column)
        margin = _MARGIN * ((high - low) or abs(high) or 1.0)
        worst.append(high + margin if direction == "MINIMIZE" else low - margin)
    return worst


def _completed(trials: Sequence[Any], failed: Collection[int], values: Sequence[float]) -> list[Any]:
    """Return the trials, with copies of failed ones that are complete and have these values."""
    copies = list(trials)
    for number in failed:
        copies[number] = copy.copy(trials[number])
        copies[number].state = optuna().trial.TrialState.COMPLETE
        copies[number].values = list(values)
    return copies


#: limits on rejected proposals for a setting: of the sampler, and of its replacements
_TRIES, _MORE = {"tpe": 10, "gp": 3}, 500
#: population size of NSGA-II, small because runs take long
_POPULATION = 20


def proposers(spec: DesignSpec, number: int) -> Iterator[tuple[Any, int]]:
    """Yield samplers for the setting ``number``, with limits on the number of proposals that constraints reject.

    TPE and Gaussian processes propose the best of many candidates, which may violate a constraint again and again,
    because they have no observations there. After them, points are drawn from the density of good settings, which
    satisfy it.
    """
    assert spec.search is not None
    name = spec.search.sampler
    yield make_sampler(spec, number), _TRIES.get(name, _MORE)
    if spec.constraints:
        if name in _TRIES:
            yield _sampler("tpe", spec, _seed(spec, number, "near"), n_ei_candidates=1), _MORE
        yield _sampler("random", spec, _seed(spec, number, "anywhere")), _MORE


def make_sampler(spec: DesignSpec, number: int) -> Any:
    """Build the sampler that proposes the setting ``number`` of the search ``spec``.

    Raises :class:`~palaestrai_mosaik.core.errors.ExecutionError` if a package that it needs is missing.
    """
    assert spec.search is not None
    return _sampler(spec.search.sampler, spec, _seed(spec, number))


def generation_of(trial: Any) -> dict[str, Any]:
    """Return a sampler's notes on the generation of a trial; empty for samplers without generations."""
    return {key: value for key, value in trial.system_attrs.items() if key.endswith("generation")}


def _seed(spec: DesignSpec, number: int, *path: str) -> int:
    # Optuna's numpy generators take 32 bits.
    return integer_seed(spec.seed, "search", number, *path) % 2**32


def _sampler(name: SearchSampler, spec: DesignSpec, seed: int, **options: Any) -> Any:
    samplers = optuna().samplers
    try:
        with quiet():
            if name == "random":
                return samplers.RandomSampler(seed=seed)
            if name == "nsgaii":
                return samplers.NSGAIISampler(seed=seed, population_size=_POPULATION)
            options |= {"seed": seed, "warn_independent_sampling": False}
            if name == "cmaes":
                return samplers.CmaEsSampler(**options)
            if name == "gp":
                # Optuna would import it only with a proposal, in the middle of a search.
                if find_spec("torch") is None:
                    raise ImportError("there is no torch")
                return samplers.GPSampler(**options)
            conditional = any(factor.when is not None for factor in spec.factors)
            grouped = {"multivariate": True, "group": True} if conditional else {}
            return samplers.TPESampler(**options, **grouped)
    except ImportError as error:
        extra = "rl" if name == "gp" else "search"
        raise ExecutionError(
            f"the sampler {name} needs a package: {install_extra(extra)} ({error})"
        ) from None


#: the coordinate of an inactive axis, which is never used
_NOWHERE = 0.5
#: largest number of whole numbers that are searched by their index
_FEW = 1000


class Proposal(NamedTuple):
    """A setting within the constraints: its Optuna parameters, its point, and the number of rejected predecessors."""

    params: dict[str, Any]
    unit: tuple[float, ...]
    rejected: int


class Space:
    """The axes of ``spec`` as Optuna searches them."""

    def __init__(self, spec: DesignSpec):
        self.spec = spec
        self.distributions = {axis.name: _distribution(axis) for axis in spec.axes}
        self._order = tuple(_in_order(spec))

    def propose(self, journal: Journal, number: int) -> Proposal:
        """Propose a setting for the trial ``number``.

        Raises :class:`~palaestrai_mosaik.core.errors.ExecutionError` if the constraints reject all proposals.
        """
        assert self.spec.search is not None
        rejected = 0
        storage = shown_to_sampler(self.spec.search, journal)
        for sampler, tries in proposers(self.spec, number):
            with quiet():
                # A new study, because studies cache the trials that they have seen.
                study = optuna().load_study(
                    study_name=journal.study.study_name, storage=storage, sampler=sampler
                )
                trial = journal.trial(number)
                sampler.before_trial(study, trial)
                for _ in range(tries):
                    params, unit = self._sample(study, sampler, trial)
                    if keep(self.spec, decode(self.spec, np.array([unit], dtype=np.float64))):
                        return Proposal(params, tuple(unit), rejected)
                    rejected += 1
        raise ExecutionError(
            f"the constraints reject {rejected:,} proposals in a row for setting {number}: "
            f"{'; '.join(self.spec.constraints)}"
        )

    def _sample(self, study: Any, sampler: Any, trial: Any) -> tuple[dict[str, Any], list[float]]:
        """Sample Optuna's parameters of the active axes, and the point."""
        together = sampler.infer_relative_search_space(study, trial)
        relative: Mapping[str, Any] = sampler.sample_relative(study, trial, together)
        unit = [_NOWHERE] * len(self.spec.axes)
        params: dict[str, Any] = {}
        for index in self._order:
            axis = self.spec.axes[index]
            if not self._is_active(axis, unit):
                continue
            distribution = self.distributions[axis.name]
            if axis.name in relative:
                value = relative[axis.name]
            else:
                value = sampler.sample_independent(study, trial, axis.name, distribution)
            params[axis.name] = value
            unit[index] = coordinate(axis, value)
        return params, unit

    def _is_active(self, axis: Axis, unit: Sequence[float]) -> bool:
        """Whether any factor of ``axis`` is active at a point, which must have the coordinates of the axes before."""
        if all(factor.when is None for factor in axis.factors):
            return True
        values = decode(self.spec, np.array([unit], dtype=np.float64))[0]
        return any(values[factor.name] is not INACTIVE for factor in axis.factors)


def coordinate(axis: Axis, value: Any) -> float:
    """Return the coordinate of an Optuna parameter on the axis, in [0, 1]."""
    if axis.levels is not None:
        return float(middles(axis)[int(value)])
    count = _count(axis)
    if count is not None:
        return (int(value) + 0.5) / count
    if all(bounded(factor) for factor in axis.factors):
        return float(value)
    return min(max(float(value), INSIDE), 1 - INSIDE)


def _distribution(axis: Axis) -> Any:
    """Return Optuna's distribution for the axis."""
    distributions = optuna().distributions
    if axis.levels is not None:
        if axis.nominal:
            return distributions.CategoricalDistribution(tuple(range(axis.levels)))
        return distributions.IntDistribution(0, axis.levels - 1)
    count = _count(axis)
    if count is not None:
        return distributions.IntDistribution(0, count - 1)
    return distributions.FloatDistribution(0.0, 1.0)


def _count(axis: Axis) -> int | None:
    """Return the number of whole numbers on the axis, if it is small and all have the same probability."""
    if any(factor.kind != "int" or factor.dist != "uniform" for factor in axis.factors):
        return None
    counts = {whole_numbers(factor) for factor in axis.factors}
    count = counts.pop()
    return None if counts or count is None or count > _FEW else count


def _needs(spec: DesignSpec) -> dict[int, set[int]]:
    """Return the axes that the conditions of each axis's factors depend on, by index."""
    axis_of = {factor.name: index for index, axis in enumerate(spec.axes) for factor in axis.factors}
    needs: dict[int, set[int]] = {}
    for index, axis in enumerate(spec.axes):
        conditions = [factor.when for factor in axis.factors if factor.when is not None]
        names = (name for when in conditions for name in Expression.parse(when, spec.factors).names)
        needs[index] = {axis_of[name] for name in names} - {index}
    return needs


def _in_order(spec: DesignSpec) -> Iterator[int]:
    """Yield the indices of the axes, each after the axes that its factors' conditions depend on."""
    needs = _needs(spec)
    left = list(needs)
    while left:
        free = [index for index in left if not needs[index] & set(left)]
        # Two zipped axes may depend on each other. Their order does not matter then.
        for index in free or left:
            yield index
            left = [other for other in left if other != index]


class Proposals:
    """Proposes the settings of a search; one process at a time may do so.

    Args:
        spec: the design of the search.
        journal: its journal.
        growing: its folder.
        worker: the name of this process in the journal.
    """

    def __init__(self, spec: DesignSpec, journal: Journal, growing: GrowingFolder, worker: str):
        self._spec, self._journal, self._growing, self._worker = spec, journal, growing, worker
        self._space = Space(spec)

    def propose(self, number: int) -> Setting:
        """Propose the setting of a new trial, and write it into the journal.

        Raises :class:`~palaestrai_mosaik.core.errors.ExecutionError` if constraints reject all proposals.
        """
        failed = self._to_retry(number)
        return self._propose_new(number) if failed is None else self._propose_again(number, failed)

    def _propose_new(self, number: int) -> Setting:
        proposal = self._space.propose(self._journal, number)
        values = self._growing.values(proposal.unit)
        hash_ = self._growing.expansion.row(values, number).hash("", 0)
        digest = self._growing.expansion.digest(values)
        name, first = self._seeds(number, hash_, digest)
        self._write_params(number, proposal.params)
        attributes = {
            "unit": list(proposal.unit),
            "name": list(name),
            "first": first,
            "hash": hash_,
            "values": digest,
            "rejected": proposal.rejected,
        }
        self._write_setting(number, attributes)
        return Setting(number, proposal.unit, name, first)

    def _seeds(self, number: int, hash_: str, digest: str) -> tuple[tuple[str | int, ...], int]:
        """Return the path of a setting's seeds, and the number of the first setting with the same documents."""
        trials = self._journal.trials()
        earlier = [trial.user_attrs.get(SETTING) for trial in trials[:number]]
        if self._spec.seed_policy == "common":
            # The outcome of a retried setting is that of its retry, so nothing repeats the failed one.
            out = retried(trials)
            hashes = [None if attrs is None or attrs["first"] in out else attrs["hash"] for attrs in earlier]
            return (), hashes.index(hash_) if hash_ in hashes else number
        same = (at for at, attrs in enumerate(earlier) if attrs is not None and attrs["values"] == digest)
        # A retry has the seeds of the failed setting, so it does not count.
        return ("row", digest, sum(RETRIES not in trials[at].user_attrs for at in same)), number

    def _to_retry(self, number: int) -> int | None:
        """Return the failed setting that the setting ``number`` retries, or None if the sampler proposes it."""
        trial = self._journal.trial(number)
        if RETRIES in trial.user_attrs:
            return int(trial.user_attrs[RETRIES])
        if trial.params or trial.system_attrs:
            # A process was killed while it wrote a proposal of the sampler.
            return None
        marked = marked_settings(self._journal)
        return next(iter(Trials(self._journal.trials(), marked).waiting), None) if marked else None

    def _propose_again(self, number: int, failed: int) -> Setting:
        """Propose a failed setting again, with the same seeds."""
        storage, id_ = self._journal.storage, self._journal.trial_id(number)
        # Written first, so that another process can continue after a kill.
        storage.set_trial_user_attr(id_, RETRIES, failed)
        trial = self._journal.trial(failed)
        for key, value in generation_of(trial).items():
            storage.set_trial_system_attr(id_, key, value)
        self._write_params(number, trial.params)
        attributes = trial.user_attrs[SETTING]
        self._write_setting(number, {**attributes, "first": number, "rejected": 0})
        return Setting(number, tuple(attributes["unit"]), tuple(attributes["name"]), number)

    def _write_params(self, number: int, params: Mapping[str, Any]) -> None:
        id_ = self._journal.trial_id(number)
        for axis, value in params.items():
            distribution = self._space.distributions[axis]
            internal = distribution.to_internal_repr(value)
            self._journal.storage.set_trial_param(id_, axis, internal, distribution)

    def _write_setting(self, number: int, attributes: Mapping[str, Any]) -> None:
        id_ = self._journal.trial_id(number)
        written = {**attributes, "worker": self._worker, "asked": now()}
        self._journal.storage.set_trial_user_attr(id_, SETTING, written)
