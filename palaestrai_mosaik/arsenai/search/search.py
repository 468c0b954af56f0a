"""The loop of a search: it proposes settings, executes their runs, and reports the results to the sampler.

A :class:`Search` is an iterator of jobs for an executor: whenever a run can start, it yields the next one, which is the
next seed of a setting, or the first of a new one. Each record goes back to it. The journal is written at each of these
events, so any process may be killed at any time, and another one continues: it takes over proposed settings without a
result, with the runs that have ended.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from palaestrai_mosaik.arsenai.design.folder import PlannedRun
from palaestrai_mosaik.arsenai.design.growing import GrowingFolder, Setting
from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.arsenai.design.search import sought
from palaestrai_mosaik.arsenai.design.settings import (
    FOLDER,
    JOURNAL,
    REASON,
    RUNS,
    SETTING,
    STOPPED,
    EndedRun,
    SettingRecord,
    Trial,
    read_journal,
    record_of,
    write_settings,
)
from palaestrai_mosaik.arsenai.execution import Executor, Settings
from palaestrai_mosaik.arsenai.execution.early_stopping import Reporting, asks_to_stop
from palaestrai_mosaik.arsenai.execution.job import Evidence, Job, JobRecord, now, with_suffix
from palaestrai_mosaik.arsenai.execution.journal import Journal, open_journal, optuna, quiet
from palaestrai_mosaik.arsenai.execution.status import RECORDED, job_path
from palaestrai_mosaik.core.errors import ExecutionError, StoreError

from .budget import hopeless, runs_left, search_over, spent
from .claims import PROPOSING, TABLES, Claim, Claims, worker_name
from .ranking import direction
from .samplers import Proposals, make_sampler
from .settings import TAKEN_OVER, Trials, Working, mark, runs_of, setting_of
from .stores import RunStores, Worker

logger = logging.getLogger(__name__)

#: seconds between writes of the tables
_WRITE_EVERY = 1.0
#: seconds for which a process waits for its turn to propose before it looks for other work; and for its turn to write
#: the tables, or to mark failed settings
_TURN, _LONG_TURN = 1.0, 30.0
#: maximum number of attempts of a run if its processes are killed from outside
_ATTEMPTS = 3


def open_search(spec: DesignSpec, folder: Path) -> Journal:
    """Open the journal of the search ``spec`` in its folder. Raises :class:`ExecutionError`."""
    return open_journal(folder, spec.uid, tuple(direction(outcome) for outcome in sought(spec)))


def check_journal(spec: DesignSpec, folder: Path) -> None:
    """Check the settings in the journal of the search ``spec``, whose attributes Optuna does not check.

    Raises:
        ExecutionError: the journal is damaged, or has a setting that the design cannot have.
    """
    for trial in read_journal(folder).trials:
        if not _fits(spec, trial):
            raise ExecutionError(
                f"setting {trial.number} in {folder / FOLDER / JOURNAL} does not fit the design; put back a copy of the "
                "file, or delete the lines of this setting and all that follow"
            )


def _fits(spec: DesignSpec, trial: Trial) -> bool:
    """Whether the design can have the point of a setting, and the outcomes of its runs."""
    setting, runs = trial.user_attrs.get(SETTING), trial.user_attrs.get(RUNS, ())
    if setting is None:
        return not runs
    outcomes = {outcome.name for outcome in sought(spec)}
    has_outcomes = all(not run["outcomes"] or run["outcomes"].keys() == outcomes for run in runs)
    has_point = len(setting["unit"]) == len(spec.axes) and setting["first"] <= trial.number
    return has_point and has_outcomes and len(runs) <= spec.repetitions


class Search:
    """The search ``spec`` in the folder ``growing``, as an iterator of jobs for one process.

    The iteration stops if nothing can start now. It can be resumed after the next record.
    """

    def __init__(self, spec: DesignSpec, growing: GrowingFolder, settings: Settings, worker: Worker):
        assert spec.search is not None
        self.spec, self._search = spec, spec.search
        self._growing, self._settings, self._worker = growing, settings, worker
        #: the folder of the design
        self.path = growing.path
        #: whether nothing more begins after a failure
        self.fail_fast = settings.fail_fast
        #: the files of run documents that this process has written again, because they were missing or edited
        self.restored = growing.restored
        #: the objectives
        self.outcomes = sought(spec)
        self.journal = open_search(spec, self.path)
        self._name = worker_name(worker.task)
        self._claims = Claims(self.path, spec.hash, worker.task)
        self._proposals = Proposals(spec, self.journal, growing, self._name)
        self._working: dict[int, Working] = {}
        self._ready: deque[Working] = deque()
        #: the stores of the runs
        self.stores = RunStores(self.path, worker)
        self._phase: int | None = None
        self._attempts: dict[str, int] = {}
        self._written = -float("inf")
        self._failed_before = self._count_failed()
        #: number of the latest settings in a row that repeat earlier ones
        self._repeated = 0
        #: the jobs of runs started by this process
        self.started: list[Job] = []
        #: records of runs that failed
        self.failures: list[JobRecord] = []
        #: the reason why no more settings begin
        self.ended_by: str | None = None
        #: whether the rest of the budget is reserved for settings in progress, as of the last proposal or settlement
        self.reserved = False
        #: whether the search was asked to stop
        self.cancelled = False
        #: whether more may begin after another process has proposed
        self.waiting = False

    # the interface of executors

    def __iter__(self) -> Iterator[Job]:
        return self

    def __next__(self) -> Job:
        self.waiting = False
        while not self.cancelled:
            if self._ready:
                job = self._job(self._ready.popleft())
                if job is not None:
                    return job
                continue
            if not self._begin_one():
                break
        raise StopIteration

    def ended(self, record: JobRecord) -> SettingRecord | None:
        """Process the end of a run; return its setting if this settles it."""
        working = self._working_on(record.run)
        assert working is not None
        settled = self._take_in(working, record)
        self.write()
        return record_of(self.journal.trial(working.number)) if settled else None

    def leave(self, run: str) -> None:
        """Release the setting of ``run``, which another process executes."""
        working = self._working_on(run)
        if working is not None:
            self._give_back(working)

    def _working_on(self, run: str) -> Working | None:
        """Return the setting in progress that has a run."""
        return next(
            (item for item in self._working.values() if run in {planned.uid for planned in item.runs}), None
        )

    def settle(self) -> None:
        """Process the ends of runs in settings without a worker, without starting anything."""
        for trial in self.journal.trials():
            setting = setting_of(trial)
            if trial.state.is_finished() or setting is None or setting.first != setting.number:
                continue
            claim = self._claims.setting(trial.number)
            if claim is None:
                continue
            try:
                if not self.journal.trial(trial.number).state.is_finished():
                    self._begin(setting, claim)
                    while trial.number in self._working and self._ready:
                        self._ready.pop()
                        if self._job(self._working[trial.number]) is not None:
                            break
            finally:
                self._working.pop(trial.number, None)
                self._ready.clear()
                claim.release()

    def retry_failed(self) -> int:
        """Mark the settings that have failed by themselves for another execution.

        Runs that have ended are processed first.

        Returns:
            The number of marked settings.

        Raises:
            ExecutionError: other processes are proposing all the time.
        """
        self.settle()
        # No other process may propose while settings are marked.
        turn = self._claims.turn(PROPOSING, _LONG_TURN)
        if turn is None:
            raise ExecutionError(
                f"other processes have been proposing settings for {_LONG_TURN:g} seconds: try again later"
            )
        with turn:
            failed = Trials.of(self.journal).failed
            mark(self.journal, failed)
        # Earlier failures no longer count.
        self.failures.clear()
        self._failed_before = self._count_failed()
        self.write(now=True)
        return len(failed)

    def close(self) -> None:
        """Release the unsettled settings, and write the tables."""
        for working in self._working.values():
            working.claim.release()
        self._working.clear()
        self.write(now=True)
        self.stores.close()

    def over(self) -> str | None:
        """Return the reason why the search is over, or None if there are settings to execute or to propose."""
        return search_over(self._search, Trials.of(self.journal))

    def runs_of(self, number: int) -> list[PlannedRun]:
        """Return the runs of a proposed setting."""
        setting = setting_of(self.journal.trial(number))
        return [] if setting is None else self._growing.planned(setting)

    def write_documents(self, number: int) -> Setting:
        """Write the documents of a proposed setting where they are missing, and return the setting."""
        setting = setting_of(self.journal.trial(number))
        assert setting is not None
        self._growing.write_documents(setting)
        return setting

    def records(self) -> list[SettingRecord]:
        """Return the current records of all settings, in order."""
        return Trials.of(self.journal).records()

    def write(self, *, now: bool = False) -> None:
        """Write the tables of the folder, unless they were just written, or another process is writing them."""
        clock = time.monotonic()
        if not self._worker.writes or (not now and clock - self._written < _WRITE_EVERY):
            return
        # Each process writes the current journal, so the tables never go back.
        turn = self._claims.turn(TABLES, _LONG_TURN if now else 0.0)
        if turn is None:
            return
        with turn:
            trials = Trials.of(self.journal)
            for trial in trials.all[self._growing.rows :]:
                setting = setting_of(trial)
                if setting is None:
                    break
                self._growing.add(setting)
            self._growing.write()
            write_settings(self.path, trials.records(), [outcome.name for outcome in self.outcomes])
        self._written = time.monotonic()

    def _count_failed(self) -> int:
        return sum(trial.state.name == "FAIL" for trial in self.journal.trials())

    # settings

    def _begin_one(self) -> bool:
        """Take over a setting without a worker, or propose one; return False if neither is possible now."""
        if self._worker.most is not None and len(self.started) >= self._worker.most:
            return False
        number = self._claims.without_worker(self._unsettled())
        if number is not None:
            return self._take_over(number)
        if self.ended_by is None and not self.reserved:
            # Only one process at a time checks the budget and proposes.
            turn = self._claims.turn(PROPOSING, _TURN)
            if turn is None:
                self.waiting = True
                return False
            with turn:
                if self._may_propose():
                    self._begin_new()
                    return True
        # Other workers may have died since the last look. This process must not end before it has checked.
        number = None if self._working else self._claims.without_worker(self._unsettled(), last=True)
        return number is not None and self._take_over(number)

    def _begin_new(self) -> None:
        id_ = self.journal.storage.create_new_trial(self.journal.study._study_id)
        number = int(self.journal.storage.get_trial_number_from_id(id_))
        claim = self._claims.setting(number)
        # Without a claim, another process that looks for settings of dead workers was faster.
        if claim is not None:
            self._begin_claimed(number, claim)

    def _take_over(self, number: int) -> bool:
        """Continue an unsettled setting; return False if another process must propose first."""
        claim = self._claims.setting(number)
        if claim is None:
            return True
        trial = self.journal.trial(number)
        if trial.state.is_finished():
            claim.release()
            return True
        setting = setting_of(trial)
        if setting is not None:
            runs = self._growing.planned(setting)
            markers = [with_suffix(job_path(self.path, run), ".running") for run in runs]
            if self._claims.are_executed(markers, wait=not self._working):
                self._claims.avoid(number)
                claim.release()
                return True
        turn = None if setting is not None else self._claims.turn(PROPOSING, _TURN)
        if setting is None and turn is None:
            self.waiting = True
            claim.release()
            return False
        with turn or nullcontext():
            self._note_taken_over(trial)
            self._begin_claimed(number, claim)
        return True

    def _begin_claimed(self, number: int, claim: Claim) -> None:
        """Begin a setting that this process has claimed; propose it first if necessary."""
        try:
            self._begin(setting_of(self.journal.trial(number)) or self._proposals.propose(number), claim)
        except BaseException:
            claim.release()
            raise

    def _unsettled(self) -> Iterator[int]:
        """Yield the numbers of the settings that are not settled, except those of this process."""
        for trial in self.journal.trials():
            if not trial.state.is_finished() and trial.number not in self._working:
                yield int(trial.number)

    def _note_taken_over(self, trial: Any) -> None:
        id_ = self.journal.trial_id(trial.number)
        before = trial.user_attrs.get(TAKEN_OVER, [])
        self.journal.storage.set_trial_user_attr(
            id_, TAKEN_OVER, [*before, {"worker": self._name, "at": now()}]
        )

    def _begin(self, setting: Setting, claim: Claim) -> None:
        if setting.first != setting.number:
            self._repeated += 1
            self._tell_repeated(setting)
            claim.release()
            return
        self._repeated = 0
        writes = self._worker.writes
        runs = self._growing.write_documents(setting) if writes else self._growing.planned(setting)
        working = Working(setting, runs, claim, runs_of(self.journal.trial(setting.number)))
        self._working[setting.number] = working
        if not self._settle_if_over(working):
            self._ready.append(working)

    def _tell_repeated(self, setting: Setting) -> None:
        """Report the result of the earlier setting for one that repeats it; nothing is executed."""
        first = self.journal.trial(setting.first)
        if first.state.name == "COMPLETE":
            self._tell(setting.number, "COMPLETE", list(first.values))
            return
        id_ = self.journal.trial_id(setting.number)
        if first.state.name == "PRUNED":
            for step, value in first.intermediate_values.items():
                self.journal.storage.set_trial_intermediate_value(id_, step, value)
            self._tell(setting.number, "PRUNED", why=f"setting {setting.first} is the same, and was pruned")
        else:
            is_ = "failed" if first.state.is_finished() else "is being executed"
            self._tell(setting.number, "FAIL", why=f"setting {setting.first} is the same, and {is_}")

    def _may_propose(self) -> bool:
        """Whether the budget allows another setting; otherwise, note the reason."""
        trials = Trials.of(self.journal)
        self.ended_by = (
            spent(self._search, trials, reserve=False)
            or hopeless(trials, self._repeated)
            or ("a run failed" if self._has_failed_fast() else None)
        )
        # Runs of settings in progress may turn out to be unnecessary, so another one may begin once these are settled.
        left = runs_left(self._search, trials)
        self.reserved = self.ended_by is None and left is not None and left < self._search.seeds
        return self.ended_by is None and not self.reserved

    def _has_failed_fast(self) -> bool:
        return self.fail_fast and (bool(self.failures) or self._count_failed() > self._failed_before)

    # runs

    def _job(self, working: Working) -> Job | None:
        """Return the job of the next run of a setting, or None if it has ended already and was processed."""
        run = working.runs[len(working.ended)]
        record = self.stores.final_record(run)
        if record is None:
            return self.start(run, self.reporting(working.setting, working.ended))
        instance = record.instance if record.status in RECORDED else None
        if instance is not None and self.stores.location(run, instance) is None:
            logger.warning(
                "run %s has ended, and its own store is gone: the next submission takes it in", run.uid
            )
            self._give_back(working)
        else:
            self._take_in(working, record)
        return None

    def start(self, run: PlannedRun, reporting: Reporting | None) -> Job:
        """Return the job of the next attempt at a run, which begins now.

        Args:
            run: the run.
            reporting: what the run reports while it goes on; ``None``: nothing.
        """
        path = job_path(self.path, run)
        own_store = self.stores.records_alone(run)
        location = self.stores.own(run) if own_store else self._worker.store
        assert location is not None
        job = Job(
            run.uid,
            run.hash,
            self.path / run.file,
            path,
            location,
            Evidence.of(path, run.hash).attempts + 1,
            # With its own store, the process of the run checks for checkpoints there.
            resume=None if own_store else self.stores.resumable(run),
            checkpoint_every=self._settings.checkpoint_every,
            own_store=own_store,
            task=self._worker.task,
            allow_modules=self._settings.allow_modules,
            reporting=reporting,
        )
        self.started.append(job)
        return job

    def reporting(self, setting: Setting, ended: Sequence[EndedRun]) -> Reporting | None:
        """Return what the next run of a setting reports after those that have ``ended``."""
        if self._search.prune in ("none", "wilcoxon"):
            return None
        outcome = self.outcomes[0]
        return Reporting(
            self.path,
            self.spec.uid,
            direction(outcome),
            setting.number,
            outcome,
            self._phase_index(setting),
            self._search.prune,
            tuple(run.outcomes[outcome.name] for run in ended),
            ended[-1].reports if ended else 0,
        )

    def _phase_index(self, setting: Setting) -> int:
        if self._phase is None:
            values = self._growing.values(setting.unit)
            schedule = self._growing.expansion.mapping(values, "", 0)["schedule"]
            names = [name for phase in schedule for name in phase]
            phase = self.outcomes[0].phase
            self._phase = (
                names.index(phase) if isinstance(phase, str) else len(names) - 1 if phase is None else phase
            )
        return self._phase

    def _take_in(self, working: Working, record: JobRecord) -> bool:
        """Record the end of a run; return whether this settles its setting."""
        if record.status == "interrupted":
            self.cancelled = True
            return False
        if record.status == "failed" and self.restarts(record):
            self._ready.append(working)
            return False
        outcomes, fault = self._outcomes_of(working, record)
        self._note(working, record, outcomes)
        if fault is not None:
            self._settle(working, "FAIL", why=fault)
        elif not self._settle_if_over(working):
            self._ready.append(working)
            return False
        return True

    def restarts(self, record: JobRecord) -> bool:
        """Count an attempt of a failed run; return whether the run restarts, as its process was killed from outside."""
        if record.exit_code >= 0 or "time limit" in (record.error or ""):
            return False
        self._attempts[record.run] = self._attempts.get(record.run, 1) + 1
        if self._attempts[record.run] > _ATTEMPTS:
            return False
        logger.warning("run %s: %s; restarting it", record.run, record.error)
        return True

    def _outcomes_of(self, working: Working, record: JobRecord) -> tuple[dict[str, float], str | None]:
        """Return the objectives of a run that has ended (none if it was pruned), and its fault or None."""
        if record.status == "failed" or record.instance is None:
            self.failures.append(record)
            return {}, f"run {record.run}: {record.error or 'recorded nothing'}"
        if record.status == "pruned":
            return {}, None
        run = working.runs[len(working.ended)]
        try:
            outcomes = self.stores.outcomes(run, record.instance, self.outcomes)
        except StoreError as error:
            return {}, str(error)
        strange = [name for name, value in outcomes.items() if not math.isfinite(value)]
        return outcomes, f"run {record.run} has no finite {strange[0]}" if strange else None

    def _note(self, working: Working, record: JobRecord, outcomes: dict[str, float]) -> None:
        """Write the end of a run into the journal."""
        run = working.runs[len(working.ended)]
        steps = 0
        if record.instance is not None:
            with self.stores.of_instance(run, record.instance) as store:
                steps = store.steps_across([record.instance])[record.instance]
        id_ = self.journal.trial_id(working.number)
        if self._search.prune == "wilcoxon" and all(map(math.isfinite, outcomes.values())) and outcomes:
            value = outcomes[self.outcomes[0].name]
            self.journal.storage.set_trial_intermediate_value(id_, len(working.ended), value)
        working.ended.append(
            EndedRun(
                record.run,
                record.instance or "",
                record.status,
                steps,
                record.started,
                record.ended,
                outcomes,
                len(self.journal.trial(working.number).intermediate_values),
            )
        )
        self.journal.storage.set_trial_user_attr(
            id_, RUNS, [asdict(ended_run) for ended_run in working.ended]
        )

    def _settle_if_over(self, working: Working) -> bool:
        """Settle a setting without runs left to execute; return whether it is settled."""
        ended = working.ended
        if ended and ended[-1].status == "pruned":
            self._settle(working, "PRUNED")
            return True
        if ended and not ended[-1].outcomes:
            self._settle(working, "FAIL", why=f"run {ended[-1].run} {ended[-1].status}")
            return True
        if len(ended) == len(working.runs):
            means = [sum(run.outcomes[o.name] for run in ended) / len(ended) for o in self.outcomes]
            self._settle(working, "COMPLETE", means)
            return True
        if ended and self._is_stopped(working):
            self._settle(working, "PRUNED")
            return True
        return False

    def _is_stopped(self, working: Working) -> bool:
        """Whether the pruner prevents the other seeds of a setting."""
        trial = self.journal.trial(working.number)
        if STOPPED in trial.user_attrs:
            # The last report of the last run was the reason.
            return True
        if self._search.prune != "wilcoxon" or not asks_to_stop(self.journal, working.number, "wilcoxon"):
            return False
        report = len(working.ended) - 1
        attribute = {"report": report, "value": trial.intermediate_values[report]}
        self.journal.storage.set_trial_user_attr(self.journal.trial_id(working.number), STOPPED, attribute)
        return True

    def _settle(self, working: Working, state: str, values: list[float] | None = None, why: str = "") -> None:
        self._tell(working.number, state, values, why)
        # Unused runs of its budget are available for another setting.
        self.reserved = False
        del self._working[working.number]
        working.claim.release()

    def _give_back(self, working: Working) -> None:
        """Release a setting that is not settled."""
        self._claims.avoid(working.number)
        self._working.pop(working.number, None)
        with suppress(ValueError):
            self._ready.remove(working)
        working.claim.release()

    def _tell(self, number: int, state: str, values: list[float] | None = None, why: str = "") -> None:
        if why:
            self.journal.storage.set_trial_user_attr(self.journal.trial_id(number), REASON, why)
        with quiet():
            study = optuna().load_study(
                study_name=self.journal.study.study_name,
                storage=self.journal.storage,
                sampler=make_sampler(self.spec, number),
            )
            study.tell(number, values, state=getattr(optuna().trial.TrialState, state))


def executed(search: Search, executor: Executor) -> Iterator[JobRecord]:
    """Yield the records of the runs that ``executor`` executes, until there is nothing more to begin here.

    The caller must return each record to the search (:meth:`Search.ended`) before it takes the next one.
    """
    left = 0

    def release() -> None:
        nonlocal left
        for run in executor.left_out[left:]:
            search.leave(run)
        left = len(executor.left_out)

    while True:
        for record in executor.run(search):
            yield record
            release()
            if search.cancelled:
                executor.cancel()
        release()
        if executor.cancelled or not search.waiting:
            return
