"""Which phases of a recorded execution are meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaestrai_mosaik.errors import StoreError, did_you_mean, listed

if TYPE_CHECKING:
    from palaestrai_mosaik.store import Store


def recorded_phases(
    store: Store,
    instance: str,
    agent: str | None,
    phase: int | str | None = None,
    mode: str | None = None,
    before: int | None = None,
) -> tuple[str, list[int]]:
    """Return an agent, and the numbers of the phases of ``instance`` in which it took part.

    ``phase`` (number or name) and ``mode`` (train or test) pick some, ``before``: only those with
    a smaller number. ``agent`` may be ``None`` where there was only one. Raises
    :class:`StoreError` where there is no such phase or agent.
    """
    table = store.phases(instance)
    if phase is not None:
        known = [f"{i} {name!r}" for i, name in zip(table["phase"], table["name"], strict=True)]
        hint = did_you_mean(str(phase), table["name"])
        table = table[(table["phase"] == phase) | (table["name"] == phase)]
        if table.empty:
            raise StoreError(
                f"instance {instance} has no phase {phase!r}{hint}; it has: {', '.join(known) or 'none'}"
            )
    if before is not None:
        table = table[table["phase"] < before]
    if mode is not None:
        modes = sorted(set(table["mode"]))
        table = table[table["mode"] == mode]
        if table.empty:
            raise StoreError(f"no such phase of instance {instance} is in {mode} mode, only {modes}")
    agents = store.agents(instance)
    agents = agents[agents["phase"].isin(table["phase"])]
    names = sorted(set(agents["agent"]))
    if agent is None and len(names) == 1:
        agent = names[0]
    numbers: list[int] = agents.loc[agents["agent"] == agent, "phase"].tolist()
    if agent is None or not numbers:
        place = described(instance, list(table["phase"]))
        told = f"name an agent of {place}" if agent is None else f"there is no agent {agent!r} in {place}"
        raise StoreError(f"{told}{did_you_mean(agent or '', names)}; there are: {', '.join(names) or 'none'}")
    return agent, numbers


def described(instance: str, phases: list[int]) -> str:
    """Return how some phases of an instance are called in messages."""
    return f"phase{'s' if len(phases) > 1 else ''} {listed(phases, 20) or 'none'} of instance {instance}"
