"""Checks across the parts of a run document: sources of brains, keys without effect, slips, differences to palaestrAI.

Only the store knows other runs, and only the file system knows the content of a folder (``base``). Source of the
differences: palaestrAI 3.5.18. There, a phase's ``agents``, ``environments``, ``simulation`` and
``phase_config`` each replace those of the phase before as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from palaestrai_mosaik.core.errors import did_you_mean
from palaestrai_mosaik.core.printing import listed
from palaestrai_mosaik.types.control import Mode

from .build import load_section, points_before_the_first, snapshot_section
from .cascade import RANDOM_STREAMS, CascadedPhase, Entry, is_sound
from .class_names import full_name
from .conditions import check_evaluations, check_phase_averages
from .fields import Findings, Located, items_of
from .model import AgentSpec, ClassSpec, PhaseSpec, Place, RunDocument, SnapshotSpec
from .vocabulary import COMMON, LOAD


def check_document(
    findings: Findings,
    document: RunDocument,
    schedule: Sequence[CascadedPhase],
    run_conditions: Sequence[Located],
) -> None:
    """Check phases and conditions against each other; warn of slips.

    Args:
        findings: collects the problems.
        document: the document, built from ``schedule``.
        schedule: its cascaded phases.
        run_conditions: the written conditions of ``run_config``.
    """
    written = [items_of(phase.simulation.get("conditions")) for phase in schedule]
    check_phase_averages(findings, written, run_conditions)
    if all(is_sound(findings, phase, "agents", "phase_config") for phase in schedule):
        check_evaluations(findings, run_conditions, document.phases)
    _warn_of_no_effect(findings, schedule, document.phases)
    _warn_of_other_environments(findings, schedule, document.phases)
    _warn_of_slips(findings, document.seed, schedule)
    if not findings.count:
        _compare_with_palaestrai(findings, schedule)
        _warn_of_snapshots(findings, document.uid, schedule)


def check_sources(findings: Findings, uid: str, raw: Sequence[CascadedPhase]) -> None:
    """Check that the phases and agents of this run in ``load`` and ``replay`` exist.

    A brain must be loaded from an earlier phase; trajectories may come from an
    earlier execution.
    """
    names = [phase.name for phase in raw]
    agents = {name for phase in raw for name in phase.agents}

    def is_in_run(at: Located, *, load: bool = False) -> bool:
        """Check phase and agent of ``load``, or of an entry of ``replay``; return whether they are in this run."""
        if not isinstance(at.value, dict):
            return False
        parts = {LOAD.spellings.get(key, key): at.child(key) for key in at.value}
        if _value(parts, "instance") is not None or _value(parts, "experiment_run") not in (None, uid):
            if load and _value(parts, "phase") is None and _value(parts, "phase_name") is None:
                findings.error(at.place, "'load' from another execution must name the phase")
            return False
        # not by the number of errors: an inherited load has the same one again
        phases = [
            _check_phase(findings, parts[key], names) for key in ("phase_name", "phase") if key in parts
        ]
        sound = all(phases)
        if load and not sound:
            return False
        return _check_agent(findings, parts.get("agent"), agents) and sound

    for number, phase in enumerate(raw):
        for name, entry in phase.agents.items():
            for source in items_of(entry.parts.get("replay")):
                is_in_run(source)
            if "load" in entry.parts and is_in_run(entry.parts["load"], load=True):
                _check_load(findings, raw, number, name, entry)


def _warn_of_snapshots(findings: Findings, uid: str, raw: Sequence[CascadedPhase]) -> None:
    """Warn, once, of a ``load`` with a snapshot that no agent of this run is configured to take.

    It is only a warning, because a brain may take snapshots by itself. ``raw`` must be without faults.
    """
    warned = set()
    for number, phase in enumerate(raw):
        for name, entry in phase.agents.items():
            at = entry.parts.get("load")
            load = load_section(findings, at) or {}
            snapshot = load.get("snapshot")
            if at is None or snapshot is None or at.place in warned or not _comes_from_here(load, uid):
                continue
            source, agent = raw[_source(load, raw, number)], load.get("agent", name)
            taken = snapshot_section(findings, source.agents[agent].parts.get("snapshots"))
            if not _takes(taken, snapshot):
                warned.add(at.place)
                findings.warn(
                    at.place, f"no 'snapshots' of agent {agent!r} in phase {source.name!r} makes {snapshot!r}"
                )


def _takes(spec: SnapshotSpec | None, snapshot: str) -> bool:
    """Whether an agent with these snapshots takes the one of this name."""
    if spec is None:
        return False
    return spec.best if snapshot == "best" else bool(snapshot.startswith("episode-") and spec.every)


def _value(parts: Mapping[str, Located], key: str) -> Any:
    return parts[key].value if key in parts else None


def _comes_from_here(load: Mapping[str, Any], uid: str) -> bool:
    """Whether ``load`` can refer only to this very execution."""
    return not load.keys() & {"base", "instance"} and load.get("experiment_run", uid) == uid


def _source(load: Mapping[str, Any], raw: Sequence[CascadedPhase], number: int) -> int:
    """Return the number of the phase to which ``load`` in phase ``number`` refers."""
    if "phase_name" in load:
        return [phase.name for phase in raw].index(load["phase_name"])
    return int(load.get("phase", number - 1))


def _check_phase(findings: Findings, phase: Located, names: list[str]) -> bool:
    """Check that a phase exists; return whether it does."""
    if isinstance(phase.value, str) and phase.value not in names:
        near, allowed = did_you_mean(phase.value, names), ", ".join(names)
        findings.error(phase.place, f"there is no phase {phase.value!r}{near}; phases: {allowed}")
        return False
    if type(phase.value) is int and phase.value >= len(names):
        message = f"there is no phase {phase.value}: the last of {len(names)} is {len(names) - 1}"
        findings.error(phase.place, message)
        return False
    return True


def _check_agent(findings: Findings, agent: Located | None, agents: Collection[str]) -> bool:
    """Check that the named agent, if any, is in some phase; return whether it is."""
    if agent is None or not isinstance(agent.value, str) or agent.value in agents:
        return True
    findings.error(agent.place, f"there is no agent {agent.value!r}{did_you_mean(agent.value, agents)}")
    return False


def _check_load(
    findings: Findings, raw: Sequence[CascadedPhase], number: int, name: str, entry: Entry
) -> None:
    """Check that there will be a brain to load when phase ``number`` begins."""
    at = entry.parts["load"]
    # problems of the keys themselves are reported elsewhere
    discarded = Findings(findings.source, findings.lines)
    load = load_section(discarded, at)
    if discarded.count or load is None:
        return
    source = _source(load, raw, number)
    if points_before_the_first(load, number):
        findings.warn(at.place, "'load' has no effect in the first phase: there is none before it")
        return
    if source < 0:
        findings.error(at.place, "'load' must name the phase here: the first phase has none before it")
        return
    if "base" in load:
        return
    this_phase, origin = raw[number], raw[source]
    if source >= number:
        which = "this very phase" if source == number else f"phase {origin.name!r}, a later one"
        findings.error(
            at.place,
            f"'load' in phase {this_phase.name!r} points to {which}: a brain is kept when its phase has ended",
        )
        return
    if "agents" not in origin.faulty:
        _check_brain(findings, at, origin, load.get("agent", name))


def _check_brain(findings: Findings, at: Located, origin: CascadedPhase, agent: str) -> None:
    """Check that an agent has a brain in the phase ``origin``."""
    if agent not in origin.agents:
        near, allowed = did_you_mean(agent, origin.agents), ", ".join(origin.agents)
        findings.error(
            at.place, f"phase {origin.name!r} has no agent {agent!r}{near}; agents there: {allowed}"
        )
    elif _value(origin.agents[agent].parts, "brain") is None:
        message = f"agent {agent!r} has no brain in phase {origin.name!r} that could be loaded"
        findings.error(at.place, message)


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


def _compare_with_palaestrai(findings: Findings, raw: Sequence[CascadedPhase]) -> None:
    """Warn of parameters without effect and note other differences, if the document is written for palaestrAI.

    A document is written for palaestrAI if it calls a simulation controller by palaestrAI's name. ``raw`` must be
    without faults.
    """
    if not any(_controller(phase).startswith("palaestrai.") for phase in raw):
        return
    for filters in _filter_lists(raw):
        for message, at in _without_effect(filters):
            findings.warn(at.place, message)
    # palaestrAI's specification describes our cascade; only its program differs
    for before, phase in pairwise(raw):
        for message, at in _differences(before, phase):
            findings.note(at.place, message)


def _filter_lists(raw: Sequence[CascadedPhase]) -> Iterable[Located]:
    """Return the agents' lists of filters; phases inherit them, or share them by an alias."""
    agents = [agent.parts for phase in raw for agent in phase.agents.values()]
    lists = [parts["filters"] for parts in agents if "filters" in parts]
    return {id(at.value): at for at in lists}.values()


