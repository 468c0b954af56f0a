"""Environments in interpreters of their own: the same bytes, mistakes, ends, and what is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import venv
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml
from support.documents import document, named, phase
from support.learning import digests
from support.processes import Program, children
from support.waiting import HANG, until

from palaestrai_mosaik.arsenai.execution.executor import classes_to_preload
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import (
    ContractError,
    DocumentError,
    NameResolutionError,
    PowerFlowError,
    RunInterrupted,
    SimulationError,
    SimulatorError,
)
from palaestrai_mosaik.experiment import RunDocument, from_mapping, modules_of, only_modules
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.runner.interrupt import Interrupt
from palaestrai_mosaik.simulation import peer_check
from palaestrai_mosaik.simulation.remote_environment import RemoteEnvironment, _Host
from palaestrai_mosaik.simulation.remote_values import decoded, encoded
from palaestrai_mosaik.simulation.world_graph import world_graph
from palaestrai_mosaik.store import Store

PARTS = "support.remote_parts"
TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _leaves_no_process() -> Iterator[None]:
    before = children()
    yield
    assert not children() - before


def world(
    interpreter: str | None = sys.executable, name: str = f"{PARTS}:Walk", uid: str = "world", **params: Any
) -> dict[str, Any]:
    """Return the entry of an environment."""
    entry = {"uid": uid, "name": name, "params": params}
    return {"environment": entry | ({} if interpreter is None else {"interpreter": interpreter})}


def pushing(
    name: str = "a", actuators: tuple[str, ...] = ("push", "gear"), uid: str = "world"
) -> dict[str, Any]:
    return {
        "name": name,
        "muscle": "random",
        "sensors": [f"{uid}.*"],
        "actuators": [f"{uid}.{one}" for one in actuators],
    }


def run(entry: dict[str, Any], **keys: Any) -> RunDocument:
    """Return a document with this environment and one agent."""
    keys = {"episodes": 1, "agents": [pushing()]} | keys
    return document(phase([entry], **keys))


def recorded(found: RunDocument, folder: Path) -> tuple[dict[str, str], Any]:
    """Execute a document; return the digests, and what the environment has said."""
    with Store(folder, create=True) as store:
        execute(found, store=store)
        states = store.environment_states("latest")
        return digests(store), states.drop(columns=[c for c in states if "wall" in c]).to_json()


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("Walk", {"episodes": 3}),
        ("Walk", {"episodes": 2, "scheduler": "mosaik"}),
        ("Walk", {"episodes": 2, "controller": "taking_turns"}),
        ("Walk", {"episodes": 2, "controller": "taking_turns", "scheduler": "mosaik"}),
        ("Pulses", {"episodes": 2}),
        ("Walk", {"episodes": 4, "workers": 2}),
        ("Spawning", {"episodes": 2}),
    ],
    ids=["direct", "mosaik", "turns", "turns, mosaik", "new set-points only, two ticks", "workers", "spawn"],
)
def test_the_bytes_are_those_of_the_environment_in_this_process(
    tmp_path: Path, name: str, keys: dict[str, Any]
) -> None:
    keys["agents"] = [pushing("a", ("push",)), pushing("b", ("gear",))]
    found = []
    for interpreter in (None, sys.executable):
        entry = world(interpreter, f"{PARTS}:{name}")
        found.append(recorded(run(entry, **keys), tmp_path / str(interpreter is None)))
    assert found[0] == found[1]
    assert len(found[0][0]) == 3


def test_environments_begin_again_within_an_episode(tmp_path: Path) -> None:
    conditions = [
        named("palaestrai_mosaik.simulation.conditions:EnvironmentTerminationCondition", when="all"),
    ]
    found = []
    for interpreter in (None, sys.executable):
        worlds = [world(interpreter, steps=2), world(None, uid="other", steps=5)]
        agents = [pushing(), pushing("b", uid="other")]
        one = document(phase(worlds, agents, conditions, episodes=2))
        found.append(recorded(one, tmp_path / str(interpreter is None)))
    assert found[0] == found[1]


def test_the_environment_is_described_by_the_other_process() -> None:
    from support.remote_parts import Pulses

    remote = RemoteEnvironment(f"{PARTS}:Pulses", {"fault": "useless"}, sys.executable)
    local = Pulses(fault="useless")
    remote.uid = "world"
    try:
        there, here = remote.setup(), local.setup()
        assert (there.sensors, there.actuators) == (here.sensors, here.actuators)
        assert [(r.uid, r.space, r.value) for r in there.rewards] == [
            (r.uid, r.space, r.value) for r in here.rewards
        ]
        assert there.start == here.start == datetime(2020, 3, 1, 12)
        assert there.topology == here.topology is not None
        assert there.world_model["pair"] == (1, 2) and there.world_model[3].tolist() == [0, 1, 2]
        assert (remote.step_size, remote.hold_setpoints, remote.ends) == (2, False, True)
        assert remote.without_effect == local.without_effect
    finally:
        remote.shutdown()


def test_the_step_size_of_the_document_holds_there(tmp_path: Path) -> None:
    entry = world()
    entry["environment"]["step_size"] = 3
    with Store(tmp_path, create=True) as store:
        execute(run(entry), store=store)
        assert store.environment_states("latest")["time"].tolist() == [0, 3, 6, 9, 12]


def test_values_arrive_as_they_were() -> None:
    negative_nan = np.frombuffer(np.uint64(0xFFF8000000000001).tobytes(), np.float64)
    value = {
        "plain": [None, True, 1, 2**80, -0.0, float("inf"), "text\n\u2028"],
        "tuple": (1, [2.5, (3,)]),
        5: {"@": "key"},
        "numbers": [np.int8(3), np.float32(0.1), np.bool_(True), np.str_("x")],
        "array": np.array([[1, 2]], np.int16),
        "text": np.array(["a", "bc"]),
        "date": datetime(2020, 1, 2, 3, 4, 5, 6),
        "bytes": b"\x00\xff",
    }
    found = decoded(encoded(value, "it"))
    assert repr(found) == repr(value)
    assert [type(one) for one in found["numbers"]] == [np.int8, np.float32, np.bool_, np.str_]
    for nan in (negative_nan, negative_nan[0], float(negative_nan[0])):
        assert np.float64(decoded(encoded(nan, "it"))).tobytes() == negative_nan.tobytes()
    with pytest.raises(
        ContractError, match=r"^it holds a object, which cannot be sent .* allowed are texts, numbers"
    ):
        encoded({"a": [object()]}, "it")
    with pytest.raises(ContractError, match="it holds a ndarray"):
        encoded(np.array([object()]), "it")


def python(folder: Path, *packages: Path) -> Path:
    """Return the Python of a new virtual environment that sees these folders of packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "others.pth").write_text("".join(f"{one}\n" for one in packages))
    return folder / "bin" / "python"


