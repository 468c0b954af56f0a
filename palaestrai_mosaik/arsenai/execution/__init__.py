"""Executes the runs of a generated design folder on local cores or on a cluster (:mod:`.cluster`).

:func:`run_folder` executes the missing runs and returns a :class:`Summary`. :func:`run_states` returns the status of
each run, :func:`job_records` the records of ended runs. :mod:`.executor` defines the interface of executors,
:mod:`.job` describes the files in ``jobs/``.
"""

from palaestrai_mosaik.arsenai.design.design import available_cores
from palaestrai_mosaik.store.store import StoreLocation

from .executor import Executor, InlineExecutor
from .job import Job, JobRecord
from .local import LocalExecutor
from .progress import FolderProgress, make_progress
from .runs import (
    SubmitSummary,
    Summary,
    TimeLeft,
    row_values,
    run_folder,
    select_runs,
    submit_missing,
    time_left,
)
from .settings import EXECUTORS, Settings
from .status import RunState, RunStatus, States, job_records, load_run_states, run_states

__all__ = [
    "EXECUTORS",
    "Executor",
    "FolderProgress",
    "InlineExecutor",
    "Job",
    "JobRecord",
    "LocalExecutor",
    "RunState",
    "RunStatus",
    "Settings",
    "States",
    "StoreLocation",
    "SubmitSummary",
    "Summary",
    "TimeLeft",
    "available_cores",
    "job_records",
    "load_run_states",
    "make_progress",
    "row_values",
    "run_folder",
    "run_states",
    "select_runs",
    "submit_missing",
    "time_left",
]
