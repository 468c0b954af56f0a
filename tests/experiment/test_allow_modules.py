"""A document may name classes of chosen modules only: said before anything is imported, and held where it is."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.documents import MAX_EPISODES, agent, document, environment, named, phase

from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core import importing
from palaestrai_mosaik.core.errors import DocumentError, NameResolutionError
from palaestrai_mosaik.environment.copies import Copies
from palaestrai_mosaik.environment.described import DescribedCoSimulation
from palaestrai_mosaik.environment.dummy import DummyEnvironment
from palaestrai_mosaik.experiment import class_names, from_mapping, loads, modules_of, only_modules, resolve
from palaestrai_mosaik.runner import execute

DESCRIBED = "palaestrai_mosaik.environment.described:DescribedCoSimulation"
COPIES = "palaestrai_mosaik.environment.copies:Copies"
GYMNASIUM = "palaestrai_mosaik.environment.gymnasium:GymnasiumEnvironment"

#: leaves a file behind when it is imported
MODULE = """
from pathlib import Path
Path("imported-" + __name__).touch()
import os, subprocess
from pathlib import Path as Reexported
from palaestrai_mosaik.agent.library.dummy import DummyMuscle

class Muscle(DummyMuscle):
    pass

def plan(**params):
    Path("called").touch()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a function that writes a module into the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(p for p in sys.path if p)])
    before = set(sys.modules)

    def write(name: str) -> None:
        path = tmp_path / (name.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(MODULE)

    yield write
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("good", "evil", "goodness"):
            del sys.modules[name]


def imported() -> set[str]:
    """Return which of the written modules were imported, and whether a function was called."""
    found = {path.name for path in Path().iterdir()}
    return {name.removeprefix("imported-") for name in found if name.startswith(("imported-", "called"))}


EVERYWHERE = """\
uid: evil
seed: 1
version: "3.5"
schedule:
  - one:
      environments:
        - environment:
            uid: e
            name: "e1:X"
          reward: {name: "e2:X"}
          state_transformer: {name: "e3:X"}
        - environment:
            uid: copies
            name: "palaestrai_mosaik.environment.copies:Copies"
            params:
              name: "palaestrai_mosaik.environment.gymnasium:GymnasiumEnvironment"
              params: {id: "e4:World-v0"}
        - environment:
            uid: described
            name: "palaestrai_mosaik.environment.described:DescribedCoSimulation"
            params:
              simulators:
                a: {python: "e5:Simulator"}
                b: {cmd: "rm -rf / %(addr)s"}
                c: {connect: "example.org:80"}
                d: {python: "palaestrai_mosaik.arsenai.execution.task:main"}
        - environment:
            uid: built
            name: "palaestrai_mosaik.environment.described:DescribedCoSimulation"
            params: {build: "palaestrai_mosaik.arsenai.execution.cluster.submission:write_file"}
      agents:
        - name: a
          muscle: {name: "e6:X"}
          brain: {name: "e7:X"}
          objective: {name: "e8:X"}
          filters: [{name: "e9:X"}]
          sensors: [e.0]
          actuators: [e.0]
        - name: b
          muscle: {name: "palaestrai.agent:DummyMuscle"}
          bodies:
            - {muscle: {name: "e10:X"}, objective: {name: "e11:X"}, environment: e, filters: [{name: "e12:X"}]}
      simulation:
        name: vanilla
        conditions: [{name: "e13:X"}, {name: "good.conditions:X"}]
run_config:
  condition: {name: "goodness:X"}
"""


def test_everything_that_may_not_be_named_is_told_at_once_with_its_place() -> None:
    """By hand: the line of the text in which each stands."""
    with only_modules(("good", "json")), pytest.raises(DocumentError) as raised:
        loads(EVERYWHERE, "run.yml")
    told = [(problem.line, problem.path.removeprefix("schedule.0.one.")) for problem in raised.value.problems]
    assert sorted(told) == [
        (9, "environments.0.environment.name"),
        (10, "environments.0.reward.name"),
        (11, "environments.0.state_transformer.name"),
        (17, "environments.1.environment.params.params.id"),
        (23, "environments.2.environment.params.simulators.a.python"),
        (24, "environments.2.environment.params.simulators.b.cmd"),
        (25, "environments.2.environment.params.simulators.c.connect"),
        (26, "environments.2.environment.params.simulators.d.python"),
        (30, "environments.3.environment.params.build"),
        (33, "agents.0.muscle.name"),
        (34, "agents.0.brain.name"),
        (35, "agents.0.objective.name"),
        (36, "agents.0.filters.0.name"),
        (42, "agents.1.bodies.0.filters.0.name"),
        (42, "agents.1.bodies.0.muscle.name"),
        (42, "agents.1.bodies.0.objective.name"),
        (45, "simulation.conditions.0.name"),
        (47, "run_config.condition.name"),
    ]
    said = str(raised.value)
    assert (
        "the module 'e1' is not allowed for this document; allowed: palaestrai_mosaik, good, json (--allow"
        in said
    )
    assert "'cmd:' is not allowed for this document; allowed: good, json (--allow-modules)" in said
    assert not {f"e{i}" for i in range(1, 14)} & set(sys.modules), "nothing was imported"


def test_the_modules_of_a_document_are_what_has_to_be_allowed_for_it() -> None:
    found = loads(EVERYWHERE)
    named_there = modules_of(found)
    assert named_there == {
        *(f"e{i}" for i in range(1, 14)),
        *("good.conditions", "goodness", "cmd:", "connect:"),
        # functions of this package are not among what is always allowed
        *(
            "palaestrai_mosaik.arsenai.execution.task",
            "palaestrai_mosaik.arsenai.execution.cluster.submission",
        ),
    }
    with only_modules(named_there):
        assert loads(EVERYWHERE).hash == found.hash
    for left_out in sorted(named_there):
        with (
            only_modules(named_there - {left_out}),
            pytest.raises(DocumentError, match=f"{left_out!r} is not"),
        ):
            loads(EVERYWHERE)
    assert modules_of(document()) == set()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("os:system", "the module 'os' is not allowed"),
        ("builtins:eval", "the module 'builtins' is not allowed"),
        ("subprocess:Popen", "the module 'subprocess' is not allowed"),
        ("evil:Muscle", "the module 'evil' is not allowed"),
        ("goodness:Muscle", "the module 'goodness' is not allowed"),
        ("__main__:X", "the module '__main__' is not allowed"),
        # what an allowed module has imported is not its own
        ("good.one:os", "is a module"),
        ("good.one:subprocess", "is a module"),
        ("good.one:Reexported", "is defined elsewhere, and the module 'pathlib' is not allowed"),
        ("palaestrai_mosaik.arsenai.execution.task:os", "is a module"),
        ("palaestrai_mosaik.store.store:secrets", "is a module"),
        ("palaestrai_mosaik.arsenai.execution.task:Path", "the module 'pathlib' is not allowed"),
        (
            "palaestrai_mosaik.arsenai.execution.processes:Pipe",
            "the module 'multiprocessing.context' is not allowed",
        ),
        # no name at all
        ("palaestrai_mosaik.arsenai.execution.task:os.system", "is not a class name of the form"),
        ("good.one:os.system", "is not a class name of the form"),
        ("good.one:plan", "is not a class but a function"),
    ],
)
def test_hostile_names_are_refused(name: str, said: str, here: Callable[[str], None]) -> None:
    for module in ("good.one", "evil", "goodness"):
        here(module)
    with only_modules(("good",)), pytest.raises(NameResolutionError) as raised:
        resolve(name, "muscle")
    assert said in str(raised.value)
    assert not imported() & {"evil", "goodness"}


