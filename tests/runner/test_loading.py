"""What ``load`` finds, what it refuses, and what is told to nobody."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from support.documents import ENVIRONMENT_ENDS, document, named, phase
from support.learning import Own, follower, learner, noted, track

from palaestrai_mosaik.agent import Brain, BrainDumper, Filter, FilterChain, Muscle, dump_arrays
from palaestrai_mosaik.agent.filters import NormFilter, ScaleFilter
from palaestrai_mosaik.core.errors import BrainDumpError, DocumentError
from palaestrai_mosaik.runner import checkpoint, execute
from palaestrai_mosaik.runner.brains import Dumpers, brain_keeper
from palaestrai_mosaik.runner.factory import FILTERS, filter_arrays, load_filters
from palaestrai_mosaik.runner.learners import check_executions, store_model
from palaestrai_mosaik.simulation.learner import Learner
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import Box
from palaestrai_mosaik.types.vectors import Layout

WORLD = [track(steps=3)]
SENSORS = Layout(["a", "b"], [Box(-9.0, 9.0, shape=())] * 2)
ACTUATORS = Layout(["x"], [Box(-1.0, 1.0, shape=())])


class Kept(BrainDumper):
    """Keeps dumps in memory."""

    def __init__(self) -> None:
        self.dumps: dict[str, bytes] = {}

    def save(self, dump: BinaryIO, tag: str = "") -> None:
        self.dumps[tag] = dump.read()

    def load(self, tag: str = "") -> BinaryIO:
        return BytesIO(self.dumps[tag])


# --- what filters have learned ---------------------------------------------------------------


def chain(*filters: Filter, sensors: Layout = SENSORS) -> FilterChain:
    return FilterChain(filters, sensors, ACTUATORS)


def model_of(made: FilterChain) -> Kept:
    """Return the dump of filters that have seen one reading of ones."""
    made.pre(np.ones(made.filters[0].environment_sensors.size))
    made.learn(made.news())
    kept = Kept()
    dump_arrays(filter_arrays(made), [kept], FILTERS)
    return kept


def test_filters_go_on_with_what_they_have_learned() -> None:
    other = chain(ScaleFilter(), NormFilter())
    load_filters(other, model_of(chain(ScaleFilter(), NormFilter())), "a")
    assert other.state()[1]["n"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("trained", "tested", "said"),
    [
        ([ScaleFilter, NormFilter], [NormFilter], "they keep 0.n, 0.mean, .*, but it has 1.m2"),
        ([NormFilter], [ScaleFilter, NormFilter], "they keep 1.n, .*, but it has 0.m2"),
        ([NormFilter], [NormFilter, NormFilter], "they keep 0.n, .* 1.return_m2, but it has 0.m2"),
        ([NormFilter, NormFilter], [NormFilter], "they keep 0.n, .*, but it has 0.m2"),
    ],
)
def test_a_model_of_other_filters_is_refused_whole(trained: Any, tested: Any, said: str) -> None:
    made = chain(*(kind() for kind in tested))
    with pytest.raises(BrainDumpError, match=said) as error:
        load_filters(made, model_of(chain(*(kind() for kind in trained))), "defender")
    names = ", ".join(kind.__name__ for kind in tested)
    assert (
        f"agent 'defender': the model that 'load' points to has not been learned through its filters ({names})"
        in str(error.value)
    )
    assert all(not state.get("n", np.zeros(1)).any() for state in made.state())


def test_other_arrays_under_the_same_tag_are_refused() -> None:
    for arrays in ({"weights": np.ones(3)}, {}):
        kept = Kept()
        dump_arrays(arrays, [kept], FILTERS)
        with pytest.raises(BrainDumpError, match=f"but it has {', '.join(arrays) or 'nothing'}"):
            load_filters(chain(NormFilter()), kept, "a")


def test_a_model_of_other_sensors_is_refused() -> None:
    kept = model_of(chain(NormFilter(), sensors=Layout(["a"], [Box(-9.0, 9.0, shape=())])))
    with pytest.raises(
        BrainDumpError, match=r"\(NormFilter\): .*has shape \(1,\), but the agent's readings have"
    ):
        load_filters(chain(NormFilter()), kept, "a")


def test_text_in_the_place_of_numbers_is_refused() -> None:
    kept = Kept()
    dump_arrays({**filter_arrays(chain(NormFilter())), "0.return_n": "many"}, [kept], FILTERS)
    with pytest.raises(BrainDumpError, match="could not convert string"):
        load_filters(chain(NormFilter()), kept, "a")


# --- updates pass the filters ----------------------------------------------------------------


class Letters(Filter):
    """Puts updates into envelopes; notes what it gets."""

    got: list[Any] = []

    def brain_post_process(self, update: Any) -> Any:
        Letters.got.append(update)
        return "" if update == "row 11" else f"<{update}>"


class Sometimes(Brain):
    """Has an update before the first episode, and then with every fourth row; false values are none."""

    def pretrain(self) -> str:
        return "pretrained"

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        return (False, None, "", f"row {len(self.memory)}")[len(self.memory) % 4]


class Reader(Muscle):
    got: list[Any] = []

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        actuators_available.vector = np.zeros(2)
        return actuators_available, None

    def update(self, update: Any) -> None:
        Reader.got.append(update)


def test_filters_get_the_updates_that_there_are_and_no_others(tmp_path: Path) -> None:
    Letters.got, Reader.got = [], []
    one = learner(
        brain=named(f"{__name__}:Sometimes"),
        muscle=named(f"{__name__}:Reader"),
        filters=[named(f"{__name__}:Letters")],
        replay=[{"experiment_run": "before", "agent": "a"}],
    )
    with Store(tmp_path, create=True) as store:
        execute(document(phase(WORLD, [learner()]), uid="before"), store=store)
        execute(document(phase(WORLD, [one], episodes=3), uid="after"), store=store)
    # three rows are replayed, nine are lived through
    assert Letters.got == ["pretrained", "row 7", "row 11"]
    # what a filter makes false is no update, either
    assert Reader.got == ["<pretrained>", "<row 7>"]


# --- where models are found ------------------------------------------------------------------


def school(lesson: int, **keys: Any) -> Any:
    """Return a run whose brain has thought ``3 * lesson`` times at its end."""
    return document(phase(WORLD, [follower(**keys)], episodes=lesson), uid="school")


class Broken(Muscle):
    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        raise Own("broken")


def test_load_takes_the_newest_execution_that_finished(tmp_path: Path) -> None:
    log = tmp_path / "log"
    failing = document(phase(WORLD, [learner(muscle=named(f"{__name__}:Broken"))]), uid="school")
    with Store(tmp_path / "s", create=True) as store:
        first = execute(school(1), store=store).instance
        execute(school(2), store=store)
        with pytest.raises(Own):
            execute(failing, store=store)
        for load in (
            {"experiment_run": "school"},
            {"instance": first},
            {"experiment_run": "school", "instance": first},
        ):
            pupil = follower(log, load={**load, "phase": "phase_0"})
            execute(document(phase(WORLD, [pupil], mode="test"), uid="work"), store=store)
        # another execution of this very run
        again = document(phase(WORLD, [follower(log, load={"instance": first, "phase": 0})]), uid="school")
        execute(again, store=store)
        load = {"experiment_run": "work", "instance": first, "phase": 0}
        wrong = document(phase(WORLD, [follower(load=load)]), uid="play")
        with pytest.raises(DocumentError, match=f"instance {first} is one of 'school', not of 'work'"):
            check_executions(wrong.phases, wrong, store)
    assert [int(line.split()[2]) for line in noted(log) if " load " in line] == [6, 3, 3, 3]


def test_where_none_has_finished_load_takes_the_newest_that_has_the_phase(tmp_path: Path) -> None:
    log = tmp_path / "log"
    second = phase(WORLD, [learner(name="b", muscle=named(f"{__name__}:Broken"))])
    with Store(tmp_path / "s", create=True) as store:
        with pytest.raises(Own):
            execute(document(phase(WORLD, [follower()]), second, uid="school"), store=store)
        pupil = follower(log, load={"experiment_run": "school", "phase": 0})
        execute(document(phase(WORLD, [pupil], mode="test"), uid="work"), store=store)
    assert [int(line.split()[2]) for line in noted(log) if " load " in line] == [3]


def test_a_base_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    second = {"agents": [{"name": "a", "load": {"base": "./nowhere", "phase": 0}}]}
    with pytest.raises(
        BrainDumpError, match=r"agent 'a': 'load' has the base '\./nowhere', which is not a folder"
    ):
        execute(document(phase(WORLD, [follower()]), second))


class Counter(Brain):
    """Counts its rows; notes what it loads."""

    loaded: list[int] = []

    def __init__(self, store_path: str | None = None):
        self.rows = 0

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> None:
        self.rows += 1

    def load(self) -> None:
        self.rows = int(BrainDumper.load_brain_dump(self._dumpers).read())
        Counter.loaded.append(self.rows)

    def store(self) -> None:
        BrainDumper.store_brain_dump(BytesIO(str(self.rows).encode()), self._dumpers)


@pytest.mark.parametrize(("number", "rows"), [(0, 3), (1, 6), (2, 9)])
def test_a_phase_of_the_same_run_is_loaded_by_its_number(number: int, rows: int) -> None:
    Counter.loaded = []
    brain = named(f"{__name__}:Counter")
    lessons = [phase(WORLD, [learner(brain=brain)], episodes=count) for count in (1, 2, 3)]
    execute(document(*lessons, phase(WORLD, [learner(brain=brain, load={"phase": number})])))
    assert Counter.loaded == [rows]


@pytest.mark.parametrize("stored", [False, True])
def test_a_base_is_looked_up_by_the_number_of_the_phase(tmp_path: Path, stored: bool) -> None:
    """Of a run that no store here knows, with phases of 3 and 6 rows."""
    base = tmp_path / "custom"

    def teach(name: str) -> None:
        one = learner(brain=named(f"{__name__}:Counter", store_path=str(base)))
        phases = {name: phase(WORLD, [one]), "later": phase(WORLD, [one], episodes=2)}
        execute({"uid": "school", "seed": 1, "schedule": [{key: value} for key, value in phases.items()]})

    def learn(**where: Any) -> list[int]:
        Counter.loaded = []
        load = {"base": str(base), "experiment_run": "school", "agent": "a", **where}
        pupil = learner(name="b", brain=named(f"{__name__}:Counter"), load=load)
        with Store(tmp_path / "here", create=True) if stored else nullcontext() as store:
            execute(document(phase(WORLD, [pupil]), uid="work"), store=store)
        return Counter.loaded

    teach("first")
    assert [learn(phase=0), learn(phase_name="first"), learn(phase=1), learn(phase="later")] == [
        [3],
        [3],
        [6],
        [6],
    ]
    with pytest.raises(
        (BrainDumpError, DocumentError),
        match=r"names phase 2 of run 'school', but .*: none|'base' has no such model",
    ):
        learn(phase=2)
    # another document of this uid, with another name of its first phase
    teach("renamed")
    with pytest.raises((BrainDumpError, DocumentError), match="with this number are: 'first' and 'renamed'"):
        learn(phase=0)
    assert learn(phase=1) == [6]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"load": {"experiment_run": "shool", "phase": 0}},
            r"no experiment run 'shool' \(did you mean 'school'",
        ),
        (
            {"load": {"experiment_run": "school", "phase": 3}},
            "names phase 3, but run 'school' has 0: 'phase_0'",
        ),
        (
            {"load": {"experiment_run": "school", "phase": "phase_1"}},
            r"names the phase 'phase_1' \(did you mean",
        ),
        ({"load": {"instance": "never", "phase": 0}}, "no run 'never'"),
        ({"replay": [{}, {"experiment_run": "shool"}]}, r"no experiment run 'shool' \(did you mean 'school'"),
    ],
)
def test_other_executions_that_are_not_there_are_found_before_anything_runs(
    tmp_path: Path, keys: dict[str, Any], said: str
) -> None:
    doc = document(phase(WORLD, [follower()]), {"agents": [{"name": "a", **keys}]})
    with Store(tmp_path, create=True) as store:
        execute(school(1), store=store)
        with pytest.raises(DocumentError, match=said) as error:
            check_executions(doc.phases, doc, store)
        (problem,) = error.value.problems
        key = next(iter(keys))
        assert problem.path == f"schedule.1.phase_1.agents.0.{key}" + (".1" if key == "replay" else "")
        sound = document(phase(WORLD, [follower()]), {"agents": [{"name": "a", "load": {}, "replay": [{}]}]})
        check_executions(sound.phases, sound, store)
        # in test mode nothing is replayed
        if key == "replay":
            test = {"agents": [{"name": "a", **keys}], "phase_config": {"mode": "test"}}
            calm = document(phase(WORLD, [follower()]), test)
            check_executions(calm.phases, calm, store)


def test_nothing_is_recorded_of_a_run_that_points_to_nowhere(tmp_path: Path) -> None:
    load = {"experiment_run": "shool", "phase": 0}
    with Store(tmp_path, create=True) as store:
        with pytest.raises(DocumentError, match="no experiment run 'shool'"):
            execute(
                document(phase(WORLD, [follower()]), {"agents": [{"name": "a", "load": load}]}), store=store
            )
        assert store.runs().empty


def test_without_a_store_there_are_no_other_executions() -> None:
    doc = document(phase(WORLD, [follower(load={"experiment_run": "school", "phase": 0})]))
    with pytest.raises(
        DocumentError, match="points to another execution, and a run without a store knows none"
    ):
        check_executions(doc.phases, doc, None)


# --- what is kept ----------------------------------------------------------------------------


class Halfway(Brain):
    """Fails between two of its dumps."""

    def __init__(self, fails: bool):
        self.fails = fails

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> None:
        return None

    def store(self) -> None:
        content = b"new" if self.fails else b"old"
        BrainDumper.store_brain_dump(BytesIO(content), self._dumpers)
        if self.fails:
            raise Own("between two dumps")
        BrainDumper.store_brain_dump(BytesIO(content), self._dumpers, "critic")


def test_a_model_is_kept_whole_or_not_at_all() -> None:
    kept = Kept()
    store_model(Learner(Halfway(fails=False)), kept)
    assert kept.dumps == {"": b"old", "critic": b"old"}
    with pytest.raises(Own):
        store_model(Learner(Halfway(fails=True)), kept)
    assert kept.dumps == {"": b"old", "critic": b"old"}


@pytest.mark.parametrize("workers", [1, 2])
def test_no_checkpoint_holds_where_the_database_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Its address may have a password in it."""
    written = []
    write = checkpoint.Checkpoints.write

    def look(self: Any, state: Any, mark: Any, started: Any) -> None:
        written.append(pickle.dumps(state))
        write(self, state, mark, started)
        # the next one at once
        self._due = 0.0

    monkeypatch.setattr(checkpoint.Checkpoints, "write", look)
    doc = document(
        phase(WORLD, [follower()], episodes=3, workers=workers), {"agents": [{"name": "a", "load": {}}]}
    )
    with Store(f"sqlite:///{tmp_path}/s3cr3t.db", directory=tmp_path, create=True) as store:
        execute(doc, store=store, checkpoint_every=1e-6)
        assert len(store.brains("latest")) == 2
    assert len(written) > 3
    assert not any(b"s3cr3t" in content for content in written)


