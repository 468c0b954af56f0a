"""Renders states of environments for which a document requests frames, while their rows are recorded.

The frames are attached to the stream of rows, so that environments without frames have no
overhead.
"""

from __future__ import annotations

import io
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment.environment import World
from palaestrai_mosaik.types.arrays import EnvironmentRows

from .environment_handle import EnvironmentHandle, EnvironmentSink

#: zlib level: images of environments have few colours, and a run must not wait for better compression
_COMPRESSION = 4


class FrameSink(Protocol):
    """A recorder of frames (see ``store.frame_stream``)."""

    def append(self, *row: Any) -> None:
        """Add a frame: worker, episode, step, time, episode of the environment, PNG image."""


class RenderedStream:
    """A stream of an environment's rows that renders some of the recorded states.

    It renders every ``step_every``-th state of an episode, and the environment's last one.
    In a batched environment, these are states of the first incarnation.
    """

    def __init__(
        self, stream: EnvironmentSink, frames: FrameSink, handle: EnvironmentHandle, step_every: int
    ):
        self._stream = stream
        self._frames = frames
        self._domain = handle.domain
        self._every = step_every
        #: the environment's last finished episode
        self._over = -1

    def append(self, *row: Any, **columns: Any) -> None:
        """Record a state, and render it if it is due."""
        self._stream.append(*row, **columns)
        worker, episode, step, time, _, _, terminated, truncated, _, _, environment_episode = row
        self._render(worker, episode, step, time, environment_episode, terminated or truncated)

    def append_rows(self, rows: EnvironmentRows) -> None:
        """Record the states of all incarnations, and render that of the first one if it is due."""
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
    """Return the picture of the newest state of ``domain``, if any.

    Raises:
        ContractError: it is not a uint8 array (height, width, 3).
    """
    frame: npt.NDArray[np.uint8] | None = domain.render()
    if frame is None:
        return None
    is_array = isinstance(frame, np.ndarray)
    if not is_array or frame.dtype != np.uint8 or frame.shape[2:] != (3,) or not frame.size:
        description = f"{frame.dtype} of shape {frame.shape}" if is_array else f"a {type(frame).__name__}"
        raise ContractError(
            f"environment {domain.uid!r} rendered {description}; a frame is a uint8 array (height, width, 3)"
        )
    return frame


def as_png(frame: npt.NDArray[np.uint8]) -> bytes:
    """Encode a frame (height, width, 3) as a lossless PNG image."""
    # imported here, because runs without frames do not need it
    from PIL import Image

    image = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(frame)).save(image, "PNG", compress_level=_COMPRESSION)
    return image.getvalue()
