"""A mosaik simulator that steps one environment, in the other interpreter of a document's ``interpreter``.

It only needs numpy, ``mosaik-api-v3``, and the imports of the environment itself. The other side is
:mod:`.remote_environment`, but any mosaik scenario can start it (``python -m
palaestrai_mosaik.simulation.environment_host %(addr)s``). A step without set-points starts an episode.
"""

from __future__ import annotations

import base64
import functools
import inspect
import json
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.metadata import entry_points
from typing import Any

import mosaik_api_v3
from mosaik_api_v3.connection import EndOfRequests

from palaestrai_mosaik.core.errors import (
    ContractError,
    NameResolutionError,
    PalaestraiMosaikError,
    SimulationError,
    did_you_mean,
    format_traceback,
)
from palaestrai_mosaik.core.importing import (
    broken_overrides,
    check_origin,
    load,
    load_entry_point,
    misfit,
    only_modules,
    raised_at,
)
from palaestrai_mosaik.core.printing import abridge
from palaestrai_mosaik.environment.environment import Environment, World
from palaestrai_mosaik.environment.faults import baseline_faults, refusal, step_size_faults

from .remote_values import decoded, decoded_generator, encoded, encoded_baseline, encoded_state

MODEL, STATE, SETPOINTS = "Environment", "state", "setpoints"
#: requests besides mosaik's own
EXTRA_METHODS = ("setup", "begin", "render", "keep", "restore", "close")
#: entry point group with the short names of installed packages
_REGISTERED = "palaestrai_mosaik.environment"
#: seconds between two checks whether the parent process exists
_LOOK = 1.0


class EncodedError(Exception):
    """An exception of users' code as JSON, since releases of mosaik's API send different details."""

    def __init__(self, error: BaseException):
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        lines = traceback.TracebackException(type(error), error, trace)
        described = {
            "type": type(error).__name__,
            "ours": isinstance(error, PalaestraiMosaikError),
            "message": abridge(str(error)),
            "place": raised_at(error),
            "traceback": format_traceback(lines).rstrip(),
        }
        super().__init__(json.dumps(described))


def _encode_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            raise EncodedError(error) from error
        except BaseException as error:
            # it would end this process instead of the run
            mended = SimulationError(f"an environment raised {error!r}")
            raise EncodedError(mended) from error

    return wrapper


