"""Every benchmark program runs through, with its smallest arguments. Nothing is timed here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import HANG

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "tests" / "benchmarks"

GRID = ("pandapower", "simbench", "lightsim2grid", "numba")
RL = ("stable_baselines3", "torch", "gymnasium")

#: a case: program, its smallest arguments, what its output has, modules that it needs
CASES: list[tuple[str, str, str, tuple[str, ...]]] = [
    ("analysis_false_alarms.py", "--times 2", "executed", ()),
    (
        "adaptive.py",
        "--boxes 10 --factors 3 --repeat 1 --most 30",
        "10 %        3",
        ("sklearn",),
    ),
    (
        "comparison_false_alarms.py",
        "--trials 2 --intervals 1 --seeds 3 --settings 2 --correlations 0 --shapes normal --designs paired",
        "alarms %",
        (),
    ),
    ("batch_grid.py", "cigre_mv --batches 2 --repeat 1", "cigre_mv", GRID),
    ("batch_learning.py", "curves cartpole-ppo --bodies 2 --seeds 1 --scale 0.001", "parts: ", RL),
    ("batch_learning.py", "speed --steps 64 --repeat 1", "DummyVecEnv", RL),
    ("batch_learning.py", "parts", "SB3Brain, PPO", RL),
    ("batches.py", "--sizes 1 2 --steps 20 --repeat 1 --worlds 1 --processes 1", "1 repeats", RL),
    ("commands.py", "--repeat 1 --only check", "`check` of two dummy agents", ()),
    ("cluster.py", "--runs 2 --seconds 0.01 --jobs 1 --only local", "ideal", ()),
    ("discovery.py", "speed --factors 3 --rows 60 --repeat 1", "coverage", ("sklearn",)),
    ("discovery.py", "truth --studies 1 --only slope", "| slope | 5 | 120 | CART |", ("sklearn",)),
    ("engine.py", "--steps 20 --repeat 1", "bare mosaik", ()),
    ("execution.py", "--runs 2 --steps 5 --jobs 1 --repeat 1", "at the same time", ()),
    ("flagship.py", "--steps 8 --repeat 1", "ms/step with store, of which", GRID),
    ("frames.py", "--steps 44 --repeat 1", "every state", ()),
    ("generate.py", "--documents 160 --repeat 1", "documents", ()),
    ("grid_readings.py", "case9", "| pandapower.networks | fast | 1 |", GRID),
    ("grid_solver.py", "cigre_mv --steps 2", "cigre_mv", GRID),
    ("gymnasium_env.py", "--steps 20 --repeat 1", "environment steps/s", RL),
    ("interpreter.py", "--readings 3 --steps 20 --repeat 1", "another process", ()),
    ("memory.py", "--sizes 10 --repeat 1 --steps 2000 --limit 500", "with a limit of 500 rows", ()),
    ("rl.py", "curves cartpole-ppo --seeds 1 --scale 0.001", "parts: ", RL),
    ("rl.py", "speed --steps 64 --repeat 1", "document, store", RL),
    ("scheduler.py", "--hub 2 --entities 2 --sleep 0 --seconds 0 --repeat 1", "| same-time-loop |", ()),
    ("search.py", "overhead --settings 3 --repeat 1", "Optuna alone in a loop, in memory", ("optuna",)),
    ("search.py", "share --tasks hartmann6 --samplers tpe --runs 3 --searches 1", "hartmann6", ("optuna",)),
    (
        "search.py",
        "share --tasks learner --samplers tpe --runs 2 --searches 1 --fresh 1",
        "learner",
        ("optuna", *GRID),
    ),
    (
        "seeds_needed.py",
        "--trials 4 --effects 3 --correlations 0.5 --pairs 1",
        "| 3 | 6 (100) |",
        (),
    ),
    ("sensitivity_noise.py", "morris --studies 1 --runs 2", "| morris | 50 | 2 | common | 1 |", ()),
    ("session_pool.py", "--sessions 8 --ticks 4 --numbers 2 --batch 2 --repeat 1", "peak RSS", ()),
    ("sobol_coverage.py", "--studies 2 --factors 2 --n 16", "| ishigami | 2 |", ()),
    ("store_rows.py", "--rows 1000", "append_rows", ()),
    ("store_writers.py", "--runs 2 --rows 5 --writers 2", "SQLite", ()),
    ("theatre.py", "--steps 4 --repeat 1", "7 phases, 4 steps", GRID),
    ("web_cost.py", "--steps 200 --repeat 1", "ratio", ("starlette", "uvicorn")),
    (
        "web_page.py",
        "--runs 3 --repeat 1 --scroll 50 --seconds 1 --steps 200 --pairs 1 --week 0",
        "speed of a run",
        ("starlette", "uvicorn"),
    ),
    ("workers.py", "--milliseconds 0.1 --workers 1 --steps 20 --repeat 1", "worker", ()),
]


@pytest.mark.parametrize(
    ("program", "arguments", "printed", "needed"),
    [pytest.param(*case, id=f"{case[0]} {case[1].split()[0]}") for case in CASES],
)
def test_a_program_runs_with_its_smallest_arguments(
    program: str, arguments: str, printed: str, needed: tuple[str, ...], tmp_path: Path
) -> None:
    for module in needed:
        pytest.importorskip(module, reason=f"{module} is not installed")
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / program), *arguments.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_program_is_run_and_described() -> None:
    programs = {path.name for path in BENCHMARKS.glob("*.py")}
    assert {case[0] for case in CASES} == programs
    described = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert programs - set(re.findall(r"^\| `(\w+\.py)` \|", described, re.MULTILINE)) == set()


def test_what_make_bench_calls_is_there() -> None:
    called = re.findall(r"tests/benchmarks/(\S+\.py)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert len(called) > 10
    assert [name for name in called if not (BENCHMARKS / name).is_file()] == []


def test_nothing_is_left_out_for_want_of_a_misspelt_module() -> None:
    """A module that nothing brings would skip its programs everywhere."""
    extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    names = {module.replace("_", "-") for case in CASES for module in case[3]}
    assert [name for name in names if name not in extras] == []
