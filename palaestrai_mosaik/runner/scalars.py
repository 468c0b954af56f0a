"""Live scalars of a run for other programs: TensorBoard, Weights & Biases, JSON lines.

:class:`PhaseScalars` lists the scalars. They are a copy of results in the store, so a sink that fails is dropped with
a warning, and the run continues. A resumed run neither skips nor repeats an episode: scalars reach the sinks before a
checkpoint includes their episode, and the instance's directory keeps the number of the last written episode.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import PalaestraiMosaikError, StoreError, did_you_mean
from palaestrai_mosaik.core.importing import importable
from palaestrai_mosaik.core.installation import install_extra, install_packages
from palaestrai_mosaik.experiment import PhaseSpec

from .worker import EpisodeReport

#: the file with the last written episodes, in the instance's directory
WRITTEN = "scalars.json"
#: minimum seconds between two writes, because a sink may need milliseconds
INTERVAL = 1.0
#: worker, episode, whether the episode is an evaluation
EpisodeKey = tuple[int, int, bool]


class Point(NamedTuple):
    """One value of a ``tag``, on two axes: training episodes and environment steps.

    Both axes count per phase and worker. ``time`` is Unix time in seconds.
    """

    tag: str
    value: float
    episode: int
    steps: int
    time: float


class ScalarSink(Protocol):
    """A destination of scalars. If a method raises, the sink is dropped and the run continues."""

    def write(self, points: Sequence[Point]) -> None:
        """Write the points durably, so that they survive a kill of the process."""

    def close(self) -> None:
        """Finish: no more points follow."""


class RunName(NamedTuple):
    """The identifiers of a run: the uids of its document and of its instance (empty without a store)."""

    document: str
    instance: str


class JsonLines:
    """Appends one JSON object per line to a file, with the fields of :class:`Point` and ``run``.

    Infinite values and NaN, which JSON lacks, become ``null``.
    """

    def __init__(self, path: str, run: RunName):
        self._run = run.instance or run.document
        self._file = os.fdopen(files.open_append(path), "a", encoding="utf-8")

    def write(self, points: Sequence[Point]) -> None:
        for point in points:
            value = point.value if math.isfinite(point.value) else None
            self._file.write(json.dumps({"run": self._run, **point._asdict(), "value": value}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """Writes TensorBoard event files below a folder: one run over ``episodes``, one over ``steps``."""

    def __init__(self, folder: str, run: RunName):
        from tensorboardX import SummaryWriter

        root = Path(folder) / (run.instance or _file_name(run.document))
        self._writers = {axis: SummaryWriter(str(root / axis)) for axis in ("episodes", "steps")}

    def write(self, points: Sequence[Point]) -> None:
        for point in points:
            for axis, at in (("episodes", point.episode), ("steps", point.steps)):
                self._writers[axis].add_scalar(point.tag, point.value, at, walltime=point.time)
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class WeightsAndBiases:
    """Logs to a Weights & Biases project, with its own settings, such as ``WANDB_MODE=offline``."""

    def __init__(self, project: str, run: RunName):
        import wandb

        named: dict[str, Any] = {"id": run.instance, "resume": "allow"} if run.instance else {}
        self._run = wandb.init(project=project, name=run.document, reinit="create_new", **named)
        self._run.define_metric("*", step_metric="episode")

    def write(self, points: Sequence[Point]) -> None:
        rows: dict[tuple[int, int], dict[str, float]] = {}
        for point in points:
            rows.setdefault((point.episode, point.steps), {})[point.tag] = point.value
        for (episode, steps), values in rows.items():
            self._run.log({**values, "episode": episode, "steps": steps})

    def close(self) -> None:
        self._run.finish()


_SINKS: Mapping[str, tuple[Callable[[str, RunName], ScalarSink], str]] = {
    "jsonl": (JsonLines, "FILE"),
    "tensorboard": (TensorBoard, "FOLDER"),
    "wandb": (WeightsAndBiases, "PROJECT"),
}
#: by sink, the module that it needs, and a function that returns the command to install the module
_NEEDED = {
    "tensorboard": ("tensorboardX", partial(install_extra, "scalars")),
    "wandb": ("wandb", partial(install_packages, "wandb")),
}


def check_sinks(names: Sequence[str]) -> None:
    """Raise :class:`PalaestraiMosaikError` if a name is invalid, such as ``tensorbord:runs``, or its module missing."""
    for name in names:
        kind, _, target = name.partition(":")
        if kind not in _SINKS or not target:
            forms = ", ".join(f"{kind}:{target}" for kind, (_, target) in _SINKS.items())
            raise PalaestraiMosaikError(
                f"{name!r} is not a sink of scalars{did_you_mean(kind, _SINKS)}: {forms}"
            )
        module, how = _NEEDED.get(kind, ("", str))
        if module and not importable(module):
            raise PalaestraiMosaikError(f"--scalars {name} needs {module}: {how()}")


class Scalars:
    """The sinks of one run.

    Args:
        names: the sinks, such as ``tensorboard:runs``.
        run: the identifiers of the run.
        directory: the instance's directory, or ``None`` if the run is not recorded.
        warn: is called with a message if a sink fails.

    Raises:
        PalaestraiMosaikError: if a sink cannot be opened.
    """

    def __init__(
        self, names: Sequence[str], run: RunName, directory: Path | None, warn: Callable[[str], None]
    ):
        check_sinks(names)
        self._warn = warn
        self._file = None if directory is None else directory / WRITTEN
        self._written = _read_written(self._file)
        self._points: list[Point] = []
        self._committed = time.monotonic()
        self._sinks: dict[str, ScalarSink] = {}
        for name in dict.fromkeys(names):
            self._sinks[name] = self._open(name, run)

    def phase(self, spec: PhaseSpec) -> PhaseScalars:
        """Create the writer of a phase's scalars."""
        return PhaseScalars(self, spec)

    def add(self, key: str, number: int, points: Sequence[Point]) -> None:
        """Add the points of episode ``number``; pass them to the sinks if the last write was long enough ago."""
        self._written[key] = number
        self._points += points
        if time.monotonic() - self._committed >= INTERVAL:
            self.commit()

    def written(self, key: str) -> int:
        """Return the number of the last episode written under ``key``, or -1."""
        return self._written.get(key, -1)

    def commit(self) -> None:
        """Pass all points to the sinks, and save the numbers of the last written episodes."""
        points, self._points = self._points, []
        if points:
            for name in list(self._sinks):
                self._guarded(name, lambda sink: sink.write(points))
            if self._file is not None:
                self._note(self._file)
        self._committed = time.monotonic()

    def close(self) -> None:
        """Write the remaining points and close the sinks."""
        self.commit()
        for name in list(self._sinks):
            self._guarded(name, lambda sink: sink.close())
            self._sinks.pop(name, None)

    def _open(self, name: str, run: RunName) -> ScalarSink:
        kind, _, target = name.partition(":")
        try:
            return _SINKS[kind][0](target, run)
        except OSError as error:
            raise PalaestraiMosaikError(f"--scalars {name}: {error}") from error

    def _guarded(self, name: str, act: Callable[[ScalarSink], None]) -> None:
        try:
            act(self._sinks[name])
        except Exception as error:  # third-party code may raise anything
            sink = self._sinks.pop(name)
            # close now: otherwise the garbage collector would retry the failed write at any time
            with suppress(Exception):
                sink.close()
            self._warn(f"no more scalars to {name}: {type(error).__name__}: {error}")

    def _note(self, file: Path) -> None:
        from palaestrai_mosaik.store.parts import write_text

        try:
            write_text(file, json.dumps(self._written) + "\n")
        except StoreError as error:
            self._file = None
            self._warn(f"a resumed run would write scalars twice: {error}")


