"""How often factors without any influence are taken for more than chance: 5 % of the time, it should be.

    python tests/benchmarks/analysis_false_alarms.py [--times 2000] [--seed 1] [DESIGN ...]

Of each design (``tests/support/noise.py``) every executed run has an outcome of its own, drawn
from a normal distribution, whatever its factors are. Rows that differ in an inactive factor only are
one run. Printed is, for each factor and pair, the share of ``--times`` drawn studies in which
``arsenai analyse`` tells it from chance: the F test of the analysis of variance at 5 %, or PAWN
above the row (irrelevant). ``+-`` is the standard error of a share that is 5 %. ``--lost`` is the
share of executed runs that fail. With ``--effect``, the outcomes of the first level of the first factor are higher by so
many standard deviations of a run: the share of that factor is then the power.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.noise import DESIGNS, LEVEL, Noise, alarms


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("designs", nargs="*", metavar="DESIGN", help=f"default: all ({', '.join(DESIGNS)})")
    parser.add_argument("--times", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lost", type=float, default=0.0)
    parser.add_argument("--effect", type=float, default=0.0)
    chosen = parser.parse_args(argv)
    error = (LEVEL * (1 - LEVEL) / chosen.times) ** 0.5
    for name in chosen.designs or DESIGNS:
        with tempfile.TemporaryDirectory() as place:
            noise = Noise(Path(place, "design"), lost=chosen.lost, effect=chosen.effect, **DESIGNS[name])
            shares = alarms(noise, chosen.times, chosen.seed)
        print(f"{name}: {len(noise.frame)} runs, {len(noise.executed)} executed")
        for factor, share in shares.items():
            print(f"  {factor:20} {100 * share:5.1f} % +- {100 * error:.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