def test_what_is_allowed_is_found_and_limits_within_limits_hold_both(here: Callable[[str], None]) -> None:
    here("good.one")
    ours = "palaestrai_mosaik.agent.library.dummy:DummyMuscle"
    assert importing.limit() is None
    with only_modules(("good.one", "evil")):
        assert resolve("good.one:Muscle", "muscle").__name__ == "Muscle"
        # found where it was imported to; defined in this package
        assert resolve("good.one:DummyMuscle", "muscle") is resolve(ours, "muscle")
        assert resolve("palaestrai.agent:DummyMuscle", "muscle") is resolve(ours, "muscle")
        with only_modules(None):
            assert importing.limit() == ("good.one", "evil")
        with only_modules(("good", "json")):
            assert importing.limit() == ("good.one",)
        with only_modules(()), pytest.raises(NameResolutionError, match="allowed: palaestrai_mosaik \\("):
            resolve("good.one:Muscle", "muscle")
        assert resolve(ours, "muscle")
    assert importing.limit() is None
    for wrong in ("../evil", "a-b", "", "a:b", "good."):
        with pytest.raises(NameResolutionError, match=r"is no module's name"), only_modules([wrong]):
            pass


def test_short_names_are_held_to_the_module_that_they_stand_for(here, monkeypatch) -> None:
    for module in ("good.one", "evil"):
        here(module)
    entries = [
        importlib.metadata.EntryPoint("fine", "good.one:Muscle", "palaestrai_mosaik.muscle"),
        importlib.metadata.EntryPoint("bad", "evil:Muscle", "palaestrai_mosaik.muscle"),
        importlib.metadata.EntryPoint("sly", "good.one:subprocess.Popen", "palaestrai_mosaik.muscle"),
    ]
    monkeypatch.setattr(
        class_names, "entry_points", lambda *, group: [e for e in entries if e.group == group]
    )
    with only_modules(("good",)):
        assert resolve("fine", "muscle").__name__ == "Muscle"
        with pytest.raises(
            NameResolutionError, match=r"'bad' stands for 'evil:Muscle': the module 'evil' is not"
        ):
            resolve("bad", "muscle")
        with pytest.raises(NameResolutionError, match="the module 'subprocess' is not allowed"):
            resolve("sly", "muscle")
        with pytest.raises(DocumentError, match="the module 'evil' is not allowed"):
            document(phase(agents=[agent(muscle=named("bad"))]))
    assert "evil" not in imported()
    assert modules_of(document(phase(agents=[agent(muscle=named("bad"))]))) == {"evil"}


