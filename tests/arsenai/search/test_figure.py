"""The picture of a search shows its table."""

from __future__ import annotations

import pandas as pd
import pytest
from arsenai.search.searches import search_design, settings, tuned, written

from palaestrai_mosaik.arsenai.search import history_figure
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core.errors import DocumentError, ExecutionError

pytest.importorskip("optuna")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def curves(figure):
    """Return the lines of the only panel by their labels: x and y."""
    (axes,) = figure.axes
    lines, labels = axes.get_legend_handles_labels()
    # (a line with error bars has its line first)
    lines = [line if hasattr(line, "get_xdata") else line[0] for line in lines]
    return {
        label: (line.get_xdata().tolist(), line.get_ydata().tolist())
        for label, line in zip(labels, lines, strict=True)
    }


def test_it_shows_the_settings_the_best_so_far_and_fresh_seeds():
    search = {"sampler": "random", "budget": {"runs": 24}, "prune": "median", "confirm": 2}
    tuned(search_design(search=search, episodes=2, noise=0.1))
    assert main(["analyse", "f", "--quiet"]) == 0
    table, best = (pd.read_csv(f"f/analysis/search-{name}.csv") for name in ("history", "best"))
    assert 0 < len(table) < len(settings()), "some were stopped early"
    found = curves(history_figure("f"))
    assert found["best so far"] == (table["steps"].tolist(), pytest.approx(table["best"].tolist()))
    assert found["each setting"] == (table["steps"].tolist(), pytest.approx(table["value"].tolist()))
    told = best.merge(table, on="setting").sort_values("steps")
    fresh = (told["steps"].tolist(), pytest.approx(told["y, fresh seeds"].tolist()))
    assert found["the best over fresh seeds"] == fresh
    assert [len(found), len(told)] == [3, 3]


def test_without_confirmation_it_shows_the_figures_of_the_search_only():
    tuned(search_design())
    assert set(curves(history_figure("f"))) == {"best so far", "each setting"}


def test_what_has_no_search_or_no_setting_is_refused():
    plain = search_design(sampler={"name": "lhs", "n": 2})
    del plain["search"]
    assert main(["generate", written(plain), "-o", "plain", "--quiet"]) == 0
    with pytest.raises(ExecutionError, match="a design without a search"):
        history_figure("plain")
    with pytest.raises(DocumentError):
        history_figure("nothing")
    assert main(["generate", written(search_design(function="branin")), "-o", "empty", "--quiet"]) == 0
    with pytest.raises(ExecutionError, match="no setting of the search is complete"):
        history_figure("empty")
