"""Hints on a sound document: keys without effect, and differences to palaestrAI's reading.

Source: palaestrAI 3.5.18. There, a phase's ``agents``, ``environments``, ``simulation`` and
``phase_config`` each replace those of the phase before as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from palaestrai_mosaik.errors import did_you_mean
from palaestrai_mosaik.text import listed
from palaestrai_mosaik.types.control import Mode

from .bodies import COMMON
from .cascade import CascadedPhase, Entry, is_sound
from .located import Findings, Located
from .model import AgentSpec, ClassSpec, PhaseSpec, Place
from .random_streams import RANDOM_STREAMS
from .short_names import full_name

#: parameters of palaestrAI's filters without effect here, and why
_WITHOUT_EFFECT = {
    (
        "MergeStepsFilter",
        "merge_actuators",
    ): "set-points of earlier steps are not shown; palaestrAI shows none either",
    ("NormFilter", "batch_size"): "mean and deviation are here those of all readings so far",
}
#: palaestrAI's defaults for keys missing in a phase's ``phase_config``, and their names in messages
_DEFAULTS: Mapping[str, tuple[Any, str]] = {"mode": ("train", "train mode"), "workers": (1, "1 worker")}
#: more workers than most machines have cores
_MANY_WORKERS = 256
_TEST = "the phase is in test mode"


def hint(found: Findings, raw: Sequence[CascadedPhase]) -> None:
    """Warn of parameters without effect and note other differences, if the document is written for palaestrAI.

    A document is written for palaestrAI if it calls a simulation controller by palaestrAI's name. ``raw`` must be
    without faults.
    """
    if not any(_controller(phase).startswith("palaestrai.") for phase in raw):
        return
    # by id, because phases inherit filters or share them by an alias
    filters = {id(at.value): at for phase in raw for agent in phase.agents.values() for at in _filters(agent)}
    for at in filters.values():
        for message, place in _without_effect(at):
            found.warn(place.place, message)
    # palaestrAI's specification describes our cascade; only its program differs
    for before, phase in pairwise(raw):
        for message, place in _other(before, phase):
            found.note(place.place, message)


def _filters(agent: Entry) -> Iterator[Located]:
    at = agent.parts.get("filters")
    if at is not None and isinstance(at.value, list):
        yield at


def _without_effect(filters: Located) -> Iterator[tuple[str, Located]]:
    for i, item in enumerate(filters.value):
        name, params = (item.get("name"), item.get("params")) if isinstance(item, dict) else (None, None)
        for key in params if isinstance(params, dict) else ():
            why = _WITHOUT_EFFECT.get((full_name(str(name), "filter").rpartition(":")[2], key))
            if why is not None:
                place = filters.child(i).child("params").child(key)
                yield f"{key!r} has no effect: {why}", place


def _controller(phase: CascadedPhase) -> str:
    name = phase.simulation.get("name")
    return name.value if name is not None and isinstance(name.value, str) else ""


def _other(before: CascadedPhase, phase: CascadedPhase) -> Iterator[tuple[str, Located]]:
    body = phase.at.value
    if not isinstance(body, dict) or body.get("inherit") is False:
        return
    for topic, entries, earlier in (
        ("agents", phase.agents, before.agents),
        ("environments", phase.environments, before.environments),
    ):
        # an inherited entry is the same object as in the phase before
        kept = [repr(name) for name in earlier if entries.get(name) is earlier[name]]
        if topic in body and kept:
            yield (
                f"{topic} of phase {before.name!r} that are not listed here go on: {', '.join(kept)}; in palaestrAI, "
                "they would not. For that, write 'inherit: false' in the phase, and all that it shall have",
                phase.at.child(topic),
            )
    if "phase_config" in body:
        for key, (default, value) in _DEFAULTS.items():
            kept_part = before.phase_config.get(key)
            if (
                kept_part is phase.phase_config.get(key)
                and kept_part is not None
                and kept_part.value != default
            ):
                yield (
                    f"{key!r} of phase {before.name!r}, {kept_part.value}, goes on here; palaestrAI would take {value}",
                    phase.at.child("phase_config"),
                )


def warn_of_slips(
    found: Findings, seed: int, parts: Mapping[str, Located], raw: Sequence[CascadedPhase]
) -> None:
    """Warn of values that are allowed, but hardly ever intended. ``parts`` are the document's."""
    if seed < 0:  # an unreadable seed is 0
        found.warn(
            parts["seed"].place,
            f"{seed} is a seed as any other: every execution draws the same numbers with it",
        )
    for phase in raw:
        workers = phase.phase_config.get("workers")
        if workers is not None and isinstance(workers.value, int) and workers.value > _MANY_WORKERS:
            found.warn(
                workers.place,
                f"{workers.value} workers are as many processes, each with environments and agents of its own",
            )
    for before, phase in pairwise(raw):
        if not all(is_sound(found, name, "environments") for name in (before, phase)):
            continue
        for uid, entry in phase.environments.items():
            near = did_you_mean(uid, before.environments)
            if uid not in before.environments and near and set(before.environments) & set(phase.environments):
                found.warn(
                    entry.at.place,
                    f"environment {uid!r} is new in phase {phase.name!r}{near}; the phase has it beside "
                    f"{', '.join(repr(name) for name in phase.environments if name != uid)}",
                )


