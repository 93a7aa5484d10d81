"""NIST's nonlinear regression problems: the certified parameters and standard deviations, from the second start."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "science" / "nist.py"


def load():
    before = list(sys.path)
    spec = importlib.util.spec_from_file_location("nist_problems", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["nist_problems"] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = before
    return module


nist = load()
PROBLEMS = nist.problems()


def test_all_27_problems_are_there():
    levels = [problem.level for problem in PROBLEMS]
    assert (levels.count("lower"), levels.count("average"), levels.count("higher")) == (8, 11, 8)
    assert {problem.name for problem in PROBLEMS} == set(nist.MODELS)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_models_and_data_give_the_certified_sum_of_squares(problem):
    residuals = nist.MODELS[problem.name](problem.predictors, *problem.certified) - problem.observed
    # Lanczos1 was made to 14 digits of 11-digit parameters: its residuals are the rounding of these.
    if problem.name != "Lanczos1":
        assert residuals @ residuals == pytest.approx(problem.residual_sum, rel=1e-7)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_the_certified_values_are_found_from_the_second_start(problem):
    fit = problem.fit(start=2)
    assert fit.success
    assert fit.names == [f"b{i + 1}" for i in range(len(problem.certified))]
    assert nist.digits(fit.x, problem.certified) >= 10
    if problem.name != "Lanczos1":
        assert nist.digits(fit.errors, problem.deviations) >= 10
    assert fit.degrees_of_freedom == len(problem.data) - len(problem.certified)
    np.testing.assert_array_equal(fit.vector, fit.x)
