"""`nt.sparsity`: a pattern for many points, and the error that says that it does not hold."""

import pickle

import numpy as np
import pytest
from programs import assert_same

import numtape as nt
from numtape.core.facts import Structure
from numtape.errors import NotDifferentiableError, OperandError, PatternError

x = np.linspace(1.0, 2.0, 6)
ADVICE = "Make a new one with nt.sparsity, or use nt.jacobian(f, sparse=True), which finds the pattern of each graph."


def test_a_pattern_tells_what_it_is():
    pattern = nt.sparsity(lambda x: x[1:] * x[:-1], np.zeros(100))
    assert (pattern.shape, pattern.nnz, pattern.colours) == ((99, 100), 198, 2)
    assert pattern.matrix.dtype == bool
    assert str(pattern) == "Jacobian of shape (99, 100), 198 entries (2.00%): 2 tangents by columns"
    assert repr(pattern) == f"<Sparsity of <lambda>: {pattern}>"


def test_a_hessian_joins_once_it_was_asked_for():
    def function(x):
        return (x[1:] * x[:-1] ** 2).sum()

    pattern = nt.sparsity(function, x)
    assert_same(pattern.hessian(x), nt.hessian(function)(x))
    assert_same(pattern.hessian(-x), nt.hessian(function)(-x))
    assert str(pattern) == (
        "Jacobian of shape (1, 6), 6 entries (100.00%): 1 cotangent by rows\n"
        "Hessian of shape (6, 6), 15 entries (41.67%): 3 tangents by columns"
    )


def test_it_is_found_once_and_used_at_many_points(monkeypatch):
    from numtape.sparse import derivatives

    calls = []
    find = derivatives.find_pattern
    monkeypatch.setattr(derivatives, "find_pattern", lambda path: calls.append(path) or find(path))

    def function(x, scale):
        return np.sin(x[1:]) * x[:-1] * scale

    pattern = nt.sparsity(function, x, scale=1.0)
    for k in range(5):
        assert_same(pattern.jacobian(x + k, scale=2.0), nt.jacobian(function)(x + k, 2.0))
    jacobian = nt.jacobian(function, sparse=True)
    jacobian(x, 1.0)
    jacobian(x + 1.0, 3.0)
    assert len(calls) == 2


def test_a_branch_that_couples_more_raises_and_names_the_line():
    def function(x):
        if x[0].item() > 0.0:
            return x * x
        return x * x.sum()

    pattern = nt.sparsity(function, x)
    with pytest.raises(PatternError) as error:
        pattern.jacobian(-x)
    line = function.__code__.co_firstlineno + 3
    assert str(error.value) == (
        f"Sparsity.jacobian: the sparsity pattern no longer holds: sum ran in place of mul at {__file__}:{line} "
        "(return x * x.sum()), and 30 entries of the Jacobian lie outside of it, the first in row 0, column 1. "
        + ADVICE
    )
    assert_same(pattern.jacobian(x), np.diag(2.0 * x))


def test_a_branch_within_the_pattern_is_no_error():
    def function(x):
        return x * x.sum() if x[0].item() > 0.0 else x * x

    pattern = nt.sparsity(function, x)
    assert_same(pattern.jacobian(-x), np.diag(-2.0 * x))
    assert_same(pattern.jacobian(x), nt.jacobian(function)(x))


def test_indices_that_follow_the_values_raise():
    def function(x):
        return x[np.argsort(x.detach().numpy())] * 2.0

    pattern = nt.sparsity(function, x)
    with pytest.raises(PatternError, match="getitem has other parameters, other indices, or a constant with other"):
        pattern.jacobian(x[::-1].copy())


def test_indices_that_were_written_since_are_noticed():
    index = np.array([0, 1, 2])
    pattern = nt.sparsity(lambda x: x[index], x)
    index[:] = [3, 4, 5]
    with pytest.raises(PatternError, match="3 entries of the Jacobian lie outside of it, the first in row 0, column 3"):
        pattern.jacobian(x)


def test_zeros_of_a_constant_that_are_gone_raise_and_new_ones_do_not():
    matrices = [np.eye(6) + np.eye(6, k=1)]
    pattern = nt.sparsity(lambda x: matrices[0] @ x, x)
    matrices[0] = np.eye(6)
    assert_same(pattern.jacobian(x), np.eye(6))
    matrices[0] = np.eye(6) + np.eye(6, k=2)
    with pytest.raises(PatternError, match="matmul has other parameters, other indices, or a constant with other zer"):
        pattern.jacobian(x)


