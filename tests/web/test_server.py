"""The commands that serve the page, as processes: start, end, ports, options, stores that come later, PostgreSQL."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from support import postgresql
from support.waiting import HANG, until

import palaestrai_mosaik as pm
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.web.resources import Source

pytest.importorskip("uvicorn", reason="no server (extra 'web')")

ROOT = Path(__file__).parents[2]
DUMMY = ROOT / "scenarios" / "dummy.yml"
#: a run that goes on until it is ended
ENDLESS = DUMMY.read_text(encoding="utf-8").replace("episodes: 3}", "episodes: 1000000}")
DESIGN = """\
uid: study
seed: 1
repetitions: 1
base: {schedule: {only: {environments: [dummy], agents: [{name: a, muscle: dummy}], phase_config: {episodes: 1}}}}
factors:
  - {path: schedule.only.agents.a.muscle, levels: [dummy, random]}
"""


class Page:
    """A command that serves the page, as a process."""

    def __init__(self, process: subprocess.Popen[str], line: str):
        self.process = process
        self.line = line
        found = re.search(r"http://\S+", line)
        assert found, line
        self.address, _, self.token = found[0].partition("/?token=")
        self.port = int(self.address.rpartition(":")[2])

    def __call__(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}/api/{path}", data)
        request.add_header("Cookie", f"palaestrai-mosaik-{self.port}={self.token}")
        request.add_header("Content-Type", "application/json")
        request.add_header("Origin", self.address)
        with urllib.request.urlopen(request, timeout=HANG) as answer:
            return json.load(answer)

    def end(self, number: int = signal.SIGINT) -> tuple[int, str, str]:
        """End it; return the exit code, and what it printed after the first line."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=HANG)
        return self.process.returncode, out, err


