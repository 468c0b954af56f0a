"""Options of ``pandapower.runpp`` that are stored in ``net.user_pf_options``.

Options that change the solution stay in the net, where pandapower finds them. Options that only affect the solver
are removed: every power flow is solved to the same tolerance, from the same start, by the fastest solver.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any

from palaestrai_mosaik.core.errors import did_you_mean
from palaestrai_mosaik.core.text import shorten

logger = logging.getLogger(__name__)

_FLAG = (True, False)
#: options that change the solution -> allowed values
_MODEL: dict[str, tuple[Any, ...]] = {
    "calculate_voltage_angles": (True, False, "auto"),
    "trafo_model": ("t", "pi"),
    "trafo_loading": ("current", "power"),
    "trafo3w_losses": ("hv", "mv", "lv", "star"),
    "enforce_q_lims": _FLAG,
    "enforce_p_lims": _FLAG,
    "voltage_depend_loads": _FLAG,
    "consider_line_temperature": _FLAG,
    "distributed_slack": _FLAG,
    "neglect_open_switch_branches": _FLAG,
    "tdpf": _FLAG,
    "tdpf_update_r_theta": _FLAG,
}
#: numeric options that change the solution -> smallest value
_MODEL_NUMBERS = {"switch_rx_ratio": 0.0, "delta_q": 0.0, "tdpf_delay_s": 0.0}
_NEWTON = ("nr", "iwamoto_nr")
_ALGORITHMS = (*_NEWTON, "bfsw", "gs", "fdbx", "fdxb")
_STARTS = ("auto", "flat", "dc", "results")
#: options that affect only the solver: memory of the last state, tolerances, libraries
_SOLVER = (
    *("tolerance_mva", "check_connectivity", "recycle", "only_v_results", "run_control", "numba"),
    *("lightsim2grid", "use_umfpack", "permc_spec", "v_debug", "init_vm_pu", "init_va_degree"),
)
#: options that, if true, need more than admittances and constant powers in the equations
_UNCOVERED = {
    "enforce_q_lims": "reactive power limits of generators",
    "enforce_p_lims": "active power limits of generators",
    "distributed_slack": "a distributed slack",
    "tdpf": "lines whose resistance depends on their load",
}


def keep_model_options(net: Any) -> Iterator[str]:
    """Remove the options of ``net`` that do not change the solution, and yield faults of the others."""
    options = net.get("user_pf_options")
    if options is None:
        return
    if not isinstance(options, dict):
        yield f"user_pf_options are a {type(options).__name__}; allowed is a mapping"
        return
    names = [*_MODEL, *_MODEL_NUMBERS, "algorithm", "init", "max_iteration", *_SOLVER]
    kept = {}
    for key, value in options.items():
        if key not in names:
            yield (
                f"user_pf_options: {shorten(repr(key), 40)} is no option of an AC power flow"
                f"{did_you_mean(key, names)}; allowed are {', '.join(names)}"
            )
            continue
        allowed = _allowed(key, value)
        if allowed:
            yield f"user_pf_options: {key} is {shorten(repr(value), 40)}; allowed is {allowed}"
        elif _acts(key, value, options):
            kept[key] = value
        else:
            logger.info("the net's option %s has no effect: power flows are solved in one way", key)
    if kept.get("distributed_slack"):
        # with some releases of lightsim2grid, pandapower fails on a distributed slack
        kept["lightsim2grid"] = False
    net["user_pf_options"] = kept


def uncovered_options(net: Any) -> list[str]:
    """List the features that options of ``net`` request and that the fast power flow lacks."""
    options = net.get("user_pf_options") or {}
    features = [words for key, words in _UNCOVERED.items() if options.get(key)]
    if options.get("trafo_loading") == "power" and len(net.trafo):
        features.append("the loading of transformers by power")
    return features


def _allowed(key: str, value: Any) -> str:
    """Return the allowed values of ``key``, or ``""`` if ``value`` is allowed."""
    if key in _SOLVER:
        return ""
    if key == "max_iteration":
        sound = value == "auto" or (type(value) is int and value > 0)
        return "" if sound else "'auto' or a whole number above 0"
    if key in _MODEL_NUMBERS:
        sound = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return (
            "" if sound and value >= _MODEL_NUMBERS[key] else f"a number of at least {_MODEL_NUMBERS[key]:g}"
        )
    values = {"algorithm": _ALGORITHMS, "init": _STARTS}.get(key) or _MODEL[key]
    sound = any(type(value) is type(choice) and value == choice for choice in values)
    return "" if sound else " or ".join(map(repr, values))


def _acts(key: str, value: Any, options: dict[str, Any]) -> bool:
    if key in ("algorithm", "max_iteration"):
        return options.get("algorithm", "nr") in _NEWTON
    return key not in _SOLVER and (key, value) != ("init", "results")