def test_another_shape_raises():
    pattern = nt.sparsity(lambda x: x * 2.0, x)
    with pytest.raises(PatternError) as error:
        pattern.jacobian(np.ones(7))
    assert str(error.value) == (
        "Sparsity.jacobian: the pattern is of a Jacobian of shape (6, 6), and this one has shape (7, 7). " + ADVICE
    )


def test_a_hessian_that_couples_more_raises():
    pattern = nt.sparsity(lambda x: (x**2).sum() if x[0].item() > 0.0 else x.prod(), x)
    pattern.hessian(x)
    with pytest.raises(PatternError, match=r"Sparsity.hessian: .* 30 entries of the Hessian lie outside of it"):
        pattern.hessian(-x)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_a_structure_that_lies_is_found_by_the_random_direction(mode):
    @nt.custom_op(vjp={"x": lambda g: nt.flip(nt.cumsum(nt.flip(g)))}, jvp={"x": lambda t: nt.cumsum(t)}, check=False)
    def sums(x, /):
        return np.cumsum(x)

    assert_same(nt.jacobian(sums, sparse=True)(x), np.tril(np.ones((6, 6))))
    sums.op.facts = sums.op.facts._replace(structure=Structure.ELEMENTWISE)
    with pytest.raises(PatternError) as error:
        nt.jacobian(sums, sparse=True, mode=mode)(x)
    assert str(error.value) == (
        "jacobian: the derivative of output element 1 by input element 0 is 1, but the sparsity pattern says that it "
        "is zero. Some op on the way has a `structure` that its derivative does not keep to; correct that of your "
        "custom ops, or use sparse=False."
    )


def test_cancellation_is_not_taken_for_a_missing_entry():
    def function(x):
        return (x * 1e14 + x[::-1]) - x * 1e14

    nt.sparsity(function, x).jacobian(x)


def test_arguments_by_number_and_trees():
    def function(p, y):
        return {"u": p["a"] * y[:3], "v": p["b"]}

    pattern = nt.sparsity(function, {"a": x[:3], "b": x[3:]}, x, argnums=(0, 1))
    assert pattern.shape == (6, 12)
    found = pattern.jacobian({"a": x[:3], "b": x[3:]}, x)
    assert_same(found["u"][1], np.eye(3, 6) * x[:3, None])


def test_a_value_in_place_of_a_function():
    with pytest.raises(OperandError) as error:
        nt.sparsity(x, x)
    assert str(error.value) == (
        "sparsity: wants a function, not ndarray; nt.sparsity differentiates functions, and backward() a loss that is "
        "computed already."
    )


def doubled(v):
    values = v.numpy()
    return nt.tensor(values) * 2.0


def weighted(v):
    b = float(v[1])
    assert v[0].item() == 1.0
    return v[0] ** 2 * b


@pytest.mark.parametrize(
    ("start", "line", "call"),
    [
        (
            "jacobian: doubled left the tape by numpy()",
            "values = v.numpy()",
            lambda: nt.jacobian(doubled, sparse=True)(np.ones(2)),
        ),
        ("sparsity: doubled left the tape by numpy()", "values = v.numpy()", lambda: nt.sparsity(doubled, np.ones(2))),
        (
            "hessian: weighted left the tape by float()",
            "b = float(v[1])",
            lambda: nt.hessian(weighted, sparse=True)(np.ones(2)),
        ),
    ],
)
def test_a_function_that_leaves_the_tape_names_the_line(start, line, call):
    with pytest.raises(NotDifferentiableError) as error:
        call()
    message = str(error.value)
    assert message.startswith(f"{start} at ")
    assert message.endswith(
        f" ({line}), so a part of its derivative would be lost. Compute with nt or np functions, and take detach() "
        "first of what is meant as a constant."
    )


def differences_of_squares(x):
    return x[1:] - x[:-1] ** 2


def test_a_pattern_can_be_pickled_and_still_holds_where_it_does():
    pattern = nt.sparsity(differences_of_squares, np.zeros(5))
    again = pickle.loads(pickle.dumps(pattern))
    assert str(again) == str(pattern)
    x = np.arange(5.0)
    np.testing.assert_array_equal(again.jacobian(x).toarray(), pattern.jacobian(x).toarray())
    with pytest.raises(PatternError):
        again.jacobian(np.zeros(6))