@contextmanager
def serving(*arguments: str, cwd: Path, **environment: str) -> Iterator[Page]:
    process = subprocess.Popen(
        [sys.executable, "-m", "palaestrai_mosaik", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            pytest.fail(process.communicate()[1])
        yield Page(process, line)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def statuses(folder: Path) -> list[str]:
    with Store(folder, read_only=True) as store:
        return list(store.runs()["status"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "results"
    pm.run(DUMMY, store=folder, quiet=True)
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_store_is_served_until_a_signal_ends_it(folder: Path, number: int) -> None:
    with serving("serve", "results", "--port", "0", cwd=folder.parent) as page:
        assert page.line.startswith("results: http://127.0.0.1:") and "Ctrl-C ends the page" in page.line
        assert page("store")["location"] == str(folder)
        assert page("run/latest")["status"] == "finished"
        code, out, err = page.end(number)
    assert (code, out, err) == (0, "", "the page has ended\n")
    assert page.token not in err


def test_an_address_outlives_a_restart_and_is_written_nowhere(folder: Path, tmp_path: Path) -> None:
    key = tmp_path / "keys" / "key"
    environment = {"PALAESTRAI_MOSAIK_KEY": str(key)}
    with serving("serve", "results", "--port", "0", "-v", cwd=folder.parent, **environment) as first:
        first.end()
    assert (key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    port = str(first.port)
    # (also by another name of the store)
    (tmp_path / "link").symlink_to(folder)
    with serving("serve", "link", "--port", port, "-v", cwd=tmp_path, **environment) as page:
        if page.port != first.port:
            pytest.skip(f"another program has taken port {port}")
        assert page.line.endswith(first.line.removeprefix("results: "))
        page.token = first.token
        assert page("run/latest")["status"] == "finished"
        _, out, err = page.end()
    assert first.token not in out + err
    kept = [path for place in (folder, tmp_path) for path in place.rglob("*") if path.is_file()]
    assert key in kept and not [path for path in kept if first.token.encode() in path.read_bytes()]


def test_without_a_key_an_address_ends_with_its_server(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    tokens = set()
    for _ in range(2):
        with serving(
            *("serve", "results", "--port", "0"),
            cwd=folder.parent,
            PALAESTRAI_MOSAIK_KEY=str(tmp_path / "file" / "key"),
        ) as page:
            assert page("run/latest")["status"] == "finished"
            tokens.add(page.token)
            _, _, err = page.end()
        assert "warning: the page will have another address after a restart: the private key" in err
    assert len(tokens) == 2


def test_the_default_store_is_that_of_other_commands(folder: Path, tmp_path: Path) -> None:
    with serving("serve", "-q", "--port", "0", cwd=tmp_path, PALAESTRAI_MOSAIK_STORE=str(folder)) as page:
        assert page.line.startswith("http://")  # and nothing else
        assert page("run/latest")["document"] == "dummy"
        assert page.end() == (0, "", "")


def test_the_log_has_actions_and_no_token(folder: Path) -> None:
    with serving("serve", "results", "--port", "0", "-v", cwd=folder.parent) as page:
        with pytest.raises(urllib.error.HTTPError):
            page("run/latest/cancel", {})
        with suppress(urllib.error.HTTPError):
            urllib.request.urlopen(f"{page.address}/?token={page.token}").close()
        code, _, err = page.end()
    assert code == 0
    assert "run/latest/cancel: refused: run" in err and "is not running: it is finished" in err
    assert page.token not in err


def test_a_port_that_is_taken_is_replaced_by_the_next(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with serving("serve", "results", "--port", str(port), cwd=folder.parent) as page:
            assert page.port > port
            _, _, err = page.end()
    assert f"port {port} is taken; using {page.port}" in err


def test_ports_and_hosts_that_cannot_be_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in (
        ["--port", "70000"],
        ["--port", "-1"],
        ["--host", "no such host"],
        ["--host", "192.0.2.1"],
    ):
        assert main(["serve", str(folder), *option]) == 2
        assert option[1] in capsys.readouterr().err


def test_others_reach_it_only_with_a_warning(folder: Path) -> None:
    with serving("serve", "results", "--host", "0.0.0.0", "--port", "0", cwd=folder.parent) as page:
        page.address = f"http://127.0.0.1:{page.port}"
        assert page("store")["location"] == str(folder)
        _, _, err = page.end()
    assert "warning: other machines reach the page on 0.0.0.0" in err and "not encrypted" in err
    # who has read the token in the network cannot use it later
    with serving(
        "serve", "results", "--host", "0.0.0.0", "--port", str(page.port), cwd=folder.parent
    ) as again:
        again.end()
    assert again.token != page.token


def test_the_first_run_of_a_page_creates_the_store(folder: Path) -> None:
    place = folder.parent / "result"
    with serving("serve", "result", "--port", "0", cwd=folder.parent) as page:
        assert page("store")["location"] == str(place)
        assert page("runs")["count"] == 0
        assert page("documents")["directory"] == str(folder.parent)
        assert page("documents/check", {"text": DUMMY.read_text(encoding="utf-8")})["problems"] == []
        assert not place.exists()
        key = page("documents/start", {"text": DUMMY.read_text(encoding="utf-8")})["key"]
        until(lambda: page(f"started/{key}")["code"] is not None)
        one = page(f"started/{key}")
        assert one["code"] == 0, one["printed"]
        assert page("runs")["count"] == 1
        assert page(f"run/{one['run']}")["status"] == "finished"
        code, _, err = page.end()
    assert code == 0
    assert "warning: there is no store at" in err and "(did you mean 'results'?)" in err
    assert "the first run that is started creates it" in err
    assert statuses(place) == ["finished"]
    shutil.rmtree(place)


def test_a_page_that_only_shows_waits_for_a_store(folder: Path) -> None:
    place = folder.parent / "elsewhere"
    with serving("serve", "elsewhere", "--port", "0", "-q", "--read-only", cwd=folder.parent) as page:
        assert page("runs")["count"] == 0
        assert not place.exists()
        code, _, err = page.end()
    assert code == 0
    assert f"in {folder.parent} there are: results" in err
    assert "a run creates it: palaestrai-mosaik start RUN.yml --store elsewhere" in err


def test_a_store_that_cannot_be_opened_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("results").write_text("")
    assert main(["serve", "results"]) == 2
    assert "results is a file, not a directory" in capsys.readouterr().err


def test_without_the_extra_the_error_has_the_command(folder: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in ("palaestrai_mosaik.web.server", "palaestrai_mosaik.web.server"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert main(["serve", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "the page needs uvicorn" in said and "[web]" in said


def test_a_design_is_served_before_it_has_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "design.yml").write_text(DESIGN, encoding="utf-8")
    assert main(["arsenai", "generate", "design.yml", "-o", "study", "--quiet"]) == 0
    with serving("arsenai", "serve", "study", "--port", "0", cwd=tmp_path) as page:
        assert page("store")["design"] == "study"
        assert page("store")["location"] == str(tmp_path / "study" / "results")
        assert not (tmp_path / "study" / "results").exists()
        possible = page("design/actions")
        assert (possible["resume"], possible["cancel"]) == (True, False)
        with pytest.raises(urllib.error.HTTPError) as refused:
            page("design/cancel", {})
        assert "nothing to cancel" in refused.value.read().decode()
        key = page("design/resume", {})["key"]
        until(lambda: page(f"started/{key}")["code"] is not None)
        one = page(f"started/{key}")
        assert (one["code"], one["run"]) == (0, None), one["printed"]
        assert "2 of 2 runs finished" in one["printed"]
        until(lambda: page("store") and _is_found(page))
        assert page.end()[0] == 0
    assert statuses(tmp_path / "study" / "results") == ["finished"] * 2


def _is_found(page: Page) -> bool:
    try:
        return bool(page("run/latest")["status"] == "finished")
    except urllib.error.HTTPError:
        return False


def test_what_the_page_has_started_outlives_it(tmp_path: Path) -> None:
    pm.run(DUMMY, store=tmp_path / "s", quiet=True)
    with serving("serve", "s", "--port", "0", cwd=tmp_path) as page:
        key = page("documents/start", {"text": ENDLESS, "settings": ["uid=endless"]})["key"]
        until(lambda: page(f"started/{key}")["run"] is not None)
        run = page(f"started/{key}")["run"]
        page.process.kill()
        page.process.wait()
    with Store(tmp_path / "s", read_only=True) as store:
        before = store.runs().set_index("run").loc[run, "steps"]
        until(lambda: store.runs().set_index("run").loc[run, "steps"] > before)
        assert store.runs().set_index("run").loc[run, "status"] == "running"
    with serving("serve", "s", "--port", "0", cwd=tmp_path) as page:
        # of a page that did not start it
        assert "was asked to end" in page(f"run/{run}/cancel", {})["done"]
        until(lambda: statuses(tmp_path / "s")[-1] == "interrupted")
        page.end()


def test_checks_end_with_the_server(tmp_path: Path) -> None:
    pm.run(DUMMY, store=tmp_path / "s", quiet=True)
    (tmp_path / "sleeping_parts.py").write_text(
        "import os, time\nfrom pathlib import Path\nPath('pid').write_text(str(os.getpid()))\ntime.sleep(3600)\n"
    )
    text = DUMMY.read_text(encoding="utf-8").replace("name: dummy", 'name: "sleeping_parts:X"', 1)
    text = re.sub(r"name: .*Dummy\w*Environment.*", 'name: "sleeping_parts:X"', text)
    with serving("serve", "s", "--port", "0", cwd=tmp_path) as page:
        asking = threading.Thread(target=_ask, args=(page, text), daemon=True)
        asking.start()
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pid = int((tmp_path / "pid").read_text())
        assert page.end()[0] == 0
    until(lambda: not Path(f"/proc/{pid}").exists())
    asking.join(HANG)


def _ask(page: Page, text: str) -> None:
    with suppress(urllib.error.URLError, OSError):
        page("documents/check", {"text": text})


def test_a_store_may_come_after_the_page(tmp_path: Path) -> None:
    source = Source(StoreLocation(str(tmp_path / "later")))
    assert source.store.runs().empty
    assert not (tmp_path / "later").exists()
    pm.run(DUMMY, store=tmp_path / "later", quiet=True)
    until(lambda: len(source.store.runs()) == 1)
    source.close()


def test_many_threads_read_one_store(folder: Path) -> None:
    source = Source(Store(folder, read_only=True))
    run = source.store.find_run("dummy")
    problems: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(20):
                assert len(source.store.runs()) >= 1
                assert len(source.store.steps(run, agent="evil_attacker")) > 0
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    # (it was opened as it is: what is written meanwhile is noticed)
    pm.run(DUMMY, store=folder, quiet=True)
    for thread in threads:
        thread.join(HANG)
    assert problems == []
    assert len(source.store.runs()) == len(statuses(folder))
    source.close()


@postgresql.needs_server
def test_a_database_is_served_and_recorded_into(tmp_path: Path) -> None:
    with postgresql.fresh_database() as url:
        (tmp_path / "url").write_text(url)
        (tmp_path / "url").chmod(0o600)
        made = subprocess.run(
            [
                sys.executable,
                "-m",
                "palaestrai_mosaik",
                "start",
                str(DUMMY),
                "-q",
                "--store",
                "@url",
                "--files",
                "files",
            ],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0, made.stderr
        for place, environment in (("@url", {}), ("env:RESULTS", {"RESULTS": url}), (url, {})):
            with serving(
                "serve", place, "--files", "files", "--port", "0", cwd=tmp_path, **environment
            ) as page:
                assert page("store")["location"] == str(tmp_path / "files")
                key = page("documents/start", {"text": DUMMY.read_text(encoding="utf-8"), "seed": 9})["key"]
                password = sa.make_url(url).password
                pid = page(f"started/{key}")["process"]
                line = Path(f"/proc/{pid}/cmdline").read_text() if Path(f"/proc/{pid}").exists() else ""
                assert not password or password not in line
                until(lambda page=page, key=key: page(f"started/{key}")["code"] is not None)
                one = page(f"started/{key}")
                assert one["code"] == 0, one["printed"]
                assert page(f"run/{one['run']}")["seed"] == 9
                assert not password or password not in page.line
                page.end()
        assert len(list((tmp_path / "files" / "instances").iterdir())) == 4
        assert not (tmp_path / "palaestrai-results").exists()
