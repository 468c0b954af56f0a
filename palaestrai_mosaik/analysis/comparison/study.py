"""The runs of a generated design become comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.analysis.results import Results, labels
from palaestrai_mosaik.design.model import INACTIVE, Axis, DesignSpec, Factor
from palaestrai_mosaik.errors import PalaestraiMosaikError, did_you_mean

from .compare import Comparison, compare
from .options import ComparisonOptions, Normalise
from .runs import MOST_LEVELS

if TYPE_CHECKING:
    import pandas as pd

# samplers whose points are those of a sensitivity analysis: no setting occurs with two levels
_SENSITIVITY = ("sobol", "morris", "fast", "finite_differences")


def compare_design(
    results: Results,
    by: Sequence[str] = (),
    baseline: str | None = None,
    outcomes: Sequence[str] = (),
    normalise: Normalise = "none",
) -> list[Comparison]:
    """Compare what a design varies: one comparison per outcome and entry to compare by.

    ``by``: factors whose combinations are compared; empty: those of the design's ``analysis.compare``;
    if that is empty too, every choice and nominal factor on its own (none for the sample of a
    sensitivity analysis). ``baseline``: a label (default: the design's); where several factors are
    compared on their own, it is that of those which have it. ``outcomes``: names, empty: all. Raises
    ``PalaestraiMosaikError`` for names that are not there, and where there is nothing to compare.
    """
    spec = results.spec
    families = _families(spec, by)
    specs = {outcome.name: outcome for outcome in results.outcome_specs}
    for name in outcomes:
        if name not in specs:
            raise PalaestraiMosaikError(
                f"no outcome {name!r}{did_you_mean(name, specs)}; there are {', '.join(specs)}"
            )
    baseline = baseline if baseline is not None else spec.analysis.baseline
    baselines = [_baseline(spec, family, baseline) for family in families]
    if baseline is not None and not any(baselines):
        labels = [label for family in families for name in family for label in spec.factor(name).labels]
        raise PalaestraiMosaikError(
            f"baseline {baseline!r} is no level of what is compared{did_you_mean(baseline, labels)}; "
            f"these are {', '.join(dict.fromkeys(labels))}"
        )
    outcome_frame = results.outcomes()
    values = results.folder.values()
    frames = [_with_factors(outcome_frame, spec, values, family) for family in families]
    found = []
    for name in outcomes or specs:
        for family, own, frame in zip(families, baselines, frames, strict=True):
            options = ComparisonOptions(
                better=specs[name].better,
                baseline=own,
                common_seeds=spec.seed_policy == "common",
                normalise=normalise,
                confidence=spec.analysis.confidence,
                resamples=spec.analysis.resamples,
                seed=spec.seed,
            )
            one = compare(
                frame, family, name, [axis.factors[0].name for axis in _others(spec, family)], options
            )
            together = _zipped(spec, family)
            if together:
                said = f"varies together with {', '.join(together)}: what differs may be due to either"
                one = replace(one, warnings=(*one.warnings, said))
            found.append(one)
    return found


def _families(spec: DesignSpec, by: Sequence[str]) -> list[tuple[str, ...]]:
    named = tuple(dict.fromkeys(by or spec.analysis.compare))
    known = [factor.name for factor in spec.factors]
    for name in named:
        if name not in known:
            raise PalaestraiMosaikError(
                f"no factor {name!r} in the design{did_you_mean(name, known)}; there are {', '.join(known)}"
            )
    if named:
        return [named]
    nominal = [factor for factor in spec.factors if factor.nominal and 1 < len(factor.levels) <= MOST_LEVELS]
    if not nominal or spec.sampler.name in _SENSITIVITY:
        why = (
            f"the sampler {spec.sampler.name!r} serves a sensitivity analysis (arsenai analyse)"
            if nominal
            else "no factor is a choice or has levels without order"
        )
        raise PalaestraiMosaikError(
            f"nothing to compare by itself: {why}; name a factor under "
            "analysis.compare of the design, or on the command line: arsenai compare --by FACTOR"
        )
    return [(factor.name,) for factor in nominal]


def _baseline(spec: DesignSpec, family: Sequence[str], baseline: str | None) -> str | None:
    """Return the baseline where it is one of the family's."""
    return baseline if any(baseline in spec.factor(name).labels for name in family) else None


def _others(spec: DesignSpec, family: Sequence[str]) -> list[Axis]:
    """Return the axes of what varies beside the family."""
    return [axis for axis in spec.axes if not any(factor.name in family for factor in axis.factors)]


def _zipped(spec: DesignSpec, family: Sequence[str]) -> list[str]:
    """Return the factors that are zipped with those of the family."""
    axes = [axis.factors for axis in spec.axes if any(factor.name in family for factor in axis.factors)]
    return [factor.name for factors in axes for factor in factors if factor.name not in family]


def _with_factors(
    outcomes: pd.DataFrame, spec: DesignSpec, values: Sequence[dict[str, Any]], family: Sequence[str]
) -> pd.DataFrame:
    """Return the runs with a column per factor of the family, and one per other axis.

    The latter is named after the axis's first factor: zipped factors are one setting.
    """
    import pandas as pd

    runs = outcomes.copy()
    for factor in map(spec.factor, family):
        told = labels((factor,), values)
        levels = factor.labels or _numbers(factor, values)
        runs[factor.name] = pd.Categorical([told[row] for row in runs["row"]], categories=list(levels))
    for axis in _others(spec, family):
        told = labels(axis.factors, values)
        runs[axis.factors[0].name] = [told[row] for row in runs["row"]]
    return runs


def _numbers(factor: Factor, values: Sequence[dict[str, Any]]) -> list[str]:
    """Return the numbers that a factor without levels takes, from the smallest to the largest."""
    return [str(value) for value in sorted({row[factor.name] for row in values} - {INACTIVE})]
