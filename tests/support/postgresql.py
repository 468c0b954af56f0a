"""Databases of the PostgreSQL that tests may use, each for one test alone."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

import pytest
import sqlalchemy as sa

#: the URL of a database of its server, by a user who may make databases and users
URL = os.environ.get("PALAESTRAI_MOSAIK_TEST_POSTGRESQL")
#: for tests that make their own databases; those that use the one of the URL wait for each other (see conftest)
needs_server = pytest.mark.skipif(not URL, reason="there is no PostgreSQL to test with")
_numbers = count()
SERVICE = Path(__file__).parents[1] / "services" / "postgres.sh"


class Server:
    """A PostgreSQL of a test's own, to be stopped (``stop``), killed (``kill``) and started (``start``)."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.url = self("up")

    def __call__(self, what: str) -> str:
        command = [str(SERVICE), what, str(self.directory)]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def empty(self) -> str:
        """Start it if it does not run, and leave nothing in its database; return its URL."""
        subprocess.run([str(SERVICE), "start", str(self.directory)], stderr=subprocess.DEVNULL, check=False)
        with sa.create_engine(self.url, poolclass=sa.NullPool).begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
        return self.url


@contextmanager
def own_server() -> Iterator[Server]:
    """Give a server of one's own, until the end."""
    # its user must get through to it, which pytest's folders do not allow
    folder = Path(tempfile.mkdtemp(prefix="palaestrai-mosaik-outage-"))
    folder.chmod(0o755)
    running = Server(folder / "postgres")
    try:
        yield running
    finally:
        running("down")
        folder.rmdir()


def statement(text: str) -> None:
    """Execute ``text`` as the server's administrator, outside of a transaction."""
    assert URL is not None
    engine = sa.create_engine(URL, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(text)


def url_of(database: str, **parts: str) -> str:
    """Return the URL of a database of the server, with other parts (``username``, ``password``) if given."""
    assert URL is not None
    return sa.make_url(URL).set(database=database, **parts).render_as_string(hide_password=False)


@contextmanager
def fresh_database(template: str = "template0") -> Iterator[str]:
    """Give the URL of a new database; with the schema of a store if its ``template`` has it."""
    name = f"tests_{os.getpid()}_{next(_numbers)}"
    statement(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield url_of(name)
    finally:
        statement(f"DROP DATABASE {name} WITH (FORCE)")


@cache
def store_template() -> str:
    """Return the name of a database that is an empty store; it stays until :func:`drop_template`."""
    from palaestrai_mosaik.store.database import Database

    name = f"tests_{os.getpid()}_store"
    statement(f"CREATE DATABASE {name}")
    Database(url_of(name)).close()
    return name


def drop_template() -> None:
    """Remove what :func:`store_template` has made, if it has."""
    if store_template.cache_info().currsize:
        statement(f"DROP DATABASE {store_template()} WITH (FORCE)")
        store_template.cache_clear()
