"""How much a search saves against random search, and what it costs beside its runs.

::

    python tests/benchmarks/search.py share --searches 10
    python tests/benchmarks/search.py overhead --settings 100 --repeat 3

``share``: for each task and sampler, the share of random search's environment steps with which the sampler has reached
the best outcome of random search, median over the searches (and their range); ``more`` where it has not within as many
steps. Both go through the whole chain: documents, runs, store, journal. Tasks: Hartmann's function of six parameters,
and the seven parameters of the controllers of ``designs/cigre_search.yml`` (needs the extra ``grid``).

``overhead``: milliseconds of wall-clock time per setting of a whole search, of the same runs executed as a design, and of
Optuna alone in a loop with the same journal, and in memory.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from palaestrai_mosaik.design import Design
from palaestrai_mosaik.design.load import from_mapping
from palaestrai_mosaik.design.settings_table import read_settings
from palaestrai_mosaik.environment.functions import hartmann6
from palaestrai_mosaik.execution import Settings, run_folder
from palaestrai_mosaik.execution.journal import optuna
from palaestrai_mosaik.search import tune
from palaestrai_mosaik.search.result import HistoryPoint, history

ROOT = Path(__file__).parents[2]
INLINE = Settings(executor="inline")


def hartmann_design() -> dict[str, Any]:
    names = [f"x{i}" for i in range(1, 7)]
    params = {"function": "hartmann6", **dict.fromkeys(names, 0.5)}
    path = "schedule.only.environments.formula.environment.params"
    only = {
        "environments": [{"environment": {"uid": "formula", "name": "function", "params": params}}],
        "agents": [{"name": "nobody", "muscle": "idle", "sensors": [], "actuators": ["formula.idle"]}],
        "phase_config": {"mode": "test", "episodes": 1},
    }
    return {
        "uid": "hartmann6",
        "seed": 0,
        "base": {"schedule": [{"only": only}]},
        "factors": {name: {"path": f"{path}.{name}", "low": 0, "high": 1} for name in names},
        "search": {"budget": {"runs": 1}},
        "outcomes": {"y": {"of": "reward.y", "better": "lower"}},
    }


def cigre_design() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        (ROOT / "designs" / "cigre_search.yml").read_text(encoding="utf-8")
    )
    return found


TASKS = {"hartmann6": hartmann_design, "cigre": cigre_design}


def search(design: dict[str, Any], sampler: str, runs: int, seed: int) -> list[HistoryPoint]:
    """Execute a search; return its history."""
    what = {"sampler": sampler, "budget": {"runs": runs}}
    spec = from_mapping({**design, "seed": seed, "search": what})
    with tempfile.TemporaryDirectory() as folder:
        tune(spec, Path(folder, "f"), settings=INLINE)
        return history(spec, read_settings(Path(folder, "f")))


def share(args: argparse.Namespace) -> None:
    print(f"{'task':<12}{'sampler':<10}{'median share of the steps':>27}{'range':>16}   searches")
    for task in args.tasks:
        design = TASKS[task]()
        # (with the same seed, samplers that begin at random would begin with the same settings)
        aims = [search(design, "random", args.runs, 1000 + seed) for seed in range(args.searches)]
        for sampler in args.samplers:
            shares = []
            for seed, aim in enumerate(aims):
                points = search(design, sampler, args.runs, seed)
                reached = next((one.steps for one in points if one.best <= aim[-1].best), None)
                shares.append(float("inf") if reached is None else reached / aim[-1].steps)
            low, high = min(shares), max(shares)
            print(
                f"{task:<12}{sampler:<10}{_percent(statistics.median(shares)):>27}"
                f"{f'{_percent(low)} to {_percent(high)}':>16}   {len(shares)}"
            )


def _percent(value: float) -> str:
    return "more" if value == float("inf") else f"{100 * value:.0f} %"


def overhead(args: argparse.Namespace) -> None:
    n = args.settings
    took: dict[str, list[float]] = {}
    for repeat in range(args.repeat):
        for name, measure in VARIANTS.items():
            with tempfile.TemporaryDirectory() as folder:
                seconds = measure(n, repeat, Path(folder))
            took.setdefault(name, []).append(1000 * seconds / n)
    print(f"{'ms per setting':<44}{'median':>8}   of {args.repeat} repeats, {n} settings each, tpe")
    for name, values in took.items():
        print(f"{name:<44}{statistics.median(values):>8.1f}")


def _whole(n: int, seed: int, folder: Path) -> float:
    design = hartmann_design() | {"search": {"budget": {"runs": n}}, "seed": seed}
    spec, clock = from_mapping(design), time.perf_counter()
    tune(spec, folder / "f", settings=INLINE)
    return time.perf_counter() - clock


def _runs(n: int, seed: int, folder: Path) -> float:
    design = {key: value for key, value in hartmann_design().items() if key != "search"}
    design |= {"sampler": {"name": "random", "n": n}, "seed": seed}
    clock = time.perf_counter()
    run_folder(Design.from_mapping(design).generate(folder / "f"), settings=INLINE)
    return time.perf_counter() - clock


def _loop(n: int, seed: int, storage: Any) -> float:
    found = optuna()
    study = found.create_study(storage=storage, sampler=found.samplers.TPESampler(seed=seed))
    clock = time.perf_counter()
    study.optimize(
        lambda trial: hartmann6([trial.suggest_float(f"x{i}", 0, 1) for i in range(6)]), n_trials=n
    )
    return time.perf_counter() - clock


def _journal(n: int, seed: int, folder: Path) -> float:
    journal = optuna().storages.journal
    return _loop(
        n, seed, optuna().storages.JournalStorage(journal.JournalFileBackend(str(folder / "journal")))
    )


def _memory(n: int, seed: int, folder: Path) -> float:
    return _loop(n, seed, None)


VARIANTS = {
    "a search: proposals, runs, store, journal": _whole,
    "the same number of runs of a design": _runs,
    "Optuna alone in a loop, with a journal": _journal,
    "Optuna alone in a loop, in memory": _memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("share")
    one.add_argument("--tasks", nargs="+", choices=TASKS, default=["hartmann6", "cigre"])
    one.add_argument("--samplers", nargs="+", default=["tpe", "cmaes"])
    one.add_argument("--runs", type=int, default=100)
    one.add_argument("--searches", type=int, default=10)
    one.set_defaults(function=share)
    other = commands.add_parser("overhead")
    other.add_argument("--settings", type=int, default=100)
    other.add_argument("--repeat", type=int, default=3)
    other.set_defaults(function=overhead)
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    main()
