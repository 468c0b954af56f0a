"""The options of the race, and the order of its measurements: A B A B, round after round."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from . import documents, failures, limits, machine, report
from .contestants import Contestant, Ours, PalaestrAI, install
from .session import Session

PARTS = ("runs", "designs", "failures", "limits")
#: seconds after which a command is ended, with all its processes
LIMIT = 240.0


@dataclass(frozen=True)
class Case:
    """A run document of the race; ``only`` for one side, ``quick`` if it is in the short race, too."""

    name: str
    make: Callable[[int], dict[str, Any]]
    stored: bool = True
    only: str = ""
    quick: bool = False
    #: how much longer than the race's documents
    factor: int = 1


TURNS = partial(documents.dummy, controller="TakingTurns")
DUMMY = "2 agents, vanilla, with store"
CASES = (
    Case(DUMMY, documents.dummy, quick=True),
    Case("2 agents, vanilla, without store", documents.dummy, stored=False, quick=True),
    Case("2 agents, taking turns, with store", TURNS),
    Case("2 agents, taking turns, without store", TURNS, stored=False),
    Case("8 agents, 10 sensors each, with store", documents.crowd),
    Case("mosaik world, with store", documents.mosaik_world, quick=True),
    # a rate over a tenth of a second says little: what only one side can do in the time
    Case(f"{DUMMY}, long", documents.dummy, only=Ours.name, quick=True, factor=50),
    Case("8 agents, 10 sensors each, with store, long", documents.crowd, only=Ours.name, factor=25),
    Case("mosaik world, with store, long", documents.mosaik_world, only=Ours.name, factor=25),
    Case("mosaik world, described, with store", documents.described_world, only=Ours.name),
    Case("mosaik world, described, with store, long", documents.described_world, only=Ours.name, factor=25),
)


def main(arguments: list[str] | None = None) -> int:
    """Run the race; 0 if all that was asked for ran."""
    options = parse(arguments)
    begun = time.time()
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    work = output / "race-work"
    shutil.rmtree(work, ignore_errors=True)
    session = Session(work, LIMIT)
    theirs, ours = PalaestrAI(Path()), Ours(Path())
    theirs.python, ours.python = interpreters(options, session)
    sides: tuple[Contestant, Contestant] = (theirs, ours)
    work.mkdir()
    found: dict[str, Any] = {
        "machine": machine.describe(),
        "begun": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begun)),
        "load_before": machine.load().told(),
        "versions": {side.name: side.versions(work) for side in sides},
        "repeats": options.repeat,
        "steps": options.steps,
    }
    if options.quick:
        session.note("a short race: one round, few steps; its figures are trials")
    if found["load_before"]["in_use"] > machine.BUSY:
        session.note("the machine was busy before the race began")
    asked = set(options.only or PARTS)
    found["runs"] = races(session, sides, options) if "runs" in asked else []
    found["designs"] = designs(session, sides, options) if "designs" in asked else []
    found["failures"] = planted(session, sides, found["runs"]) if "failures" in asked else {}
    found["limits"] = bounds(session, ours, options) if "limits" in asked else []
    for part in sorted(set(PARTS) - asked):
        session.note(f"{part}: not asked for")
    found |= {"load_after": machine.load().told(), "seconds": time.time() - begun, "notes": session.notes}
    for file in report.write(found, output, theirs.name, ours.name):
        session.say(f"wrote {file}")
    if not options.keep:
        shutil.rmtree(work)
    measured = [*found["runs"], *found["designs"]]
    return 0 if all(one["ok"] for one in measured) else 1


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(
        prog="race", description="Race palaestrAI and this package, in turn, on the same documents."
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "palaestrai-mosaik-race"
    parser.add_argument("--output", type=Path, default=Path("race-results"), help="folder for the results")
    parser.add_argument("--cache", type=Path, default=cache, help=f"of the virtual environments ({cache})")
    parser.add_argument("--peer-python", type=Path, help="an interpreter that has palaestrAI: make none")
    parser.add_argument("--our-python", type=Path, help="an interpreter that has this package: make none")
    parser.add_argument("--repeat", type=int, default=3, help="rounds (3)")
    parser.add_argument("--steps", type=int, default=150, help="environment steps of a document (150)")
    parser.add_argument("--quick", action="store_true", help="one round of few cases with 60 steps")
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--keep", action="store_true", help="keep the folders of all runs (OUTPUT/race-work)")
    options = parser.parse_args(arguments)
    if sys.platform != "linux":
        parser.error("processes are watched through Linux's /proc")
    if options.quick:
        options.repeat, options.steps = 1, 60
    if options.repeat < 1 or options.steps < 2:
        parser.error("--repeat needs at least 1, --steps at least 2")
    return options


def interpreters(options: argparse.Namespace, session: Session) -> tuple[Path, Path]:
    """Return the interpreters of both sides: those given, others from the cache."""
    given = (options.peer_python, options.our_python)
    made = (None, None)
    if None in given:
        made = install(options.cache.resolve(), Path(sys.executable), session.say)
    # not resolved: an interpreter of a virtual environment is a link
    theirs, ours = (Path(os.path.abspath(g)) if g else m for g, m in zip(given, made, strict=True))
    return theirs, ours


def races(
    session: Session, sides: tuple[Contestant, ...], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Run all documents, round after round, both sides in turn."""
    found = []
    for number in range(options.repeat):
        for case in CASES:
            if options.quick and not case.quick:
                session.note(f"{case.name}: not in the short race")
                continue
            for side in sides:
                if case.only and side.name != case.only:
                    continue
                steps = options.steps * case.factor
                one = session.case(side, case.name, case.make(steps), steps, case.stored)
                rate = f"{one['steps_per_s']:.0f} steps/s" if one["ok"] else "failed"
                session.say(
                    f"round {number + 1} of {options.repeat}: {case.name}: {side.name}: {rate},"
                    f" {one['seconds']:.1f} s, {one['peak_mb']:.0f} MB"
                )
                found.append({"round": number, **one})
    return found


