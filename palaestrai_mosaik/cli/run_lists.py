"""Tables of a design's runs in the output of commands.

Separate from :mod:`.tables`, so that commands without a design need not import the design modules.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.model import INACTIVE, Factor
from palaestrai_mosaik.arsenai.execution import RunStatus
from palaestrai_mosaik.core.text import count, listed

from .common import store_option
from .output import compose, quiet, say, say_unless_quiet, status
from .tables import first_line, number, table

_LISTED = 20
_WIDTH = 60
#: maximum number of settings listed for a reason of failure
_NUMBERS = 5
#: descriptions of runs that are not executed
_LEFT_OUT = {
    RunStatus.FINISHED: "finished before",
    RunStatus.FAILED: "failed before (arsenai resume executes them again)",
    RunStatus.TIMED_OUT: "reached the time limit of their task (arsenai resume executes them again)",
    RunStatus.OUT_OF_MEMORY: "ran out of memory (arsenai resume executes them again)",
    RunStatus.QUEUED: "the cluster has queued",
    RunStatus.RUNNING: "another process executes",
    RunStatus.WAITING: "nobody has started",
    RunStatus.INTERRUPTED: "were interrupted",
    RunStatus.NODE_FAILED: "were on a node that failed",
    RunStatus.CANCELLED: "were cancelled",
    RunStatus.PRUNED: "a search stopped early",
    RunStatus.SKIPPED: "a search did not start",
    RunStatus.LOST: "were lost",
}


def print_left_out(before: Mapping[RunStatus, int]) -> None:
    """Print how many runs are not executed, by reason."""
    for state, which in _LEFT_OUT.items():
        if before.get(state):
            say_unless_quiet(f"left out: {count(before[state], 'run')} that {which}")


def print_failures(failures: Sequence[Mapping[str, Any]], reasons: Sequence[str] = ()) -> None:
    """Print a table of failed runs, and further ``reasons`` of failures; with ``--quiet``, on standard error."""
    if failures or reasons:
        say(compose(status("failed", error=quiet()), ":"), error=quiet())
    if failures:
        list_runs(failures, error=quiet())
    for line in reasons:
        say(line, error=quiet())


def list_runs(items: Iterable[Mapping[str, Any]], *, error: bool = False) -> None:
    """Print a table with a row for each of the first runs and a column for each key."""
    runs = list(items)
    rows = [[_cell(value) for value in item.values()] for item in runs[:_LISTED]]
    say(table(list(runs[0]), rows, indent="  "), error=error)
    if len(runs) > _LISTED:
        say(f"  and {len(runs) - _LISTED:,} more: see arsenai status", error=error)


def reason_lines(reasons: Mapping[int, str], listed_runs: Iterable[str]) -> Iterator[str]:
    """Yield the reasons of failed settings, grouped, up to a maximum number.

    ``reasons`` has the reasons by setting. Those about ``listed_runs``, which were already printed, are skipped.
    """
    prefixes = tuple(f"run {run}: " for run in listed_runs)
    grouped: dict[str, list[int]] = {}
    for setting, why in reasons.items():
        if not prefixes or not why.startswith(prefixes):
            grouped.setdefault(why, []).append(setting)
    for why, numbers in list(grouped.items())[:_LISTED]:
        yield f"  setting{'s' * (len(numbers) > 1)} {listed(numbers, _NUMBERS)}: {first_line(why, 2 * _WIDTH)}"
    if len(grouped) > _LISTED:
        yield f"  and {len(grouped) - _LISTED:,} more reasons: see search/settings.csv in the folder"


def _cell(value: Any) -> Any:
    return first_line(value, _WIDTH) if isinstance(value, str) and "\n" in value else value


def factors_of(folder: DesignFolder, values: Mapping[str, Any]) -> str:
    """Return the factors of a row on one line, with the labels of levels."""
    parts = []
    for factor in folder.spec.factors:
        value = factor_value(factor, values[factor.name])
        if value is None:
            continue
        parts.append(f"{factor.name}={number(value) if isinstance(value, float) else value}")
    return first_line(" ".join(parts), _WIDTH)


def factor_value(factor: Factor, value: Any) -> Any:
    """Return the value of a factor for tables: the label of a level, or ``None`` if the factor is inactive."""
    if value is INACTIVE or (value is None and None not in factor.levels):
        return None
    if factor.choice is None and factor.levels:
        levels = zip(factor.levels, factor.labels, strict=True)
        # compare types, too: True equals 1, but is another level
        return next(label for level, label in levels if type(level) is type(value) and level == value)
    return value


def arguments(folder: Path, store: str | None = None) -> str:
    """Return the arguments of a suggested command for a design's folder and its store."""
    return f"{shlex.quote(short_path(folder))}{store_option(store)}"


def short_path(path: Path) -> str:
    """Return ``path`` relative to the working directory if it is inside."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
