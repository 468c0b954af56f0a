"""Optuna's samplers by the names that designs use.

Every setting has a new sampler, seeded by the setting's number. Proposals therefore depend only on the journal, and a
resumed search continues as if it had not been interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from palaestrai_mosaik.arsenai.design.model import DesignSpec, SearchSampler
from palaestrai_mosaik.arsenai.execution.journal import optuna, quiet
from palaestrai_mosaik.core.errors import ExecutionError
from palaestrai_mosaik.core.installation import install_extra
from palaestrai_mosaik.core.seeding import integer_seed

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
            if name == "cmaes":
                return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
            if name == "gp":
                # Optuna would import it only with a proposal, in the middle of a search.
                if find_spec("torch") is None:
                    raise ImportError("there is no torch")
                return samplers.GPSampler(seed=seed, warn_independent_sampling=False)
            if name == "nsgaii":
                return samplers.NSGAIISampler(seed=seed, population_size=_POPULATION)
            conditional = any(factor.when is not None for factor in spec.factors)
            return samplers.TPESampler(
                seed=seed,
                multivariate=True if conditional else None,
                group=conditional,
                warn_independent_sampling=False,
                **options,
            )
    except ImportError as error:
        extra = "rl" if name == "gp" else "search"
        raise ExecutionError(
            f"the sampler {name} needs a package: {install_extra(extra)} ({error})"
        ) from None
