"""What a hostile review found: gradients that were lost or wrong without a word, and values out of their range."""

import array
import collections
import math
import sys

import numpy as np
import pytest
import scipy.special

import numtape as nt
from numtape import protocols
from numtape.errors import (
    ArgumentError,
    GradientError,
    LeavesTapeError,
    MissingGradientError,
    NotConnectedError,
    NotDifferentiableError,
    OperandError,
    OverwrittenError,
    ShapeError,
    UnsupportedError,
)


def logits():
    """Return a leaf of two predictions of two classes."""
    return nt.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)


def message_of(error, function):
    """Return what a call raises."""
    with pytest.raises(error) as caught:
        function()
    return str(caught.value)


def no_derivative(op, argument):
    """Return what is said of a tracked tensor in place of a static parameter."""
    return (
        f"{op}: argument {argument!r} has no derivative, but a tracked tensor was given; pass {argument}.detach() if "
        "its gradient is not wanted."
    )


# Constants of losses.


def test_a_write_to_the_target_of_a_cross_entropy_is_noticed():
    x, target = logits(), nt.tensor([0, 1])
    loss = nt.cross_entropy(x, target)
    target[0] = 1
    with pytest.raises(OverwrittenError, match="the derivative needs the value of 'target'"):
        loss.backward()


def test_a_write_to_the_weight_of_a_cross_entropy_is_noticed():
    x, weight = logits(), nt.tensor([1.0, 2.0])
    loss = nt.cross_entropy(x, np.array([0, 1]), weight=weight)
    weight[0] = 3.0
    with pytest.raises(OverwrittenError, match="the derivative needs the value of 'weight'"):
        loss.backward()


@pytest.mark.parametrize("loss", [nt.nll_loss, lambda x, t, w: nt.cross_entropy(x, t, w, from_logits=False)])
def test_a_write_to_the_constants_of_a_composed_loss_comes_too_late(loss):
    def gradient(is_written):
        x = nt.tensor([[0.3, 0.7], [0.6, 0.4]], requires_grad=True)
        target, weight = nt.tensor([0, 1]), nt.tensor([1.0, 2.0])
        out = loss(x, target, weight)
        if is_written:
            target[0] = 1
            weight[0] = 9.0
        out.backward()
        return x.grad.tolist()

    assert gradient(is_written=True) == gradient(is_written=False)


@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"label_smoothing": 0.2}, {"from_logits": False}])
def test_the_weight_of_a_cross_entropy_gets_a_gradient(options):
    predictions, target = np.array([[0.3, 0.7], [0.6, 0.4], [0.2, 0.8]]), np.array([0, 1, 1])
    plain = nt.cross_entropy(predictions, target, np.array([1.0, 2.0]), **options)
    weight = nt.tensor(np.array([1.0, 2.0]), requires_grad=True)
    assert nt.cross_entropy(predictions, target, weight, **options).item() == pytest.approx(plain, rel=1e-14)
    assert nt.check_gradients(lambda x, w: nt.cross_entropy(x, target, w, **options), predictions, np.array([1.0, 2.0]))


def test_the_weight_of_classes_given_as_probabilities_gets_a_gradient():
    target = np.array([[0.5, 0.5], [0.25, 0.75]])
    x = np.array([[1.0, 2.0], [3.0, 5.0]])
    assert nt.check_gradients(lambda x, w: nt.cross_entropy(x, target, w), x, np.array([1.0, 2.0]))


def test_the_scale_of_attention_gets_a_gradient():
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 2)), rng.normal(size=(4, 2)), rng.normal(size=(4, 5))
    assert nt.check_gradients(
        lambda *args: nt.scaled_dot_product_attention(*args[:3], scale=args[3]), query, key, value, np.array(0.3)
    )


# Filling.


