"""Hints on a sound document: keys that change nothing, and what palaestrAI would read otherwise.

Source: palaestrAI 3.5.18. There, a phase's ``agents``, ``environments``, ``simulation`` and
``phase_config`` each replace those of the phase before as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from palaestrai_mosaik.errors import did_you_mean
from palaestrai_mosaik.types.control import Mode

from .bodies import COMMON
from .cascade import CascadedPhase, Entry
from .located import Findings, Located
from .model import AgentSpec, ClassSpec, PhaseSpec, Place
from .short_names import full_name

#: parameters of palaestrAI's filters that do nothing here, and why
_WITHOUT_EFFECT = {
    (
        "MergeStepsFilter",
        "merge_actuators",
    ): "set-points of earlier steps are not shown; palaestrAI shows none either",
    ("NormFilter", "batch_size"): "mean and deviation are here those of all readings so far",
}
#: what palaestrAI takes where a phase's ``phase_config`` does not say it, and how to say that
_DEFAULTS: Mapping[str, tuple[Any, str]] = {"mode": ("train", "train mode"), "workers": (1, "1 worker")}
#: more than the cores of most machines
_MANY_WORKERS = 256
_TEST = "the phase is in test mode"


def hint(found: Findings, raw: Sequence[CascadedPhase]) -> None:
    """Warn of what palaestrAI would do otherwise, if the document is written for it.

    It is, where a simulation controller is called by palaestrAI's name. ``raw`` has no faults.
    """
    if not any(_controller(phase).startswith("palaestrai.") for phase in raw):
        return
    # once for filters that phases inherit or share by an alias
    filters = {id(at.value): at for phase in raw for agent in phase.agents.values() for at in _filters(agent)}
    for at in filters.values():
        for message, place in _without_effect(at):
            found.warn(place.place, message)
    for before, phase in pairwise(raw):
        for message, place in _other(before, phase):
            found.warn(place.place, message)


def _filters(agent: Entry) -> Iterator[Located]:
    at = agent.parts.get("filters")
    if at is not None and isinstance(at.value, list):
        yield at


def _without_effect(filters: Located) -> Iterator[tuple[str, Located]]:
    for i, one in enumerate(filters.value):
        name, params = (one.get("name"), one.get("params")) if isinstance(one, dict) else (None, None)
        for key in params if isinstance(params, dict) else ():
            why = _WITHOUT_EFFECT.get((full_name(str(name), "filter").rpartition(":")[2], key))
            if why is not None:
                place = filters.child(i).child("params").child(key)
                yield f"{key!r} has no effect: {why}", place


def _controller(phase: CascadedPhase) -> str:
    name = phase.simulation.get("name")
    return name.value if name is not None and isinstance(name.value, str) else ""


def _other(before: CascadedPhase, phase: CascadedPhase) -> Iterator[tuple[str, Located]]:
    given = phase.at.value
    if not isinstance(given, dict) or given.get("inherit") is False:
        return
    for topic, entries, earlier in (
        ("agents", phase.agents, before.agents),
        ("environments", phase.environments, before.environments),
    ):
        # an entry that was not given is that of the phase before
        kept = [repr(name) for name in earlier if entries.get(name) is earlier[name]]
        if topic in given and kept:
            yield (
                f"{topic} of phase {before.name!r} that are not listed here go on: {', '.join(kept)}; in palaestrAI, "
                "they would not. For that, write 'inherit: false' in the phase, and all that it shall have",
                phase.at.child(topic),
            )
    if "phase_config" in given:
        for key, (default, shown) in _DEFAULTS.items():
            kept_part = before.phase_config.get(key)
            if (
                kept_part is phase.phase_config.get(key)
                and kept_part is not None
                and kept_part.value != default
            ):
                yield (
                    f"{key!r} of phase {before.name!r}, {kept_part.value}, goes on here; palaestrAI would take {shown}",
                    phase.at.child("phase_config"),
                )


def warn_of_slips(
    found: Findings, seed: int, parts: Mapping[str, Located], raw: Sequence[CascadedPhase]
) -> None:
    """Warn of what is allowed, and hardly ever meant. ``parts`` are those of the document, ``raw`` has no faults."""
    if seed < 0:
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
        for uid, entry in phase.environments.items():
            near = did_you_mean(uid, before.environments)
            if uid not in before.environments and near and set(before.environments) & set(phase.environments):
                found.warn(
                    entry.at.place,
                    f"environment {uid!r} is new in phase {phase.name!r}{near}; the phase has it beside "
                    f"{', '.join(repr(one) for one in phase.environments if one != uid)}",
                )


def warn_of_no_effect(found: Findings, raw: Sequence[CascadedPhase], phases: Sequence[PhaseSpec]) -> None:
    """Warn of keys of learning, of bodies and of ``simulation`` that change nothing.

    What is inherited is told where it is written. ``phases`` are those of ``raw``, all of them
    sound.
    """
    reasons: dict[Place, str] = {}
    useful: set[Place] = set()
    for cascaded, phase in zip(raw, phases, strict=True):
        keys = list(_of_phase(cascaded, phase))
        for agent in phase.agents:
            keys += _of_agent(agent, cascaded.agents[agent.name].parts, phase)
        for at, reason in keys:
            if reason:
                reasons.setdefault(at.place, reason)
            else:
                useful.add(at.place)
    for place, reason in reasons.items():
        if place not in useful:
            found.warn(place, f"{place[-1]!r} has no effect: {reason}")


def _of_phase(raw: CascadedPhase, phase: PhaseSpec) -> Iterator[tuple[Located, str]]:
    """Yield each key of the phase that may have no effect, and why it has none (empty: it has one)."""
    if phase.simulation.bridge != "agents":
        # the other value stands in the canonical form of every document
        yield raw.simulation["bridge"], "every agent is a mosaik simulator of its own"
    parts = raw.phase_config
    test = _TEST if phase.mode is Mode.TEST else ""
    if phase.evaluate_every:
        few = phase.episodes is not None and phase.episodes < phase.evaluate_every
        short = f"the phase has {phase.episodes} episodes only" if few else ""
        yield parts["evaluate_every"], test or short
    alone = "with one worker, the brain learns after every step" if phase.workers == 1 else ""
    learns = any(agent.brain is not None for agent in phase.agents)
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
    """Return what tells ids and classes from others; the parameters of a class are no matter of this."""
    if isinstance(value, tuple):
        return tuple(map(_named, value))
    return value.name if isinstance(value, ClassSpec) else value
