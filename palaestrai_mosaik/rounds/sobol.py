"""Doubles a Sobol' sample until the intervals of all indices are narrow enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestrai_mosaik.analysis import Results, SensitivityResult, sensitivity
from palaestrai_mosaik.analysis.sensitivity import is_constant
from palaestrai_mosaik.design.samplers import sample
from palaestrai_mosaik.design.samplers.sobol import largest_n, wanted_interval, wanted_outcomes, with_n

from .decision import Decision

#: indices of pairs need far more rows; they are as wide as they are
_INDICES = ("S1", "ST")


def decide_sobol(results: Results) -> Decision:
    """Return whether the indices are known well enough, or the sample with twice as many blocks."""
    spec, drawn = results.spec, results.folder.sample
    n = int(drawn.arguments["n"])
    wanted, most = wanted_interval(spec), largest_n(spec)
    found = sensitivity(results, ("sobol",), wanted_outcomes(spec) or None)
    measured: dict[str, Any] = {"rows": len(drawn.unit), "n": n, **_widest(results, found)}
    width = measured["interval"]
    if width is not None and width <= wanted:
        return Decision(measured, f"all intervals are within ±{wanted:g}")
    if 2 * n > most:
        return Decision(measured, f"n has reached {most:,} (max_n)")
    larger = sample(with_n(spec, 2 * n))
    return Decision(measured, sample=larger, drawn=len(larger.unit))


def _widest(results: Results, found: Sequence[SensitivityResult]) -> dict[str, Any]:
    """Return the widest interval, as its half-width, and of which index it is.

    An outcome that is the same in all runs has no indices to wait for. Where indices cannot be computed, the width is
    ``None``: more rows may help.
    """
    widest: dict[str, Any] = {"interval": 0.0}
    frame = results.outcomes()
    for one in found:
        if one.refused:
            y = frame[one.outcome].to_numpy(dtype=float)
            y = y[np.isfinite(y)]
            if len(y) and is_constant(y):
                continue
            return {"interval": None, "outcome": one.outcome, "refused": one.refused}
        rows = one.frame[one.frame["index"].isin(_INDICES)]
        for row in rows.to_dict("records"):
            width = float(row["high"] - row["value"])
            if not math.isfinite(width):
                return {
                    "interval": None,
                    "outcome": one.outcome,
                    "refused": f"{row['index']} has no interval",
                }
            if width > widest["interval"]:
                widest = {
                    "interval": width,
                    "index": row["index"],
                    "factor": row["factor"],
                    "outcome": one.outcome,
                }
    return widest
