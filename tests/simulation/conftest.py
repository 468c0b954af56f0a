"""What all tests of worlds share."""

from __future__ import annotations

import sys

import pytest
from support.simulators import SIMULATORS


@pytest.fixture(autouse=True)
def importable_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let documents name the example simulators, and classes of the test's own module."""
    monkeypatch.syspath_prepend(str(SIMULATORS))
    monkeypatch.setitem(sys.modules, request.module.__name__, request.module)