class PhaseScalars:
    """Computes the points of a phase's episodes.

    Tags have the form ``PHASE/KIND/...``, with the kind ``train``, ``test`` or ``evaluation``; if the phase has several
    workers, ``/worker-N`` is appended. Each agent has ``AGENT/objective_sum``, ``AGENT/objective_mean``,
    ``AGENT/reward/NAME_sum`` and ``_mean``, and ``AGENT/statistic/KEY``, the mean of a reported figure over the
    episode. ``steps`` and ``steps_per_second`` have no agent. The episode axis of an
    evaluation is the number of training episodes before it.
    """

    def __init__(self, scalars: Scalars, spec: PhaseSpec):
        self._scalars, self._spec = scalars, spec
        #: sum and count of each statistic, by the episode that reported it
        self._statistics: dict[EpisodeKey, dict[str, list[float]]] = {}
        #: episode and step axes of the newest episodes, because brains may report statistics after an episode's end
        self._at: dict[EpisodeKey, tuple[int, int]] = {}

    def recording(self, recorder: Any) -> Any:
        """Wrap ``recorder`` so that statistics are also added to the scalars."""
        return _Recording(recorder, self.statistic)

    def statistic(self, agent: str, episode_key: EpisodeKey, key: str, value: float) -> None:
        """Add a figure that an agent reports about itself."""
        sums = self._statistics.setdefault(episode_key, {}).setdefault(f"{agent}/statistic/{key}", [0.0, 0.0])
        sums[0] += value
        sums[1] += 1

    def state(self) -> Any:
        """Return the unwritten statistics, for a checkpoint."""
        return self._statistics, self._at

    def restore(self, state: Any) -> None:
        """Restore the state from a checkpoint."""
        self._statistics, self._at = state

    def episode(self, report: EpisodeReport, ends: Sequence[int]) -> None:
        """Add the results of an episode that has ended.

        Args:
            report: the report of the episode.
            ends: for each training episode of its worker, the worker's total number of steps at its end.
        """
        self._write_statistics(report.worker)
        episode_key = (report.worker, report.number, report.evaluation)
        at = report.number
        if report.evaluation:
            at = (report.number + 1) * (self._spec.evaluate_every or 1)
        self._at[episode_key] = (at, ends[at - 1 if report.evaluation else at])
        if report.number <= self._scalars.written(self._key(episode_key)):
            return  # written before the run was resumed
        values: dict[str, float] = {"steps": report.steps}
        if report.duration > 0:
            values["steps_per_second"] = report.steps / report.duration
        for agent, outcome in report.outcomes.items():
            for moment in ("sum", "mean"):
                values[f"{agent}/objective_{moment}"] = outcome["objective"][moment]
                for name, moments in outcome["rewards"].items():
                    values[f"{agent}/reward/{name}_{moment}"] = moments[moment]
        self._scalars.add(self._key(episode_key), report.number, self._points(episode_key, values))

    def finish(self) -> None:
        """Write the remaining statistics at the end of the phase."""
        for worker in sorted({episode_key[0] for episode_key in self._at}):
            self._write_statistics(worker)
        self._scalars.commit()

    def _write_statistics(self, worker: int) -> None:
        """Write the statistics of a worker's finished episodes."""
        for episode_key in [ended for ended in self._at if ended[0] == worker]:
            key, statistics = self._key(episode_key) + "/statistics", self._statistics.pop(episode_key, {})
            if episode_key[1] > self._scalars.written(key):
                means = {tag: total / count for tag, (total, count) in statistics.items()}
                self._scalars.add(key, episode_key[1], self._points(episode_key, means))
            del self._at[episode_key]

    def _key(self, episode_key: EpisodeKey) -> str:
        worker, _, evaluation = episode_key
        return f"{self._spec.index}/{worker}/{'evaluation' if evaluation else 'episode'}"

    def _points(self, episode_key: EpisodeKey, values: Mapping[str, float]) -> list[Point]:
        worker, _, evaluation = episode_key
        episode, steps = self._at[episode_key]
        begin = f"{self._spec.name}/{'evaluation' if evaluation else self._spec.mode.value}/"
        end = f"/worker-{worker}" if self._spec.workers > 1 else ""
        now = time.time()
        return [
            Point(f"{begin}{tag}{end}", float(value), episode, steps, now)
            for tag, value in values.items()
            if not math.isnan(value)  # the episode had no value
        ]


class _Recording:
    """Delegates to a phase's recorder, and passes statistics to a second listener."""

    def __init__(self, recorder: Any, report: Callable[[str, EpisodeKey, str, float], None]):
        self._statistic, self._report = recorder.statistic, report
        self.agent, self.environment, self.frames = recorder.agent, recorder.environment, recorder.frames
        self.episode, self.finish = recorder.episode, recorder.finish
        self.world = recorder.world

    def statistic(self, *row: Any, evaluation: bool) -> None:
        self._statistic(*row, evaluation=evaluation)
        agent, worker, episode, _, key, value = row
        self._report(agent, (worker, episode, evaluation), key, value)


def _read_written(file: Path | None) -> dict[str, int]:
    if file is None or not file.exists():
        return {}
    try:
        numbers = json.loads(files.read_text(file))
        return {str(key): int(number) for key, number in numbers.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise PalaestraiMosaikError(f"cannot read how far scalars were written: {file}: {error}") from error


def _file_name(name: str) -> str:
    from palaestrai_mosaik.store.records import slug

    return slug(name)
