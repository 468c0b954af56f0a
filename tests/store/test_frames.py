"""Rendered frames in a store: parts, queries, and whatever is done with a run."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from support.documents import document
from support.painted import decoded, painted, painted_phase

from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import EnvironmentRecord, Store, streams
from palaestrai_mosaik.store.merge import StoreReader, copy_rows, delete_runs, place_files
from palaestrai_mosaik.store.open_parts import open_part_files
from palaestrai_mosaik.store.parts import part_files, parts_so_far, read_parts
from palaestrai_mosaik.store.verify import verify
from tests.support import records

FOLDER = "trajectories/phase-0/frames-world"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("frames") / "store"
    with Store(path, journal="delete", create=True) as store:
        execute(document(painted_phase({"every": 2}, mode="train", evaluate_every=2)), store=store)
    return path


@pytest.fixture
def store(folder: Path, tmp_path: Path):
    import shutil

    shutil.copytree(folder, tmp_path / "store")
    with Store(tmp_path / "store") as opened:
        yield opened


def png_of(number: int) -> bytes:
    """Return a PNG image that says a number, and takes some room."""
    from PIL import Image

    image = io.BytesIO()
    noise = np.random.default_rng(number).integers(0, 256, (60, 60, 3), dtype=np.uint8)
    Image.fromarray(noise).save(image, "PNG")
    return image.getvalue()


def test_queries_choose_frames(store: Store) -> None:
    whole = store.frames("latest")
    assert list(whole) == ["phase", "environment", "worker", "episode", "step", "time", "png"]
    assert whole[["episode", "step"]].to_numpy().tolist() == [[e, s] for e in (0, 2) for s in range(5)]
    one = store.frames("latest", phase="phase_0", environment="world", episode=2, start=1, stop=3)
    assert list(one) == ["worker", "episode", "step", "time", "png"]
    assert one["step"].tolist() == [1, 2]
    bare = store.frames("latest", evaluation=None, png=False)
    assert list(bare)[-2:] == ["step", "time"] and len(bare) == 15
    counted = store.recorded_frames("latest")
    assert counted[["episode", "evaluation", "frames"]].to_numpy().tolist() == [
        [0, False, 5],
        [2, False, 5],
        [0, True, 5],
    ]
    for wrong in ({"environment": "wordl"}, {"phase": 7}):
        with pytest.raises(StoreError):
            store.frames("latest", **wrong)


def test_an_export_has_each_frame_as_a_file(store: Store, tmp_path: Path) -> None:
    for form in ("parquet", "csv"):
        target = tmp_path / form
        written = store.export("latest", target, form)
        assert all(path.is_file() for path in written)
        images = sorted(target.glob("trajectories/**/*.png"))
        assert set(images) <= set(written) and len(images) == 15
        for png, episode, step in store.frames("latest")[["png", "episode", "step"]].itertuples(index=False):
            path = target / FOLDER / "worker-0" / f"episode-{episode}" / f"step-{step}.png"
            assert path.read_bytes() == png
        evaluations = target / "trajectories/phase-0/evaluation/frames-world/worker-0/episode-0"
        assert len(list(evaluations.iterdir())) == 5


def test_damage_is_found(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    run = store.find_run("latest")
    sound = verify(store, run)
    assert sound.damage == () and sound.unread == ()
    assert main(["verify", run, "--store", str(store.directory)]) == 0
    (part,) = part_files(store.instance_directory(run) / FOLDER)
    content = part.read_bytes()
    # a byte of an image
    at = content.rindex(b"IDAT") + 8
    part.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    (damage,) = verify(store, run).damage
    assert "frames-world" in damage
    with pytest.raises(StoreError, match="frames-world"):
        store.frames(run)
    # whole, and something else than was recorded
    other = part_files(store.instance_directory(run) / "trajectories/phase-0/evaluation/frames-world")
    part.write_bytes(other[0].read_bytes())
    (damage,) = verify(store, run).damage
    assert "frames-world is damaged: it holds 5 rows, 10 were recorded" in damage
    part.unlink()
    (damage,) = verify(store, run).damage
    assert "is missing" in damage


def test_a_merged_run_has_its_frames(store: Store, tmp_path: Path) -> None:
    uid = store.find_run("latest")
    with Store(tmp_path / "target", create=True) as target:
        place_files(store.instance_directory(uid), target.instance_directory(uid))
        reader = StoreReader()
        with target.database.writing() as session, reader.reading(store.directory) as rows:
            copy_rows(rows, store.instance_directory(uid), session, uid)
        reader.close()
        assert target.frames(uid, evaluation=None).equals(store.frames(uid, evaluation=None))
        assert verify(target, uid).damage == ()
        delete_runs(target, [uid])
        assert not target.instance_directory(uid).exists()


def test_a_part_is_written_before_it_takes_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_PART_BYTES", 40_000)
    images = [png_of(number) for number in range(30)]
    with Store(tmp_path / "store", create=True) as store:
        run = records.begin(store)
        phase = run.begin_phase(
            *(0, "phase_0"),
            mode="test",
            workers=1,
            episodes=None,
            controller="vanilla",
            environments=[
                EnvironmentRecord("world", "World", frames=True),
                EnvironmentRecord("other", "Other"),
            ],
            agents=[],
        )
        for number, image in enumerate(images):
            phase.frames("world").append(0, 0, number, number, 0, image)
        parts = len(part_files(store.instance_directory(run.uid) / FOLDER))
        assert parts >= 5
        shown = store.frames(run.uid)["png"].tolist()
        assert shown == images[: len(shown)]
        with pytest.raises(StoreError, match="a frame must be a PNG image"):
            phase.frames("world").append(0, 0, 30, 30, 0, b"GIF89a")
        with pytest.raises(StoreError, match="no rendered environment 'other'"):
            phase.frames("other")
        phase.finish("over")
        run.finish("finished")
        assert store.frames(run.uid)["png"].tolist() == images
        assert phase.digests() == {}
        # images are not compressed a second time
        size = sum(path.stat().st_size for path in part_files(store.instance_directory(run.uid) / FOLDER))
        assert size < sum(map(len, images)) * 1.05 + 20_000
        assert verify(store, run.uid).damage == ()


def test_frames_are_found_before_their_part_is_written(tmp_path: Path) -> None:
    stream = streams.FrameStream(tmp_path / "frames-world", {"name": "world"}, lambda: None)

    def found() -> list[tuple[int, bytes]]:
        table = read_parts(parts_so_far(stream.folder), columns=["step", "png"])
        return list(zip(*table.to_pydict().values(), strict=True))

    images = [png_of(number) for number in range(5)]
    for last in (2, 5):
        for step in range(stream.rows, last):
            stream.append(0, 0, step, step, 0, images[step])
        stream.show()
        assert found() == list(enumerate(images[:last]))
    assert [path.name for path in open_part_files(stream.folder)] == ["part-000000.arrows"]
    before = stream.digest()
    stream.flush()
    assert open_part_files(stream.folder) == [] and stream.digest() == before
    assert found() == list(enumerate(images))


def test_the_frames_of_episodes_are_what_was_painted(store: Store) -> None:
    states = store.environment_states("latest").set_index(["episode", "step"])["reading.world.level"]
    for row in store.frames("latest").itertuples(index=False):
        level = round(states[row.episode, row.step] * 255)
        assert np.array_equal(decoded(row.png), painted(row.step, row.episode, level))