def installed() -> list[Path]:
    """Return where the packages of this interpreter are."""
    return [Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.skipif(os.name != "posix", reason="made with links")
def test_packages_that_exclude_each_other_share_a_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        package = tmp_path / str(number) / "site-packages" / "exclusive"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"VERSION = {number}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "1" / "site-packages"))
    interpreter = python(tmp_path / "other", tmp_path / "2" / "site-packages", *installed())
    monkeypatch.chdir(tmp_path)
    worlds = [
        world(None, f"{PARTS}:Versioned", "here"),
        world("other/bin/python", f"{PARTS}:Versioned", "there"),
    ]
    agents = [pushing("a", uid="here"), pushing("b", uid="there")]
    with Store(tmp_path / "store", create=True) as store:
        execute(document(phase(worlds, agents, episodes=1)), store=store)
        states = store.environment_states("latest")
    first = states[states["time"] == 0]
    assert [first["reading.here.x"].max(), first["reading.there.x"].max()] == [1.0, 2.0]
    assert interpreter.exists()


def old(tmp_path: Path) -> str:
    code = 'import sys; sys.version_info = (3, 9, 1, "final", 0); text = sys.argv.pop(1); exec(text)'
    return script(tmp_path / "old", f"#!/bin/sh\nshift\nexec {sys.executable} -c '{code}' \"$@\"\n")


def bare(tmp_path: Path) -> str:
    return str(python(tmp_path / "bare"))


def folder(tmp_path: Path) -> str:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").touch()
    return "venv"


def plain_file(tmp_path: Path) -> str:
    (tmp_path / "plain").write_text("no program")
    return "./plain"


@pytest.mark.skipif(os.name != "posix", reason="programs of the shell")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda _: "no/such/python",
            r"there is no file 'no/such/python' in the working directory .*; expected is a Pyth",
        ),
        (
            lambda _: "no-such-python",
            r"there is no command 'no-such-python' in the folders of PATH; expected is",
        ),
        (folder, r"'venv' is a folder .did you mean 'venv/bin/python'\?.; expected"),
        (plain_file, r"'./plain' may not be executed .chmod \+x.; expected"),
        (
            lambda path: script(path / "odd", "\x00\x01"),
            r"/odd' cannot be executed: |is no Python interpreter",
        ),
        (
            lambda path: script(path / "no", "#!/bin/sh\necho nonsense >&2\nexit 5\n"),
            r"/no' is no Python interpreter, or one that cannot start: it ended with exit code 5, and said: nonsense",
        ),
        (
            lambda _: "true",
            r"'true' is no Python interpreter, or one that cannot start: it ended with exit code 0$",
        ),
        (old, r"/old' cannot be used: it is Python 3.9, and at least 3.11 is needed$"),
        (
            bare,
            r"/python' cannot be used: it lacks a package: No module named '\w+'; it needs numpy and mosaik-api-v3: "
            r".*bin/python -m pip install numpy mosaik-api-v3$",
        ),
    ],
    ids=["path", "command", "folder", "rights", "format", "program", "silent", "version", "packages"],
)
def test_an_interpreter_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = RemoteEnvironment(f"{PARTS}:Walk", {}, make(tmp_path))
    environment.uid = "world"
    with pytest.raises(ContractError, match=f"(?s)^interpreter: .*{said}"):
        environment.setup()