@pytest.mark.parametrize(
    "fill",
    [
        lambda s: nt.full((3,), s),
        lambda s: nt.full((3,), [s, s, s]),
        lambda s: nt.full_like(nt.ones(3), s),
        lambda s: np.full_like(nt.ones(3), s),
    ],
)
def test_a_tracked_value_that_fills_gets_a_gradient(fill):
    s = nt.tensor(2.0, requires_grad=True)
    filled = fill(s)
    assert filled.tolist() == [2.0, 2.0, 2.0]
    (filled * nt.tensor([1.0, 2.0, 4.0])).sum().backward()
    assert s.grad.tolist() == 7.0
    with nt.Tape() as tape:
        s = nt.tensor(2.0)
        out = fill(s).sum()
    assert tape.gradient(out, s).tolist() == 3.0


def test_a_tracked_tensor_still_lends_its_shape_to_full_like():
    made = np.full_like(logits(), 3.0)
    assert not made.requires_grad
    assert made.tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_a_full_tensor_has_memory_of_its_own():
    value = nt.tensor(1.0)
    made = nt.full((2,), value)
    made[0] = 5.0
    assert made.tolist() == [5.0, 1.0]
    assert value.tolist() == 1.0


# Inside of a tape that watches everything.


@pytest.mark.parametrize("is_used", [False, True])
@pytest.mark.parametrize(
    ("function", "error"),
    [
        (np.unwrap, UnsupportedError),
        (np.asarray, LeavesTapeError),
        (lambda u: np.full(2, u), LeavesTapeError),
        (lambda u: np.zeros(2).__setitem__(slice(None), u), LeavesTapeError),
        (lambda u: nt.pad(np.ones(2), 1, constant_values=u[0]), NotDifferentiableError),
        (lambda u: nt.nan_to_num(np.ones(2), nan=u[0]), NotDifferentiableError),
        (lambda u: nt.quantile(np.ones(2), u), NotDifferentiableError),
        (lambda u: nt.leaky_relu(np.ones(2), u), NotDifferentiableError),
        (lambda u: nt.tensor(u, requires_grad=True), GradientError),
    ],
)
def test_a_float_tensor_in_a_tape_is_refused_alike_before_and_after_its_first_use(function, error, is_used):
    with nt.Tape():
        u = nt.tensor([0.25, 0.5])
        if is_used:
            u * 2.0
        with pytest.raises(error):
            function(u)


def test_a_tensor_of_a_tensor_in_a_tape_is_recorded():
    with nt.Tape() as tape:
        u = nt.tensor([3.0, 4.0])
        out = nt.tensor(u, dtype="float64").sum()
    assert tape.gradient(out, u).tolist() == [1.0, 1.0]


def test_the_weight_of_a_loss_in_a_tape_gets_a_gradient():
    with nt.Tape() as tape:
        weight = nt.tensor([1.0, 2.0])
        loss = nt.cross_entropy(logits(), np.array([0, 1]), weight, reduction="sum")
    np.testing.assert_allclose(tape.gradient(loss, weight).numpy(), [1.3132616, 0.3132617], rtol=1e-6)


def test_explicit_exits_work_in_a_tape():
    with nt.Tape():
        u = nt.tensor([3.0])
        for leave in (nt.Tensor.item, nt.Tensor.tolist, nt.Tensor.numpy, float, int, bool):
            leave(u)
        assert np.asarray(u.detach()).tolist() == [3.0]
        assert np.unwrap(u.detach()).tolist() == [3.0]
        assert nt.tensor(u.detach(), requires_grad=True).is_leaf
        with nt.no_grad():
            assert np.asarray(nt.tensor([3.0])).tolist() == [3.0]


def test_what_was_detached_is_a_constant_of_the_tape():
    with nt.Tape() as tape:
        u = nt.tensor([3.0])
        constant = u.detach()
        out = (u * constant).sum()
    assert constant.node is None
    assert tape.gradient(out, u).tolist() == [3.0]


def test_functions_that_use_no_values_answer_in_a_tape():
    with nt.Tape():
        u = nt.tensor([3.0, 4.0])
        assert np.shape(u) == (2,)
        assert np.zeros_like(u).tolist() == [0.0, 0.0]
        assert np.array_equal(u, u)


