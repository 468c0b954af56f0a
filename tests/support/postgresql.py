"""Databases of the PostgreSQL that tests may use, each for one test alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count

import pytest
import sqlalchemy as sa

#: the URL of a database of its server, by a user who may make databases and users
URL = os.environ.get("PALAESTRAI_MOSAIK_TEST_POSTGRESQL")
#: for tests that make their own databases; those that use the one of the URL wait for each other (see conftest)
needs_server = pytest.mark.skipif(not URL, reason="there is no PostgreSQL to test with")
_numbers = count()


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
