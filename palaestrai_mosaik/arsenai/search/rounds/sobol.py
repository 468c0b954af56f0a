"""Doubles a Sobol' sample until the intervals of all indices are narrow enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestrai_mosaik.arsenai.analysis import Results, SensitivityResult, sensitivity
from palaestrai_mosaik.arsenai.analysis.sensitivity import is_constant
from palaestrai_mosaik.arsenai.design.folder import refuse
from palaestrai_mosaik.arsenai.design.methods.significance import NOISE
from palaestrai_mosaik.arsenai.design.samplers import sample
from palaestrai_mosaik.arsenai.design.samplers.sobol import (
    largest_n,
    wanted_interval,
    wanted_outcomes,
    with_n,
)

from .decision import Decision

#: indices with a required precision; those of pairs would need far more rows
_INDICES = ("S1", "ST")


def decide_sobol(results: Results) -> Decision:
    """Decide whether the indices are precise enough, or double the number of blocks.

    Raises:
        DocumentError: another version drew the sample.
    """
    spec, drawn = results.spec, results.folder.sample
    n = int(drawn.arguments["n"])
    target, most = wanted_interval(spec), largest_n(spec)
    indices = sensitivity(results, ("sobol",), wanted_outcomes(spec) or None)
    measured: dict[str, Any] = {"rows": len(drawn.unit), "n": n, **_widest(results, indices)}
    width = measured["interval"]
    if width is not None and width <= target:
        return Decision(measured, f"all intervals are within ±{target:g}")
    if 2 * n > most:
        return Decision(measured, f"n has reached {most:,} (max_n)")
    larger = sample(with_n(spec, 2 * n))
    if not np.array_equal(larger.unit[: len(drawn.unit)], drawn.unit):
        refuse(
            results.folder.path,
            "another version has drawn the rows of this folder, and this one draws others: they cannot be continued. "
            "Generate the design into another folder (-o), or leave until out",
        )
    return Decision(measured, sample=larger, drawn=len(larger.unit))


def _widest(results: Results, indices: Sequence[SensitivityResult]) -> dict[str, Any]:
    """Return the half-width of the widest interval, and its index.

    An outcome that is constant over all runs has no indices to wait for. If indices cannot be computed, the
    half-width is set to None, because more rows may help.
    """
    widest: dict[str, Any] = {"interval": 0.0}
    frame = results.outcomes()
    for result in indices:
        if result.refused:
            y = frame[result.outcome].to_numpy(dtype=float)
            y = y[np.isfinite(y)]
            if len(y) and is_constant(y):
                continue
            return {"interval": None, "outcome": result.outcome, "refused": result.refused}
        # the share of noise has no interval
        rows = result.frame[result.frame["index"].isin(_INDICES) & (result.frame["factor"] != NOISE)]
        for row in rows.to_dict("records"):
            # the upper end of ST is at most 1
            width = float(max(row["high"] - row["value"], row["value"] - row["low"]))
            if not math.isfinite(width):
                return {
                    "interval": None,
                    "outcome": result.outcome,
                    "refused": f"{row['index']} has no interval",
                }
            if width > widest["interval"]:
                widest = {
                    "interval": width,
                    "index": row["index"],
                    "factor": row["factor"],
                    "outcome": result.outcome,
                }
    return widest