# What becomes a tensor.


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda: np.frompyfunc(lambda a: a * 2, 1, 1)(nt.ones(2)), object),
        (lambda: np.fft.fft(nt.tensor([1.0, 2.0, 3.0])), np.complex64),
        (lambda: np.add(nt.ones(2), 1, dtype=np.longdouble), np.longdouble),
        (lambda: np.linalg.eig(nt.tensor([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues, np.complex64),
        (lambda: np.roots(nt.tensor([1.0, 0.0, 1.0])), np.complex64),
        (lambda: np.emath.sqrt(nt.tensor([-1.0])), np.complex64),
    ],
)
def test_results_of_dtypes_that_tensors_do_not_have_stay_arrays(make, dtype):
    made = make()
    assert type(made) is np.ndarray
    assert made.dtype.kind == np.dtype(dtype).kind


def test_a_view_that_numpy_makes_in_a_roundabout_way_shares_the_version():
    base = nt.tensor([1.0, 2.0, 3.0])
    windows = np.lib.stride_tricks.sliding_window_view(base, 2)
    factor = nt.tensor(2.0, requires_grad=True)
    out = (windows * factor).sum()
    base[0] = 100.0
    with pytest.raises(OverwrittenError, match="the derivative needs the value of 'a'"):
        out.backward()


CUTS = (
    ": requires_grad=True makes a leaf, but the data is tracked, and its gradient would be lost without a word. Leave "
    "requires_grad out to stay on the tape, or detach() the data."
)


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x.sum(), 2.0], lambda x: x * 2.0])
def test_a_leaf_is_not_made_of_tracked_tensors(wrap):
    x = logits()
    assert message_of(GradientError, lambda: nt.tensor(wrap(x), requires_grad=True)) == "tensor" + CUTS
    with nt.no_grad():
        assert nt.tensor(wrap(x).detach() if isinstance(wrap(x), nt.Tensor) else wrap(x), requires_grad=True).is_leaf


def test_a_full_leaf_is_not_made_of_a_tracked_tensor():
    assert message_of(GradientError, lambda: nt.full((2,), logits().sum(), requires_grad=True)) == "full" + CUTS


# Random numbers.


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_numbers_stay_in_their_range_in_every_dtype(dtype):
    drawn = nt.rand(200_000, dtype=dtype, rng=1).numpy().astype(np.float64)
    assert 0.0 <= drawn.min() <= drawn.max() < 1.0
    drawn = nt.uniform(0.1, 0.7, (200_000,), dtype=dtype, rng=1).numpy().astype(np.float64)
    assert 0.1 <= drawn.min() <= drawn.max() < 0.7
    assert drawn.mean() == pytest.approx(0.4, abs=0.002)


def test_rounding_goes_to_the_largest_number_below_the_bound():
    from numtape.kernels.random import rounded

    nearly = np.array([0.5, 1.0 - 2.0**-53])
    assert rounded(nearly, 0.0, 1.0, nt.float32).tolist() == [0.5, 1.0 - 2.0**-24]
    assert rounded(nearly, 0.0, 1.0, nt.float16).tolist() == [0.5, 1.0 - 2.0**-11]
    assert rounded(nearly, 0.0, 1.0, nt.float64).tolist() == nearly.tolist()
    assert rounded(np.array([1.0, 1.0]), 1.0, 1.0, nt.float32).tolist() == [1.0, 1.0]


# Static parameters.


def test_tolerances_may_be_tensors():
    assert nt.isclose(nt.ones(2), nt.ones(2), rtol=nt.tensor(0.1)).tolist() == [True, True]
    assert nt.allclose(nt.ones(2), nt.ones(2), atol=nt.tensor(0.1))


