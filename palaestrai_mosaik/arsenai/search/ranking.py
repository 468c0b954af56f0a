"""The ranking of a search's settings, and the confirmation of the best ones with fresh seeds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.expansion import run_file
from palaestrai_mosaik.arsenai.design.folder import CONFIRM, DesignFolder
from palaestrai_mosaik.arsenai.design.model import DesignSpec, OutcomeSpec
from palaestrai_mosaik.arsenai.design.search import sought
from palaestrai_mosaik.arsenai.design.settings import SettingRecord
from palaestrai_mosaik.arsenai.execution.job import write_file
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ExecutionError
from palaestrai_mosaik.core.seeding import integer_seed

#: the number of best settings to show, and the limit on confirmed ones
BEST, FRONT = 3, 5


def direction(outcome: OutcomeSpec) -> str:
    """Return Optuna's name of an outcome's better direction."""
    return "minimize" if outcome.better == "lower" else "maximize"


def cost(value: float, outcome: OutcomeSpec) -> float:
    """Return the value of an outcome, with the sign at which lower is better."""
    return value if outcome.better == "lower" else -value


def is_better(value: float, other: float, outcome: OutcomeSpec) -> bool:
    """Whether ``value`` is better than ``other``."""
    return cost(value, outcome) < cost(other, outcome)


def ranked(spec: DesignSpec, records: Sequence[SettingRecord]) -> list[SettingRecord]:
    """Return the best settings, the best first: :data:`BEST` for one objective, the Pareto front for several.

    Settings that repeat earlier ones do not count.
    """
    outcomes = sought(spec)
    complete = [record for record in records if record.state == "complete" and record.first is None]
    costs = {record.number: list(map(cost, record.values, outcomes)) for record in complete}
    ordered = sorted(complete, key=lambda record: (costs[record.number], record.number))
    if len(outcomes) == 1:
        return ordered[:BEST]
    return [
        record
        for record in ordered
        if not any(_dominates(others, costs[record.number]) for others in costs.values())
    ]


def best_pruned(spec: DesignSpec, records: Sequence[SettingRecord]) -> list[SettingRecord]:
    """Return the pruned settings to confirm, in the order of their last reports."""
    assert spec.search is not None
    pruned = [
        record for record in records if record.state == "pruned" and record.values and record.first is None
    ]
    pruned.sort(key=lambda record: (cost(record.values[0], sought(spec)[0]), record.number))
    return pruned[: spec.search.confirm_pruned]


def _dominates(costs: Sequence[float], others: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(costs, others, strict=True)) and list(costs) != list(others)


#: the settings of the confirming design's rows, and the document of the winner
ROWS, WINNER = "search/confirmed.csv", "search/winner.yml"


def make_confirming(spec: DesignSpec, path: Path, records: Sequence[SettingRecord]) -> DesignFolder | None:
    """Generate the design that confirms the best settings of a finished search, or None without any."""
    assert spec.search is not None
    chosen = [*ranked(spec, records)[:FRONT], *best_pruned(spec, records)]
    if not spec.search.confirm or not chosen:
        return None
    folder = confirming_design(spec, path, [record.number for record in chosen]).generate(
        path / CONFIRM, force=True
    )
    lines = "".join(f"{row},{record.number}\n" for row, record in enumerate(chosen))
    write_file(path / ROWS, f"row,setting\n{lines}", durable=False)
    return folder


def confirming_design(spec: DesignSpec, path: Path, numbers: Sequence[int]) -> Design:
    """Return the design that executes the settings ``numbers`` of the search in ``path`` with its own seeds."""
    assert spec.search is not None
    folder = DesignFolder.open(path)
    unit, values = folder.sample.unit, folder.values()
    # The design's analysis is for all settings of the search, not for the best few.
    data: dict[str, Any] = {
        key: value for key, value in spec.resolved.items() if key not in ("search", "output")
    }
    data["analysis"] = {
        key: value for key, value in data.get("analysis", {}).items() if key in ("confidence", "resamples")
    }
    # Compare by the factors that differ.
    data["analysis"]["compare"] = [
        factor.name
        for factor in spec.factors
        if len({repr(values[number][factor.name]) for number in numbers}) > 1
    ]
    data |= {
        "uid": f"{spec.uid}-confirm",
        "seed": integer_seed(spec.seed, "confirm"),
        "repetitions": spec.search.confirm,
        "sampler": {
            "name": "points",
            "unit": True,
            "columns": [axis.name for axis in spec.axes],
            "rows": [unit[number].tolist() for number in numbers],
        },
    }
    return Design.from_mapping(data, source=f"the best settings of {spec.uid!r}")


def confirmed_rows(path: Path) -> tuple[DesignFolder, list[int]] | None:
    """Return the confirming design of the search in ``path``, and the setting of each of its rows; None if missing.

    Raises :class:`DocumentError` if the folder is there and cannot be opened (it may be a link).
    """
    try:
        lines = files.read_text(path / ROWS).splitlines()[1:]
    except FileNotFoundError:
        return None
    if not os.path.lexists(path / CONFIRM):
        return None
    return DesignFolder.open(path / CONFIRM), [int(line.partition(",")[2]) for line in lines]


def write_winner(path: Path, spec: DesignSpec, number: int | None) -> str | None:
    """Write the run document of the setting ``number`` with its first seed.

    Args:
        path: the folder of the search.
        spec: the design of the search.
        number: the number of the winner; ``None``: remove the document of an earlier winner.

    Returns:
        The name of the document in the folder, or None.
    """
    try:
        if number is None:
            files.remove(path / WINNER, missing_ok=True)
            return None
        text = files.read_text(path / run_file(spec.uid, number, 0))
        files.write_text(path / WINNER, text, durable=False)
    except OSError as error:
        raise ExecutionError(f"cannot write {path / WINNER}: {error.strerror}") from error
    return WINNER
