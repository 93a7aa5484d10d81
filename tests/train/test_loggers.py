"""The CSV log of a run that was killed: it goes on, whatever was left of the file."""

import pytest

import numtape as nt

HEAD = "epoch,loss\r\n"


@pytest.mark.parametrize(
    ("left", "done"),
    [
        ("", ""),
        ("epoch,lo", ""),
        (HEAD, ""),
        (HEAD + "1,0.5\r\n2,0.25\r\n", HEAD + "1,0.5\r\n2,0.25\r\n"),
        (HEAD + "1,0.5\r\n2,0.25\r\n3,0.1", HEAD + "1,0.5\r\n2,0.25\r\n"),
        (HEAD + "1,0.5\r\n2,0.25\r\n1", HEAD + "1,0.5\r\n2,0.25\r\n"),
    ],
    ids=["empty", "half a head", "a head", "whole", "a line too many", "half a line"],
)
def test_a_log_goes_on_after_what_is_done(tmp_path, left, done):
    path = tmp_path / "log.csv"
    path.write_bytes(left.encode())
    logger = nt.train.CSVLogger(path)
    logger.start({"epochs": 3, "is_resumed": True, "epoch": 2})
    logger.log(3, {"loss": 0.125})
    assert path.read_bytes().decode() == (done or HEAD) + "3,0.125\r\n"


def test_a_log_that_cannot_be_rewritten_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "log.csv"
    path.write_bytes((HEAD + "1,0.5\r\n2,0.25\r\n").encode())

    def fail(*args):
        raise OSError("the disk is full")

    monkeypatch.setattr("numtape.serialization.replacing.os.write", fail)
    with pytest.raises(OSError, match="the disk is full"):
        nt.train.CSVLogger(path).start({"epochs": 3, "is_resumed": True, "epoch": 1})
    assert path.read_bytes().decode() == HEAD + "1,0.5\r\n2,0.25\r\n"
    assert list(tmp_path.iterdir()) == [path]
