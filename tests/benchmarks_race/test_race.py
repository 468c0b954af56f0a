"""The parts of the race between palaestrAI and this package, without palaestrAI."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from benchmarks.race import documents, figures, limits, machine, measure, report
from benchmarks.race.command import parse
from benchmarks.race.contestants import Ours, last_words, read_database
from benchmarks.race.session import Session
from support.waiting import HANG

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.experiment import from_mapping

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are watched through /proc")

#: a child that computes for 0.3 s with 80 MB, and one that outlives its parent
FAMILY = """
import subprocess, sys, time
busy = '''
import time
held = bytearray(80_000_000)
held[::4096] = b"x" * len(held[::4096])
until = time.process_time() + 0.3
while time.process_time() < until:
    pass
time.sleep(0.3)
'''
child = subprocess.Popen([sys.executable, "-c", busy])
orphan = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print("orphan", orphan.pid, flush=True)
child.wait()
sys.exit(3)
"""


def watched(code: str, folder: Path, limit: float = HANG, kill=None) -> measure.Usage:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return measure.run(command, folder=folder, environment=os.environ, limit=limit, kill=kill)


def test_a_whole_tree_of_processes_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "GRACE", 0.2)
    usage = watched(FAMILY, tmp_path)
    assert usage.returncode == 3
    assert not usage.timed_out
    assert usage.processes == 3
    assert 0.3 <= usage.cpu_seconds < 3.0
    assert 80 < usage.peak_mb <= usage.peak_rss_mb < 300
    assert len(usage.left) == 1
    # who was left is gone now
    assert not psutil.pid_exists(int(usage.output.split()[1]))


def test_nobody_survives_the_time_limit_and_the_main_process_can_be_killed_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "GRACE", 0.2)
    forever = """
        import subprocess, sys, time
        print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]).pid, flush=True)
        time.sleep(3600)
    """
    # no matter of speed: it ends a program that has no more to do than to start another
    usage = watched(forever, tmp_path, limit=15.0)
    assert usage.timed_out
    assert not psutil.pid_exists(int(usage.output))

    usage = watched(forever, tmp_path, kill=lambda: bool((tmp_path / "output.txt").read_text()))
    assert (usage.returncode, usage.timed_out, len(usage.left)) == (-9, False, 1)
    assert not psutil.pid_exists(int(usage.output))


def test_rates_are_those_between_first_and_last_step():
    clock = '{"first": 105.0}\n{"last": 115.0, "steps": 21}\n'
    found = figures.clock_of(clock, began=100.0, ended=118.0)
    assert found == {"start_s": 5.0, "stop_s": 3.0, "steps_per_s": 2.0}
    # a run that was killed has made a first step only
    assert figures.clock_of('{"first": 105.0}\n', 100.0, 118.0) == {"start_s": 5.0}
    assert figures.clock_of("", 100.0, 118.0) == {}


def measured(side: str, number: int, **values: float) -> dict:
    return {"side": side, "case": "two agents", "round": number, "ok": True, **values}


MEASURED = [
    measured("theirs", 0, steps_per_s=30.0, seconds=40.0),
    measured("ours", 0, steps_per_s=3000.0, seconds=2.0),
    measured("theirs", 1, steps_per_s=20.0, seconds=60.0),
    measured("ours", 1, steps_per_s=1000.0, seconds=6.0),
    measured("theirs", 2, steps_per_s=25.0, seconds=50.0),
    measured("ours", 2, steps_per_s=2000.0, seconds=2.5),
]


def test_medians_spread_and_ratios_by_hand():
    rate, seconds = figures.table(MEASURED, "theirs", "ours")
    assert (rate.metric, seconds.metric) == ("steps_per_s", "seconds")
    assert (rate.theirs.median, rate.theirs.low, rate.theirs.high) == (25.0, 20.0, 30.0)
    assert (rate.ours.median, rate.ours.low, rate.ours.high) == (2000.0, 1000.0, 3000.0)
    # of each round: 100, 50, 80; and 20, 10, 20 of what should be small
    assert (rate.ratio, seconds.ratio) == (80.0, 20.0)


def test_what_failed_does_not_count_and_one_side_alone_has_no_ratio():
    failed = [*MEASURED[:5], {**MEASURED[5], "ok": False}]
    rate, _ = figures.table(failed, "theirs", "ours")
    assert rate.ours.values == (3000.0, 1000.0)
    assert rate.ratio is None
    (alone, _) = figures.table(MEASURED[1::2], "theirs", "ours")
    assert (alone.theirs, alone.ratio) == (None, None)


def test_the_report_has_the_figures_in_all_its_files(tmp_path):
    load = machine.Load(0.5, 0.4, 0.03).told()
    outcome = {
        **{"case": "a muscle raises", "side": "ours", "exit_code": 1, "seconds": 2.0, "status": "failed"},
        **{"rows": 0, "left": ["python"], "message": "RuntimeError: a | b"},
    }
    found = {
        "machine": {
            **{"cpu": "A processor", "cores": 2, "memory_gb": 8.0, "governor": "", "system": "Linux"},
        },
        **{"begun": "2026-01-01", "seconds": 90.0, "repeats": 3, "steps": 300, "notes": ["it was noisy"]},
        **{"load_before": load, "load_after": load},
        "versions": {"theirs": {"mosaik": "3.5.0"}, "ours": {"mosaik": "3.6.0"}},
        "runs": MEASURED,
        "designs": [{"side": "ours", "case": "design of 100 runs", "ok": True, "seconds": 0.5}],
        "failures": {
            "planted": [outcome],
            "same_seed": [{"side": "ours", "runs": 3, "trajectories": "equal"}],
        },
        "limits": [{"name": "bare loop", "median": 9.0, "min": 8.0, "max": 10.0, "unit": "steps"}],
    }
    files = {file.name: file for file in report.write(found, tmp_path, "theirs", "ours")}
    text = files["race.md"].read_text()
    assert "| environment steps per second | 25.0 (20.0 to 30.0) | 2,000 (1,000 to 3,000) | 80.0 x |" in text
    assert "| seconds of the whole command | not measured | 0.50 |  |" in text
    assert "| a muscle raises | ours | 1 | 2.0 | failed | 0 | 1 process | RuntimeError: a \\| b |" in text
    assert "- trajectories of 3 runs with the same seed: ours: equal" in text
    assert "- it was noisy" in text
    assert json.loads(files["race.json"].read_text()) == found
    with files["race.csv"].open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["steps_per_s"] for row in rows] == ["30.0", "3000.0", "20.0", "1000.0", "25.0", "2000.0", ""]
    assert files["race.png"].read_bytes()[:4] == b"\x89PNG"


def test_the_database_of_a_peer_is_read_without_its_ids(tmp_path):
    def database(name: str, agent: str, reading: int) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        with sqlite3.connect(folder / "palaestrai.db") as made:
            made.executescript(f"""
                CREATE TABLE experiment_run_instances (id INTEGER, status TEXT);
                INSERT INTO experiment_run_instances VALUES (1, 'finished');
                CREATE TABLE agents (id INTEGER, uid TEXT, name TEXT);
                INSERT INTO agents VALUES (1, '{agent}', 'defender');
                CREATE TABLE muscle_actions (id INTEGER, agent_id INTEGER, simtimes TEXT, sensor_readings TEXT,
                    actuator_setpoints TEXT, rewards TEXT, objective REAL);
                INSERT INTO muscle_actions VALUES (1, 1, '0', '[{reading}]', '[2]', '[3]', 4.0);
            """)
        made.close()
        return folder / "palaestrai.db"

    first, same, other = (
        read_database(database(name, agent, reading))
        for name, agent, reading in (("a", "uid-1", 1), ("b", "uid-2", 1), ("c", "uid-1", 2))
    )
    assert (first.status, first.rows) == ("finished", 1)
    assert first.size == (tmp_path / "a" / "palaestrai.db").stat().st_size
    assert first.digest == same.digest != other.digest


def test_tables_of_the_other_benchmarks_are_read():
    engine = (
        "steps/s of CPU time                  median      min      max  of bare mosaik  of bare loop\n"
        "vanilla, store, scheduler: mosaik     10000     9000    11000            1.00          0.25\n"
    )
    (bound,) = limits.read_engine(engine)
    assert (bound["name"], bound["median"], bound["min"]) == (
        "vanilla, store, scheduler: mosaik",
        10000.0,
        9000.0,
    )
    solver = (
        "grid  buses fixed point/us newton/us runpp/us apart/pu\ncigre_mv  15  20.0  50.0  10000 1.0e-10  \n"
    )
    fast, slow = limits.read_solver(solver)
    assert (fast["median"], slow["median"]) == (50_000.0, 100.0)


def test_small_helpers(capsys):
    assert machine.cpu_model("processor\t: 0\nmodel name\t: Fast One\nmodel name\t: Other\n") == "Fast One"
    assert [report.number(value) for value in (12345.6, 99.44, 1.234, 0.0123)] == [
        "12,346",
        "99.4",
        "1.23",
        "0.0123",
    ]
    assert last_words("failed: 1\nValueError: no\nrun failed\nbye\n") == "ValueError: no"
    assert (parse(["--quick"]).repeat, parse(["--quick"]).steps) == (1, 60)
    with pytest.raises(SystemExit):
        parse(["--repeat", "0"])
    assert "--repeat needs at least 1" in capsys.readouterr().err


def test_designs_have_as_many_different_runs_as_they_say(tmp_path):
    for factors in (1, 2):
        folder = Design.from_mapping(documents.design(factors)).generate(tmp_path / str(factors))
        assert len(folder.documents) == 10**factors


@pytest.mark.parametrize(
    "make", [documents.crowd, documents.raising, documents.mosaik_world, documents.described_world]
)
def test_documents_are_sound(make):
    assert from_mapping(make(10)).uid == "race"


def test_a_document_is_run_and_measured_on_our_side(tmp_path):
    session = Session(tmp_path / "work", limit=HANG)
    ours = Ours(Path(sys.executable))
    one = session.case(ours, "mosaik world", documents.mosaik_world(20), 20, stored=True)
    assert one["ok"], session.notes
    assert (one["exit_code"], one["status"], one["rows"], one["left"]) == (0, "finished", 40, 0)
    assert one["steps_per_s"] > 0
    assert one["bytes_per_step"] > 0
    assert 0 < one["start_s"] < one["seconds"]
    assert one["peak_mb"] > 20
