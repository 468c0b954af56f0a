"""The garbage collector is kept away from imports, and from nothing else."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from palaestrai_mosaik.core import collector


@pytest.mark.parametrize("enabled", [True, False])
def test_a_pause_ends_as_it_began(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ValueError, match="planted"), collector.paused():
            assert not gc.isenabled()
            raise ValueError("planted")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_start_exempts_what_it_imports_once_and_collects_afterwards() -> None:
    code = """
import gc
from palaestrai_mosaik.cli.main import main
main(["start", "missing.yml"])
first = gc.get_freeze_count()
made = [[] for _ in range(100_000)]
main(["start", "missing.yml"])
print(first > 50_000, gc.get_freeze_count() <= first, gc.isenabled())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True"], done.stderr
