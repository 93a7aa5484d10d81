"""Propagated errors and sensitivities: what is known in closed form, and what is refused."""

import tracemalloc
from unittest import mock

import numpy as np
import pytest
import scipy.sparse

import numtape as nt
from numtape.errors import (
    ArgumentError,
    LeavesTapeError,
    NonFiniteError,
    NotDifferentiableError,
    OperandError,
    ShapeError,
)
from numtape.interop.scipy import curve_fit
from numtape.uncertainty import fisher_information, laplace, propagate, sensitivities


def raises(error, message, call):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


def covariance_of(size, seed=0):
    factor = np.random.default_rng(seed).normal(size=(size, size))
    return factor @ factor.T


def test_a_linear_function_is_propagated_exactly():
    matrix, covariance = np.random.default_rng(1).normal(size=(4, 3)), covariance_of(3)
    found = propagate(lambda x: matrix @ x, np.ones(3), covariance)
    np.testing.assert_allclose(found.value, matrix.sum(axis=1), rtol=1e-14)
    np.testing.assert_allclose(found.covariance, matrix @ covariance @ matrix.T, rtol=1e-13)
    np.testing.assert_allclose(found.errors, np.sqrt(np.diagonal(found.covariance)), rtol=1e-13)
    np.testing.assert_array_equal(found.covariance, found.covariance.T)


def test_relative_errors_of_a_product_add_up_in_squares():
    found = propagate(
        lambda p: p["a"] * p["b"] / p["c"], {"a": 2.0, "b": 3.0, "c": 4.0}, errors=dict(a=0.2, b=0.3, c=0.1)
    )
    assert found.value == 1.5
    assert found.errors == pytest.approx(1.5 * np.sqrt(0.1**2 + 0.1**2 + 0.025**2), rel=1e-14)
    assert str(found) == "value  1.5 +- 0.215"


def test_trees_come_back_as_trees_with_names():
    def polar(p):
        return {"r": nt.sqrt(p[0] ** 2 + p[1] ** 2), "angle": (nt.arctan2(p[1], p[0]), p * 2.0)}

    covariance = covariance_of(2)
    found = propagate(polar, np.array([3.0, 4.0]), covariance)
    assert found.names == ["r", "angle[0]", "angle[1][0]", "angle[1][1]"]
    slope = np.array([0.6, 0.8])
    assert found.errors["r"] == pytest.approx(np.sqrt(slope @ covariance @ slope), rel=1e-14)
    np.testing.assert_allclose(found.errors["angle"][1], 2.0 * np.sqrt(np.diagonal(covariance)), rtol=1e-14)
    assert found.jacobian.shape == (4, 2)


def test_a_fit_gives_a_confidence_band():
    x = np.linspace(0.0, 1.0, 30)
    y = 1.0 + 2.0 * x + 0.1 * np.random.default_rng(2).normal(size=30)
    fit = curve_fit(lambda x, p: p["a"] + p["b"] * x, x, y, {"a": 0.0, "b": 0.0})
    band = propagate(lambda p: p["a"] + p["b"] * x, fit.x, fit.covariance)
    design = np.stack([np.ones(30), x], axis=1)
    variance = float(np.sum((y - design @ fit.vector) ** 2)) / 28
    expected = np.sqrt(variance * np.sum(design @ np.linalg.inv(design.T @ design) * design, axis=1))
    np.testing.assert_allclose(band.errors, expected, rtol=1e-9)


def test_a_quantity_that_does_not_matter_and_one_without_error():
    found = propagate(lambda p: p["a"] * 3.0, {"a": 1.0, "b": 2.0}, errors={"a": 0.0, "b": 5.0})
    assert found.errors == 0.0


