"""Passwords of databases: where a URL may come from, and that no password is left anywhere."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import time
import traceback
from pathlib import Path
from urllib.parse import unquote

import psutil
import pytest
import sqlalchemy as sa
from arsenai.execution.folders import drive, environment_now, make_folder, markers
from hypothesis import example, given
from hypothesis import strategies as st
from support.documents import document, named, phase
from support.learning import HERE, learner, track, write
from support.waiting import until

from palaestrai_mosaik.cli.arsenai import main as arsenai
from palaestrai_mosaik.cli.common import store_option
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.core.importing import only_modules
from palaestrai_mosaik.environment.replay import SessionPoolEnvironment
from palaestrai_mosaik.runner.recorded_sessions import StoredSessions, check_sessions
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.models import Base
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.store.urls import (
    database_url,
    holds_password,
    is_database,
    masked,
    shown,
    without_passwords,
)
from tests.support import postgresql

#: characters that mean something in a URL around a word that stays the same in all spellings
WORD = "s3cretW0rd"
PASSWORD = f"p@ {WORD}/%"
QUOTED = f"p%40%20{WORD}%2F%25"
URL = f"postgresql+psycopg://me:{QUOTED}@db.example.org:5433/results"


def test_a_location_is_told_without_its_password():
    location = StoreLocation.of(Path("results"), URL)
    assert location.shown == "postgresql+psycopg://me:***@db.example.org:5433/results"
    assert WORD not in repr(location) + str(location)
    assert location.folder is None and location.directory == str(Path("results").absolute())
    assert pickle.loads(pickle.dumps(location)) == location
    assert database_url(location.location).password == PASSWORD
    in_query = f"postgresql://me@db/results?password={QUOTED}&sslmode=require"
    assert shown(in_query) == "postgresql+psycopg://me@db/results?password=***&sslmode=require"
    assert holds_password(URL) and holds_password(in_query)
    upper = f"postgresql://me@db/results?PASSWORD={QUOTED}&sslmode=require"
    assert shown(upper) == "postgresql+psycopg://me@db/results?PASSWORD=***&sslmode=require"
    assert holds_password(upper)
    for harmless in (
        "results",
        "/a/host=b",
        "@url",
        "env:URL",
        "sqlite:///x.db",
        "postgresql://me@db/results",
    ):
        assert not holds_password(harmless), harmless
        assert harmless.removeprefix("postgresql") in shown(harmless)


_KEYS = ("password", "PASSWORD", "pwd", "Pwd", "passwd", "pass", "sslpassword", "token", "odbc_connect", "x")
_SHAPES = (
    "{scheme}://me:{word}@db/results",
    "{scheme}://:{word}@db/results",
    "{scheme}:/me:{word}@db/results",
    "{scheme}:me:{word}@db/results",
    "{scheme}//me:{word}@db/results",
    " {scheme}:/me:{word}@db",
    "{scheme} ://me:{word}@db",
    "me:{word}@db/results",
    "//me:{word}@db/results",
    "{scheme}://me:a@b{word}@db/results",
    "{scheme}://me:a@b/{word}@db/results",
    "{scheme}://me:{word}@[::1/results",
    "{scheme}://me:{word}@db:port/results",
    "{scheme}://me@db/results?{key}={word}",
    "{scheme}://me@db/results?sslmode=require&{key}={word}",
    "{scheme}:///?odbc_connect=Driver%3D%7Bx%7D%3B{key}%3D{word}",
    "{scheme}://me@db/results?dbname={scheme}://u:{word}@h",
    "{scheme}://me@db/results?host=u:{word}@h",
    "{scheme}://me@db/results?host=u:{word}",
    "jdbc:{scheme}://db/results?user=me&{key}={word}",
    "Driver={{x}};Server=db;UID=me;PWD={word}",
    "host=db user=me passwd={word}",
)
_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg", "POSTGRESQL", "mysql+pymysql", "mssql+pyodbc")


@given(
    shape=st.sampled_from(_SHAPES),
    scheme=st.sampled_from(_SCHEMES),
    key=st.sampled_from(_KEYS),
    before=st.text("aZ0%.-_~!$*+,", max_size=3),
    after=st.text("aZ0%.-_~!$*+,", max_size=3),
)
@example("{scheme}://me@db/results?{key}={word}", "postgresql", "pwd", "", "")
@example("{scheme}://me@db/results?{key}={word}", "postgresql", "passwd", "", "")
@example("{scheme}:///?odbc_connect=Driver%3D%7Bx%7D%3B{key}%3D{word}", "mssql+pyodbc", "pwd", "", "")
@example("{scheme}:/me:{word}@db/results", "postgresql", "x", "", "")
def test_no_spelling_of_a_password_is_told(shape, scheme, key, before, after):
    """Whatever may be one is not told: not in a location, a message, or where something is suggested."""
    location = shape.format(scheme=scheme, key=key, word=before + WORD + after)
    told = [shown(location), repr(StoreLocation.of(Path("results"), location)), store_option(location)]
    try:
        url = database_url(location)
    except StoreError as error:
        # but for the frame of this test, which has the line above in it
        told += [str(error), repr(error.__cause__), "".join(traceback.format_exception(error))]
        assert holds_password(location)
    else:
        told.append(masked(url))
        if key != "x":
            assert holds_password(location)
            told.append(without_passwords(f"{url.password} {dict(url.query)}", url))
    assert not [one for one in told if WORD in one]
    assert is_database(location), "it would be taken for the name of a folder, and made"


@pytest.mark.parametrize(
    "folder", ["C:/x", "C:\\x", "a:b", "./x:y", "runs@home", "2026-01-01T10:00", "/a/x:y@z"]
)
def test_names_of_folders_are_no_urls(folder):
    assert not is_database(folder) and shown(folder) == folder


def test_what_is_no_secret_is_told():
    plain = (
        "postgresql+psycopg://me@db/results?connect_timeout=3&host=/run/pg&sslkey=/a/b.key&sslmode=require"
    )
    assert shown(plain) == plain.replace("/run/pg", "%2Frun%2Fpg").replace("/a/b.key", "%2Fa%2Fb.key")
    assert not holds_password(plain)
    assert not holds_password("postgresql://db/results?options=-csearch_path=x")
    driver = "mssql+pyodbc://me@db/results?driver=ODBC+Driver+18+for+SQL+Server"
    assert shown(driver) == driver and not holds_password(driver)
    several = "postgresql+psycopg://me@/results?host=a:5432,b:5433"
    assert unquote(shown(several)) == several and not holds_password(several)


@pytest.mark.parametrize(
    "url",
    ["sqlite+planted:///{}/x.db", "sqlite:///{}/x.db?plugin=planted", "postgresql://h/d?sslkey=/x.so:1"],
)
def test_a_document_whose_modules_are_limited_names_no_driver(url, tmp_path, monkeypatch):
    """SQLAlchemy imports dialects, drivers and plugins; OpenSSL loads engines that an option names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "planted_dialect.py").write_text("open('exploded', 'w')")
    (tmp_path / "x.db").touch()
    sa.dialects.registry.register("sqlite.planted", "planted_dialect", "Dialect")
    source = {"store": url.format(tmp_path), "run": "u"}
    pool = SessionPoolEnvironment(source=source)
    with only_modules(()), pytest.raises(StoreError, match="has a driver or options of its own"):
        check_sessions(pool)
    with only_modules(()), pytest.raises(StoreError, match="has a driver or options of its own"):
        StoredSessions()(source)
    assert not (tmp_path / "exploded").exists()
    if "+planted" in url:
        with contextlib.suppress(Exception):
            StoredSessions()(source)
        assert (tmp_path / "exploded").exists(), "SQLAlchemy imports it, so the test above can fail"


