"""``run`` and ``RecordedRun``: a document is run from Python, and its results are looked at."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path

import pytest
import yaml
from support.documents import WALK, agent, document, environment, named, phase

import palaestrai_mosaik as pm
from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.cli import main
from palaestrai_mosaik.core.errors import DocumentError, RunInterrupted, StoreError
from palaestrai_mosaik.experiment import load
from palaestrai_mosaik.runner import Interrupt, Progress, execute

DUMMY = Path(__file__).parents[1] / "scenarios" / "dummy.yml"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PALAESTRAI_MOSAIK_STORE", raising=False)


def digests(store: pm.Store, run: str) -> dict[str, str]:
    streams = store.streams(run)
    streams = streams[streams["digest"].notna() & (streams["rows"] > 0)]
    return dict(zip(streams["folder"], streams["digest"], strict=True))


def test_run_records_what_the_command_records() -> None:
    assert main.main(["start", str(DUMMY), "--quiet"]) == 0
    result = pm.run(DUMMY, quiet=True)
    with pm.Store("palaestrai-results") as store:
        first, second = store.runs()["run"]
        assert second == result.instance
        assert digests(store, first) == digests(store, second) != {}
        assert store.document_text(first) == store.document_text(second)
    assert list(result.phases["name"]) == [one.name for one in load(DUMMY).phases]


@pytest.mark.parametrize("given", ["folder", "open store"])
def test_a_result_can_be_pickled_and_copied(given: str) -> None:
    store = pm.Store("kept", create=True) if given == "open store" else "kept"
    result = pm.run(yaml.safe_load(WALK), store=store, quiet=True)
    pickled = pickle.dumps(result)
    assert len(pickled) < 1000
    loaded = pickle.loads(pickled)
    for one in (loaded, copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(loaded))):
        with one:
            assert one.instance == result.instance
            assert one.steps().equals(result.steps())
    # those have stores of their own
    assert result.status == "finished"
    assert pickle.loads(pickle.dumps(result.store)).find_run("latest") == result.instance


def test_a_pickle_holds_no_password() -> None:
    with pm.Store("kept", create=True) as store:
        store._location = "postgresql://user:hidden@host/results"
        with pytest.raises(pickle.PicklingError, match="@FILE or env:NAME") as raised:
            pickle.dumps(store)
        assert "hidden" not in str(raised.value)


def test_a_document_is_a_path_a_mapping_or_as_it_was_read() -> None:
    data = yaml.safe_load(DUMMY.read_text(encoding="utf-8"))
    runs = [pm.run(one, store="results", quiet=True) for one in (str(DUMMY), data, load(DUMMY))]
    with pm.Store("results") as store:
        first, *others = [digests(store, one.instance) for one in runs]
    assert all(other == first for other in others)
    assert [execute(one).uid for one in (str(DUMMY), data)] == ["dummy", "dummy"]
    with pytest.raises(TypeError, match=r"a run document is a path, a mapping .*, found the number 7"):
        pm.run(7)  # type: ignore[arg-type]
    with pytest.raises(DocumentError, match=r"did you mean 'run\.yml'"):
        Path("run.yml").write_text("uid: x")
        pm.run("rum.yml")


def test_frames_have_the_names_of_phases() -> None:
    two = document(
        phase([environment(max_iter=4)], [agent("a")]), phase([environment(max_iter=6)], [agent("a")])
    )
    with pm.run(two, quiet=True) as result:
        assert list(result.episodes["phase_name"]) == ["phase_0", "phase_1"]
        assert list(result.episodes)[:2] == ["phase", "phase_name"]
        steps = result.steps()
        assert steps.groupby("phase_name", sort=False).size().to_dict() == {"phase_0": 4, "phase_1": 6}
        # the dummy environment has no calendar
        assert "date" not in steps
        assert "phase_name" not in result.steps("phase_1") and len(result.steps("phase_1")) == 6
        assert set(result.environment_states()["phase_name"]) == {"phase_0", "phase_1"}
        assert list(result.agents["phase_name"]) == ["phase_0", "phase_1"]
        assert result.statistics().empty and result.errors.empty and result.evaluations.empty
        assert result.document["uid"] == two.uid
        assert "finished" in repr(result) and "phase_0" in result._repr_html_()
        figure = result.plot()
        assert [axes.get_title("left") for axes in figure.axes]
        assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_run_is_labelled_and_selected_by_its_name() -> None:
    result = pm.run(DUMMY, quiet=True, name="base line", tags="a", note="why")
    assert (result.name, result.tags, result.note) == ("base line", ("a",), "why")
    result.label(tags=["b", "c"], untag="a", note="")
    with pm.RecordedRun("base line") as again:
        assert again.instance == result.instance
        assert (again.tags, again.note, again.summary["name"]) == (("b", "c"), None, "base line")
        assert "base line" in again._repr_html_() and "b, c" in again._repr_html_()
    with pm.Store() as store:
        assert store.runs(tags="b")["run"].tolist() == [result.instance]
        pm.RecordedRun("base line", store).label(name="better")
        assert store.find_run("better") == result.instance
    with pm.Store(read_only=True) as store, pytest.raises(StoreError, match="for reading only"):
        pm.RecordedRun("better", store).label(name="x")
    with pytest.raises(StoreError, match="a tag is a text without commas"):
        pm.run(DUMMY, quiet=True, tags="a,b")
    assert len(pm.Store(read_only=True).runs()) == 1


class Failing(Muscle):
    def propose_actions(self, sensors, actuators_available):
        raise ValueError("<not> today")


def test_what_an_agent_raises_is_raised_and_recorded() -> None:
    broken = document(phase(agents=[agent("a", brain=None, muscle=named(f"{__name__}:Failing"))]))
    with pytest.raises(ValueError, match="<not> today"):
        pm.run(broken, quiet=True)
    failed = pm.RecordedRun()
    assert failed.status == "failed"
    assert failed.errors["message"].tolist() == ["<not> today"]
    shown = failed._repr_html_()
    assert "&lt;not&gt; today" in shown and "<not>" not in shown


class StopAt(Progress):
    def __init__(self, interrupt: Interrupt, step: int):
        self.interrupt, self.left = interrupt, step

    def step(self, worker: int, episode: int, steps: int) -> None:
        self.left -= 1
        if not self.left:
            self.interrupt.request()


def test_a_run_is_resumed_or_found_finished() -> None:
    long = document(phase([environment(max_iter=20)], episodes=5))
    whole = pm.run(long, store="whole", quiet=True)
    interrupt = Interrupt()
    with pytest.raises(RunInterrupted):
        execute(
            long, store="results", interrupt=interrupt, progress=StopAt(interrupt, 50), checkpoint_every=1e-6
        )
    with pm.RecordedRun(store="results") as stopped:
        assert stopped.status == "interrupted"
    resumed = pm.run(long, store="results", resume=True, quiet=True)
    assert resumed.instance == stopped.instance
    assert digests(resumed.store, resumed.instance) == digests(whole.store, whole.instance)
    again = pm.run(long, store="results", resume=True, quiet=True)
    assert again.instance == resumed.instance and len(again.store.runs()) == 1


def test_a_misspelt_store_is_an_error_and_none_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for make in (pm.Store, lambda name: pm.RecordedRun("latest", name)):
        with pytest.raises(StoreError, match="typo"):
            make("typo")
    assert os.listdir() == []
    monkeypatch.setenv("PALAESTRAI_MOSAIK_STORE", "elsewhere")
    result = pm.run(DUMMY, quiet=True)
    assert os.listdir() == ["elsewhere"] and pm.RecordedRun().instance == result.instance
    with pm.Store() as store:
        # an open store stays open
        with pm.RecordedRun(result.instance[:20], store):
            pass
        assert len(store.runs()) == 1
    with pytest.raises(StoreError, match=r"no run 'lates'.*did you mean 'latest'"):
        pm.RecordedRun("lates")
