"""Pilot jobs of Parsl: jobs of any scheduler that execute tasks as long as there are any.

This is a thin wrapper of a ``HighThroughputExecutor`` with the provider of the settings, and of the kernel that starts
and ends it. It deliberately deviates from Parsl's defaults:

- All files are in one folder instead of the working directory, and nothing is logged in this process.
- No external service is asked for this host's address, and usage is not tracked.
- Commands are started with this interpreter, so scripts of Parsl need not be on the path.
- The interchange ends with this process (:mod:`.interchange`). So do the pilots, even before the interchange knows them
  (:mod:`palaestrai_mosaik.cli.pilot`).
- A pilot that ends is replaced by a new one, unless several in a row executed no task.
- Keys of the encrypted connections are removed at the end.
"""

from __future__ import annotations

import inspect
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parsl.launchers
import parsl.providers
import psutil
import zmq
from parsl.config import Config
from parsl.dataflow.dflow import DataFlowKernel
from parsl.executors import HighThroughputExecutor
from parsl.executors.errors import BadStateException
from parsl.executors.high_throughput.executor import DEFAULT_LAUNCH_CMD
from parsl.jobs.states import JobState, JobStatus
from parsl.providers.base import ExecutionProvider

from palaestrai_mosaik.arsenai.design.design import available_cores
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ExecutionError, SchedulerError, did_you_mean
from palaestrai_mosaik.runner.worker_process import THREADS

from ..settings import ParslSettings

#: seconds between two heartbeats of a pilot, and between two checks of its workers; seconds without a heartbeat after
#: which a pilot and the interchange consider each other gone
HEARTBEAT_PERIOD, HEARTBEAT_THRESHOLD = 2, 20
#: seconds without a touch of the driver's file after which a pilot considers the driver gone
_GONE = 30
#: number of pilots that end one after the other, without an executed task, before the execution is given up
_HOPELESS = 3
#: seconds after which an idle pilot is ended while others have tasks
_IDLE = 60.0
#: seconds within which the interchange must answer
_PATIENCE = 20.0
#: a pilot takes no more tasks in the last tenth of its time, within these bounds (seconds)
_DRAIN = (60, 900)
_INTERCHANGE = Path(__file__).with_name("interchange.py")
_PILOT = "palaestrai_mosaik.cli.pilot"
#: number of cores per worker for Parsl if the number of workers is not limited by cores
_SMALL = 0.01
#: valid paths, because Parsl inserts them into shell commands without quotes
_PLAIN = re.compile(r"[\w@+=:,./-]+")
#: environment variables that pilots must not inherit, because they only use the runs' own stores
_SECRETS = ("PALAESTRAI_MOSAIK_STORE", "PGPASSWORD", "PGPASSFILE")


@dataclass(frozen=True)
class _Kind:
    """A provider of Parsl: its class, and its parameters for settings (``None``: there is no such parameter)."""

    name: str
    partition: str | None = None
    account: str | None = None
    #: parameters that are set to the number of workers per node
    cores: tuple[str, ...] = ()
    directive: str | None = None
    #: whether pilots have a time limit
    limited: bool = True
    #: the launcher that starts a command on each of several nodes
    launcher: str | None = None


_KINDS: Mapping[str, _Kind] = {
    "local": _Kind("LocalProvider", limited=False),
    "slurm": _Kind("SlurmProvider", "partition", "account", ("cores_per_node",), "#SBATCH ", launcher="SrunLauncher"),
    "pbspro": _Kind("PBSProProvider", "queue", "account", ("cpus_per_node",), "#PBS ", launcher="MpiExecLauncher"),
    "torque": _Kind("TorqueProvider", "queue", "account", (), "#PBS ", launcher="MpiExecLauncher"),
    "lsf": _Kind("LSFProvider", "queue", "project", ("cores_per_node",), "#BSUB "),
    "grid_engine": _Kind("GridEngineProvider", "queue", None, (), "#$ "),
    "condor": _Kind("CondorProvider", None, "project", ("cores_per_slot",), ""),
    "kubernetes": _Kind("KubernetesProvider", cores=("init_cpu", "max_cpu"), limited=False),
}  # fmt: skip
#: parameters of providers that are set by other keys of the settings
_OTHERWISE = {
    "nodes_per_block": "nodes",
    "init_blocks": "min_blocks",
    "min_blocks": "min_blocks",
    "max_blocks": "max_blocks",
    "worker_init": "prologue",
    "scheduler_options": "directives",
    "walltime": "walltime",
    "partition": "partition",
    "queue": "partition",
    "account": "account",
    "project": "account",
}


