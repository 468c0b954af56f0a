"""The whole design as plain data: what was read, written out so that it reads back the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from .model import Axis, DesignSpec, Factor

#: keys that say where and how runs are made, not which
_NO_IDENTITY = ("output", "execution")


def resolved(spec: DesignSpec, execution: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the design as plain data, itself loadable: one spelling, defaults written out."""
    whole: dict[str, Any] = {
        "uid": spec.uid,
        "seed": spec.seed,
        "version": spec.version,
        "repetitions": spec.repetitions,
        "max_runs": spec.max_runs,
        "output": spec.output,
    }
    if spec.base is not None:
        whole["base"] = dict(spec.base)
    else:
        whole["definitions"] = spec.definitions
        whole["schedule"] = list(spec.schedule)
    whole |= {
        "factors": [_factor(factor) for factor in spec.factors if factor.choice is None],
        "zip": {axis.name: [one.name for one in axis.factors] for axis in spec.axes if len(axis.factors) > 1},
        "groups": {group: _members(spec, group) for group in spec.groups},
        "constraints": list(spec.constraints),
        "sampler": {"name": spec.sampler.name, "n": spec.sampler.n, **spec.sampler.options},
        "seeds": {"policy": spec.seed_policy},
        "outcomes": {one.name: _outcome(asdict(one)) for one in spec.outcomes},
        "analysis": {**asdict(spec.analysis)}
        | {
            "methods": list(spec.analysis.methods),
            "compare": list(spec.analysis.compare),
        },
        "execution": dict(execution) if execution is not None else None,
    }
    return whole


def identity(spec: DesignSpec, whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the hash of the design ``whole`` (resolved) is made of.

    The order of the axes belongs to it, as the sample does; the canonical form of a mapping has none.
    """
    kept = {key: value for key, value in whole.items() if key not in _NO_IDENTITY}
    return kept | {"axes": [axis.name for axis in spec.axes]}


def _factor(factor: Factor) -> dict[str, Any]:
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
        entry |= {"type": factor.kind, "low": _end(factor.low, whole), "high": _end(factor.high, whole)}
        entry |= {"dist": factor.dist, **factor.params}
    return entry | {"create": factor.create, "when": factor.when}


def _end(value: float | None, whole: bool) -> float | int | None:
    return int(value) if whole and value is not None else value


def _members(spec: DesignSpec, group: str) -> list[str]:
    axes: list[Axis] = [axis for axis in spec.axes if axis.group == group]
    return [factor.name for axis in axes for factor in axis.factors]


def _outcome(entry: dict[str, Any]) -> dict[str, Any]:
    del entry["name"]
    if entry["outside"] is not None:
        entry["outside"] = list(entry["outside"])
    return entry
