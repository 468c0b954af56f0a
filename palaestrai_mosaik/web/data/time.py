"""A run over simulated time in the page: chosen columns of an episode, from one or several phases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.analysis.columns import (
    PREFIXES,
    Clock,
    Moment,
    RowSource,
    bare,
    clock_of,
    sources_of,
    unit_of,
)
from palaestrai_mosaik.analysis.curves import percentiles
from palaestrai_mosaik.analysis.learning import MOST_LINES
from palaestrai_mosaik.analysis.limits import Pair, bounds_of, in_sight, limits_of
from palaestrai_mosaik.analysis.series import (
    Curve,
    by_scale,
    by_unit,
    has_natural_scale,
    matching_curves,
    y_label_of,
)
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.store import BodyChoice, Store
from palaestrai_mosaik.text import joined

from ..extremes import places_of_extremes
from ..resources import Query, ResourceError, Source, resource

if TYPE_CHECKING:
    import pandas as pd

#: names of a band's values in the answer, with their percentiles
_LEVELS = {"min": 0, "low": 5, "median": 50, "high": 95, "max": 100}
#: maximum number of single columns that are suggested beside the patterns
_MOST_NAMES = 300
# numbers within a name, such as those of a bus, or indices within a vector
_NUMBERS = re.compile(r"\[[\d, ]+\]|\d+")
_NUMBERED = re.compile(r"(?<=[-._])\d+|\[[\d, ]+\]")


@dataclass(frozen=True)
class _Chosen:
    """An episode that is shown, with its sources, clock and bounds; ``last`` is the newest episode of its worker."""

    moment: Moment
    last: int
    sources: Sequence[RowSource]
    clock: Clock | None
    bounds: dict[str, Pair]


@resource("run/{run}/time")
def time(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the possible choices: phases, workers, episodes, bodies, and patterns of columns."""
    store = source.store
    uid = store.find_run(run)
    recorded = store.recorded_episodes(uid)
    phases: list[dict[str, Any]] = []
    offered: dict[str, None] = {}
    row: Any
    for row in store.phases(uid).itertuples(index=False):
        phase_episodes = recorded[recorded["phase"] == row.phase]
        sources = sources_of(store, uid, int(row.phase), BodyChoice())
        offered |= dict.fromkeys(name for entry in sources for name in entry.columns)
        bodies = store.bodies(uid, row.phase).groupby("agent")["count"].sum()
        incarnations = store.environments(uid, row.phase)["incarnations"]
        phases.append(
            {
                **{"phase": row.phase, "name": row.name, "mode": row.mode},
                "bodies": int(bodies.max()) if len(bodies) else 0,
                "incarnations": int(incarnations.max()) if len(incarnations) else 0,
                "episodes": [
                    {"worker": entry.worker, "evaluation": bool(entry.evaluation), "last": entry.last}
                    for entry in phase_episodes.itertuples(index=False)
                ],
            }
        )
    suggested = suggestions(list(offered))
    return {"phases": phases, "suggestions": suggested, "patterns": default_patterns(suggested)}


