"""An environment that paints its state into its frames, so that tests read the numbers back."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from support.documents import agent, environment, phase

from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation

UNIT = Box(0.0, 1.0, shape=())
#: pixels of a frame: rows and columns
HEIGHT, WIDTH = 6, 8
NAME = "support.painted:Painted"


class Painted(Environment):
    """A random level, which its frames show.

    Args:
        steps: after so many, it terminates.
        frame: what its frames are: "painted", "none" of them, or one that breaks the contract ("flat", "floats", "text").
        broken: while there is such a file, step 2 of episode 3 fails.
        log: a file to which each rendering adds a line.
        seconds: that a step takes.
    """

    def __init__(
        self,
        steps: int = 4,
        frame: str = "painted",
        broken: str | None = None,
        log: str | None = None,
        seconds: float = 0.0,
    ):
        self.seconds = seconds
        self.steps, self.frame = steps, frame
        self.broken, self.log = broken, log

    def setup(self) -> EnvironmentBaseline:
        return EnvironmentBaseline(
            [SensorInformation(0.0, UNIT, "level")],
            [ActuatorInformation(0.0, UNIT, "push")],
            [RewardInformation(0.0, UNIT, "gain")],
        )

    def reset(self) -> EnvironmentState:
        self.done = 0
        return self._state()

    def step(self, setpoints: npt.NDArray[Any]) -> EnvironmentState:
        self.done += 1
        time.sleep(self.seconds)
        if self.broken is not None and self.episode == 3 and self.done == 2 and Path(self.broken).exists():
            raise RuntimeError("it is broken")
        return self._state()

    def _state(self) -> EnvironmentState:
        self.level = float(self.rng.integers(256)) / 255
        return EnvironmentState(np.array([self.level]), [self.level], terminated=self.done >= self.steps)

    def render(self) -> Any:
        if self.log is not None:
            with open(self.log, "a", encoding="utf-8") as log:
                log.write(f"{self.worker} {self.episode} {self.done}\n")
        wrong = {
            "none": None,
            "flat": np.zeros((3, 3), np.uint8),
            "floats": np.zeros((3, 3, 3)),
            "text": "a picture",
        }
        if self.frame in wrong:
            return wrong[self.frame]
        return painted(self.done, self.episode, round(self.level * 255))


class Unseen(Painted):
    """One that has no pictures."""

    render = Environment.render


def painted(step: int, episode: int, level: int) -> npt.NDArray[np.uint8]:
    """Return the frame of a state: step, episode and level (0 to 255) in all pixels but one, which is white."""
    frame = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    frame[:] = step, episode, level
    frame[1, 2] = 255
    return frame


def decoded(png: bytes) -> npt.NDArray[np.uint8]:
    """Return the numbers of a PNG image."""
    from PIL import Image

    image = Image.open(io.BytesIO(png))
    assert image.mode == "RGB"
    return np.asarray(image)


def painted_phase(frames: Any = True, name: str = NAME, **config: Any) -> dict[str, Any]:
    """Return a phase with the environment; ``params`` are its own, ``interpreter`` is that of its entry."""
    entry = environment("world", name, **config.pop("params", {}))
    if frames is not None:
        entry["frames"] = frames
    if "interpreter" in config:
        entry["environment"]["interpreter"] = config.pop("interpreter")
    one = agent("a", uid="world", sensors=["world.level"], actuators=["world.push"])
    one |= {"muscle": "random", "brain": None, "objective": None}
    one.pop("brain")
    one.pop("objective")
    return phase([entry], [one], **{"mode": "test", "episodes": 4, **config})