def test_errors_may_be_numbers_for_whole_parts():
    found = propagate(lambda p: p["a"].sum(), {"a": np.ones(4)}, errors={"a": 0.5})
    assert found.errors == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("error", "given", "message"),
    [
        (ArgumentError, {}, "propagate: give either covariance, a matrix, or errors, a tree of standard deviations."),
        (
            ShapeError,
            {"covariance": np.ones(2)},
            "propagate: covariance has shape (2,), and x has 2 elements; it must be of shape (2, 2). Standard "
            "deviations go to errors=.",
        ),
        (
            ArgumentError,
            {"covariance": np.array([[1.0, 2.0], [0.0, 1.0]])},
            "propagate: covariance must be symmetric, with variances that are not negative.",
        ),
        (
            ArgumentError,
            {"covariance": np.array([[1.0, -2.0], [-2.0, 1.0]])},
            "propagate: covariance must be positive semidefinite, but as correlations it has the eigenvalue -1.0e+00: "
            "some combination of the elements would have a negative variance.",
        ),
        (
            ArgumentError,
            {"covariance": np.full((2, 2), np.inf)},
            "propagate: covariance has an element that is not finite.",
        ),
        (
            ArgumentError,
            {"errors": np.array([1.0, -1.0])},
            "propagate: errors has an element that is not a standard deviation, zero or more.",
        ),
        (
            ShapeError,
            {"errors": np.ones(3)},
            "propagate: errors have shape (3,) for a part of x of shape (2,); they must be equal, or a number.",
        ),
        (
            ArgumentError,
            {"errors": {"a": 1.0}},
            "propagate: errors have another structure than x; tree: a dict stands where a leaf belongs.",
        ),
    ],
)
def test_what_is_no_covariance_is_refused(error, given, message):
    raises(error, message, lambda: propagate(lambda x: x.sum(), np.ones(2), **given))


def test_tracked_tensors_are_not_lost_quietly():
    w = nt.tensor(2.0, requires_grad=True)

    def scaled(x):
        return x * w

    raises(
        LeavesTapeError,
        "propagate: scaled depends on a tracked tensor besides x, whose gradient would be lost. Pass its detach(), or "
        "call propagate in nt.no_grad().",
        lambda: propagate(scaled, np.ones(2), np.eye(2)),
    )
    raises(
        OperandError,
        "propagate: covariance is a tracked tensor, but it is taken as a constant; pass its detach().",
        lambda: propagate(lambda x: x.sum(), np.ones(2), nt.tensor(np.eye(2), requires_grad=True)),
    )


def test_a_value_that_is_not_finite_is_refused():
    def inverse(x):
        return 1.0 / x

    with np.errstate(divide="ignore"):
        raises(
            NonFiniteError,
            "propagate: inverse is inf at x; choose a point where it is finite. nt.explain_nan of what it returns "
            "tells where that begins.",
            lambda: propagate(inverse, np.zeros(2), np.eye(2)),
        )


@pytest.mark.parametrize(("form", "size"), [("errors", 2), ("errors", 2000), ("covariance", 2)])
def test_an_infinite_derivative_is_refused_by_name(form, size):
    given = {"errors": np.full(size, 0.1)} if form == "errors" else {"covariance": 0.01 * np.eye(size)}
    x = np.full(size, 4.0)
    np.testing.assert_allclose(propagate(np.sqrt, x, **given).errors, np.full(size, 0.025))
    x[1] = 0.0
    raises(
        NonFiniteError,
        "propagate: the derivative of sqrt is inf for value[1] by x[1] at x; choose a point where it is finite, or "
        "make x[1] a constant.",
        lambda: propagate(np.sqrt, x, **given),
    )


def test_a_derivative_that_is_nan_is_refused_by_name():
    def norm(p):
        return {"r": nt.sqrt((p["x"] ** 2).sum())}

    raises(
        NonFiniteError,
        "propagate: the derivative of norm is nan for r by x[0] at x; choose a point where it is finite, or make x[0] "
        "a constant.",
        lambda: propagate(norm, {"x": np.zeros(2)}, errors={"x": 0.1}),
    )


def test_elasticities_of_a_power_law_are_its_exponents():
    found = sensitivities(lambda p: p["k"] * p["m"] ** 3 / p["v"] ** 0.5, {"k": 3.0, "m": 2.0, "v": 4.0})
    np.testing.assert_allclose(found.elasticities, [[1.0, 3.0, -0.5]], rtol=1e-14)
    np.testing.assert_allclose(found.derivatives, [[4.0, 18.0, -1.5]], rtol=1e-14)
    assert found.inputs == ["k", "m", "v"]
    assert str(found).splitlines() == [
        "result = 12",
        "  input         value    derivative     % per %",
        "  m                 2            18           3",
        "  k                 3             4           1",
        "  v                 4          -1.5        -0.5",
    ]


def test_sensitivities_of_several_results_have_a_table_each():
    found = sensitivities(lambda x: {"sum": x.sum(), "both": x * np.array([0.0, 2.0])}, [1.0, 3.0], names=["p", "q"])
    assert found.outputs == ["sum", "both[0]", "both[1]"]
    assert found.inputs == ["p", "q"]
    assert np.isnan(found.elasticities[1]).all()
    np.testing.assert_allclose(found.derivatives, [[1.0, 1.0], [0.0, 0.0], [0.0, 2.0]])
    assert str(found).count("derivative") == 3


