"""The data of plots: curves and bodies, read from the store."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.core.errors import PalaestraiMosaikError, StoreError
from palaestrai_mosaik.experiment import only_modules, resolve
from palaestrai_mosaik.experiment.class_names import named_modules
from palaestrai_mosaik.store import BodyChoice
from palaestrai_mosaik.store.query.trajectories import NUMBERS
from palaestrai_mosaik.types.arrays import FloatVector

from .colours import SHARED, numbers_of_agents
from .columns import (
    Clock,
    Moment,
    RowSource,
    bare,
    clock_of,
    matching,
    nothing_matches,
    sources_of,
)
from .limits import Limit, Limits, Pair, bounds_of, limits_of, pairs_of

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import Store

#: base class of conditions
_CONDITION = "palaestrai_mosaik.simulation.conditions:TerminationCondition"


#: the columns of outcomes: the keys of a curve, the keys of a value in it, and the values
CURVE_KEYS = ["phase", "evaluation", "agent", "kind", "name"]
_COLUMNS = [*CURVE_KEYS, "worker", "body", "episode", "sum", "mean"]
_EPISODE = ["phase", "evaluation", "worker", "episode", "agent"]
_KINDS = ("objective", "reward")
#: what a curve may be averaged over, by column
MEMBERS = {"worker": "workers", "body": "bodies"}


@dataclass(frozen=True)
class EpisodeCurve:
    """An outcome of an agent in each episode of a phase, over its workers and bodies.

    Attributes:
        key: phase, evaluation, agent, kind and name.
        over: ``worker`` or ``body``, or both, if there are several.
        moments: ``mean``, ``min`` and ``max`` over them by episode, of the episode's ``mean`` and of its ``sum``.
    """

    key: tuple[int, bool, str, str, str]
    over: tuple[str, ...]
    moments: Mapping[str, pd.DataFrame]


def episode_curves(outcomes: pd.DataFrame) -> Iterator[EpisodeCurve]:
    """Yield the curves of the outcomes of :func:`by_member`; NaN is ignored.

    With several bodies, an episode has no minimum and maximum until its bodies have been read.
    """
    key: Any
    for key, rows in outcomes.groupby(CURVE_KEYS, sort=False):
        phase, evaluation, *names = key
        episodes = rows.groupby("episode")
        moments = {fold: episodes[fold].agg(["mean", "min", "max"]) for fold in ("mean", "sum")}
        over = tuple(name for name in MEMBERS if rows[name].nunique() > 1)
        if "body" in over:
            unread = episodes["body"].min() < 0
            for frame in moments.values():
                frame.loc[unread, ["min", "max"]] = np.nan
        yield EpisodeCurve((int(phase), bool(evaluation), *names), over, moments)


def member_outcomes(
    store: Store, run: str, phase: int | str | None, choice: BodyChoice, evaluation: bool | None = False
) -> pd.DataFrame:
    """Return the outcomes of finished episodes in the form of :func:`by_member`.

    Of agents with chosen bodies, only the rows of these bodies are returned.
    """
    outcomes = store.outcomes(run, phase, choice.agent, evaluation, finished=True)
    if evaluation is not None:
        outcomes = outcomes.assign(evaluation=evaluation)
    outcomes = mean_over_bodies(store, run, outcomes)
    rows = by_member(outcomes, body_outcomes(store, run, phase, choice, evaluation))
    if choice:
        rows = rows[(rows["body"] >= 0) | ~rows["agent"].isin(agents_by_body(store, run, phase, choice))]
    return rows


def mean_over_bodies(store: Store, run: str, outcomes: pd.DataFrame) -> pd.DataFrame:
    """Return the ``outcomes`` of a run with each agent's sum divided by its number of bodies.

    It is then comparable to the sum of a single body.
    """
    counts = store.bodies(run).groupby(["phase", "agent"])["count"].sum().to_dict()
    bodies = [counts.get(key, 1) for key in zip(outcomes["phase"], outcomes["agent"], strict=True)]
    return outcomes.assign(sum=outcomes["sum"] / bodies)


def by_member(outcomes: pd.DataFrame, bodies: pd.DataFrame | None) -> pd.DataFrame:
    """Return the outcomes of agents, with a row per body instead of the agent's row if its bodies are read.

    Args:
        outcomes: the result of :func:`mean_over_bodies`, with the column ``evaluation``.
        bodies: the result of :func:`body_outcomes`. Bodies of episodes that have not ended are left out.

    Returns:
        The columns of ``bodies``; ``body`` is -1 in the rows of whole agents.
    """
    import pandas as pd

    rows = outcomes.assign(body=-1)[_COLUMNS]
    if bodies is None:
        return rows
    ended = pd.MultiIndex.from_frame(rows[_EPISODE])
    of_bodies = pd.MultiIndex.from_frame(bodies[_EPISODE].astype(rows[_EPISODE].dtypes.to_dict()))
    return pd.concat([rows[~ended.isin(of_bodies)], bodies[of_bodies.isin(ended)]], ignore_index=True)


def agents_by_body(store: Store, run: str, phase: int | str | None, choice: BodyChoice) -> list[str]:
    """Return the agents that must be queried body by body, because they have several bodies, or some are selected."""
    bodies = store.bodies(run, phase, choice.agent, **choice.filters)
    counts = bodies.groupby(["agent", "phase"], sort=False, as_index=False)["count"].sum()
    return list(dict.fromkeys(counts["agent"] if choice else counts.loc[counts["count"] > 1, "agent"]))


def body_outcomes(
    store: Store, run: str, phase: int | str | None, choice: BodyChoice, evaluation: bool | None = False
) -> pd.DataFrame | None:
    """Return the outcomes of each body of the agents of :func:`agents_by_body`, in the form of ``Store.outcomes``.

    Columns: ``phase``, ``evaluation``, ``agent``, ``kind``, ``name``, ``worker``, ``body``, ``episode``, ``sum`` and
    ``mean`` (over the steps with a value, of all episodes that the body's environment had within that of the phase).
    ``None``: there is no such agent, or it has no rows.
    """
    import pandas as pd

    agents = agents_by_body(store, run, phase, choice)
    if not agents:
        return None
    rows = store.body_episodes(run, phase, choice.agent, evaluation=evaluation, **choice.filters, counts=True)
    parts: list[pd.DataFrame] = []
    for agent in agents:
        parts += filter(len, _outcomes_of_bodies(rows[rows["agent"] == agent]))
    return pd.concat(parts, ignore_index=True) if parts else None


def _outcomes_of_bodies(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the objective, then each reward, of the bodies in each episode of the phase."""
    names = [str(name).removesuffix("_sum") for name in rows if str(name).endswith("_sum")]
    counted = [f"{name}_{what}" for name in names for what in ("sum", "count")]
    keys = [name for name in _COLUMNS if name in rows]
    grouped = rows.groupby(keys, sort=False)[counted].sum(min_count=1).reset_index()
    for name in names:
        total, count = grouped[f"{name}_sum"], grouped[f"{name}_count"]
        part = grouped.assign(sum=total, mean=total / count.where(count > 0))
        if name == "objective":
            yield part.assign(kind="objective", name="")[_COLUMNS]
        else:
            # Agents have no part in the rewards of other agents' environments.
            part = part[total.notna()].assign(kind="reward", name=name.removeprefix("reward."))
            yield part[_COLUMNS]


def phases_that_restart(store: Store, run: str) -> set[int]:
    """Return the numbers of the phases in which environments restart on their own."""
    document = store.document(run)
    always = _restarts(document.get("run_config", {}))
    phases = [phase for entry in document.get("schedule", []) for phase in entry.values()]
    return {i for i, phase in enumerate(phases) if always or _restarts(phase.get("simulation", {}))}


def _restarts(section: Mapping[str, Any]) -> bool:
    conditions = list(section.get("conditions") or [])
    conditions += [section["condition"]] if section.get("condition") else []
    return any(_resets(str(condition["name"]), condition.get("params") or {}) for condition in conditions)


def _resets(name: str, params: Mapping[str, Any]) -> bool:
    """Whether a condition lets environments restart.

    The class of the condition is asked if it is in this package, or if its module has been imported already.
    Results may come from others, so showing them must not import modules that their documents name.
    """
    try:
        with only_modules(module for module in named_modules(name) if module in sys.modules):
            condition_class = resolve(name, "condition")
        if not any(
            f"{base.__module__}:{base.__qualname__}" == _CONDITION for base in condition_class.__mro__
        ):
            return False
        condition = condition_class(**deepcopy(dict(params)))
    except (PalaestraiMosaikError, TypeError):
        # The class may not be installed here, or may differ from the one that ran.
        return bool(params.get("when") == "all")
    return bool(getattr(condition, "environments_reset", False))


def own_episodes(store: Store, run: str, phase: int, choice: BodyChoice, every: int | None) -> pd.DataFrame:
    """Return the episodes of the bodies' environments, in the order in which they ended.

    Columns: ``agent``, ``phase``, ``worker``, ``episode``, ``evaluation``, ``after``, ``sum`` and
    ``mean`` of the objective. Interrupted episodes are left out. ``after`` is the number of training
    episodes that the worker had finished. An evaluation, which ran after ``every`` episodes of the
    phase, comes after the episodes that had ended before it.
    """
    frame = store.body_episodes(run, phase, choice.agent, evaluation=None, **choice.filters)
    frame = frame[frame["complete"].astype(bool)].reset_index(drop=True)
    frame = frame.rename(columns={"objective_sum": "sum", "objective_mean": "mean"})
    trained = frame[~frame["evaluation"].astype(bool)]
    frame["after"] = trained.groupby(["agent", "worker"]).cumcount() + 1
    for i, row in frame[frame["after"].isna()].iterrows():
        before = (trained["agent"] == row["agent"]) & (trained["worker"] == row["worker"])
        before &= trained["episode"] < (row["episode"] + 1) * (every or 1)
        frame.loc[i, "after"] = int(before.sum())
    columns = ["agent", "phase", "worker", "episode", "evaluation", "after", "sum", "mean"]
    return frame[columns].astype({"after": int})


# Quantities with a natural scale: a line of 2 % must look small beside one of 80 %.
_NATURAL = {"p.u.", "%"}
# Curves that are smaller than others by this factor would look flat beside them.
_FLAT, _MOST_SCALES = 10.0, 3
#: the labels of an axis of dates, and of one of ticks
TIME, TICKS = "time", "time (ticks)"
#: note on curves of several bodies
BODY_BAND = "mean over the bodies; band: lowest to highest"


@dataclass(frozen=True)
class Curve:
    """A line of a panel.

    Attributes:
        label: text in the legend.
        x: (points,) numbers or dates.
        y: (points,) values.
        low: (points,) lower end of the band over workers, if there are several.
        high: (points,) upper end of the band.
        steps: whether each value holds until the next point.
        raw: (points,) the values that ``y`` is a moving average of.
        points: whether to draw markers instead of a line.
        colour: number of the colour; curves with the same number belong together.
        faint: whether to draw a thin line without an entry in the legend.
        identity: number of the colour of the curve's owner (:mod:`.colours`); ``None``: ``colour``, or else the
            position in the panel.
        unit: the unit of the values.
        hollow: whether the values are of episodes that did not finish, which are drawn open.
        part: index of the panel, among panels beside each other.
    """

    label: str
    x: Any
    y: FloatVector
    low: FloatVector | None = None
    high: FloatVector | None = None
    steps: bool = False
    raw: FloatVector | None = None
    points: bool = False
    colour: int | None = None
    faint: bool = False
    identity: int | None = None
    unit: str | None = None
    hollow: bool = False
    part: int = 0


@dataclass(frozen=True)
class Panel:
    """Curves that share their axes.

    Attributes:
        title: title of the panel.
        x_label: label of the x axis.
        y_label: label of the y axis.
        curves: the curves.
        marks: positions and names of phases, half an episode before their first one. If there are
            several, episodes are counted from 0 in each phase.
        note: explanation in the legend.
        shades: intervals of x with a shaded background.
        limits: horizontal lines, drawn if they are in sight.
        groups: names of the groups of bars at x = 0, 1, ..., if the curves are drawn as bars.
    """

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    marks: tuple[tuple[float, str], ...] = ()
    note: str = ""
    shades: tuple[tuple[float, float], ...] = ()
    limits: tuple[Limit, ...] = ()
    groups: tuple[str, ...] = ()


def by_scale(curves: Sequence[Curve], most: int = _MOST_SCALES) -> list[tuple[float, list[Curve]]]:
    """Split curves into at most ``most`` groups, because in one panel the smaller ones would look flat.

    Curves of one ``colour`` stay together. Curves of zeros are in the last group.

    Returns:
        The largest value of each group and its curves, in descending order.
    """
    keys = [i if curve.colour is None else (curve.colour,) for i, curve in enumerate(curves)]
    sizes: dict[object, float] = {}
    for key, curve in zip(keys, curves, strict=True):
        sizes[key] = max(sizes.get(key, 0.0), _largest(curve.y))
    order = sorted(set(sizes.values()) - {0.0})
    steps = sorted(((b / a, b) for a, b in pairwise(order) if b / a >= _FLAT), reverse=True)
    edges = sorted(size for _, size in steps[: most - 1])
    groups: dict[int, list[Curve]] = {}
    largest: dict[int, float] = {}
    for key, curve in zip(keys, curves, strict=True):
        index = bisect_right(edges, sizes[key])
        groups.setdefault(index, []).append(curve)
        largest[index] = max(largest.get(index, 0.0), sizes[key])
    return [(largest[index], groups[index]) for index in sorted(groups, reverse=True)]


def _largest(values: FloatVector) -> float:
    """Return the largest finite magnitude; 0 if there is none."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def split_by_scale(panel: Panel) -> list[Panel]:
    """Split the panel if some of its curves would look flat beside others."""
    groups = by_scale(panel.curves)
    if len(groups) == 1:
        return [panel]
    return [
        replace(panel, title=f"{panel.title}: {range_text(curves)}", curves=tuple(curves))
        for _, curves in groups
    ]


def range_text(curves: Iterable[Curve], unit: str | None = None) -> str:
    """Return the lowest and the highest value of curves, such as ``-0.69 to -0.64 p.u.``; there is one at least."""
    values = np.concatenate([curve.y[np.isfinite(curve.y)] for curve in curves])
    low, high = (f"{value:.3g}" for value in (values.min(), values.max()))
    return (low if low == high else f"{low} to {high}") + (f" {unit}" if unit else "")


def episode_panels(
    store: Store, run: str, phase: int | str | None, choice: BodyChoice, fold: str = "mean"
) -> list[Panel]:
    """Return panels of objective and rewards per episode, with the phases one after the other on one axis.

    Each point is the mean or sum (``fold``) of an episode. With several workers or bodies it is the
    mean over them, with a band from the lowest to the highest. Several phases of one episode each become groups of
    bars. Episodes that did not finish are left out, or drawn open if their phase has no other.
    """
    import pandas as pd

    finished = member_outcomes(store, run, phase, choice)
    unfinished = _only_unfinished(store, run, phase, choice, set(finished["phase"]))
    parts = [part for part in (finished, unfinished) if len(part)]
    if not parts:
        return []
    outcomes = pd.concat([part[["phase", "episode"]] for part in parts])
    names = store.phases(run).set_index("phase")["name"]
    starts: dict[int, int] = {}
    total = 0
    for number, last in outcomes.groupby("phase")["episode"].max().items():
        starts[int(str(number))] = total
        total += int(last) + 1
    single = total == len(starts) > 1
    marks = tuple((start - 0.5, str(names[number])) for number, start in starts.items())
    groups = tuple(name for _, name in marks) if single else ()
    label = "phase" if single else "episode" if len(starts) == 1 else "episode, counted in each phase"
    recorded = list(episode_curves(finished))
    note, colours = _note_over(recorded), numbers_of_agents(store, run)
    # A point without a value between two phases interrupts the lines.
    gaps = () if single else (start - 0.5 for start in starts.values() if start)
    positions = sorted([*range(total), *gaps])
    joined = {kind: list(_joined_curves(recorded, kind, fold, starts, positions)) for kind in _KINDS}
    joined["reward"], equal = _without_objectives(joined["reward"], joined["objective"])
    panels = []
    for kind, curves in joined.items():
        what, of, distinct = _shared(curves, colours) if curves else ("", "", ())
        if distinct or not recorded:
            distinct += tuple(_hollow_curves(unfinished, kind, fold, starts, colours))
        if distinct:
            where = "the episode of each phase" if single else "each episode"
            title = f"{fold.capitalize()} of the {kind} in {where}{what}"
            notes = _notes(of, note, equal if kind == "objective" else "")
            panel = Panel(title, label, f"{fold} of the {kind}", distinct, () if single else marks, notes)
            panels += split_by_scale(replace(panel, groups=groups))
    return panels


def _without_objectives(rewards: Sequence[Curve], objectives: Sequence[Curve]) -> tuple[list[Curve], str]:
    """Return the rewards that are not equal to an objective, and a note that names the others."""
    # A single value may be equal by chance.
    values = {curve.y.tobytes() for curve in objectives if np.isfinite(curve.y).sum() > 1}
    equal = [curve.label.partition(": ")[2] for curve in rewards if curve.y.tobytes() in values]
    note = f"rewards equal to an objective: {', '.join(dict.fromkeys(equal))}" if equal else ""
    return [curve for curve in rewards if curve.y.tobytes() not in values], note


def unfinished_text(steps: int, planned: Any) -> str:
    """Say how far an unfinished episode came; ``planned`` are its steps in the document, missing if unknown."""
    import pandas as pd

    of_planned = "" if pd.isna(planned) else f" of {int(planned):,}"
    return f"unfinished, {steps:,}{of_planned} steps"


def only_unfinished(store: Store, run: str, evaluation: bool | None = False) -> pd.DataFrame:
    """Return the unfinished episodes of the phases that have no finished one, in the form of ``Store.outcomes``.

    Columns: those of ``Store.outcomes``, and ``steps`` and ``planned``.
    """
    phase = ["phase", "evaluation"]
    unfinished = store.unfinished_episodes(run)
    rows = mean_over_bodies(store, run, store.outcomes(run, evaluation=None))
    rows = rows.astype({"evaluation": bool}).merge(unfinished, on=[*phase, "worker", "episode"], how="left")
    finished = set(rows.loc[rows["steps"].isna(), phase].itertuples(index=False, name=None))
    alone = [key not in finished for key in rows[phase].itertuples(index=False, name=None)]
    rows = rows[np.array(alone, dtype=bool) & ((evaluation is None) | (rows["evaluation"] == evaluation))]
    return rows.astype({"steps": int})


def _only_unfinished(
    store: Store, run: str, phase: int | str | None, choice: BodyChoice, finished: set[int]
) -> pd.DataFrame:
    """Return the unfinished episodes to draw, the first one of each phase; none if bodies are selected."""
    rows = only_unfinished(store, run)
    phases = store.phases(run)
    chosen = phases[(phases["phase"] == phase) | (phases["name"] == phase) | (phase is None)]["phase"]
    rows = rows[rows["phase"].isin(chosen) & ~rows["phase"].isin(finished) & (not choice)]
    if choice.agent is not None:
        rows = rows[rows["agent"] == choice.agent]
    rows = rows.sort_values(["phase", "episode", "worker"], kind="stable")
    return rows.drop_duplicates(["phase", "agent", "kind", "name"]).assign(episode=0)


def _hollow_curves(
    rows: pd.DataFrame, kind: str, fold: str, starts: Mapping[int, int], colours: Mapping[str, int]
) -> Iterator[Curve]:
    """Yield a point for each outcome of an unfinished episode."""
    row: Any
    for row in rows[rows["kind"] == kind].itertuples(index=False):
        if np.isfinite(value := getattr(row, fold)):
            label = f"{row.agent}: {row.name}" if row.name else row.agent
            yield Curve(
                f"{label}: {unfinished_text(row.steps, row.planned)}",
                *(np.array([float(starts[row.phase])]), np.array([value])),
                identity=colours[row.agent],
                hollow=True,
            )


def _note_over(recorded: Iterable[EpisodeCurve]) -> str:
    over = {name for curve in recorded for name in curve.over}
    means = " and ".join(f"the {several}" for name, several in MEMBERS.items() if name in over)
    return f"mean over {means}; band: lowest to highest" if over else ""


def _joined_curves(
    recorded: Iterable[EpisodeCurve],
    kind: str,
    fold: str,
    starts: Mapping[int, int],
    positions: Sequence[float],
) -> Iterator[Curve]:
    """Yield a curve of all phases per agent and name, with the first episode of each phase at its start."""
    import pandas as pd

    by_label: dict[str, list[EpisodeCurve]] = {}
    for curve in recorded:
        _, _, agent, curve_kind, name = curve.key
        if curve_kind == kind:
            by_label.setdefault(f"{agent}: {name}" if name else agent, []).append(curve)
    for label, curves in by_label.items():
        parts = [(curve.moments[fold], starts[curve.key[0]]) for curve in curves]
        moments = pd.concat([part.set_axis(part.index + start) for part, start in parts])
        if moments["mean"].notna().any():
            # Episodes without a part of this agent are gaps.
            x = np.array(positions)
            y, low, high = moments.reindex(x).to_numpy(float).T
            several = any(curve.over for curve in curves)
            yield Curve(label, x, y, low if several else None, high if several else None)


def _shared(curves: Sequence[Curve], colours: Mapping[str, int]) -> tuple[str, str, tuple[Curve, ...]]:
    """Return the name that all labels share, the agents that all labels share, and the distinct curves.

    Labels are ``agent`` or ``agent: name``. Agents of one environment often have the same reward. ``colours`` are
    numbers of agents.
    """
    distinct: dict[tuple[str, bytes], Curve] = {}
    owners: dict[tuple[str, bytes], list[str]] = {}
    for curve in curves:
        agent, _, name = curve.label.partition(": ")
        key = name, curve.y.tobytes()
        distinct.setdefault(key, curve)
        owners.setdefault(key, []).append(agent)
    who = {key: _listed_agents(agents) for key, agents in owners.items()}
    identities: dict[tuple[str, bytes], int | None] = {
        key: colours.get(agents[0]) if len(agents) == 1 else SHARED for key, agents in owners.items()
    }
    names = {name for name, _ in distinct}
    what = of = ""
    if len(names) == 1:
        labels = who
        what = f" ({names.pop()})" if "" not in names else ""
    elif len(set(map(tuple, owners.values()))) == 1:
        labels = {key: key[0] for key in distinct}
        of = f"of {next(iter(who.values()))}"
        identities = dict.fromkeys(distinct)
    else:
        labels = {key: f"{agents}: {key[0]}" for key, agents in who.items()}
    return (
        *(what, of),
        tuple(replace(curve, label=labels[key], identity=identities[key]) for key, curve in distinct.items()),
    )


def _listed_agents(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{len(names)} agents"


def _notes(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def find_moment(store: Store, run: str, phase: int | str | None, episode: int | None) -> Moment:
    """Select an episode, by default the last one of the last phase.

    Raises :class:`StoreError` if nothing was recorded, or not that episode.
    """
    phases = store.phases(run)
    if phase is not None:
        phases = phases[(phases["phase"] == phase) | (phases["name"] == phase)]
    row: Any
    for row in phases.iloc[::-1].itertuples(index=False):
        episodes = store.environment_states(run, row.phase, worker=0, columns=[])["episode"]
        if episodes.empty:
            continue
        first, last = int(episodes.min()), int(episodes.max())
        if episode is not None and episode not in set(episodes):
            raise StoreError(
                f"phase {row.phase} {row.name!r} has no episode {episode}: it has {first} to {last}"
            )
        number = last if episode is None else episode
        return Moment(
            int(row.phase), str(row.name), 0, number, unfinished=_unfinished(store, run, row.phase, number)
        )
    raise StoreError(f"nothing was recorded of the run {run!r} that could be plotted over time")


def _unfinished(store: Store, run: str, phase: int, episode: int) -> str:
    """Say how far an episode of worker 0 came; "" if it finished."""
    rows = store.unfinished_episodes(run)
    rows = rows[(rows["phase"] == phase) & (rows["worker"] == 0) & (rows["episode"] == episode)]
    rows = rows[~rows["evaluation"].astype(bool)]
    return "" if rows.empty else unfinished_text(rows["steps"].iloc[0], rows["planned"].iloc[0])


def time_panels(
    store: Store,
    run: str,
    moment: Moment,
    choice: BodyChoice,
    patterns: Sequence[str],
    limits: Limits = True,
) -> list[Panel]:
    """Return the panels of each pattern: the matching columns over an episode.

    Columns of different units have panels of their own, and so have those that would look flat beside others.

    A pattern is compared with full column names (``setpoint.grid.sgen-3.q_mvar``) and,
    for readings, also with bare ones (``grid.bus-3.vm_pu``). Readings are those of the
    environments, unless an agent is selected; set-points and objectives are those of the
    agents. Several bodies or incarnations are drawn as their mean, with a band from the lowest to
    the highest.
    """
    around = _Around(moment, clock_of(store, run, moment.phase), bounds_of(store, run, moment.phase))
    sources = sources_of(store, run, moment.phase, choice)
    panels: list[Panel] = []
    for pattern, pattern_limits in zip(patterns, pairs_of(limits, len(patterns)), strict=True):
        curves = matching_curves(sources, moment, pattern, around.clock)
        first = len(panels)
        for same_unit in by_unit(curves):
            panels += _unit_panels(around, pattern, pattern_limits, same_unit)
        missing = sum(not np.isfinite(curve.y).any() for curve, _ in curves)
        if missing:
            note = _notes(panels[first].note, f"{missing} without any value left out")
            panels[first] = replace(panels[first], note=note)
    return panels


@dataclass(frozen=True)
class _Around:
    """The data that all panels of one episode share."""

    moment: Moment
    clock: Clock | None
    bounds: Mapping[str, Pair]


def matching_curves(
    sources: Sequence[RowSource],
    moment: Moment,
    pattern: str,
    clock: Clock | None = None,
    start: int | None = None,
    stop: int | None = None,
) -> list[tuple[Curve, str]]:
    """Return the curves of the columns that match a pattern over an episode, with the names of the columns.

    Args:
        sources: the sources to search.
        moment: the episode.
        pattern: compared with names of columns, with and without ``reading.``.
        clock: converts ticks to dates; ``None``: x is ticks.
        start: the first tick; ``None``: from the beginning.
        stop: the tick before which the curves end; ``None``: to the end.

    Raises:
        StoreError: no column matches.
    """
    curves: list[tuple[Curve, str]] = []
    names: list[str] = []
    offered = list(dict.fromkeys(name for source in sources for name in source.columns))
    meant = matching(offered, pattern)
    for source in sources:
        # Readings of an environment that several agents have are drawn once.
        new_columns = [
            c for c in source.columns if c in meant and not (c in names and c.startswith("reading."))
        ]
        if new_columns:
            names += new_columns
            new_curves = _time_curves(moment, source, new_columns, clock, start, stop)
            curves += zip(new_curves, new_columns, strict=True)
    if not names:
        raise nothing_matches(moment, pattern, offered)
    return curves


def by_unit(named: Iterable[tuple[Curve, str]]) -> list[list[tuple[Curve, str]]]:
    """Group curves and their columns by unit; columns without a unit by kind."""
    kinds: dict[str, list[tuple[Curve, str]]] = {}
    for curve, name in named:
        kinds.setdefault(curve.unit or name.partition(".")[0], []).append((curve, name))
    return list(kinds.values())


def y_label_of(named: Sequence[tuple[Curve, str]]) -> str:
    """Return the label of the y axis for curves of one unit and their columns, such as ``reading (p.u.)``."""
    kinds = dict.fromkeys(name.partition(".")[0] for _, name in named)
    unit = named[0][0].unit
    return " / ".join(kinds) + (f" ({unit})" if unit else "")


def has_natural_scale(curve: Curve) -> bool:
    """Whether small values of a curve must look small: voltages in p.u., loadings in percent."""
    return curve.unit in _NATURAL


def _unit_panels(
    around: _Around, pattern: str, limits: bool | Pair, named: Sequence[tuple[Curve, str]]
) -> Iterator[Panel]:
    """Yield the panels of curves with one unit."""
    columns = {id(curve): name for curve, name in named}
    curves = [curve for curve, _ in named if np.isfinite(curve.y).any()]
    groups = [] if has_natural_scale(named[0][0]) else by_scale(curves)
    several = len(groups) > 1
    for _, group in groups or [(0.0, curves)]:
        title = f"{pattern}, {around.moment}"
        title += f": {range_text(group, group[0].unit)}" if several else ""
        yield Panel(
            title,
            _x_label(around.clock),
            y_label_of(named),
            tuple(group),
            note=_band_note(group),
            limits=limits_of([columns[id(curve)] for curve in group], around.bounds, limits, several=several),
        )


def _time_curves(
    moment: Moment,
    source: RowSource,
    columns: Sequence[str],
    clock: Clock | None,
    start: int | None = None,
    stop: int | None = None,
) -> Iterable[Curve]:
    frame = source.read(**moment.rows, columns=columns, start=start, stop=stop)
    several = any(name in frame and frame[name].nunique() > 1 for name in NUMBERS)
    x: Any = np.unique(frame["time"].to_numpy()) if several else frame["time"].to_numpy()
    if clock is not None:
        x = clock.dates(x)
    for name in columns:
        # A reading is labelled by its uid, a set-point or objective also by its agent.
        label = bare(name) if name.startswith("reading.") else f"{source.owner}: {bare(name)}"
        shown: dict[str, Any] = {"steps": name.startswith("setpoint."), "unit": source.unit(name)}
        shown["identity"] = None if name.startswith("reading.") else source.colour
        if several:
            mean, low, high = frame.groupby("time")[name].agg(["mean", "min", "max"]).to_numpy(float).T
            yield Curve(label, x, mean, low, high, **shown)
        else:
            yield Curve(label, x, frame[name].to_numpy(float), **shown)


def objective_panels(store: Store, run: str, moment: Moment, choice: BodyChoice) -> list[Panel]:
    """Return panels of objective and rewards of one episode, step by step."""
    panels: list[Panel] = []
    sources = [
        stream for stream in sources_of(store, run, moment.phase, choice) if "objective" in stream.columns
    ]
    clock = clock_of(store, run, moment.phase)
    objectives: Sequence[Curve] = ()
    equal = ""
    for title, prefix in (("objective", "objective"), ("reward", "reward.")):
        curves: list[Curve] = []
        for source in sources:
            columns = [name for name in source.columns if name.startswith(prefix)]
            if columns:
                curves += _time_curves(moment, source, columns, clock)
        curves = [
            replace(curve, label=curve.label.removesuffix(": objective"))
            for curve in curves
            if np.isfinite(curve.y).any()
        ]
        if title == "reward":
            curves, equal = _without_objectives(curves, objectives)
        objectives = curves
        if equal and panels:
            panels[0] = replace(panels[0], note=_notes(panels[0].note, equal))
        if curves:
            what, of, distinct = _shared(curves, numbers_of_agents(store, run))
            heading = f"{title.capitalize()} of each step{what}, {moment}"
            note = _notes(of, _band_note(distinct))
            panels += split_by_scale(Panel(heading, _x_label(clock), title, distinct, note=note))
    return panels


def _band_note(curves: Iterable[Curve]) -> str:
    return BODY_BAND if any(curve.low is not None for curve in curves) else ""


def _x_label(clock: Clock | None) -> str:
    return TICKS if clock is None else TIME
