"""Arguments that a function cannot use are refused by name, with what was given and what to give instead."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import (
    ArgumentError,
    AxisError,
    NotConnectedError,
    NumtapeError,
    OperandError,
    ShapeError,
    UnsupportedError,
)

X = nt.tensor(np.arange(12.0).reshape(3, 4))

REFUSED = [
    (
        lambda: nt.split(X, 2.9),
        OperandError,
        "split: indices_or_sections is 2.9; it must be a number of parts, or a list of indices to cut at, as integers.",
    ),
    (
        lambda: nt.split(X, [1.9]),
        OperandError,
        "split: indices_or_sections is [1.9]; it must be a number of parts, or a list of indices to cut at, as "
        "integers.",
    ),
    (
        lambda: nt.split(X, "2"),
        OperandError,
        "split: indices_or_sections is '2'; it must be a number of parts, or a list of indices to cut at, as integers.",
    ),
    (
        lambda: nt.split(X, None),
        OperandError,
        "split: indices_or_sections is None; it must be a number of parts, or a list of indices to cut at, as "
        "integers.",
    ),
    (
        lambda: np.split(X, 2.9),
        OperandError,
        "split: indices_or_sections is 2.9; it must be a number of parts, or a list of indices to cut at, as integers.",
    ),
    *(
        (
            lambda name=name, given=given: getattr(nt, name)(X, given),
            OperandError,
            f"{name}: normalized_shape is {given!r}; give the length of the last axis of x, or those of its last axes, "
            "as integers.",
        )
        for name in ("layer_norm", "rms_norm")
        for given in ("4", [4.9], 4.0, None)
    ),
    (
        lambda: nt.cross(X, 2.0),
        ShapeError,
        "cross: a has shape (3, 4) and b has shape (); both must have an axis of three elements.",
    ),
    (
        lambda: nt.average(X, axis=5, weights=np.ones(3)),
        AxisError,
        "average: axis 5 is out of bounds for array of dimension 2; x has shape (3, 4).",
    ),
    (
        lambda: nt.vecdot(X, X, axis=5),
        AxisError,
        "vecdot: axis 5 is out of bounds; a has shape (3, 4) and b has shape (3, 4).",
    ),
    (lambda: nt.glu(X, None), OperandError, "glu: axis is None; it must be an integer."),
    (lambda: nt.glu(X, 1.0), OperandError, "glu: axis is 1.0; it must be an integer."),
    (
        lambda: nt.adaptive_avg_pool1d(X, 2.5),
        ArgumentError,
        "adaptive_avg_pool1d: output_size is 2.5; it must be an integer or None, or 1 of them.",
    ),
    (
        lambda: nt.adaptive_avg_pool2d(X[None], 2.5),
        ArgumentError,
        "adaptive_avg_pool2d: output_size is 2.5; it must be an integer or None, or 2 of them.",
    ),
    (
        lambda: nt.quantile(X, "0.3"),
        OperandError,
        "quantile: q is '0.3'; it must be a number between 0 and 1, or several.",
    ),
    (
        lambda: nt.percentile(X, "30"),
        OperandError,
        "percentile: q is '30'; it must be a number between 0 and 100, or several.",
    ),
    (lambda: nt.pinv(X, "a"), OperandError, "pinv: rcond is 'a'; it must be a number, or one for each matrix."),
    (lambda: nt.norm(X, np.array([1, 2])), OperandError, "norm: ord is an array of shape (2,); it must be a number."),
    (lambda: nt.exp(X, ()), OperandError, "exp: out is a tuple of 0; give one tensor or array to write to."),
    (
        lambda: nt.tensor([1.0], require_grad=True),
        OperandError,
        "tensor: there is no argument 'require_grad'; the arguments are data, dtype, requires_grad, name, device.",
    ),
    (
        lambda: nt.eye(3, k=1),
        OperandError,
        "eye: there is no argument 'k'; the arguments are n, m, dtype, requires_grad, name, device.",
    ),
    (
        lambda: nt.rand_like(),
        OperandError,
        "rand_like: missing a required argument: 'other'; the arguments are other, dtype, requires_grad, name, rng, "
        "device.",
    ),
    # What Python or NumPy say, with the call.
    (
        lambda: nt.nll_loss(X, None),
        OperandError,
        "nll_loss: 'NoneType' object has no attribute 'shape'; it was given log_probs of shape (3, 4), target=None. "
        "help(nt.nll_loss) tells what it takes.",
    ),
    (
        lambda: nt.cross_entropy(X, nt.tensor([1, 2, 3]), -7),
        OperandError,
        "cross_entropy_loss: 'int' object has no attribute 'shape'; it was given logits of shape (3, 4), target of "
        "shape (3,), weight=-7. help(nt.cross_entropy_loss) tells what it takes.",
    ),
    (
        lambda: nt.average(X, weights="ab"),
        ArgumentError,
        "average: could not convert string to float: 'ab'; it was given x of shape (3, 4), weights='ab'. "
        "help(nt.average) tells what it takes.",
    ),
    (
        lambda: nt.trapezoid(X, dx=None),
        OperandError,
        "trapezoid: unsupported operand type(s) for *: 'NoneType' and 'float'; it was given y of shape (3, 4), "
        "dx=None. help(nt.trapezoid) tells what it takes.",
    ),
    (
        lambda: nt.sum(X, axis=10**30),
        ArgumentError,
        f"sum: Python int too large to convert to C long; it was given axis={10**30}, keepdims=False.",
    ),
    (
        lambda: np.sum(X, axis=10**30),
        ArgumentError,
        f"sum: Python int too large to convert to C long; it was given axis={10**30}, keepdims=False.",
    ),
    (
        lambda: nt.zeros(10**30),
        ArgumentError,
        f"zeros: Maximum allowed dimension exceeded; it was given shape=({10**30},). help(nt.zeros) tells what it "
        "takes.",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_a_refusal_names_the_function_what_was_given_and_the_repair(call, error, message):
    with pytest.raises(NumtapeError) as caught:
        call()
    assert type(caught.value) is error
    assert str(caught.value) == message


def filled(s):
    array = np.ones(3)
    array.fill(s)
    return array.sum()


@pytest.mark.parametrize(
    "function",
    [
        lambda s: np.sum(np.ones(3), initial=s),
        lambda s: np.prod(np.ones(3), initial=s),
        lambda s: np.max(np.ones(3), initial=s),
        lambda s: np.add.reduce(np.ones(3), initial=s),
        lambda s: np.nansum(np.ones(3), initial=s),
        lambda s: np.nanmax(np.ones(3), initial=s),
        lambda s: np.interp(-1.0, np.ones(3), np.ones(3), left=s),
        filled,
    ],
)
def test_a_number_that_numpy_takes_without_asking_is_found_when_nothing_else_is_differentiated(function):
    assert isinstance(function(nt.tensor(2.0, requires_grad=True)), float)
    with pytest.raises(NotConnectedError, match=r"a tracked tensor left the tape by float\(\) at "):
        nt.grad(function)(2.0)


def test_an_initial_value_beside_a_tensor_does_not_leave_unnoticed():
    s = nt.tensor(2.0, requires_grad=True)
    with pytest.raises(UnsupportedError, match=r"^np\.sum: "):
        np.sum(nt.ones(3), initial=s)
