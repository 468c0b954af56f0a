"""Designs made of nothing but factors, for what needs no run document; and designs over functions or the dummy document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from support.documents import ENVIRONMENT_ENDS, VANILLA_RUN, environment, named, phase

from palaestrai_mosaik.arsenai.design.model import AnalysisSpec, Axis, DesignSpec, Factor, SamplerSpec
from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment import RunDocument, from_mapping


def refused(function: Callable[..., object], *arguments: Any, **keys: Any) -> DocumentError:
    """Return the error with which a call is refused."""
    with pytest.raises(DocumentError) as raised:
        function(*arguments, **keys)
    return raised.value


def base(*phases: dict[str, Any] | None) -> dict[str, Any]:
    """Return a run document without uid and seed; without phases, the dummy phase and one that inherits it."""
    return {
        "version": "3.5",
        "schedule": [{f"phase_{i}": content} for i, content in enumerate(phases or (phase(), {}))],
        "run_config": {"conditions": [named(VANILLA_RUN)]},
    }


def over_base(factors: Mapping[str, Any], *phases: dict[str, Any] | None, **keys: Any) -> dict[str, Any]:
    """Return a design over that document as plain data."""
    return {"uid": "d", "seed": 7, "version": "3.5", "base": base(*phases), "factors": {**factors}, **keys}


def checked_documents(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the run documents that expansions check from now on."""
    names: list[str] = []

    def checked(data: dict[str, Any], source: str, **keys: Any) -> RunDocument:
        names.append(source)
        return from_mapping(data, source, **keys)

    monkeypatch.setattr("palaestrai_mosaik.arsenai.design.expansion.from_mapping", checked)
    return names


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