@pytest.mark.parametrize(
    ("op", "argument", "call"),
    [
        ("leaky_relu", "negative_slope", lambda s: nt.leaky_relu(nt.ones(2), s)),
        ("elu", "alpha", lambda s: nt.elu(nt.ones(2), alpha=s)),
        ("huber_loss", "delta", lambda s: nt.huber(nt.ones(2), nt.ones(2), delta=s)),
        ("smooth_l1_loss", "beta", lambda s: nt.smooth_l1_loss(nt.ones(2), nt.ones(2), beta=s)),
        ("dropout", "p", lambda s: nt.dropout(nt.ones(2), p=s, rng=0)),
        ("var", "ddof", lambda s: nt.var(nt.ones(2), ddof=s)),
        ("pad", "constant_values", lambda s: nt.pad(nt.ones(2), 1, constant_values=s)),
        ("nan_to_num", "nan", lambda s: nt.nan_to_num(nt.ones(2), nan=s)),
        ("quantile", "q", lambda s: nt.quantile(nt.ones(2), s)),
        ("layer_norm", "eps", lambda s: nt.layer_norm(nt.ones(2, 2), 2, eps=s)),
        ("rms_norm", "eps", lambda s: nt.rms_norm(nt.ones(2, 2), 2, eps=s)),
        ("group_norm", "eps", lambda s: nt.group_norm(nt.ones(2, 2), 2, eps=s)),
        ("batch_norm", "eps", lambda s: nt.batch_norm(nt.ones(2, 2), None, None, training=True, eps=s)),
        ("batch_norm", "momentum", lambda s: nt.batch_norm(nt.ones(2, 2), None, None, training=True, momentum=s)),
    ],
)
def test_a_tracked_static_parameter_is_named_with_its_op(op, argument, call):
    s = nt.tensor(0.5, requires_grad=True)
    assert message_of(NotDifferentiableError, lambda: call(s)) == no_derivative(op, argument)
    call(s.detach())


def test_a_static_parameter_does_not_change_with_the_tensor_that_it_was():
    x, pads = nt.tensor([-1.0], requires_grad=True), nt.tensor(0.5)
    out = nt.leaky_relu(x, pads)
    pads[...] = 9.0
    out.sum().backward()
    assert x.grad.tolist() == [0.5]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: nt.layer_norm(x, 2, eps="a"), OperandError, "layer_norm: eps is 'a'; it must be a number."),
        (lambda x: nt.huber(x, x, delta="a"), OperandError, "huber_loss: delta is 'a'; it must be a number."),
        (lambda x: nt.triplet(x, x, x, p="a"), OperandError, "triplet_loss: p is 'a'; it must be a number."),
        (
            lambda x: nt.triplet(x, x, x, p=-1),
            ArgumentError,
            "triplet_loss: p is -1; the exponent of a norm is positive.",
        ),
        (
            lambda x: nt.scaled_dot_product_attention(x, x, x, scale="a"),
            OperandError,
            "scaled_dot_product_attention: scale is 'a'; it must be one number.",
        ),
        (lambda x: nt.topk(x, 1.5), OperandError, "topk: k is 1.5; it must be an integer."),
        (
            lambda x: nt.meshgrid([np.ones(2), np.ones(3)]),
            ShapeError,
            "meshgrid: array 0 is a list whose parts differ in length; give the coordinates of each axis by "
            "themselves, as in meshgrid(*arrays).",
        ),
        (
            lambda x: x.requires_grad_("yes"),
            OperandError,
            "requires_grad: the flag is 'yes'; it must be True or False.",
        ),
        (
            lambda x: x.to("float32", dtype="float64"),
            ArgumentError,
            "to: the dtype was given twice, as 'float32' and as 'float64'.",
        ),
        (lambda x: x.to(device="cuda"), ArgumentError, "to: there is no device 'cuda'; numtape computes on \"cpu\"."),
        (
            lambda x: scipy.special.gamma(nt.tensor([2.0], requires_grad=True)),
            UnsupportedError,
            "ufunc gamma: has no op in numtape (or not with these options), and an operand is tracked, so its gradient "
            "would be lost. Write it with nt functions, or leave the tape with numpy() or detach().",
        ),
    ],
)
def test_what_cannot_be_used_is_named(call, error, message):
    assert message_of(error, lambda: call(nt.ones(2, 2))) == message


def test_a_write_by_the_tensor_itself_is_not_blamed_on_a_view():
    y = logits() * 2.0
    with nt.no_grad():
        y += 1.0
    said = message_of(OverwrittenError, lambda: y * 2.0)
    assert "its memory was overwritten without being recorded at" in said
    assert said.endswith("Write outside of no_grad, or clone() before the write.")


