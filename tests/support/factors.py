"""Designs made of nothing but factors, for what needs no run document; and designs over functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from support.documents import ENVIRONMENT_ENDS, VANILLA_RUN, environment, named

from palaestrai_mosaik.arsenai.design.model import AnalysisSpec, Axis, DesignSpec, Factor, SamplerSpec


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


_DUMMY = "palaestrai_mosaik.agent.library.dummy"
_FUNCTION = "palaestrai_mosaik.environment.functions:FunctionEnvironment"


def function_design(function, factors, sampler, *, uid="known", params=None, **keys):
    """A design over the parameters of a function; it is made of the shortest run there is."""
    start = {name: told.get("low", 0) for name, told in factors.items()}
    function_environment = environment("f", _FUNCTION, function=function, **start, **(params or {}))
    agent = {
        **{
            "name": "a",
            "muscle": named(f"{_DUMMY}:DummyMuscle"),
            "objective": named(f"{_DUMMY}:DummyObjective"),
        },
        **{"sensors": ["f.y"], "actuators": ["f.idle"]},
    }
    phase = {
        "environments": [function_environment],
        "agents": [agent],
        "simulation": {"name": "vanilla", "conditions": [named(ENVIRONMENT_ENDS)]},
        "phase_config": {"mode": "test", "episodes": 1},
    }
    base = {"version": "3.5", "schedule": [{"p": phase}], "run_config": {"condition": named(VANILLA_RUN)}}
    path = "schedule.p.environments.f.environment.params"
    placed = {name: {"path": f"{path}.{name}", **told} for name, told in factors.items()}
    return {
        **{"uid": uid, "seed": 3, "version": "3.5", "base": base, "factors": placed, "sampler": sampler},
        **keys,
    }
