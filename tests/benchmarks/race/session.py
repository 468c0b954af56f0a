"""One race: where its files lie, and how a document or a design is run and measured."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import figures, machine
from .contestants import CLOCK, DOCUMENT, Contestant, last_words, size_of
from .measure import Usage, run


@dataclass
class Session:
    """Runs commands in folders of their own below ``root``, none for longer than ``limit`` seconds."""

    root: Path
    limit: float
    notes: list[str] = field(default_factory=list)
    _begun: float = field(default_factory=time.monotonic)
    _count: int = 0

    def say(self, text: str) -> None:
        """Print a line of progress."""
        print(f"[{time.monotonic() - self._begun:6.0f} s] {text}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Keep a remark for the report, and print it; what was said already is not said again."""
        if text not in self.notes:
            self.notes.append(text)
            self.say(f"note: {text}")

    def folder(self, side: Contestant, case: str) -> Path:
        """Return a new folder."""
        self._count += 1
        name = re.sub(r"\W+", "-", case)
        folder = self.root / f"{self._count:03d}-{side.parts}-{name}"
        folder.mkdir(parents=True)
        return folder

    def execute(
        self,
        side: Contestant,
        folder: Path,
        document: dict[str, Any],
        *,
        stored: bool,
        kill: Callable[[], bool] | None = None,
    ) -> Usage:
        """Run a document; its database is made before, outside of the measurement."""
        # JSON is YAML
        (folder / DOCUMENT).write_text(json.dumps(document, indent=1), encoding="utf-8")
        side.prepare(folder, stored)
        return self._watched(side, folder, side.start(stored), kill)

    def case(
        self, side: Contestant, case: str, document: dict[str, Any], steps: int, stored: bool
    ) -> dict[str, Any]:
        """Run a document and return the measurement, ready for JSON."""
        folder = self.folder(side, case)
        side.prepare(folder, stored)
        before = side.results(folder).size if stored else 0
        loaded = machine.load()
        if loaded.busy:
            self.note(
                "other work kept the machine busy; the column before_in_use of the CSV says when and how much"
            )
        usage = self.execute(side, folder, document, stored=stored)
        found: dict[str, Any] = {
            "side": side.name,
            "case": case,
            "steps": steps,
            "stored": stored,
            **_told(usage),
            **{f"before_{key}": value for key, value in loaded.told().items()},
            **{f"after_{key}": value for key, value in machine.load().told().items()},
        }
        clock = folder / CLOCK
        if clock.is_file():
            ended = usage.began + usage.seconds
            found |= figures.clock_of(clock.read_text(encoding="utf-8"), usage.began, ended)
        if stored:
            results = side.results(folder)
            found |= {
                "bytes_per_step": (results.size - before) / steps,
                **{"status": results.status, "rows": results.rows, "digest": results.digest},
            }
        found["ok"] = usage.returncode == 0 and "steps_per_s" in found
        if not found["ok"]:
            self.note(f"{side.name}, {case}: {failure(usage, self.limit)}")
        return found

    def design(self, side: Contestant, design: dict[str, Any], count: int) -> dict[str, Any]:
        """Let a side generate a design of ``count`` runs, and return the measurement."""
        case = f"design of {count:,} runs"
        folder = self.folder(side, case)
        (folder / "design.yml").write_text(json.dumps(design, indent=1), encoding="utf-8")
        side.prepare(folder, False)
        loaded = machine.load()
        usage = self._watched(side, folder, side.generate("design.yml"))
        made = folder / "generated"
        documents = len([*made.rglob("*run-*.yml"), *made.rglob("runs/*.yml")])
        found = {
            **{"side": side.name, "case": case, "documents": documents, "bytes": size_of([made])},
            **_told(usage),
            **{f"before_{key}": value for key, value in loaded.told().items()},
            "ok": usage.returncode == 0 and documents == count,
        }
        if not found["ok"]:
            self.note(f"{side.name}, {case}: {documents} documents; {failure(usage, self.limit)}")
        return found

    def _watched(
        self,
        side: Contestant,
        folder: Path,
        command: list[str | Path],
        kill: Callable[[], bool] | None = None,
    ) -> Usage:
        return run(command, folder=folder, environment=side.environment(folder), limit=self.limit, kill=kill)


def failure(usage: Usage, limit: float) -> str:
    """Say why a command does not count."""
    if usage.timed_out:
        return f"ended after {limit:.0f} s, the limit"
    return f"exit code {usage.returncode}: {last_words(usage.output)}"


def _told(usage: Usage) -> dict[str, Any]:
    return {
        "exit_code": usage.returncode,
        "seconds": usage.seconds,
        "cpu_s": usage.cpu_seconds,
        "peak_mb": usage.peak_mb,
        "peak_rss_mb": usage.peak_rss_mb,
        "processes": usage.processes,
        "left": len(usage.left),
        "timed_out": usage.timed_out,
    }
