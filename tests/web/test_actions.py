"""What the page does: it cancels and resumes the runs that it may, and no other process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.processes import Program
from support.waiting import HANG, until

import palaestrai_mosaik as pm
from palaestrai_mosaik.core.errors import DocumentError, StoreError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.cancellation import cancel_run
from palaestrai_mosaik.store.models import Instance
from palaestrai_mosaik.store.process import LOCK, process_started, still_runs, terminate
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.web.actions import Refused, perform
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.resources import ResourceError, Source
from palaestrai_mosaik.web.workplace import Workplace

ROOT = Path(__file__).parents[2]
DUMMY = ROOT / "scenarios" / "dummy.yml"
#: two phases, of which the first goes on until it is ended
LONG = DUMMY.read_text(encoding="utf-8").replace("episodes: 3}", "episodes: 1000000}")


def working(folder: Path) -> Source:
    location = StoreLocation(str(folder))
    return Source(location, workplace=Workplace(location))


@contextmanager
def running(folder: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Execute the long document into a store, as a user does."""
    document = folder.parent / "long.yml"
    document.write_text(LONG, encoding="utf-8")
    process = Program(
        [
            sys.executable,
            "-m",
            "palaestrai_mosaik",
            "start",
            str(document),
            "-q",
            "--store",
            str(folder),
            *options,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: _steps(folder) > 0)
        yield process
    finally:
        process.kill()
        process.wait()


def _steps(folder: Path) -> int:
    if not (folder / "store.db").exists():
        return 0
    try:
        with Store(folder, read_only=True) as store:
            return int(store.runs()["steps"].sum())
    except StoreError:  # its tables are being made
        return 0


def change(folder: Path, **values: object) -> None:
    with Store(folder) as store, store.database.writing() as session:
        for name, value in values.items():
            setattr(session.query(Instance).one(), name, value)


def test_a_cancelled_run_keeps_what_was_recorded(tmp_path: Path) -> None:
    source = working(tmp_path / "s")
    with running(tmp_path / "s") as process:
        possible = get(source, "run/latest/actions")
        assert (possible["cancel"], possible["resume"]) == (True, False)
        assert f"process {process.pid} was asked to end" in perform(source, "run/latest/cancel", {})["done"]
        assert process.wait(HANG) == 130
    assert get(source, "run/latest")["status"] == "interrupted"
    assert _steps(tmp_path / "s") > 0
    with pytest.raises(StoreError, match="is not running: it is interrupted"):
        perform(source, "run/latest/cancel", {})


def test_no_other_process_is_signalled(tmp_path: Path) -> None:
    """The number of a process that has ended may be another one's."""
    with running(tmp_path / "s") as process:
        process.kill()
        process.wait()
        innocent = Program([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        change(tmp_path / "s", pid=innocent.pid)
        with Store(tmp_path / "s") as store, pytest.raises(StoreError, match="is not running: it is lost"):
            cancel_run(store, "latest")
        # its number, and the start that another process has had
        assert not terminate(innocent.pid, process_started(), 5.0, lambda: True)
        assert innocent.poll() is None
        innocent.communicate(b"\n")
        assert innocent.returncode == 0
        change(tmp_path / "s", host="elsewhere")
        with (
            Store(tmp_path / "s") as store,
            pytest.raises(StoreError, match="on host 'elsewhere'; end it there"),
        ):
            cancel_run(store, "latest")
    assert get(working(tmp_path / "s"), "run/latest/actions")["cancel"] is False


#: a program of the user that has locked a file of its own, and goes on
EDITOR = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
input()
"""


@pytest.mark.parametrize("trick", ["nothing", "empty", "link", "hard link"])
def test_a_process_that_does_not_record_the_run_is_not_signalled(tmp_path: Path, trick: str) -> None:
    """A store from elsewhere names a process of this user, its start and host, and puts a file in the lock's place."""
    source = working(tmp_path / "s")
    with running(tmp_path / "s") as process:
        process.kill()
        process.wait()
        mine = tmp_path / "mine"
        with Program(
            [sys.executable, "-c", EDITOR, str(mine)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as innocent:
            assert innocent.stdout is not None and innocent.stdout.readline() == b"locked\n"
            (lock,) = (tmp_path / "s").glob(f"instances/*/{LOCK}")
            lock.unlink()
            if trick == "empty":
                lock.touch()
            elif trick == "link":
                lock.symlink_to(mine)
            elif trick == "hard link":
                os.link(mine, lock)
            change(tmp_path / "s", pid=innocent.pid, pid_started=process_started(innocent.pid))
            assert get(source, "run/latest")["status"] == "running"
            possible = get(source, "run/latest/actions")
            assert possible["cancel"] is False and "does not hold the lock" in possible["why"]
            with pytest.raises(StoreError, match=f"process {innocent.pid}, .* does not hold the lock"):
                perform(source, "run/latest/cancel", {})
            assert innocent.poll() is None
            innocent.communicate(b"\n")
            assert innocent.returncode == 0


def test_a_process_that_has_ended_is_not_terminated() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not terminate(ended.pid, process_started(), 5.0, lambda: True)
    assert still_runs(os.getpid(), process_started(), 5.0)


def test_a_run_with_a_checkpoint_is_resumed(tmp_path: Path) -> None:
    source = working(tmp_path / "s")
    with running(tmp_path / "s", "--checkpoint-every", "0.2") as process:
        until(lambda: list((tmp_path / "s").glob("instances/*/checkpoints/*")))
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG) == 130
    before = _steps(tmp_path / "s")
    assert get(source, "run/latest/actions")["resume"] is True
    answer = perform(source, "run/latest/resume", {})
    run = get(source, "run/latest")["run"]
    until(lambda: get(source, "run/latest")["status"] == "running")
    until(lambda: _steps(tmp_path / "s") > before)
    started = get(source, f"started/{answer['key']}")
    assert (started["run"], started["code"]) == (run, None)
    with pytest.raises(Refused, match="is running; interrupted, lost, failed runs can be resumed"):
        perform(source, "run/latest/resume", {})
    perform(source, "run/latest/cancel", {})
    until(lambda: get(source, f"started/{answer['key']}")["code"] == 130)
    assert len(source.store.runs()) == 1


def test_what_cannot_be_resumed_says_why(tmp_path: Path) -> None:
    source = working(tmp_path / "s")
    with running(tmp_path / "s", "--checkpoint-every", "0") as process:
        process.send_signal(signal.SIGINT)
        process.wait(HANG)
    first = get(source, "run/latest")["run"]
    with pytest.raises(Refused, match="it has no checkpoint"):
        perform(source, f"run/{first}/resume", {})
    with running(tmp_path / "s", "--checkpoint-every", "0") as process:
        until(lambda: len(source.store.runs()) == 2)
        with pytest.raises(Refused, match=r"\(running\) of the same document is newer"):
            perform(source, f"run/{first}/resume", {})
        possible = get(source, f"run/{first}/actions")
        assert not possible["resume"] and "is newer" in possible["why"]


def test_a_process_that_fails_shows_why(tmp_path: Path) -> None:
    source = working(tmp_path / "s")
    text = LONG.replace("max_iter", "max_itr")
    key = perform(source, "documents/start", {"text": text, "name": "../../evil/x.yml"})["key"]
    until(lambda: get(source, f"started/{key}")["code"] is not None)
    one = get(source, f"started/{key}")
    assert (one["code"], one["run"]) == (2, None)
    assert "max_itr" in one["printed"]
    assert one["log"].startswith("started/") and ".." not in one["log"]
    assert {path.parent for path in tmp_path.rglob("*.yml")} == {tmp_path / "s" / "started"}


def test_documents_that_cannot_be_read_start_nothing(tmp_path: Path) -> None:
    source = working(tmp_path / "s")
    for body in (
        {"text": "a: ["},
        {"text": LONG, "settings": ["seed"]},
        {"text": LONG, "settings": ["no.such=1"]},
    ):
        with pytest.raises(DocumentError):
            perform(source, "documents/start", body)
    for body in (
        {},
        {"text": LONG, "settings": "x"},
        {"text": LONG, "seed": "1"},
        {"text": LONG, "seed": True},
    ):
        with pytest.raises(ResourceError):
            perform(source, "documents/start", body)
    with pytest.raises(Refused, match="arsenai generate"):
        perform(source, "documents/start", {"text": "uid: x\nfactors: []\n"})
    assert get(source, "started")["started"] == []
    assert not (tmp_path / "s").exists()


def test_settings_are_no_options(tmp_path: Path) -> None:
    """What is typed reaches the command as a value, never as an option or a part of a shell's line."""
    source = working(tmp_path / "s")
    pm.run(DUMMY, store=tmp_path / "s", quiet=True)
    settings = ["uid=$(touch planted); --no-store", "experiment_uid=a'b\"c"]
    key = perform(
        source, "documents/start", {"text": DUMMY.read_text(encoding="utf-8"), "settings": settings}
    )["key"]
    until(lambda: get(source, f"started/{key}")["code"] is not None)
    assert get(source, f"started/{key}")["code"] == 0, get(source, f"started/{key}")["printed"]
    run = source.store.runs().iloc[-1]
    assert (run["document"], run["experiment"]) == ("$(touch planted); --no-store", "a'b\"c")
    assert not list(tmp_path.rglob("planted")) and not Path("planted").exists()


def test_modules_of_what_is_started_are_limited(tmp_path: Path) -> None:
    location = StoreLocation(str(tmp_path / "s"))
    source = Source(location, workplace=Workplace(location, ("mine",)))
    assert get(source, "documents")["allow_modules"] == ("mine",)
    text = LONG.replace("muscle: dummy", 'muscle: "os:system"')
    key = perform(source, "documents/start", {"text": text})["key"]
    until(lambda: get(source, f"started/{key}")["code"] is not None)
    assert "the module 'os' is not allowed" in get(source, f"started/{key}")["printed"]


def test_runs_are_labelled(tmp_path: Path) -> None:
    source = working(tmp_path / "s")
    first, second = (
        pm.run(DUMMY, store=tmp_path / "s", quiet=True, overrides={"seed": n}).instance for n in (1, 2)
    )
    before = get(source, "runs")
    assert before["labels"] == {"rows": pytest.approx([]), "name": [], "tags": [], "note": []}
    note = "a note\n" + "x" * 300
    answer = perform(source, f"run/{first}/label", {"name": "best", "tags": ["a", "b"], "note": note})
    assert answer == {"done": f"labelled run {first}", "name": "best", "tags": ("a", "b"), "note": note}
    head = get(source, "run/best")
    assert (head["run"], head["name"], head["tags"], head["note"]) == (first, "best", ["a", "b"], note)
    # the list is told of the change, with the beginning of the note
    changed = get(source, "runs", {"since": before["cursor"]})
    assert (changed["run"], changed["labels"]["name"], changed["labels"]["tags"]) == (
        [first],
        ["best"],
        [["a", "b"]],
    )
    assert len(changed["labels"]["note"][0]) == 200
    assert get(source, "runs", {"since": changed["cursor"]})["run"] == []
    # what is missing is kept; what is empty is removed
    answer = perform(source, "run/best/label", {"untag": ["a"], "note": ""})
    assert (answer["name"], answer["tags"], answer["note"]) == ("best", ("b",), None)
    answer = perform(source, "runs/label", {"runs": [first, second], "tags": ["c"]})
    assert (answer["done"], answer["runs"][second]["tags"]) == ("labelled 2 runs", ("c",))
    listed = get(source, "runs")["labels"]
    assert (list(listed["rows"]), listed["tags"]) == ([0, 1], [["b", "c"], ["c"]])
    perform(source, f"run/{second}/label", {"untag": ["c"]})
    # that a run has no label any more is a change, too
    again = get(source, "runs", {"since": changed["cursor"]})
    assert (again["run"], list(again["labels"]["rows"])) == ([first, second], [0])


def test_labels_that_are_not_allowed_say_why(tmp_path: Path) -> None:
    source = working(tmp_path / "s")
    run = pm.run(DUMMY, store=tmp_path / "s", quiet=True).instance
    for body, kind, message in (
        ({"name": 1}, ResourceError, "name: expected a text"),
        ({"tags": "a"}, ResourceError, "tags: expected a list of texts"),
        ({"name": "a\x1b"}, StoreError, "without control characters"),
        ({"untag": ["a"]}, StoreError, "has no tag 'a'"),
    ):
        with pytest.raises(kind, match=message):
            perform(source, f"run/{run}/label", body)
    with pytest.raises(StoreError, match="has no run 'x'"):
        perform(source, "run/x/label", {"tags": ["a"]})
    with Store(tmp_path / "s", read_only=True) as store, pytest.raises(Refused, match="read-only"):
        perform(Source(store), f"run/{run}/label", {"tags": ["a"]})
    assert source.store.labels(run) == (None, (), None)
