"""Scalars of a run while it goes on, for programs that draw them: TensorBoard, Weights & Biases, plain JSON lines.

:class:`PhaseScalars` describes what is written. It is a copy: the results are in the store, so a sink
that fails is given up with a warning, and the run goes on. A run that is resumed leaves no episode out and
writes none twice: sinks have all of an episode before a checkpoint has it, and how far they were written
stands in the folder of its instance.
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

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import PalaestraiMosaikError, StoreError, did_you_mean
from palaestrai_mosaik.experiment import PhaseSpec
from palaestrai_mosaik.importing import importable
from palaestrai_mosaik.installation import install_extra, install_packages

from .worker import EpisodeReport

#: the file in the folder of an instance that says how far the sinks were written
WRITTEN = "scalars.json"
#: seconds between two writes: a sink may take milliseconds
INTERVAL = 1.0
#: worker, episode, whether it is an evaluation
EpisodeKey = tuple[int, int, bool]


class Point(NamedTuple):
    """One number under a ``tag``, with two axes: episodes of training and steps of the environments.

    Both count within phase and worker; ``time`` is Unix time in seconds.
    """

    tag: str
    value: float
    episode: int
    steps: int
    time: float


class ScalarSink(Protocol):
    """Where scalars go. Whatever it raises ends its use, not the run."""

    def write(self, points: Sequence[Point]) -> None:
        """Take these points, so that they last if the process is killed right afterwards."""

    def close(self) -> None:
        """Nothing will follow."""


class RunName(NamedTuple):
    """What a sink calls a run: the uid of its document, and of its instance (empty without a store)."""

    document: str
    instance: str


class JsonLines:
    """Appends one JSON object a line to a file: the fields of :class:`Point`, and ``run``.

    JSON has no infinite numbers: such a value is ``null``.
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
    """Writes TensorBoard's event files below a folder: one run over ``episodes``, one over ``steps``."""

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
    """Logs to a project of Weights & Biases, as its settings say: offline with ``WANDB_MODE=offline``."""

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
#: the module that a sink needs, and what makes the command that installs it
_NEEDED = {
    "tensorboard": ("tensorboardX", partial(install_extra, "scalars")),
    "wandb": ("wandb", partial(install_packages, "wandb")),
}


def check_sinks(names: Sequence[str]) -> None:
    """Raise :class:`PalaestraiMosaikError` for what names no sink, such as ``tensorbord:runs``, or needs what is not there."""
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
    """The sinks of one run, by their names (``tensorboard:runs``); ``warn`` is called with a message if one fails.

    ``directory`` is that of the run's instance, ``None`` where nothing is recorded. Raises
    :class:`PalaestraiMosaikError` where a sink cannot be opened.
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
        """Return what writes the scalars of a phase."""
        return PhaseScalars(self, spec)

    def add(self, key: str, number: int, points: Sequence[Point]) -> None:
        """Write the points of episode ``number``, at most once a second."""
        self._written[key] = number
        self._points += points
        if time.monotonic() - self._committed >= INTERVAL:
            self.commit()

    def written(self, key: str) -> int:
        """Return the last episode under ``key`` that was written; -1: none."""
        return self._written.get(key, -1)

    def commit(self) -> None:
        """Hand everything to the sinks, and note how far they are."""
        points, self._points = self._points, []
        if points:
            for name in list(self._sinks):
                self._guarded(name, lambda sink: sink.write(points))
            if self._file is not None:
                self._note(self._file)
        self._committed = time.monotonic()

    def close(self) -> None:
        """Write what is left, and close the sinks."""
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
        except Exception as error:  # of a program of others, which may raise anything
            sink = self._sinks.pop(name)
            # else what it could not write would be tried when it is collected as garbage, wherever that is
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
    """Makes points of the episodes of one phase.

    A tag is ``PHASE/KIND/...`` with the kind ``train``, ``test`` or ``evaluation``, and at its end
    ``/worker-N`` where a phase has several workers: for each agent ``AGENT/objective_sum``,
    ``AGENT/objective_mean``, ``AGENT/reward/NAME_sum`` and ``_mean``, ``AGENT/statistic/KEY`` (what it
    reported, its mean over the episode), and ``steps`` and ``steps_per_second`` of all.
    Evaluations stand at the training episode after which they ran.
    """

    def __init__(self, scalars: Scalars, spec: PhaseSpec):
        self._scalars, self._spec = scalars, spec
        #: sum and number of each statistic, by the episode in which it was reported
        self._statistics: dict[EpisodeKey, dict[str, list[float]]] = {}
        #: where the newest episodes stand on both axes; brains may tell something after an episode's end
        self._at: dict[EpisodeKey, tuple[int, int]] = {}

    def recording(self, recorder: Any) -> Any:
        """Return what records to ``recorder``, and hears of the statistics on their way there."""
        return _Recording(recorder, self.statistic)

    def statistic(self, agent: str, episode_key: EpisodeKey, key: str, value: float) -> None:
        """Take a figure that an agent reports about itself."""
        sums = self._statistics.setdefault(episode_key, {}).setdefault(f"{agent}/statistic/{key}", [0.0, 0.0])
        sums[0] += value
        sums[1] += 1

    def state(self) -> Any:
        """Return, for a checkpoint, the statistics that are not written yet."""
        return self._statistics, self._at

    def restore(self, state: Any) -> None:
        """Go on from a checkpoint."""
        self._statistics, self._at = state

    def episode(self, report: EpisodeReport, ends: Sequence[int]) -> None:
        """Take the end of an episode.

        ``ends``: the steps of its worker until the end of each of its training episodes.
        """
        self._write_statistics(report.worker)
        episode_key = (report.worker, report.number, report.evaluation)
        at = report.number
        if report.evaluation:
            at = (report.number + 1) * (self._spec.evaluate_every or 1)
        self._at[episode_key] = (at, ends[at - 1 if report.evaluation else at])
        if report.number <= self._scalars.written(self._key(episode_key)):
            return  # the process that was stopped has written it
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
        """The phase is over: write what is left."""
        for worker in sorted({episode_key[0] for episode_key in self._at}):
            self._write_statistics(worker)
        self._scalars.commit()

    def _write_statistics(self, worker: int) -> None:
        """Write the statistics of episodes of a worker that have ended."""
        for episode_key in [one for one in self._at if one[0] == worker]:
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
            if not math.isnan(value)  # (there was none)
        ]


class _Recording:
    """A recorder of a phase that also reports statistics to another listener."""

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
        found = json.loads(files.read_text(file))
        return {str(key): int(number) for key, number in found.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise PalaestraiMosaikError(f"cannot read how far scalars were written: {file}: {error}") from error


def _file_name(name: str) -> str:
    from palaestrai_mosaik.store.records import slug

    return slug(name)
