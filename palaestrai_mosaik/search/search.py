"""The loop of a search: it proposes settings, executes their runs, and tells the sampler what they gave.

A :class:`Search` is what an executor takes its jobs from: whenever a run can be started, it gives the next one, which
is the next seed of a setting, or the first of a new one. Each record goes back to it. The journal is written at each
of these moments, so any process may be killed at any moment, and another one goes on: what has been proposed and not
told is taken over, with the runs that have ended.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from palaestrai_mosaik.analysis.outcomes import take
from palaestrai_mosaik.design.folder import PlannedRun
from palaestrai_mosaik.design.growing import GrowingFolder, Setting
from palaestrai_mosaik.design.model import DesignSpec
from palaestrai_mosaik.design.search import sought
from palaestrai_mosaik.design.settings_table import SettingRecord, write_settings
from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.execution import Settings
from palaestrai_mosaik.execution.cluster.submission import run_store_location
from palaestrai_mosaik.execution.early_stopping import STOPPED, Reporting, asks_to_stop
from palaestrai_mosaik.execution.job import Job, JobRecord, Marker, now, with_suffix
from palaestrai_mosaik.execution.journal import Journal, open_journal, optuna, quiet
from palaestrai_mosaik.execution.run_store import instances_of
from palaestrai_mosaik.execution.status import job_path, run_file_stem
from palaestrai_mosaik.runner.checkpoint import resumable
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.location import StoreLocation

from .ranking import direction
from .samplers import make_sampler
from .settings import (
    REASON,
    RUNS,
    SETTING,
    TAKEN_OVER,
    Claim,
    EndedRun,
    Working,
    is_number,
    record_of,
    runs_of,
    seconds_between,
    setting_of,
    spans_of,
    worker_name,
)
from .space import Space

logger = logging.getLogger(__name__)

#: seconds between two times that the tables are written, and that settings of dead workers are looked for
_WRITE_EVERY, _LOOK_EVERY = 1.0, 60.0
#: how often a run restarts after its process was killed from outside
_ATTEMPTS = 3
#: a search ends that proposes so many settings in a row that it has proposed before, or where so many fail and none does not
_MOST_REPEATED, _MOST_FAILED = 100, 10


def open_search(spec: DesignSpec, folder: Path) -> Journal:
    """Open the journal of the search ``spec`` in its folder. Raises :class:`ExecutionError`."""
    return open_journal(folder, spec.uid, tuple(direction(one) for one in sought(spec)))


@dataclass(frozen=True, slots=True)
class Worker:
    """Where the runs of this process record: in ``store``, or each in one of its own; ``task``: what a scheduler calls it."""

    store: StoreLocation
    own_store: bool = False
    task: str | None = None


class Search:
    """The search ``spec`` in the folder ``growing``, as one process works on it. Iterating gives jobs.

    That the iteration stops means that there is nothing to start now: after the next record there may be.
    """

    def __init__(self, spec: DesignSpec, growing: GrowingFolder, settings: Settings, worker: Worker):
        assert spec.search is not None
        self.spec, self._search = spec, spec.search
        self._growing, self._settings, self._worker = growing, settings, worker
        self._path = growing.path
        self._outcomes = sought(spec)
        self.journal = open_search(spec, self._path)
        self._space = Space(spec)
        self._name = worker_name(worker.task)
        self._working: dict[int, Working] = {}
        self._ready: deque[Working] = deque()
        self._store: Store | None = None
        self._phase: int | None = None
        self._attempts: dict[str, int] = {}
        self._begun = time.monotonic()
        self._written = self._looked = -float("inf")
        #: settings in a row that had been proposed before
        self._repeated = 0
        #: records of runs that failed
        self.failures: list[JobRecord] = []
        #: why no more settings are begun
        self.ended_by: str | None = None
        #: whether anybody wants the end
        self.cancelled = False

    # what executors see

    def __iter__(self) -> Iterator[Job]:
        return self

    def __next__(self) -> Job:
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
        """Take in how a run has ended; return the setting if that is settled now."""
        working = next(
            one for one in self._working.values() if any(run.uid == record.run for run in one.runs)
        )
        settled = self._take_in(working, record)
        self.write()
        return record_of(self.journal.trial(working.number)) if settled else None

    def close(self) -> None:
        """Give back the settings that are not settled, and write the tables."""
        for working in self._working.values():
            working.claim.release()
        self._working.clear()
        self.write(now=True)
        if self._store is not None:
            self._store.close()
            self._store = None

    def records(self) -> list[SettingRecord]:
        """Return all settings as they are now, in order."""
        return [record_of(trial) for trial in self.journal.trials()]

    def write(self, *, now: bool = False) -> None:
        """Write the tables of the folder, unless they were written a moment ago."""
        clock = time.monotonic()
        if not now and clock - self._written < _WRITE_EVERY:
            return
        trials = self.journal.trials()
        for trial in trials[self._growing.rows :]:
            setting = setting_of(trial)
            if setting is None:
                break
            self._growing.add(setting)
        self._growing.write()
        write_settings(self._path, [record_of(trial) for trial in trials])
        self._written = time.monotonic()

    # settings

    def _begin_one(self) -> bool:
        """Take over a setting that nobody works on, or propose one; false where there is none to begin."""
        number = self._taken_over()
        known = number is not None
        if number is None:
            if not self._may_propose():
                return False
            id_ = self.journal.storage.create_new_trial(self.journal.study._study_id)
            number = self.journal.storage.get_trial_number_from_id(id_)
        claim = Claim.take(self._path, self.spec.hash, number, self._worker.task)
        if claim is None:
            # another worker, that looks for settings of dead ones, was faster
            return True
        trial = self.journal.trial(number)
        if trial.state.is_finished():
            claim.release()
            return True
        if known:
            self._note_taken_over(trial)
        try:
            setting = setting_of(trial) or self._propose(number)
            self._begin(setting, claim)
        except BaseException:
            claim.release()
            raise
        return True

    def _taken_over(self) -> int | None:
        """Return a setting that was proposed and not told, and that no process works on."""
        clock = time.monotonic()
        if clock - self._looked < _LOOK_EVERY:
            return None
        for trial in self.journal.trials():
            if trial.state.is_finished() or trial.number in self._working:
                continue
            claim = Claim.take(self._path, self.spec.hash, trial.number, self._worker.task)
            if claim is not None:
                claim.release()
                return int(trial.number)
        self._looked = clock
        return None

    def _note_taken_over(self, trial: Any) -> None:
        id_ = self.journal.trial_id(trial.number)
        before = trial.user_attrs.get(TAKEN_OVER, [])
        self.journal.storage.set_trial_user_attr(
            id_, TAKEN_OVER, [*before, {"worker": self._name, "at": now()}]
        )

    def _propose(self, number: int) -> Setting:
        journal, id_ = self.journal, self.journal.trial_id(number)
        proposal = self._space.propose(journal, number)
        values = self._growing.values(proposal.unit)
        documents = self._growing.expansion.row(values, number)
        hash_, digest = documents.hash("", 0), self._growing.expansion.digest(values)
        earlier = [trial.user_attrs.get(SETTING) for trial in journal.trials()[:number]]
        name: tuple[str | int, ...] = ()
        first = number
        if self.spec.seed_policy == "common":
            hashes = [None if one is None else one["hash"] for one in earlier]
            first = hashes.index(hash_) if hash_ in hashes else number
        else:
            name = ("row", digest, sum(one is not None and one["values"] == digest for one in earlier))
        storage = journal.storage
        for axis, value in proposal.params.items():
            distribution = self._space.distributions[axis]
            storage.set_trial_param(id_, axis, distribution.to_internal_repr(value), distribution)
        attributes = {
            "unit": list(proposal.unit),
            "name": list(name),
            "first": first,
            "hash": hash_,
            "values": digest,
            "rejected": proposal.rejected,
            "worker": self._name,
            "asked": now(),
        }
        storage.set_trial_user_attr(id_, SETTING, attributes)
        return Setting(number, proposal.unit, name, first)

    def _begin(self, setting: Setting, claim: Claim) -> None:
        if setting.first != setting.number:
            self._repeated += 1
            self._tell_repeated(setting)
            claim.release()
            return
        self._repeated = 0
        runs = self._growing.write_documents(setting)
        working = Working(setting, runs, claim, runs_of(self.journal.trial(setting.number)))
        self._working[setting.number] = working
        if not self._settle_if_over(working):
            self._ready.append(working)

    def _tell_repeated(self, setting: Setting) -> None:
        """Tell of a setting that was proposed before what that one gave; nothing is executed."""
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
        """Whether the budget lets another setting begin; else it is noted why not."""
        if self.ended_by is None:
            self.ended_by = self._spent() or self._stuck()
        return self.ended_by is None

    def _spent(self) -> str | None:
        budget, trials = self._search.budget, self.journal.trials()
        runs = self._search.seeds * sum(not trial.state.is_finished() for trial in trials)
        runs += sum(self._runs_counted(trial) for trial in trials if trial.state.is_finished())
        if budget.runs is not None and runs + self._search.seeds > budget.runs:
            return f"{budget.runs:,} runs"
        if budget.steps is not None:
            steps = sum(run["steps"] for trial in trials for run in trial.user_attrs.get(RUNS, ()))
            if steps >= budget.steps:
                return f"{budget.steps:,} steps"
        if budget.hours is not None and self._hours(trials) >= budget.hours:
            return f"{budget.hours:g} hours"
        return None

    def _runs_counted(self, trial: Any) -> int:
        """Return the runs that a settled setting counts for: those executed, or all of one that was proposed before."""
        # (it is asked of all of them before each proposal, so no object is made of any)
        repeated = trial.user_attrs.get(SETTING, {}).get("first", trial.number) != trial.number
        return self._search.seeds if repeated else len(trial.user_attrs.get(RUNS, ()))

    def _hours(self, trials: list[Any]) -> float:
        """Return for how long settings were worked on, at the same time counted once, and this process's time."""
        mine = datetime.now(UTC).timestamp() - (time.monotonic() - self._begun)
        spans = [span for trial in trials for span in spans_of(trial)]
        spans.append((mine, datetime.now(UTC).timestamp()))
        total, end = 0.0, -float("inf")
        for started, ended in sorted(spans):
            total += max(0.0, ended - max(started, end))
            end = max(end, ended)
        return total / 3600

    def _stuck(self) -> str | None:
        if self._repeated >= _MOST_REPEATED:
            return f"{_MOST_REPEATED} settings in a row had been tried before"
        states = [trial.state.name for trial in self.journal.trials()]
        if states.count("FAIL") >= _MOST_FAILED and not {"COMPLETE", "PRUNED"} & set(states):
            return f"the first {states.count('FAIL')} settings failed"
        if self._settings.fail_fast and self.failures:
            return "a run failed"
        return None

    # runs

    def _job(self, working: Working) -> Job | None:
        """Return the job of the next run of a setting; ``None`` where that has ended already, and is taken in."""
        run = working.runs[len(working.ended)]
        path = job_path(self._path, run)
        record = JobRecord.read(with_suffix(path, ".json"))
        marker = Marker.read(with_suffix(path, ".running"))
        attempts = max(
            one.attempt if one is not None and one.hash == run.hash else 0 for one in (record, marker)
        )
        if record is not None and record.hash != run.hash:
            record = None
        if record is not None and self._has_ended(run, record):
            self._take_in(working, record)
            return None
        finished, resume = self._earlier(run)
        if finished is not None:
            self._take_in(working, self._record_of(run, finished))
            return None
        location = self._location(run)
        return Job(
            run.uid,
            run.hash,
            self._path / run.file,
            path,
            location,
            attempts + 1,
            resume=resume,
            checkpoint_every=self._settings.checkpoint_every,
            own_store=self._worker.own_store,
            task=self._worker.task,
            allow_modules=self._settings.allow_modules,
            reporting=self._reporting(working),
        )

    def _location(self, run: PlannedRun) -> StoreLocation:
        if self._worker.own_store:
            return run_store_location(self._path, run_file_stem(run))
        return self._worker.store

    def _has_ended(self, run: PlannedRun, record: JobRecord) -> bool:
        """Whether a run has ended by its record, and the store still has it."""
        if record.instance is None or record.status not in ("finished", "pruned"):
            return False
        with self._opened(run) as store:
            known = instances_of(store, [run.hash]).get(run.hash, ())
            return any(one.uid == record.instance for one in known)

    def _earlier(self, run: PlannedRun) -> tuple[str | None, str | None]:
        """Return the instance of a run that has finished, and the one that can be resumed, if any."""
        if self._worker.own_store:
            # (its process looks for itself)
            return None, None
        with self._opened(run) as store:
            known = instances_of(store, [run.hash]).get(run.hash, [])
            finished = next((one.uid for one in known if one.status == "finished"), None)
            return finished, resumable(store, [one[:2] for one in known])

    def _opened(self, run: PlannedRun) -> _Opened:
        if self._worker.own_store:
            return _Opened(self._location(run).open(create=True, journal="delete"), keep=False)
        if self._store is None:
            self._store = self._worker.store.open(create=True)
        return _Opened(self._store, keep=True)

    def _record_of(self, run: PlannedRun, instance: str) -> JobRecord:
        """Return the record of a run that has finished, and whose process was killed before it wrote one."""
        with self._opened(run) as store:
            frame = store.runs()
            row = frame[frame["run"] == instance].iloc[0]
        started, ended = (row[name].isoformat() for name in ("started", "ended"))
        return JobRecord(
            *(run.uid, run.hash, "finished", instance, self._location(run).shown, started, ended),
            *(seconds_between(started, ended), 0, None, "", 0, 1, self._worker.task),
        )

    def _reporting(self, working: Working) -> Reporting | None:
        if self._search.prune in ("none", "wilcoxon"):
            return None
        outcome = self._outcomes[0]
        return Reporting(
            self._path,
            self.spec.uid,
            direction(outcome),
            working.number,
            outcome,
            self._phase_index(working),
            self._search.prune,
            tuple(run.outcomes[outcome.name] for run in working.ended),
            working.ended[-1].reports if working.ended else 0,
        )

    def _phase_index(self, working: Working) -> int:
        if self._phase is None:
            values = self._growing.values(working.setting.unit)
            schedule = self._growing.expansion.mapping(values, "", 0)["schedule"]
            names = [name for phase in schedule for name in phase]
            phase = self._outcomes[0].phase
            self._phase = (
                names.index(phase) if isinstance(phase, str) else len(names) - 1 if phase is None else phase
            )
        return self._phase

    def _take_in(self, working: Working, record: JobRecord) -> bool:
        """Write down how a run of ``working`` has ended; return whether its setting is settled then."""
        if record.status == "interrupted":
            self.cancelled = True
            return False
        if record.status == "failed" and self._was_killed(record):
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

    def _was_killed(self, record: JobRecord) -> bool:
        """Whether a run's process was killed by somebody, and the run is to be begun again."""
        if record.exit_code >= 0 or "time limit" in (record.error or ""):
            return False
        self._attempts[record.run] = self._attempts.get(record.run, 1) + 1
        if self._attempts[record.run] > _ATTEMPTS:
            return False
        logger.warning("run %s: %s; it is begun again", record.run, record.error)
        return True

    def _outcomes_of(self, working: Working, record: JobRecord) -> tuple[dict[str, float], str | None]:
        """Return what is sought of a run that has ended, none of one that was pruned; and what is wrong with it."""
        if record.status == "failed" or record.instance is None:
            self.failures.append(record)
            return {}, f"run {record.run}: {record.error or 'recorded nothing'}"
        if record.status == "pruned":
            return {}, None
        run = working.runs[len(working.ended)]
        try:
            with self._opened(run) as store:
                found = {one.name: take(store, [record.instance], one) for one in self._outcomes}
        except StoreError as error:
            return {}, str(error)
        outcomes = {name: values.get(record.instance, float("nan")) for name, values in found.items()}
        strange = [name for name, value in outcomes.items() if not is_number(value)]
        return outcomes, f"run {record.run} has no finite {strange[0]}" if strange else None

    def _note(self, working: Working, record: JobRecord, outcomes: dict[str, float]) -> None:
        """Write a run that has ended into the journal."""
        run = working.runs[len(working.ended)]
        steps = 0
        if record.instance is not None:
            with self._opened(run) as store:
                steps = store.steps_across([record.instance])[record.instance]
        number = working.number
        id_ = self.journal.trial_id(number)
        if self._search.prune == "wilcoxon" and all(map(is_number, outcomes.values())) and outcomes:
            value = outcomes[self._outcomes[0].name]
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
                len(self.journal.trial(number).intermediate_values),
            )
        )
        self.journal.storage.set_trial_user_attr(id_, RUNS, [one.plain() for one in working.ended])

    def _settle_if_over(self, working: Working) -> bool:
        """Settle a setting that has nothing left to execute; return whether it is."""
        ended = working.ended
        if ended and ended[-1].status == "pruned":
            self._settle(working, "PRUNED")
            return True
        if ended and not ended[-1].outcomes:
            self._settle(working, "FAIL", why=f"run {ended[-1].run} {ended[-1].status}")
            return True
        if len(ended) == len(working.runs):
            means = [sum(one.outcomes[o.name] for one in ended) / len(ended) for o in self._outcomes]
            self._settle(working, "COMPLETE", means)
            return True
        if ended and self._is_stopped(working):
            self._settle(working, "PRUNED")
            return True
        return False

    def _is_stopped(self, working: Working) -> bool:
        """Whether the pruner does not let the other seeds of a setting start."""
        trial = self.journal.trial(working.number)
        if STOPPED in trial.user_attrs:
            # at the last that a run had to report
            return True
        if self._search.prune != "wilcoxon" or not asks_to_stop(self.journal, working.number, "wilcoxon"):
            return False
        report = len(working.ended) - 1
        attribute = {"report": report, "value": trial.intermediate_values[report]}
        self.journal.storage.set_trial_user_attr(self.journal.trial_id(working.number), STOPPED, attribute)
        return True

    def _settle(self, working: Working, state: str, values: list[float] | None = None, why: str = "") -> None:
        self._tell(working.number, state, values, why)
        del self._working[working.number]
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


class _Opened:
    """A store for a while: one of the search stays open, that of a run is closed."""

    def __init__(self, store: Store, *, keep: bool):
        self._store, self._keep = store, keep

    def __enter__(self) -> Store:
        return self._store

    def __exit__(self, *error: object) -> None:
        if not self._keep:
            self._store.close()
