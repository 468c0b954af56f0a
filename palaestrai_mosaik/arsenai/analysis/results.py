"""Results of a generated design: every run joined to its row, with its outcomes as numbers.

Runs are looked up in the store by the hash of their documents, or of what these compute. It therefore makes no
difference how, where, in which order and under which name they were executed. Rows are in the order of the design.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from palaestrai_mosaik.arsenai.design.folder import RESULTS, STORES, DesignFolder
from palaestrai_mosaik.arsenai.design.model import INACTIVE, DesignSpec, Factor, OutcomeSpec
from palaestrai_mosaik.arsenai.design.settings import SearchJournal, failure_reasons, read_journal, retries_of
from palaestrai_mosaik.core.errors import PalaestraiMosaikError, StoreError
from palaestrai_mosaik.core.pages import HEIGHT, Page
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.merge import has_finished
from palaestrai_mosaik.store.store import StoreLocation

from .moments import Moments
from .outcomes import default_outcomes, take

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
# "Missing": a run that has not ended has no outcomes yet.
_STATUS = {"finished": "finished", "running": "missing", "pruned": "missing"}
_RUN_COLUMNS = ["row", "repetition", "uid", "run", "status", "instance", "duration", "error"]
_OUTCOME_COLUMNS = ["row", "repetition", "uid", "run", "status", "instance"]


class Results:
    """The results of a generated design.

    All frames are read once and cached; do not write to them.

    Args:
        folder: the folder of the design, or its path.
        store: the store of the results, as a location or an open store; ``None``: ``results`` in the folder. The
            files of a database URL are in ``results`` too, where ``arsenai run`` puts them.
        progress: called while outcomes are read, with the number of values read and the total (one for each run and
            outcome); ``None``: no reports.

    Raises:
        DocumentError: ``folder`` is not the folder of a design.
    """

    def __init__(
        self,
        folder: str | Path | DesignFolder,
        store: str | Path | Store | None = None,
        progress: ProgressCallback | None = None,
    ):
        self.folder = folder if isinstance(folder, DesignFolder) else DesignFolder.open(folder)
        self._location = store
        self._store = (
            store if isinstance(store, Store) else StoreLocation.of(self.folder.path / RESULTS, store)
        )
        self._progress = progress
        #: outcomes read so far, by the uid of the instance; those of finished runs never change
        self._cached: dict[OutcomeSpec, dict[str, float]] = {}

    def refreshed(self, folder: DesignFolder | None = None) -> Results:
        """Return results that see the store's current content. Outcomes read before are not read again.

        Args:
            folder: the current folder, if rows were added to it; ``None``: the same.

        Returns:
            New results for the same store.
        """
        fresh = Results(folder or self.folder, self._location, self._progress)
        fresh._cached = self._cached
        return fresh

    @property
    def spec(self) -> DesignSpec:
        """The specification of the design."""
        return self.folder.spec

    @property
    def store(self) -> Store | StoreLocation:
        """The store of the results: an open one, or its location, which may not exist yet."""
        return self._store

    @contextmanager
    def open_store(self) -> Iterator[Store]:
        """Open the store for the block.

        Yields:
            The open store.

        Raises:
            StoreError: the store is missing, or cannot be opened.
        """
        if isinstance(self._store, Store):
            yield self._store
            return
        try:
            store = self._store.look()
        except StoreError as error:
            verb = "run" if self.spec.search is None else "resume"
            question = "has the design been run?"
            if any(setting.runs for setting in self.journal.settings):
                question = "the search has executed runs, and their results are gone; to make them again:"
            hint = self._not_collected(()) or f"{question} arsenai {verb} {self.folder.path}"
            raise StoreError(f"{error} ({hint})") from error
        with store:
            yield store

    @cached_property
    def journal(self) -> SearchJournal:
        """The journal of the design's search; empty without a search."""
        return SearchJournal() if self.spec.search is None else read_journal(self.folder.path)

    @cached_property
    def outcome_specs(self) -> tuple[OutcomeSpec, ...]:
        """The outcomes of the design, or the objectives of the last phase if it names none.

        Raises:
            StoreError: the design names none, and no run has finished.
        """
        if self.spec.outcomes:
            return self.spec.outcomes
        if not self._finished:
            raise StoreError(f"no run of the design {self.spec.uid!r} has finished yet")
        with self.open_store() as store:
            return default_outcomes(store, self._finished)

    def runs(self) -> pd.DataFrame:
        """Return one row per row and repetition of the design, in order; of a search, those executed in full.

        The newest finished instance of a run counts.

        Returns:
            The columns ``row``, ``repetition``, ``uid``, ``run`` (uid of the run that was executed for it),
            ``status`` (``finished``, ``failed``, or ``missing`` if it is running or has not started), ``instance``
            (its uid in the store, ``None`` if missing), ``duration`` (seconds) and ``error`` (of a failed run).

        Raises:
            StoreError: the store is missing, or cannot be opened.
        """
        return self._runs

    @cached_property
    def not_collected(self) -> str | None:
        """Advice for runs that have finished on a cluster but are not in the store yet, or None."""
        runs = self._runs
        return self._not_collected(set(runs.loc[runs["status"] == "finished", "run"]))

    def outcomes(self) -> pd.DataFrame:
        """Return one row per row and repetition of the design, with a column per outcome.

        Returns:
            The columns ``row``, ``repetition``, ``uid``, ``run``, ``status`` and ``instance`` of :meth:`runs`, and the
            outcomes, NaN for unfinished runs.

        Raises:
            StoreError: the store is missing, or an outcome names data that no run has.
        """
        return self._outcomes

    def by_row(self) -> pd.DataFrame:
        """Return one row per row of the design, with the mean of each outcome over its repetitions.

        The mean leaves out repetitions with an outcome that is not finite; it is NaN if none is finite. Sensitivity
        indices use other means, which stay comparable under common seeds: see :mod:`.lost_runs`.

        Returns:
            The columns ``row``, ``count`` (finished repetitions), and one per outcome.

        Raises:
            StoreError: the store is missing, or an outcome names data that no run has.
        """
        frame = self.outcomes()
        names = [outcome.name for outcome in self.outcome_specs]
        values = frame[names].where(frame[names].abs() < float("inf"))
        result = values.groupby(frame["row"], sort=True).mean()
        result.insert(0, "count", (frame["status"] == "finished").groupby(frame["row"]).sum())
        return result.reset_index()

    def moments(self) -> dict[str, dict[str, float]]:
        """Return the moments of each outcome over its runs with a finite value, see :class:`.moments.Moments`."""
        frame = self.outcomes()
        names = [outcome.name for outcome in self.outcome_specs]
        return {name: asdict(Moments.of(frame[name].to_numpy(float))) for name in names}

    def _repr_html_(self) -> str:
        """Render a summary for notebooks: the number of runs in each state, and the mean of each outcome."""
        import pandas as pd

        html = f"<p><b>{escape(self.spec.uid)}</b></p>"
        try:
            runs = self.runs()
            html += runs["status"].value_counts(sort=False).to_frame("runs").to_html()
            if (runs["status"] == "finished").any():
                outcomes = pd.DataFrame(self.moments()).T[["mean", "min", "max"]]
                html += "<p>Outcomes of the runs</p>"
                html += outcomes.to_html(float_format="{:.5g}".format)
        except StoreError as error:
            # The design has not been run, or has recorded nothing that could be an outcome.
            html += f"<p>{escape(str(error))}</p>"
        return html

    def view(self, height: int = HEIGHT) -> Page:
        """Return the page of the design, which a notebook shows: states, outcomes, indices and comparisons.

        Args:
            height: of the page in the notebook, in pixels.

        Returns:
            The page.

        Raises:
            StoreError: the store of the results cannot be opened.
        """
        from palaestrai_mosaik import view

        return view(self, height=height)

    def table(self) -> pd.DataFrame:
        """Return one row per run, with all factors and all outcomes.

        The table does not depend on when or where the runs were executed.

        Returns:
            The columns ``row``, ``repetition``, ``uid``, ``run``, ``status``, the factors (``None`` if inactive), and
            the outcomes.

        Raises:
            StoreError: the store is missing, or an outcome names data that no run has.
        """
        import pandas as pd

        frame = self.outcomes()
        values = self.folder.values()
        first = frame[[name for name in _OUTCOME_COLUMNS if name != "instance"]]
        factors = {
            factor.name: pd.Series(
                [_shown(values[row][factor.name]) for row in frame["row"]], index=frame.index, dtype=object
            )
            for factor in self.spec.factors
        }
        outcomes = frame[[outcome.name for outcome in self.outcome_specs]]
        return pd.concat([first, pd.DataFrame(factors, index=frame.index), outcomes], axis=1)

    def _not_collected(self, finished: Collection[str]) -> str | None:
        stores = self.folder.path / STORES
        if not stores.is_dir():
            return None
        unfinished = (run for run in self.folder.documents if run.uid not in finished)
        left = sum(has_finished(stores / Path(run.file).name.removesuffix(".yml")) for run in unfinished)
        if not left:
            return None
        subject = "1 run has finished and is" if left == 1 else f"{left:,} runs have finished and are"
        return f"{subject} not collected: arsenai collect {self.folder.path}"

    @cached_property
    def _runs(self) -> pd.DataFrame:
        import pandas as pd

        planned = self.folder.runs
        # Read the journal before the store: a run reaches the store first.
        settings = self.journal.settings
        with self.open_store() as store:
            instances = store.newest_runs([run.hash for run in planned], self.folder.contents)
        columns = (instances[name] for name in ("hash", "run", "status", "duration", "error"))
        newest = {hashed: values for hashed, *values in zip(*columns, strict=True)}
        is_search = self.spec.search is not None
        # The row of a retry replaces that of the failed setting.
        replaced = {failed for failed, by in retries_of(settings).items() if by is not None}
        failures = failure_reasons(settings)
        complete = {setting.number for setting in settings if setting.state == "complete"}
        rows = []
        for run in planned:
            state, *result = _state(newest.get(run.hash), failures.get(run.row))
            # A search stops runs early on purpose, so these are not lost.
            stopped = state == "missing" and is_search and run.row not in complete
            if run.row not in replaced and not stopped:
                rows.append((run.row, run.repetition, run.uid, run.run, state, *result))
        frame = pd.DataFrame.from_records(rows, columns=_RUN_COLUMNS)
        return frame.astype({"instance": object, "duration": float, "error": object})

    @property
    def _finished(self) -> list[str]:
        runs = self._runs
        return list(dict.fromkeys(runs.loc[runs["status"] == "finished", "instance"]))

    @cached_property
    def _outcomes(self) -> pd.DataFrame:
        frame = self._runs[_OUTCOME_COLUMNS].copy()
        finished = frame["instance"].where(frame["status"] == "finished")
        runs, specs = self._finished, self.outcome_specs
        counted = PartsProgress(self._progress, len(runs) * len(specs))
        with self.open_store() as store:
            for outcome in specs:
                cached = self._cached.setdefault(outcome, {})
                cached |= _take_missing(store, runs, outcome, cached, counted)
                counted.end(len(runs))
                frame[outcome.name] = finished.map(cached).astype(float)
        return frame


