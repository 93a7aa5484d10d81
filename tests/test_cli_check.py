"""``numtape check``: gradients certified from the shell, with exit codes and messages for every mistake."""

import subprocess
import sys

import pytest

from numtape.cli import main

MODULE = """
import numpy as np
import numtape as nt

SIZE = 3


def smooth(x, y=2.0):
    return (nt.tanh(x) * y).sum()


def with_defaults(x=np.array([0.5, 1.5]), y=2.0):
    return (x * y).exp().sum()


def with_samples(x):
    return (x * x).sum()


with_samples.samples = [(np.array([1.0, 2.0]),), 3.0]


def wrong(x):
    return (x * x.detach()).sum()


def whole(n=3):
    return n


def clumsy(x):
    return "a" + 1


def leaving(x):
    raise SystemExit(4)


def odd_samples(x):
    return x


odd_samples.samples = 3


class Loss:
    @staticmethod
    def value(x):
        return x * x


constant = 3.0
"""

STRUCTURED = """
from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Config:
    scale: float = 2.0


def scaled(x=1.5):
    return x * Config().scale
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "my_losses.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "ending.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "structured.py").write_text(STRUCTURED)
    (tmp_path / "needy.py").write_text("import not_there_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("my_losses", "broken", "needy", "ending", "structured"):
        sys.modules.pop(name, None)


def test_right_gradients_print_the_table_and_exit_with_0(folder, capsys):
    assert main(["check", "my_losses:smooth", "--args", "np.ones(SIZE), 2.0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "my_losses:smooth(array([1., 1., 1.]), 2.0)"
    assert lines[1].startswith("argument  shape  verdicts")
    assert lines[2].startswith("args[0]   (3,)   3 right")
    assert lines[3].startswith("args[1]   ()     1 right")
    assert lines[-1].startswith("gradients are right: largest error ")


def test_wrong_gradients_exit_with_1(folder, capsys):
    assert main(["check", "my_losses:wrong", "--args", "nt.ones(2)"]) == 1
    assert "gradients are WRONG" in capsys.readouterr().out


def test_defaults_and_samples_stand_in_for_arguments(folder, capsys):
    assert main(["check", "my_losses:with_defaults"]) == 0
    assert main(["check", "my_losses:with_samples"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("my_losses")] == [
        "my_losses:with_defaults(array([0.5, 1.5]), 2.0)",
        "my_losses:with_samples(array([1., 2.]))",
        "my_losses:with_samples(3.0)",
    ]


def test_files_members_and_options_are_understood(folder, capsys):
    assert main(["check", str(folder / "my_losses.py") + ":Loss.value", "--args", "2.0", "--method", "central"]) == 0
    assert main(["check", "my_losses:smooth", "--args", "0.3", "--tolerance", "1e-4"]) == 0
    assert "tolerance 1e-04" in capsys.readouterr().out


def test_files_with_dataclasses_are_loaded_as_modules(folder, capsys):
    assert main(["check", "structured.py:scaled"]) == 0
    assert "gradients are right" in capsys.readouterr().out


def test_a_file_leaves_modules_of_its_name_in_place(folder, capsys):
    (folder / "json.py").write_text("def f(x=1.0):\n    return x * 2.0\n")
    before = sys.modules["json"]
    assert main(["check", "json.py:f"]) == 0
    assert sys.modules["json"] is before


def test_the_module_runs_it(folder):
    command = [sys.executable, "-m", "numtape", "check", "my_losses:wrong", "--args", "np.ones(2)"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert result.returncode == 1, result.stderr
    assert "wrong rule" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["my_losses"],
            "'my_losses' names no function; write module:function or path/to/file.py:function.",
        ),
        (
            ["my_loses:smooth"],
            "there is no module 'my_loses' in {folder} or among the installed ones; run from the directory that holds "
            "it, or give path/to/file.py:function.",
        ),
        (["lost.py:smooth"], "there is no file lost.py."),
        (["broken:f"], "broken cannot be imported: ZeroDivisionError: division by zero."),
        (["needy:f"], "needy cannot be imported: No module named 'not_there_at_all'."),
        (["my_losses:smoth"], "my_losses has no function 'smoth'; did you mean smooth?"),
        (
            ["my_losses:zzz"],
            "my_losses has no function 'zzz'; it has Loss, clumsy, leaving, odd_samples, smooth, whole, with_defaults, "
            "with_samples, wrong.",
        ),
        (["my_losses:constant"], "my_losses:constant is no function but float."),
        (
            ["my_losses:smooth"],
            'my_losses:smooth needs x; give arguments, as in --args "np.ones(3), 2.0", or defaults, or set '
            "function.samples to a list of argument tuples.",
        ),
        (
            ["my_losses:smooth", "--args", "ones(3)"],
            "--args 'ones(3)' cannot be evaluated: NameError: name 'ones' is not defined. It is a Python expression "
            'with np and nt, as "np.ones(3), 2.0".',
        ),
        (
            ["my_losses:whole"],
            "check_gradients: the arguments of whole are of int, which have no derivative; give it floats, as 2.0 or "
            "x.astype(float).",
        ),
        (
            ["my_losses:smooth", "--args", "1.0, 2.0, 3.0"],
            "my_losses:smooth cannot be called with these arguments: too many positional arguments; its signature is "
            "smooth(x, y=2.0).",
        ),
        (
            ["my_losses:clumsy", "--args", "1.0"],
            'my_losses:clumsy failed: TypeError: can only concatenate str (not "int") to str (at my_losses.py:32).',
        ),
        (["my_losses:leaving", "--args", "1.0"], "my_losses:leaving failed: SystemExit: 4 (at my_losses.py:36)."),
        (
            ["my_losses:odd_samples"],
            "my_losses:odd_samples.samples is 3; set it to a list of argument tuples, as [(np.ones(3), 2.0)], or to a "
            "function that returns one.",
        ),
        (
            ["ending:f"],
            'ending cannot be imported: it ends with sys.exit(3); put that under if __name__ == "__main__".',
        ),
        (
            ["ending.py:f"],
            'ending.py cannot be imported: it ends with sys.exit(3); put that under if __name__ == "__main__".',
        ),
        (
            ["my_losses:smooth", "--args", "1.0", "--method", "best"],
            "check_gradients: there is no method 'best'; the methods are 'central', 'four_point', 'six_point', "
            "'richardson'.",
        ),
    ],
)
def test_mistakes_exit_with_2_and_say_what_to_do(folder, capsys, arguments, message):
    with pytest.raises(SystemExit) as end:
        main(["check", *arguments])
    assert end.value.code == 2
    said = capsys.readouterr().err.split("numtape check: error: ")[1]
    assert said.strip() == message.format(folder=folder)


def test_a_comma_may_follow_the_only_argument(folder, capsys):
    assert main(["check", "my_losses:with_samples", "--args", "2.0,"]) == 0
    assert capsys.readouterr().out.startswith("my_losses:with_samples(2.0)")


def test_samples_of_a_custom_op_stand_in_for_arguments(folder, capsys):
    (folder / "my_ops.py").write_text(
        "import numpy as np, numtape as nt\n"
        "@nt.custom_op(vjp={'x': lambda g, x: g * 2.0 * x}, samples=[(np.array([1.0, 2.0]),)])\n"
        "def square(x, /):\n"
        "    return x * x\n"
    )
    assert main(["check", "my_ops:square"]) == 0
    assert capsys.readouterr().out.startswith("my_ops:square(array([1., 2.]))")
