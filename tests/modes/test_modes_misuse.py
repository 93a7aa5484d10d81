"""Bad input of derivative modes: a message that names the function, the argument and the repair."""

import math
import re

import numpy as np
import pytest

import numtape as nt
from numtape.errors import (
    ArgumentError,
    DtypeError,
    LeavesTapeError,
    NotConnectedError,
    OperandError,
    ShapeError,
)
from numtape.lifted import BatchedTensor


def float32_tensor():
    return nt.tensor([1.0, 2.0], requires_grad=True)


def forward_gradient_of_a_list(tangent):
    tape = nt.GradientTape()
    x = tape.watch(nt.ones(2))
    return tape.forward_gradient([x], x * x, tangent)


BAD = {
    "a tangent of another shape": (
        lambda: nt.jvp(lambda x: x, np.ones(3), np.ones(2)),
        ShapeError,
        "jvp: tangent 0 of <lambda> has shape (2,) and its argument (3,); they must be equal.",
    ),
    "a complex tangent": (
        lambda: nt.jvp(lambda x: x, np.ones(2), np.ones(2, complex)),
        OperandError,
        "jvp: tangent 0 of <lambda> is a ndarray (complex128); it must be real numbers.",
    ),
    "a tangent of bools": (
        lambda: nt.jvp(lambda x: x, nt.ones(2), nt.tensor([True, False])),
        DtypeError,
        "jvp: tangent 0 of <lambda> has dtype bool; use astype(float32).",
    ),
    "a tangent of text": (
        lambda: nt.jvp(lambda x: x, np.ones(2), "up"),
        OperandError,
        "jvp: tangent 0 of <lambda> is a str (<U2); it must be real numbers.",
    ),
    "a tangent inside of a tree": (
        lambda: nt.jvp(
            lambda p, x: p["w"] * x + p["b"],
            ({"w": np.ones(2), "b": np.ones(2)}, np.ones(2)),
            ({"w": np.ones(2), "b": np.ones(3)}, np.ones(2)),
        ),
        ShapeError,
        "jvp: tangent 0['b'] of <lambda> has shape (3,) and its argument (2,); they must be equal.",
    ),
    "a cotangent inside of a tree": (
        lambda: nt.vjp(lambda x: {"a": x, "b": [x, x]}, np.ones(2))[1](
            {"a": np.ones(2), "b": [np.ones(2), np.ones(1)]}
        ),
        ShapeError,
        "vjp: cotangent ['b'][1] of <lambda> has shape (1,) and its output (2,); they must be equal.",
    ),
    "an integer inside of a tree": (
        lambda: nt.grad(lambda x, p: (p["w"] * p["n"] * x).sum(), 1)(2.0, {"w": np.ones(2), "n": np.arange(2)}),
        DtypeError,
        "grad: argument 1['n'] has dtype int64, which has no derivative; use astype(float).",
    ),
    "one tangent for a list of sources": (
        lambda: forward_gradient_of_a_list(1.0),
        ArgumentError,
        "forward_gradient: 1 sources and the tangent 1.0 were given; give a list of tangents, one for each source.",
    ),
    "too few tangents": (
        lambda: nt.jvp(lambda x, y: x * y, (1.0, 2.0), (1.0,)),
        ArgumentError,
        "jvp: <lambda> has 2 arguments, but 1 tangents were given; give one for each argument.",
    ),
    "a tangent of another float": (
        lambda: nt.jvp(lambda x: x, np.ones(2, np.float32), np.ones(2)),
        DtypeError,
        "jvp: tangent 0 of <lambda> has dtype float64 and its argument float32; use astype(float32).",
    ),
    "a function that returns None": (
        lambda: nt.jvp(lambda x: None, 1.0, 1.0),
        OperandError,
        "jvp: <lambda> returned None; it must return a tensor or a tree of them.",
    ),
    "an array computed beside the tape": (
        lambda: nt.grad(lambda x: (x.numpy() ** 2).sum())(np.ones(2)),
        NotConnectedError,
        None,
    ),
    "elementwise_grad by one argument twice": (
        lambda: nt.elementwise_grad(lambda x, y: x * y, (0, 0))(np.ones(2), np.ones(2)),
        ArgumentError,
        "elementwise_grad: argnums is (0, 0); each argument may be named once.",
    ),
    "elementwise_grad of a pair": (
        lambda: nt.elementwise_grad(lambda x: (x, x))(np.ones(2)),
        OperandError,
        "elementwise_grad: <lambda> returned tuple; it must return a tensor.",
    ),
    "hvp of a vector": (
        lambda: nt.hvp(lambda x: x, np.ones(2), np.ones(2)),
        ShapeError,
        "hvp: <lambda> returned shape (2,); a gradient is of a scalar. Use sum(), or nt.vjp for other cotangents.",
    ),
    "an integer argument of jvp": (
        lambda: nt.jvp(lambda x: x, np.array([1, 2]), np.ones(2)),
        DtypeError,
        "jvp: argument 0 has dtype int64, which has no derivative; use astype(float).",
    ),
    "a function that returns text": (
        lambda: nt.jacobian(lambda x: "text")(np.ones(2)),
        OperandError,
        "jacobian: <lambda> returned str; it must return a tensor.",
    ),
    "a function that returns integers": (
        lambda: nt.jacobian(lambda x: nt.argmax(x))(np.ones(2)),
        DtypeError,
        "jacobian: <lambda> returned a tensor of int64, which has no derivative; it must return floats.",
    ),
    "jvp without a function": (
        lambda: nt.jvp(np.ones(2), np.ones(2), np.ones(2)),
        OperandError,
        "jvp: wants a function, not ndarray; nt.jvp differentiates functions, and backward() a loss that is computed "
        "already.",
    ),
    "an unknown mode": (
        lambda: nt.jacobian(lambda x: x, mode="sideways"),
        ArgumentError,
        "jacobian: mode is 'sideways'; it must be one of 'auto', 'forward', 'reverse', 'mixed'.",
    ),
    "a chunk of nothing": (
        lambda: nt.jacobian(lambda x: x, chunk_size=0),
        ArgumentError,
        "jacobian: chunk_size is 0; it must be a positive integer, or None.",
    ),
    "a config in the place of a scheduler": (
        lambda: nt.hessian(lambda x: x, scheduler=nt.SchedulerConfig()),
        OperandError,
        "hessian: scheduler is a SchedulerConfig; it must be a HybridScheduler.",
    ),
    "a mode and a scheduler": (
        lambda: nt.jacobian(lambda x: x, mode="forward", scheduler=nt.HybridScheduler()),
        ArgumentError,
        "jacobian: give either mode or scheduler; a scheduler's mode is set by its SchedulerConfig.",
    ),
    "a Hessian of a vector": (
        lambda: nt.hessian(lambda x: x * x)(np.ones(2)),
        ShapeError,
        "hessian: <lambda> returned shape (2,); a Hessian is of a scalar. Use sum(), or nt.jacobian(nt.jacobian(f)) "
        "for all second derivatives.",
    ),
    "elementwise_grad of a function that is not elementwise": (
        lambda: nt.elementwise_grad(lambda x: x.sum())(np.ones(2)),
        ShapeError,
        "elementwise_grad: <lambda> takes shape (2,) to (); an elementwise function keeps the shape. Use nt.jacobian.",
    ),
    "a gradient that is lost": (
        lambda: nt.jvp(lambda x: nt.tensor(math.sin(x)), 1.0, 1.0),
        NotConnectedError,
        None,
    ),
    "a gradient that is lost before a look": (
        lambda: nt.grad(lambda x: (nt.tensor(math.sin(x)), x.item())[0])(1.0),
        NotConnectedError,
        "grad: <lambda> returned a constant, and a tracked tensor left the tape by float() at FILE (LINE), so its "
        "gradient would be lost. Use nt functions instead of math, nt.stack instead of filling an array, and take "
        "item() if a constant is meant.",
    ),
    "a number beside a tensor": (
        lambda: nt.jvp(lambda x: {"a": x * 2.0, "b": math.sin(x)}, 1.0, 1.0),
        NotConnectedError,
        "jvp: <lambda> returned a constant as output 1, and a tracked tensor left the tape by float() at FILE (LINE), "
        "so its gradient would be lost. Use nt functions instead of math, nt.stack instead of filling an array, and "
        "return a tensor if a constant is meant.",
    ),
    "an array beside a tensor": (
        lambda: nt.jacobian(lambda x: (x * 2.0, x.numpy() ** 2))(np.ones(2)),
        NotConnectedError,
        "jacobian: <lambda> returned a constant as output 1, and a tracked tensor left the tape by numpy() at FILE "
        "(LINE), so its gradient would be lost. Use nt functions instead of math, nt.stack instead of filling an "
        "array, and return a tensor if a constant is meant.",
    ),
    "a tensor of a number beside a tensor": (
        lambda: nt.vjp(lambda x: (x * 2.0, nt.tensor(math.sin(x))), 1.0),
        NotConnectedError,
        "vjp: <lambda> returned a constant as output 1, and a tracked tensor left the tape by float() at FILE (LINE), "
        "so its gradient would be lost. Use nt functions instead of math, nt.stack instead of filling an array, and "
        "take item() if a constant is meant.",
    ),
    "a function that returns a complex number": (
        lambda: nt.jvp(lambda x: np.complex128(1 + 2j), 1.0, 1.0),
        DtypeError,
        "jvp: <lambda> returned complex128, but numtape computes with real numbers; return real and imaginary parts as "
        "two outputs.",
    ),
    "a function that returns a complex array": (
        lambda: nt.grad(lambda x: np.array(1j))(1.0),
        DtypeError,
        "grad: <lambda> returned complex128, but numtape computes with real numbers; return real and imaginary parts "
        "as two outputs.",
    ),
    "a function that returns an array of text": (
        lambda: nt.jvp(lambda x: np.array(["a"]), 1.0, 1.0),
        DtypeError,
        "jvp: <lambda> returned an array of <U1; it must return floats.",
    ),
    "hvp without tangents": (
        lambda: nt.hvp(lambda x, y: (x * y).sum(), (np.ones(2), np.ones(2)), None),
        ArgumentError,
        "hvp: <lambda> has 2 arguments, but 0 tangents were given; give one for each argument.",
    ),
    "a list of primals": (
        lambda: nt.jvp(lambda x, y: x * y, [1.0, 2.0], [1.0, 2.0]),
        ArgumentError,
        "jvp: primals is a list, which is one argument, but <lambda> takes 2; give a tuple of arguments.",
    ),
    "a jacobian by None": (
        lambda: nt.jacobian(lambda x: x)(None),
        OperandError,
        "jacobian: argument 0 is None; there is nothing to differentiate by.",
    ),
    "a masked array": (
        lambda: nt.grad(lambda x: x.sum())(np.ma.masked_array([1.0, 2.0], [False, True])),
        OperandError,
        "grad: argument 0 is a masked array, whose mask would be ignored; pass x.filled(...), and choose elements with "
        "nt.where.",
    ),
    "jvp by an argument that is not there": (
        lambda: nt.jvp(lambda x: x, 1.0, 1.0, argnums=1),
        ArgumentError,
        "jvp: argnums has 1, but the function got 1 positional arguments; argnums counts these, from 0 on.",
    ),
    "jvp with has_aux by position": (
        lambda: nt.jvp(lambda x: (x, x), 1.0, 1.0, True),
        ArgumentError,
        "jvp: argnums is True; it must be an integer or a tuple of integers. The function's arguments go to the "
        "result: nt.jvp(f)(x).",
    ),
    "a jacobian by an unconnected source": (
        lambda: nt.Tape().jacobian(float32_tensor() * 2.0, float32_tensor()),
        NotConnectedError,
        "jacobian: the target does not depend on tensor[2]; watch it before it is used, and compute with nt or np "
        "functions outside of no_grad.",
    ),
    "a forward gradient by an array": (
        lambda: nt.Tape().forward_gradient(np.ones(2), float32_tensor() * 2.0),
        OperandError,
        "forward_gradient: source must be a tensor or an iterable of tensors, but ndarray was given.",
    ),
    "thresholds the wrong way round": (
        lambda: nt.SchedulerConfig(forward_mode_threshold=0.1, reverse_mode_threshold=10.0),
        ArgumentError,
        "SchedulerConfig: reverse_mode_threshold is 10.0 and forward_mode_threshold 0.1; the ratio of outputs to "
        "inputs for reverse mode must be the lower one.",
    ),
    "an unknown strategy": (
        lambda: nt.SchedulerConfig(strategy="best"),
        ArgumentError,
        "SchedulerConfig: strategy is 'best'; it must be one of 'auto', 'forward', 'reverse', 'mixed'.",
    ),
    "a threshold of zero": (
        lambda: nt.SchedulerConfig(forward_mode_threshold=0),
        ArgumentError,
        "SchedulerConfig: forward_mode_threshold is 0; it must be a positive number.",
    ),
    "a scheduler of a string": (
        lambda: nt.HybridScheduler("auto"),
        OperandError,
        "HybridScheduler: wants a SchedulerConfig, not str.",
    ),
    "a batch that leaves the tape": (
        lambda: BatchedTensor.of(np.ones((2, 3))).item(),
        LeavesTapeError,
        "item(): this tensor stands for a batch of values while a derivative is computed, so it has no single value; "
        "compute with nt or np functions, or take the derivative in another mode.",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_says_what_to_do(case):
    call, kind, message = BAD[case]
    with pytest.raises(kind) as caught:
        call()
    if message is not None:
        assert re.sub(r" at \S+:\d+ \(.*\), so its", " at FILE (LINE), so its", str(caught.value)) == message


def test_constants_among_outputs_are_zero_where_nothing_left_the_tape():
    _, slopes = nt.jvp(lambda x: (x * 2.0, 3.0, np.ones(2), nt.zeros(2)), 1.0, 1.0)
    assert slopes[:2] == (2.0, 0.0)
    # And by the user's will, as tensors.
    assert nt.jvp(lambda x: (x * 2.0, nt.tensor(x.item())), 1.0, 1.0)[1] == (2.0, 0.0)


MASKED = np.ma.array([1.0, 1.0], mask=[False, True])


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: nt.jvp(nt.sin, np.ones(2), MASKED), "jvp: tangent 0 of sin"),
        (lambda: nt.vjp(nt.sin, np.ones(2))[1](MASKED), "vjp: cotangent 0 of sin"),
        (lambda: nt.hvp(lambda x: nt.sin(x).sum(), np.ones(2), MASKED), "hvp: tangent 0 of <lambda>"),
        (lambda: nt.derivatives(nt.sin, np.ma.array(1.0, mask=True), 1), "derivatives: x"),
        (lambda: nt.sin(nt.ones(2, requires_grad=True)).backward(MASKED), "backward: the gradient given"),
    ],
)
def test_masks_of_tangents_and_cotangents_are_not_ignored(call, what):
    with pytest.raises(nt.errors.OperandError) as caught:
        call()
    assert str(caught.value) == (
        f"{what} is a masked array, whose mask would be ignored; pass x.filled(...), and choose elements with nt.where."
    )