# Members.


@pytest.mark.parametrize(
    "name", ["arcsin", "arccos", "arctan", "arcsinh", "arctanh", "trunc", "fliplr", "flipud", "arccosh"]
)
def test_numpys_and_pytorchs_names_of_one_operand_are_methods(name):
    x = np.array([[0.25, -0.5]]) if name != "arccosh" else np.array([[1.5, 2.0]])
    np.testing.assert_array_equal(getattr(nt.tensor(x), name)().numpy(), getattr(np, name)(x))


@pytest.mark.parametrize(
    "name",
    ["greater_equal", "less_equal", "equal", "bitwise_and", "bitwise_or", "bitwise_xor", "arctan2", "searchsorted"],
)
def test_numpys_and_pytorchs_names_of_two_operands_are_methods(name):
    a, b = np.array([1, 2, 3]), np.array([3, 2, 1])
    np.testing.assert_array_equal(getattr(nt.tensor(a), name)(b).numpy(), getattr(nt, name)(a, b))


def test_methods_of_pytorch_take_its_order_of_operands():
    x = nt.tensor([1.0, 2.0])
    assert x.where(np.array([True, False]), 0.0).tolist() == [1.0, 0.0]
    assert x.polygamma(1).tolist() == nt.polygamma(1, x).tolist()
    assert nt.tensor([5]).bitwise_not().tolist() == [-6]
    assert x.ger(x).tolist() == [[1.0, 2.0], [2.0, 4.0]]


def test_to_takes_dtype_and_device_by_name():
    x = nt.tensor([1.5])
    assert x.to(dtype="float64").dtype == np.float64
    assert x.to(device="cpu") is x
    assert x.to("cpu", dtype=nt.float64).dtype == np.float64
    assert x.to() is x


def test_gradients_of_intermediates_are_found_but_not_listed():
    x = nt.tensor([1.0, 2.0])
    with nt.Tape() as tape:
        y = x * x
        loss = y.sum()
    gradients = tape.backward(loss, keep="all")
    assert y in gradients
    assert gradients[y].tolist() == [1.0, 1.0]
    assert gradients.tensors() == [x]
    assert len(gradients) == len(list(gradients.items())) == 1


# A second review: names that NumPy and SciPy share with us.


@pytest.mark.parametrize("name", ["kl_div", "huber"])
def test_a_ufunc_of_scipy_is_not_taken_for_the_loss_of_its_name(name):
    a, b = np.array([1.0, 2.0]), np.array([0.5, 3.0])
    ufunc = getattr(scipy.special, name)
    np.testing.assert_array_equal(ufunc(nt.tensor(a), nt.tensor(b)).numpy(), ufunc(a, b))
    assert message_of(UnsupportedError, lambda: ufunc(nt.tensor(a, requires_grad=True), b)) == (
        f"ufunc {name}: has no op in numtape (or not with these options), and an operand is tracked, so its gradient "
        "would be lost. Write it with nt functions, or leave the tape with numpy() or detach()."
    )


def test_every_ufunc_of_scipy_that_is_recorded_means_the_same():
    recorded = set()
    for name, ufunc in vars(scipy.special).items():
        if isinstance(ufunc, np.ufunc):
            operands = [np.array([0.25, 0.5, 0.75])] * ufunc.nin
            try:
                out = ufunc(*(nt.tensor(x, requires_grad=True) for x in operands))
            except UnsupportedError:
                continue
            recorded.add(name)
            np.testing.assert_allclose(out.detach().numpy(), ufunc(*operands), rtol=1e-14)
    assert {"erf", "erfc", "expit", "logit", "xlogy", "psi", "gammaln", "round"} <= recorded


def test_a_ufunc_of_nobodys_is_not_known_by_its_name():
    class Relu:
        """What a compiler for ufuncs makes of a user's function: one that happens to have a name of ours."""

        __name__ = "relu"
        nin = nout = 1

    assert protocols._face_of_scipy(Relu()) is None
    assert protocols._face_of_scipy(scipy.special.erf) is nt.erf


