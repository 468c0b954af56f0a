"""Writes ``golden.json``: how palaestrAI itself runs ``golden.yml``.

Run it where palaestrAI 3.5.18 is installed (this package need not be)::

    python tests/peer/make_golden.py
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def rows(database: str) -> Iterator[dict[str, Any]]:
    """Yield what every agent did in every step, and what came of it."""
    query = """
        SELECT p.uid, a.name, m.episode, m.simtimes, m.sensor_readings, m.applied_actuator_setpoints, m.rewards,
               m.objective, m.done
        FROM muscle_actions m JOIN agents a ON m.agent_id = a.id
        JOIN experiment_run_phases p ON a.experiment_run_phase_id = p.id ORDER BY m.id
    """
    columns = (
        "phase",
        "agent",
        "episode",
        "simtimes",
        "readings",
        "setpoints",
        "rewards",
        "objective",
        "done",
    )
    for values in sqlite3.connect(database).execute(query):
        row = dict(zip(columns, values, strict=True))
        for key in ("readings", "setpoints", "rewards"):
            states = [info["py/state"] for info in json.loads(row[key])]
            row[key] = {state["uid"]: state["value"] for state in states}
        (time,) = json.loads(row.pop("simtimes")).values()
        yield {**row, "time": time["simtime_ticks"]}


def main() -> None:
    """Run the document on palaestrAI in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        database = f"{folder}/golden.db"
        Path(folder, "runtime.yml").write_text(f"store_uri: sqlite:///{database}\n", encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        for command in (["database-create"], ["experiment-start", str(HERE / "golden.yml")]):
            program = [str(Path(sys.executable).with_name("palaestrai")), "-c", "runtime.yml", *command]
            subprocess.run(program, cwd=folder, env=environment, check=True, timeout=300)
        found = list(rows(database))
    (HERE / "golden.json").write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
