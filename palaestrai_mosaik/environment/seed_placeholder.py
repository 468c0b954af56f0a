"""The placeholder ``{seed}`` in the parameters of simulators and their entities."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from palaestrai_mosaik.core.errors import Problem, did_you_mean

from .cosimulation import CoSimulationPlan, EntitySpec, PlanPaths, SimulatorSpec

#: placeholder for a seed that differs in every episode
SEED = "{seed}"

_WORD = re.compile(r"\{\s*(\w+)\s*\}")


def with_seed(value: Any, draw: Callable[[], int]) -> Any:
    """Replace each ``{seed}`` in ``value`` by the seed.

    A text equal to ``{seed}`` becomes the number; within a longer text the number is inserted as text.

    Args:
        value: a text, or a list or mapping with texts at any depth. Anything else is returned unchanged.
        draw: returns the seed; called only if ``value`` holds a placeholder.
    """
    if type(value) is str:
        if SEED not in value:
            return value
        return draw() if value == SEED else value.replace(SEED, str(draw()))
    new: Any
    if type(value) is dict:
        new = {key: with_seed(item, draw) for key, item in value.items()}
        changed = any(new[key] is not item for key, item in value.items())
    elif type(value) is list:
        new = [with_seed(item, draw) for item in value]
        changed = any(map(operator.is_not, new, value))
    else:
        return value
    # keep the object if nothing changed: a simulator may share lists and mappings with its environment
    return new if changed else value


def seeded(plan: CoSimulationPlan, seed: Callable[..., int]) -> CoSimulationPlan:
    """Return ``plan`` with each ``{seed}`` replaced by a seed.

    Placeholders are replaced in the parameters of simulators and entities, and in the command lines and
    environment variables of simulators.

    Args:
        plan: the plan, which is not changed.
        seed: returns the seed for a path of names: ``"simulator"`` and its uid, for an entity also ``"entity"``
            and its uid.
    """

    def simulator(spec: SimulatorSpec) -> SimulatorSpec:
        draw = partial(seed, "simulator", spec.uid)
        params, env = with_seed(spec.params, draw), with_seed(spec.env, draw)
        return replace(
            spec,
            cmd=with_seed(spec.cmd, draw),
            params=params,
            env={key: str(value) for key, value in env.items()},
        )

    def entity(spec: EntitySpec) -> EntitySpec:
        draw = partial(seed, "simulator", spec.simulator, "entity", spec.uid)
        params = with_seed(spec.params, draw)
        return spec if params is spec.params else replace(spec, params=params)

    return replace(
        plan,
        simulators=[simulator(spec) for spec in plan.simulators],
        entities=[entity(spec) for spec in plan.entities],
    )


def misspelt_seeds(plan: CoSimulationPlan, paths: PlanPaths) -> list[Problem]:
    """Return a warning for each placeholder in ``plan`` that resembles ``{seed}`` but is not replaced."""
    written: list[tuple[Any, str]] = []
    for spec, path in zip(plan.simulators, paths.simulators, strict=True):
        written += [(getattr(spec, key), f"{path}.{key}") for key in ("cmd", "params", "env")]
    written += [(e.params, f"{path}.params") for e, path in zip(plan.entities, paths.entities, strict=True)]
    return list(dict.fromkeys(problem for value, path in written for problem in _misspelt(value, path)))


def _misspelt(value: Any, path: str) -> Iterator[Problem]:
    if isinstance(value, str):
        for placeholder in _WORD.finditer(value):
            near = did_you_mean(placeholder[1], ["seed"])
            if near and placeholder[0] != SEED:
                text = f"the placeholder {placeholder[0]!r} is passed on as text (did you mean {SEED!r}?)"
                yield Problem(text, path)
    elif isinstance(value, Mapping):
        if len(value) == 1 and value.get("seed", SEED) is None:
            yield Problem(f"{SEED} without quotes is a mapping in YAML; write {SEED!r}", path)
        for key, item in value.items():
            yield from _misspelt(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _misspelt(item, f"{path}.{index}")
