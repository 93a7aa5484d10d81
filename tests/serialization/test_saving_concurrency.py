"""What another thread writes to arrays while they are saved never makes a file that cannot be loaded."""

import os

import numpy as np

import numtape as nt
from numtape.serialization import load, save


def test_writing_to_the_arrays_during_a_save_leaves_a_valid_file(tmp_path, monkeypatch):
    path = tmp_path / "state.safetensors"
    array, tensor = np.zeros(1000), nt.zeros(7)
    real = os.write

    def training(descriptor, data):
        array[...] += 1.0
        tensor.array[...] += 1.0
        return real(descriptor, data)

    monkeypatch.setattr("os.write", training)
    save(path, {"array": array, "tensor": tensor})
    monkeypatch.undo()
    back = load(path)
    assert array[0] > 0.0
    assert set(back["array"].tolist() + back["tensor"].tolist()) == {0.0}
