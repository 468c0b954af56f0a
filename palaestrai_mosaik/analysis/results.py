"""The results of a generated design: every run joined to its row, outcomes as numbers.

What a run gave is found in the store by the hash of its document, or by what that computes, so it makes no
difference how, where, in which order and under which name it was executed: rows are in the order of the design.
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
from palaestrai_mosaik.design.settings_table import read_settings, retries_of
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.pages import HEIGHT, Page
from palaestrai_mosaik.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.location import StoreLocation
from palaestrai_mosaik.store.merge import has_finished

from .outcomes import default_outcomes, take

if TYPE_CHECKING:
    import pandas as pd

# The store knows more; what has not ended is not there yet.
_STATUS = {"finished": "finished", "running": "missing", "pruned": "missing"}
_RUN_COLUMNS = ["row", "repetition", "uid", "run", "status", "instance", "duration", "error"]
_OUTCOME_COLUMNS = ["row", "repetition", "uid", "run", "status", "instance"]


class Results:
    """The results of a generated design.

    All frames are read once and kept; they must not be written to.

    Args:
        folder: the folder of the design, or its path.
        store: where the results are: a location or an open store; ``None``: ``results`` in the folder. The
            files of a database URL are in ``results`` too, where ``arsenai run`` puts them.
        progress: is called while outcomes are read, with the number of values read and of all (one for each run and
            outcome); ``None``: nothing is.

    Raises:
        DocumentError: the folder is none of a design.
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
        #: outcomes that were read, by the uid of the instance; what has finished does not change any more
        self._known: dict[OutcomeSpec, dict[str, float]] = {}

    def refreshed(self, folder: DesignFolder | None = None) -> Results:
        """Return the results as they are now. Outcomes that were read already are not read again.

        Args:
            folder: the folder as it is now, if rows were added to it; ``None``: the same.
        """
        fresh = Results(folder or self.folder, self._given, self._progress)
        fresh._known = self._known
        return fresh

    @property
    def spec(self) -> DesignSpec:
        """The design."""
        return self.folder.spec

    @property
    def store(self) -> Store | StoreLocation:
        """Where the results are: an open store, or the location of one, which may be missing."""
        return self._store

    @contextmanager
    def open_store(self) -> Iterator[Store]:
        """Open the store. Raises :class:`~palaestrai_mosaik.errors.StoreError` if there is none."""
        if isinstance(self._store, Store):
            yield self._store
            return
        try:
            store = self._store.look()
        except StoreError as error:
            verb = "run" if self.spec.search is None else "resume"
            hint = self._not_collected(()) or f"has the design been run? arsenai {verb} {self.folder.path}"
            raise StoreError(f"{error} ({hint})") from error
        with store:
            yield store

    @cached_property
    def outcome_specs(self) -> tuple[OutcomeSpec, ...]:
        """The outcomes of the design; where it names none, the objectives of the last phase."""
        if self.spec.outcomes:
            return self.spec.outcomes
        if not self._finished:
            raise StoreError(f"no run of the design {self.spec.uid!r} has finished yet")
        with self.open_store() as store:
            return default_outcomes(store, self._finished)

    def runs(self) -> pd.DataFrame:
        """Return one row per row and repetition of the design, in order; of a search, of what it has executed whole.

        Columns: ``row``, ``repetition``, ``uid``, ``run`` (uid of the run that was executed for
        it), ``status`` (``finished``, ``failed``, or ``missing``: not run yet, or still running),
        ``instance`` (its uid in the store, ``None`` where missing), ``duration`` (seconds),
        ``error`` (of a failed one). Of several instances the newest finished one counts.
        """
        return self._runs

    @cached_property
    def not_collected(self) -> str | None:
        """What to do about runs that have finished on a cluster, and are not in the store yet, if there are any."""
        runs = self._runs
        return self._not_collected(set(runs.loc[runs["status"] == "finished", "run"]))

    def outcomes(self) -> pd.DataFrame:
        """Return one row per row and repetition of the design, with a column per outcome.

        Before these: ``row``, ``repetition``, ``uid``, ``run``, ``status``, ``instance`` as
        :meth:`runs` has them. The outcomes of what has not finished are NaN. Raises
        :class:`~palaestrai_mosaik.errors.StoreError` where an outcome names what no run has.
        """
        return self._outcomes

    def by_row(self) -> pd.DataFrame:
        """Return one row per row of the design: repetitions reduced to their mean.

        Columns: ``row``, ``count`` (finished repetitions), one per outcome. A repetition whose
        outcome is not finite is left out of that mean; a row without any is NaN. (Sensitivity indices
        are computed from means that can be compared where seeds are common: see :mod:`.missing_runs`.)
        """
        frame = self.outcomes()
        names = [outcome.name for outcome in self.outcome_specs]
        values = frame[names].where(frame[names].abs() < float("inf"))
        result = values.groupby(frame["row"], sort=True).mean()
        result.insert(0, "count", (frame["status"] == "finished").groupby(frame["row"]).sum())
        return result.reset_index()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how many runs are in which state, and the mean of each outcome."""
        shown = f"<p><b>{escape(self.spec.uid)}</b></p>"
        try:
            runs = self.runs()
            shown += runs["status"].value_counts(sort=False).to_frame("runs").to_html()
            if (runs["status"] == "finished").any():
                names = [outcome.name for outcome in self.outcome_specs]
                outcomes = self.by_row()[names].agg(["mean", "min", "max"]).T
                shown += "<p>Outcomes over the rows of the design</p>"
                shown += outcomes.to_html(float_format="{:.5g}".format)
        except StoreError as error:
            # (it has not been run, or has nothing that could be an outcome)
            shown += f"<p>{escape(str(error))}</p>"
        return shown

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
        """Return what a design was made for: one row per run, with all factors and all outcomes.

        Columns: ``row``, ``repetition``, ``uid``, ``run``, ``status``, the factors (``None`` where
        inactive), the outcomes. Nothing in it depends on when or where the runs were executed.
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
        others = (run for run in self.folder.documents if run.uid not in finished)
        left = sum(has_finished(stores / Path(run.file).name.removesuffix(".yml")) for run in others)
        if not left:
            return None
        subject = "1 run has finished and is" if left == 1 else f"{left:,} runs have finished and are"
        return f"{subject} not collected: arsenai collect {self.folder.path}"

    @cached_property
    def _runs(self) -> pd.DataFrame:
        import pandas as pd

        planned = self.folder.runs
        with self.open_store() as store:
            found = store.newest_runs([run.hash for run in planned], self.folder.contents)
        columns = (found[name] for name in ("hash", "run", "status", "duration", "error"))
        newest = {hashed: values for hashed, *values in zip(*columns, strict=True)}
        rows = []
        replaced = set()
        if self.spec.search is not None:
            # (the row of the retry stands for the one that failed)
            again = retries_of(read_settings(self.folder.path))
            replaced = {failed for failed, by in again.items() if by is not None}
        for run in planned:
            if run.row in replaced:
                continue
            instance, status, duration, error = newest.get(run.hash, (None, "running", None, None))
            shown = _STATUS.get(status, "failed")
            missing = shown == "missing"
            if missing and self.spec.search is not None:
                # what a search has stopped early, or not started, is not lost
                continue
            rows.append(
                (
                    *(run.row, run.repetition, run.uid, run.run, shown),
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
                known = self._known.setdefault(outcome, {})
                known |= _take_missing(store, runs, outcome, known, counted)
                counted.end(len(runs))
                frame[outcome.name] = finished.map(known).astype(float)
        return frame


def _take_missing(
    store: Store,
    runs: Sequence[str],
    outcome: OutcomeSpec,
    known: Mapping[str, float],
    counted: PartsProgress,
) -> dict[str, float]:
    """Return the outcome of each of the ``runs`` that is not ``known``, NaN where it has none."""
    missing = [run for run in runs if run not in known]
    try:
        values = take(store, missing, outcome, counted)
    except StoreError:
        if len(missing) == len(runs):
            raise
        # an outcome that none of these runs has is an error only where no run has it
        values = take(store, runs, outcome, counted)
    return {run: values.get(run, float("nan")) for run in missing}


def labels(factors: Sequence[Factor], values: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """Return what the zipped ``factors`` of an axis are in each row of ``values``, as tables call it.

    ``values``: as of ``DesignFolder.values()``. ``None`` where all of them are inactive. Zipped
    levels are called by what all of them are, also where some are inactive.
    """
    names = [_names(factor) for factor in factors]
    found: list[str | None] = []
    for row in values:
        active = [i for i, factor in enumerate(factors) if row[factor.name] is not INACTIVE]
        if not active:
            found.append(None)
        elif names[active[0]]:
            place = names[active[0]].index(repr(row[factors[active[0]].name]))
            found.append(" + ".join(dict.fromkeys(f.labels[place] for f in factors if f.labels)))
        else:
            found.append(" + ".join(str(row[factors[i].name]) for i in active))
    return found


def _names(factor: Factor) -> list[str]:
    """Return what tells the levels of a factor apart: 1 and True are two."""
    return [repr(level) for level in (factor.labels if factor.choice is not None else factor.levels)]


def _shown(value: Any) -> Any:
    return None if value is INACTIVE else value