def test_masks_given_to_a_tape():
    with nt.Tape(persistent=True) as tape:
        x = tape.watch(nt.ones(2))
        y = nt.sin(x)
    for call in (
        lambda: tape.gradient(y, x, output_gradients=MASKED),
        lambda: tape.forward_gradient(x, y, MASKED),
        lambda: tape.backward(y, MASKED),
    ):
        with pytest.raises(nt.errors.OperandError, match="whose mask would be ignored"):
            call()
    with pytest.raises(nt.errors.OperandError, match=r"not ndarray \(bool\)"):
        tape.gradient(y, x, output_gradients=np.array([True, False]))


def test_a_source_of_integers_is_named():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(nt.errors.DtypeError) as caught:
        nt.Tape().jacobian(x * 2.0, nt.tensor([1, 2]))
    assert str(caught.value) == (
        "jacobian: the source is a tensor of int64, which has no derivative; compute with its astype(nt.float32), and "
        "watch that."
    )


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse", "mixed"])
def test_sparse_derivatives_of_what_is_not_linear_name_the_dense_ones(mode):
    pytest.importorskip("scipy")

    @nt.custom_gradient
    def clipped(x):
        return x, lambda g: nt.clip(g, -1.0, 1.0)

    with pytest.raises(nt.errors.NotDifferentiableError) as caught:
        nt.jacobian(lambda x: 3.0 * clipped(x), sparse=True, mode=mode)(np.arange(3.0))
    assert str(caught.value).startswith(
        "jacobian: with sparse=True unit vectors are added up, which takes rules that are linear and known in both "
        "modes; use sparse=False. clipped: "
    )