def _state(newest: Sequence[Any] | None, failure: str | None) -> tuple[str, Any, Any, Any]:
    """Return the status, instance, duration and error of a run.

    Args:
        newest: instance, status, duration and error of its newest instance; ``None``: it was never recorded.
        failure: the reason if its setting could not be built, and hence was never recorded.
    """
    if newest is None:
        return ("missing", None, None, None) if failure is None else ("failed", None, None, failure)
    instance, status, duration, error = newest
    state = _STATUS.get(status, "failed")
    return (state, None, None, None) if state == "missing" else (state, instance, duration, error)


def _take_missing(
    store: Store,
    runs: Sequence[str],
    outcome: OutcomeSpec,
    cached: Mapping[str, float],
    counted: PartsProgress,
) -> dict[str, float]:
    """Return the outcome of each of the ``runs`` that is not ``cached``, NaN if it has none."""
    missing = [run for run in runs if run not in cached]
    try:
        values = take(store, missing, outcome, counted)
    except StoreError:
        if len(missing) == len(runs):
            raise
        # Only an outcome that no run has is an error.
        values = take(store, runs, outcome, counted)
    return {run: values.get(run, float("nan")) for run in missing}


def or_reason(analyse: Callable[[], Sequence[T]]) -> tuple[list[T], str]:
    """Return the results of an analysis and an empty reason, or none and the reason why it cannot be computed.

    Raises:
        PalaestraiMosaikError: a subclass, which reports another fault.
    """
    try:
        return list(analyse()), ""
    except PalaestraiMosaikError as error:
        if type(error) is not PalaestraiMosaikError:
            raise
        return [], str(error)


