"""Which tests have run in any of several environments, and which in none.

Continuous integration runs the suite in several environments, each with other parts at hand (a bare
checkout, all extras and services, no extra at all, beside palaestrAI). ``pytest --outcomes FILE`` appends
to ``FILE`` what ran and what was skipped; ``--unrun`` leaves out what an earlier run has run already, so
that nothing runs twice. In the end no test may have been skipped everywhere:

    python tests/support/outcomes.py FILE

names those that were, each with its reason, and exits with 1 if there are any but those that need what continuous
integration cannot have (``UNAVAILABLE``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: reasons of tests that may be skipped everywhere: why continuous integration does not have what they need
UNAVAILABLE = {
    "PALAESTRAI_MOSAIK_TEST_MOSAIK names no checkout of mosaik": (
        "mosaik's own tests are in its repository only; no distribution on a package registry has them"
    ),
}


@dataclass
class Outcomes:
    """Tests by their ids. A module that was skipped as a whole has the path of its file, a folder its path."""

    ran: set[str] = field(default_factory=set)
    #: id -> reason
    skipped: dict[str, str] = field(default_factory=dict)
    #: id -> how long the test took with its fixtures; of those that ran
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Outcomes:
        """Read what runs have written; a file that is not there yet holds nothing."""
        found = cls()
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            run: Mapping[str, Any] = json.loads(line)
            found.ran |= set(run["ran"])
            found.skipped |= run["skipped"]
            for test, seconds in run["seconds"].items():
                found.seconds[test] = max(seconds, found.seconds.get(test, 0.0))
        return found

    def append_to(self, path: Path) -> None:
        """Append this run as one line."""
        with path.open("a", encoding="utf-8") as file:
            seconds = {test: round(self.seconds[test], 3) for test in self.seconds if test in self.ran}
            run = {"ran": sorted(self.ran), "skipped": self.skipped, "seconds": seconds}
            file.write(json.dumps(run) + "\n")

    def add(self, report: Any) -> None:
        """Take the report of a test, or of the collection of a module."""
        if hasattr(report, "duration"):
            self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            self.skipped[report.nodeid] = str(reason)
        elif getattr(report, "when", "collect") == "call" or report.failed:
            self.ran.add(report.nodeid)

    def unrun(self) -> dict[str, str]:
        """Return what was skipped and has not run anywhere, with a reason."""
        places = {place for test in self.ran for place in _places(test)}
        return {test: reason for test, reason in self.skipped.items() if test not in places}


def _places(test: str) -> Iterator[str]:
    """Yield the id of a test, and those of its module and folders."""
    yield test
    file = Path(test.partition("::")[0])
    yield from (place.as_posix() for place in (file, *file.parents))


def _excuse(reason: str) -> str | None:
    return next((why for unavailable, why in UNAVAILABLE.items() if unavailable in reason), None)


def main(path: str) -> int:
    """Print the tests that were skipped in every environment; return the exit code."""
    outcomes = Outcomes.read(Path(path))
    unrun = outcomes.unrun()
    excused = {test: why for test, reason in unrun.items() if (why := _excuse(reason))}
    for test, why in sorted(excused.items()):
        print(f"cannot run here: {test}: {why}")
    for test, reason in sorted(unrun.items()):
        if test not in excused:
            print(f"skipped everywhere: {test}: {reason}")
    count = len(unrun) - len(excused)
    print(
        f"{len(outcomes.ran)} tests have run, {count} were skipped everywhere"
        + (f", {len(excused)} cannot run here" if excused else "")
    )
    return 1 if count or not outcomes.ran else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
