"""Every example runs, and does what it promises."""

import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import numtape as nt

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name, **settings):
    return example(name).main(**settings)


#: Those that draw are in tests/test_science_examples.py.
SCIENCE = ["bundle_adjustment", "confidence_bands", "hamiltonian_monte_carlo", "lotka_volterra", "tomography"]
NAMES = sorted({path.stem for path in FOLDER.glob("*.py")} - set(SCIENCE))


def test_there_is_a_test_for_every_example():
    tests = [name for name in globals() if name.startswith("test_")]
    tests += re.findall(r"^def (test_\w+)", (Path(__file__).parent / "test_science_examples.py").read_text(), re.M)
    assert len(NAMES) == 13
    assert [name for name in NAMES + SCIENCE if not any(test.startswith(f"test_{name}_") for test in tests)] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_a_script_with_a_docstring_and_defaults(name):
    module = example(name)
    assert module.__doc__
    assert inspect.getdoc(module.main)
    assert all(p.default is not p.empty for p in inspect.signature(module.main).parameters.values())
    assert (FOLDER / f"{name}.py").read_text().endswith('\n\nif __name__ == "__main__":\n    main()\n')


def test_an_example_runs_as_a_script():
    script = FOLDER / "tenflowers_training_step.py"
    done = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("the plane was turned by 30.00 degrees; 30.00 is right\n")
    assert done.stderr == ""


def test_the_program_from_pytorch_has_some_forty_lines_on_both_sides():
    # tests/test_docs_examples.py runs numtape's side.
    sides = re.findall(r"```(py|python)\n(.*?)```", (ROOT / "docs" / "from_pytorch.md").read_text(), re.S)[:2]
    assert [(kind, len(code.splitlines())) for kind, code in sides] == [("py", 42), ("python", 42)]
    theirs, ours = (code.splitlines() for _, code in sides)
    # A line differs by names alone: of the library, of a module, of a file.
    assert sum(a == b for a, b in zip(theirs, ours, strict=True)) >= 26


def test_hodu_default_context_learns_and_leaves_no_records(capsys):
    found = run("hodu_default_context")
    assert found["first_loss"] == pytest.approx(np.log(10.0), abs=0.05)
    assert found["last_loss"] < 0.12
    assert found["accuracy"] > 0.95
    assert found["records_left"] == 0
    assert "epoch  20" in capsys.readouterr().out


@pytest.mark.parametrize("clears", [False, True])
def test_hodu_custom_context_learns_whether_or_not_it_is_cleared(clears, capsys):
    found = run("hodu_custom_context", epochs=150, clears=clears)
    assert found["accuracy"] > 0.9
    # The records of one forward pass, never of two.
    assert found["most_records"] == 5
    assert found["records_left"] == 0
    assert "records in context" in capsys.readouterr().out


def test_hodu_two_models_train_independently(capsys):
    found = run("hodu_two_models", epochs=150)
    assert found["is_untouched"] is True
    assert found["loss"] < 0.2
    # The noise grows from the middle to the ends, and the auxiliary model has found that out.
    assert found["error_outside"] > 2.0 * found["error_inside"]
    assert "bit for bit" in capsys.readouterr().out


def test_ml_odyssey_training_shows_its_tape_and_learns(capsys):
    found = run("ml_odyssey_training", steps=60)
    assert found["last_loss"] < 0.4 * found["first_loss"]
    assert found["accuracy"] > 0.85
    out = capsys.readouterr().out
    assert "<Tape: 3 records, open>" in out
    assert "loss = nt.cross_entropy_loss" in out


def test_ml_odyssey_accumulation_equals_the_whole_batch(capsys):
    found = run("ml_odyssey_accumulation", steps=30)
    assert found["apart"] < 1e-12
    assert found["loss"] < 0.4
    assert "4 batches of 16" in capsys.readouterr().out


def test_tenflowers_training_step_finds_the_angle(capsys):
    found = run("tenflowers_training_step", steps=40, degrees=-75.0)
    assert found["degrees"] == pytest.approx(-75.0, abs=1e-3)
    assert found["last_loss"] < 1e-9 < found["first_loss"]
    assert "-75.00 is right" in capsys.readouterr().out