def _without_effect(filters: Located) -> Iterator[tuple[str, Located]]:
    for item in items_of(filters):
        written = item.value if isinstance(item.value, dict) else {}
        name, params = full_name(str(written.get("name")), "filter"), written.get("params")
        for key in params if isinstance(params, dict) else ():
            why = _WITHOUT_EFFECT.get((name.rpartition(":")[2], key))
            if why is not None:
                yield f"{key!r} has no effect: {why}", item.child("params").child(key)


def _controller(phase: CascadedPhase) -> str:
    name = phase.simulation.get("name")
    return name.value if name is not None and isinstance(name.value, str) else ""


def _differences(before: CascadedPhase, phase: CascadedPhase) -> Iterator[tuple[str, Located]]:
    """Yield what ``phase`` inherits here from the phase before, and would not in palaestrAI."""
    body = phase.at.value
    if not isinstance(body, dict) or body.get("inherit") is False:
        return
    for topic, entries, earlier in (
        ("agents", phase.agents, before.agents),
        ("environments", phase.environments, before.environments),
    ):
        kept = ", ".join(map(repr, _kept(earlier, entries)))
        if topic in body and kept:
            yield (
                f"{topic} of phase {before.name!r} that are not listed here go on: {kept}; in palaestrAI, they would "
                "not. For that, write 'inherit: false' in the phase, and all that it shall have",
                phase.at.child(topic),
            )
    for key in _kept(before.phase_config, phase.phase_config) if "phase_config" in body else ():
        value, (default, text) = before.phase_config[key].value, _DEFAULTS.get(key, (None, ""))
        if text and value != default:
            yield (
                f"{key!r} of phase {before.name!r}, {value}, goes on here; palaestrAI would take {text}",
                phase.at.child("phase_config"),
            )