def simulator(**how: Any) -> dict[str, Any]:
    """Return the params of a co-simulation with one simulator."""
    return {"simulators": {"s": how}, "entities": [{"uid": "x", "simulator": "s", "model": "M"}]}


@pytest.mark.parametrize(
    ("params", "path", "said"),
    [
        ({"build": "evil:plan"}, "build", "the module 'evil' is not allowed"),
        ({"build": "os:system", "params": {"command": "touch called"}}, "build", "'os' is not allowed"),
        ({"build": "good.one:Reexported"}, "build", "the module 'pathlib' is not allowed"),
        ({"build": "good.one:os"}, "build", "has no class or function 'os'"),
        (
            {"build": "palaestrai_mosaik.arsenai.execution.task:main"},
            "build",
            "execution.task' is not allowed",
        ),
        (simulator(python="evil:plan"), "simulators.s.python", "the module 'evil' is not allowed"),
        (simulator(cmd="touch called %(addr)s"), "simulators.s.cmd", "'cmd:' is not allowed"),
        (simulator(connect="localhost:1"), "simulators.s.connect", "'connect:' is not allowed"),
    ],
)
def test_what_a_described_co_simulation_names_is_held_where_it_is_made(params, path, said, here) -> None:
    """Also where nobody has read a document: it may have been put together in a worker process."""
    for module in ("good.one", "evil"):
        here(module)
    with only_modules(("good",)), pytest.raises(DocumentError) as raised:
        DescribedCoSimulation(**params)
    assert [said in p.message for p in raised.value.problems if p.path == path] == [True]
    assert not imported() & {"evil", "called"}
    with only_modules(("cmd:", "connect:", "good")):
        DescribedCoSimulation(**simulator(cmd="touch called %(addr)s"))
        DescribedCoSimulation(**simulator(connect="localhost:1"))
        DescribedCoSimulation(build="good.one:plan")


def test_what_copies_are_made_of_is_an_environment_that_is_allowed(here) -> None:
    for module in ("good.one", "evil"):
        here(module)
    with only_modules(("good",)):
        with pytest.raises(NameResolutionError, match="the module 'evil' is not allowed"):
            Copies("evil:Muscle")
        with pytest.raises(NameResolutionError, match="the module 'subprocess' is not allowed"):
            Copies("subprocess:Popen", {"args": ["touch", "called"]})
    with pytest.raises(Exception, match=r"'subprocess:Popen' makes a Popen, which is no Environment"):
        Copies("subprocess:Popen", {"args": ["touch", "called"]})
    assert not imported() & {"evil", "called"}


def test_the_module_of_a_gymnasium_id_is_held(here) -> None:
    pytest.importorskip("gymnasium")
    from palaestrai_mosaik.environment.gymnasium import GymnasiumEnvironment

    here("evil")
    with only_modules(()):
        GymnasiumEnvironment("CartPole-v1").setup()
        for id, said in (
            ("evil:CartPole-v1", "the module 'evil' is not allowed"),
            ("CartPole", "must be the full name of an environment .did you mean 'CartPole-v1'"),
            # made by a function that raises, of Gymnasium; of another package it would be refused
            ("GymV26Environment-v1", "must be the full name"),
        ):
            with pytest.raises(NameResolutionError, match=said):
                GymnasiumEnvironment(id).setup()
    import gymnasium

    gymnasium.register("Elsewhere-v0", entry_point="evil:Muscle")
    try:
        with (
            only_modules(()),
            pytest.raises(NameResolutionError, match=r"is made by evil:Muscle: the module"),
        ):
            GymnasiumEnvironment("Elsewhere-v0").setup()
    finally:
        del gymnasium.registry["Elsewhere-v0"]
    assert "evil" not in imported()


