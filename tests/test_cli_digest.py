"""``numtape digest``: where two runs part, from the shell."""

import pytest

import numtape as nt
from numtape.cli import main


def written(path, scale):
    with nt.Tape() as tape:
        nt.exp(nt.tensor([1.0, 2.0], name="x") * scale).sum()
    tape.digest().to_json(path)
    return str(path)


def test_equal_runs_exit_with_0(tmp_path, capsys):
    assert main(["digest", written(tmp_path / "a.json", 2.0), written(tmp_path / "b.json", 2.0)]) == 0
    assert capsys.readouterr().out == "the runs are equal in all 3 records\n"


def test_runs_that_part_exit_with_1_and_print_where(tmp_path, capsys):
    assert main(["digest", written(tmp_path / "a.json", 2.0), written(tmp_path / "b.json", 3.0)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "the runs part at record %0: the op got other inputs"
    assert lines[1].startswith("  first: mul(x ")
    assert "test_cli_digest.py:11" in lines[1]
    assert lines[2].startswith("  second: mul(x ")


def test_a_missing_or_damaged_file_is_a_line_of_usage(tmp_path, capsys):
    path = tmp_path / "broken.json"
    path.write_text("{}")
    for first, message in ((tmp_path / "none.json", "No such file or directory"), (path, "this is JSON, but not what")):
        with pytest.raises(SystemExit) as caught:
            main(["digest", str(first), str(first)])
        assert caught.value.code == 2
        assert message in capsys.readouterr().err