def workers_per_node(settings: ParslSettings) -> int | None:
    """Return the number of workers on a node of a pilot; ``None``: one per core of the node."""
    return (
        available_cores() if settings.workers is None and settings.provider == "local" else settings.workers
    )


class Pilots:
    """The pilots of a submission.

    Args:
        name: a part of the names of the pilots' jobs.
        settings: the settings of Parsl.
        directory: the folder for the pilots' files.
        stop: a file that is touched while this process lives, and written if it ends without :meth:`close`.
        tasks: the approximate number of tasks.

    Raises:
        ExecutionError: Parsl rejects the settings, or cannot handle a path.
    """

    def __init__(self, name: str, settings: ParslSettings, directory: Path, stop: Path, tasks: int):
        for path in (directory, stop, Path(sys.executable), Path(settings.python or sys.executable)):
            if not _PLAIN.fullmatch(str(path)):
                raise ExecutionError(
                    f"Parsl cannot work with the path {str(path)!r}: it writes paths into shell commands as they "
                    "are; allowed are letters, digits and @ + = : , . / - _"
                )
        self._name, self._directory = name, directory
        self._local = settings.provider == "local"
        #: numbers of failed pilots at the last executed task and now; the last failure's description before giving up
        self._failed_before, self._failed, self._hopeless = 0, 0, ""
        self._provider = _provider(settings, tasks)
        self._executor = _Executor(
            label=name,
            provider=self._provider,
            launch_cmd=_launch_command(settings, stop),
            interchange_launch_cmd=[sys.executable, "-P", str(_INTERCHANGE), str(stop)],
            address="127.0.0.1" if self._local else settings.address or "127.0.0.1",
            max_workers_per_node=workers_per_node(settings),
            # an explicit number of workers may exceed the number of cores
            cores_per_worker=1.0 if settings.workers is None else _SMALL,
            heartbeat_period=HEARTBEAT_PERIOD,
            heartbeat_threshold=HEARTBEAT_THRESHOLD,
            drain_period=_drain_period(settings.walltime),
            block_error_handler=self._note_status,
            encrypted=True,
        )
        if not self._local and settings.address is None:
            # pilots try all addresses of this host; by default, Parsl would also query a service on the internet
            self._executor.address = None
            self._executor.all_addresses = _addresses()

    def start(self) -> None:
        """Submit the first pilots."""
        files.make_folder(self._directory, parents=True)
        self._kernel = DataFlowKernel(
            Config(
                executors=[self._executor],
                retries=0,
                run_dir=str(self._directory),
                strategy="htex_auto_scale",
                strategy_period=1,
                max_idletime=_IDLE,
                usage_tracking=0,
                initialize_logging=False,
            )
        )

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have a worker call the module-level ``function``. Raises :class:`SchedulerError` if Parsl has given up."""
        try:
            answer: Future[Any] = self._kernel.submit(function, arguments, [self._name], False, None, {})
            return answer
        except BadStateException as error:
            raise SchedulerError(_gone(error)) from error

    def note_answer(self) -> None:
        """Forget earlier failures of pilots, because a task was executed."""
        self._failed_before = self._failed

    def check(self) -> None:
        """Raise :class:`SchedulerError` if no pilot can be expected any more."""
        interchange = self._executor.interchange_proc
        if interchange is not None and interchange.poll() is not None:
            raise SchedulerError(f"Parsl's interchange has ended; its log is in {self._directory}")
        if self._executor.bad_state_is_set:
            raise SchedulerError(_gone(self._executor.executor_exception))
        if self._hopeless:
            raise SchedulerError(
                f"{_HOPELESS} pilots ended one after the other, and none has executed a task: {self._hopeless}"
            )

    def close(self, patience: float) -> None:
        """End all pilots, and kill remaining processes on this host after ``patience`` seconds.

        Raises:
            SchedulerError: it is unknown whether all pilots have ended.
        """
        processes = self._processes()
        interchange = self._executor.interchange_proc
        if interchange is not None and interchange.poll() is not None and not self._executor.bad_state_is_set:
            self._executor.set_bad_state_and_fail_all(RuntimeError("the interchange has ended"))
        if self._executor.bad_state_is_set:
            # Parsl does not end the pilots in this state
            self._provider.cancel(self._live())
        try:
            self._kernel.cleanup()
        except Exception as error:
            # commands of the scheduler failed
            self._executor.shutdown()
            raise SchedulerError(f"it is uncertain whether all pilots have ended: {error}") from error
        _, survivors = psutil.wait_procs(processes, patience)
        for process in survivors:
            process.kill()
        psutil.wait_procs(survivors, patience)
        for keys in self._directory.glob("*/*/certificates"):
            files.discard_tree(keys)

    def _live(self) -> list[Any]:
        """Return the scheduler's names of the pilots that are not known to have ended."""
        statuses = self._executor.status_facade
        jobs = self._executor.blocks_to_job_id
        return [job for block, job in jobs.items() if block not in statuses or not statuses[block].terminal]

    def _processes(self) -> list[psutil.Process]:
        """Return the processes of pilots on this host, including their children."""
        processes = []
        for job in self._live() if self._local else ():
            try:
                process = psutil.Process(int(job))
                processes += [process, *process.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        return processes

    def _note_status(self, _: Any, statuses: Mapping[str, JobStatus]) -> None:
        failed = [s for s in statuses.values() if s.state in (JobState.FAILED, JobState.MISSING)]
        self._failed = len(failed)
        if len(failed) - self._failed_before >= _HOPELESS:
            self._hopeless = _describe_failure(failed[-1])


class _Executor(HighThroughputExecutor):
    """Limits the wait for a dead interchange, and does not end pilots that are about to start."""

    def start(self) -> None:
        super().start()
        for option in (zmq.RCVTIMEO, zmq.SNDTIMEO):
            self.command_client.zmq_socket.setsockopt(option, int(_PATIENCE * 1000))

    def scale_in(self, blocks: int, max_idletime: float | None = None) -> list[str]:
        # if a pilot has more workers than there are tasks, Parsl calls this once a second with 0 blocks, and would end
        # all pilots that have not reported yet; if that takes more than a second, no pilot would ever execute a task
        ended: list[str] = super().scale_in(blocks, max_idletime) if blocks > 0 else []
        return ended


def _provider(settings: ParslSettings, tasks: int) -> ExecutionProvider:
    kind = _KINDS.get(settings.provider)
    if kind is None:
        hint = did_you_mean(settings.provider, _KINDS)
        raise ExecutionError(f"there is no provider {settings.provider!r}{hint}: it is {', '.join(_KINDS)}")
    workers = workers_per_node(settings)
    slots = (workers or 1) * settings.nodes
    parameters: dict[str, Any] = {
        "nodes_per_block": settings.nodes,
        "init_blocks": max(settings.min_blocks, min(settings.max_blocks, math.ceil(tasks / slots))),
        "min_blocks": settings.min_blocks,
        "max_blocks": settings.max_blocks,
        "worker_init": "\n".join((*settings.prologue, *_environment())),
        **_job_options(settings, kind),
        "launcher": _launcher(settings, kind),
    }
    if workers is not None:
        parameters.update(dict.fromkeys(kind.cores, workers))
        if settings.provider == "slurm":
            # otherwise, a pilot gets whole nodes, with one worker per core
            parameters["exclusive"] = False
    make = getattr(parsl.providers, kind.name)
    return _make(make, parameters | _options(settings.options or {}, make, settings.provider))


def _launcher(settings: ParslSettings, kind: _Kind) -> Any:
    """Return the launcher of Parsl that starts a command on the nodes of a pilot."""
    if settings.nodes == 1:
        return parsl.launchers.SingleNodeLauncher(debug=False)
    if kind.launcher is not None:
        return getattr(parsl.launchers, kind.launcher)(debug=False)
    if "launcher" in (settings.options or {}):
        return None
    raise ExecutionError(
        f"how a command is started on several nodes of {settings.provider!r} is not known: "
        "options must name a launcher of Parsl"
    )


def _job_options(settings: ParslSettings, kind: _Kind) -> dict[str, Any]:
    """Return the provider's parameters for the scheduler's options of a pilot's job."""
    directives = "\n".join(f"{kind.directive}{line}" for line in settings.directives)
    options = {
        "partition": (kind.partition, settings.partition),
        "account": (kind.account, settings.account),
        "walltime": ("walltime" if kind.limited else None, settings.walltime),
        "directives": (None if kind.directive is None else "scheduler_options", directives or None),
    }
    parameters = {}
    for key, (parameter, value) in options.items():
        if value is None:
            continue
        if parameter is None:
            raise ExecutionError(f"the provider {settings.provider!r} of Parsl takes no {key}")
        parameters[parameter] = value
    return parameters


def _options(options: Mapping[str, Any], make: Callable[..., Any], provider: str) -> dict[str, Any]:
    allowed = [name for name in inspect.signature(make).parameters if name not in _OTHERWISE]
    for name in options:
        if name in _OTHERWISE:
            raise ExecutionError(f"options: {name!r} is set by the key {_OTHERWISE[name]!r}")
        if name not in allowed:
            hint = did_you_mean(name, allowed)
            raise ExecutionError(
                f"options: the provider {provider!r} of Parsl has no {name!r}{hint}: it has {', '.join(allowed)}"
            )
    converted = dict(options)
    if "launcher" in converted:
        names = [name for name in parsl.launchers.__all__ if name != "WrappedLauncher"]
        if converted["launcher"] not in names:
            hint = did_you_mean(str(converted["launcher"]), names)
            raise ExecutionError(
                f"options: {converted['launcher']!r} is no launcher of Parsl{hint}: {', '.join(names)}"
            )
        converted["launcher"] = getattr(parsl.launchers, converted["launcher"])(debug=False)
    return converted


def _make(make: Callable[..., Any], parameters: Mapping[str, Any]) -> ExecutionProvider:
    allowed = inspect.signature(make).parameters
    try:
        provider: ExecutionProvider = make(
            **{name: value for name, value in parameters.items() if name in allowed}
        )
        return provider
    except Exception as error:
        # providers check types, required commands and connections, for example
        raise ExecutionError(f"Parsl's {make.__name__} does not take this: {error}") from error


def _launch_command(settings: ParslSettings, stop: Path) -> str:
    # Parsl formats the command, so it must not contain other braces; valid paths have none
    python = shlex.quote(settings.python or sys.executable)
    command = f"{python} -m {_PILOT} {shlex.quote(str(stop))} {_GONE}"
    return str(DEFAULT_LAUNCH_CMD.replace("process_worker_pool.py", command, 1))


def _environment() -> list[str]:
    """Return the shell lines that set up the environment of a pilot from this process."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    threads = " ".join(f'{name}="${{{name}:-1}}"' for name in THREADS)
    return [f"unset {' '.join(_SECRETS)}", f"export PYTHONPATH={shlex.quote(path)}", f"export {threads}"]


def _drain_period(walltime: str | None) -> int | None:
    """Return the seconds after which a pilot accepts no more tasks; ``None`` if it always does."""
    if walltime is None:
        return None
    hours, minutes, seconds = (int(part) for part in walltime.split(":"))
    total = hours * 3600 + minutes * 60 + seconds
    left = total - min(max(_DRAIN[0], total // 10), _DRAIN[1])
    return left if left > 0 else None


def _addresses() -> set[str]:
    """Return the IPv4 addresses of this host's network interfaces."""
    return {
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family.name == "AF_INET"
    }


def _describe_failure(status: JobStatus) -> str:
    """Describe the failure of a pilot in a few lines."""
    outputs = (status.message, status.stderr_summary, status.stdout_summary)
    code = None if status.exit_code is None else f"exit code {status.exit_code}"
    return "\n".join(part.strip() for part in (code, *outputs) if part) or "no output"


def _gone(error: Exception | None) -> str:
    return f"Parsl has given up: {error}"
