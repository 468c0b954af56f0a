"""Optuna's samplers by the names that designs use.

A new sampler is made for every setting, and seeded by the setting's number. So what it proposes depends on the journal
alone, and a search that was killed and goes on is the search that it would have been.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from palaestrai_mosaik.design.model import DesignSpec, SearchSampler
from palaestrai_mosaik.errors import ExecutionError
from palaestrai_mosaik.execution.journal import optuna, quiet
from palaestrai_mosaik.installation import install_extra
from palaestrai_mosaik.seeding import integer_seed

#: proposals in place of one setting that constraints may reject: of the sampler, and of what comes after it
_TRIES, _MORE = {"tpe": 10, "gp": 3}, 500
#: settings of a generation of NSGA-II: few, as a run takes long
_POPULATION = 20


def proposers(spec: DesignSpec, number: int) -> Iterator[tuple[Any, int]]:
    """Yield samplers for the setting ``number``, and how many proposals each may make that constraints reject.

    TPE and Gaussian processes propose the best of many candidates, which may lie beyond a constraint again and again: what
    they have seen there is nothing. Then points are drawn from the density of the good settings, which keep it.
    """
    assert spec.search is not None
    name = spec.search.sampler
    yield make_sampler(spec, number), _TRIES.get(name, _MORE)
    if spec.constraints:
        if name in _TRIES:
            yield _sampler("tpe", spec, _seed(spec, number, "near"), n_ei_candidates=1), _MORE
        yield _sampler("random", spec, _seed(spec, number, "anywhere")), _MORE


def make_sampler(spec: DesignSpec, number: int) -> Any:
    """Return the sampler that proposes the setting ``number`` of the search ``spec``.

    Raises :class:`~palaestrai_mosaik.errors.ExecutionError` where what it needs is not installed.
    """
    assert spec.search is not None
    return _sampler(spec.search.sampler, spec, _seed(spec, number))


def generation_of(trial: Any) -> dict[str, Any]:
    """Return what a sampler has noted of the generation of a trial: nothing, but for those that work in generations."""
    return {key: value for key, value in trial.system_attrs.items() if key.endswith("generation")}


def _seed(spec: DesignSpec, number: int, *path: str) -> int:
    # (numpy's generators of Optuna take 32 bits)
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
                # (Optuna imports it when it proposes, in the middle of a search)
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
