"""Part files: complete or absent, small, safe names, readable by others."""

from __future__ import annotations

import json
import resource
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import BodyRecord, ChannelRecord
from palaestrai_mosaik.store.open_parts import arrow_column
from palaestrai_mosaik.store.parts import PartWriter, part_files
from palaestrai_mosaik.store.records import slug
from palaestrai_mosaik.store.streams import AgentStream
from tests.support import records

ROWS = 20_000


def make_stream(folder: Path, sensors: int = 10, actuators: int = 5) -> AgentStream:
    record = BodyRecord(
        sensors=[ChannelRecord(f"e.{i}", "", 1) for i in range(sensors)],
        actuators=[ChannelRecord(f"e.{i}", "", 1) for i in range(actuators)],
        rewards=["r"],
    )
    folder.mkdir(exist_ok=True)
    return AgentStream(folder / "agent-a", folder / "wall-a", record, {"name": "a"}, lambda: None)


def bytes_per_row(folder: Path, readings: np.ndarray, setpoints: np.ndarray) -> float:
    stream = make_stream(folder)
    walls = np.random.default_rng(1).uniform(1e-5, 1e-3, size=ROWS)
    for step in range(ROWS):
        objective = float(readings[step].sum())
        stream.append(
            *(0, step // 1000, step % 1000, step % 1000, readings[step], setpoints[step]),
            *([objective], objective, False, step % 1000 == 999, walls[step]),
        )
    stream.flush()
    return sum(file.stat().st_size for file in folder.rglob("*.parquet")) / ROWS


def test_a_random_step_takes_less_than_200_bytes_and_a_tame_one_far_less(tmp_path):
    rng = np.random.default_rng(0)
    random = bytes_per_row(tmp_path / "random", rng.normal(size=(ROWS, 10)), rng.normal(size=(ROWS, 5)))
    steps = np.arange(ROWS) % 1000
    tame = bytes_per_row(
        tmp_path / "tame",
        np.repeat(np.round(np.sin(steps / 96), 3)[:, None], 10, axis=1),
        np.repeat((steps % 10).astype(float)[:, None], 5, axis=1),
    )
    assert 15 * 6 < random < 200
    assert tame < 25


def column_size(path: Path, name: str) -> int:
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    size: int = columns[name].total_compressed_size
    return size


def test_split_bytes_make_measured_values_smaller_and_change_none(tmp_path):
    rng = np.random.default_rng(0)
    t = np.arange(ROWS)
    measured = {
        "smooth": np.sin(t / 97.3),
        "walk": np.cumsum(rng.normal(size=ROWS)),
        "random": rng.uniform(size=ROWS),
    }
    others = {
        "constant": np.ones(ROWS),
        "counter": t * 1.0,
        "coarse": np.round(rng.uniform(-5, 5, ROWS), 1),
        "held": np.repeat(rng.uniform(size=ROWS // 4), 4),
    }
    kinds = measured | others
    writer = PartWriter(tmp_path / "own", {})
    writer.write(0, {name: arrow_column(values) for name, values in kinds.items()})
    own = tmp_path / "own" / "part-000000.parquet"
    table = pa.table({name: arrow_column(values) for name, values in kinds.items()})
    pq.write_table(table, tmp_path / "plain", compression="zstd", use_dictionary=False)
    for name in measured:
        assert column_size(own, name) < 0.98 * column_size(tmp_path / "plain", name), name
    read = pq.read_table(own)
    for name, values in kinds.items():
        assert read[name].to_numpy().tobytes() == values.tobytes(), name


def test_infinite_readings_are_written_without_a_warning(tmp_path):
    stream = make_stream(tmp_path)
    readings = np.tile([np.inf, -np.inf, np.nan, 1.0, 2.0], 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(100):
            stream.append(0, 0, step, step, readings, np.full(5, np.inf), [np.inf], 0.0, False, False, 0.0)
        stream.flush()
    (part,) = part_files(stream.folder)
    written = pq.read_table(part)["reading.e.0"].to_pylist()
    assert written == [np.inf] * 100


def test_a_full_disk_is_an_error_that_leaves_nothing_half_written(tmp_path):
    """A limit on the size of files makes the operating system refuse, as a full disk does."""
    stream = make_stream(tmp_path)
    values = np.random.default_rng(0).uniform(size=(ROWS, 15))
    for step in range(5000):
        row = values[step]
        stream.append(0, 0, step, step, row[:10], row[10:], [0.0], 0.0, False, False, 0.0)
    digest = stream.digest()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(StoreError, match=r"cannot write .*part-000000.parquet"):
            stream.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert part_files(tmp_path / "agent-a") == []
    assert not list(tmp_path.rglob("*.tmp"))
    # nothing is lost: once there is room again, the same rows are written
    stream.flush()
    assert stream.digest() == digest
    assert stream.rows_written == 5000
    assert [len(pq.read_table(p)) for p in sorted(tmp_path.rglob("*.parquet"))] == [5000, 5000]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "agent-a").write_text("in the way")
    stream = make_stream(tmp_path, 1, 0)
    stream.append(0, 0, 0, 0, [0.0], [], [0.0], 0.0, False, False, 0.0)
    with pytest.raises(StoreError, match="cannot write"):
        stream.flush()


def test_a_write_error_at_the_end_fails_the_run(store):
    run = records.begin(store)
    phase = records.begin_phase(run)
    for name in ("a", "b"):
        phase.agent(name).append(0, 0, 0, 0, [1, 2], [3], [4], 5.0, False, False, 0.0)
    folder = run.directory / "trajectories" / "phase-0"
    (folder / "agent-a").write_text("in the way")
    with pytest.raises(StoreError, match="agent-a"):
        run.finish("finished")
    row = store.runs().iloc[0]
    assert row["status"] == "failed"
    assert row["error"].startswith("StoreError: cannot write")
    assert not (run.directory / "complete.json").exists()
    assert len(store.steps("latest", agent="b")) == 1, "the other agent's rows are saved"


@settings(max_examples=100)
@given(names=st.lists(st.text(max_size=60), unique=True, max_size=6))
def test_no_name_leaves_its_folder_and_all_are_told_apart(names):
    taken: list[str] = []
    for name in names:
        taken.append(slug(name, taken))
    assert len({name.casefold() for name in taken}) == len(names)
    root = Path("/store/phase-0")
    for name in taken:
        path = root / f"agent-{name}"
        assert path.parent == root
        assert len(path.name) < 64
        assert path.name.isascii() and path.name.isprintable()


def test_hostile_names():
    assert slug("defender_1.b") == "defender_1.b"
    for name in ("../../etc/passwd", "..", ".", "", "a/b", "a\\b", "C:", "a\0b", "x" * 300, "a.", "-rf", "ü"):
        safe = slug(name)
        assert safe != name and not set(safe) & set("./\\:\0"), name
    assert slug("Agent", ["agent"]) not in ("Agent", "agent")
    assert slug("a!", [slug("a!")]) != slug("a!")


def test_hostile_names_are_recorded_and_found(store):
    names = ["../../x", "..", "a/b", "", "Agent", "agent", "it's; DROP TABLE agents --", "日本", "x" * 300]
    run = records.begin(store)
    phase = records.begin_phase(run, 0, tuple(records.agent_record(name) for name in names))
    for i, name in enumerate(names):
        phase.agent(name).append(0, 0, 0, 0, [i, 0], [0], [0], 0.0, False, False, 0.0)
    run.finish("finished")
    for i, name in enumerate(names):
        assert store.steps("latest", agent=name)["reading.myenv.0"].tolist() == [i], name
    inside = run.directory.resolve()
    files = list(store.directory.parent.rglob("*.parquet"))
    assert len(files) == 2 * len(names)
    assert all(file.resolve().is_relative_to(inside) for file in files)
    # the true names are in the files too
    told = [
        json.loads(pq.read_schema(file).metadata[b"palaestrai_mosaik"])["name"]
        for file in files
        if file.parent.name.startswith("agent-")
    ]
    assert sorted(told) == sorted(names)


def test_duckdb_reads_a_whole_folder(store, small_run):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (extra 'test')")
    pattern = store.instance_directory(small_run) / "trajectories" / "phase-*" / "agent-*" / "part-*.parquet"
    query = f"SELECT sum(\"setpoint.myenv.0\"), count(*), max(objective) FROM read_parquet('{pattern}')"
    # by hand: (0 + 10 + 20) + (0 + 20 + 40), twice
    assert duckdb.sql(query).fetchall() == [(180.0, 12, 3.0)]


def test_half_written_files_are_not_seen(store, small_run):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (extra 'test')")
    folder = store.instance_directory(small_run) / "trajectories" / "phase-0" / "agent-a"
    (folder / "part-000001.parquet.tmp").write_bytes(b"PAR1 half")
    assert len(store.steps(small_run, agent="a")) == 6
    assert duckdb.sql(f"SELECT count(*) FROM read_parquet('{folder}/*.parquet')").fetchall() == [(6,)]


def test_parts_are_in_order_beyond_the_sixth_digit(tmp_path):
    for name in ("part-1000000.parquet", "part-999999.parquet", "part-000002.parquet"):
        (tmp_path / name).touch()
    assert [p.name for p in part_files(tmp_path)] == [
        *("part-000002.parquet", "part-999999.parquet", "part-1000000.parquet")
    ]