def test_the_module_of_a_function_of_a_gymnasium_id_is_held(here) -> None:
    pytest.importorskip("gymnasium")
    from palaestrai_mosaik.environment.gymnasium import GymnasiumEnvironment

    here("evil")
    # what is imported into a module of another package is not its own, and functions of ours are no exception
    for id, module, allowed in (
        ("evil:Muscle", "evil", ()),
        (
            "palaestrai_mosaik.interop.rl.gymnasium_env:RunEnv",
            "palaestrai_mosaik.interop.rl.gymnasium_env",
            ("evil",),
        ),
        ("palaestrai_mosaik.environment.gymnasium:load", "palaestrai_mosaik.environment.gymnasium", ()),
    ):
        with (
            only_modules(allowed),
            pytest.raises(NameResolutionError, match=f"the module '{module}' is not allowed"),
        ):
            GymnasiumEnvironment(id).setup()
    assert "evil" not in imported()
    entry = phase(environments=[environment(name=GYMNASIUM, id="evil:Muscle")])
    with only_modules(()), pytest.raises(DocumentError, match="the module 'evil' is not allowed") as raised:
        document(entry)
    assert raised.value.problems[0].path.endswith("environment.params.id")
    assert modules_of(document(entry)) >= {"evil"}
    assert "evil" not in imported()


@pytest.mark.parametrize(
    ("id", "users"),
    [
        ("Pendulum-v1", False),
        ("evil_worlds:Elsewhere-v0", True),
        ("Elsewhere-v0", True),
        ("evil_worlds:Elsewhere", True),
    ],
)
def test_users_code_behind_a_gymnasium_id_is_known(tmp_path, id, users) -> None:
    """A run without any may share its process with others."""
    pytest.importorskip("gymnasium")
    (tmp_path / "evil_worlds.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.classic_control import PendulumEnv\n"
        "class Elsewhere(PendulumEnv): pass\ngymnasium.register('Elsewhere-v0', entry_point=Elsewhere)\n"
    )
    registered = "import evil_worlds\n" if id == "Elsewhere-v0" else ""
    script = (
        f"{registered}from palaestrai_mosaik.environment.gymnasium import GymnasiumEnvironment\n"
        "from palaestrai_mosaik.core.importing import named_users_code\n"
        f"GymnasiumEnvironment({id!r}).setup()\nprint(named_users_code())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(users), done.stderr


class Limited(DummyEnvironment):
    """The dummy environment, for whom knows what is allowed in its process."""

    def __init__(self, allowed: list[str], **params: Any):
        super().__init__(**params)
        found = importing.limit()
        if found != tuple(allowed):
            raise RuntimeError(f"allowed are {found}")


@pytest.mark.parametrize("workers", [1, 2])
def test_worker_processes_are_held_to_what_the_main_process_is(workers: int) -> None:
    def made(allowed: list[str]) -> Any:
        world = environment("myenv", f"{__name__}:Limited", allowed=allowed, max_iter=3)
        plan = phase([world], [agent("a")], workers=workers, conditions=None)
        return document(plan, run=[named(MAX_EPISODES)])

    with only_modules([__name__, "good"]):
        execute(made([__name__, "good"]))
        with pytest.raises(Exception, match="allowed are"):
            execute(made(["other"]))


def test_check_start_and_graph_take_the_list(here, tmp_path, capsys) -> None:
    here("good.one")
    plan = phase([environment(max_iter=3)], [agent("a", muscle=named("good.one:Muscle"))])
    data = {
        "uid": "of",
        "seed": 1,
        "version": "3.5",
        "schedule": [{"p": plan}],
        "run_config": {"conditions": [named(MAX_EPISODES)]},
    }
    assert from_mapping(data).uid == "of"
    Path("run.yml").write_text(yaml.safe_dump(data))
    for call in (["check"], ["start", "--no-store", "--quiet"], ["graph"]):
        command = [*call, "run.yml", "--allow-modules"]
        assert main([*command, "evil, json"]) == 2
        told = capsys.readouterr()
        assert "run.yml:" in told.err
        assert (
            "the module 'good.one' is not allowed for this document; allowed: palaestrai_mosaik, evil"
            in told.err
        )
        assert imported() == set()
        assert main([*command, "../evil"]) == 2
        assert "'../evil' is no module's name" in capsys.readouterr().err
    for call in (["start", "--no-store", "--quiet"], ["check"]):
        assert main([*call, "run.yml", "--allow-modules", "good"]) == 0
    assert imported() == {"good.one"}
    assert importing.limit() is None