@pytest.mark.parametrize(
    ("name", "params", "kind", "said"),
    [
        (f"{PARTS}:Wolk", {}, NameResolutionError, r"has no class 'Wolk' .did you mean 'Walk'"),
        ("no_such_parts:Walk", {}, NameResolutionError, "there is no module 'no_such_parts'"),
        ("unregistered", {}, NameResolutionError, "'unregistered' is no short name"),
        (f"{PARTS}:NoEnvironment", {}, ContractError, "is no World"),
        ("palaestrai_mosaik.environment.copies:Copies", {"name": "x"}, ContractError, "is a co-simulation or a batch"),
        (f"{PARTS}:Walk", {"stops": 1}, ContractError, "does not take these params: .*'stops'"),
        (f"{PARTS}:Walk", {"fault": "value init"}, SimulatorError, r"ValueError: no gas left in init .*remote_parts.py:"),
        (f"{PARTS}:Walk", {"fault": "value setup"}, SimulatorError, "ValueError: no gas left in setup .*remote_p"),
        (f"{PARTS}:Walk", {"fault": "ours setup"}, PowerFlowError, "it diverged"),
        (f"{PARTS}:Walk", {"fault": "exit setup"}, SimulationError, r"raised SystemExit\(4\)"),
    ],
)  # fmt: skip
def test_an_environment_that_cannot_be_made_is_reported(
    name: str, params: Any, kind: type, said: str
) -> None:
    environment = RemoteEnvironment(name, params, sys.executable)
    environment.uid = "world"
    with pytest.raises(kind, match=f"in the interpreter {sys.executable}: .*{said}"):
        environment.setup()


def test_check_looks_through_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.yml"
    entry = run(world()).canonical
    entry["schedule"][0]["phase_0"]["agents"][0]["sensors"] = ["world.y"]
    path.write_text(yaml.safe_dump(entry))
    assert main(["check", str(path)]) == 2
    assert "world.y" in capsys.readouterr().err
    entry["schedule"][0]["phase_0"]["agents"][0]["sensors"] = ["world.x"]
    path.write_text(yaml.safe_dump(entry))
    assert main(["check", str(path)]) == 0
    assert f"interpreter {sys.executable}" in capsys.readouterr().out
    graph = world_graph(run(world()))
    assert f"Walk in {sys.executable}" in graph.graph["simulators"]["0-world"]


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (
            "value step",
            SimulatorError,
            r"raised ValueError: no gas left in step, in the interpreter .*\nTraceback",
        ),
        ("ours step", PowerFlowError, r"^it diverged\nraised in the interpreter"),
        ("exit step", SimulationError, r"raised SystemExit\(4\)"),
        (
            "dies step",
            SimulatorError,
            "the process of environment 'world' .* was ended with exit code 3, in its step",
        ),
        ("killed step", SimulatorError, r"was ended by signal 9 \(SIGKILL\), in its step"),
        (
            "object",
            ContractError,
            r"environment 'world' \(support.remote_parts:Walk\), reset: world_state holds a Walk, which cannot be sent",
        ),
        ("shape", ContractError, r"readings are not .* their shape is \(7,\)"),
        ("value shutdown", SimulatorError, "raised ValueError: no gas left in shutdown"),
    ],
)
@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
def test_what_goes_wrong_there_ends_the_run(
    tmp_path: Path, fault: str, kind: type, said: str, scheduler: str
) -> None:
    log = tmp_path / "log"
    with Store(tmp_path / "store", create=True) as store:
        with pytest.raises(kind, match=f"(?s){said}"):
            execute(run(world(fault=fault, log=str(log)), scheduler=scheduler), store=store)
        found = store.runs().iloc[0]
        assert found["status"] == "failed"
    pid = int(log.read_text().splitlines()[0].split()[1])
    assert pid != os.getpid() and not psutil.pid_exists(pid)
    if fault == "ours step":
        assert "shutdown" in log.read_text()


