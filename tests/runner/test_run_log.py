"""What is logged during a run is in the log of the run, and is shown as it is without one."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.documents import agent, document, environment, named, phase

from palaestrai_mosaik.arsenai.execution.cluster.collect import _LEFT
from palaestrai_mosaik.core.errors import RunInterrupted
from palaestrai_mosaik.experiment import RunDocument
from palaestrai_mosaik.runner import Interrupt, execute
from palaestrai_mosaik.runner.run_log import RunLog
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store import log as store_log
from palaestrai_mosaik.store.log import LogFile, read_log
from palaestrai_mosaik.store.merge import delete_runs, place_files
from palaestrai_mosaik.store.verify import verify

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) (worker \d )?([\w.]+): (.*)"
)

TALKING = """
import logging
from palaestrai_mosaik.environment.dummy import DummyEnvironment

own, other = logging.getLogger(__name__), logging.getLogger("some_library")


class Talking(DummyEnvironment):
    def reset(self):
        own.debug("not this")
        own.info("episode %d of worker %d begins", self.episode, self.worker)
        other.info("nor this")
        other.warning("beware")
        return super().reset()
"""


@pytest.fixture
def talking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of a user, which can be imported, and in which results are."""
    (tmp_path / "talking.py").write_text(TALKING)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "talking", raising=False)
    return tmp_path


def talk(**keys: Any) -> RunDocument:
    return document(phase([environment(name="talking:Talking", max_iter=3)], [agent()], **keys))


def lines(text: str) -> list[tuple[str, str, str]]:
    """Return level, logger (with the worker) and message of all lines."""
    found = [LINE.fullmatch(line) for line in text.splitlines()]
    assert None not in found, text
    return [(one[1], f"{one[2] or ''}{one[3]}", one[4]) for one in found if one is not None]


def test_it_has_what_this_package_and_users_modules_log(talking: Path) -> None:
    with Store(talking / "results", create=True) as store:
        run = execute(talk(episodes=2), store=store)
        found = lines(store.log("latest"))
        assert store.log(run.instance) == (run.directory / "log.txt").read_text()
    users = [line for line in found if not line[1].startswith("palaestrai_mosaik")]
    assert users == [
        ("INFO", "talking", "episode 0 of worker 0 begins"),
        ("WARNING", "some_library", "beware"),
        ("INFO", "talking", "episode 1 of worker 0 begins"),
        ("WARNING", "some_library", "beware"),
    ]
    ours = [message for level, name, message in found if name.startswith("palaestrai_mosaik")]
    # also what was said before there was a folder
    assert ours[0].startswith("environment 'myenv' set up in")
    assert any(message.startswith("phase 'phase_0' ended") for message in ours)
    assert ours[-1] == f"run {run.instance} has finished"


def test_workers_write_into_it(talking: Path) -> None:
    with Store(talking / "results", create=True) as store:
        execute(talk(episodes=2, workers=2), store=store)
        found = lines(store.log("latest"))
    for worker in (0, 1):
        mine = [line for line in found if line[1].startswith(f"worker {worker} ")]
        assert [message for _, _, message in mine] == [
            f"episode 0 of worker {worker} begins",
            "beware",
            f"episode 1 of worker {worker} begins",
            "beware",
        ]


def test_warnings_and_the_traceback_of_a_failure_are_in_it(tmp_path: Path) -> None:
    broken = environment("myenv", "support.parts:Broken", where="step")
    one = agent(
        sensors=["myenv.x"], actuators=["myenv.u"], muscle=named("support.parts:Returning", what="good list")
    )
    with Store(tmp_path, create=True) as store:
        with pytest.raises(Exception, match="broken") as caught:
            execute(document(phase([broken], [one])), store=store)
        text = store.log("latest")
        assert "ERROR palaestrai_mosaik.run: the run failed\nTraceback (most recent call last):\n" in text
        assert text.endswith(
            f"{type(caught.value).__name__}: {caught.value}\nraised in environment 'myenv'\n"
        )
        assert store.errors("latest")["traceback"][0].rstrip() in text


