"""Pilot jobs of Parsl: jobs of any scheduler that fetch tasks until there are none.

Thinly wrapped: a ``HighThroughputExecutor`` with the provider that the settings name, and the kernel
that starts and ends it. Deliberately not as Parsl does it by itself:

- All its files lie in the folder given, none in the working directory; it logs nothing in this process.
- Nobody outside is asked for this host's address, and usage is not tracked.
- Commands are started with this interpreter: scripts of Parsl need not be on the path.
- The interchange ends with this process (:mod:`.interchange`), and so do the pilots, also those that
  are not known to the interchange yet (:mod:`palaestrai_mosaik.cli.pilot`).
- A pilot that ends is followed by a new one; only where several in a row achieved nothing it is given up.
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

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import ExecutionError, SchedulerError, did_you_mean
from palaestrai_mosaik.runner.worker_process import THREADS

from ..local import available_cores
from .settings import ParslSettings

#: seconds between two signs of life of a pilot, also between two looks at its workers; and how long a
#: pilot and the interchange wait for one before they take the other for gone
HEARTBEAT_PERIOD, HEARTBEAT_THRESHOLD = 2, 20
#: seconds after which a pilot takes a driver for gone that does not touch the file for it
_GONE = 30
#: so many pilots that ended one after the other, and no task between, are enough
_HOPELESS = 3
#: seconds after which a pilot without tasks is ended while others have some
_IDLE = 60.0
#: seconds that the interchange has to answer
_PATIENCE = 20.0
#: a pilot takes no more tasks in the last tenth of its time, within these bounds (seconds)
_DRAIN = (60, 900)
_INTERCHANGE = Path(__file__).with_name("interchange.py")
_PILOT = "palaestrai_mosaik.cli.pilot"
#: cores of a worker, for Parsl's reckoning, where there may be any number of workers
_SMALL = 0.01
#: what paths may hold: Parsl writes them into shell commands as they are
_PLAIN = re.compile(r"[\w@+=:,./-]+")
#: what pilots must not inherit: they need no store but the runs' own
_SECRETS = ("PALAESTRAI_MOSAIK_STORE", "PGPASSWORD", "PGPASSFILE")


@dataclass(frozen=True)
class _Kind:
    """A provider of Parsl: its class, and how it names what settings say (``None``: cannot be said)."""

    name: str
    partition: str | None = None
    account: str | None = None
    #: parameters that are given the workers of a node
    cores: tuple[str, ...] = ()
    directive: str | None = None
    #: whether pilots have a time limit
    limited: bool = True
    #: what starts a command on each of several nodes
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
#: parameters of providers that have a key of their own in the settings
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
    """Return how many workers a node of a pilot has; ``None``: as many as it turns out to have cores."""
    return (
        available_cores() if settings.workers is None and settings.provider == "local" else settings.workers
    )


class Pilots:
    """Pilots of ``settings`` for about ``tasks`` tasks; their files lie in ``directory``, jobs have ``name`` in theirs.

    The file ``stop`` is written where this process ends without :meth:`close`, and touched as long as it lives.
    Raises :class:`ExecutionError` for settings that Parsl does not take.
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
        #: how many pilots had failed at the last answer, and by now; what the last said where that is hopeless
        self._failed_before, self._failed, self._hopeless = 0, 0, ""
        self._provider = _provider(settings, tasks)
        self._executor = _Executor(
            label=name,
            provider=self._provider,
            launch_cmd=_launch_command(settings, stop),
            interchange_launch_cmd=[sys.executable, "-P", str(_INTERCHANGE), str(stop)],
            address="127.0.0.1" if self._local else settings.address or "127.0.0.1",
            max_workers_per_node=workers_per_node(settings),
            # who says how many workers may have more of them than cores
            cores_per_worker=1.0 if settings.workers is None else _SMALL,
            heartbeat_period=HEARTBEAT_PERIOD,
            heartbeat_threshold=HEARTBEAT_THRESHOLD,
            drain_period=_drain_period(settings.walltime),
            block_error_handler=self._note_status,
            encrypted=True,
        )
        if not self._local and settings.address is None:
            # all of this host, of which pilots try each; Parsl itself would ask a service on the internet, too
            self._executor.address = None
            self._executor.all_addresses = _addresses()

    def start(self) -> None:
        """Ask for the first pilots."""
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
        """Have ``function``, of a module, called by a worker. Raises :class:`SchedulerError`."""
        try:
            answer: Future[Any] = self._kernel.submit(function, arguments, [self._name], False, None, {})
            return answer
        except BadStateException as error:
            raise SchedulerError(_gone(error)) from error

    def note_answer(self) -> None:
        """Note that a task was executed: that pilots failed before does not count any more."""
        self._failed_before = self._failed

    def check(self) -> None:
        """Raise :class:`SchedulerError` where no pilot can be hoped for any more."""
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
        """End all pilots. What is left of those on this host after ``patience`` seconds is killed."""
        here = self._processes()
        interchange = self._executor.interchange_proc
        if interchange is not None and interchange.poll() is not None and not self._executor.bad_state_is_set:
            self._executor.set_bad_state_and_fail_all(RuntimeError("the interchange has ended"))
        if self._executor.bad_state_is_set:
            # Parsl leaves these pilots alone then
            self._provider.cancel(self._live())
        try:
            self._kernel.cleanup()
        except Exception as error:
            # the commands of a scheduler that does not answer
            self._executor.shutdown()
            raise SchedulerError(f"it is uncertain whether all pilots have ended: {error}") from error
        _, left = psutil.wait_procs(here, patience)
        for process in left:
            process.kill()
        psutil.wait_procs(left, patience)
        for keys in self._directory.glob("*/*/certificates"):
            files.discard_tree(keys)

    def _live(self) -> list[Any]:
        """Return the scheduler's names of the pilots that have not ended, as far as is known."""
        statuses = self._executor.status_facade
        jobs = self._executor.blocks_to_job_id
        return [job for block, job in jobs.items() if block not in statuses or not statuses[block].terminal]

    def _processes(self) -> list[psutil.Process]:
        """Return the processes of pilots on this host, and those that they have started."""
        found = []
        for job in self._live() if self._local else ():
            try:
                process = psutil.Process(int(job))
                found += [process, *process.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        return found

    def _note_status(self, _: Any, statuses: Mapping[str, JobStatus]) -> None:
        failed = [s for s in statuses.values() if s.state in (JobState.FAILED, JobState.MISSING)]
        self._failed = len(failed)
        if len(failed) - self._failed_before >= _HOPELESS:
            self._hopeless = _describe_failure(failed[-1])


class _Executor(HighThroughputExecutor):
    """Does not wait for ever for an interchange that has died, nor end pilots that are only just coming."""

    def start(self) -> None:
        super().start()
        for option in (zmq.RCVTIMEO, zmq.SNDTIMEO):
            self.command_client.zmq_socket.setsockopt(option, int(_PATIENCE * 1000))

    def scale_in(self, blocks: int, max_idletime: float | None = None) -> list[str]:
        # Parsl asks once a second for 0 where a pilot has more workers than there are tasks, and would then end every
        # pilot that has not reported yet: where that takes more than a second, none ever executes anything
        found: list[str] = super().scale_in(blocks, max_idletime) if blocks > 0 else []
        return found


def _provider(settings: ParslSettings, tasks: int) -> ExecutionProvider:
    kind = _KINDS.get(settings.provider)
    if kind is None:
        hint = did_you_mean(settings.provider, _KINDS)
        raise ExecutionError(f"there is no provider {settings.provider!r}{hint}: it is {', '.join(_KINDS)}")
    workers = workers_per_node(settings)
    slots = (workers or 1) * settings.nodes
    given: dict[str, Any] = {
        "nodes_per_block": settings.nodes,
        "init_blocks": max(settings.min_blocks, min(settings.max_blocks, math.ceil(tasks / slots))),
        "min_blocks": settings.min_blocks,
        "max_blocks": settings.max_blocks,
        "worker_init": "\n".join((*settings.prologue, *_environment())),
        "launcher": parsl.launchers.SingleNodeLauncher(debug=False),
    }
    named = {
        "partition": (kind.partition, settings.partition),
        "account": (kind.account, settings.account),
        "walltime": ("walltime" if kind.limited else None, settings.walltime),
        "directives": (
            None if kind.directive is None else "scheduler_options",
            "\n".join(f"{kind.directive}{line}" for line in settings.directives) or None,
        ),
    }
    for key, (parameter, value) in named.items():
        if value is None:
            continue
        if parameter is None:
            raise ExecutionError(f"the provider {settings.provider!r} of Parsl takes no {key}")
        given[parameter] = value
    if workers is not None:
        given.update(dict.fromkeys(kind.cores, workers))
        if settings.provider == "slurm":
            # otherwise a pilot has whole nodes, and as many workers as they have cores
            given["exclusive"] = False
    if settings.nodes > 1:
        if kind.launcher is None and "launcher" not in (settings.options or {}):
            raise ExecutionError(
                f"how a command is started on several nodes of {settings.provider!r} is not known: "
                "options must name a launcher of Parsl"
            )
        if kind.launcher is not None:
            given["launcher"] = getattr(parsl.launchers, kind.launcher)(debug=False)
    make = getattr(parsl.providers, kind.name)
    return _make(make, given | _options(settings.options or {}, make, settings.provider))


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
    found = dict(options)
    if "launcher" in found:
        names = [name for name in parsl.launchers.__all__ if name != "WrappedLauncher"]
        if found["launcher"] not in names:
            hint = did_you_mean(str(found["launcher"]), names)
            raise ExecutionError(
                f"options: {found['launcher']!r} is no launcher of Parsl{hint}: {', '.join(names)}"
            )
        found["launcher"] = getattr(parsl.launchers, found["launcher"])(debug=False)
    return found


def _make(make: Callable[..., Any], given: Mapping[str, Any]) -> ExecutionProvider:
    known = inspect.signature(make).parameters
    try:
        found: ExecutionProvider = make(**{name: value for name, value in given.items() if name in known})
        return found
    except Exception as error:
        # whatever a provider checks: types, commands that must be there, connections
        raise ExecutionError(f"Parsl's {make.__name__} does not take this: {error}") from error


def _launch_command(settings: ParslSettings, stop: Path) -> str:
    # braces are for Parsl's format; of them a path has none
    python = shlex.quote(settings.python or sys.executable)
    command = f"{python} -m {_PILOT} {shlex.quote(str(stop))} {_GONE}"
    return str(DEFAULT_LAUNCH_CMD.replace("process_worker_pool.py", command, 1))


def _environment() -> list[str]:
    """Return the shell lines that give a pilot what it needs to know of this process."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    threads = " ".join(f'{name}="${{{name}:-1}}"' for name in THREADS)
    return [
        f"unset {' '.join(_SECRETS)}",
        f"export PYTHONPATH={shlex.quote(path)}",
        f"export {threads}",
    ]


def _drain_period(walltime: str | None) -> int | None:
    """Return the seconds after which a pilot takes no more tasks, ``None`` if it always does."""
    if walltime is None:
        return None
    hours, minutes, seconds = (int(part) for part in walltime.split(":"))
    whole = hours * 3600 + minutes * 60 + seconds
    left = whole - min(max(_DRAIN[0], whole // 10), _DRAIN[1])
    return left if left > 0 else None


def _addresses() -> set[str]:
    """Return the IPv4 addresses of this host, as its own interfaces tell them."""
    return {
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family.name == "AF_INET"
    }


def _describe_failure(status: JobStatus) -> str:
    """Return what is known of a pilot that failed, in a few lines."""
    said = (status.message, status.stderr_summary, status.stdout_summary)
    code = None if status.exit_code is None else f"exit code {status.exit_code}"
    return "\n".join(part.strip() for part in (code, *said) if part) or "no output"


def _gone(error: Exception | None) -> str:
    return f"Parsl has given up: {error}"