@pytest.mark.parametrize("method", ["step", "setup"])
def test_a_process_that_does_not_answer_ends_the_run(tmp_path: Path, method: str) -> None:
    entry = world(fault=f"hangs {method}", log=str(tmp_path / "log"))
    entry["environment"]["timeout"] = 1.5
    with pytest.raises(
        (SimulatorError, DocumentError),
        match=rf"has not answered for 1.5 s, in its {method}; if it needs more time",
    ):
        execute(run(entry))


def test_a_timeout_is_for_another_interpreter(tmp_path: Path) -> None:
    entry = world()
    before = run(entry).hash
    entry["environment"]["timeout"] = 90
    found = run(entry)
    assert found.phases[0].environments[0].timeout == 90
    assert found.hash != before and from_mapping(found.canonical).hash == found.hash
    entry["environment"]["timeout"] = 0
    with pytest.raises(DocumentError, match=r"must be a number of seconds > 0, found the number 0"):
        run(entry)
    entry = world(None)
    entry["environment"]["timeout"] = 5
    with pytest.raises(DocumentError, match=r"timeout: limits the answers of another interpreter"):
        run(entry)


def test_the_command_shows_the_traceback_of_the_other_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.yml"
    path.write_text(yaml.safe_dump(run(world(fault="value step")).canonical))
    assert main(["start", "--quiet", "--store", str(tmp_path / "store"), str(path)]) == 1
    said = capsys.readouterr().err
    assert "raised ValueError: no gas left in step" in said
    assert 'remote_parts.py", line' in said and 'raise ValueError(f"no gas left in {where}")' in said
    assert "environment_host.py" not in said


class Later(Interrupt):
    """Asks for the end once steps are in the log, as Ctrl-C does."""

    def __init__(self, log: Path):
        super().__init__()
        self.log = log

    def __enter__(self) -> Interrupt:
        threading.Thread(target=self._ask, daemon=True).start()
        return super().__enter__()

    def _ask(self) -> None:
        until(lambda: _steps(self.log))
        self.request()


def _steps(log: Path) -> int:
    """Return how many steps are in the log of an environment."""
    return log.read_text().split().count("step") if log.exists() else 0


