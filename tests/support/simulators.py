"""The example simulators, as programs and as modules."""

from __future__ import annotations

from pathlib import Path

SIMULATORS = Path(__file__).parents[1] / "example_simulators"
