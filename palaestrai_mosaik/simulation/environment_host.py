"""A mosaik simulator that steps one environment: what runs in the other interpreter of a document's ``interpreter``.

It needs little there: numpy, ``mosaik-api-v3``, and what the environment itself imports. The other side is
:mod:`.remote_environment`, but any mosaik scenario can start it (``python -m
palaestrai_mosaik.simulation.environment_host %(addr)s``). A step without set-points begins an episode.
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

from palaestrai_mosaik.environment.environment import Environment, World
from palaestrai_mosaik.errors import (
    ContractError,
    NameResolutionError,
    PalaestraiMosaikError,
    SimulationError,
    did_you_mean,
)
from palaestrai_mosaik.importing import (
    check_origin,
    load,
    load_entry_point,
    misfit,
    only_modules,
    raised_at,
)

from .remote_values import decoded, decoded_generator, encoded, encoded_baseline, encoded_state

MODEL, STATE, SETPOINTS = "Environment", "state", "setpoints"
#: what can be asked for beside mosaik's own requests
EXTRA_METHODS = ("setup", "begin", "render", "keep", "restore", "close")
#: where short names of installed packages are registered
_REGISTERED = "palaestrai_mosaik.environment"
#: seconds from one look at whether the process that has started this one is there to the next
_LOOK = 1.0


class EncodedError(Exception):
    """What users' code raised, as JSON: releases of mosaik's API differ in what they tell of an exception."""

    def __init__(self, error: BaseException):
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        lines = traceback.format_exception(type(error), error, trace)
        described = {
            "type": type(error).__name__,
            "ours": isinstance(error, PalaestraiMosaikError),
            "message": str(error),
            "place": raised_at(error),
            "traceback": "".join(lines).rstrip(),
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
        super().__init__(
            {
                "api_version": "3.0",
                "type": "time-based",
                "models": {
                    MODEL: {
                        "public": True,
                        "params": ["uid", "name", "params", "step_size", "frames"],
                        "attrs": [STATE, SETPOINTS],
                    }
                },
                "extra_methods": list(EXTRA_METHODS),
            }
        )
        self._environment: Environment
        self._who = "an environment"
        self._state: Any = None
        self._open = ExitStack()

    def init(
        self, sid: str, time_resolution: float = 1.0, allowed: Sequence[str] | None = None, **params: Any
    ) -> Any:
        """Begin; ``allowed``: the modules of which a document may name something."""
        self._open.enter_context(only_modules(allowed))
        return self.meta

    @_encode_errors
    def create(self, num: int, model: str, **params: Any) -> Any:
        """Make the environment of the class ``name`` (``params``, ``uid``, ``step_size``, ``frames``: it is to be rendered)."""
        name, uid, keywords = params["name"], params["uid"], decoded(params["params"])
        found = _class_of(name)
        fault = misfit(found, keywords)
        if fault is not None:
            raise ContractError(f"{name!r} does not take these params: {fault}")
        self._environment = found(**keywords)
        self._environment.uid = uid
        self._who = f"environment {uid!r}"
        if params.get("step_size") is not None:
            self._environment.step_size = params["step_size"]
        if params.get("frames"):
            self._environment.enable_frames()
        return [{"eid": uid, "type": MODEL}]

    @_encode_errors
    def setup(self) -> Any:
        """Set the environment up; return what it offers."""
        environment = self._environment
        environment.baseline = environment.setup()
        return {
            "baseline": encoded_baseline(environment.baseline, self._who),
            "step_size": int(environment.step_size),
            "ends": bool(environment.ends),
            "hold_setpoints": bool(environment.hold_setpoints),
            "without_effect": dict(environment.without_effect),
        }

    def begin(self, worker: int, episode: int, generator: Any) -> None:
        """Note the episode that the next reset begins, and its random generator."""
        environment = self._environment
        environment.worker, environment.episode = worker, episode
        environment.rng = decoded_generator(generator)

    @_encode_errors
    def step(self, time: int, inputs: Mapping[str, Any], max_advance: int) -> int:
        """Step the environment with the set-points of ``inputs``; without any, reset it."""
        environment = self._environment
        given = inputs.get(environment.uid, {}).get(SETPOINTS)
        self._state = None
        if given is None:
            state = environment.reset()
        else:
            (value,) = given.values()
            setpoints = decoded(value)
            setpoints.flags.writeable = False
            state = environment.step(setpoints)
        self._state = encoded_state(state, self._who)
        return time + environment.step_size

    def get_data(self, outputs: Mapping[str, Sequence[str]]) -> Any:
        """Return the newest state."""
        return {self._environment.uid: {STATE: self._state}}

    @_encode_errors
    def render(self) -> Any:
        """Return a picture of the newest state, if there is one."""
        return encoded(self._environment.render(), f"{self._who}: its frame")

    @_encode_errors
    def keep(self) -> str | None:
        """Return what of the environment lasts from episode to episode; nobody else reads it."""
        state = self._environment.state()
        return None if state is None else base64.b64encode(pickle.dumps(state)).decode("ascii")

    @_encode_errors
    def restore(self, state: str) -> None:
        """Go on from what :meth:`keep` returned. It has been in a checkpoint, which is signed."""
        self._environment.restore(pickle.loads(base64.b64decode(state)))

    @_encode_errors
    def close(self) -> None:
        """Shut the environment down."""
        self._environment.shutdown()


def _class_of(name: str) -> type[Environment]:
    """Return the class of an environment that can be stepped here."""
    if ":" in name:
        found = load(name)
    else:
        registered = {entry.name: entry for entry in entry_points(group=_REGISTERED)}
        if name not in registered:
            raise NameResolutionError(
                f"{name!r} is no short name of an environment that a package here has registered"
                f"{did_you_mean(name, registered)}"
            )
        found = load_entry_point(registered[name])
        check_origin(found, registered[name].value)
    if not (inspect.isclass(found) and issubclass(found, World)):
        raise ContractError(f"{name} is no World, so it cannot be an environment")
    if not issubclass(found, Environment):
        raise ContractError(
            f"{name} is a co-simulation or a batch; an interpreter of its own is for an environment that is one class "
            "(Environment). Simulators of a co-simulation are started in another interpreter by 'cmd'"
        )
    return found


def _end_with(parent: int) -> None:
    """End this process, and those that it has started, when the process ``parent`` has ended."""
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
    # what older releases of the API tell of themselves is no news; newer ones are silent unless they are asked
    logger: Any = getattr(mosaik_api_v3, "logger", None)
    if logger is not None:
        logger.disable(mosaik_api_v3.__name__)
    known = inspect.signature(mosaik_api_v3.start_simulation).parameters
    silent = {"configure_logging": False} if "configure_logging" in known else {}
    # whoever has started this process is gone
    with suppress(EndOfRequests):
        mosaik_api_v3.start_simulation(EnvironmentHost(), "One environment of a run document.", **silent)


if __name__ == "__main__":
    main()