class EnvironmentHost(mosaik_api_v3.Simulator):
    """Makes one environment, sets it up and steps it."""

    def __init__(self) -> None:
        params = ["uid", "name", "params", "step_size", "frames"]
        model = {"public": True, "params": params, "attrs": [STATE, SETPOINTS]}
        meta = {"api_version": "3.0", "type": "time-based", "models": {MODEL: model}}
        super().__init__({**meta, "extra_methods": list(EXTRA_METHODS)})
        self._environment: Environment
        self._who = "an environment"
        self._state: Any = None
        self._open = ExitStack()

    def init(
        self, sid: str, time_resolution: float = 1.0, allowed: Sequence[str] | None = None, **params: Any
    ) -> Any:
        """Initialise; ``allowed``: the modules that a document may name classes from."""
        self._open.enter_context(only_modules(allowed))
        return self.meta

    @_encode_errors
    def create(self, num: int, model: str, **params: Any) -> Any:
        """Make the environment; keywords are ``name`` (its class), ``params``, ``uid``, ``step_size``, ``frames``."""
        name, uid, keywords = params["name"], params["uid"], decoded(params["params"])
        environment_class = _class_of(name)
        fault = misfit(environment_class, keywords)
        if fault is not None:
            raise ContractError(f"{name!r} does not take these params: {fault}")
        for fault in broken_overrides(environment_class, World):
            raise ContractError(f"{name!r}: {fault}")
        self._environment = environment_class(**keywords)
        self._environment.uid = uid
        self._who = f"environment {uid!r} ({name})"
        if params.get("step_size") is not None:
            self._environment.step_size = params["step_size"]
        if params.get("frames"):
            self._environment.enable_frames()
        return [{"eid": uid, "type": MODEL}]

    @_encode_errors
    def setup(self) -> Any:
        """Set the environment up and return its baseline."""
        environment = self._environment
        environment.baseline = environment.setup()
        faults = [*baseline_faults(environment.baseline), *step_size_faults(environment.step_size)]
        if faults:
            raise refusal(f"{self._who}, setup", faults)
        return {
            "baseline": encoded_baseline(environment.baseline, self._who),
            "step_size": int(environment.step_size),
            "ends": bool(environment.ends),
            "hold_setpoints": bool(environment.hold_setpoints),
            "without_effect": dict(environment.without_effect),
        }

    def begin(self, worker: int, episode: int, generator: Any) -> None:
        """Store the episode that the next reset starts, and its random generator."""
        environment = self._environment
        environment.worker, environment.episode = worker, episode
        environment.rng = decoded_generator(generator)

    @_encode_errors
    def step(self, time: int, inputs: Mapping[str, Any], max_advance: int) -> int:
        """Step the environment with the set-points of ``inputs``; without any, reset it."""
        environment = self._environment
        sent = inputs.get(environment.uid, {}).get(SETPOINTS)
        self._state = None
        if sent is None:
            state = environment.reset()
        else:
            (value,) = sent.values()
            setpoints = decoded(value)
            setpoints.flags.writeable = False
            state = environment.step(setpoints)
        self._state = encoded_state(state, f"{self._who}, {'step' if sent else 'reset'}")
        return time + environment.step_size

    def get_data(self, outputs: Mapping[str, Sequence[str]]) -> Any:
        """Return the newest state."""
        return {self._environment.uid: {STATE: self._state}}

    @_encode_errors
    def render(self) -> Any:
        """Return a picture of the newest state, if any."""
        return encoded(self._environment.render(), f"{self._who}: its frame")

    @_encode_errors
    def keep(self) -> str | None:
        """Return the state that outlasts episodes, as text that only :meth:`restore` reads."""
        state = self._environment.state()
        return None if state is None else base64.b64encode(pickle.dumps(state)).decode("ascii")

    @_encode_errors
    def restore(self, state: str) -> None:
        """Continue from the result of :meth:`keep`. It comes from a checkpoint, which is signed."""
        self._environment.restore(pickle.loads(base64.b64decode(state)))

    @_encode_errors
    def close(self) -> None:
        """Shut the environment down."""
        self._environment.shutdown()


def _class_of(name: str) -> type[Environment]:
    """Return the class of an environment that can be stepped here."""
    if ":" in name:
        environment_class = load(name)
    else:
        registered = {entry.name: entry for entry in entry_points(group=_REGISTERED)}
        if name not in registered:
            raise NameResolutionError(
                f"{name!r} is no short name of an environment that a package here has registered"
                f"{did_you_mean(name, registered)}"
            )
        environment_class = load_entry_point(registered[name])
        check_origin(environment_class, registered[name].value)
    if not (inspect.isclass(environment_class) and issubclass(environment_class, World)):
        raise ContractError(f"{name} is no World, so it cannot be an environment")
    if not issubclass(environment_class, Environment):
        raise ContractError(
            f"{name} is a co-simulation or a batch; an interpreter of its own is for an environment that is one class "
            "(Environment). Simulators of a co-simulation are started in another interpreter by 'cmd'"
        )
    return environment_class


def _end_with(parent: int) -> None:
    """End this process and its children when the process ``parent`` has ended."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def main() -> None:
    """Run the simulator of one environment for the mosaik at the address in ``sys.argv``."""
    if os.name == "posix":
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # older releases of the API log about themselves; newer ones are silent by default
    logger: Any = getattr(mosaik_api_v3, "logger", None)
    if logger is not None:
        logger.disable(mosaik_api_v3.__name__)
    parameters = inspect.signature(mosaik_api_v3.start_simulation).parameters
    silent = {"configure_logging": False} if "configure_logging" in parameters else {}
    # the process that started this one has ended
    with suppress(EndOfRequests):
        mosaik_api_v3.start_simulation(EnvironmentHost(), "One environment of a run document.", **silent)


if __name__ == "__main__":
    main()
