"""The page "In a notebook" runs in a real kernel of Jupyter, cell by cell."""

from __future__ import annotations

import doctest
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.pages import ROOT, blocks_of
from support.waiting import HANG

nbclient = pytest.importorskip("nbclient", reason="the extra 'test' brings a kernel of Jupyter")
pytest.importorskip("ipykernel", reason="the extra 'test' brings a kernel of Jupyter")
pytest.importorskip("pandapower", reason="the page needs the extra 'grid'")
nbformat = pytest.importorskip("nbformat")

PAGE = "docs/notebook.md"
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def outputs(cell: Any, kind: str) -> list[str]:
    """Return what a cell showed in one form, such as ``text/html``; ``stream`` is what it printed."""
    if kind == "stream":
        return [one.text for one in cell.outputs if one.output_type == "stream"]
    return [one.data[kind] for one in cell.outputs if kind in one.get("data", {})]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    monkeypatch.delenv("PALAESTRAI_MOSAIK_STORE", raising=False)
    # kernels keep files of their own in the home directory
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    return tmp_path


def executed(cells: list[str], folder: Path) -> list[Any]:
    """Execute the cells in a kernel that works in ``folder``; return them with their outputs."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    resources = {"metadata": {"path": str(folder)}}
    limits = {"timeout": HANG, "startup_timeout": HANG}
    nbclient.NotebookClient(book, kernel_name="python3", resources=resources, **limits).execute()
    cells_done: list[Any] = book.cells
    return cells_done


def test_the_cells_of_the_page_work(folder: Path) -> None:
    blocks = blocks_of((ROOT / PAGE).read_text(encoding="utf-8"))
    cells = executed([block.text for block in blocks if block.language == "python"], folder)
    done = iter(cells)
    cell = None
    for block in blocks:
        if block.language == "python":
            cell = next(done)
        else:
            assert block.words == ("text", "output")
            (printed,) = outputs(cell, "stream")
            assert doctest.OutputChecker().check_output(block.text, printed, _FLAGS), printed
    (summary,) = outputs(cells[0], "text/html")
    assert "cigre_mv_day" in summary and "finished" in summary and "<table" in summary
    pictures = [picture for one in cells for picture in outputs(one, "image/png")]
    assert len(pictures) == 1 and len(pictures[0]) > 10_000
    assert (folder / "voltages.png").is_file()


def test_an_agent_that_fails_shows_its_exception_in_the_cell(folder: Path) -> None:
    document = "scenarios/cigre_mv_day.yml"
    broken = (
        "import yaml, palaestrai_mosaik as pm\n"
        f"document = yaml.safe_load(open({document!r}))\n"
        "document['seed'] = 'seven'\n"
        "pm.run(document)"
    )
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="DocumentError"):
        executed([broken], folder)
