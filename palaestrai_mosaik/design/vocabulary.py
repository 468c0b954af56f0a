"""The keys and words of a design document: one table for checks and schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from palaestrai_mosaik.experiment import vocabulary as run
from palaestrai_mosaik.experiment.vocabulary import Section

from .model import Distribution, Fold, SeedPolicy, Topic

DESIGN = Section(
    "the design",
    (
        "uid",
        "seed",
        "version",
        "repetitions",
        "max_runs",
        "output",
        "extends",
        "base",
        "definitions",
        "schedule",
        "factors",
        "groups",
        "zip",
        "constraints",
        "sampler",
        "seeds",
        "outcomes",
        "analysis",
        "execution",
    ),
    required=("uid", "seed"),
    spellings={"id": "uid"},
)
#: keys that name the run and are set for each
IDENTITY = ("uid", "seed", "experiment_uid")
DEFINITIONS = Section(
    "definitions",
    ("environments", "agents", "sensors", "actuators", "simulation", "phase_config", "run_config"),
    required=("environments", "agents", "simulation", "run_config"),
)
PHASE = Section(
    "a phase of the design",
    ("environments", "agents", "sensors", "actuators", "simulation", "phase_config"),
)
#: an agent among the definitions: its sensors and actuators may come from the schedule
AGENT = replace(run.AGENT, title="an agent's definition", required=("name", "muscle"))
AGENT_WITH_BODIES = replace(AGENT, required=run.AGENT_WITH_BODIES.required)
FACTOR = Section(
    "a factor",
    (
        "name",
        "path",
        "type",
        "low",
        "high",
        "dist",
        "mean",
        "std",
        "mode",
        "levels",
        "labels",
        "weights",
        "ordered",
        "create",
        "when",
    ),
    required=("path",),
)
SEEDS = Section("seeds", ("policy",))
OUTCOME = Section(
    "an outcome",
    ("of", "phase", "agent", "step", "episode", "outside", "evaluation", "better"),
    required=("of",),
)
ANALYSIS = Section("analysis", ("methods", "compare", "baseline", "confidence", "resamples"))

#: what executes runs (the section ``execution`` is in ``execution.py``), and what starts pilots of Parsl
EXECUTORS = ("local", "inline", "slurm", "parsl")
PROVIDERS = ("local", "slurm", "pbspro", "torque", "lsf", "grid_engine", "condor", "kubernetes")

#: what of a factor belongs to continuous values, and what to levels
CONTINUOUS = ("low", "high", "dist", "type", "mean", "std", "mode")
DISCRETE = ("levels", "labels", "weights", "ordered")

TOPICS: tuple[Topic, ...] = get_args(Topic)
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
FOLDS: tuple[Fold, ...] = get_args(Fold)
POLICIES: tuple[SeedPolicy, ...] = get_args(SeedPolicy)
TYPES = ("float", "int")
BETTER = ("higher", "lower")
#: of each distribution: the parameters beside ``low`` and ``high``
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "uniform": (),
    "loguniform": (),
    "triangular": ("mode",),
    "normal": ("mean", "std"),
    "lognormal": ("mean", "std"),
}
#: distributions that need no ``low`` and ``high``; given, they cut the distribution off
UNBOUNDED = ("normal", "lognormal")
#: what an outcome may be of: words, and beginnings of ``BEGINNING.NAME``
OF_WORDS = ("objective", "steps")
OF_BEGINNINGS = ("reward", "reading", "setpoint", "statistic")
#: names that are columns of the design's table
RESERVED = ("row", "repetition", "uid", "run", "file", "seed", "hash", "status", "instance")
DEFAULT_SAMPLER = "factorial"