def test_a_request_for_the_end_ends_it_between_two_steps(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(RunInterrupted):
        execute(run(world(steps=1000, seconds=0.05, log=str(log))), interrupt=Later(log))
    assert log.read_text().splitlines()[-1] == "shutdown"


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(
    ("number", "code", "times"), [(signal.SIGINT, 130, 1), (signal.SIGINT, 130, 2), (signal.SIGKILL, -9, 1)]
)
def test_the_process_ends_with_the_command(tmp_path: Path, number: int, code: int, times: int) -> None:
    log, path = tmp_path / "log", tmp_path / "run.yml"
    seconds = 0.1 if times == 1 and number == signal.SIGINT else 60.0
    path.write_text(yaml.safe_dump(run(world(steps=1000, seconds=seconds, log=str(log))).canonical))
    command = Program(
        [sys.executable, "-m", "palaestrai_mosaik", "start", "--quiet", "--no-store", str(path)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    until(lambda: _steps(log))
    other = psutil.Process(int(log.read_text().splitlines()[0].split()[1]))
    for _ in range(times):
        command.send_signal(number)
        time.sleep(0.2)
    assert command.wait(HANG) == code
    until(lambda: not other.is_running() or other.status() == psutil.STATUS_ZOMBIE)


def test_a_document_from_elsewhere_starts_no_interpreter() -> None:
    entry = phase([world()], [pushing()])
    for allowed in ((), (PARTS,)):
        with only_modules(allowed), pytest.raises(DocumentError) as raised:
            document(entry)
        said = "\n".join(map(str, raised.value.problems))
        assert (
            "environment.interpreter: an interpreter is a program that is executed, and 'cmd:' is not allowed"
            in said
        )
        environment = RemoteEnvironment(f"{PARTS}:Walk", {}, sys.executable)
        with only_modules(allowed), pytest.raises(NameResolutionError, match="an interpreter is a program"):
            environment.setup()
    assert modules_of(document(entry)) == {PARTS, "cmd:"}
    with only_modules((PARTS, "cmd:")):
        execute(document(phase([world()], [pushing()], episodes=1)))
    # the list holds in the other process, too
    environment = RemoteEnvironment(f"{PARTS}:Walk", {}, sys.executable)
    with (
        only_modules(("mypackage", "cmd:")),
        pytest.raises(NameResolutionError, match=r"'support\.remote_parts' is not"),
    ):
        environment.setup()


def test_a_document_without_the_key_keeps_its_hash() -> None:
    assert run(world(None)).hash == "69e3ac9c372f6a103caa00b2148dd85701bd7f16b22349d1b696017e89fb7d0b"
    found = run(world("other/bin/python"))
    assert found.phases[0].environments[0].interpreter == "other/bin/python"
    assert found.hash not in (run(world(None)).hash, run(world("another/bin/python")).hash)
    assert from_mapping(found.canonical).hash == found.hash
    with pytest.raises(
        DocumentError, match=r"interpreter .the path of another Python. must be a non-empty string"
    ):
        run(world(interpreter=5))  # type: ignore[arg-type]


def test_what_lasts_from_episode_to_episode_is_in_checkpoints() -> None:
    def made() -> RemoteEnvironment:
        environment = RemoteEnvironment(f"{PARTS}:Walk", {"fault": "keeps"}, sys.executable)
        environment.uid, environment.rng = "world", np.random.default_rng(1)
        environment.baseline = environment.setup()
        return environment

    first, second = made(), made()
    try:
        for _ in range(3):
            first.reset()
        second.restore(first.state())
        assert second.reset().world_state["begun"] == 4
    finally:
        first.shutdown()
        second.shutdown()
    with pytest.raises(SimulatorError, match="is not set up, or has been shut down"):
        first.step(np.zeros(2))


def test_copies_for_gymnasium_have_a_process_each(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    from palaestrai_mosaik.interop.rl import make_vec

    one = run(world(), agents=[pushing(actuators=("push",))])
    with pytest.raises(Exception, match="environment 'world' has an interpreter of its own"):
        make_vec(one, num_envs=2, backend="world")
    worlds = make_vec(one, num_envs=2)
    try:
        observations, _ = worlds.reset(seed=1)
        assert len(observations) == 2
    finally:
        worlds.close()


def test_nobody_else_is_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who connects first, and is not trusted, is refused."""
    strangers: list[tuple[str, int]] = []
    monkeypatch.setattr(peer_check, "is_trusted", lambda peer, here: peer not in strangers)
    accept = _Host._accept

    def after_a_stranger(host: _Host, listener: socket.socket) -> socket.socket:
        with socket.create_connection(listener.getsockname()) as stranger:
            strangers.append(stranger.getsockname())
            assert listener.getsockname()[0] == "127.0.0.1"
            found = accept(host, listener)
            stranger.settimeout(HANG)
            assert stranger.recv(100) == b""
        return found

    monkeypatch.setattr(_Host, "_accept", after_a_stranger)
    execute(run(world()))
    assert "was refused" in caplog.text


def test_folders_of_users_are_importable_there_and_the_installation_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from palaestrai_mosaik.simulation.remote_environment import _variables

    site, checkout, mine = (tmp_path / name for name in ("lib/site-packages", "checkout", "mine"))
    for one in (site, checkout, mine):
        one.mkdir(parents=True)
    (site / "checkout.pth").write_text(f"import sys\n# nothing\n{checkout}\n")
    monkeypatch.setattr(
        sys, "path", ["", str(mine), str(site), str(checkout), os.__file__.rpartition(os.sep)[0]]
    )
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    found = _variables()
    assert found["PYTHONPATH"] == str(mine)
    assert "PYTHONHOME" not in found


def test_the_working_directory_is_importable_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lies_here.py").write_text(
        textwrap.dedent("""
            from support.remote_parts import Walk

            class Here(Walk):
                pass
        """)
    )
    monkeypatch.chdir(tmp_path)
    execute(run(world(name="lies_here:Here")))
    assert "lies_here" not in sys.modules


def test_runs_of_a_design_import_no_class_that_is_elsewhere() -> None:
    here, there = (
        {"name": "palaestrai_mosaik.environment.dummy:DummyEnvironment", **more}
        for more in ({}, {"interpreter": "other/bin/python"})
    )
    assert len(classes_to_preload({"environments": [here]})) == 1
    assert classes_to_preload({"environments": [there]}) == []
