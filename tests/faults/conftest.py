"""What tests of faults share: batches that nothing happened to, and orders to what will happen."""

from __future__ import annotations

import functools

import pytest
from faults.batch import execute, make_batch
from faults.parts import ORDER


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """Return the function that returns the folder of a batch of so many rows, executed undisturbed."""

    @functools.cache
    def made(rows=3, workers=1):
        folder = make_batch(tmp_path_factory.mktemp("undisturbed") / "folder", rows, workers=workers)
        assert execute(folder, jobs=2).whole
        return folder

    return made


@pytest.fixture
def order(tmp_path, monkeypatch):
    """Return the function that orders what happens at a step of the next run that is begun; see :class:`.Unlucky`."""
    file = tmp_path / "order"
    monkeypatch.setenv(ORDER, str(file))

    def give(at, word, path):
        file.write_text(f"{at} {word} {path}")
        return file

    return give
