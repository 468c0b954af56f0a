"""``{seed}`` in a co-simulation: another seed in each episode, from the run's tree."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.documents import agent, document, environment, phase
from support.learning import digests
from support.simulators import SIMULATORS

from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import SimulationError, SimulatorError
from palaestrai_mosaik.environment.cosimulation import CoSimulationPlan, EntitySpec, SensorPort, SimulatorSpec
from palaestrai_mosaik.environment.described import with_seed
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.interop.mosaik.simulators.base import TimeBased
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.runner.preflight import Inspection
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import Box, SensorInformation

DESCRIBED = "palaestrai_mosaik.environment.described:DescribedCoSimulation"
PYTHON = {"python": "seeded_sim:Seeded"}
COMMAND = {
    "cmd": f'"{sys.executable}" "{SIMULATORS / "seeded_sim.py"}" {{seed}} %(addr)s',
    "env": {"SEED": "{seed}"},
}
PARAMS = {"seed": "{seed}", "nested": {"deep": [0, {"seed": "{seed}"}]}, "label": "noise-{seed}.csv"}
ATTRIBUTES = ("init", "inner", "own", "told")
SPACE = "Box(-1, 2147483647, ())"


def noisy(how: dict[str, Any], uid: str = "co", params: Any = PARAMS) -> dict[str, Any]:
    return environment(
        uid,
        DESCRIBED,
        end=2,
        simulators={"noise": {**how, "params": params}},
        entities=[{"uid": "e", "simulator": "noise", "model": "Entity", "count": 2,
                   "params": {"seed": "{seed}"}}],
        sensors=[{"uid": f"{name}{k}", "entity": f"e-{k}", "attribute": name, "space": SPACE}
                 for name in ATTRIBUTES for k in (0, 1)],
    )  # fmt: skip


def watcher(uid: str = "co", name: str = "w") -> dict[str, Any]:
    names = [f"{uid}.{attribute}{k}" for attribute in ATTRIBUTES for k in (0, 1)]
    return agent(name, sensors=names, actuators=["dummy.0"], brain=None)


def two(how: dict[str, Any], *, agents: int = 1, scheduler: str = "direct", **config: Any) -> Any:
    """A document with a simulator that shows its seeds, for two episodes in each of two phases."""
    others = [agent(f"more{k}", first=k + 1, count=1, uid="dummy") for k in range(agents - 1)]
    phases = [
        phase(
            [noisy(how), environment("dummy", max_iter=9)],
            [watcher(), *others],
            scheduler=scheduler,
            **({"episodes": 2} | config),
        )
        for _ in range(2)
    ]
    return document(*phases)


def shown(store: Store, *, evaluation: bool = False) -> dict[tuple[Any, ...], dict[str, int]]:
    """Return the last readings of the newest run, by phase, worker and episode."""
    table = store.steps("latest", agent="w", evaluation=evaluation)
    table = table.groupby(["phase", "worker", "episode"]).last()
    names = {f"reading.co.{name}{k}": f"{name}{k}" for name in ATTRIBUTES for k in (0, 1)}
    return {key: {short: int(row[long]) for long, short in names.items()} for key, row in table.iterrows()}


def expected(*path: str | int) -> dict[str, int]:
    """Return the seeds of an episode, from the documented path below the run's seed."""
    here = (*path, "environment", "co", "simulator", "noise")
    own = seeding.integer_seed(42, *here)
    entities = {f"own{k}": seeding.integer_seed(42, *here, "entity", f"e-{k}") for k in (0, 1)}
    return {f"{name}{k}": own for name in ("init", "inner") for k in (0, 1)} | entities


def of_python(values: dict[str, int]) -> dict[str, int]:
    return {key: value for key, value in values.items() if not key.startswith("told")}


def run(tmp_path: Path, how: dict[str, Any], name: str = "s", **options: Any) -> Any:
    with Store(tmp_path / name, create=True) as store:
        execute(two(how, **options), store=store)
        return shown(store), digests(store)


def test_each_episode_of_each_phase_has_its_own_seeds(tmp_path):
    here, bytes_of = run(tmp_path, PYTHON)
    assert len(here) == 4
    for (number, worker, episode), values in here.items():
        name = f"phase_{number}"
        assert of_python(values) == expected(name, "worker", worker, "episode", episode)
    seeds = [
        value for values in here.values() for key, value in values.items() if key in ("init0", "own0", "own1")
    ]
    assert len(set(seeds)) == 12
    # a world built for every episode gives the same, and so does the next execution
    assert run(tmp_path, PYTHON, "mosaik", scheduler="mosaik") == (here, bytes_of)
    assert run(tmp_path, PYTHON, "again")[1] == bytes_of


def test_a_process_gets_the_same_seeds_also_in_its_command_line(tmp_path):
    here, _ = run(tmp_path, PYTHON)
    there, _ = run(tmp_path, COMMAND, "cmd")
    assert {key: of_python(values) for key, values in there.items()} == {
        key: of_python(values) for key, values in here.items()
    }
    assert all(values["told0"] == values["init0"] for values in there.values())


def test_another_agent_changes_no_seed(tmp_path):
    assert run(tmp_path, PYTHON)[0] == run(tmp_path, PYTHON, "more", agents=3)[0]


def test_workers_and_evaluations_have_seeds_of_their_own(tmp_path):
    doc = two(PYTHON, workers=2, evaluate_every=1)
    with Store(tmp_path, create=True) as store:
        execute(doc, store=store)
        training, evaluations = shown(store), shown(store, evaluation=True)
    for kind, rows in (("episode", training), ("evaluation", evaluations)):
        assert len(rows) == 8
        for (number, worker, episode), values in rows.items():
            name = f"phase_{number}"
            assert of_python(values) == expected(name, "worker", worker, kind, episode)


