"""Colours by identity: an agent, a level or a setting has one colour in all figures of a run, a store or a design.

A colour is a number, the place of its owner in the document or the design. A figure that shows only some of them
keeps their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palaestrai_mosaik.store import Store

# The palette of Okabe and Ito (2008), distinguishable for colour-blind people, without its yellow, which is too pale
# for lines. The last five are for panels of many lines: there is a colour for each line.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"),
    *("#882255", "#999933", "#8A63D2", "#8B4513", "#8C8C8C"),
)
GREY = "#5A6570"
#: the number of what several owners share
SHARED = -1
# Shares of white in the colours of further curves of one owner.
_TINTS = (0.0, 0.35, 0.6)


def numbers_of(names: Iterable[str]) -> dict[str, int]:
    """Return the number of each name's colour: its place among the distinct names.

    Args:
        names: the names of all agents, levels or settings, in the order of the document or the design.
    """
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def numbers_of_agents(store: Store, run: str) -> dict[str, int]:
    """Return the number of the colour of each agent of a run.

    Args:
        store: the open store.
        run: the run, as :meth:`Store.find_run` takes it.

    Returns:
        The numbers by name, in the order in which the phases of the document name the agents.

    Raises:
        StoreError: there is no such run.
    """
    return numbers_of(store.agent_names(run))


def colour_of(number: int, tint: int = 0) -> str:
    """Return a colour as ``#RRGGBB``; ``tint`` counts the curves of its owner, which become paler."""
    if number == SHARED:
        return GREY
    share = _TINTS[tint % len(_TINTS)]
    colour = COLOURS[number % len(COLOURS)]
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02X}" for part in parts)