def _kept(before: Mapping[str, Any], parts: Mapping[str, Any]) -> list[str]:
    """List the keys with an inherited value, which is the same object as in the phase before."""
    return [key for key in before if parts.get(key) is before[key]]


def _warn_of_slips(findings: Findings, seed: int, raw: Sequence[CascadedPhase]) -> None:
    """Warn of values that are allowed, but hardly ever intended."""
    if seed < 0:  # an unreadable seed is 0
        message = f"{seed} is a seed as any other: every execution draws the same numbers with it"
        findings.warn(("seed",), message)
    for phase in raw:
        workers = phase.phase_config.get("workers")
        if workers is not None and isinstance(workers.value, int) and workers.value > _MANY_WORKERS:
            message = (
                f"{workers.value} workers are as many processes, each with environments and agents of its own"
            )
            findings.warn(workers.place, message)
    for before, phase in pairwise(raw):
        if all(is_sound(findings, name, "environments") for name in (before, phase)):
            _warn_of_similar_environments(findings, before, phase)


def _warn_of_similar_environments(findings: Findings, before: CascadedPhase, phase: CascadedPhase) -> None:
    """Warn of a new environment with nearly the uid of one of the phase before, if others stay."""
    if set(before.environments).isdisjoint(phase.environments):
        return
    for uid in (uid for uid in phase.environments if uid not in before.environments):
        if near := did_you_mean(uid, before.environments):
            findings.warn(
                phase.environments[uid].at.place,
                f"environment {uid!r} is new in phase {phase.name!r}{near}; the phase has it beside "
                f"{', '.join(repr(name) for name in phase.environments if name != uid)}",
            )


