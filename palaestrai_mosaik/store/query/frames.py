"""Queries of the rendered frames of environments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..parts import parts_so_far, read_parts
from .lookup import inside
from .trajectories import RowQueries, RowRange

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("worker", "episode", "environment_episode", "step", "time")


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
            run: which run, as :meth:`find_run` takes it.
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

        columns = [*_KEYS, *(["png"] if png else [])]
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
            run: which run, as :meth:`find_run` takes it.
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
