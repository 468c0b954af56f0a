"""Queries of the per-step data and of rendered frames as pandas frames."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, eq, ge, lt
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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

        limits = (
            ("worker", eq, self.worker),
            ("episode", eq, self.episode),
            ("time", ge, self.start),
            ("time", lt, self.stop),
        )
        terms = [compare(ds.field(name), value) for name, compare, value in limits if value is not None]
        number = next((name for name in columns if name in NUMBERS), None)
        if self.numbers is not None and number is not None:
            terms.append(ds.field(number).isin(list(self.numbers)))
        return reduce(and_, terms) if terms else None


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


class _StreamParts(NamedTuple):
    """The parts of a selected stream, and the selected bodies or incarnations in it (``None``: all)."""

    phase: int
    owner: str
    group: int
    evaluation: bool
    paths: list[Path]
    numbers: Sequence[int] | None


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
            run: the run, in any form that :meth:`find_run` accepts.
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
        by_key = {(group.phase, group.agent, group.group): group for group in groups}
        numbers = {
            key: None if group.numbers == group.whole else group.numbers for key, group in by_key.items()
        }
        source = StreamSelection("agent", agent, evaluation, numbers)
        result = self._frames(run, phase, source, RowRange(worker, episode, start, stop), columns)
        several = any(group.several for group in groups)
        visible = set(columns or ()) | _unpicked(phase=phase, agent=agent)
        if several and not _picks_one(body):
            visible.add("body")
        if several and environment is None and len({group.environment for group in groups}) > 1:
            visible.add("environment")
        if "environment" in visible:
            keys = zip(result["phase"], result["agent"], result["group"], strict=True)
            environments = [by_key[key].environment for key in keys]
            result.insert(2, "environment", pd.Series(environments, dtype=object))
        del result["group"]
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
            run: the run, in any form that :meth:`find_run` accepts.
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

        counts = self._incarnation_counts(run, phase, environment)
        selected: dict[tuple[int, str, int], Sequence[int] | None] = dict.fromkeys(counts)
        if agent is not None or body is not None:
            groups = self._members.groups(run, phase, agent, environment, body)
            selected = {key: _incarnations_around(groups, key) for key in counts}
        if incarnation is not None:
            picked = numbers_of(incarnation, max(counts.values(), default=1), "incarnation")
            for key, numbers in selected.items():
                available = range(counts[key]) if numbers is None else numbers
                selected[key] = [number for number in picked if number in available]
        selected = {key: numbers for key, numbers in selected.items() if numbers is None or len(numbers)}
        source = StreamSelection("environment", environment, evaluation, selected)
        result = self._frames(run, phase, source, RowRange(worker, episode, start, stop), columns)
        if "state" in result:
            states = [json.loads(text) if isinstance(text, str) else None for text in result["state"]]
            result["state"] = pd.Series(states, dtype=object)
        several = any(counts[key] > 1 for key in selected)
        visible = set(columns or ()) | _unpicked(phase=phase, environment=environment)
        if several and not _picks_one(incarnation):
            visible.add("incarnation")
        return _shown(result, visible, several)

    def _incarnation_counts(
        self, run: str, phase: int | str | None, environment: str | None
    ) -> dict[tuple[int, str, int], int]:
        """Count the incarnations of each environment, by phase and uid; the third number is always 0."""
        self._lookup.check_member(run, phase, "environment", environment)
        table = self._members.environments(run, phase)[["phase", "environment", "incarnations"]]
        return {
            (int(number), str(uid), 0): int(count)
            for number, uid, count in table.itertuples(index=False)
            if environment is None or uid == environment
        }

    def recorded_episodes(self, run: str, phase: int | str | None = None) -> pd.DataFrame:
        """Return the range of episodes with recorded rows, including running ones.

        One row per phase, worker and kind of episode; columns: ``phase``, ``worker``, ``evaluation``,
        ``first`` and ``last`` (numbers of episodes).

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
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
            run: the run, in any form that :meth:`find_run` accepts.
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
        """Read the selected rows of the selected streams, with all columns that identify them."""
        import pandas as pd

        streams = self._stream_parts(run, phase, source)
        if not streams:
            return _empty_frame(source, columns)
        if columns is not None:
            _check_columns(columns, streams, source.kind, run)
        return pd.concat(
            [_read_frame(stream, source, rows, columns) for stream in streams], ignore_index=True
        )

    def _stream_parts(self, run: str, phase: int | str | None, source: StreamSelection) -> list[_StreamParts]:
        """Select the streams that have parts."""
        streams, root = self._streams(run, phase, source.evaluation)
        streams = streams[streams["kind"] == source.kind]
        if source.name is not None:
            streams = streams[streams["name"] == source.name]
        result = []
        for number, owner, group, evaluation, folder, count in streams[_STREAM].itertuples(index=False):
            if source.numbers is None or (number, owner, group) in source.numbers:
                paths = parts_so_far(inside(root, folder), count)
                numbers = None if source.numbers is None else source.numbers[number, owner, group]
                result.append(_StreamParts(number, owner, group, evaluation, paths, numbers))
        return [stream for stream in result if stream.paths]


