"""A document may name any file of the user, and its messages end in stores, logs and reports: they quote no file."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.lib import format as npy

from palaestrai_mosaik.agent.dumper import FileBrainDumper, load_arrays
from palaestrai_mosaik.agent.library.scripted import ScriptedMuscle
from palaestrai_mosaik.arsenai.design.load import load as load_design
from palaestrai_mosaik.cli import arsenai, main
from palaestrai_mosaik.core.errors import FAILED, UNSOUND
from palaestrai_mosaik.environment.replay.pool import SessionPool
from palaestrai_mosaik.environment.replay.sources import read_source

SECRET = "hunter2-of-the-user"

#: name -> a file with the secret, of some form that a reader takes for its own, at least at first
TEXTS = {
    "environment": f"PATH=/bin\0PASSWORD={SECRET}\0",
    "line": SECRET,
    "table": f"{SECRET},b\n1,2\n",
    "script": f"step,w.0.{SECRET}\n0,{SECRET}\n",
    "script of numbers": f"step,{SECRET}\n0,1\n",
    "script with a column twice": f"step,{SECRET},{SECRET}\n0,1,1\n",
    "points": f"gain,{SECRET}\n{SECRET},{SECRET}\n",
    "json": json.dumps({"password": SECRET}),
    "json text": json.dumps(SECRET),
    "json with a key twice": f'{{"{SECRET}": 1, "{SECRET}": 2}}',
    "net": json.dumps({"_module": "pandapower.auxiliary", "_class": "pandapowerNet", "_object": SECRET}),
    "net of a version": json.dumps(
        {
            "_module": "pandapower.auxiliary",
            "_class": "pandapowerNet",
            "_object": {"version": SECRET, "format_version": SECRET},
        }
    ),
    "table of a net": json.dumps(
        {"_module": "pandas.core.frame", "_class": "DataFrame", "_object": SECRET, "orient": SECRET}
    ),
    "scalar of a net": json.dumps({"_module": "numpy", "_class": "float64", "_object": SECRET}),
    "shape of a net": json.dumps(
        {"_module": "shapely", "_class": "Point", "_object": {"type": SECRET, "coordinates": [SECRET]}}
    ),
    "pool": json.dumps({"format": 1, "rows": SECRET, "observations": SECRET, "actions": [], "rewards": []}),
    "array": npy.magic(1, 0).decode("latin-1") + f"\x40\0{{'descr': '{SECRET}'}}".ljust(0x42),
    "brain": f"{SECRET}\nmore",
}


def scripted(path: Path) -> None:
    muscle = ScriptedMuscle(str(path))
    muscle.uid = "a"
    muscle.setup()
    muscle._arranged([])


def grid(path: Path) -> None:
    network = pytest.importorskip("palaestrai_mosaik.environment.grid.network")
    network.load_grid(str(path.rename(path.with_suffix(".json"))))


def pool(path: Path) -> None:
    folder = path.parent / "pool"
    folder.mkdir()
    path.rename(folder / "pool.json")
    SessionPool.open(folder)


def column(path: Path) -> None:
    """Read the file as a column of a pool that is sound otherwise."""
    folder = path.parent / "pool"
    arrays = {"observations": np.ones((1, 2, 1)), "actions": np.ones((1, 2)), "rewards": np.ones((1, 2))}
    np.savez(path.parent / "sound.npz", **arrays)
    read_source({"npz": str(path.parent / "sound.npz")}).save(folder)
    os.replace(path, folder / "reward.npy")
    SessionPool.open(folder)


def brain(path: Path) -> None:
    dumper = FileBrainDumper(path.parent / "brains", "run", "phase", "agent")
    dumper.directory.mkdir(parents=True)
    path.rename(dumper.directory / "brain.bin")
    dumper.load()


def arrays(path: Path) -> None:
    dumper = FileBrainDumper(path.parent / "brains", "run", "phase", "agent")
    with path.open("rb") as file:
        dumper.save(file)
    load_arrays([dumper])


def points(path: Path) -> None:
    design = {
        "uid": "d",
        "seed": 1,
        "sampler": {"name": "points", "file": str(path)},
        "factors": {"gain": {"path": "schedule.p.agents.a.muscle.params.gain", "low": 0, "high": 1}},
        "base": {"schedule": [{"p": {}}]},
        "outcomes": {"steps": {"of": "steps"}},
    }
    file = path.parent / "design.yml"
    file.write_text(yaml.safe_dump(design))
    load_design(file)


READERS: dict[str, Callable[[Path], Any]] = {
    "scripted": scripted,
    "grid": grid,
    "npz": lambda path: read_source({"npz": str(path)}),
    "parquet": lambda path: read_source({"parquet": str(path)}),
    "pool": pool,
    "column of a pool": column,
    "brain": brain,
    "arrays of a brain": arrays,
    "points": points,
}


@pytest.mark.parametrize("reader", READERS)
def test_no_message_quotes_a_file_that_a_document_names(reader: str, tmp_path: Path) -> None:
    """Nor does the traceback, which is in the store and the log."""
    for number, (name, text) in enumerate(TEXTS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "file"
        path.write_bytes(text.encode("latin-1"))
        try:
            READERS[reader](path)
        except Exception as error:
            said = "".join(traceback.format_exception(error))
        else:
            continue
        assert SECRET not in said and SECRET[:8] not in said, (name, said)


def test_a_script_that_is_none_leaves_nothing_in_store_and_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As for ``/proc/self/environ``: the message names the place, and what is expected there."""
    monkeypatch.chdir(tmp_path)
    Path("environ").write_text(TEXTS["environment"])
    muscle = {"name": "scripted", "params": {"file": "environ"}}
    phase = {
        "environments": [{"environment": {"name": "dummy", "uid": "w"}}],
        "agents": [{"name": "a", "muscle": muscle}],
        "phase_config": {"mode": "test", "episodes": 1},
    }
    Path("run.yml").write_text(yaml.safe_dump({"uid": "x", "seed": 1, "schedule": [{"only": phase}]}))
    assert main.main(["start", "run.yml", "--store", "s"]) == FAILED
    told = capfd.readouterr()
    assert "environ:1: the first column must be called step or time" in told.err
    kept = b"".join(path.read_bytes() for path in Path("s").rglob("*") if path.is_file())
    assert SECRET.encode() not in kept and SECRET not in told.out + told.err


def test_a_document_that_is_none_is_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A design names its base, and the design that it extends; what is no mapping is no document."""
    monkeypatch.chdir(tmp_path)
    for key in ("base", "extends"):
        for text in (SECRET, f"- {SECRET}\n", f"A={SECRET}\nB={SECRET}\n"):
            Path("secret.yml").write_text(text)
            Path("design.yml").write_text(
                f"uid: d\nseed: 1\n{key}: secret.yml\nfactors: {{}}\noutcomes: {{}}\n"
            )
            assert arsenai.main(["plan", "design.yml"]) == UNSOUND
            told = capsys.readouterr()
            assert SECRET not in told.out + told.err, (key, text, told)