def test_a_resumed_run_tells_its_checkpoints_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    write = checkpoint.Checkpoints.write

    def look(self: Any, state: Any, mark: Any, started: Any) -> None:
        written.append(pickle.dumps(state))
        write(self, state, mark, started)
        self._due = 0.0

    monkeypatch.setattr(checkpoint.Checkpoints, "write", look)
    fault = tmp_path / "fault"
    fault.touch()
    failing = named("support.learning:FailsWhile", path=str(fault), episode=2, time=1)
    ends = named(ENVIRONMENT_ENDS)
    doc = document(phase(WORLD, [follower()], [ends, failing], episodes=4))
    with Store(f"sqlite:///{tmp_path}/s3cr3t.db", directory=tmp_path / "files", create=True) as store:
        with pytest.raises(Own):
            execute(doc, store=store, checkpoint_every=1e-6)
        fault.unlink()
        before = len(written)
        execute(doc, store=store, checkpoint_every=1e-6, resume=store.find_run("latest"))
        assert len(store.brains("latest")) == 1
    assert len(written) > before > 0
    assert not any(b"s3cr3t" in content for content in written)


class Telling(Brain):
    """Tells the number of its evaluation, and has something to tell with every row."""

    evaluations = 0

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> None:
        self.add_statistics("rows", len(self.memory))

    def evaluated(self, metrics: Any) -> None:
        self.evaluations += 1
        self.add_statistics("evaluations", self.evaluations)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_brain_tells_of_an_evaluation_is_recorded_with_it(tmp_path: Path, workers: int) -> None:
    one = learner(brain=named(f"{__name__}:Telling"))
    doc = document(phase(WORLD, [one], episodes=4, workers=workers, evaluate_every=2))
    with Store(tmp_path, create=True) as store:
        execute(doc, store=store)
        told = store.statistics("latest", evaluation=True)
        rows = store.statistics("latest", key="rows")
    columns = ["agent", "worker", "episode", "step", "key", "value"]
    assert told[columns].values.tolist() == [
        ["a", 0, 0, 2, "evaluations", 1.0],
        ["a", 0, 1, 2, "evaluations", 2.0],
    ]
    assert len(rows) == 4 * 3 * workers


def test_no_text_of_a_keeper_shows_where_the_database_is(tmp_path: Path) -> None:
    doc = document(phase(WORLD, [follower()]), {"agents": [{"name": "a", "load": {}}]})
    with Store(f"sqlite:///{tmp_path}/s3cr3t.db", directory=tmp_path / "files", create=True) as store:
        (one,) = doc.phases[1].agents
        keeper = brain_keeper(one, doc.phases[1], doc, tmp_path, store)
        # workers must know it
        assert b"s3cr3t" in pickle.dumps(keeper)
        assert "s3cr3t" not in repr(vars(keeper))
        assert "s3cr3t" not in repr(vars(keeper.snapshot("best")))
    assert pickle.loads(pickle.dumps(Dumpers([keeper]))) == []