def _check_columns(columns: Sequence[str], streams: Iterable[_StreamParts], kind: str, run: str) -> None:
    """Raise :class:`StoreError` for a column that no stream has."""
    owners = set(_OWNERS.get(kind, ()))
    available = {name for stream in streams for name in columns_of(stream.paths)} - owners
    allowed = available | owners | ({"wall", "environment"} if kind == "agent" else set())
    for column in columns:
        if column not in allowed:
            raise unknown("column", column, (available - set(_KEYS)) | owners, f"run {run!r}")


def _empty_frame(source: StreamSelection, columns: Sequence[str] | None) -> pd.DataFrame:
    import pandas as pd

    numbers = _OWNERS.get(source.kind, ())
    owners = {"agent": ["agent", "group"], "environment": ["environment"]}.get(source.kind, [])
    keys = ["worker", "episode", *(["evaluation"] if source.evaluation is None else [])]
    names = [name for name in columns or () if name not in (*numbers, "environment")]
    return pd.DataFrame(columns=["phase", *owners, *keys, *numbers, "step", "time", *names])


def _unpicked(**choices: Any) -> set[str]:
    """Return the names of the choices that pick none."""
    return {name for name, choice in choices.items() if choice is None}


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
    stream: _StreamParts, source: StreamSelection, rows: RowRange, columns: Sequence[str] | None
) -> pd.DataFrame:
    """Read the selected rows of a stream, after columns that say whose they are."""
    rows = replace(rows, numbers=stream.numbers)
    owners = _OWNERS.get(source.kind)
    names = None
    if owners is not None:
        available = dict.fromkeys(columns_of(stream.paths))
        chosen = available if columns is None else (name for name in columns if name in available)
        names = list(dict.fromkeys(("worker", "episode", *owners, "step", "time", *chosen)))
    result: pd.DataFrame = read_parts(stream.paths, rows.expression, names).to_pandas()
    if columns is not None and "wall" in columns:
        # assignment by index drops rows that were written in the meantime
        result["wall"] = read_wall(stream.paths, rows.expression)["wall"].to_pandas()
    if source.evaluation is None:
        result.insert(list(result).index("episode") + 1, "evaluation", stream.evaluation)
    if source.kind == "agent":
        result.insert(0, "group", stream.group)
    if owners is not None:
        result.insert(0, source.kind, stream.owner)
    result.insert(0, "phase", stream.phase)
    return result


_FRAME_KEYS = ("worker", "episode", "environment_episode", "step", "time")


class _Stream(NamedTuple):
    phase: int
    environment: str
    evaluation: bool
    parts: list[Path]


