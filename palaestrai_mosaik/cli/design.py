"""``arsenai plan``, ``generate`` and ``schema``: commands for designs that run nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.arsenai.design.design import Design, Estimate, Plan, merge_warnings
from palaestrai_mosaik.arsenai.design.folder import JOBS, DesignFolder, execution_lock
from palaestrai_mosaik.arsenai.design.model import DesignSpec, Factor
from palaestrai_mosaik.arsenai.design.samplers import adaptive, in_rounds, sobol
from palaestrai_mosaik.arsenai.design.samplers.adaptive import ADAPTIVE
from palaestrai_mosaik.arsenai.design.samplers.sobol import SOBOL
from palaestrai_mosaik.arsenai.design.search import sought
from palaestrai_mosaik.arsenai.design.vocabulary import design_schema
from palaestrai_mosaik.core.errors import FINISHED, UNSOUND, DocumentError, ExecutionError, Problem
from palaestrai_mosaik.core.importing import only_modules
from palaestrai_mosaik.core.printing import count, listed

from .common import print_problems
from .output import (
    answer,
    byte_size,
    count_progress,
    duration,
    first_line,
    number,
    problems_data,
    say,
    say_unless_quiet,
    select,
    table,
    wants_json,
    warn,
)

if TYPE_CHECKING:
    from palaestrai_mosaik.arsenai.execution.design_check import Extent

#: modules that documents may name; ``None`` to use the configuration file or the design
Modules = tuple[str, ...] | None

#: maximum width of printed levels and paths
_WIDTH = 60
#: maximum number of runs in a message
_LISTED = 5


def plan(design: str, seconds_per_run: float | None, extent: Extent, allow_modules: Modules) -> int:
    """Print the factors, the number of runs and the estimated costs of a design; check a part of its documents."""
    loaded = Design.load(design)
    with count_progress("plan", "planned") as progress:
        planned = loaded.plan(seconds_per_run=seconds_per_run, progress=progress)
    say(*_plan(planned, design))
    warn(*planned.warnings)
    checked, problems = _check(loaded, extent, allow_modules)
    if wants_json():
        answer(_plan_data(planned, design) | {"checked": checked, "problems": problems_data(problems)})
    if problems:
        return UNSOUND
    if checked:
        say_unless_quiet(f"checked    {count(checked, 'row')}: sound")
    say_unless_quiet(f"next: arsenai {'generate' if loaded.spec.search is None else 'tune'} {design}")
    return FINISHED


def generate(design: str, output: str | None, force: bool, extent: Extent, allow_modules: Modules) -> int:
    """Check documents of a design, write all of them to its folder, and print a summary.

    ``force`` replaces another design in the folder, unless its runs are queued on a cluster or running.
    """
    loaded = Design.load(design)
    if force:
        _refuse_at_work(loaded, loaded.folder if output is None else Path(output))
    if not check_documents(loaded, extent, allow_modules):
        return UNSOUND
    if loaded.spec.search is not None:
        return _make_search(loaded, design, output, force)
    with count_progress("generate", "generated") as progress:
        written = loaded.write(output, force, progress)
    folder = DesignFolder.open(written.path)
    counts = folder.manifest["counts"]
    warnings = merge_warnings(loaded.spec.warnings, folder.sample.warnings, written.warnings)
    warn(*warnings)
    data = {"design": loaded.spec.uid, "folder": written.path, "outcome": written.outcome}
    answer({**data, **counts, "warnings": warnings})
    outcome = "" if written.outcome == "new" else f", {written.outcome}"
    say_unless_quiet(
        f"{written.path}: design {loaded.spec.uid!r}{outcome}",
        f"  {_rows(counts['rows'], counts['drawn'])}, {_runs(counts['runs'], counts['repetitions'])}",
        f"  {_documents(counts['runs'], counts['documents'])}",
        f"next: arsenai run {written.path}",
    )
    return FINISHED


def _make_search(loaded: Design, design: str, output: str | None, force: bool) -> int:
    """Create the folder of a search, which adds settings based on earlier results; return the exit code."""
    if force:
        raise ExecutionError(
            f"{design} is a search, whose folder has what it has found: --force replaces none; name another folder (-o)"
        )
    from palaestrai_mosaik.arsenai.design.growing import GrowingFolder
    from palaestrai_mosaik.arsenai.execution.job import held

    from .run_lists import arguments

    path = GrowingFolder.make(loaded.spec, loaded.folder if output is None else Path(output))
    with held(execution_lock(path), path):
        GrowingFolder(loaded.spec, path).begin()
    counts = DesignFolder.open(path).manifest["counts"]
    warn(*loaded.spec.warnings)
    data = {"design": loaded.spec.uid, "folder": path, "outcome": "kept" if counts["rows"] else "new"}
    answer({**data, **counts, "warnings": list(map(str, loaded.spec.warnings))})
    name = arguments(path)
    say_unless_quiet(
        f"{name}: the search {loaded.spec.uid!r}, {count(counts['rows'], 'setting')}",
        f"next: arsenai tune {shlex.quote(design)}{'' if output is None else f' -o {name}'}",
        f"      arsenai submit {name} (on Slurm)",
    )
    return FINISHED


def check_documents(design: Design, extent: Extent, allow_modules: Modules) -> bool:
    """Check documents of ``design`` and print their problems; return whether there are none."""
    _, problems = _check(design, extent, allow_modules)
    if problems and wants_json():
        answer({"error": "documents of the design are not sound", "problems": problems_data(problems)})
    return not problems


def _check(design: Design, extent: Extent, allow_modules: Modules) -> tuple[int, tuple[Problem, ...]]:
    """Check documents of ``design`` and print their problems; return the number of valid rows, and the problems."""
    if extent == "none":
        return 0, ()
    from palaestrai_mosaik.arsenai.execution.design_check import check_design
    from palaestrai_mosaik.arsenai.execution.settings import allowed_modules

    modules = allowed_modules(design.spec.resolved.get("execution"), allow_modules)
    try:
        with only_modules(modules), count_progress("check", "checked", "row") as progress:
            checked = check_design(design.spec, extent, progress)
    except DocumentError as error:
        print_problems(error.problems)
        say(
            "no document was written. If what is missing here exists where the runs will be executed, use --check none",
            error=True,
        )
        return 0, error.problems
    warn(*(f"settings like this one will fail: {problem}" for problem in checked.failing))
    return checked.rows, ()


def _refuse_at_work(design: Design, path: Path) -> None:
    """Raise :class:`ExecutionError` if runs of another design in ``path`` are queued or running."""
    try:
        folder = DesignFolder.open(path)
    except DocumentError:
        # a damaged folder, or no design folder
        return
    if folder.manifest["design"]["hash"] == design.spec.hash or not (folder.path / JOBS).is_dir():
        # an unchanged design keeps its tasks' documents; without jobs, no task was ever submitted
        return
    # imported here because it takes a second, which other commands do not need
    from palaestrai_mosaik.arsenai.execution import RunStatus, run_states

    try:
        with execution_lock(folder.path, "is being generated anew by"):
            states = run_states(folder, None, held=True)
    except OSError:
        # the folder is locked by an execution or not writable: writing will fail with the reason
        return
    name = shlex.quote(str(path))
    live = [
        state.planned.uid for state in states.runs if state.status in (RunStatus.QUEUED, RunStatus.RUNNING)
    ]
    if live:
        raise ExecutionError(
            f"{path} is not replaced: a cluster, or a process, still has {count(len(live), 'run')} of the design in it "
            f"({listed(live, _LISTED)}): arsenai cancel {name}, or wait for them"
        )
    if states.problems:
        raise ExecutionError(
            f"{path} is not replaced: it is unknown whether a cluster has runs of its design; generate into "
            f"another folder (--output): {'; '.join(states.problems)}"
        )


def schema() -> int:
    """Print the JSON Schema of designs."""
    say(json.dumps(design_schema(), indent=2))
    return FINISHED


def _plan(planned: Plan, path: str) -> Iterable[str]:
    spec = planned.spec
    size = "" if spec.sampler.n is None else f" with n = {spec.sampler.n}"
    way = f"{spec.sampler.name}{size}" if spec.search is None else f"search with {spec.search.sampler}"
    yield f"{path}: design {spec.uid!r}, {way}"
    if spec.axes:
        yield _factor_table(spec)
    if spec.search is not None:
        yield from _search_lines(spec)
        return
    yield f"rows       {_rows(planned.rows, planned.drawn)}"
    yield f"runs       {_runs(planned.runs, planned.repetitions)}, {spec.seed_policy} seeds"
    if in_rounds(spec):
        yield f"rounds     {_growth(spec)}"
    yield f"documents  {_documents(planned.runs, planned.documents)}, {byte_size(planned.size)}"
    yield from _estimate_lines(planned.estimate)


def _factor_table(spec: DesignSpec) -> str:
    rows = [
        (
            *(factor.name, _kind(factor), _range(factor), axis.group or None),
            None if len(axis.factors) == 1 else axis.name,
        )
        for axis in spec.axes
        for factor in axis.factors
    ]
    return table(("factor", "kind", "values", "group", "varied as"), rows, "  ")


def _estimate_lines(estimate: Estimate) -> Iterable[str]:
    """Yield the estimated time and storage."""
    if estimate.seconds_per_run is None or estimate.seconds is None:
        yield "time       unknown: give --seconds-per-run, or execute some runs first"
    else:
        yield (
            f"time       {duration(estimate.seconds)}: {duration(estimate.seconds_per_run)} per run "
            f"({estimate.source}), {estimate.jobs} at a time"
        )
    if estimate.size is not None:
        files = "" if estimate.files is None else f" in {estimate.files:,} files and folders"
        database = (
            "" if estimate.database is None else f", {byte_size(estimate.database)} of it in the database"
        )
        yield f"results    {byte_size(estimate.size)}{files}{database}, as in earlier runs"


def _growth(spec: DesignSpec) -> str:
    """Describe how a design grows from its planned rows."""
    if spec.sampler.name == ADAPTIVE.name:
        most, each = adaptive.most_rows(spec), adaptive.batch_of(spec)
        overlap, rounds = adaptive.stopping_rule(spec)
        return (
            f"{count(each, 'row')} more near the boundary of {adaptive.condition_of(spec)}, again and again, until boxes "
            f"have {100 * overlap:g} % in common over {count(rounds, 'round')}; at most {_up_to(spec, most)}"
        )
    largest = sobol.with_n(spec, sobol.largest_n(spec))
    return (
        f"n doubles until intervals are within ±{sobol.wanted_interval(spec):g}; at most to {largest.sampler.n:,}, "
        f"{_up_to(spec, SOBOL.rows(largest))}"
    )


def _up_to(spec: DesignSpec, rows: int) -> str:
    return f"{count(rows, 'row')} ({count(rows * spec.repetitions, 'run')})"


def _search_lines(spec: DesignSpec) -> Iterable[str]:
    search = spec.search
    assert search is not None
    budget = search.budget
    limits = []
    if budget.runs is not None:
        limits.append(f"{count(budget.runs, 'run')} ({count(budget.runs // search.seeds, 'setting')})")
    if budget.steps is not None:
        limits.append(f"{count(budget.steps, 'step')} of environments")
    if budget.hours is not None:
        limits.append(f"{budget.hours:g} hours")
    yield f"seeks      {', '.join(f'{outcome.name} ({outcome.better})' for outcome in sought(spec))}"
    yield f"budget     {', '.join(limits)}"
    prune = "" if search.prune == "none" else f", stopped early by {search.prune}"
    yield f"settings   {count(search.seeds, 'run')} each, {spec.seed_policy} seeds{prune}"
    if search.confirm:
        yield f"confirmed  the best with {count(search.confirm, 'fresh seed')} each"


def _plan_data(planned: Plan, path: str) -> dict[str, Any]:
    spec = planned.spec
    factors = [
        {
            "factor": factor.name,
            "kind": _kind(factor),
            "levels": factor.labels or None,
            "low": factor.low,
            "high": factor.high,
            "group": axis.group,
        }
        for axis in spec.axes
        for factor in axis.factors
    ]
    return {
        "file": path,
        "design": spec.uid,
        "sampler": {"name": spec.sampler.name, "n": spec.sampler.n, **spec.sampler.options},
        "factors": factors,
        **select(planned, "drawn", "rows", "repetitions", "runs", "documents", "size"),
        "estimate": asdict(planned.estimate),
        "warnings": planned.warnings,
        "search": None if spec.search is None else spec.resolved["search"],
    }


def _kind(factor: Factor) -> str:
    if factor.choice is not None:
        return "choice"
    if factor.kind == "levels":
        return "ordered levels" if factor.ordered else "levels"
    return f"{factor.kind}, {factor.dist}"


def _range(factor: Factor) -> str:
    if factor.kind == "levels":
        return first_line(f"{len(factor.labels)}: {', '.join(factor.labels)}", _WIDTH)
    low = "-inf" if factor.low is None else number(factor.low)
    high = "inf" if factor.high is None else number(factor.high)
    params = "".join(f", {name} {number(value)}" for name, value in factor.params.items())
    return f"{low} to {high}{params}"


def _rows(rows: int, drawn: int) -> str:
    rejected = f" ({drawn - rows:,} of {drawn:,} rejected by constraints)" if drawn > rows else ""
    return f"{count(rows, 'row')}{rejected}"


def _runs(runs: int, repetitions: int) -> str:
    return f"{count(runs, 'run')} ({count(repetitions, 'repetition')} each)"


def _documents(runs: int, documents: int) -> str:
    equal = (
        f" ({count(runs - documents, 'run')} identical to another, executed once)" if runs > documents else ""
    )
    return f"{count(documents, 'document')}{equal}"