@pytest.mark.parametrize(
    "wrong",
    [
        f"postgresql://me:p@{WORD}@db/results",
        f"postgresql://me:{WORD}",
        f"postgresql://me:x@db:{WORD}/results",
        f"://{WORD}@",
        f"host=db dbname=results password={WORD}",
        f"Password = {WORD} host=db",
        f"host=db password={WORD}://x",
    ],
)
def test_what_cannot_be_read_is_not_quoted(wrong, monkeypatch, tmp_path):
    monkeypatch.setenv("WRONG", wrong)
    (tmp_path / "url").write_text(wrong)
    for location in (wrong, "env:WRONG", f"@{tmp_path}/url"):
        with pytest.raises(StoreError, match="not the URL of a database: write it as") as raised:
            Store(location, create=True)
        assert raised.value.__cause__ is None
        assert WORD not in f"{raised.value} {shown(location)}"
    assert holds_password(wrong)


def test_messages_of_drivers_lose_the_password():
    url = database_url(URL)
    text = f"no {PASSWORD} and no {QUOTED} at {masked(url)}"
    assert without_passwords(text, url) == "no *** and no *** at " + shown(URL)
    short = sa.make_url("postgresql://me:e@db/results")
    assert without_passwords("there is no server", short) == "there is no server"


def test_a_url_may_come_from_a_file_or_the_environment(tmp_path, monkeypatch):
    file = tmp_path / "url"
    file.write_text(f"sqlite:///{tmp_path}/own.db\nanother line\n")
    monkeypatch.setenv("MY_STORE", f" sqlite:///{tmp_path}/own.db\n")
    monkeypatch.chdir(tmp_path)
    with Store("@url", create=True) as store:
        store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="1").finish("finished")
    assert StoreLocation.of(Path("x"), "@url").location == f"@{file}"
    for location in ("env:MY_STORE", f"@{file}"):
        with Store(location, create=False) as store:
            assert store.runs()["document"].tolist() == ["u"]
    with pytest.raises(StoreError, match=r"the environment variable 'NO_STORE' holds no URL.*not set"):
        Store("env:NO_STORE", create=True)
    with pytest.raises(
        StoreError, match=rf"cannot read the URL of the store in {tmp_path}/none: No such file"
    ):
        Store(f"@{tmp_path}/none", create=True)
    file.write_bytes(b"\xff\xfe\n")
    with pytest.raises(StoreError, match="it is no text"):
        Store(f"@{file}", create=True)


