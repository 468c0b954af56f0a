"""Queries of the per-step data as pandas frames."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..parts import columns_of, parts_so_far, read_parts, read_wall
from .lookup import Lookup, inside, unknown
from .members import Bodies, BodyGroup, Members, is_one, numbers_of
from .runs import RunQueries

if TYPE_CHECKING:
    import pandas as pd


_KEYS = ("worker", "episode", "step", "time")
#: by kind of stream, the columns that identify a row among its owner's
_OWNERS = {
    "agent": ("body", "environment_episode"),
    "environment": ("incarnation", "environment_episode"),
}
#: the columns with the number of a body or an incarnation
NUMBERS = ("body", "incarnation")
_STREAM = ["phase", "name", "group", "evaluation", "folder", "parts"]


@dataclass(frozen=True, slots=True)
class RowRange:
    """A selection of rows: ``None`` is all, ``start <= time < stop`` in ticks.

    ``numbers`` are bodies, or incarnations, of a stream with several.
    """

    worker: int | None = None
    episode: int | None = None
    start: int | None = None
    stop: int | None = None
    numbers: Sequence[int] | None = None

    def expression(self, columns: Iterable[str]) -> Any:
        """Build the pyarrow filter of a stream with these ``columns``; ``None`` if it selects all rows."""
        import pyarrow.dataset as ds

        terms = []
        if self.worker is not None:
            terms.append(ds.field("worker") == self.worker)
        if self.episode is not None:
            terms.append(ds.field("episode") == self.episode)
        if self.start is not None:
            terms.append(ds.field("time") >= self.start)
        if self.stop is not None:
            terms.append(ds.field("time") < self.stop)
        place = next((name for name in columns if name in NUMBERS), None)
        if self.numbers is not None and place is not None:
            terms.append(ds.field(place).isin(list(self.numbers)))
        result = None
        for term in terms:
            result = term if result is None else result & term
        return result


@dataclass(frozen=True, slots=True)
class StreamSelection:
    """A selection of streams: a kind, one name or all, training or evaluation or both.

    ``numbers`` maps phase, name and group of each selected stream to its bodies or incarnations
    (``None``: all); without it, all streams are selected.
    """

    kind: str
    name: str | None
    evaluation: bool | None
    numbers: Mapping[tuple[int, str, int], Sequence[int] | None] | None = None


class RowQueries:
    """Base class of queries of the Parquet files."""

    def __init__(self, lookup: Lookup, runs: RunQueries, members: Members):
        self._lookup = lookup
        self._runs = runs
        self._members = members

    def _streams(
        self, run: str, phase: int | str | None, evaluation: bool | None
    ) -> tuple[pd.DataFrame, Path]:
        """Select the streams of training or evaluation (``None``: both), and their root folder."""
        streams = self._runs.streams(run, phase)
        if evaluation is not None:
            streams = streams[streams["evaluation"] == evaluation]
        return streams, self._lookup.instance_directory(self._lookup.find_run(run))


class Trajectories(RowQueries):
    """Queries of the Parquet files. Unknown names raise :class:`StoreError`."""

    def steps(  # noqa: PLR0913  (independent filters, all optional)
        self,
        run: str,
        phase: int | str | None = None,
        agent: str | None = None,
        worker: int | None = None,
        episode: int | None = None,
        columns: Sequence[str] | None = None,
        start: int | None = None,
        stop: int | None = None,
        evaluation: bool | None = False,
        *,
        environment: str | None = None,
        body: Bodies | None = None,
    ) -> pd.DataFrame:
        """Return one row per step of the agents, agent after agent, in recorded order.

        Columns: ``phase`` and ``agent`` (each unless the argument picks one), ``worker``, ``episode``, ``step``,
        ``time`` (ticks), then ``reading.UID``, ``setpoint.UID`` (``reading.UID[i]`` if a value has several floats),
        ``proposed.UID`` (the set-points that the agent would have chosen, if its environment replays), ``reward.NAME``,
        ``terminated``, ``truncated``, ``objective``. An agent without a column of another agent has NaN there; so have
        bodies of one agent.

        There are further columns if an agent has several bodies, or if ``columns`` names them:
        ``environment``, unless all are in one (``None``: a body that spans several), ``body``, unless one
        number is picked, and ``environment_episode``, which counts how often the body's environment has
        restarted in this episode of the phase (also present if it is not always 0).

        Args:
            run: which run, as :meth:`find_run` takes it.
            phase: number or name of a phase; ``None``: all.
            agent: name of an agent; ``None``: all.
            worker: number of a worker; ``None``: all.
            episode: number of an episode; ``None``: all.
            columns: which of the columns from the readings on; ``None``: all. It may also name ``wall``: the
                seconds that the step took.
            start: the first tick; ``None``: from the beginning.
            stop: the tick before which the rows end (exclusive); ``None``: to the end.
            evaluation: ``False``: training and test episodes; ``True``: evaluation episodes; ``None``: both,
                with a column ``evaluation`` after ``episode``.
            environment: uid of an environment: only the bodies in it; ``None``: all.
            body: number or label of a body, or a list of them; ``None``: all.

        Raises:
            StoreError: there is no such run, phase, agent, environment, body or column, or part files are
                damaged.
        """
        import pandas as pd

        groups = self._members.groups(run, phase, agent, environment, body)
        picked = {(group.phase, group.agent, group.group): group for group in groups}
        numbers = {
            key: None if group.numbers == group.whole else group.numbers for key, group in picked.items()
        }
        source = StreamSelection("agent", agent, evaluation, numbers)
        result = self._frames(run, phase, source, RowRange(worker, episode, start, stop), columns)
        several = any(group.several for group in groups)
        visible = set(columns or ())
        if several and not _picks_one(body):
            visible.add("body")
        apart = several and environment is None and len({group.environment for group in groups}) > 1
        if apart or "environment" in visible:
            keys = zip(result["phase"], result["agent"], result["group"], strict=True)
            around = [picked[key].environment for key in keys]
            result.insert(2, "environment", pd.Series(around, dtype=object))
        del result["group"]
        visible |= {name for name, group in (("phase", phase), ("agent", agent)) if group is None}
        return _shown(result, visible, several)

    def environment_states(  # noqa: PLR0913  (as above)
        self,
        run: str,
        phase: int | str | None = None,
        environment: str | None = None,
        worker: int | None = None,
        episode: int | None = None,
        columns: Sequence[str] | None = None,
        start: int | None = None,
        stop: int | None = None,
        evaluation: bool | None = False,
        *,
        agent: str | None = None,
        body: Bodies | None = None,
        incarnation: int | Sequence[int] | None = None,
    ) -> pd.DataFrame:
        """Return one row per state of the environments.

        Columns: ``phase`` and ``environment`` (each unless picked), ``worker``, ``episode``, ``step``,
        ``time``, ``reading.UID``, ``reward.NAME``, ``terminated``, ``truncated``, ``state`` (further data that
        the environment reported, or ``None``). A batched environment has the columns ``incarnation``, unless
        one number is picked, and ``environment_episode``, as in :meth:`steps`.

        Args:
            run: which run, as :meth:`find_run` takes it.
            phase: number or name of a phase; ``None``: all.
            environment: uid of an environment; ``None``: all.
            worker: number of a worker; ``None``: all.
            episode: number of an episode; ``None``: all.
            columns: which of the columns after ``time``; ``None``: all.
            start: the first tick; ``None``: from the beginning.
            stop: the tick before which the rows end (exclusive); ``None``: to the end.
            evaluation: ``False``: training and test episodes; ``True``: evaluation episodes; ``None``: both,
                with a column ``evaluation`` after ``episode``.
            agent: name of an agent: only the environments, and the incarnations of batched ones, in which its
                bodies are; ``None``: all.
            body: number or label of a body, or a list of them: only the environments and incarnations in
                which these are; ``None``: all.
            incarnation: number of an incarnation of a batched environment, or several; ``None``: all.

        Raises:
            StoreError: there is no such run, phase, agent, environment, body, incarnation or column, or part
                files are damaged.
        """
        import pandas as pd

        self._lookup.check_member(run, phase, "environment", environment)
        table = self._members.environments(run, phase)
        counts = {
            (int(number), str(uid), 0): int(count)
            for number, uid, count in table[["phase", "environment", "incarnations"]].itertuples(index=False)
            if environment is None or uid == environment
        }
        selected: dict[tuple[int, str, int], Sequence[int] | None] = dict.fromkeys(counts)
        if agent is not None or body is not None:
            groups = self._members.groups(run, phase, agent, environment, body)
            selected = {key: _incarnations_around(groups, key) for key in counts}
        if incarnation is not None:
            picked = numbers_of(incarnation, max(counts.values(), default=1), "incarnation")
            selected = {
                key: tuple(
                    choice
                    for choice in picked
                    if choice < counts[key] and (numbers is None or choice in numbers)
                )
                for key, numbers in selected.items()
            }
        selected = {key: numbers for key, numbers in selected.items() if numbers is None or len(numbers)}
        source = StreamSelection("environment", environment, evaluation, selected)
        result = self._frames(run, phase, source, RowRange(worker, episode, start, stop), columns)
        if "state" in result:
            states = [json.loads(text) if isinstance(text, str) else None for text in result["state"]]
            result["state"] = pd.Series(states, dtype=object)
        several = any(counts[key] > 1 for key in selected)
        visible = set(columns or ())
        if several and not _picks_one(incarnation):
            visible.add("incarnation")
        visible |= {
            name for name, choice in (("phase", phase), ("environment", environment)) if choice is None
        }
        return _shown(result, visible, several)

    def recorded_episodes(self, run: str, phase: int | str | None = None) -> pd.DataFrame:
        """Return the range of episodes with recorded rows, including running ones.

        One row per phase, worker and kind of episode; columns: ``phase``, ``worker``, ``evaluation``,
        ``first`` and ``last`` (numbers of episodes).

        Args:
            run: which run, as :meth:`find_run` takes it.
            phase: number or name of a phase; ``None``: all.

        Raises:
            StoreError: there is no such run or phase, or part files are damaged.
        """
        import pandas as pd

        streams, root = self._streams(run, phase, None)
        streams = streams[streams["kind"].isin(_OWNERS)]
        frames = []
        for number, flag, folder, parts in streams[["phase", "evaluation", "folder", "parts"]].itertuples(
            index=False
        ):
            for path in parts_so_far(inside(root, folder), parts):
                part = read_parts([path], RowRange().expression, ["worker", "episode"]).to_pandas()
                frames.append(part.drop_duplicates().assign(phase=number, evaluation=bool(flag)))
        keys = ["phase", "worker", "evaluation"]
        if not frames:
            return pd.DataFrame(columns=[*keys, "first", "last"])
        episodes = pd.concat(frames).groupby(keys)["episode"]
        result: pd.DataFrame = episodes.agg(first="min", last="max").reset_index()
        return result

    def statistics(
        self,
        run: str,
        phase: int | str | None = None,
        agent: str | None = None,
        worker: int | None = None,
        episode: int | None = None,
        key: str | None = None,
        evaluation: bool | None = False,
    ) -> pd.DataFrame:
        """Return the statistics that agents reported, in long format.

        Columns: ``phase`` (unless picked), ``agent``, ``worker``, ``episode``, ``step``, ``key``, ``value``.

        Args:
            run: which run, as :meth:`find_run` takes it.
            phase: number or name of a phase; ``None``: all.
            agent: name of an agent; ``None``: all.
            worker: number of a worker; ``None``: all.
            episode: number of an episode; ``None``: all.
            key: name of a statistic; ``None``: all.
            evaluation: ``False``: training and test episodes; ``True``: evaluation episodes; ``None``: both,
                with a column ``evaluation`` after ``episode``.

        Raises:
            StoreError: there is no such run, phase or agent, or part files are damaged.
        """
        self._lookup.check_member(run, phase, "agent", agent)
        result = self._frames(
            run, phase, StreamSelection("statistics", "", evaluation), RowRange(worker, episode), None
        )
        if phase is not None:
            del result["phase"]
        if result.empty:
            first = [] if phase is not None else ["phase"]
            distinguishing = ["evaluation"] if evaluation is None else []
            names = [*first, "agent", "worker", "episode", *distinguishing, "step", "key", "value"]
            return result.reindex(columns=names)
        for name, value in (("agent", agent), ("key", key)):
            if value is not None:
                result = result[result[name] == value]
        return result.reset_index(drop=True)

    def _frames(
        self,
        run: str,
        phase: int | str | None,
        source: StreamSelection,
        rows: RowRange,
        columns: Sequence[str] | None,
    ) -> pd.DataFrame:
        import pandas as pd

        kind, name = source.kind, source.name
        streams, root = self._streams(run, phase, source.evaluation)
        streams = streams[streams["kind"] == kind]
        if name is not None:
            streams = streams[streams["name"] == name]
        entries = [
            (number, owner, group, flag, inside(root, folder), parts_so_far(inside(root, folder), parts))
            for number, owner, group, flag, folder, parts in streams[_STREAM].itertuples(index=False)
            if source.numbers is None or (number, owner, group) in source.numbers
        ]
        entries = [entry for entry in entries if entry[5]]
        places = _OWNERS.get(kind, ())
        if columns is not None and entries:
            available = {name for entry in entries for name in columns_of(entry[5])} - set(places)
            extra = {*places, *({"wall", "environment"} if kind == "agent" else ())}
            for column in columns:
                if column not in available and column not in extra:
                    raise unknown("column", column, (available - set(_KEYS)) | set(places), f"run {run!r}")
        frames = []
        for number, owner, group, evaluation, folder, paths in entries:
            numbers = None if source.numbers is None else source.numbers[number, owner, group]
            part = _read_frame(folder, paths, replace(rows, numbers=numbers), columns, places)
            if source.evaluation is None:
                part.insert(list(part).index("episode") + 1, "evaluation", evaluation)
            if kind == "agent":
                part.insert(0, "group", group)
            if kind in _OWNERS:
                part.insert(0, kind, owner)
            part.insert(0, "phase", number)
            frames.append(part)
        if frames:
            return pd.concat(frames, ignore_index=True)
        owners = {"agent": ["agent", "group"], "environment": ["environment"]}.get(kind, [])
        keys = ["worker", "episode", *(["evaluation"] if source.evaluation is None else [])]
        names = [label for label in columns or () if label not in (*places, "environment")]
        return pd.DataFrame(columns=["phase", *owners, *keys, *places, "step", "time", *names])


def _picks_one(selection: Any) -> bool:
    """Whether this is a single number; a label may select several."""
    return selection is not None and not isinstance(selection, str) and is_one(selection)


def _incarnations_around(groups: Iterable[BodyGroup], key: tuple[int, str, int]) -> tuple[int, ...]:
    phase, environment, _ = key
    return tuple(
        sorted({k for group in groups if group.phase == phase for k in group.incarnations(environment)})
    )


def _shown(frame: pd.DataFrame, visible: set[str], several: bool) -> pd.DataFrame:
    """Drop the columns with the owner of a row if it is unambiguous; those in ``visible`` stay."""
    owner = "agent" if "agent" in frame else "environment"
    hidden = [name for name in ("phase", owner, *NUMBERS) if name in frame]
    if not several and not frame["environment_episode"].any():
        hidden.append("environment_episode")
    return frame.drop(columns=[name for name in hidden if name not in visible])


def _read_frame(
    folder: Path,
    paths: Sequence[Path],
    rows: RowRange,
    columns: Sequence[str] | None,
    places: Sequence[str],
) -> pd.DataFrame:
    available = dict.fromkeys(columns_of(paths))
    keys = [name for name in ("worker", "episode", *places, "step", "time") if name in available]
    selected = [name for name in (available if columns is None else columns) if name in available]
    chosen = [*keys, *(name for name in selected if name not in keys)]
    result: pd.DataFrame = read_parts(paths, rows.expression, chosen if places else None).to_pandas()
    if columns is not None and "wall" in columns:
        # assignment by index drops rows that were written in the meantime
        result["wall"] = read_wall(paths, rows.expression)["wall"].to_pandas()
    return result
