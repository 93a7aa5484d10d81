"""The examples from science run, recover the truth that they were made from, and draw it."""

import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import numtape as nt

FOLDER = Path(__file__).parents[1] / "examples"
NAMES = ["bundle_adjustment", "confidence_bands", "hamiltonian_monte_carlo", "lotka_volterra", "tomography"]


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name, **settings):
    return example(name).main(**settings)


def is_picture(path):
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 20_000


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_a_script_with_a_docstring_defaults_and_a_plot(name):
    module = example(name)
    assert module.__doc__
    assert inspect.getdoc(module.main)
    parameters = inspect.signature(module.main).parameters
    assert all(p.default is not p.empty for p in parameters.values())
    assert parameters["plot"].default is None
    assert (FOLDER / f"{name}.py").read_text().endswith("    main(**vars(parser.parse_args()))\n")


def test_an_example_runs_as_a_script_and_saves_its_plot(tmp_path):
    script, picture = FOLDER / "bundle_adjustment.py", tmp_path / "bundle.png"
    command = [sys.executable, "-W", "error", script, "--plot", picture]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("1458 residuals, 408 unknowns; 2.0% of the Jacobian is not zero\n")
    assert done.stderr == ""
    assert is_picture(picture)


def test_hamiltonian_monte_carlo_finds_the_boundary(capsys, tmp_path):
    found = run("hamiltonian_monte_carlo", draws=250, plot=str(tmp_path / "plot.png"))
    assert 0.7 < found["acceptance"] < 0.95
    assert found["r_hat"] < 1.02
    assert found["effective"] > 400
    assert found["covered"] >= 5
    assert found["distance"] < 2.0
    assert found["misplaced"] < 0.03
    assert "of the proposals accepted" in capsys.readouterr().out
    assert is_picture(tmp_path / "plot.png")


def test_hamiltonian_monte_carlo_samples_a_gaussian_of_uneven_scales():
    covariance = np.array([[4.0, 0.3], [0.3, 0.04]])
    precision = np.linalg.inv(covariance)

    def log_density(q):
        apart = q - np.array([3.0, -1.0])
        return -0.5 * ((apart @ precision) * apart).sum(axis=1)

    draws, acceptance = example("hamiltonian_monte_carlo").sample(log_density, np.zeros((8, 2)), 300, 500, seed=1)
    every = draws.reshape(-1, 2)
    assert draws.shape == (500, 8, 2)
    assert 0.7 < acceptance < 0.95
    np.testing.assert_allclose(every.mean(axis=0), [3.0, -1.0], atol=0.15)
    np.testing.assert_allclose(np.cov(every.T), covariance, rtol=0.1)


def test_hamiltonian_monte_carlo_has_a_sampler_of_forty_lines():
    assert len(inspect.getsource(example("hamiltonian_monte_carlo").sample).splitlines()) <= 40


def test_hamiltonian_monte_carlo_sees_chains_that_disagree_or_stand_still():
    diagnose = example("hamiltonian_monte_carlo").diagnose
    noise = np.random.default_rng(0).standard_normal((400, 4, 1))
    r_hat, effective = diagnose(noise)
    assert r_hat[0] == pytest.approx(1.0, abs=0.01)
    assert 1000 < effective[0] < 2400
    assert diagnose(noise + np.arange(4.0)[:, None])[0][0] > 1.4
    # Sums of noise move slowly: few draws count.
    assert diagnose(np.cumsum(noise, axis=0))[1][0] < 40


def test_tomography_beats_least_squares(capsys, tmp_path):
    found = run("tomography", plot=str(tmp_path / "plot.png"))
    assert found["error"] < 0.11
    assert found["plain_error"] > 2.0 * found["error"]
    assert 0.6 < found["misfit"] < 1.0
    assert "9216 pixels from 2880 rays" in capsys.readouterr().out
    assert is_picture(tmp_path / "plot.png")


def test_tomography_has_rays_that_keep_the_mass_and_gradients_that_are_right():
    module = example("tomography")
    rays = module.ray_matrix(32, 7)
    image = module.phantom(32)
    # Every angle sees all of the image; a step along a ray is half a pixel.
    np.testing.assert_allclose((rays @ image.ravel()).reshape(7, 32).sum(axis=1), image.sum(), rtol=0.02)
    assert nt.check_gradients(module.total_variation, module.phantom(8)).is_valid


