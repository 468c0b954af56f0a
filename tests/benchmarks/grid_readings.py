"""Compare every sensor of every net with pandapower's own results, and print the table of docs/grid.md.

    OMP_NUM_THREADS=1 python tests/benchmarks/grid_readings.py [--log readings.jsonl] [--seeds 1] [PATTERN ...]

Nets are all SimBench codes and all of ``pandapower.networks``; patterns (``1-MV*``, ``case*``) choose some. Each gets
random outages of elements of all kinds, turned switches, rows of its profiles, and random set-points: taps, lines,
loads, inverters and storages. Readings are compared with pandapower's ``res_*``
(:mod:`support.grid_oracle`), for the fast solver, the batched one, and pandapower's own path.

``--log``: a file to which every net's result is added; nets that it has are not run again. All take some hours.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from zlib import crc32

import pandapower.networks
import simbench

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.grid_oracle import compare, simbench_net

from palaestrai_mosaik.core.errors import PalaestraiMosaikError

WAYS = ("fast", "batch", "pandapower")
#: functions of pandapower.networks that make no net by themselves
_NO_NETS = ("create_empty_network", "create_nxgraph")
_PREFIXES = (
    "case", "create_cigre", "create_kerber", "create_synthetic", "kb_", "example_", "GB", "iceland", "ieee",
    "lv_schutterwald", "mv_oberrhein", "panda_", "simple_", "four_loads",
)  # fmt: skip


def names() -> list[str]:
    """Return SimBench codes, then functions of ``pandapower.networks``."""
    functions = [n for n in dir(pandapower.networks) if n.startswith(_PREFIXES) and n not in _NO_NETS]
    # large ones last, the others mixed, so that a part of them says something of all
    codes = sorted(
        simbench.collect_all_simbench_codes(), key=lambda code: ("HV" in code, crc32(code.encode()))
    )
    return [*functions, *codes]


def net_of(name: str) -> Any:
    """Return the net of a SimBench code or of a function of ``pandapower.networks``."""
    if name.startswith("1-"):
        return simbench_net(name)
    made = getattr(pandapower.networks, name)()
    return made[0] if isinstance(made, tuple) else made


def family(name: str) -> str:
    """Return the row of the table that a net belongs to."""
    return name.split("-")[1] if name.startswith("1-") else "pandapower.networks"


def measure(name: str, ways: list[str], seeds: int) -> Iterator[dict[str, Any]]:
    """Yield the result of one net for each way of solving."""
    try:
        net = net_of(name)
    except Exception as error:  # pandapower cannot make it
        yield {"name": name, "way": "", "refused": f"not made: {type(error).__name__}: {error}"}
        return
    for way in ways:
        row: dict[str, Any] = {"name": name, "way": way, "states": 0, "unsolved": 0, "rows": 0, "worst": 0.0}
        for seed in range(seeds):
            begun = time.time()
            try:
                with tempfile.TemporaryDirectory() as folder:
                    comparison = compare(way, net, seed, Path(folder))
            except PalaestraiMosaikError as error:
                row["refused"] = str(error)
                continue
            except AssertionError as error:
                row["differs"] = str(error)
                continue
            for key in ("states", "unsolved", "rows"):
                row[key] += getattr(comparison, key)
            if comparison.worst >= row["worst"]:
                row["worst"], row["where"] = comparison.worst, comparison.where
            row["seconds"] = round(time.time() - begun, 1)
        yield row


def table(rows: list[dict[str, Any]]) -> str:
    """Return the results as a table in Markdown, by family and way of solving."""
    lines = [
        "| nets | solved by | nets | states | rows compared | largest difference |",
        "|---|---|---|---|---|---|",
    ]
    for key in dict.fromkeys((family(row["name"]), row["way"]) for row in rows if row.get("rows")):
        these = [row for row in rows if (family(row["name"]), row["way"]) == key and row.get("rows")]
        count = {what: sum(row[what] for row in these) for what in ("states", "rows")}
        worst = max(row["worst"] for row in these)
        lines.append(
            f"| {key[0]} | {key[1]} | {len(these)} | {count['states']:,} | {count['rows']:,} | {worst:.1e} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows: list[dict[str, Any]] = []
    if options.log and options.log.exists():
        rows = [json.loads(line) for line in options.log.read_text().splitlines()]
    done = {(row["name"], row["way"]) for row in rows}
    for name in names():
        ways = [way for way in WAYS if (name, way) not in done]
        if not ways or (name, "") in done or not any(fnmatch(name, p) for p in options.patterns or ["*"]):
            continue
        for row in measure(name, ways, options.seeds):
            rows.append(row)
            print(json.dumps(row), flush=True)
            if options.log:
                with options.log.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(table(rows))
    for row in rows:
        for what in ("differs", "refused"):
            if what in row:
                print(f"{row['name']} ({row['way']}) {what}: {row[what]}")


if __name__ == "__main__":
    main()