@pytest.mark.parametrize(
    ("method", "order"), [("forward_gradient", "(source, target)"), ("jacobian", "(target, source)")]
)
def test_source_and_target_in_each_others_place(method, order):
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(2.0))
    given = (x * x, x) if method == "forward_gradient" else (x, x * x)
    with pytest.raises(nt.errors.NotConnectedError) as caught:
        getattr(tape, method)(*given)
    assert str(caught.value) == (
        f"{method}: the source was computed from the target, and not the other way round; the order is {method}{order}."
    )


def test_a_missing_key_of_tangents_is_named():
    def product(p):
        return p["w"] * p["b"]

    w = np.ones(2)
    with pytest.raises(ArgumentError) as caught:
        nt.jvp(product, {"w": w, "b": w}, {"w": w})
    assert str(caught.value) == (
        "jvp: the tangents have another structure than the arguments of product; tree: a dict of 'w', 'b' is wanted, "
        "not one of 'w'."
    )
    tape = nt.GradientTape()
    x, z = tape.watch(nt.ones(2), nt.ones(2))
    with pytest.raises(ArgumentError) as caught:
        tape.forward_gradient({"a": x, "b": z}, x * z, {"a": nt.ones(2)})
    assert str(caught.value) == (
        "forward_gradient: the tangents have another structure than the sources; tree: a dict of 'a', 'b' is wanted, "
        "not one of 'a'."
    )


