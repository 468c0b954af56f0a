"""How much a search saves against random search, and what it costs beside its runs.

::

    python tests/benchmarks/search.py share --searches 10
    python tests/benchmarks/search.py overhead --settings 100 --repeat 3

``share``: for each task and sampler, the share of random search's environment steps with which the sampler has found a
setting as good as the best that random search has at its end: the median over pairs of searches, and their range;
``more`` where it has not within as many steps. The row ``random`` says when random search itself had one. All searches
go through the whole chain: documents, runs, store, journal. Tasks:

- ``hartmann6``: Hartmann's function of six parameters, without noise;
- ``cigre``: the seven parameters of the controllers of ``designs/cigre_search.yml`` (needs the extra ``grid``);
- ``learner``: the parameters of the learners of ``designs/cigre_learner_search.yml`` (needs ``grid``). A setting takes
  two seeds. Outcomes are noisy, and the best of a search is good partly by luck, so what counts here is not the search's
  own figure of its best setting, but that over eight seeds that no search has used, the same ones for all. A setting
  counts as good as another one if its mean is not worse by more than the standard error of their difference; the
  column ``strictly`` has the share until it is not worse at all. The samplers stop bad settings early (``prune:
  median``); random search executes all of them.

``overhead``: milliseconds of wall-clock time per setting of a whole search, of the same runs executed as a design, and of
Optuna alone in a loop with the same journal, and in memory.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from palaestrai_mosaik.arsenai.analysis import Results
from palaestrai_mosaik.arsenai.design import Design
from palaestrai_mosaik.arsenai.design.load import from_mapping
from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.arsenai.design.search import sought
from palaestrai_mosaik.arsenai.design.settings import read_journal
from palaestrai_mosaik.arsenai.execution import Settings, run_folder
from palaestrai_mosaik.arsenai.execution.journal import optuna
from palaestrai_mosaik.arsenai.search import tune
from palaestrai_mosaik.arsenai.search.ranking import confirming_design
from palaestrai_mosaik.arsenai.search.result import history
from palaestrai_mosaik.environment.functions import hartmann6

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


def shipped(stem: str) -> dict[str, Any]:
    text = (ROOT / "designs" / f"{stem}.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@dataclass(frozen=True)
class Task:
    """``fresh``: over so many seeds the best settings are measured where outcomes are ``noisy``."""

    design: Callable[[], dict[str, Any]]
    seeds: int = 1
    prune: str = "none"
    noisy: bool = False
    fresh: int = 1


TASKS = {
    "hartmann6": Task(hartmann_design),
    "cigre": Task(lambda: shipped("cigre_search")),
    "learner": Task(lambda: shipped("cigre_learner_search"), seeds=2, prune="median", noisy=True),
}


@dataclass(frozen=True)
class Reached:
    """After so many steps of a search, its best setting had these outcomes: one, or one of each fresh seed."""

    steps: int
    outcomes: list[float]

    def is_as_good(self, aim: Reached, sign: int, errors: float) -> bool:
        """Whether it is not worse than ``aim`` by more than so many standard errors of the mean difference."""
        differences = [sign * (a - b) for a, b in zip(self.outcomes, aim.outcomes, strict=True)]
        n = len(differences)
        error = statistics.stdev(differences) / n**0.5 if n > 1 else 0.0
        return statistics.fmean(differences) >= -errors * error


def search(task: Task, seed: int, **what: Any) -> tuple[list[Reached], int]:
    """Execute a search; return each of its best settings until then, and all its steps."""
    section = {"seeds_per_setting": task.seeds, **what}
    spec = from_mapping({**task.design(), "seed": seed, "search": section})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "f")
        tune(spec, path, settings=INLINE)
        settings = read_journal(path).settings
        points = [one for one in history(spec, settings) if one.value == one.best]
        outcomes = [[one.best] for one in points]
        if task.noisy:
            outcomes = fresh_outcomes(spec, path, [one.number for one in points], task.fresh)
    found = [Reached(one.steps, of_one) for one, of_one in zip(points, outcomes, strict=True)]
    return found, sum(one.steps for one in settings)


def fresh_outcomes(spec: DesignSpec, path: Path, numbers: list[int], seeds: int) -> list[list[float]]:
    """Return the outcomes of settings of the search in ``path`` with seeds that are the same for all searches."""
    assert spec.search is not None
    more = replace(spec, search=replace(spec.search, confirm=seeds))
    resolved = confirming_design(more, path, numbers).spec.resolved
    folder = Design.from_mapping({**resolved, "seed": 12345}).generate(path / "fresh")
    run_folder(folder, settings=INLINE)
    (outcome,) = sought(spec)
    frame = Results(folder).outcomes().sort_values(["row", "repetition"])
    return [frame.loc[frame["row"] == row, outcome.name].tolist() for row in range(len(numbers))]


def share(args: argparse.Namespace) -> None:
    shares: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for name in args.tasks:
        task = TASKS[name]
        if task.noisy:
            task = replace(task, fresh=args.fresh)
        (sign,) = (1 if one.get("better") == "higher" else -1 for one in task.design()["outcomes"].values())
        for seed in range(args.first, args.first + args.searches):
            # (with the same seed, samplers that begin at random would begin with the same settings)
            aims, steps = search(task, 1000 + seed, sampler="random", budget={"runs": args.runs})
            searches = {"random": aims}
            for sampler in args.samplers:
                # (where settings are stopped early, as many steps are more runs)
                budget = {"steps": steps} if task.prune != "none" else {"runs": args.runs}
                searches[sampler], _ = search(task, seed, sampler=sampler, budget=budget, prune=task.prune)
            for sampler, found in searches.items():
                pair = (_share(found, aims[-1], steps, sign, 1), _share(found, aims[-1], steps, sign, 0))
                shares.setdefault((name, sampler), []).append(pair)
                text = f"{name}, {sampler}, search {seed}: {_percent(pair[0])}, strictly {_percent(pair[1])}"
                print(text, file=sys.stderr, flush=True)
    print(
        f"{'task':<12}{'sampler':<10}{'median share of the steps':>27}{'range':>16}{'strictly':>10}   searches"
    )
    for (name, sampler), pairs in shares.items():
        values, strict = zip(*pairs, strict=True)
        low, high = min(values), max(values)
        print(
            f"{name:<12}{sampler:<10}{_percent(statistics.median(values)):>27}"
            f"{f'{_percent(low)} to {_percent(high)}':>16}{_percent(statistics.median(strict)):>10}   {len(pairs)}"
        )


def _share(found: list[Reached], aim: Reached, steps: int, sign: int, errors: float) -> float:
    """Return the share of ``steps`` after which a search had a setting as good as ``aim``; infinite where it had none."""
    reached = (one.steps for one in found if one.is_as_good(aim, sign, errors))
    first = next(reached, float("inf"))
    return first / steps if first <= steps else float("inf")


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
    one.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    one.add_argument("--samplers", nargs="*", default=["tpe", "cmaes"])
    one.add_argument("--runs", type=int, default=100)
    one.add_argument("--searches", type=int, default=10)
    one.add_argument("--fresh", type=int, default=8, help="seeds over which noisy outcomes are measured")
    one.add_argument("--first", type=int, default=0, help="seed of the first search")
    one.set_defaults(function=share)
    other = commands.add_parser("overhead")
    other.add_argument("--settings", type=int, default=100)
    other.add_argument("--repeat", type=int, default=3)
    other.set_defaults(function=overhead)
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    main()
