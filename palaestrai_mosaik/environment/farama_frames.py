"""Frames of Gymnasium's environments and PettingZoo's games: the render mode, and a trial rendering."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import ContractError, RenderError
from palaestrai_mosaik.core.importing import raised_at

#: the render mode in which ``render`` returns a uint8 array (height, width, 3)
RGB_ARRAY = "rgb_array"


def with_render_mode(kwargs: Mapping[str, Any], uid: str) -> dict[str, Any]:
    """Return ``kwargs`` of the environment ``uid`` with the render mode ``rgb_array``.

    Raises:
        RenderError: ``kwargs`` request another render mode.
    """
    mode = kwargs.get("render_mode", RGB_ARRAY)
    if mode != RGB_ARRAY:
        raise RenderError(
            f"environment {uid!r} cannot render frames with render_mode {mode!r}: leave render_mode out of its kwargs, "
            f"or make it {RGB_ARRAY!r}"
        )
    return {**kwargs, "render_mode": RGB_ARRAY}


def try_to_render(make: Callable[[Mapping[str, Any]], Any], kwargs: Mapping[str, Any], who: str) -> None:
    """Render one frame of a separate environment, so that the one in use does not change.

    Args:
        make: makes the environment with keywords.
        kwargs: keywords with the render mode ``rgb_array``.
        who: names the environment in messages.

    Raises:
        RenderError: the environment cannot render frames.
        ContractError: the environment cannot be made, even without a render mode.
    """
    what = f"{who} cannot render frames"
    try:
        environment = make(kwargs)
    except ContractError as error:
        # without the render mode, this raises any error that has nothing to do with frames
        make({key: value for key, value in kwargs.items() if key != "render_mode"}).close()
        raise RenderError(f"{what}: with render_mode {RGB_ARRAY!r}, {error}") from error
    try:
        modes = list((environment.metadata or {}).get("render_modes") or ())
        if RGB_ARRAY not in modes:
            raise RenderError(
                f"{what}: it does not have the render mode {RGB_ARRAY!r}, only: {', '.join(map(str, modes)) or 'none'}. "
                "Remove 'frames' from its entry, or choose another environment"
            )
        environment.reset(seed=0)
        frame = environment.render()
    except RenderError:
        raise
    except Exception as error:
        raise RenderError(f"{what}: {raised_at(error)}") from error
    finally:
        environment.close()
    if not isinstance(frame, np.ndarray):
        raise RenderError(f"{what}: its render() returned {type(frame).__name__}, and no array")
