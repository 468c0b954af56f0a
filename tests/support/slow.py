"""The tests that take long, which ``make test`` leaves out: ``tests/slow.txt`` and how it is written.

A test function is slow if its cases take more than :data:`CASE` seconds on average, or more than :data:`FUNCTION` seconds
together. Where a file has only such functions, its quickest one is not slow unless it takes longer than
:data:`FUNCTION`, so that ``make test`` runs something of each file.

To measure again, run all tests with ``--outcomes FILE`` (on an idle machine, with each extra and service), and then

    python -m tests.support.slow FILE
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from .outcomes import Outcomes

#: the slow functions: on each line the seconds of all cases, and the id
FILE = Path(__file__).parents[1] / "slow.txt"
#: seconds
CASE, FUNCTION = 0.7, 5.0


@cache
def slow_tests() -> dict[str, float]:
    """Return the ids of the slow test functions, with the seconds that all their cases take."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return {name: float(seconds) for seconds, name in (line.split(maxsplit=1) for line in lines)}


def slow_among(seconds: Mapping[str, float]) -> dict[str, float]:
    """Choose the slow functions.

    Args:
        seconds: of each case of each test, by its id.

    Returns:
        The seconds of each slow function, by its id; the longest first.
    """
    cases: dict[str, list[float]] = defaultdict(list)
    for case, taken in seconds.items():
        cases[case.partition("[")[0]].append(taken)
    total = {name: sum(taken) for name, taken in cases.items()}
    slow = {name for name, taken in cases.items() if total[name] > min(CASE * len(taken), FUNCTION)}
    files: dict[str, list[str]] = defaultdict(list)
    for name in cases:
        files[name.partition("::")[0]].append(name)
    for names in files.values():
        quickest = min(names, key=lambda name: (total[name], name))
        if slow.issuperset(names) and total[quickest] <= FUNCTION:
            slow.discard(quickest)
    return {name: total[name] for name in sorted(slow, key=lambda name: (-total[name], name))}


def main(path: str) -> None:
    """Write the list from the outcomes in the file ``path``."""
    slow = slow_among(Outcomes.read(Path(path)).seconds)
    FILE.write_text("".join(f"{taken:.1f} {name}\n" for name, taken in slow.items()), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
