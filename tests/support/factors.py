"""Designs made of nothing but factors, for what needs no run document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaestrai_mosaik.design.model import AnalysisSpec, Axis, DesignSpec, Factor, SamplerSpec


def number(name: str = "x", low: float | None = 0.0, high: float | None = 1.0, **more: Any) -> Factor:
    """Return a continuous factor, or with ``kind="int"`` one of whole numbers."""
    return Factor(name, more.pop("kind", "float"), path=name, low=low, high=high, **more)


def levels(name: str, *values: Any, **more: Any) -> Factor:
    """Return a factor with levels."""
    weights = more.pop("weights", (1 / len(values),) * len(values))
    labels = more.pop("labels", tuple(str(value) for value in values))
    return Factor(name, "levels", path=name, levels=values, labels=labels, weights=weights, **more)


def design(
    factors: Sequence[Factor | Axis],
    sampler: str = "factorial",
    n: int | None = None,
    options: Mapping[str, Any] | None = None,
    groups: Mapping[str, str] | None = None,
    **more: Any,
) -> DesignSpec:
    """Return a design; ``groups``: axis -> group, ``methods``: those of its analysis."""
    axes = [one if isinstance(one, Axis) else Axis(one.name, (one,)) for one in factors]
    axes = [Axis(axis.name, axis.factors, (groups or {}).get(axis.name)) for axis in axes]
    return DesignSpec(
        uid="d",
        seed=more.pop("seed", 7),
        version="3.5",
        repetitions=1,
        max_runs=more.pop("max_runs", None),
        output=None,
        base={},
        definitions=None,
        schedule=(),
        axes=tuple(axes),
        constraints=tuple(more.pop("constraints", ())),
        sampler=SamplerSpec(sampler, n, options or {}),
        seed_policy="common",
        outcomes=(),
        analysis=AnalysisSpec(methods=tuple(more.pop("methods", ()))),
        resolved={},
        **more,
    )
