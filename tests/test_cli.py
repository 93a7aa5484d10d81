"""The command line: the demo fits, checks and draws; mistakes get a line of usage."""

import io
import subprocess
import sys

import pytest

from numtape.cli import main
from numtape.cli.demo import curve, run


def test_the_demo_shows_tape_check_curve_and_law():
    out = io.StringIO()
    assert run(200, out) == 0
    text = out.getvalue()
    assert "demo.py" in text  # The lines that ran the ops.
    assert "gradients are right" in text
    assert "200 steps" in text
    exponent = float(text.split("exponent = ")[1].split(",")[0])
    assert exponent == pytest.approx(1.5, abs=0.005)


def test_the_module_runs():
    result = subprocess.run([sys.executable, "-m", "numtape", "demo", "--steps", "3"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "3 steps" in result.stdout


@pytest.mark.parametrize("arguments", [["demo", "--steps", "0"], ["demo", "--steps", "many"], ["dance"], []])
def test_mistakes_end_with_usage(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "usage: numtape" in capsys.readouterr().err


def test_a_curve_of_one_loss_is_drawn():
    assert "1 steps" in curve([1.0])
