"""Plain data and the identity of a document: the hash of its canonical form, and of its content.

The canonical form is the cascaded document in one spelling. It includes every default
except those of keys that were added later (:class:`_Later`): a document keeps its hash when the
format gains a key that it does not use. It does not depend on comments, anchors, the order of keys, or which of
several names of a class was used; any other difference in value is a difference in hash.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from .class_names import canonical_name
from .fields import Findings, show
from .model import (
    DEFAULT_SYNC_EVERY,
    AgentSpec,
    ClassSpec,
    EnvironmentSpec,
    FrameSpec,
    PhaseSpec,
    Place,
    ReplaySpec,
    RunDocument,
)
from .yaml_text import MAX_DEPTH, SCALARS


def plain_data(value: Any, findings: Findings, path: Place = ()) -> Any:
    """Convert ``value`` to plain data: copies of strings, numbers, lists, mappings.

    Number types that register as integral or real (such as numpy's) become ``int`` and
    ``float``, tuples become lists. Anything else is reported in ``findings``.
    """
    if type(value) in SCALARS or isinstance(value, str):
        return value
    # the builtin types first: isinstance with an abstract class takes as long as all the rest
    if not isinstance(value, dict | list | tuple | Mapping):
        if isinstance(value, numbers.Real):
            return int(value) if isinstance(value, numbers.Integral) else float(value)
        message = f"{show(value)} ({type(value).__name__}) is not plain data (text, number, list, mapping)"
        findings.error(path, message)
        return None
    if len(path) > MAX_DEPTH:
        message = f"more than {MAX_DEPTH} collections inside one another (or inside themselves)"
        findings.error(path[:8], message)
        return None

    if isinstance(value, list | tuple):
        return [
            item if type(item) in SCALARS else plain_data(item, findings, (*path, index))
            for index, item in enumerate(value)
        ]
    for key in value:
        if type(key) not in SCALARS and not isinstance(key, (str, int, float, bool)):
            findings.error(path, f"{show(key)} cannot be a key; use a string")
    return {
        key: item if type(item) in SCALARS else plain_data(item, findings, (*path, key))
        for key, item in value.items()
    }


def sorted_copy(value: Any) -> Any:
    """Copy plain data deeply, with all keys in order."""
    if isinstance(value, dict):
        return {key: sorted_copy(value[key]) for key in sorted(value, key=_key_text)}
    if isinstance(value, list):
        return [item if type(item) in SCALARS else sorted_copy(item) for item in value]
    return value


def canonical_json(value: Any) -> str:
    """Serialise plain data as JSON, with exactly one text per value.

    Keys are sorted, integers stay integers, floats are written by ``repr``. A key that
    is not a string is written as ``!<type> <value>``, so that ``1`` and ``"1"`` differ.
    """
    return json.dumps(_text_keys(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(canonical: Mapping[str, Any]) -> str:
    """Compute the SHA-256 (hex) of the canonical JSON."""
    return hashlib.sha256(canonical_json(canonical).encode("utf-8", "surrogatepass")).hexdigest()


def content_digest(canonical: Mapping[str, Any]) -> str:
    """Compute the SHA-256 (hex) of a document's content: its canonical form without its name.

    No result depends on the document's uid, so two documents that differ only in it have the
    same content. A reference of a document to its own uid is equivalent to leaving the uid out.
    """
    return digest({**canonical, "schedule": _unnamed(canonical["schedule"], canonical["uid"]), "uid": ""})


def _unnamed(schedule: Sequence[Mapping[str, Any]], uid: str) -> list[dict[str, Any]]:
    """Remove references to the run ``uid`` itself from a canonical schedule."""
    return [
        {name: {**phase, "agents": [_agent_unnamed(agent, uid) for agent in phase["agents"]]}}
        for item in schedule
        for name, phase in item.items()
    ]


def _agent_unnamed(agent: Mapping[str, Any], uid: str) -> dict[str, Any]:
    def unnamed(source: Mapping[str, Any]) -> dict[str, Any]:
        return {**source, "experiment_run": ""} if source.get("experiment_run") == uid else dict(source)

    changed = dict(agent)
    if agent["load"]:
        changed["load"] = unnamed(agent["load"])
    if "replay" in agent:
        changed["replay"] = [unnamed(source) for source in agent["replay"]]
    return changed


def _key_text(key: Any) -> str:
    if isinstance(key, str):
        return f"!str {key}" if key.startswith("!") else key
    if isinstance(key, float) and math.isnan(key):
        return "!float nan"
    return f"!{type(key).__name__} {key!r}"


def _text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            (key if type(key) is str and key[:1] != "!" else _key_text(key)): (
                item if type(item) in SCALARS else _text_keys(item)
            )
            for key, item in value.items()
        }
    if isinstance(value, list):
        # mostly long lists of ids: avoid a call for each
        return [item if type(item) in SCALARS else _text_keys(item) for item in value]
    return value


def _canonical(value: Any) -> Any:
    """Build the canonical form of a part of the model: every field of its class, in order.

    A field that is added to the model later must be left out of documents without it, to keep their hashes.
    """
    if isinstance(value, ClassSpec):
        return {"name": canonical_name(value.name), "params": sorted_copy(value.params)}
    if is_dataclass(value):
        names = sorted(key.name for key in fields(value))
        return {name: _canonical(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [item if type(item) in SCALARS else _canonical(item) for item in value]
    return sorted_copy(value)


class _Later:
    """Keys that were added to the format later: written from the first phase on that uses them.

    Before that phase, the default is left out. After it, it is written, because a key that is left out
    would be inherited when the canonical form is read.
    """

    def __init__(self) -> None:
        self._used: set[tuple[str, ...]] = set()

    def keys(self, *path: str, **keys: tuple[Any, Any]) -> dict[str, Any]:
        """Return those of the keys (value, default) of the part ``path`` that are to be written."""
        self._used |= {(*path, key) for key, (value, default) in keys.items() if value != default}
        return {key: value for key, (value, _) in keys.items() if (*path, key) in self._used}


def _phase(phase: PhaseSpec, later: _Later) -> dict[str, Any]:
    """Build the canonical form of one phase; call it in the order of the phases."""
    simulation = phase.simulation
    return {
        "agents": [_agent(agent, later) for agent in phase.agents],
        "environments": [_environment(environment) for environment in phase.environments],
        "phase_config": {
            "episodes": phase.episodes,
            "mode": phase.mode.value,
            "workers": phase.workers,
            # no later phase inherits it
            **({} if phase.random_streams is None else {"random_streams": phase.random_streams}),
            **later.keys(
                asynchronous=(phase.asynchronous, False),
                evaluate_every=(phase.evaluate_every, None),
                sync_every=(phase.sync_every, DEFAULT_SYNC_EVERY),
            ),
        },
        "simulation": {
            "bridge": simulation.bridge,
            "conditions": _canonical(simulation.conditions),
            "name": simulation.controller,
            **later.keys(scheduler=(simulation.scheduler, "direct"), values=(simulation.values, "count")),
        },
    }


def _continues(before: PhaseSpec, phase: PhaseSpec) -> bool:
    """Whether reading the cascade again would give ``phase`` the same environments and agents in the same order."""
    pairs = (
        ([spec.uid for spec in before.environments], [spec.uid for spec in phase.environments]),
        ([spec.name for spec in before.agents], [spec.name for spec in phase.agents]),
    )
    return all(names == list(dict.fromkeys((*inherited, *names))) for inherited, names in pairs)


def _environment(spec: EnvironmentSpec) -> dict[str, Any]:
    return {
        "environment": {
            "name": canonical_name(spec.name),
            "params": sorted_copy(spec.params),
            "step_size": spec.step_size,
            "uid": spec.uid,
            # added later: documents without it keep their hash
            **({} if spec.interpreter is None else {"interpreter": spec.interpreter}),
            **({} if spec.timeout is None else {"timeout": spec.timeout}),
        },
        "reward": _canonical(spec.reward),
        "state_transformer": _canonical(spec.state_transformer),
        # added later, too
        **({} if spec.frames is None else {"frames": _frames(spec.frames)}),
    }


def _frames(spec: FrameSpec) -> dict[str, Any]:
    frames: dict[str, Any] = _canonical(spec)
    # a document has either of the two
    del frames["every" if spec.episodes is not None else "episodes"]
    return frames


def _replay(spec: ReplaySpec) -> dict[str, Any]:
    replay: dict[str, Any] = _canonical(spec)
    if isinstance(spec.phase, str):
        replay["phase_name"] = replay.pop("phase")
    return dict(sorted(replay.items()))


def _agent(spec: AgentSpec, later: _Later) -> dict[str, Any]:
    added: dict[str, tuple[Any, Any]] = {
        "filters": (_canonical(spec.filters), []),
        "replay": ([_replay(source) for source in spec.replay], []),
        "snapshots": (_canonical(spec.snapshots), None),
        "bodies": (_canonical(spec.bodies) or None, None),
    }
    names = sorted(key.name for key in fields(spec) if key.name not in added)
    first = {name: _canonical(getattr(spec, name)) for name in names}
    return first | later.keys("agent", spec.name, **added)


def canonical_document(document: RunDocument) -> dict[str, Any]:
    """Build the canonical form of a complete document."""
    phases = document.phases
    later = _Later()
    schedule: list[dict[str, Any]] = []
    for before, phase in zip((None, *phases), phases, strict=False):
        body = _phase(phase, later)
        if before is not None and not _continues(before, phase):
            body["inherit"] = False
        schedule.append({phase.name: body})
    return {
        "run_config": {"conditions": _canonical(document.conditions)},
        "schedule": schedule,
        "seed": document.seed,
        "uid": document.uid,
        "version": document.version,
    }
