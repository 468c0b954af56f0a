"""Renders the states of an environment that a document asks frames of, beside the recording of its rows.

The frames hang on the stream of rows: an environment without frames has its stream and nothing else, and
no step of it costs anything.
"""

from __future__ import annotations

import io
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.environment.environment import World
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.types.rows import EnvironmentRows

from .environment_handle import EnvironmentHandle, EnvironmentStream

#: zlib's: images of environments have few colours, and a run must not wait for a better compression
_COMPRESSION = 4


class FrameSink(Protocol):
    """Where frames are recorded (see ``store.frame_stream``)."""

    def append(self, *row: Any) -> None:
        """Add a frame: worker, episode, step, time, episode of the environment, PNG image."""


class RenderedStream:
    """The stream of an environment's rows, which renders some of the states that are recorded.

    Rendered are every ``step_every``-th state of an episode, and the one with which the environment ends.
    Of a batched environment, they are those of the first incarnation.
    """

    def __init__(
        self, stream: EnvironmentStream, frames: FrameSink, handle: EnvironmentHandle, step_every: int
    ):
        self._stream = stream
        self._frames = frames
        self._domain = handle.domain
        self._every = step_every
        #: the environment's episode that has ended last
        self._over = -1

    def append(self, *row: Any, **columns: Any) -> None:
        """Record a state, and render it if its turn has come."""
        self._stream.append(*row, **columns)
        worker, episode, step, time, _, _, terminated, truncated, _, _, environment_episode = row
        self._render(worker, episode, step, time, environment_episode, terminated or truncated)

    def append_rows(self, rows: EnvironmentRows) -> None:
        """Record the states of all incarnations, and render that of the first one if its turn has come."""
        self._stream.append_rows(rows)
        over = bool(rows.terminated[0] or rows.truncated[0])
        environment_episode = int(rows.environment_episode[0])
        if not (over and environment_episode == self._over):
            self._render(rows.worker, rows.episode, rows.step, rows.time, environment_episode, over)

    def _render(
        self, worker: int, episode: int, step: int, time: int, environment_episode: int, over: bool
    ) -> None:
        if over:
            self._over = environment_episode
        if not over and step % self._every:
            return
        frame = checked_frame(self._domain)
        if frame is not None:
            self._frames.append(worker, episode, step, time, environment_episode, as_png(frame))


def checked_frame(domain: World) -> npt.NDArray[np.uint8] | None:
    """Return the picture of the newest state of ``domain``, if there is one.

    Raises:
        ContractError: it is no uint8 array (height, width, 3).
    """
    frame = domain.render()
    if frame is None:
        return None
    if (
        not isinstance(frame, np.ndarray)
        or frame.dtype != np.uint8
        or frame.ndim != 3
        or frame.shape[2] != 3
        or not frame.size
    ):
        found = (
            f"{frame.dtype} of shape {frame.shape}"
            if isinstance(frame, np.ndarray)
            else f"a {type(frame).__name__}"
        )
        raise ContractError(
            f"environment {domain.uid!r} rendered {found}; a frame is a uint8 array (height, width, 3)"
        )
    return frame


def as_png(frame: npt.NDArray[np.uint8]) -> bytes:
    """Return a frame (height, width, 3) as a PNG image, which holds each of its numbers."""
    # (runs without frames import nothing)
    from PIL import Image

    image = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(frame)).save(image, "PNG", compress_level=_COMPRESSION)
    return image.getvalue()