def test_arrays_with_fields_are_named():
    with pytest.raises(DtypeError) as caught:
        nt.jacobian(lambda x: x)(np.zeros(2, [("a", "f8"), ("b", "f8")]))
    assert str(caught.value) == (
        "jacobian: argument 0 has the fields a, b, which numtape does not know; pass them as a dict of arrays."
    )


def filled(x):
    out = np.empty(2)
    out[0] = x[0].item()
    out[1] = x[1] * 2.0
    return x * out


def often(x):
    factor = 1.0
    for _ in range(50):
        factor = math.cos(x[0])
    return x * factor


def filled_and_logged(x):
    out = np.empty(2)
    out[0], out[1] = x
    loss = (x * out).sum()
    assert len(f"{float(loss)} {loss.item()}") > 0
    return x * out


UNNOTICED = {
    "an array that is filled before a log": filled_and_logged,
    "an array that is filled": filled,
    "a loop": often,
    "a function of math": lambda x: x * math.exp(x[0]),
    "an array of numbers": lambda x: x + np.fromiter((part for part in x), np.float64),
    "an array of floats": lambda x: x + np.fromiter(x, float),
    "code without text": eval("lambda x: x * math.exp(x[0])", {"math": math}),
}


@pytest.mark.parametrize("function", UNNOTICED.values(), ids=UNNOTICED)
@pytest.mark.parametrize(
    "transform",
    [
        lambda f: nt.grad(lambda x: f(x).sum())(np.ones(2)),
        lambda f: nt.jacobian(f)(np.ones(2)),
        lambda f: nt.jvp(f, np.ones(2), np.ones(2)),
        lambda f: nt.vjp(f, np.ones(2))[1](np.ones(2)),
        lambda f: nt.hessian(lambda x: f(x).sum())(np.ones(2)),
    ],
    ids=["grad", "jacobian", "jvp", "vjp", "hessian"],
)
def test_numbers_that_nobody_asked_for_are_named_where_the_rest_is_connected(function, transform):
    with pytest.warns(
        UserWarning, match="a tracked tensor became a number at .*; if the result depends on that number"
    ):
        transform(function)


def test_numbers_that_are_asked_for_are_no_matter():
    def looked_at(x):
        assert not math.isnan(x[0])
        assert f"{float(x[0])} {x[0]:.2f} {x[0]}".startswith("1.0 1.00 ")
        least = min([x[0], x[1]], key=float)
        first, second = map(float, x)
        eval("print(float(x[0]))", {"x": x})
        return x * x[0].item() + float(least) + first - second

    assert nt.jacobian(looked_at)(np.ones(2)).tolist() == [[1.0, 0.0], [0.0, 1.0]]