def test_it_goes_on_where_a_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doc = document(phase([environment(max_iter=3)], episodes=3))
    interrupt = Interrupt()
    with Store(tmp_path / "results", create=True) as store:

        class Impatient(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if record.getMessage().startswith("checkpoint"):
                    interrupt.request()

        handler = Impatient()
        logger = logging.getLogger("palaestrai_mosaik.runner.runner")
        logger.addHandler(handler)
        try:
            with pytest.raises(RunInterrupted):
                execute(doc, store=store, interrupt=interrupt, checkpoint_every=1e-9)
        finally:
            logger.removeHandler(handler)
        (instance,) = store.runs()["run"]
        before = store.log(instance)
        assert lines(before)[-1][0] == "WARNING" and "interrupted in phase" in before.splitlines()[-1]
        # what was collected meanwhile is another name of the same file
        folder = store.instance_directory(instance)
        place_files(folder, tmp_path / "copy", _LEFT)
        execute(doc, store=store, resume=instance)
        after = store.log(instance)
        assert after.startswith(before) and len(after) > len(before)
        assert read_log(tmp_path / "copy") == before


def test_a_collected_run_brings_it_and_it_is_exported_and_deleted(talking: Path) -> None:
    with Store(talking / "results", create=True) as store:
        run = execute(talk(), store=store)
        text = store.log("latest")
        assert verify(store, run.instance).damage == ()
        place_files(run.directory, talking / "copy", _LEFT)
        assert read_log(talking / "copy") == text
        store.export("latest", talking / "out")
        assert (talking / "out" / "log.txt").read_text() == text
        delete_runs(store, ["latest"])
        assert not run.directory.exists()


def test_a_run_without_a_log_has_an_empty_one(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        run = execute(document(phase([environment(max_iter=2)])), store=store)
        (run.directory / "log.txt").unlink()
        assert store.log("latest") == ""
        store.export("latest", tmp_path / "out")
        assert not (tmp_path / "out" / "log.txt").exists()


def test_it_is_cut_where_it_gets_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_log, "LIMIT", 100)
    for _ in range(2):
        # the second one goes on with what is there
        log = LogFile(tmp_path)
        for _ in range(20):
            log.write("123456789\n")
        log.close()
    log = LogFile(tmp_path)
    log.write("more\n")
    log.close()
    assert read_log(tmp_path) == "123456789\n" * 10 + store_log.CUT
    assert "it has reached 5 MB" in store_log.CUT


def test_a_link_in_its_place_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "secret").write_text("mine\n")
    (tmp_path / "run" / "log.txt").symlink_to(tmp_path / "secret")
    log = LogFile(tmp_path / "run")
    log.write("a line\n")
    log.close()
    assert (tmp_path / "secret").read_text() == "mine\n"
    assert (tmp_path / "run" / "log.txt").read_text() == "a line\n"


def test_a_folder_that_cannot_be_written_to_fails_nothing(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "missing")
    log.write("a line\n")
    log.close()


def test_loggers_are_left_as_they_were(caplog: pytest.LogCaptureFixture) -> None:
    package, root = logging.getLogger("palaestrai_mosaik"), logging.getLogger()
    before = [(one.level, one.propagate, list(one.handlers)) for one in (package, root)]
    with RunLog(["a.b", "palaestrai_mosaik.agent"]) as outer, RunLog(["c"]):
        logging.getLogger("a.b.c").info("not shown")
        logging.getLogger("a.b.c").warning("shown once")
        logging.getLogger("x").warning("shown once, too")
        with caplog.at_level(logging.INFO, logger="palaestrai_mosaik.runner"):
            logging.getLogger("palaestrai_mosaik.runner.runner").info("asked for")
        assert outer.packages == ("a", "palaestrai_mosaik")
    assert [(one.level, one.propagate, list(one.handlers)) for one in (package, root)] == before
    assert [record.msg for record in caplog.records] == ["shown once", "shown once, too", "asked for"]


@pytest.mark.parametrize(
    ("configure", "shown"),
    [
        ("", ["beware"]),
        ("logging.basicConfig(format='%(message)s')", ["beware"]),
        ("logging.basicConfig(format='%(message)s', level='ERROR')", []),
        (
            "logging.basicConfig(format='%(message)s', level='INFO')",
            ["episode 0 of worker 0 begins", "nor this", "beware"],
        ),
    ],
)
def test_what_is_shown_does_not_change(talking: Path, configure: str, shown: list[str]) -> None:
    code = (
        f"import logging; {configure}\n"
        "from palaestrai_mosaik.runner import execute\n"
        "from tests.runner.test_run_log import talk\n"
        "execute(talk(), store='results')"
    )
    root = Path(__file__).parents[2]
    path = os.pathsep.join(map(str, (root, root / "tests", talking)))
    ended = subprocess.run(
        [sys.executable, "-c", code],
        **{"cwd": talking, "env": {**os.environ, "PYTHONPATH": path}},
        capture_output=True,
        text=True,
        check=True,
    )
    said = [line for line in ended.stderr.splitlines() if " set up in " not in line]
    ours = ("document ", "run ", "phase ")
    assert [line for line in said if not line.startswith(ours)] == shown
    with Store(talking / "results") as store:
        # whoever wants no warnings of other loggers has none in the log either
        kept = {message for _, _, message in lines(store.log("latest"))}
    assert "episode 0 of worker 0 begins" in kept and ("beware" in kept) == (shown != [])
