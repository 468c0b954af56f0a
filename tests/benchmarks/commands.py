"""How long each command takes: the table of docs/cli.md.

Each command runs in a process of its own, in a folder with the documents of this repository; the CPU time is that of the
process and of all that it starts. The first run of a grid parses it, later ones read a cache. Wall-clock time is printed with
``--wall``: on an idle machine it is close to the CPU time, except for ``arsenai run``, which uses all cores.

    python tests/benchmarks/commands.py [--repeat 3] [--wall]

The smallest run: ``--repeat 1 --only check``.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

ROOT = Path(__file__).parents[2]

#: row of the table -> command, in an order in which each finds the files of those before it
COMMANDS = {
    "`check` of two dummy agents": "palaestrai-mosaik check scenarios/dummy.yml",
    "`start` of the same, 40 steps": "palaestrai-mosaik start scenarios/dummy.yml",
    "`start` of a building: 212 days in steps of 15 minutes": "palaestrai-mosaik start scenarios/building.yml",
    "`start` of a day on the CIGRE grid, four phases": "palaestrai-mosaik start scenarios/cigre_mv_day.yml",
    "`list`": "palaestrai-mosaik list",
    "`show latest`": "palaestrai-mosaik show latest",
    "`plot latest`": "palaestrai-mosaik plot latest --output plot.png",
    "`theatre latest`": "palaestrai-mosaik theatre latest --output run.html",
    "`verify --all`": "palaestrai-mosaik verify --all",
    "`arsenai plan` of 12 runs": "arsenai plan study.yml",
    "`arsenai generate`": "arsenai generate study.yml",
    "`arsenai run`": "arsenai run",
    "`arsenai analyse`": "arsenai analyse",
    "`arsenai compare`": "arsenai compare",
    "`arsenai report`": "arsenai report",
}

_STUDY = """\
uid: study
seed: 42
base: scenarios/dummy.yml
repetitions: 2
factors:
  length: {path: schedule.train.environments.myenv.environment.params.max_iter, levels: [5, 10, 20], ordered: true}
  order: {path: schedule.train.simulation.name, levels: {together: vanilla, in turns: taking_turns}}
outcomes:
  reward: {of: objective, phase: train, agent: mighty_defender, better: higher}
"""


def seconds(command: str, folder: Path) -> tuple[float, float]:
    """Return CPU and wall-clock time of a command."""
    program, rest = command.split(" ", 1) if " " in command else (command, "")
    words = ["-m", "palaestrai_mosaik", *(["arsenai"] if program == "arsenai" else []), *rest.split()]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, ended - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="commands that contain this text")
    parser.add_argument("--wall", action="store_true", help="wall-clock time, too")
    arguments = parser.parse_args()
    chosen = {name: command for name, command in COMMANDS.items() if arguments.only in command}
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in chosen}
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    for _ in range(arguments.repeat):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            shutil.copytree(ROOT / "scenarios", folder / "scenarios")
            (folder / "study.yml").write_text(_STUDY, encoding="utf-8")
            for name, command in chosen.items():
                measured[name].append(seconds(command, folder))
    print("| command | CPU time |" + (" wall-clock time |" if arguments.wall else ""))
    print("|---|---:|" + ("---:|" if arguments.wall else ""))
    for name, times in measured.items():
        cpu, wall = (median(one) for one in zip(*times, strict=True))
        print(f"| {name} | {cpu:.1f} s |" + (f" {wall:.1f} s |" if arguments.wall else ""))


if __name__ == "__main__":
    main()
