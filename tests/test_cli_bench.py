"""``numtape bench``: functions of the user and our own work, timed from the shell."""

import csv
import json
import subprocess
import sys

import pytest

from numtape.cli import main
from numtape.cli.bench import _own_works
from numtape.insight.benchmark import PerformanceBenchmark
from numtape.insight.benchmark_results import BenchmarkResult

SOURCE = """
import numpy as np

calls = []


def square(x):
    calls.append(x)
    return (x * x).sum()


def nothing():
    return 3


def with_samples(x):
    return x * 2.0


with_samples.samples = [(1.0,), (2.0,)]


def fails(x):
    raise KeyError("inside")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "my_work.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("my_work", None)


def bench(*arguments):
    return main(["bench", *arguments])


def test_a_function_is_called_as_often_as_asked(folder, capsys):
    assert bench("my_work:square", "--args", "np.ones(3)", "--warmup", "2", "--iterations", "4") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("my_work:square: median ")
    assert ", calls 4, " in line
    assert len(sys.modules["my_work"].calls) == 6


def test_a_function_without_arguments_and_one_with_samples(folder, capsys):
    assert bench("my_work:nothing", "--iterations", "2") == 0
    assert bench("my_work.py:with_samples", "--iterations", "2") == 0
    names = [line.partition(": ")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["my_work:nothing", "my_work.py:with_samples[0]", "my_work.py:with_samples[1]"]


def test_the_gradient_and_a_profile(folder, capsys):
    assert bench("my_work:square", "--args", "np.ones(3)", "--iterations", "2", "--gradient", "--profile") == 0
    out = capsys.readouterr().out
    names = [line.partition(": ")[0] for line in out.splitlines()[:2]]
    assert names == ["my_work:square", "my_work:square with gradient"]
    rows = [line.split()[0] for line in out.partition("my_work:square with gradient\n")[2].splitlines()]
    assert {"mul", "sum"} <= set(rows)


def test_files_are_written(folder, capsys):
    assert bench("my_work:nothing", "--iterations", "3", "--json", "times.json", "--csv", "times.csv") == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["written to times.json", "written to times.csv"]
    document = json.loads((folder / "times.json").read_text())
    assert len(document["results"][0]["times_seconds"]) == 3
    with (folder / "times.csv").open(newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["my_work:nothing"]


def write_baseline(path, name, seconds):
    benchmark = PerformanceBenchmark()
    benchmark.results[name] = BenchmarkResult(name, tuple(seconds * (1.0 + 0.001 * i) for i in range(20)))
    benchmark.to_json(path)


def test_a_regression_ends_with_1(folder, capsys):
    write_baseline("before.json", "my_work:nothing", 1e-12)
    assert bench("my_work:nothing", "--iterations", "20", "--baseline", "before.json") == 1
    *_, heading, line = capsys.readouterr().out.splitlines()
    assert heading == "beside before.json"
    assert line.startswith("my_work:nothing: ")
    assert line.endswith(" REGRESSION")


def test_what_got_faster_ends_with_0(folder, capsys):
    write_baseline("before.json", "my_work:nothing", 1e3)
    assert bench("my_work:nothing", "--iterations", "20", "--baseline", "before.json") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(" faster")


def test_our_own_work_runs():
    works = _own_works()
    assert list(works) == [
        "1,000 small ops, forward and backward",
        "tanh of 1,000,000 floats",
        "product of 512x512 matrices",
        "training step of a perceptron, batch 64",
        "Jacobian of 100 by 100",
    ]
    for work in works.values():
        work()


def test_the_command_runs_from_the_shell(folder):
    command = [sys.executable, "-m", "numtape", "bench", "my_work:nothing", "--iterations", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("my_work:nothing: median ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["my_work"], "'my_work' names no function; write module:function or path/to/file.py:function."),
        (["my_work:sqare"], "my_work has no function 'sqare'; did you mean square?"),
        (
            ["my_work:square"],
            'my_work:square needs x; give arguments, as in --args "np.ones(3), 2.0", or defaults, or set '
            "function.samples to a list of argument tuples.",
        ),
        (
            ["my_work:square", "--args", "3", "--gradient"],
            "my_work:square is called with nothing to differentiate by; --gradient wants a float argument.",
        ),
        (["my_work:fails", "--args", "1.0"], "my_work:fails failed: KeyError: 'inside' (at my_work.py:{line})."),
        (
            ["my_work:nothing", "--baseline", "absent.json"],
            "--baseline absent.json cannot be read: No such file or directory.",
        ),
        (["my_work:nothing", "--baseline", "my_work.py"], "--baseline my_work.py is no file that --json wrote."),
        (
            ["my_work:nothing", "--baseline", "other.json", "--iterations", "1"],
            "--baseline other.json has something, and nothing of what was timed.",
        ),
        (
            ["my_work:nothing", "--baseline", "other.json", "--threshold", "0"],
            "--threshold is 0.0; it must be a positive number.",
        ),
        (
            ["my_work:nothing", "--iterations", "1", "--json", "absent/times.json"],
            "absent/times.json cannot be written: No such file or directory.",
        ),
        (["my_work:nothing", "--iterations", "0"], "argument --iterations: '0' is no integer from 1 on"),
    ],
)
def test_mistakes_exit_with_2_and_say_what_to_do(folder, capsys, arguments, message):
    write_baseline("other.json", "something", 1.0)
    with pytest.raises(SystemExit) as end:
        bench(*arguments)
    assert end.value.code == 2
    said = capsys.readouterr().err.split("numtape bench: error: ")[1]
    line = SOURCE.splitlines().index('    raise KeyError("inside")') + 1
    assert said.strip() == message.format(line=line)