def test_names_must_be_as_many_as_inputs():
    raises(
        ArgumentError,
        "sensitivities: 1 names were given for 2 inputs; give one for each.",
        lambda: sensitivities(lambda x: x.sum(), np.ones(2), names=["a"]),
    )


def product(p):
    b = float(p[1])
    return p[0] * b


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("propagate", lambda: propagate(product, np.ones(2), errors=np.ones(2))),
        ("sensitivities", lambda: sensitivities(product, np.ones(2))),
        ("fisher_information", lambda: fisher_information(product, np.ones(2), noise=1.0)),
        ("per_sample_gradients", lambda: fisher_information(lambda p, x: product(p) * x, np.ones(2), np.ones(3))),
    ],
)
def test_a_function_that_leaves_the_tape_in_part_names_the_line(name, call):
    with pytest.raises(NotDifferentiableError) as caught:
        call()
    message = str(caught.value)
    assert message.startswith(f"{name}: ")
    assert " left the tape by float() at " in message
    assert message.endswith(
        " (b = float(p[1])), so a part of its derivative would be lost. Compute with nt or np functions, and take "
        "detach() first of what is meant as a constant."
    )


TRACKED = nt.tensor(np.ones(2), requires_grad=True)


@pytest.mark.parametrize(
    ("name", "title", "call"),
    [
        ("propagate", "x", lambda x: propagate(lambda p: p.sum(), x, errors=np.ones(2))),
        ("sensitivities", "x", lambda x: sensitivities(lambda p: p["a"].sum(), {"a": x})),
        ("fisher_information", "parameters", lambda x: fisher_information(lambda p: p.sum(), x, noise=1.0)),
        ("fisher_information", "data", lambda x: fisher_information(lambda p, d: p.sum() * d, np.ones(2), x)),
    ],
)
def test_tracked_quantities_are_not_taken_for_constants_quietly(name, title, call):
    raises(
        OperandError,
        f"{name}: {title} has a tracked tensor, but it is taken as a constant; pass its detach(), or call {name} in "
        "nt.no_grad().",
        lambda: call(TRACKED),
    )
    call(TRACKED.detach())
    with nt.no_grad():
        call(TRACKED)


def test_a_module_stands_for_the_values_of_its_parameters():
    model = nt.nn.Linear(2, 1)
    found = fisher_information(lambda m: m(nt.tensor([[1.0, 2.0]])), model, noise=1.0)
    np.testing.assert_allclose(found, np.outer([1.0, 2.0, 1.0], [1.0, 2.0, 1.0]))


def test_a_matrix_that_is_no_covariance_is_refused_although_the_results_have_variances():
    for given in (np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([[0.0, 1e-3], [1e-3, 1e-6]])):
        with pytest.raises(ArgumentError, match=r"^propagate: covariance must be "):
            propagate(lambda x: x, np.ones(2), given)


def test_a_covariance_may_be_singular():
    direction = np.array([1e-6, 3.0, 0.0])
    found = propagate(lambda x: x[0] * 1e6 + x[1], np.ones(3), np.outer(direction, direction))
    assert found.errors == pytest.approx(4.0, rel=1e-12)


def test_a_sparse_covariance_is_a_matrix_too():
    matrix = covariance_of(2)
    sparse = propagate(lambda x: x.sum(), np.ones(2), scipy.sparse.csr_array(matrix))
    assert sparse.errors == propagate(lambda x: x.sum(), np.ones(2), matrix).errors


LOSING = {
    "propagate": lambda w: propagate(lambda x: x * w, np.ones(2), errors=np.ones(2)).errors,
    "sensitivities": lambda w: sensitivities(lambda x: x * w, np.ones(2)).derivatives,
    "fisher_information": lambda w: fisher_information(lambda x: x * w, np.ones(2), noise=1.0),
    "fisher_information of data": lambda w: fisher_information(
        lambda p, x: (p * w * x).sum(), np.ones(2), np.arange(6.0).reshape(3, 2)
    ),
    "laplace": lambda w: laplace(lambda x: -((x - w) ** 2).sum(), np.ones(2)).mode,
}


@pytest.mark.parametrize("kind", LOSING)
def test_what_an_open_tape_watches_on_first_use_is_not_lost_quietly(kind):
    name = kind.split()[0]
    with nt.Tape():
        w = nt.tensor(np.array([1.0, 2.0]))
        with pytest.raises(LeavesTapeError) as caught:
            LOSING[kind](w)
    assert str(caught.value).endswith(
        f"whose gradient would be lost. Pass its detach(), or call {name} in nt.no_grad()."
    )