def level_labels(factors: Sequence[Factor]) -> tuple[str, ...]:
    """Return the labels of the levels of an axis, whose factors are zipped."""
    levels = zip(*(factor.labels for factor in factors), strict=True)
    return tuple(" + ".join(dict.fromkeys(names)) for names in levels)


def labels(factors: Sequence[Factor], values: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """Return the label of the zipped ``factors`` of an axis in each row, as tables show it.

    Zipped levels are labelled by all of them, even if some are inactive.

    Args:
        factors: the factors of the axis.
        values: the values of each row, from ``DesignFolder.values()``.

    Returns:
        A label for each row; ``None`` if all factors are inactive in it.
    """
    names = [_names(factor) for factor in factors]
    texts: list[str | None] = []
    for row in values:
        active = [i for i, factor in enumerate(factors) if row[factor.name] is not INACTIVE]
        if not active:
            texts.append(None)
        elif names[active[0]]:
            index = names[active[0]].index(repr(row[factors[active[0]].name]))
            texts.append(" + ".join(dict.fromkeys(f.labels[index] for f in factors if f.labels)))
        else:
            texts.append(" + ".join(str(row[factors[i].name]) for i in active))
    return texts


def _names(factor: Factor) -> list[str]:
    """Return the texts by which the levels of a factor are distinguished: 1 and True are two levels."""
    return [repr(level) for level in (factor.labels if factor.choice is not None else factor.levels)]


def _shown(value: Any) -> Any:
    return None if value is INACTIVE else value