class FrameQueries(RowQueries):
    """Queries of the part files of frames. Unknown names raise :class:`StoreError`."""

    def frames(  # noqa: PLR0913  (independent filters, all optional)
        self,
        run: str,
        phase: int | str | None = None,
        environment: str | None = None,
        worker: int | None = None,
        episode: int | None = None,
        start: int | None = None,
        stop: int | None = None,
        evaluation: bool | None = False,
        *,
        png: bool = True,
    ) -> pd.DataFrame:
        """Return the rendered frames of environments, one row per frame; without a row if none were requested.

        Columns: ``phase`` and ``environment`` (each unless the argument picks one), ``worker``, ``episode``,
        ``environment_episode`` (how often the environment had restarted in this episode of the phase; only present if
        it is not always 0), ``step``, ``time`` (ticks), ``png`` (``bytes``: a PNG image). A frame has the same keys as
        its state in :meth:`environment_states`.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
            environment: uid of an environment; ``None``: all.
            worker: number of a worker; ``None``: all.
            episode: number of an episode; ``None``: all.
            start: the first tick; ``None``: from the beginning.
            stop: the tick before which the rows end (exclusive); ``None``: to the end.
            evaluation: ``False``: training and test episodes; ``True``: evaluation episodes; ``None``: both,
                with a column ``evaluation`` after ``episode``.
            png: read the images; otherwise, there is no column ``png``.

        Raises:
            StoreError: there is no such run, phase or environment, or part files are damaged.
        """
        import pandas as pd

        columns = [*_FRAME_KEYS, *(["png"] if png else [])]
        rows = RowRange(worker, episode, start, stop)
        tables = []
        for stream in self._of(run, phase, environment, evaluation):
            table = read_parts(stream.parts, rows.expression, columns).to_pandas()
            if evaluation is None:
                table.insert(2, "evaluation", stream.evaluation)
            for name in ("environment", "phase"):
                table.insert(0, name, getattr(stream, name))
            tables.append(table)
        if tables:
            result = pd.concat(tables, ignore_index=True)
        else:
            flag = ["evaluation"] if evaluation is None else []
            names = ["phase", "environment", "worker", "episode", *flag, *columns[2:]]
            result = pd.DataFrame(columns=names)
        hidden = [
            name for name, value in (("phase", phase), ("environment", environment)) if value is not None
        ]
        if not result["environment_episode"].any():
            hidden.append("environment_episode")
        frames: pd.DataFrame = result.drop(columns=hidden)
        return frames

    def recorded_frames(
        self, run: str, phase: int | str | None = None, environment: str | None = None
    ) -> pd.DataFrame:
        """Return the number of frames of each episode that has any; images are not read.

        One row per phase, environment and episode; columns: ``phase``, ``environment``, ``worker``, ``episode``,
        ``evaluation``, ``frames`` (their number), ``bytes`` (of all images).

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
            environment: uid of an environment; ``None``: all.

        Raises:
            StoreError: there is no such run, phase or environment, or part files are damaged.
        """
        import pandas as pd

        keys = ["phase", "environment", "worker", "episode", "evaluation"]
        tables = []
        for stream in self._of(run, phase, environment, None):
            table = read_parts(
                stream.parts, RowRange().expression, ["worker", "episode", "bytes"]
            ).to_pandas()
            whose = {name: getattr(stream, name) for name in ("phase", "environment", "evaluation")}
            tables.append(table.assign(**whose))
        if not tables:
            return pd.DataFrame(columns=[*keys, "frames", "bytes"])
        sizes = pd.concat(tables, ignore_index=True).groupby(keys, sort=False)["bytes"]
        result: pd.DataFrame = sizes.agg(frames="count", bytes="sum").reset_index()
        return result

    def _of(
        self, run: str, phase: int | str | None, environment: str | None, evaluation: bool | None
    ) -> Iterator[_Stream]:
        """Yield the frame streams that have parts."""
        self._lookup.check_member(run, phase, "environment", environment)
        streams, root = self._streams(run, phase, evaluation)
        streams = streams[streams["kind"] == "frames"]
        columns = ["phase", "name", "evaluation", "folder", "parts"]
        for number, uid, flag, folder, count in streams[columns].itertuples(index=False):
            parts = parts_so_far(inside(root, folder), count)
            if parts and environment in (None, uid):
                yield _Stream(int(number), str(uid), bool(flag), parts)