@pytest.mark.parametrize("kind", LOSING)
def test_constants_stay_constants_in_open_tapes(kind):
    w = nt.tensor(np.array([1.0, 2.0]))
    call = LOSING[kind]
    found = [call(w)]
    with nt.GradientTape():
        found.append(call(w))
    with nt.Tape():
        found.append(call(w.detach()))
        with nt.no_grad():
            found.append(call(w))
    for each in found:
        np.testing.assert_array_equal(each, call(w.numpy()))


def test_tensors_made_inside_of_the_function_are_constants():
    with nt.Tape():
        found = propagate(lambda x: x * nt.tensor(2.0), np.ones(2), errors=np.ones(2))
    np.testing.assert_array_equal(found.errors, [2.0, 2.0])


@pytest.mark.parametrize(
    "call",
    [
        lambda w: propagate(lambda x: x, w, errors=np.ones(2)),
        lambda w: propagate(lambda x: x, np.ones(2), errors=w),
        lambda w: fisher_information(lambda x: x, np.ones(2), noise=w),
        lambda w: fisher_information(lambda p, x: p.sum() * x, np.ones(2), w),
    ],
)
def test_quantities_that_an_open_tape_watches_on_first_use_are_not_taken_for_constants(call):
    w = nt.tensor(np.array([1.0, 2.0]))
    with nt.Tape():
        with pytest.raises(OperandError, match="tracked tensor, but it is taken as a constant"):
            call(w)
        call(w.detach())


# Many quantities, of which each result depends on few.


def neighbours(x):
    return nt.concat([x[1:] * x[:-1], x[:1] * x[-1:]])


def test_errors_of_many_quantities_take_little_memory():
    x = np.linspace(0.1, 1.0, 20_000)
    tracemalloc.start()
    try:
        found = propagate(neighbours, x, errors=np.full(20_000, 0.1))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(found.errors, 0.1 * np.hypot(x, np.roll(x, -1)), rtol=1e-12)
    assert peak_bytes < 50e6


def test_a_sparse_jacobian_gives_what_a_dense_one_does():
    x, errors = np.linspace(0.1, 1.0, 1000), np.linspace(1.0, 2.0, 1000)
    sparse, dense = propagate(neighbours, x, errors=errors), propagate(neighbours, x, np.diag(errors**2))
    for name in ("value", "errors", "jacobian", "given", "covariance"):
        first, second = getattr(sparse, name), getattr(dense, name)
        assert type(first) is np.ndarray
        np.testing.assert_allclose(first, second, rtol=1e-13)
    assert str(sparse) == str(dense)


def test_many_quantities_with_a_full_jacobian():
    matrix = np.random.default_rng(3).normal(size=(1000, 1000))
    found = propagate(lambda x: matrix @ x, np.ones(1000), errors=np.full(1000, 0.5))
    np.testing.assert_allclose(found.errors, 0.5 * np.linalg.norm(matrix, axis=1), rtol=1e-12)


def test_many_quantities_do_not_need_scipy():
    errors = np.linspace(1.0, 2.0, 1000)
    expected = propagate(neighbours, np.ones(1000), errors=errors).errors
    with mock.patch("numtape.sparse.matrices._library", side_effect=ImportError):
        found = propagate(neighbours, np.ones(1000), errors=errors).errors
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize("x", [[1.0, 2.0], (1.0, 2.0), np.array([1.0, 2.0]), nt.tensor([1.0, 2.0], dtype="float64")])
@pytest.mark.parametrize("errors", [[0.1, 0.2], (0.1, 0.2), np.array([0.1, 0.2])])
def test_a_list_of_errors_is_an_array_as_a_list_of_quantities_is(x, errors):
    found = propagate(lambda x: x**2, x, errors=errors)
    np.testing.assert_allclose(found.errors, [0.2, 0.8], rtol=1e-14)


def test_a_list_of_errors_must_fit():
    raises(
        ShapeError,
        "propagate: errors have shape (3,) for a part of x of shape (2,); they must be equal, or a number.",
        lambda: propagate(lambda x: x**2, [1.0, 2.0], errors=[0.1, 0.2, 0.3]),
    )
    raises(
        ShapeError,
        "propagate: errors are a list that makes no array, for x of shape (2,); nested lists must have equal lengths "
        "at each depth.",
        lambda: propagate(lambda x: x**2, [1.0, 2.0], errors=[0.1, [0.2]]),
    )