def test_a_composed_function_writes_to_out_or_says_that_it_does_not():
    x, out = nt.full((3, 3), 2.0), nt.zeros(3)
    assert np.vecdot(x, x, out=out) is out
    assert out.tolist() == [12.0, 12.0, 12.0]
    x.requires_grad_()
    assert message_of(UnsupportedError, lambda: np.vecdot(x, x, out=out)) == (
        "np.vecdot: has no op in numtape (or not with these options), and an operand is tracked, so its gradient would "
        "be lost. Write it with nt functions, or leave the tape with numpy() or detach()."
    )


# Where the tape was left.


def exit_at(line):
    """Return the sentence that names a line of this file."""
    return f" The last tensor that left the tape did so by float() at {__file__}:{line}"


def test_the_error_of_a_gradient_names_the_line_that_left_the_tape():
    x = nt.tensor(2.0)
    with nt.Tape(persistent=True) as tape:
        line = sys._getframe().f_lineno + 1
        z = nt.tensor(math.sin(x * x)) * 2.0
    said = message_of(NotConnectedError, lambda: tape.gradient(z, x, unconnected="error"))
    assert said.startswith(
        f"gradient: the targets do not depend on tensor[]; was it watched before use?{exit_at(line)}"
    )
    said = message_of(NotConnectedError, lambda: tape.jacobian(z, x))
    assert said.startswith(
        "jacobian: the target does not depend on tensor[]; watch it before it is used, and compute with nt or np "
        f"functions outside of no_grad.{exit_at(line)}"
    )
    said = message_of(MissingGradientError, lambda: tape.backward(z)[x])
    assert said.startswith(
        "Gradients: the loss does not depend on tensor[], or it was not tracked then; get() gives None instead."
        f"{exit_at(line)}"
    )


def test_a_tensor_that_a_tape_would_watch_leaves_it_at_its_first_use():
    x = nt.tensor(2.0)
    with nt.Tape() as tape:
        line = sys._getframe().f_lineno + 1
        z = nt.tensor(math.sin(x)) * 2.0
    assert exit_at(line) in message_of(NotConnectedError, lambda: tape.gradient(z, x, unconnected="error"))


def test_a_look_does_not_hide_the_line_that_left_the_tape():
    x = nt.tensor(2.0)
    with nt.Tape() as tape:
        line = sys._getframe().f_lineno + 1
        z = nt.tensor(math.sin(x)) * 2.0
        x.item()
    said = message_of(NotConnectedError, lambda: tape.gradient(z, x, unconnected="error"))
    assert f" The last tensor that left the tape did so by item() at {__file__}:{line + 1} (x.item())" in said
    assert said.endswith(f", and one before it by float() at {__file__}:{line} (z = nt.tensor(math.sin(x)) * 2.0).")


def test_an_error_names_no_line_of_before_the_tape():
    float(logits().sum())
    x = nt.tensor(2.0)
    with nt.Tape(persistent=True) as tape:
        with nt.no_grad():
            y = x * x
        z = y * 2.0
    assert message_of(NotConnectedError, lambda: tape.gradient(z, x, unconnected="error")) == (
        "gradient: the targets do not depend on tensor[]; was it watched before use?"
    )
    assert message_of(MissingGradientError, lambda: tape.backward(z)[x]) == (
        "Gradients: the loss does not depend on tensor[], or it was not tracked then; get() gives None instead."
    )


def test_a_tape_that_was_left_records_no_more_although_one_inside_of_it_does():
    outer, middle, inner = nt.Tape(), nt.Tape(), nt.Tape()
    for tape in (outer, middle, inner):
        tape.__enter__()
    outer.__exit__(None, None, None)
    x = nt.tensor(2.0)
    x * 3.0
    assert (outer.is_recording, middle.is_recording, inner.is_recording) == (False, True, True)
    inner.__exit__(None, None, None)
    x * 3.0
    assert (outer.is_recording, middle.is_recording, inner.is_recording) == (False, True, False)
    middle.__exit__(None, None, None)
    assert (len(outer), len(middle), len(inner)) == (0, 2, 1)
    with outer:
        x * 3.0
    assert (len(outer), outer.is_recording) == (1, False)


