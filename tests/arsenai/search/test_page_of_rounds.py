"""The page of a design follows the rounds that another process adds."""

from __future__ import annotations

from arsenai.search.growing import ishigami_design, written

from palaestrai_mosaik.arsenai.design.folder import REPLACED, DesignFolder
from palaestrai_mosaik.arsenai.search.rounds import advance
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.web.data.design import DesignWatch


def test_the_rows_of_a_round_are_taken_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("palaestrai_mosaik.web.data.design._CHANGING", 0.0)
    monkeypatch.setattr("palaestrai_mosaik.web.data.design._SHARE", 0.0)
    design = ishigami_design()
    design["sampler"] |= {"n": 2, "until": {"interval": 0.01, "max_n": 4}}
    assert main(["generate", written(design), "-o", "f", "--quiet"]) == 0
    assert main(["run", "f", "--rows", "0-9", "--executor", "inline", "--quiet"]) == 0
    with StoreLocation("f/results").open() as store:
        watch = DesignWatch(DesignFolder.open("f"), store)
        assert len(watch.states().states.runs) == 10
        # in the middle of the exchange of the files, nothing can be read
        grown = advance(DesignFolder.open("f"))
        (grown.path / REPLACED).mkdir()
        assert len(watch.states().states.runs) == 10 and watch.problems()
        (grown.path / REPLACED).rmdir()
        (grown.path / "jobs").touch()
        assert len(watch.states().states.runs) == 20 and not watch.problems()
        assert len(watch.results()[1].runs()) == 20