def test_tenflowers_conditional_gradients_records_only_when_asked(capsys):
    found = run("tenflowers_conditional_gradients", epochs=4)
    assert found["accuracy"] > 0.9
    assert found["records_without"] == 0
    assert found["records_with"] > 0
    assert "why is this a" in capsys.readouterr().out


def test_char_transformer_learns_its_rhyme(capsys):
    found = run("char_transformer")
    assert found["first_bits"] > 4.5
    assert found["last_bits"] < 0.8
    # Most of what it tells are words of the rhyme; the last one may be cut off.
    words = found["told"].split()[:-1]
    known = set(example("char_transformer").CORPUS.split())
    assert words[:2] == ["The", "Owl"]
    assert sum(word in known for word in words) > 0.6 * len(words)
    assert "bits per letter" in capsys.readouterr().out


def test_char_transformer_sees_no_letter_in_advance():
    module = example("char_transformer")
    model = module.Reader(5, context=8, width=8, layers=2, stream=nt.Generator(0))
    text = np.array([[0, 1, 2, 3, 4, 0, 1, 2]])
    changed = text.copy()
    changed[0, 5:] = 4
    with nt.no_grad():
        before, after = model(text).numpy(), model(changed).numpy()
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert np.all(before[:, 5:] != after[:, 5:])


def test_autoencoder_beats_the_mean_image(capsys):
    found = run("autoencoder")
    assert found["error"] < 0.35 * found["mean_error"]
    assert found["error"] < found["first_error"]
    assert "8 numbers for 64 pixels" in capsys.readouterr().out


def test_gan_draws_around_the_ring(capsys):
    found = run("gan")
    assert 0.8 < found["radius"] < 1.1
    assert found["spread"] < 0.3
    assert found["sectors"] == 16
    assert "gradient penalty" in capsys.readouterr().out


def test_gan_has_the_gradients_of_its_penalty():
    # The critic's step, with the slopes in closed form: a linear critic has the same slope everywhere.
    module = example("gan")
    critic = nt.nn.Linear(2, 1, dtype="float64", rng=0)
    weight = critic.weight.numpy(copy=True)
    optimizer = nt.optim.SGD(critic.parameters(), lr=1.0)
    real, fake = nt.randn(6, 2, rng=1, dtype="float64"), nt.randn(6, 2, rng=2, dtype="float64")
    distance, penalty = module.critic_step(critic, optimizer, real, fake, nt.Generator(3))
    length = np.linalg.norm(weight)
    apart = real.numpy().mean(axis=0) - fake.numpy().mean(axis=0)
    assert penalty == pytest.approx((length - 1.0) ** 2, rel=1e-12)
    assert distance == pytest.approx(float(weight[0] @ apart), rel=1e-12)
    slope = 0.3 * 2.0 * (length - 1.0) * weight / length - apart
    np.testing.assert_allclose(critic.weight.numpy(), weight - slope, rtol=1e-12)


def test_physics_informed_finds_the_motion(capsys):
    found = run("physics_informed")
    assert found["loss"] < 0.01
    assert found["error"] < 0.02
    assert "what is left of the law" in capsys.readouterr().out


def test_physics_informed_knows_the_exact_motion():
    # The closed form that errors are measured against obeys the law itself.
    module = example("physics_informed")
    for t in (0.0, 0.7, 2.5):
        u, du, ddu = nt.derivatives(module.exact, t, 2)
        assert ddu + 2.0 * module.DAMPING * du + module.FREQUENCY**2 * u == pytest.approx(0.0, abs=1e-12)
    assert nt.derivatives(module.exact, 0.0, 1) == pytest.approx([1.0, 0.0], abs=1e-15)


def test_multi_task_explains_both_with_one_tape(capsys):
    found = run("multi_task")
    assert found["accuracy"] > 0.92
    assert found["r2"] > 0.8
    assert found["apart"] < 1e-5
    assert "agreement on the shared layer" in capsys.readouterr().out


def test_mixed_precision_learns_as_float32_does_and_keeps_half(capsys):
    found = run("mixed_precision", epochs=4)
    assert found["float32"][0] > 0.9
    for precision in ("bfloat16", "float16"):
        assert found[precision][0] > found["float32"][0] - 0.03
        assert found[precision][1] < 0.6 * found["float32"][1]
    assert "of unseen digits are right" in capsys.readouterr().out
