"""The command line: the demo trains, reports and resumes; mistakes get a line that says what to do."""

import io
import json
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import numtape as nt
from numtape.cli import demo, info, main, models, report
from numtape.kernels import blas, machine

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
NOTHING = {"model": None, "epochs": None, "seed": None}


def accuracy_of(text):
    return float(re.search(r"Test accuracy ([\d.]+)%", text)[1])


def short(seed=0):
    return {"model": "mlp", "epochs": 2, "seed": seed}


def weights_in(folder):
    return {name: value.tolist() for name, value in nt.load(folder / "model.safetensors").items()}


def test_the_demo_trains_reports_and_writes(tmp_path):
    out = io.StringIO()
    assert demo.run(NOTHING, tmp_path / "run", False, out) == 0
    text = out.getvalue()
    assert text.startswith("cnn on 1,442 handwritten digits, 355 others for testing; 15 epochs, seed 0\n")
    assert "10,026 parameters (10,026 trainable), 40,104 bytes" in text
    assert accuracy_of(text) >= 98.0
    assert "true\\taken   0  1  2  3  4  5  6  7  8  9" in text
    assert "17 records, 3,542,276 bytes computed, 1,837,568 bytes kept for derivatives" in text
    assert "gradients are right" in text
    assert "\nepoch   1  " in text[text.index("The loss\n") :]
    assert max(map(len, text.replace(str(tmp_path), "").splitlines())) <= 120
    assert (tmp_path / "run" / "loss.png").read_bytes().startswith(b"\x89PNG")
    state = nt.Checkpoints(tmp_path / "run" / "states").load_latest()["model"]
    assert {name: value.tolist() for name, value in state.items()} == weights_in(tmp_path / "run")
    assert len(list((tmp_path / "run" / "states").iterdir())) in (
        3,
        4,
    )  # The latest, and the best if it is none of them.


def test_the_saved_model_has_the_accuracy_that_was_printed(tmp_path):
    out = io.StringIO()
    demo.run(short(), tmp_path / "run", False, out)
    model = models.mlp(None)
    model.load_state_dict(nt.load(tmp_path / "run" / "model.safetensors"))
    images, labels = nt.data.digits("test")
    with nt.no_grad():
        right = (model.eval()(images).argmax(axis=1) == labels).sum().item()
    assert accuracy_of(out.getvalue()) == round(100 * right / 355, 2)


@pytest.mark.parametrize(("name", "least"), [("mlp", 97.0), ("lstm", 95.0), ("transformer", 95.0)])
def test_every_model_learns(name, least, tmp_path):
    out = io.StringIO()
    assert demo.run(NOTHING | {"model": name}, tmp_path / "run", False, out) == 0
    assert accuracy_of(out.getvalue()) >= least
    assert "gradients are right" in out.getvalue()