def test_bundle_adjustment_leaves_nothing_but_noise(capsys):
    found = run("bundle_adjustment", cameras=6, points=60)
    assert found["pixels"] == pytest.approx(found["expected"], rel=0.06)
    assert found["error"] < 0.03 * found["first_error"]
    assert found["steps"] < 10
    assert "of the Jacobian is not zero" in capsys.readouterr().out


def test_bundle_adjustment_without_noise_finds_the_points_exactly():
    found = run("bundle_adjustment", cameras=5, points=40, noise=0.0)
    assert found["pixels"] < 1e-6
    assert found["error"] < 1e-8


def test_bundle_adjustment_turns_as_rotations_do_and_has_a_derivative_without_rotation():
    project = example("bundle_adjustment").project
    # A quarter turn about the third axis.
    seen = project(np.array([[0.0, 0.0, np.pi / 2, 0.0, 0.0, 2.0]]), np.array([[1.0, 0.5, 0.0]]))
    np.testing.assert_allclose(seen, [[-0.25, 0.5]], atol=1e-15)
    place = np.array([[1.0, 0.5, 0.0]])
    slope = nt.jacobian(lambda pose: project(pose, place))(np.array([[0.0, 0.0, 0.0, 0.0, 0.0, 2.0]]))
    # By a small turn w a point p moves by the cross product of w and p.
    np.testing.assert_allclose(slope[0, :, 0, :3], [[-0.125, 0.25, -0.25], [-0.0625, 0.125, 0.5]], atol=1e-9)


def test_bundle_adjustment_aligns_what_was_moved_turned_and_scaled():
    truth = np.random.default_rng(0).standard_normal((10, 3))
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    turn *= np.linalg.det(turn)
    moved = 0.3 * truth @ turn + np.array([1.0, -2.0, 5.0])
    np.testing.assert_allclose(example("bundle_adjustment").aligned(moved, truth), truth, atol=1e-12)


def test_confidence_bands_hold_what_they_promise(capsys, tmp_path):
    found = run("confidence_bands", plot=str(tmp_path / "plot.png"))
    assert 0.92 < found["coverage"] < 0.98
    assert found["worst"] < 2.5
    assert abs(found["dose"] - 11.84) < 2.0 * found["dose_error"]
    assert "the 95% band holds the curve" in capsys.readouterr().out
    assert is_picture(tmp_path / "plot.png")


def test_confidence_bands_have_a_dose_that_has_its_effect():
    module = example("confidence_bands")
    dose = module.dose_for(0.9, module.TRUTH)
    assert module.response(dose, module.TRUTH) == pytest.approx(0.1 + 0.9 * 1.9, rel=1e-14)


def test_lotka_volterra_finds_six_unknowns(capsys, tmp_path):
    found = run("lotka_volterra", plot=str(tmp_path / "plot.png"))
    assert found["error"] < 0.06
    assert found["worst"] < 2.0
    assert 0.7 < found["residual"] < 1.1
    assert "first 21 counts" in capsys.readouterr().out
    assert is_picture(tmp_path / "plot.png")


def test_lotka_volterra_goes_round_on_a_curve_that_does_not_drift():
    # What Lotka and Volterra leave unchanged: together * animals - alone * log(animals), summed over both.
    module = example("lotka_volterra")
    animals = module.populations(module.TRUTH, np.linspace(0.0, 20.0, 9))
    (births, deaths), (hunting, feeding) = module.TRUTH["alone"], module.TRUTH["together"]
    hares, lynxes = np.asarray(animals).T
    kept = feeding * hares - deaths * np.log(hares) + hunting * lynxes - births * np.log(lynxes)
    np.testing.assert_allclose(kept, kept[0], rtol=1e-5)


def test_lotka_volterra_has_one_gradient_by_the_steps_and_by_the_adjoint():
    module = example("lotka_volterra")
    times = np.arange(6.0)

    def total(p, **settings):
        return nt.log(module.odeint(module.change, p["start"], times, p, rtol=1e-9, **settings)).sum()

    steps = nt.grad(total)(module.TRUTH)
    for kind, tolerance in (("checkpointed", 1e-12), ("adjoint", 1e-6)):
        other = nt.grad(lambda p, kind=kind: total(p, gradient=kind))(module.TRUTH)
        for name in module.TRUTH:
            np.testing.assert_allclose(other[name], steps[name], rtol=tolerance)