def designs(
    session: Session, sides: tuple[Contestant, ...], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Generate the same designs on both sides: the small ones in every round, the largest one once."""
    found = []
    for number in range(options.repeat):
        for factors in (2, 3, 4):
            largest = factors == 4
            if largest and (options.quick or number > 0):
                if options.quick:
                    session.note("design of 10,000 runs: not in the short race")
                continue
            for side in sides:
                one = session.design(side, documents.design(factors), documents.LEVELS**factors)
                session.say(f"{one['case']}: {side.name}: {one['seconds']:.1f} s")
                found.append({"round": number, **one})
    return found


def planted(
    session: Session, sides: tuple[Contestant, ...], runs: list[dict[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """Plant errors, and compare the runs of one document with each other."""
    outcomes, seeds = [], []
    for side in sides:
        for outcome in failures.planted(session, side, steps=60):
            session.say(
                f"{outcome.case}: {side.name}: exit code {outcome.exit_code}, store: {outcome.status}"
            )
            outcomes.append(outcome.told())
        digests = [
            one["digest"] for one in runs if one["case"] == DUMMY and one["side"] == side.name and one["ok"]
        ]
        seeds.append(failures.same_seed(side, digests))
        if len(digests) < 2:
            session.note(f"{side.name}: equal seeds were not compared; that takes two rounds")
    return {"planted": outcomes, "same_seed": seeds}


def bounds(session: Session, ours: Ours, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure our own upper bounds."""
    folder = session.folder(ours, "limits")
    session.say("our own limits")
    found = limits.measure(ours, folder, *((1000, 1) if options.quick else (4000, 3)))
    for one in found:
        if "error" in one:
            session.note(f"{one['name']} did not run: {one['error']}")
    return [one for one in found if "error" not in one]