def test_a_tape_that_was_started_goes_on_after_a_block_inside():
    tape, x = nt.Tape(), nt.tensor(2.0)
    tape.start_recording()
    with tape:
        x * 3.0
    x * 3.0
    assert (len(tape), tape.is_recording) == (2, True)
    tape.stop_recording()
    assert not tape.is_recording


# What has a dtype of its own keeps it.


class Foreign:
    """An array of another library."""

    def __array__(self, dtype=None, copy=None):
        return np.array([1.0 / 3.0], dtype)


@pytest.mark.parametrize(
    "data",
    [Foreign(), [Foreign()], memoryview(np.array([1.0 / 3.0])), array.array("d", [1.0 / 3.0]), [np.float64(1.0 / 3.0)]],
)
def test_numbers_that_have_a_dtype_are_not_rounded(data):
    made = nt.tensor(data)
    assert made.dtype == np.float64
    assert made.numpy().ravel().tolist() == [1.0 / 3.0]
    assert nt.full(made.shape, data).dtype == np.float64
    assert nt.tensor(data, dtype="float32").dtype == np.float32


@pytest.mark.parametrize("data", [1.5, [1.5, 2], ((1.5,), [2.0]), [[True], [2.0]], collections.deque([1.5])])
def test_numbers_of_python_take_the_default_dtype(data):
    assert nt.tensor(data).dtype == np.float32


# Arguments that there are not.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: nt.interp(x, x, x, period=3.0),
            "interp: there is no argument 'period'; the arguments are x, xp, fp, left, right.",
        ),
        (
            lambda x: nt.max_pool2d(nt.ones(1, 1, 4, 4), 2, ceil_mode=True),
            "max_pool2d: there is no argument 'ceil_mode'; the arguments are x, kernel_size, stride, padding, "
            "dilation.",
        ),
        (
            lambda x: nt.avg_pool1d(nt.ones(1, 1, 4), 2, ceil_mode=True),
            "avg_pool1d: there is no argument 'ceil_mode'; the arguments are x, kernel_size, stride, padding, "
            "count_include_pad.",
        ),
        (lambda x: nt.softplus(x, beta=2.0), "softplus: there is no argument 'beta'; the arguments are x, out."),
        (
            lambda x: nt.gelu(x, beta=2.0),
            "gelu: there is no argument 'beta'; the arguments are x, approximate, out.",
        ),
        (
            lambda x: nt.interp(x, x),
            "interp: missing a required argument: 'fp'; the arguments are x, xp, fp, left, right.",
        ),
    ],
)
def test_an_argument_that_does_not_exist_is_answered_with_those_that_do(call, message):
    assert message_of(OperandError, lambda: call(nt.ones(2))) == message


# What Python asks of numbers.


def test_divmod_is_the_quotient_and_the_remainder():
    x = nt.tensor([7.0, -7.0], requires_grad=True)
    quotient, rest = divmod(x, 4.0)
    assert (quotient.tolist(), rest.tolist()) == ([1.0, -2.0], [3.0, 1.0])
    rest.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    quotient, rest = divmod(9.0, x.detach())
    assert (quotient.tolist(), rest.tolist()) == ([1.0, -2.0], [2.0, -5.0])
    with pytest.raises(TypeError, match="unsupported operand type"):
        divmod(x, "2")


def test_the_functions_of_math_that_make_integers_take_a_tensor():
    x = nt.tensor(-1.5)
    assert [f(x) for f in (math.trunc, math.floor, math.ceil)] == [-1, -2, -1]
    assert all(type(f(x)) is int for f in (math.trunc, math.floor, math.ceil))


def test_a_vector_has_no_transposed_matrix():
    assert not hasattr(nt.ones(3), "mT")
    assert hasattr(nt.ones(3, 2), "mT")
    with pytest.raises(ShapeError):
        nt.ones(3).mT  # noqa: B018