def test_a_seed_decides_all_numbers(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert demo.run(short(seed), tmp_path / name, False, io.StringIO()) == 0
    assert weights_in(tmp_path / "a") == weights_in(tmp_path / "b")
    assert weights_in(tmp_path / "a") != weights_in(tmp_path / "c")


def test_the_number_of_cores_does_not_matter(tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr(demo, "_run", lambda *_: found.append(info.gather()["BLAS threads"]) or 0)
    demo.run(short(), tmp_path / "run", False, io.StringIO())
    assert set(found[0].split(", ")) == {"1"}


def test_a_run_that_was_interrupted_goes_on_exactly(tmp_path, monkeypatch):
    assert demo.run(short(), tmp_path / "whole", False, io.StringIO()) == 0
    recipe = models.RECIPES["mlp"]

    def interrupted(rng):
        model = recipe.make(rng)
        calls = iter(range(100))
        model.register_forward_hook(lambda *_: signal.raise_signal(signal.SIGINT) if next(calls) == 30 else None)
        return model

    out = io.StringIO()
    with monkeypatch.context() as patch:
        patch.setitem(models.RECIPES, "mlp", models.Recipe(interrupted, recipe.rate, recipe.epochs))
        assert demo.run(short(), tmp_path / "parts", False, out) == 130
    assert out.getvalue().endswith(f"go on with: numtape demo --resume --out {tmp_path / 'parts'}\n")
    assert not (tmp_path / "parts" / "model.safetensors").exists()
    assert demo.run(NOTHING, tmp_path / "parts", True, io.StringIO()) == 0
    assert weights_in(tmp_path / "parts") == weights_in(tmp_path / "whole")


def test_a_run_that_is_over_can_be_resumed_and_reports_again(tmp_path):
    first, again = io.StringIO(), io.StringIO()
    demo.run(short(), tmp_path / "run", False, first)
    demo.run(NOTHING, tmp_path / "run", True, again)
    strip = re.compile(r"trained in .* s\n")
    assert strip.sub("", first.getvalue()) == strip.sub("", again.getvalue())


def test_a_new_run_removes_the_states_of_an_old_one(tmp_path):
    demo.run({"model": "mlp", "epochs": 3, "seed": 0}, tmp_path / "run", False, io.StringIO())
    demo.run(short(1), tmp_path / "run", False, io.StringIO())
    assert [path.name[:13] for path in nt.Checkpoints(tmp_path / "run" / "states")] == [
        "step-00000023",
        "step-00000046",
    ]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"model": "cnn"}, "has --model mlp, not cnn; leave --model out, or start anew, without --resume."),
        ({"epochs": 5}, "has --epochs 2, not 5; leave --epochs out, or start anew, without --resume."),
        ({"seed": 3}, "has --seed 0, not 3; leave --seed out, or start anew, without --resume."),
    ],
)
def test_a_resume_with_other_settings_says_so(asked, message, tmp_path):
    demo.Folder(tmp_path).begin(short())
    with pytest.raises(demo.DemoError) as caught:
        demo.run(NOTHING | asked, tmp_path, True, io.StringIO())
    assert str(caught.value) == f"the run in {tmp_path} {message}"


def test_a_resume_without_a_run_says_so(tmp_path, capsys):
    assert main(["demo", "--resume", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"numtape demo: there is no run in {tmp_path} to go on with; leave --resume out.\n"
    )


def test_a_damaged_run_says_so(tmp_path):
    (tmp_path / "demo.json").write_text('{"model": "mlp"')
    with pytest.raises(demo.DemoError) as caught:
        demo.run(NOTHING, tmp_path, True, io.StringIO())
    assert str(caught.value) == f"{tmp_path / 'demo.json'} is damaged; start anew, without --resume."


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "model.safetensors").write_text("precious")
    with pytest.raises(demo.DemoError) as caught:
        demo.run(short(), tmp_path, False, io.StringIO())
    assert str(caught.value) == f"{tmp_path} holds other things than a demo; give another folder with --out."
    assert (tmp_path / "model.safetensors").read_text() == "precious"


def test_a_file_in_place_of_the_folder_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err == f"numtape demo: [Errno 20] Not a directory: '{tmp_path / 'file'}'\n"


