"""Speed and memory of ``arsenai generate``: seconds for 10,000 documents, each design in its own process.

* ``parameters``: four parameters of two dummy agents, 10 sensors each, at random;
* ``sensors``: the same with 300 sensors each;
* ``schedule``: a full factorial of agents, sensor sets and phase configurations in arsenAI's form,
  no two documents of one structure;
* ``episodes``: a number that the check of documents looks at, another one in every document;
* ``repetitions``: a tenth of the rows of ``parameters``, ten times each.

``s``: CPU seconds for a new folder, the median of ``--repeat``; ``again``: for a folder that
is there and unchanged; ``verify``: to see that no file was edited; ``MB``: growth of the resident
memory while generating, and with a tenth of the documents.

    python tests/benchmarks/generate.py [--documents 10000] [--repeat 3] [DESIGN ...]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.samplers import sample

DUMMY = "palaestrai.agent.dummy"
ENVIRONMENT = {
    "uid": "myenv",
    "name": "palaestrai.environment.dummy_environment:DummyEnvironment",
    "params": {},
}
VANILLA = "palaestrai.simulation:VanillaSimController"
RUN = {"condition": {"name": "palaestrai.experiment:VanillaRunGovernorTerminationCondition", "params": {}}}
SIMULATION = {"name": VANILLA, "conditions": [{"name": f"{VANILLA}TerminationCondition", "params": {}}]}
#: alternatives of each of the four factors of ``schedule``
MOST = 10


def agent(name: str, **keys: Any) -> dict[str, Any]:
    """Return a dummy agent."""
    parts = {
        part: {"name": f"{DUMMY}_{part}:Dummy{part.title()}", "params": {"gain": 0}}
        for part in ("brain", "muscle", "objective")
    }
    return {"name": name, **parts, **keys}


def varied(documents: int, sensors: int, **keys: Any) -> dict[str, Any]:
    """Return a design that varies parameters of a run document."""
    ids = [f"myenv.{i}" for i in range(sensors)]
    agents = [agent(name, sensors=ids, actuators=ids) for name in "ab"]
    config = {"mode": "train", "workers": 1, "episodes": 1}
    phase = {
        "environments": [{"environment": ENVIRONMENT}],
        "agents": agents,
        "simulation": SIMULATION,
        "phase_config": config,
    }
    factors = {
        f"{name}_{part}": {"path": f"schedule.phase_0.agents.{name}.{part}.params.gain", "low": 0, "high": 1}
        for name in "ab"
        for part in ("muscle", "objective")
    }
    return {
        **{"uid": "bench", "seed": 1, "version": "3.5", "factors": factors},
        "base": {"version": "3.5", "schedule": [{"phase_0": phase}], "run_config": RUN},
        "sampler": {"name": "random", "n": documents},
        **keys,
    }


def schedule(documents: int) -> dict[str, Any]:
    """Return a full factorial of alternatives in arsenAI's form."""
    levels = [1, 1, 1, 1]
    while levels[0] * levels[1] * levels[2] * levels[3] < documents and min(levels) < MOST:
        levels[levels.index(min(levels))] += 1
    partners, sets, places, configs = (
        [f"{what}_{i}" for i in range(n)]
        for what, n in zip(("b", "set", "place", "config"), levels, strict=True)
    )
    return {
        **{"uid": "bench", "seed": 1, "version": "3.5.5", "repetitions": 1, "max_runs": 10**6},
        "definitions": {
            "environments": {"env": {"environment": ENVIRONMENT}},
            "agents": {name: agent(f"agent_{name}") for name in ("a", *partners)},
            "sensors": {name: {"myenv": list(range(i, i + 10))} for i, name in enumerate(sets)},
            "actuators": {name: {"myenv": list(range(i, i + 10))} for i, name in enumerate(places)},
            "simulation": {"vanilla": SIMULATION},
            "phase_config": {
                name: {"mode": "train", "worker": 1, "episodes": 1 + i} for i, name in enumerate(configs)
            },
            "run_config": RUN,
        },
        "schedule": [
            {
                "phase_0": {
                    "environments": [["env"]],
                    "agents": [["a", name] for name in partners],
                    "simulation": ["vanilla"],
                    "phase_config": configs,
                    "sensors": {"a": sets, **dict.fromkeys(partners, sets[:1])},
                    "actuators": {"a": places, **dict.fromkeys(partners, places[:1])},
                }
            }
        ],
    }


def designs(documents: int) -> dict[str, dict[str, Any]]:
    """Return all designs by name."""
    episodes = varied(documents, 10)
    episodes["factors"]["episodes"] = {
        **{"path": "schedule.phase_0.phase_config.episodes", "type": "int", "low": 1, "high": 10**9}
    }
    return {
        "parameters": varied(documents, 10),
        "sensors": varied(documents, 300),
        "schedule": schedule(documents),
        "episodes": episodes,
        "repetitions": varied(documents // 10, 10, repetitions=10),
    }


def measure(name: str, documents: int) -> None:
    """Generate a design and print what it took as JSON."""
    design = Design.from_mapping(designs(documents)[name])
    sample(design.spec)  # libraries that samplers load are no growth
    with tempfile.TemporaryDirectory() as directory:
        # a first folder, so that the code's own memory is not counted
        Design.from_mapping(designs(10)[name]).generate(Path(directory, "small"))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = process_time()
        written = design.write(Path(directory, "new"))
        done = process_time()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        folder = design.generate(written.path)
        again = process_time()
        assert not folder.verify()
        verified = process_time() - again
        result = {"seconds": done - begun, "again": again - done, "verify": verified, "grown": grown / 1024}
        print(json.dumps({**result, "documents": len(folder.documents)}))


def measured(name: str, documents: int) -> dict[str, float]:
    """Return what generating takes in a process of its own."""
    command = [sys.executable, __file__, "--documents", str(documents), "--child", name]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(out)
    return result


def main() -> None:
    """Print a line per design."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("designs", nargs="*", metavar="DESIGN")
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        measure(arguments.child, arguments.documents)
        return
    print(
        f"{'design':20}{'documents':>10}{'s':>9}{'spread':>16}{'again':>9}{'verify':>9}{'MB':>9}{'(tenth)':>9}"
    )
    for name in arguments.designs or designs(1):
        runs = [measured(name, arguments.documents) for _ in range(arguments.repeat)]
        small = measured(name, arguments.documents // 10)
        median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        seconds = [run["seconds"] for run in runs]
        print(
            f"{name:20}{int(median['documents']):10,}{median['seconds']:9.2f}"
            f"{f'{min(seconds):.2f} to {max(seconds):.2f}':>16}{median['again']:9.2f}{median['verify']:9.2f}"
            f"{median['grown']:9.1f}{small['grown']:9.1f}"
        )


if __name__ == "__main__":
    main()