@resource("run/{run}/series")
def series(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return chosen columns over an episode, as panels of lines or percentiles.

    The query has ``phases`` (numbers, separated by commas; default: the last phase with rows), ``worker`` (default: the
    first), ``episode`` (default: the last), ``evaluation`` (``1``: evaluation episodes), ``body`` or ``incarnation``
    (default: all, as a band), ``patterns`` (one per line), and a window of ticks, ``start`` (inclusive) and ``stop``
    (exclusive). Lines are sent with about 2,000 points, including their lowest and highest values.
    """
    store = source.store
    uid = store.find_run(run)
    start, stop = query.integer("start"), query.integer("stop")
    recorded = store.recorded_episodes(uid)
    newest = int(recorded["phase"].max()) if len(recorded) else None
    chosen = _chosen(store, uid, query, recorded)
    # use the columns of all phases, so that a link shows the same panels for all of them
    names = list(
        dict.fromkeys(name for item in chosen for row_source in item.sources for name in row_source.columns)
    )
    patterns = [text for text in query.get("patterns", "").split("\n") if text]
    patterns = patterns or default_patterns(suggestions(names))
    clock, same_start = _common_clock([item.clock for item in chosen])
    complete: dict[int, int] = {}
    panels: list[dict[str, Any]] = []
    problems = []
    for index, pattern in enumerate(patterns):
        phase_curves: list[tuple[int, Curve, str]] = []
        missing = []
        for i, item in enumerate(chosen):
            try:
                curves = matching_curves(item.sources, item.moment, pattern, None, start, stop)
            except StoreError as error:
                missing.append({"pattern": index, "message": str(error)})
                continue
            phase_curves += [(i, curve, name) for curve, name in curves]
            ends = [int(curve.x[-1]) for curve, _ in curves if len(curve.x)]
            complete[i] = min([complete.get(i, max(ends)), *ends]) if ends else complete.get(i, -1)
        problems += missing if not phase_curves else []
        panels += [{"pattern": index, **panel} for panel in _panels(phase_curves, chosen)]
    ends = [
        end
        for panel in panels
        for item in panel["lines"]
        for end in (item["x"][[0, -1]] if len(item["x"]) else ())
    ]
    return {
        "patterns": patterns,
        "phases": [
            {
                **{"phase": item.moment.phase, "name": item.moment.phase_name, "worker": item.moment.worker},
                **{"episode": item.moment.episode, "evaluation": item.moment.evaluation},
                **{"last": item.last, "complete": complete.get(i, -1)},
            }
            for i, item in enumerate(chosen)
        ],
        # a running run may have started a later phase
        "newest": newest,
        "seconds_per_tick": None if clock is None else clock.seconds_per_tick,
        "start": None if clock is None or not same_start else str(clock.start),
        "span": [int(min(ends)), int(max(ends))] if ends else None,
        "panels": panels,
        "problems": problems,
    }


def _chosen(store: Store, uid: str, query: Query, recorded: pd.DataFrame) -> list[_Chosen]:
    """Return the episodes that a query selects.

    Raises:
        ResourceError: a phase does not exist.
        StoreError: the episode was not recorded.
    """
    evaluation, worker, episode = query.flag("evaluation"), query.integer("worker"), query.integer("episode")
    choice, incarnation = BodyChoice(body=query.integer("body")), query.integer("incarnation")
    names = store.phases(uid).set_index("phase")["name"]
    recorded = recorded[recorded["evaluation"].astype(bool) == evaluation]
    numbers = query.texts("phases") or ([str(recorded["phase"].max())] if len(recorded) else [])
    chosen = []
    for text in dict.fromkeys(numbers):
        phase = int(text) if text.isdecimal() else -1
        if phase not in names.index:
            listed = ", ".join(f"{number} {name!r}" for number, name in names.items())
            raise ResourceError(f"phases: there is no phase {text}; there are: {listed or 'none'}")
        rows = recorded[recorded["phase"] == phase]
        of_worker = int(rows["worker"].min()) if worker is None and len(rows) else worker or 0
        rows = rows[rows["worker"] == of_worker]
        what = "evaluation episode" if evaluation else "episode"
        if rows.empty:
            raise StoreError(
                f"phase {phase} {names[phase]!r} has no {what} of worker {of_worker} that was recorded"
            )
        first, last = int(rows["first"].iloc[0]), int(rows["last"].iloc[0])
        number = last if episode is None else episode
        if not first <= number <= last:
            raise StoreError(
                f"phase {phase} {names[phase]!r} has no {what} {number} of worker {of_worker}: it has {first} to {last}"
            )
        chosen.append(
            _Chosen(
                Moment(phase, str(names[phase]), of_worker, number, evaluation),
                last,
                sources_of(store, uid, phase, choice, incarnation),
                clock_of(store, uid, phase),
                bounds_of(store, uid, phase),
            )
        )
    return chosen


def _common_clock(clocks: Sequence[Clock | None]) -> tuple[Clock | None, bool]:
    """Return a clock with the same seconds per tick as all, if any, and whether all start at its date."""
    first = clocks[0] if clocks else None
    if first is None or any(
        clock is None or clock.seconds_per_tick != first.seconds_per_tick for clock in clocks
    ):
        return None, False
    return first, all(clock == first for clock in clocks)


def _panels(found: Sequence[tuple[int, Curve, str]], chosen: Sequence[_Chosen]) -> Iterable[dict[str, Any]]:
    """Yield a panel for each unit among the curves of one pattern, over all phases."""
    phase_of = {id(curve): i for i, curve, _ in found}
    for named in by_unit([(curve, name) for _, curve, name in found]):
        columns = dict.fromkeys((curve.label, name) for curve, name in named)
        finite = [(phase_of[id(curve)], curve, name) for curve, name in named if np.isfinite(curve.y).any()]
        # count columns without values, too, so that every window of the episode gives the same kind
        many = len(columns) > MOST_LINES
        phases = {phase_of[id(curve)] for curve, _ in named}
        without = [repr(entry.moment.phase_name) for i, entry in enumerate(chosen) if i not in phases]
        missing = len(named) - len(finite)
        bands = any(curve.low is not None for _, curve, _ in finite)
        notes = [
            "mean over the bodies; band: lowest to highest" if bands and not many else "",
            f"{missing:,} without any value left out" if missing else "",
            f"not in {joined(without)}" if without else "",
        ]
        lines = _bands(finite) if many else _lines(finite, list(columns))
        limits = limits_of([name for *_, name in finite], chosen[0].bounds, True, several=False)
        yield {
            "y_label": y_label_of(name for _, name in named),
            "unit": unit_of(named[0][1]),
            "kind": "percentiles" if many else "lines",
            "columns": len(columns),
            "note": "; ".join(note for note in notes if note),
            "limits": [
                {"value": entry.value, "name": entry.name}
                for entry in in_sight(limits, [curve.y for _, curve, _ in finite])
            ],
            "lines": lines,
        }


def _lines(
    shown: Sequence[tuple[int, Curve, str]], columns: Sequence[tuple[str, str]]
) -> list[dict[str, Any]]:
    coloured = [
        (i, replace(curve, colour=columns.index((curve.label, name))), name) for i, curve, name in shown
    ]
    right = on_right_axis(
        [curve for _, curve, _ in coloured], natural=any(has_natural_scale(n) for *_, n in shown)
    )
    lines = []
    for i, curve, name in coloured:
        low = curve.y if curve.low is None else curve.low
        indices = places_of_extremes(low, curve.high)
        band = {} if curve.low is None or curve.high is None else {"low": curve.low, "high": curve.high}
        lines.append(
            {
                **{"phase": i, "label": curve.label, "column": name, "place": curve.colour},
                **{"steps": curve.steps, "right": curve.colour in right, "points": len(curve.x)},
                **{key: values[indices] for key, values in {"x": curve.x, "y": curve.y, **band}.items()},
            }
        )
    return lines


def _bands(shown: Sequence[tuple[int, Curve, str]]) -> list[dict[str, Any]]:
    bands = []
    for i in dict.fromkeys(i for i, _, _ in shown):
        curves = [curve for phase, curve, _ in shown if phase == i]
        x, values = percentiles(curves, list(_LEVELS.values()))
        indices = places_of_extremes(values[0], values[-1])
        of_levels = dict(zip(_LEVELS, values, strict=True))
        bands.append(
            {
                **{
                    "phase": i,
                    "label": f"{len(curves):,} columns",
                    "place": 0,
                    "right": False,
                    "steps": False,
                },
                **{"points": len(x), "x": x[indices]},
                **{name: level[indices] for name, level in of_levels.items()},
            }
        )
    return bands


def on_right_axis(curves: Sequence[Curve], *, natural: bool) -> set[int]:
    """Return the colours of the curves that get a second axis, on the right, because they would look flat otherwise.

    These are the smaller group of curves; of equal groups, the one with the larger values. ``natural``: all have one
    scale.
    """
    groups = [] if natural else [{curve.colour for curve in group} for _, group in by_scale(curves, 2)]
    if len(groups) < 2:
        return set()
    large, small = groups
    return {colour for colour in (large if len(large) <= len(small) else small) if colour is not None}


def suggestions(columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return patterns for all columns of one quantity, and single columns.

    Each has ``pattern``, ``kind`` (``reading``, ``setpoint``, ``reward``, or the column's name), ``unit`` and
    ``count``, the number of columns.
    """
    kinds: dict[str, dict[str, int]] = {}
    quantities: dict[tuple[str, str], set[str]] = {}
    for column in columns:
        kind = next((item[:-1] for item in PREFIXES if column.startswith(item)), column)
        name = bare(column) if kind == "reading" else column
        pattern = _NUMBERED.sub(lambda found: "[*]" if found[0].startswith("[") else "*", name)
        counts = kinds.setdefault(kind, {})
        counts[pattern] = counts.get(pattern, 0) + 1
        if "." in bare(column):
            prefix = "" if kind == "reading" else f"{kind}."
            quantities.setdefault((kind, f"{prefix}*.{pattern.rpartition('.')[2]}"), set()).add(pattern)
    for (kind, wider), patterns in quantities.items():
        if len(patterns) > 1:
            kinds[kind][wider] = sum(kinds[kind][item] for item in patterns)
    for kind, counts in kinds.items():
        if len(counts) > 1 and kind != "reading":
            counts[f"{kind}.*"] = len([item for item in columns if item.startswith(f"{kind}.")])
    found = [
        {"pattern": pattern, "kind": kind, "unit": unit_of(pattern.replace("*", "0")), "count": count}
        for kind, counts in kinds.items()
        for pattern, count in counts.items()
    ]
    grouped = {item["pattern"] for item in found}
    single = [
        name for name in columns if (bare(name) if name.startswith("reading.") else name) not in grouped
    ]
    for name in single[:_MOST_NAMES]:
        short_name = bare(name) if name.startswith("reading.") else name
        found.append(
            {"pattern": short_name, "kind": name.partition(".")[0], "unit": unit_of(name), "count": 1}
        )
    return found


def default_patterns(suggested: Sequence[dict[str, Any]]) -> list[str]:
    """Return the patterns of the initial view: voltages or other readings, set-points, and the objective."""

    def first(kind: str) -> list[str]:
        matching = [one for one in suggested if one["kind"] == kind]
        # voltages first, then other columns with a unit
        order = {"p.u.": 0, None: 2}
        matching.sort(key=lambda one: order.get(one["unit"], 1))
        return [one["pattern"] for one in matching[:1]]

    return [*first("reading"), *first("setpoint"), *(first("objective") or first("reward"))]
