"""The moments that ``arsenai analyse`` prints, with values computed by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from palaestrai_mosaik.cli.arsenai import main

DESIGN = """
uid: lengths
seed: 1
base:
  schedule:
    p:
      environments: [{environment: {name: dummy, params: {max_iter: 1}}}]
      agents: [{name: a, muscle: random}]
      phase_config: {mode: test, episodes: 1}
factors:
  length: {path: schedule.p.environments.dummy.environment.params.max_iter, levels: [9, 1, 4, 2]}
sampler: factorial
outcomes: {steps: {of: steps}}
"""


def test_moments_are_those_of_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 9, 1, 4 and 2, the mean is 4, the sum of squares about it 38, and the median lies between 2 and 4."""
    monkeypatch.chdir(tmp_path)
    Path("d.yml").write_text(DESIGN)
    main(["generate", "d.yml", "--quiet"])
    main(["run", "--executor", "inline", "--quiet"])
    capsys.readouterr()
    main(["analyse", "--json"])
    (moments,) = json.loads(capsys.readouterr().out)["outcomes"]
    std = pytest.approx(math.sqrt(38 / 3), rel=1e-12)
    expected = {"mean": 4.0, "std": std, "min": 1.0, "median": 3.0, "max": 9.0}
    assert moments == {"outcome": "steps", **expected, "not_finite": None}