def warn_of_other_environments(
    found: Findings, raw: Sequence[CascadedPhase], phases: Sequence[PhaseSpec]
) -> None:
    """Warn of phases that share random streams, but no environment: its uid is part of the streams' paths."""
    if not all(is_sound(found, phase, "environments", "phase_config") for phase in raw):
        return
    uids = {phase.name: [environment.uid for environment in phase.environments] for phase in phases}
    for cascaded, phase in zip(raw, phases, strict=True):
        if phase.streams != phase.name and not set(uids[phase.name]) & set(uids[phase.streams]):
            here, there = (listed(list(map(repr, uids[name])), 3) for name in (phase.name, phase.streams))
            text = (
                f"no environment of phase {phase.name!r} ({here}) has the uid of one of phase {phase.streams!r} ({there}), "
                "so none of them draws the same numbers"
            )
            found.warn(cascaded.phase_config[RANDOM_STREAMS].place, text)


def warn_of_no_effect(found: Findings, raw: Sequence[CascadedPhase], phases: Sequence[PhaseSpec]) -> None:
    """Warn of keys of learning, of bodies and of ``simulation`` without effect.

    Warnings are placed at the written key, not at phases that inherit it. Keys that depend on an unreadable part
    are skipped.
    """
    reasons: dict[Place, str] = {}
    useful: set[Place] = set()
    for cascaded, phase in zip(raw, phases, strict=True):
        if not is_sound(found, cascaded, "phase_config"):
            continue
        keys = list(_of_phase(cascaded, phase, learns=_learns(found, cascaded, phase)))
        for agent in phase.agents:
            entry = cascaded.agents[agent.name]
            if entry.is_sound(found):
                keys += _of_agent(agent, entry.parts, phase)
        for at, reason in keys:
            if reason:
                reasons.setdefault(at.place, reason)
            else:
                useful.add(at.place)
    for place, reason in reasons.items():
        if place not in useful:
            found.warn(place, f"{place[-1]!r} has no effect: {reason}")


def _learns(found: Findings, raw: CascadedPhase, phase: PhaseSpec) -> bool:
    """Whether an agent of the phase has a brain, or may have one that could not be read."""
    return any(agent.brain is not None for agent in phase.agents) or not is_sound(found, raw, "agents")


def _of_phase(raw: CascadedPhase, phase: PhaseSpec, *, learns: bool) -> Iterator[tuple[Located, str]]:
    """Yield each key of the phase that may have no effect, with the reason; "" if it has one."""
    if phase.simulation.bridge != "agents":
        # the default is in the canonical form of every document
        yield raw.simulation["bridge"], "every agent is a mosaik simulator of its own"
    parts = raw.phase_config
    test = _TEST if phase.mode is Mode.TEST else ""
    if phase.evaluate_every:
        few = phase.episodes is not None and phase.episodes < phase.evaluate_every
        short = f"the phase has {phase.episodes} episodes only" if few else ""
        yield parts["evaluate_every"], test or short
    alone = "with one worker, the brain learns after every step" if phase.workers == 1 else ""
    idle = "" if learns else "no agent of the phase has a brain"
    for key in ("sync_every", "asynchronous"):
        if key in parts and parts[key].value:
            yield parts[key], test or idle or alone


def _of_agent(agent: AgentSpec, parts: dict[str, Located], phase: PhaseSpec) -> Iterator[tuple[Located, str]]:
    reason = _TEST if phase.mode is Mode.TEST else "the agent has no brain" if agent.brain is None else ""
    if agent.replay:
        yield parts["replay"], reason
    if agent.snapshots is not None:
        yield parts["snapshots"], reason
    for key in COMMON:
        common = _named(getattr(agent, key))
        if common and key in parts and parts[key].value:
            taken = not agent.bodies or any(_named(getattr(body, key)) == common for body in agent.bodies)
            yield parts[key], "" if taken else "every body of the agent has its own, or none"


def _named(value: Any) -> Any:
    """Return what identifies ids and classes, regardless of the parameters of a class."""
    if isinstance(value, tuple):
        return tuple(map(_named, value))
    return value.name if isinstance(value, ClassSpec) else value
