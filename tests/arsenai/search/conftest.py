"""Every test of a search works in a folder of its own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Change into the test's folder, and return it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
