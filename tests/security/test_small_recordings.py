"""Recordings of some kilobytes that would fill the memory: they are refused by name before they are unpacked."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palaestrai_mosaik.core.errors import ContractError, StoreError
from palaestrai_mosaik.environment.replay import sources
from palaestrai_mosaik.environment.replay.sources import read_npz, read_parquet
from palaestrai_mosaik.store.parts import count_rows, part_path, read_parts


def test_an_archive_of_equal_numbers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "equal.npz"
    arrays = {"observations": np.zeros((1, 200_000, 4)), "actions": np.zeros((1, 200_000, 1))}
    np.savez_compressed(path, **arrays)
    assert path.stat().st_size < 2**14
    read_npz(path)
    monkeypatch.setattr(sources, "_MOST_BYTES", 2**20)
    with pytest.raises(
        ContractError, match=r"equal\.npz is not read: its [0-9,]+ bytes would become 8,000,\d+"
    ):
        read_npz(path)


def test_an_array_that_claims_any_size_is_refused(tmp_path: Path) -> None:
    path, content = tmp_path / "claims.npz", io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (1, 2**58)}
    np.lib.format.write_array_header_1_0(content, header)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("observations.npy", content.getvalue())
    with pytest.raises(ContractError, match=r"claims\.npz"):
        read_npz(path)


def test_a_parquet_file_of_equal_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "equal.parquet"
    group = pa.table({f"reading.{i}": np.zeros(1_000_000) for i in range(10)})
    with pq.ParquetWriter(path, group.schema, compression="zstd") as writer:
        for _ in range(20):
            writer.write_table(group)
    assert path.stat().st_size < 2**20
    with pytest.raises(
        ContractError, match=r"equal\.parquet is not read: its [0-9,]+ bytes would become 1,600,000,000"
    ):
        read_parquet(path)


def test_a_part_with_a_column_of_lists_is_refused(tmp_path: Path) -> None:
    """One row of a few bytes can be millions of numbers, which no count of rows and columns shows."""
    part = part_path(tmp_path, 0)
    values = pa.ListArray.from_arrays([0, 20_000_000], pa.array(np.zeros(20_000_000)))
    pq.write_table(pa.table({"reading.a": values}), part, compression="zstd")
    assert part.stat().st_size < 2**17
    message = r"part-000000\.parquet is not read: reading\.a is a column of lists"
    with pytest.raises(StoreError, match=message):
        read_parts([part], lambda names: None)
    with pytest.raises(StoreError, match=message):
        count_rows(part)
