"""Draws scenarios: any that mosaik allows, in the first place; few that it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from simulation.scheduler.worlds import EXCEPTIONS, Link, Scenario, Sim

NAMES = "ABCDEFG"
GROUPS = [(0,), (0,), (0, 0), (0, 0), (0, 1), (1,), ()]
STEPS: dict[str, list[tuple[int | str | None, ...]]] = {
    "time-based": [(1,), (2,), (3,), (1, 2), (4, 1, 1)],
    "hybrid": [(None,), (1,), (2,), (1, None), (3, 1), ("leap",)],
    "event-based": [(None,), (None,), (1,), (2, None), (1, 1, None)],
}
EMITS = ["pn", "pn", "p", "n", "", "pn+1", "n+2", "pnx", "n+9"]
FAULTS = [
    *(("step", 1, name) for name in sorted(EXCEPTIONS)),
    *(("step", 2, what) for what in ("ValueError", "now", "float", "none")),
    *(("get_data", 2, what) for what in ("ValueError", "past", "ConnectionError")),
    ("setup_done", 1, "ValueError"),
    ("setup_done", 1, "ConnectionError"),
    ("finalize", 1, "ValueError"),
]


def rarely(draw: Any, one_in: int = 8) -> bool:
    return draw(st.integers(0, one_in - 1)) == one_in - 1


@st.composite
def sims(draw: Any, name: str, grouped: bool, faults: bool) -> Sim:
    kind = draw(st.sampled_from(sorted(STEPS, reverse=True)))
    more: dict[str, Any] = {}
    if grouped:
        more["group"] = draw(st.sampled_from(GROUPS))
        if kind != "time-based":
            more["rounds"] = draw(st.sampled_from([None, 1, 2, 3]))
    for field in ("shares", "empties", "opaque"):
        if rarely(draw):
            more[field] = True
    if kind == "time-based" and rarely(draw):
        more["api"] = draw(st.sampled_from(["2.2", "2.0"]))
    if faults and draw(st.booleans()):
        more["fault"] = draw(st.sampled_from(FAULTS))
    return Sim(
        name,
        kind,
        draw(st.sampled_from(STEPS[kind])),
        tuple(draw(st.lists(st.sampled_from(EMITS), min_size=1, max_size=3))),
        entities=draw(st.sampled_from([1, 1, 2])),
        **more,
    )


@st.composite
def links(draw: Any, all_sims: tuple[Sim, ...], faulty: bool) -> Link:
    """Draw a connection; backwards only with a shift, or weak within a group."""
    numbers = st.integers(0, len(all_sims) - 1)
    src, dest = draw(numbers), draw(numbers)
    one, other = all_sims[src], all_sims[dest]
    shift, weak = draw(st.sampled_from([0, 0, 0, 1, 2, 3])), False
    if one.group[:1] == other.group[:1] != () and src != dest:
        weak = draw(st.booleans())
    if dest <= src and not weak:
        shift = shift or 1
    src_attr, dest_attr = draw(st.sampled_from("pn")), draw(st.sampled_from("me"))
    needs_data = other.kind == "time-based" or (other.kind == "hybrid" and dest_attr == "m")
    initial = "i" if ((shift or weak) and needs_data) or rarely(draw, 16) else None
    return Link(
        one.name,
        other.name,
        src_attr,
        dest_attr,
        shift,
        weak,
        initial,
        draw(st.sampled_from(["", "", "twice", "boxed"] if not faulty else ["", "picky"])),
        draw(st.integers(0, one.entities - 1)),
        draw(st.integers(0, other.entities - 1)),
    )


@st.composite
def loops(draw: Any, all_sims: tuple[Sim, ...]) -> list[Link]:
    """Draw same-time loops: events go forwards, and weakly back."""
    pairs = [
        (one, other)
        for i, one in enumerate(all_sims)
        for other in all_sims[i + 1 :]
        if one.group[:1] == other.group[:1] != ()
    ]
    found = []
    for one, other in draw(st.lists(st.sampled_from(pairs), max_size=3)) if pairs else ():
        found.append(Link(one.name, other.name, "n", "e"))
        initial = "i" if one.kind == "time-based" else None
        found.append(Link(other.name, one.name, "n", "e", weak=True, initial=initial))
    return found


@st.composite
def requests(draw: Any, all_sims: list[Sim]) -> Link | None:
    """Let a simulator ask another one, or mosaik; returns the connection that allows it."""
    src = draw(st.integers(0, len(all_sims) - 1))
    dest = draw(st.integers(src, len(all_sims) - 1))
    one, other = all_sims[src], all_sims[dest]
    if not other.api.startswith("3"):
        return None
    asked = draw(
        st.lists(
            st.sampled_from(["set_data", "get_data", "get_progress", "get_related_entities"]),
            min_size=1,
            max_size=2,
        )
    )
    if rarely(draw, 16):
        asked.append("set_event")
    whom = {"set_data": one.name, "get_data": one.name, "set_event": "3"}
    said = tuple(f"{what} {whom.get(what, '')}".strip() for what in asked)
    all_sims[dest] = replace(other, requests=said)
    if src == dest or rarely(draw, 16):
        return None
    return Link(one.name, other.name, requests=True)


@st.composite
def scenarios(draw: Any, max_sims: int = 6, grouped: bool | None = None, **kinds: bool) -> Scenario:
    """Draw a world.

    ``faults`` and ``asking``: whether something may go wrong in it, and simulators may ask mosaik for things (both
    are so by default). ``ordered``: only what does not depend on the order in which mosaik happens to take
    simulators that may step, but for max_advance: no faults, no requests, no weak connections, no simulator that
    changes its outputs in place or steps at the end of max_advance.
    """
    faults, asking, ordered = (
        kinds.get("faults", True),
        kinds.get("asking", True),
        kinds.get("ordered", False),
    )
    grouped = not ordered and draw(st.booleans()) if grouped is None else grouped
    number = draw(st.integers(1, max_sims))
    faulty = faults and not ordered and rarely(draw, 5)
    all_sims = [draw(sims(name, grouped, faulty)) for name in NAMES[:number]]
    if ordered:
        all_sims = [
            replace(sim, shares=False, steps=tuple(4 if step == "leap" else step for step in sim.steps))
            for sim in all_sims
        ]
    asked: list[Link | None] = []
    if asking and not ordered and rarely(draw, 4):
        asked = [draw(requests(all_sims)) for _ in range(draw(st.integers(1, 2)))]
    chosen = tuple(all_sims)
    connections = draw(st.lists(links(chosen, faulty), max_size=2 * number))
    if grouped:
        connections += draw(loops(chosen))
    starts = st.tuples(st.sampled_from(NAMES[:number]), st.integers(0, 5))
    return Scenario(
        chosen,
        (*connections, *(one for one in asked if one)),
        until=draw(st.integers(3, 9)),
        initial_events=tuple(draw(st.lists(starts, max_size=2))),
        cache=not rarely(draw, 4),
        lazy=not rarely(draw, 3),
        max_loop_iterations=draw(st.sampled_from([100, 100, 3, 5])),
        debug=rarely(draw, 6),
    )