def _warn_of_other_environments(
    findings: Findings, raw: Sequence[CascadedPhase], phases: Sequence[PhaseSpec]
) -> None:
    """Warn of phases that share random streams, but no environment: its uid is part of the streams' paths."""
    if not all(is_sound(findings, phase, "environments", "phase_config") for phase in raw):
        return
    uids = {phase.name: [environment.uid for environment in phase.environments] for phase in phases}
    for cascaded, phase in zip(raw, phases, strict=True):
        if phase.streams != phase.name and not set(uids[phase.name]) & set(uids[phase.streams]):
            here, there = (listed(list(map(repr, uids[name])), 3) for name in (phase.name, phase.streams))
            text = (
                f"no environment of phase {phase.name!r} ({here}) has the uid of one of phase {phase.streams!r} ({there}), "
                "so none of them draws the same numbers"
            )
            findings.warn(cascaded.phase_config[RANDOM_STREAMS].place, text)


def _warn_of_no_effect(findings: Findings, raw: Sequence[CascadedPhase], phases: Sequence[PhaseSpec]) -> None:
    """Warn of keys of learning, of bodies and of ``simulation`` without effect.

    Warnings are placed at the written key, not at phases that inherit it. Keys that depend on an unreadable part
    are skipped.
    """
    reasons: dict[Place, str] = {}
    useful: set[Place] = set()
    for cascaded, phase in zip(raw, phases, strict=True):
        if not is_sound(findings, cascaded, "phase_config"):
            continue
        keys = list(_of_phase(cascaded, phase, learns=_may_learn(findings, cascaded, phase)))
        for agent in phase.agents:
            entry = cascaded.agents[agent.name]
            if entry.is_sound(findings):
                keys += _of_agent(agent, entry.parts, phase)
        for at, reason in keys:
            if reason:
                reasons.setdefault(at.place, reason)
            else:
                useful.add(at.place)
    for path, reason in reasons.items():
        if path not in useful:
            findings.warn(path, f"{path[-1]!r} has no effect: {reason}")


def _may_learn(findings: Findings, raw: CascadedPhase, phase: PhaseSpec) -> bool:
    """Whether an agent of the phase has a brain, or may have one that could not be read."""
    return any(agent.brain is not None for agent in phase.agents) or not is_sound(findings, raw, "agents")


def _of_phase(raw: CascadedPhase, phase: PhaseSpec, *, learns: bool) -> Iterator[tuple[Located, str]]:
    """Yield each key of the phase that may have no effect, with the reason; "" if it has one."""
    if phase.simulation.bridge != "agents":
        # the default is in the canonical form of every document
        yield raw.simulation["bridge"], "every agent is a mosaik simulator of its own"
    parts = raw.phase_config
    test, few, idle = (_TEST if phase.mode is Mode.TEST else ""), "", ""
    if phase.evaluate_every:
        if phase.episodes is not None and phase.episodes < phase.evaluate_every:
            few = f"the phase has {phase.episodes} episodes only"
        yield parts["evaluate_every"], test or few
    if not learns:
        idle = "no agent of the phase has a brain"
    elif phase.workers == 1:
        idle = "with one worker, the brain learns after every step"
    written = (parts[key] for key in ("sync_every", "asynchronous") if key in parts)
    yield from ((part, test or idle) for part in written if part.value)


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