def planned() -> CoSimulationPlan:
    space = Box(-1, 2**31 - 1, shape=())
    return CoSimulationPlan(
        [SimulatorSpec("noise", python="seeded_sim:Seeded", params=PARAMS)],
        [EntitySpec(f"e-{k}", "noise", "Entity", {"seed": "{seed}"}) for k in (0, 1)],
        [],
        [
            SensorPort(SensorInformation(0.0, space, f"{name}{k}"), f"e-{k}", name)
            for name in ATTRIBUTES
            for k in (0, 1)
        ],
        [],
    )


def test_a_plan_that_a_function_builds_gets_the_same_seeds(tmp_path):
    here, _ = run(tmp_path, PYTHON)
    built = environment("co", DESCRIBED, end=2, build=f"{__name__}:planned")
    doc = document(
        *[phase([built, environment("dummy", max_iter=9)], [watcher()], episodes=2) for _ in (0, 1)]
    )
    with Store(tmp_path / "built", create=True) as store:
        execute(doc, store=store)
        assert shown(store) == here


@pytest.mark.parametrize(
    ("params", "path", "placeholder"),
    [
        ({"seed": "{sede}"}, "simulators.noise.params.seed", "{sede}"),
        ({"seed": 1, "nested": {"deep": [0, {"seed": "{Seed}"}]}}, "simulators.noise.params.nested.deep.1.seed", "{Seed}"),
        ({"seed": "x-{ seed }"}, "simulators.noise.params.seed", "{ seed }"),
    ],
)  # fmt: skip
def test_a_misspelt_placeholder_is_warned_of(params, path, placeholder):
    doc = document(phase([noisy(PYTHON, params=params), environment("dummy")], [watcher()]))
    inspection = Inspection(doc)
    inspection.environments.close()
    assert not inspection.problems
    (warning,) = inspection.warnings
    assert warning.path.endswith(f"environments.0.environment.params.{path}")
    assert (
        warning.message == f"the placeholder {placeholder!r} is passed on as text (did you mean '{{seed}}'?)"
    )


def test_a_placeholder_without_quotes_is_warned_of():
    """YAML reads it as a mapping."""
    doc = document(phase([noisy(PYTHON, params={"seed": {"seed": None}}), environment("dummy")], [watcher()]))
    inspection = Inspection(doc)
    inspection.environments.close()
    (warning,) = inspection.warnings
    assert warning.path.endswith("environment.params.simulators.noise.params.seed")
    assert warning.message == "{seed} without quotes is a mapping in YAML; write '{seed}'"


def test_other_braces_are_left_alone():
    params = {"seed": 1, "nested": {"deep": ["{body}", {"seed": "{0}/{date}"}]}}
    doc = document(phase([noisy(PYTHON, params=params), environment("dummy")], [watcher()]))
    inspection = Inspection(doc)
    inspection.environments.close()
    assert not inspection.problems and not inspection.warnings


def test_what_holds_no_placeholder_stays_the_same_object():
    shared: list[Any] = []
    params = {"log": shared, "seed": "{seed}"}
    assert with_seed(params, lambda: 5) == {"log": [], "seed": 5}
    assert with_seed(params, lambda: 5)["log"] is shared
    assert with_seed({"log": shared}, lambda: 5)["log"] is shared


class Noise(TimeBased):
    """One of our simulators that draws."""

    MODELS = {"Noise": (True, (), ("value",))}

    def create(self, num: int, model: str) -> Any:
        self.outputs["noise"] = {"value": 0.0}
        return [{"eid": "noise", "type": model}]

    def compute(self, time: int, inputs: Any) -> None:
        self.outputs["noise"]["value"] = self.rng.standard_normal()


def drawing(**params: Any) -> Any:
    world = environment(
        "co",
        DESCRIBED,
        end=2,
        simulators={"noise": {"python": f"{__name__}:Noise", "params": {"step_size": 1, **params}}},
        entities=[{"uid": "e", "simulator": "noise", "model": "Noise"}],
        sensors=[{"uid": "x", "entity": "e", "attribute": "value", "space": "Box(-inf, inf, ())"}],
    )
    watching = agent("w", sensors=["co.x"], actuators=["dummy.0"], brain=None)
    return document(phase([world, environment("dummy", max_iter=9)], [watching], episodes=2))


def test_a_simulator_of_ours_has_a_generator(tmp_path):
    with Store(tmp_path, create=True) as store:
        execute(drawing(seed="{seed}"), store=store)
        steps = store.steps("latest")
    for episode, rows in steps.groupby("episode"):
        path = ("phase_0", "worker", 0, "episode", episode, "environment", "co", "simulator", "noise")
        drawn = seeding.generator(seeding.integer_seed(42, *path)).standard_normal(len(rows))
        np.testing.assert_array_equal(rows["reading.co.x"], drawn)


def test_a_simulator_of_ours_without_a_seed_says_what_it_needs():
    with pytest.raises(
        SimulationError, match=r"Noise draws random numbers and has no seed: .*'seed: \"\{seed\}\"'"
    ):
        execute(drawing())
    with pytest.raises(SimulatorError, match="seed is a whole number, not 'five'"):
        execute(drawing(seed="five"))


def test_the_placeholder_is_part_of_the_document_and_not_the_seed():
    assert from_mapping(two(PYTHON).canonical).hash == two(PYTHON).hash
