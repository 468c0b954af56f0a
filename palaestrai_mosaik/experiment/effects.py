"""Keys that were written and change nothing in any phase that has them; each is warned of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from palaestrai_mosaik.types.mode import Mode

from .bodies import COMMON
from .cascade import CascadedPhase
from .located import Findings, Located
from .model import AgentSpec, ClassSpec, PhaseSpec, Place

_TEST = "the phase is in test mode"


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
