"""Part files of some kilobytes that would fill the memory: they are refused by name before their rows are made."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.documents import agent, document, environment, phase

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store, open_parts
from palaestrai_mosaik.store.open_parts import SUFFIX
from palaestrai_mosaik.store.parts import part_files, part_path, read_parts
from palaestrai_mosaik.store.verify import verify


def everything(names):
    """Read all rows."""


def test_a_part_of_many_equal_rows_is_refused(tmp_path):
    made = document(phase([environment()], [agent()], episodes=1))
    with Store(tmp_path / "s", create=True) as store:
        execute(made, store=store)
        (part,) = part_files(next(store.directory.glob("instances/*/trajectories/phase-0/agent-a")))
        rows = pq.read_table(part)
        pq.write_table(rows.take(np.zeros(300_000, dtype=int)), part, compression="zstd")
        assert part.stat().st_size < 2**17
        for query in (store.steps, store.recorded_episodes, store.body_episodes):
            with pytest.raises(StoreError, match=r"part-000000\.parquet is not read: it holds 300,000 rows"):
                query("latest")
        with pytest.raises(StoreError, match="it holds 300,000 rows"):
            list(store.export("latest", tmp_path / "exported"))
        assert any("300,000 rows" in one for one in verify(store, "latest").damage)


def test_a_part_of_many_columns_is_refused(tmp_path):
    """Few rows can be many numbers."""
    part = part_path(tmp_path, 0)
    pq.write_table(pa.table({f"reading.{i}": np.zeros(20_000) for i in range(600)}), part, compression="zstd")
    with pytest.raises(StoreError, match="20,000 rows of 600 columns"):
        read_parts([part], everything)


def test_a_text_that_is_repeated_in_each_row_is_refused(tmp_path):
    part = part_path(tmp_path, 0)
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, dtype=np.int32)), ["x" * 100_000])
    pq.write_table(pa.table({"step": np.arange(20_000), "state": texts}), part, store_schema=False)
    assert part.stat().st_size < 2**20
    with pytest.raises(StoreError, match=r"2,000,000,000 bytes of state in a part"):
        read_parts([part], everything)
    short = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], type=pa.int32()), ["x", "y"])
    pq.write_table(pa.table({"step": np.arange(3), "state": short}), part, store_schema=False)
    table = read_parts([part], everything)
    assert table.schema.field("state").type == pa.string()
    assert table["state"].to_pylist() == ["x", None, "y"]


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_an_open_part_that_is_compressed_is_refused(tmp_path, compression):
    path = part_path(tmp_path, 0).with_suffix(SUFFIX)
    table = pa.table({"step": np.zeros(1_000_000)})
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with path.open("wb") as file, pa.ipc.new_stream(file, table.schema, options=options) as stream:
        stream.write_table(table)
    if compression is None:
        assert read_parts([path], everything).num_rows == 1_000_000
        return
    with pytest.raises(StoreError, match=rf"part-000000\{SUFFIX} is not read: it is compressed"):
        read_parts([path], everything)


def test_an_open_part_that_is_long_is_refused(tmp_path, monkeypatch):
    path = part_path(tmp_path, 0).with_suffix(SUFFIX)
    monkeypatch.setattr(open_parts, "MOST_BYTES", 1000)
    path.write_bytes(b"\0" * 1001)
    with pytest.raises(StoreError, match="it has 1,001 bytes; a part has at most 1,000"):
        read_parts([path], everything)


@pytest.mark.parametrize("where", ["part", "folder"])
def test_a_link_in_the_place_of_a_part_leads_nowhere(tmp_path, where):
    """The rows of somebody else's file are neither shown nor copied."""
    made = document(phase([environment()], [agent()], episodes=1))
    with Store(tmp_path / "s", create=True) as store:
        execute(made, store=store)
        (part,) = part_files(next(store.directory.glob("instances/*/trajectories/phase-0/agent-a")))
        place = part if where == "part" else part.parent
        place.rename(tmp_path / "moved")
        place.symlink_to(tmp_path / "moved")
        message = (
            rf"part-000000\.parquet is not read: {place.name} is a link, and links below .* are not followed"
        )
        for query in (store.steps, store.recorded_episodes):
            with pytest.raises(StoreError, match=message):
                query("latest")
        with pytest.raises(StoreError, match=message):
            list(store.export("latest", tmp_path / "exported"))
        assert any("is a link" in damage for damage in verify(store, "latest").damage)