def test_without_scikit_learn_there_is_one_line_and_no_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert main(["demo", "--out", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err == ('numtape demo: digits: needs scikit-learn; pip install "numtape[demo]"\n')
    assert not (tmp_path / "run").exists()


def test_without_matplotlib_only_the_plot_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    out = io.StringIO()
    assert demo.run(short(), tmp_path / "run", False, out) == 0
    assert out.getvalue().endswith('No plot, for want of Matplotlib: pip install "numtape[demo]"\n')
    assert not (tmp_path / "run" / "loss.png").exists()


class Constant(nt.nn.Module):
    """Takes everything for a 3."""

    def forward(self, images):
        return nt.eye(10)[[3] * len(images)]


def test_mistakes_are_drawn():
    images = nt.eye(8).reshape(1, 1, 8, 8).expand(2, 1, 8, 8)
    drawn = report.mistakes(Constant(), images, nt.tensor([3, 5])).splitlines()
    assert drawn == ["5, taken for 3", *("  " * i + "@@" for i in range(8))]


def test_a_model_without_mistakes_shows_none():
    assert report.mistakes(Constant(), nt.zeros(2, 1, 8, 8), nt.tensor([3, 3])) == ""


def test_the_module_runs(tmp_path):
    command = [sys.executable, "-m", "numtape", "demo", "--model", "mlp", "--epochs", "1", "--out", "run"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith("epoch 1/1  loss ")  # Plain lines, since it is no terminal.
    assert json.loads((tmp_path / "run" / "demo.json").read_text()) == {"model": "mlp", "epochs": 1, "seed": 0}


@pytest.mark.parametrize(
    "arguments",
    [["demo", "--epochs", "0"], ["demo", "--epochs", "many"], ["demo", "--seed", "-1"], ["demo", "--model", "gan"], []],
)
def test_mistakes_end_with_usage(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "usage: numtape" in capsys.readouterr().err


def test_the_models_on_offer_are_those_that_exist(capsys):
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    assert f"--model {{{','.join(models.RECIPES)}}}" in capsys.readouterr().out


def test_ctrl_c_ends_without_a_traceback(monkeypatch, capsys):
    def pressed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", pressed)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_info_names_versions_machine_and_extras(capsys):
    assert main(["info"]) == 0
    rows = dict(re.split(r" {2,}", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["numtape"] == nt.__version__
    assert rows["NumPy"] == np.__version__
    assert rows["providers"].startswith("NumPy")
    assert {"Python", "ml_dtypes", "platform", "CPUs", "SIMD", "BLAS", "BLAS threads"} < set(rows)
    assert rows["extra sklearn"].startswith("scikit-learn ")


@pytest.mark.parametrize(
    ("found", "is_set", "hint"),
    [
        ("X86_V3", False, ""),
        ("X86_V4", False, "; with OPENBLAS_CORETYPE=SKYLAKEX set, it would use this CPU's AVX-512"),
        ("X86_V4", True, ", as OPENBLAS_CORETYPE is set; without it, it might use this CPU's AVX-512"),
    ],
)
def test_info_says_that_blas_takes_the_cpu_for_an_older_one(found, is_set, hint, monkeypatch):
    library = blas.Library("", lambda count: None, lambda: 1, "Haswell")
    monkeypatch.setattr(info.blas, "library", lambda: library)
    config = {"SIMD Extensions": {"found": [found]}, "Build Dependencies": {"blas": {"name": "a", "version": "1"}}}
    monkeypatch.setattr(info.np, "show_config", lambda mode: config)
    monkeypatch.setattr(machine, "_config", lambda: config)
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    if is_set:
        monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    assert info.gather()["BLAS"] == "a 1" + (", with kernels for Haswell" + hint) * bool(hint)


def test_info_knows_the_extras_of_the_project():
    extras = PROJECT["optional-dependencies"]
    own = {name: re.split(r"[<>=]", parts[0])[0] for name, parts in extras.items() if name in info.EXTRAS}
    assert own == info.EXTRAS
    assert extras["all"] == [f"numtape[{','.join(info.EXTRAS)}]"]


def test_info_says_how_to_get_a_missing_extra(monkeypatch):
    def missing(package):
        raise info.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(info.metadata, "version", lambda name: "0" if name == "ml_dtypes" else missing(name))
    assert info.gather()["extra plot"] == 'matplotlib is missing: pip install "numtape[plot]"'


def test_info_needs_no_threadpoolctl(monkeypatch):
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert info.gather()["BLAS threads"] == f"{info.usable_cpus()} unless the library was told otherwise"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    assert info.gather()["BLAS threads"] == "3 (OPENBLAS_NUM_THREADS)"
