"""Run a document from Python and look at the recording, in a script or a notebook.

::

    import palaestrai_mosaik as pm

    result = pm.run("run.yml")
    result.episodes
    result.plot()

:func:`run` records like ``palaestrai-mosaik start``; :class:`RecordedRun` also opens runs of that command.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from contextlib import nullcontext
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Union

from palaestrai_mosaik.arsenai.analysis.results import Results
from palaestrai_mosaik.arsenai.design import Design, DesignFolder
from palaestrai_mosaik.arsenai.design.folder import MANIFEST
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.core.pages import HEIGHT, Page
from palaestrai_mosaik.experiment import AnyDocument, as_document
from palaestrai_mosaik.experiment.paths import Overrides
from palaestrai_mosaik.plot.columns import Clock, clock_of
from palaestrai_mosaik.plot.figures import learning_figure, run_figure
from palaestrai_mosaik.plot.learning import LearningChoice
from palaestrai_mosaik.runner import earlier_run, execute, make_progress
from palaestrai_mosaik.runner.checkpoint import INTERVAL
from palaestrai_mosaik.store import BodyChoice, Store
from palaestrai_mosaik.store.labels import LabelChange
from palaestrai_mosaik.store.query.lookup import Fold
from palaestrai_mosaik.store.read_back import NOT_READ_BACK, check_recorded

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from palaestrai_mosaik.web.carried import EpisodeChoice

AnyStore = Store | str | os.PathLike[str]

#: the columns of ``Store.runs`` that a notebook shows
_FACTS = ("status", "seed", "started", "duration", "episodes", "steps", "error")


def run(  # noqa: PLR0913 (the options of a run)
    document: AnyDocument,
    *,
    store: AnyStore | None = None,
    quiet: bool = False,
    resume: bool = False,
    checkpoint_every: float = INTERVAL,
    scalars: Sequence[str] = (),
    overrides: Overrides | None = None,
    name: str | None = None,
    tags: str | Sequence[str] = (),
    note: str | None = None,
) -> RecordedRun:
    """Execute a run document, record it, and return the recorded run.

    Also works in a notebook, where cells run inside an event loop. To run a document without recording it, call
    :func:`palaestrai_mosaik.runner.execute`.

    Args:
        document: the path of a file, a mapping, or a result of :func:`palaestrai_mosaik.experiment.load`.
        store: where to record: an open store, or the folder or URL of one, which is created if it is missing. The
            default is that of the commands: ``PALAESTRAI_MOSAIK_STORE``, or the folder ``palaestrai-results``.
        quiet: show no progress.
        resume: resume the newest run of this document if it did not finish. If it did, return it.
        checkpoint_every: seconds between two checkpoints of a train phase; 0 writes none.
        scalars: sinks of live scalars, such as ``tensorboard:runs``.
        overrides: other values at some paths of the document, like those of ``start --set``: ``{"seed": 2,
            "agents.defender.muscle.params.gain": 0.5}``. The record has the document with them.
        name: the name of the run, by which it can be selected (:meth:`RecordedRun.label`).
        tags: a tag of the run, or several.
        note: a note of the run.

    Returns:
        The recorded run, which opens the store again unless ``store`` is an open one.

    Raises:
        DocumentError: the document cannot be run; nothing was recorded.
        RunInterrupted: the run was interrupted; the record says so.
        StoreError: the store cannot be opened, the run to resume is running, the recording cannot be read back, or a
            name, tag or note is not allowed.
        Exception: an agent or an environment raised it; it is recorded with its traceback.
    """
    document = as_document(document, overrides)
    labels = LabelChange(name, tags, note=note)
    opened = store if isinstance(store, Store) else Store(store, create=True)
    try:
        earlier = earlier_run(document, opened) if resume else None
        if earlier is not None and earlier.status == "running":
            raise StoreError(f"instance {earlier.instance} is running; two processes cannot continue it")
        if earlier is not None and earlier.status == "finished":
            return RecordedRun(earlier.instance, store)
        result = execute(
            document,
            store=opened,
            progress=make_progress(quiet=quiet),
            resume=earlier.instance if earlier is not None and earlier.has_checkpoint else None,
            checkpoint_every=checkpoint_every,
            scalars=scalars,
            labels=labels,
        )
        assert result.instance is not None
        try:
            check_recorded(opened, [result.instance])
        except StoreError as error:
            raise StoreError(f"{NOT_READ_BACK}: {error}") from error
    finally:
        if opened is not store:
            opened.close()
    return RecordedRun(result.instance, store)


#: the objects that :func:`view` shows: runs of a store, one run, or a design
Shown = Union[AnyStore, "RecordedRun", Design, DesignFolder, Results]


def view(
    shown: Shown | None = None,
    *runs: str,
    phases: Sequence[int | str] = (),
    episode: EpisodeChoice = "newest",
    beside: int | str | None = None,
    height: int = HEIGHT,
) -> Page:
    """Build the page of a store, of one or several of its runs, or of a design, which a notebook shows.

    It is one file that needs no server: :meth:`Page.save <palaestrai_mosaik.core.pages.Page.save>` writes it.

    Args:
        shown: an open store, the folder or URL of one, a recorded run, or a design: a design that was generated, its
            folder, or its results. The default is the store of :func:`run`. A folder may be that of a design, too.
        runs: which runs of a store, as :class:`RecordedRun` takes them: a single run is shown by itself, several are
            compared. Without any, all runs are listed.
        phases: of a single run, numbers or names of the phases to show in motion, and with rendered frames; none: all,
            as long as the page stays small.
        episode: of a single run, which episode of each phase: a number, ``"newest"``, or ``"worst"``, the one with the
            voltage farthest from 1.
        beside: of a single run, number or name of the phase that is shown beside the first one.
        height: of the page in the notebook, in pixels.

    Returns:
        The page.

    Raises:
        StoreError: there is no such store, run, phase or episode.
        DocumentError: the design has not been generated.
    """
    from palaestrai_mosaik.web import theatre

    choice = theatre.MotionChoice(phases, episode, beside)
    shown = _results_of(shown)
    several = isinstance(shown, Results) or (not isinstance(shown, RecordedRun) and len(runs) != 1)
    if several and choice != theatre.MotionChoice():
        raise StoreError(
            "phases, episode and beside choose what the page of a single run shows: name one run"
        )
    if isinstance(shown, RecordedRun | Results) and runs:
        raise StoreError("runs are those of a store: pass the store, or its folder, before them")
    if isinstance(shown, RecordedRun):
        return theatre.run_page(shown.store, shown.instance, choice, height=height)
    if isinstance(shown, Results):
        return theatre.design_page(shown.folder, shown.store, height=height)
    with nullcontext(shown) if isinstance(shown, Store) else Store(shown, read_only=True) as store:
        if len(runs) == 1:
            return theatre.run_page(store, runs[0], choice, height=height)
        if runs:
            return theatre.comparison_page(store, runs, height=height)
        return theatre.store_page(store, height=height)


def _results_of(shown: Shown | None) -> AnyStore | RecordedRun | Results | None:
    """Replace a design, or its folder, by its results; return anything else unchanged."""
    if isinstance(shown, str | os.PathLike) and os.path.isfile(os.path.join(shown, MANIFEST)):
        return Results(DesignFolder.open(Path(shown)))
    if isinstance(shown, Design):
        return Results(DesignFolder.open(shown.folder))
    return Results(shown) if isinstance(shown, DesignFolder) else shown


def _reopened(kind: type[RecordedRun], run: str, store: Store) -> RecordedRun:
    """Unpickle a run, and open its store."""
    reopened = kind(run, store)
    reopened._owns_store = True
    return reopened


class RecordedRun:
    """One recorded execution of a run document: data frames, pictures, and a summary for notebooks.

    The data frames are those of :class:`~palaestrai_mosaik.store.Store` for this run, which describes their
    columns; they have ``phase_name`` after ``phase``, and ``date`` after ``time`` if an environment of the
    phase has a calendar. Numbers of phases, workers and episodes start at 0.

    Args:
        run: the uid of an instance (or its beginning), the name of a run, the uid of a run document (for its newest
            instance), or ``"latest"``.
        store: an open store, or the folder or URL of one; the default is that of :func:`run`. The store must
            exist.

    Raises:
        StoreError: there is no such store or run.
    """

    def __init__(self, run: str = "latest", store: AnyStore | None = None):
        self._owns_store = not isinstance(store, Store)
        self.store = store if isinstance(store, Store) else Store(store, read_only=True)
        try:
            self.instance = self.store.find_run(run)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the store, unless the caller had opened it."""
        if self._owns_store:
            self.store.close()

    def __copy__(self) -> Self:
        return copy.deepcopy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the uid of the run and the location of its store (:meth:`Store.__reduce__`)."""
        return _reopened, (type(self), self.instance, self.store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def document(self) -> dict[str, Any]:
        """The run document, with all defaults filled in."""
        return self.store.document(self.instance)

    @property
    def summary(self) -> pd.Series[Any]:
        """The row of this run in :meth:`Store.runs`: ``document``, ``status``, ``seed``, ``started``, and so on."""
        row: pd.Series[Any] = self.store.runs(self.instance).iloc[0]
        return row

    @property
    def status(self) -> str:
        """``running``, ``finished``, ``failed``, ``interrupted`` or ``lost``."""
        return str(self.summary["status"])

    @property
    def name(self) -> str | None:
        """The name of the run (:meth:`label`), or ``None``."""
        return self.store.labels(self.instance).name

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the run, sorted."""
        return self.store.labels(self.instance).tags

    @property
    def note(self) -> str | None:
        """The note of the run, or ``None``."""
        return self.store.labels(self.instance).note

    def label(
        self,
        *,
        name: str | None = None,
        tags: str | Sequence[str] = (),
        untag: str | Sequence[str] = (),
        note: str | None = None,
    ) -> None:
        """Set name, tags and note of the run, like the command ``label``.

        They are no part of its document, hash or digests.

        Args:
            name: the name, up to 120 characters on one line; ``""`` removes it, ``None`` keeps it. A name may be that
                of several runs, but then selects none of them.
            tags: a tag to add, or several; up to 60 characters each, without commas. A run has up to 50.
            untag: a tag to remove, or several.
            note: a note of up to 10,000 characters and any number of lines; ``""`` removes it, ``None`` keeps it.

        Raises:
            StoreError: the run has no tag to remove, a text is not allowed, or the store cannot be written. Then
                nothing is changed.
        """
        change = LabelChange(name, tags, untag, note)
        with self.store.writable() if self._owns_store else nullcontext(self.store) as store:
            store.change_labels([self.instance], change)

    @property
    def phases(self) -> pd.DataFrame:
        """One row per phase that started."""
        return self.store.phases(self.instance)

    @property
    def episodes(self) -> pd.DataFrame:
        """One row per training or test episode and agent, with its steps, objective and rewards."""
        return self._named(self.store.episodes(self.instance).drop(columns="name"))

    @property
    def evaluations(self) -> pd.DataFrame:
        """The same for evaluation episodes (``evaluate_every``)."""
        return self._named(self.store.episodes(self.instance, evaluation=True).drop(columns="name"))

    @property
    def agents(self) -> pd.DataFrame:
        """One row per phase and agent: brain, muscle, objective, sensors, actuators, rewards."""
        return self._named(self.store.agents(self.instance))

    @property
    def environments(self) -> pd.DataFrame:
        """One row per phase and environment, with its parameters."""
        return self._named(self.store.environments(self.instance))

    @property
    def warnings(self) -> list[str]:
        """The texts of the run's warnings."""
        return [str(text) for text in self.store.warnings(self.instance)["text"]]

    @property
    def errors(self) -> pd.DataFrame:
        """The run's errors: ``phase``, ``kind``, ``message``, ``traceback``, ``time``."""
        return self.store.errors(self.instance)

    def steps(self, phase: int | str | None = None, **filters: Any) -> pd.DataFrame:
        """Return one row per step of the agents.

        Args:
            phase: number or name of a phase; ``None``: all.
            filters: those of :meth:`Store.steps`: ``agent``, ``episode``, ``columns``, ...

        Returns:
            The columns of :meth:`Store.steps`, with names of phases and dates.

        Raises:
            StoreError: there is no such phase, agent, column or other filter value.
        """
        return self._dated(self.store.steps(self.instance, phase, **filters), phase)

    def environment_states(self, phase: int | str | None = None, **filters: Any) -> pd.DataFrame:
        """Return one row per state of the environments.

        Args:
            phase: number or name of a phase; ``None``: all.
            filters: those of :meth:`Store.environment_states`: ``environment``, ``episode``, ``columns``, ...

        Returns:
            The columns of :meth:`Store.environment_states`, with names of phases and dates.

        Raises:
            StoreError: there is no such phase, environment, column or other filter value.
        """
        return self._dated(self.store.environment_states(self.instance, phase, **filters), phase)

    def frames(self, phase: int | str | None = None, **filters: Any) -> pd.DataFrame:
        """Return the rendered frames of environments, if the document requested them (``frames``).

        Args:
            phase: number or name of a phase; ``None``: all.
            filters: those of :meth:`Store.frames`: ``environment``, ``worker``, ``episode``, ``evaluation``, ...

        Returns:
            One row per frame, with its PNG image in the column ``png``.

        Raises:
            StoreError: there is no such phase or environment.
        """
        return self._dated(self.store.frames(self.instance, phase, **filters), phase)

    def statistics(self, phase: int | str | None = None, **filters: Any) -> pd.DataFrame:
        """Return the statistics that the agents reported, such as losses.

        Args:
            phase: number or name of a phase; ``None``: all.
            filters: those of :meth:`Store.statistics`: ``agent``, ``episode``, ``key``, ...

        Returns:
            The columns of :meth:`Store.statistics`, with names of phases.

        Raises:
            StoreError: there is no such phase or agent.
        """
        return self._named(self.store.statistics(self.instance, phase, **filters))

    def plot(
        self,
        sensors: Sequence[str] = (),
        *,
        agent: str | None = None,
        environment: str | None = None,
        **options: Any,
    ) -> Figure:
        """Draw objective and rewards.

        Args:
            sensors: patterns (``*``, ``?``) of columns. Each gets its own panel with the matching
                columns over an episode, like ``plot --sensors``.
            agent: name of an agent; ``None``: all.
            environment: uid of an environment: only the bodies in it; ``None``: all.
            options: ``phase``, ``episode``, ``fold`` and ``limits`` of
                :func:`~palaestrai_mosaik.plot.figures.run_figure`.

        Returns:
            The figure, which a notebook shows.

        Raises:
            StoreError: there is no such agent, environment, phase, episode or sensor, or there is nothing to plot.
        """
        choice = BodyChoice(agent, environment)
        return run_figure(self.store, self.instance, choice=choice, sensors=sensors, **options)

    def plot_learning(
        self,
        statistics: Sequence[str] = (),
        *,
        agent: str | None = None,
        phase: int | str | None = None,
        fold: Fold | None = None,
    ) -> Figure:
        """Draw the learning curves.

        Args:
            statistics: patterns (``*``, ``?``) of keys of statistics. Each gets its own panel.
            agent: name of an agent; ``None``: all.
            phase: number or name of a phase; ``None``: all.
            fold: how to aggregate the objective over an episode, ``"mean"`` or ``"sum"``; ``None``: the sum if the
                rewards of all environments accumulate, else the mean.

        Returns:
            The figure, which a notebook shows.

        Raises:
            StoreError: there is no such agent, phase or statistic, or there is nothing to plot.
        """
        choice = LearningChoice(
            phase=phase, bodies=BodyChoice(agent), fold=fold, statistics=tuple(statistics)
        )
        return learning_figure(self.store, [self.instance], choice)

    def view(
        self,
        *,
        phases: Sequence[int | str] = (),
        episode: EpisodeChoice = "newest",
        beside: int | str | None = None,
        height: int = HEIGHT,
    ) -> Page:
        """Build the page of the run.

        Args:
            phases: numbers or names of the phases to show in motion; none: all, as long as the page stays small.
            episode: the episode of each phase: a number, ``"newest"`` or ``"worst"``.
            beside: number or name of the phase that is shown beside the first one.
            height: of the page in the notebook, in pixels.

        Returns:
            The page, which a notebook shows.

        Raises:
            StoreError: there is no such phase or episode.
        """
        return view(self, phases=phases, episode=episode, beside=beside, height=height)

    def __repr__(self) -> str:
        return f"<RecordedRun {self.instance} of {self.summary['document']!r}: {self.status}>"

    def _repr_html_(self) -> str:
        """Format the run's facts, its phases and its warnings for a notebook."""
        summary = self.summary
        facts = summary[[name for name in _FACTS if name != "error" or summary["error"]]].to_frame(
            self.instance
        )
        facts.loc["started"] = f"{summary['started']:%Y-%m-%d %H:%M:%S} UTC"
        facts.loc["duration"] = f"{summary['duration']:.2f} s"
        for title in ("name", "tags", "note"):
            if summary[title]:
                facts.loc[title] = ", ".join(summary["tags"]) if title == "tags" else summary[title]
        warned = "".join(f"<li>{escape(text)}</li>" for text in self.warnings)
        phases = self.phases[["phase", "name", "mode", "workers", "episodes_done", "reason"]]
        return (
            f"<p><b>{escape(str(summary['document']))}</b></p>"
            f"{facts.to_html()}<p>Phases</p>{phases.to_html(index=False)}"
            f"{'<p>Warnings</p><ul>' + warned + '</ul>' if warned else ''}"
        )

    def _named(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Insert the names of the phases after their numbers, if there are any."""
        if "phase" in frame:
            names = self.phases.set_index("phase")["name"]
            frame.insert(list(frame).index("phase") + 1, "phase_name", frame["phase"].map(names))
        return frame

    def _dated(self, frame: pd.DataFrame, phase: int | str | None) -> pd.DataFrame:
        """Insert the names of the phases, and the dates of the ticks if there is a calendar."""
        import numpy as np
        import pandas as pd

        numbers = frame["phase"] if "phase" in frame else pd.Series(0, frame.index)
        clocks: dict[Any, Clock | None] = {}
        for number in numbers.unique():
            clocks[number] = clock_of(self.store, self.instance, int(number) if phase is None else phase)
        if any(clock is not None for clock in clocks.values()):
            dates = np.full(len(frame), np.datetime64("NaT"), dtype="datetime64[ms]")
            for number, clock in clocks.items():
                if clock is not None:
                    rows = (numbers == number).to_numpy()
                    dates[rows] = clock.dates(frame["time"].to_numpy()[rows])
            frame.insert(list(frame).index("time") + 1, "date", dates)
        return self._named(frame)
