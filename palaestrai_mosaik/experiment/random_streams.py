"""Phases that draw the random numbers of another phase."""

from __future__ import annotations

from collections.abc import Sequence

from palaestrai_mosaik.errors import did_you_mean
from palaestrai_mosaik.text import listed

from .located import Findings, Located

RANDOM_STREAMS = "random_streams"


def shared_streams(found: Findings, phases: Sequence[tuple[str, Located | None]]) -> dict[str, str]:
    """Map each phase with the random streams of another phase to the name of that phase.

    Args:
        found: collects the problems: unknown names, and phases that name each other in a circle.
        phases: name and ``random_streams`` of each phase; a value that is not a text is ignored.
    """
    named = {name: at for name, at in phases if at is not None and isinstance(at.value, str)}
    names = [name for name, _ in phases]
    shared: dict[str, str] = {}
    for name, at in named.items():
        if at.value not in names:
            listing = listed(list(map(repr, names)), 8)
            found.error(
                at.place, f"there is no phase {at.value!r}{did_you_mean(at.value, names)}; phases: {listing}"
            )
            continue
        way = [name]
        while way[-1] in named and way.count(way[-1]) == 1:
            way.append(named[way[-1]].value)
        if way[-1] not in named:
            shared[name] = way[-1]
        elif way[-1] == name and way[1] == name:
            found.error(
                at.place,
                f"a phase has random streams of its own without this key; name another phase, not {name!r}",
            )
        elif way[-1] == name:
            found.error(
                at.place, f"the phases name each other: {' -> '.join(way)}; one of them draws its own streams"
            )
    return shared