@pytest.mark.skipif(os.name != "posix", reason="other systems have no modes")
def test_a_file_with_a_password_is_for_its_owner_alone(tmp_path):
    file = tmp_path / "url"
    file.write_text(URL + "\n")
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        with pytest.raises(StoreError, match=rf"others may read or write it .mode {mode:04o}.: chmod 600"):
            database_url(f"@{file}")
    file.chmod(0o600)
    assert database_url(f"@{file}").password == PASSWORD
    file.write_text("postgresql://me@db/results")
    file.chmod(0o644)
    assert database_url(f"@{file}").drivername == "postgresql+psycopg"


def test_a_document_must_not_hold_a_password(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pool = "palaestrai_mosaik.environment.replay:SessionPoolEnvironment"
    one = {"environment": {"uid": "past", "name": pool, "params": {"source": {"store": URL, "run": "u"}}}}
    nobody = {"name": "nobody", "muscle": named("palaestrai_mosaik.agent.library.idle:IdleMuscle")}
    text = document(phase([one], [nobody | {"sensors": [], "actuators": ["past.idle"]}]))
    path = write(tmp_path / "run.yml", text)
    assert main(["start", str(path)]) == 2
    told = capsys.readouterr()
    assert "holds a password, which must not stand in a document" in told.err
    assert WORD not in told.out + told.err
    with Store(create=False) as store:
        assert store.runs().empty


@pytest.fixture
def planted():
    """The URL of a database, by a user with a password that is found wherever it is."""
    user = f"planted_{os.getpid()}"
    with postgresql.fresh_database() as url:
        literal = PASSWORD.replace("%", "%%")
        postgresql.statement(f"CREATE ROLE {user} LOGIN SUPERUSER PASSWORD '{literal}'")
        try:
            yield sa.make_url(url).set(username=user, password=PASSWORD)
        finally:
            postgresql.statement(f"REASSIGN OWNED BY {user} TO CURRENT_USER")
            with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
                connection.exec_driver_sql(f"REASSIGN OWNED BY {user} TO CURRENT_USER")
                connection.exec_driver_sql(f"DROP OWNED BY {user}")
            postgresql.statement(f"DROP ROLE {user}")


def holders(folder: Path, word: str) -> list[str]:
    """Return the files below ``folder`` that hold ``word``, or have it in their name."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if word.encode() in path.read_bytes() or word in path.name]


def rows(url: sa.URL) -> str:
    """Return all that the database holds as text."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        tables = [f"SELECT row_to_json(t)::text FROM {name} t" for name in Base.metadata.tables]
        return "\n".join(row for table in tables for row in connection.exec_driver_sql(table).scalars())


def command_lines(process: subprocess.Popen[str]) -> set[str]:
    """Return the command lines of all processes that ``process`` has started.

    Between fork and exec, a process has the command line of the one that starts it: this says nothing of its own.
    """
    found = set()
    parent = psutil.Process(process.pid)
    with contextlib.suppress(psutil.NoSuchProcess):
        own = parent.cmdline()
        for child in parent.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if (line := child.cmdline()) != own:
                    found.add(" ".join(line))
    return found


def training(tmp_path: Path) -> Path:
    """Write a document whose learner keeps snapshots and checkpoints, and which fails in the end."""
    one = learner(
        muscle=named(f"{HERE}:WandererMuscle"),
        brain=named(f"{HERE}:Wanderer"),
        objective=named(f"{HERE}:Drift"),
        snapshots={"every": 2, "best": True},
    )
    (tmp_path / "broken").touch()
    ends = [named(f"{HERE}:Tiring", steps=6)]
    ends.append(named(f"{HERE}:FailsWhile", path=str(tmp_path / "broken"), episode=5, time=2))
    only = phase([track(steps=6)], [one], ends, workers=2, sync_every=2, episodes=16, evaluate_every=2)
    return write(tmp_path / "run.yml", document(only))


@postgresql.needs_server
def test_no_password_is_left_anywhere(planted, tmp_path, monkeypatch, capfd):
    url = planted.render_as_string(hide_password=False)
    assert WORD in url
    monkeypatch.chdir(tmp_path)
    path = training(tmp_path)
    gate = tmp_path / "gate"
    folder = make_folder(tmp_path / "design", ["well", "raise", "hang"], gate=str(gate)).path
    started: set[str] = set()
    options = [str(path), "--store", url, "--checkpoint-every", "0.001"]
    trained = subprocess.Popen(
        [sys.executable, "-m", "palaestrai_mosaik.cli.main", "start", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment_now(),
    )
    executed = drive(folder, "--jobs", "2", "--store", url)
    while trained.poll() is None:
        started |= command_lines(trained)
        time.sleep(0.01)
    until(lambda: any("-2" in run for run in markers(folder)))
    assert not holders(folder / "jobs", WORD), "while runs go on"
    started |= command_lines(executed)
    gate.touch()
    told = trained.communicate()[0] + "".join(executed.communicate())
    assert (trained.returncode, executed.returncode) == (1, 1), told
    assert len(started) >= 2
    options = [str(folder), "--store", url]
    assert arsenai(["status", *options]) == 0
    assert arsenai(["report", *options]) in (0, 1)
    assert arsenai(["status", str(folder), "--store", url.replace("%40", "@")]) == 2
    wrong = planted.set(password=f"wrong{WORD}").render_as_string(hide_password=False)
    assert main(["list", "--store", wrong]) == 2
    told += "".join(capfd.readouterr())
    record = json.loads(next((folder / "jobs").glob("*.json")).read_text())
    assert record["store"] == planted.render_as_string(hide_password=True)
    assert "password authentication failed" in told
    assert "warning: the password in --store" in told and f"--store '{record['store']}'" in told
    assert (folder / "report").is_dir()
    assert list(tmp_path.rglob("state.pickle")), "the run that failed has left a checkpoint"
    kept = rows(planted)
    assert "not mended yet" in kept and "has had enough" in kept
    # what is looked for could be found
    assert holders(folder, planted.username)
    found = {"printed": WORD in told, "in the database": WORD in kept, "files": holders(tmp_path, WORD)}
    assert found == {"printed": False, "in the database": False, "files": []}
    assert not [line for line in started if WORD in line]


@postgresql.needs_server
def test_a_url_without_password_works_as_for_all_programs_of_postgresql(planted, tmp_path, monkeypatch):
    plain = planted._replace(password=None).render_as_string()
    for variable in ("PGPASSWORD", "PGPASSFILE"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(StoreError, match="no password supplied"):
        Store(plain, directory=tmp_path, create=True)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    Store(plain, directory=tmp_path, create=True).close()
    monkeypatch.delenv("PGPASSWORD")
    file = tmp_path / ".pgpass"
    file.write_text(f"*:*:*:{planted.username}:{PASSWORD}\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    with Store(plain, directory=tmp_path, create=False) as store:
        assert store.runs().empty
