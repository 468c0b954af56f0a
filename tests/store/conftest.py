"""A fresh store, and one with a small run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from palaestrai_mosaik.store import Store
from tests.support import postgresql, records


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=postgresql.needs_server)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A fresh store: what holds for one database must hold for the other."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield stack.enter_context(Store(tmp_path / "results", create=True))
        else:
            url = stack.enter_context(postgresql.fresh_database(postgresql.store_template()))
            yield stack.enter_context(Store(url, directory=tmp_path / "results", create=True))


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Store]:
    """A fresh store in a folder, for tests of what PostgreSQL does not have."""
    with Store(tmp_path / "results", create=True) as opened:
        yield opened


@pytest.fixture(scope="session", autouse=True)
def no_database_is_left() -> Iterator[None]:
    yield
    postgresql.drop_template()


@pytest.fixture
def small_run(store: Store) -> str:
    return records.record_small_run(store)
