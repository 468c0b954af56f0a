"""Results of a generated design: every run joined to its row, with its outcomes as numbers.

Runs are looked up in the store by the hash of their documents, or of what these compute. It therefore makes no
difference how, where, in which order and under which name they were executed. Rows are in the order of the design.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.design.folder import RESULTS, STORES, DesignFolder
from palaestrai_mosaik.design.model import INACTIVE, DesignSpec, Factor, OutcomeSpec
from palaestrai_mosaik.design.search_journal import SearchJournal, read_journal
from palaestrai_mosaik.design.settings_table import failure_reasons, retries_of
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.pages import HEIGHT, Page
from palaestrai_mosaik.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.location import StoreLocation
from palaestrai_mosaik.store.merge import has_finished

from .outcomes import default_outcomes, take

if TYPE_CHECKING:
    import pandas as pd

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
        self._given = store
        self._store = (
            store if isinstance(store, Store) else StoreLocation.of(self.folder.path / RESULTS, store)
        )
        self._progress = progress
        #: outcomes read so far, by the uid of the instance; those of finished runs never change
        self._known: dict[OutcomeSpec, dict[str, float]] = {}

    def refreshed(self, folder: DesignFolder | None = None) -> Results:
        """Return results that see the store's current content. Outcomes read before are not read again.

        Args:
            folder: the current folder, if rows were added to it; ``None``: the same.
        """
        fresh = Results(folder or self.folder, self._given, self._progress)
        fresh._known = self._known
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
        """Open the store. Raises :class:`~palaestrai_mosaik.errors.StoreError` if it is missing."""
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
        """The outcomes of the design, or the objectives of the last phase if it names none."""
        if self.spec.outcomes:
            return self.spec.outcomes
        if not self._finished:
            raise StoreError(f"no run of the design {self.spec.uid!r} has finished yet")
        with self.open_store() as store:
            return default_outcomes(store, self._finished)

    def runs(self) -> pd.DataFrame:
        """Return one row per row and repetition of the design, in order; of a search, those executed in full.

        Columns: ``row``, ``repetition``, ``uid``, ``run`` (uid of the run that was executed for it),
        ``status`` (``finished``, ``failed``, or ``missing`` if it is running or has not started),
        ``instance`` (its uid in the store, ``None`` if missing), ``duration`` (seconds),
        ``error`` (of a failed run). The newest finished instance counts.
        """
        return self._runs

    @cached_property
    def not_collected(self) -> str | None:
        """Advice for runs that have finished on a cluster but are not in the store yet, or None."""
        runs = self._runs
        return self._not_collected(set(runs.loc[runs["status"] == "finished", "run"]))

    def outcomes(self) -> pd.DataFrame:
        """Return one row per row and repetition of the design, with a column per outcome.

        The columns before these are ``row``, ``repetition``, ``uid``, ``run``, ``status`` and ``instance`` of
        :meth:`runs`. Outcomes of unfinished runs are NaN.

        Raises:
            StoreError: an outcome names data that no run has.
        """
        return self._outcomes

    def by_row(self) -> pd.DataFrame:
        """Return one row per row of the design, with the mean of each outcome over its repetitions.

        Columns: ``row``, ``count`` (finished repetitions), one per outcome. The mean leaves out repetitions
        with an outcome that is not finite; it is NaN if none is finite. Sensitivity indices use other means,
        which stay comparable under common seeds: see :mod:`.missing_runs`.
        """
        frame = self.outcomes()
        names = [outcome.name for outcome in self.outcome_specs]
        values = frame[names].where(frame[names].abs() < float("inf"))
        result = values.groupby(frame["row"], sort=True).mean()
        result.insert(0, "count", (frame["status"] == "finished").groupby(frame["row"]).sum())
        return result.reset_index()

    def _repr_html_(self) -> str:
        """Render a summary for notebooks: the number of runs in each state, and the mean of each outcome."""
        html = f"<p><b>{escape(self.spec.uid)}</b></p>"
        try:
            runs = self.runs()
            html += runs["status"].value_counts(sort=False).to_frame("runs").to_html()
            if (runs["status"] == "finished").any():
                names = [outcome.name for outcome in self.outcome_specs]
                outcomes = self.by_row()[names].agg(["mean", "min", "max"]).T
                html += "<p>Outcomes over the rows of the design</p>"
                html += outcomes.to_html(float_format="{:.5g}".format)
        except StoreError as error:
            # The design has not been run, or has recorded nothing that could be an outcome.
            html += f"<p>{escape(str(error))}</p>"
        return html

    def view(self, height: int = HEIGHT) -> Page:
        """Return the page of the design, which a notebook shows: states, outcomes, indices and comparisons.

        Args:
            height: of the page in the notebook, in pixels.

        Raises:
            StoreError: the store of the results cannot be opened.
        """
        from palaestrai_mosaik import view

        return view(self, height=height)

    def table(self) -> pd.DataFrame:
        """Return one row per run, with all factors and all outcomes.

        Columns: ``row``, ``repetition``, ``uid``, ``run``, ``status``, the factors (``None`` if
        inactive), the outcomes. The table does not depend on when or where the runs were executed.
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
        # Read before the store, in which a run is before it is in the journal.
        settings = self.journal.settings
        with self.open_store() as store:
            instances = store.newest_runs([run.hash for run in planned], self.folder.contents)
        columns = (instances[name] for name in ("hash", "run", "status", "duration", "error"))
        newest = {hashed: values for hashed, *values in zip(*columns, strict=True)}
        rows = []
        # The row of a retry replaces that of the failed setting.
        replaced = {failed for failed, by in retries_of(settings).items() if by is not None}
        failures = failure_reasons(settings)
        complete = {setting.number for setting in settings if setting.state == "complete"}
        for run in planned:
            if run.row in replaced:
                continue
            instance, status, duration, error = newest.get(run.hash, (None, "running", None, None))
            state = _STATUS.get(status, "failed")
            if instance is None and run.row in failures:
                # Settings that could not be built were never recorded.
                state, error = "failed", failures[run.row]
            missing = state == "missing"
            if missing and self.spec.search is not None and run.row not in complete:
                # A search stops runs early on purpose, so these are not lost.
                continue
            rows.append(
                (
                    *(run.row, run.repetition, run.uid, run.run, state),
                    *((None, None, None) if missing else (instance, duration, error)),
                )
            )
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
                cached = self._known.setdefault(outcome, {})
                cached |= _take_missing(store, runs, outcome, cached, counted)
                counted.end(len(runs))
                frame[outcome.name] = finished.map(cached).astype(float)
        return frame


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
