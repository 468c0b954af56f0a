"""What is said about clusters: which of it counts, what is refused, and what a submission would take."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest
from arsenai.execution.folders import make_folder

from palaestrai_mosaik.arsenai.design.design import EMPTY_DATABASE, Experience, estimate, experience
from palaestrai_mosaik.arsenai.design.vocabulary import PARSL, SLURM
from palaestrai_mosaik.arsenai.execution import Settings, run_folder
from palaestrai_mosaik.arsenai.execution.cluster.submit import array_sizes, dry_run
from palaestrai_mosaik.arsenai.execution.settings import (
    Configuration,
    ParslSettings,
    SlurmSettings,
    read_configuration,
    slurm_seconds,
    user_settings,
)
from palaestrai_mosaik.core.errors import DocumentError, ExecutionError
from palaestrai_mosaik.store import Store


def test_a_document_may_say_all_that_there_is_to_clusters():
    for settings, table in ((SlurmSettings, SLURM), (ParslSettings, PARSL)):
        assert {field.name for field in dataclasses.fields(settings)} == set(table.keys)


def test_the_command_goes_before_the_design_and_that_before_the_users_file():
    design = {"jobs": 2, "executor": "slurm", "slurm": {"partition": "short", "time": 30}}
    user = {"jobs": 3, "timeout": 60, "slurm": {"partition": "long", "account": "grid", "qos": "normal"}}
    settings = Settings.of(design, user, executor=None, fail_fast=True, slurm={"qos": "high", "cpus": None})
    slurm = SlurmSettings(partition="short", time="30", account="grid", qos="high")
    assert settings == Settings("slurm", 2, 60, fail_fast=True, slurm=slurm)
    ready = SlurmSettings(cpus=2)
    assert Settings.of(design, user, slurm=ready).slurm is ready
    assert Settings.of(None) == Settings()


def test_lists_are_replaced_and_texts_are_lists_of_lines():
    design = {"slurm": {"prologue": "module load a\n\nmodule load b\n", "directives": ["--exclusive"]}}
    slurm = Settings.of(design, slurm={"directives": ["--constraint=fast"]}).slurm
    assert slurm.prologue == ("module load a", "", "module load b")
    assert slurm.directives == ("--constraint=fast",)
    assert Settings(allow_modules="mine, yours.agents").allow_modules == ("mine", "yours.agents")  # type: ignore[arg-type]
    assert Settings.of(None, allow_modules="").allow_modules == ()


def test_a_design_cannot_allow_itself_what_the_user_does_not():
    design = {"allow_modules": ["os"]}
    assert Settings.of(design).allow_modules == ("os",)
    assert Settings.of(design, {"allow_modules": ["mine"]}).allow_modules == ("mine",)
    assert Settings.of(design, {"allow_modules": ["mine"]}, allow_modules="x").allow_modules == ("x",)
    with_commands = {"slurm": {"prologue": ["touch x"], "partition": "short"}}
    assert Settings.of(with_commands).slurm.prologue == ("touch x",)
    for given, user in (({"allow_modules": ""}, {}), ({}, {"allow_modules": ["mine"]})):
        with pytest.raises(ExecutionError, match=r"the design gives execution\.slurm\.prologue"):
            Settings.of(with_commands, user, **given)
    kept = Settings.of(with_commands, allow_modules="", slurm={"prologue": ["module load a"]}).slurm
    assert (kept.prologue, kept.partition) == (("module load a",), "short")


def test_what_was_said_before_is_held_to_the_limit():
    """What a submission was made with goes before the design; it is a file that others may have edited."""
    design = {"slurm": {"partition": "long", "prologue": ["theirs"]}, "allow_modules": ["os"]}
    before = {"slurm": {"prologue": ["module load a"], "partition": "short", "python": None}}
    slurm = Settings.of(design, before=before).slurm
    assert (slurm.prologue, slurm.partition) == (("module load a",), "short")
    limited = before | {"allow_modules": ("mine",)}
    for said, user, given in (
        (limited, {}, {}),
        (before, {"allow_modules": ["mine"]}, {}),
        (before, {}, {"allow_modules": "mine"}),
        (before, {"slurm": {"prologue": ["module load b"]}}, {"allow_modules": "mine"}),
    ):
        with pytest.raises(ExecutionError, match=r"submission was made with execution\.slurm\.prologue"):
            Settings.of(design, user, before=said, **given)
    # who says the same has said it; the rest is taken, and the design allows nothing
    kept = Settings.of(design, {"slurm": {"prologue": "module load a"}}, before=limited)
    assert (kept.slurm.prologue, kept.slurm.partition) == (("module load a",), "short")
    assert kept.allow_modules == ("mine",)
    given = Settings.of(design, before=limited, slurm={"prologue": ["x"]}, allow_modules="other")
    assert (given.slurm.prologue, given.allow_modules) == (("x",), ("other",))
    # it may be narrower than what the user allows, not wider
    before = {"allow_modules": ["mine.agents"]}
    assert Settings.of(None, {"allow_modules": "mine, cmd:"}, before=before).allow_modules == ("mine.agents",)
    with pytest.raises(ExecutionError, match=r"does not allow 'mine\.agents' of it: repeat --allow-modules"):
        Settings.of(None, {"allow_modules": ["yours"]}, before=before)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("partition", "x; touch planted #"),
        ("partition", "$(touch planted)"),
        ("partition", "-x"),
        ("account", "a`touch planted`"),
        ("account", "a b"),
        ("address", "fe80::1%; touch planted #"),
        ("walltime", "01:00:00; touch planted"),
    ],
)
def test_what_parsl_writes_into_shell_commands_holds_none(key, value):
    with pytest.raises(ExecutionError, match=f"parsl: {key} must be"):
        ParslSettings(**{key: value})


def test_usual_names_are_taken_by_parsl():
    names = ("short,long", "batch@server.example.org", "a:b+c/d", "_x-1")
    assert [ParslSettings(partition=name, account=name).account for name in names] == list(names)
    assert ParslSettings(address="fe80::1").address == "fe80::1"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("1:30", 90),
        ("2:30:00", 9000),
        ("1-12", 129_600),
        ("1-2:30", 95_400),
        ("1-02:30:05", 95_405),
    ],
)
def test_times_are_read_as_slurm_reads_them(text, seconds):
    assert slurm_seconds(text) == SlurmSettings(time=text, warning=0).time_limit == seconds


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"time": "0"}, "slurm: time must be a time"),
        ({"time": "1:2:3:4"}, "slurm: time must be a time"),
        ({"time": "30\n"}, "slurm: time must be a time"),
        ({"time": "2"}, r"the time limit 2 \(120 s\) leaves runs no time before the warning"),
        ({"memory": "-1"}, "memory must be"),
        ({"cpus": None}, "cpus must be an integer of at least 1, found nothing"),
        ({"requeue": -1}, "requeue must be"),
        ({"warning": 70_000}, "warning must be an integer of 0 to 65,535"),
        ({"partition": "a\n#SBATCH --wrap=x"}, "partition must be a name on one line"),
        ({"account": "\x1b[31m"}, "account must be a name on one line"),
        ({"prologue": ["a\nb"]}, r"prologue\[0\] must hold lines"),
        ({"prologue": ["a\0b"]}, r"prologue\[0\] must hold lines"),
        ({"prologue": {"a": 1}}, "prologue must be lines of a shell script, found a mapping"),
        ({"directives": ["-p short"]}, "must hold one option"),
        ({"directives": [""]}, "must hold one option"),
        ({"directives": ["--exclusive --wrap=x"]}, "must hold one option"),
        ({"directives": ["--constraint=a b"]}, "must hold one option"),
        ({"directives": ["--comment='a"]}, "can read"),
        ({"directives": ["--exclusive\n#SBATCH --wrap=x"]}, "must hold one option"),
        ({"directives": ["--arr=1"]}, "cannot hold --array: arsenai writes it itself"),
        ({"directives": ["--mem 4G"]}, "cannot hold --mem: give it as 'memory'"),
        ({"directives": ["--signal=USR2"]}, "cannot hold --signal: give it as 'warning'"),
        ({"directives": ["--wrap=x"]}, "cannot hold --wrap: the script is what is submitted"),
    ],
)
def test_settings_of_slurm_that_mean_nothing(given, message):
    with pytest.raises(ExecutionError, match=message):
        SlurmSettings(**given)


def test_options_that_only_look_like_others_are_taken():
    options = (
        "--mem-per-cpu=2G",
        "--time-min=10",
        "--comment='a --wrap=b'",
        "--constraint fast",
        "--exclusive",
    )
    assert SlurmSettings(directives=options).directives == options


def test_settings_of_parsl_that_mean_nothing():
    with pytest.raises(ExecutionError, match=r"at least 2 .* at most 1"):
        ParslSettings(min_blocks=2)
    with pytest.raises(ExecutionError, match=r"there is no setting 'walltme' .did you mean 'walltime'"):
        ParslSettings.of({"walltme": "01:00:00"})
    with pytest.raises(ExecutionError, match="parsl: walltime must be"):
        ParslSettings(walltime="00:00:30")


def test_the_users_file_is_read_where_there_is_one(tmp_path, monkeypatch):
    nobody = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert read_configuration(nobody) == Configuration()
    file = tmp_path / "palaestrai-mosaik" / "config.yml"
    file.parent.mkdir()
    file.write_text('store: "@/home/me/url"\nexecution: {jobs: 3, slurm: {account: grid, time: 30}}\n')
    found = read_configuration(nobody)
    assert found == Configuration("@/home/me/url", {"jobs": 3, "slurm": {"account": "grid", "time": 30}})
    # what names another file, or none, goes before
    assert read_configuration({**nobody, "PALAESTRAI_MOSAIK_CONFIG": ""}) == Configuration()
    other = tmp_path / "other.yml"
    other.write_text("store:\n")
    assert read_configuration({**nobody, "PALAESTRAI_MOSAIK_CONFIG": str(other)}) == Configuration()
    monkeypatch.setenv("PALAESTRAI_MOSAIK_CONFIG", str(file))
    settings = user_settings({"slurm": {"account": "mine"}}, jobs=1)
    assert settings == Settings(jobs=1, slurm=SlurmSettings(account="mine", time="30"))


def test_what_is_wrong_with_the_users_file_is_told_with_its_line(tmp_path):
    file = tmp_path / "config.yml"
    with pytest.raises(DocumentError, match=r"config\.yml: cannot be read: No such file"):
        read_configuration({"PALAESTRAI_MOSAIK_CONFIG": str(file)})
    file.write_text("stor: x\nexecution:\n  slurm:\n    acount: grid\n")
    with pytest.raises(DocumentError) as error:
        read_configuration({"PALAESTRAI_MOSAIK_CONFIG": str(file)})
    first, second = map(str, error.value.problems)
    assert first.startswith(
        f"{file}:1: stor: unknown key 'stor' in the configuration (did you mean 'store'?)"
    )
    assert second.startswith(f"{file}:4: execution.slurm.acount: unknown key 'acount' in slurm (did you mean")


def test_a_study_of_100_000_runs_by_hand():
    known = Experience(10, seconds=40.0, size=30_000, files=20.0, database=4_000)
    told = dry_run([100] * 1000, SlurmSettings(throttle=50, time="1:00:00"), known, array_size=1001)
    assert (told.runs, told.tasks, told.arrays, told.runs_per_task) == (100_000, 1000, (1000,), 100)
    # a task: 100 x 40 s; 1000 tasks, 50 at a time: 20 rounds; on one core each
    assert (told.task_seconds, told.seconds, told.core_seconds) == (4000, 80_000, 4_000_000)
    # 3600 s less the warning of 120 s: 87 runs of 40 s
    assert told.fitting == 87
    # of each run 20 files, record, log, and 3 for its own store; of each task what it prints
    assert told.files == 100_000 * 25 + 1000
    assert told.size == 100_000 * (30_000 + EMPTY_DATABASE)
    assert (told.collected_files, told.collected_size) == (100_000 * 22 + 1000, 3_000_000_000)
    assert told.database == 400_000_000


def test_tasks_with_several_runs_at_a_time_in_several_arrays():
    settings = SlurmSettings(throttle=2, cpus=4, processes=3)
    told = dry_run([10] * 5 + [4], settings, Experience(1, seconds=6.0), array_size=4)
    # 10 runs, 3 at a time: 4 rounds; 4 runs: 2
    assert (told.runs, told.task_seconds, told.core_seconds) == (54, 24, (5 * 4 + 2) * 6 * 4)
    # 4 tasks, two at a time, and beside them 2 tasks
    assert (told.arrays, told.seconds) == ((4, 2), 48)
    assert (told.files, told.size, told.collected_files, told.collected_size, told.database) == (None,) * 5
    assert [array_sizes(tasks, 4) for tasks in (0, 3, 4, 9)] == [(), (3,), (4,), (4, 4, 1)]


def test_what_is_not_known_is_not_told():
    told = dry_run([2, 2], SlurmSettings(throttle=1, time="30"), Experience(0))
    assert (told.arrays, told.task_seconds, told.core_seconds, told.seconds, told.fitting) == (None,) * 5
    assert dry_run([2, 2], SlurmSettings(), Experience(1, seconds=1.0), 10).seconds is None


def test_experience_is_of_results_or_of_the_own_stores(tmp_path):
    generated = make_folder(tmp_path / "f", ["well", "well", "raise"])
    folder = generated.path
    assert experience(folder) == Experience(0)
    run_folder(generated, settings=Settings(executor="inline"))
    known = experience(folder)
    instances = list((folder / "results" / "instances").iterdir())
    files = [path for one in instances for path in one.rglob("*")]
    bytes_ = sum(path.stat().st_size for path in files if path.is_file())
    database = (folder / "results" / "store.db").stat().st_size - EMPTY_DATABASE
    assert (known.runs, known.files) == (2, (len(files) + 3) / 3)
    assert (known.database, known.size) == (round(database / 3), round(bytes_ / 3) + round(database / 3))
    told = estimate(30, 2, None, known)
    assert (told.files, told.database) == (10 * (len(files) + 3), 30 * known.database)
    # on a cluster runs have stores of their own, which do not tell what they need in one database
    (folder / "stores").mkdir()
    (folder / "results").rename(folder / "stores" / "a")
    own = replace(known, size=round(bytes_ / 3), database=None)
    assert experience(folder) == own


def test_an_empty_database_is_as_large_as_is_said(tmp_path):
    with Store(tmp_path / "s", create=True):
        pass
    size = sum(file.stat().st_size for file in (tmp_path / "s").glob("store.db*"))
    assert abs(size - EMPTY_DATABASE) < 0.2 * EMPTY_DATABASE
