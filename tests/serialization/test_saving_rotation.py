"""Checkpoints keep the last few states and the best one, and pass over damaged files."""

import math
from pathlib import Path

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ArgumentError, DamagedFileError
from numtape.serialization import Checkpoints


def steps(checkpoints):
    return [int(path.name[5:13]) for path in checkpoints]


def damage(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_the_last_few_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path / "runs" / "first", keep=3)
    for step in range(0, 100, 10):
        checkpoints.save(step, {"step": step})
    assert steps(checkpoints) == [70, 80, 90]
    assert checkpoints.latest() == tmp_path / "runs" / "first" / "step-00000090.safetensors"
    assert checkpoints.best() is None
    assert checkpoints.load_latest() == {"step": 90}
    assert checkpoints.load_best() is None


@pytest.mark.parametrize(("mode", "kept", "best"), [("min", [2, 4, 5], 2), ("max", [1, 4, 5], 1)])
def test_the_best_is_kept_beyond_them(tmp_path, mode, kept, best):
    checkpoints = Checkpoints(tmp_path, keep=2, mode=mode)
    for step, metric in enumerate([0.5, 0.9, 0.1, math.nan, 0.3, 0.4]):
        checkpoints.save(step, {"step": step}, metric=metric)
    assert steps(checkpoints) == kept
    assert checkpoints.load_best() == {"step": best}
    assert checkpoints.load_latest() == {"step": 5}


def test_of_equal_metrics_the_latest_is_best(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in range(3):
        checkpoints.save(step, step, metric=1e-05)
    assert checkpoints.best() == tmp_path / "step-00000002.metric-1e-05.safetensors"


def test_metrics_may_be_tensors_and_steps_numpy_integers(tmp_path):
    path = Checkpoints(tmp_path).save(np.int64(7), 0, metric=nt.tensor(-0.5))
    assert path == tmp_path / "step-00000007.metric--0.5.safetensors"


def test_a_step_that_is_saved_again_replaces_the_first(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, "old", metric=0.1)
    checkpoints.save(1, "new", metric=0.2)
    assert steps(checkpoints) == [1]
    assert checkpoints.load_best() == "new"


def test_a_new_object_finds_what_an_old_one_saved(tmp_path):
    Checkpoints(tmp_path).save(3, {"w": nt.ones(2)}, metric=0.25)
    again = Checkpoints(tmp_path)
    assert again.load_latest()["w"].tolist() == [1.0, 1.0]
    assert again.best() == again.latest()


def test_damaged_files_are_passed_over_with_a_warning(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in range(3):
        checkpoints.save(step, {"step": step, "w": np.ones(3)}, metric=float(step))
    damage(checkpoints.latest())
    damage(checkpoints.best())
    expected = (
        f"Checkpoints: passed over a file: load: {checkpoints.latest()} is damaged: the tensor 'w' does not match"
    )
    with pytest.warns(UserWarning, match="passed over") as caught:
        assert checkpoints.load_latest()["step"] == 1
    assert str(caught[0].message) == f"{expected} its checksum."
    assert Path(caught[0].filename).name == Path(__file__).name
    with pytest.warns(UserWarning, match="passed over"):
        assert checkpoints.load_best()["step"] == 1


def test_without_an_intact_file_it_raises_instead_of_starting_anew(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest() is None
    assert checkpoints.load_latest() is None
    damage(checkpoints.save(1, {"w": np.ones(3)}))
    with pytest.warns(UserWarning, match="passed over"), pytest.raises(DamagedFileError) as error:
        checkpoints.load_latest()
    assert str(error.value) == f"Checkpoints: none of the 1 files in {tmp_path} is intact."


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "step-1.metric-x.safetensors").write_bytes(b"")
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(2, 0)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert checkpoints.best() is None


def test_a_save_that_fails_removes_nothing(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, "old")

    def no_space(descriptor, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", no_space)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(2, "new")
    assert checkpoints.load_latest() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_wrong_arguments_are_named(tmp_path):
    with pytest.raises(ArgumentError) as error:
        Checkpoints(tmp_path, keep=0)
    assert str(error.value) == "Checkpoints: keep is 0; it is the number of states to keep, 1 or more."
    with pytest.raises(ArgumentError) as error:
        Checkpoints(tmp_path, mode="best")
    assert str(error.value) == "Checkpoints: mode is 'best'; it is 'min' or 'max'."
    with pytest.raises(ArgumentError) as error:
        Checkpoints(tmp_path).save(-1, 0)
    assert str(error.value) == "Checkpoints.save: step is -1; it must be an integer that is not negative."


@pytest.mark.parametrize(("metric", "shown"), [("0.5", "'0.5'"), ("a", "'a'"), ([0.5], "of type list")])
def test_a_metric_is_a_number(tmp_path, metric, shown):
    with pytest.raises(ArgumentError) as raised:
        Checkpoints(tmp_path).save(1, {}, metric=metric)
    assert str(raised.value) == f"Checkpoints.save: metric is {shown}; it must be a single number, or None."
    assert list(tmp_path.iterdir()) == []
