"""From a call to operands and parameters: what positions mean, and that flags, numbers and axes are such."""

import inspect

import numpy as np
import pytest

import numtape as nt
from numtape.core.declare import public, registry
from numtape.core.op import Op
from numtape.errors import NumtapeError, OperandError

X = np.array([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]])
#: The same argument under two names.
SAME = {"a_min": "min", "a_max": "max", "diagonal": "k", "dim": "axis", "dims": "axes", "keepdim": "keepdims"}
SAME |= {"dim1": "axis1", "dim2": "axis2", "p": "ord", "shifts": "shift", "value": "constant_values"}


def in_order(function):
    """Return the parameters that a function takes by position."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return []
    return [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def shared(*modules):
    for name in sorted(public):
        for module in modules:
            theirs = getattr(module, name, None)
            if theirs is not None and not isinstance(theirs, np.ufunc):
                yield pytest.param(name, theirs, id=f"{module.__name__}.{name}")


def assert_same_or_refused(name, theirs):
    """Where a position means something else, ours takes True and False only, or only what theirs never is."""
    for mine, other in zip(in_order(public[name]), in_order(theirs), strict=False):
        is_operand = mine.kind is mine.POSITIONAL_ONLY or other.default is other.empty
        if is_operand or mine.name in (other.name, SAME.get(other.name)):
            continue
        is_checked = isinstance(mine.default, bool | int | float) or mine.name == "reduction"
        is_told_apart = type(other.default) is not type(mine.default)
        assert is_checked, f"{name}: {mine} here, {other} there"
        assert is_told_apart, f"{name}: {mine} here, {other} there"


@pytest.mark.parametrize(("name", "theirs"), list(shared(np, np.linalg)))
def test_a_position_means_what_it_means_in_numpy_or_takes_only_what_numpy_never_means(name, theirs):
    assert_same_or_refused(name, theirs)


def test_a_position_means_what_it_means_in_pytorch_or_takes_only_what_pytorch_never_means():
    functional = pytest.importorskip("torch.nn.functional")
    for name, theirs in (case.values for case in shared(functional)):
        assert_same_or_refused(name, theirs)


@pytest.mark.parametrize("name", sorted(name for name, entry in registry.items() if isinstance(entry, Op)))
def test_a_face_takes_by_position_what_its_signature_says(name):
    op = registry[name]
    signature = inspect.signature(op.face)
    statics = [p for p in signature.parameters.values() if p.name in op.defaults]
    by_position = [p.name for p in statics if p.kind is not p.KEYWORD_ONLY]
    assert by_position == list(op.defaults)[: op.positional]
    if op.is_elementwise and not op.defaults:
        return  # The next position is that of `out`, as for NumPy's ufuncs.
    count = len(op.arguments) + op.positional
    with pytest.raises(OperandError, match=rf"^{op.name}: 1 argument too many by position, which takes "):
        op.face(*([X] if op.is_variadic else [X] * len(op.arguments)), *([0] * op.positional), 0)
    assert len(in_order(op.face)) == count


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: nt.cumsum(x, 1, np.float64),
            "cumsum: 1 argument too many by position, which takes x, axis. reverse must be named. For another dtype, "
            "use astype().",
        ),
        (
            lambda x: nt.cumprod(x, 0, float),
            "cumprod: 1 argument too many by position, which takes x, axis. reverse must be named. For another dtype, "
            "use astype().",
        ),
        (lambda x: nt.sort(x, -1, "stable"), "sort: descending is 'stable'; it must be True or False."),
        (lambda x: nt.argsort(x, -1, "stable"), "argsort: descending is 'stable'; it must be True or False."),
        (lambda x: nt.sort(x, descending="no"), "sort: descending is 'no'; it must be True or False."),
        (lambda x: nt.cumsum(x, reverse=1), "cumsum: reverse is 1; it must be True or False."),
        (
            lambda x: nt.sum(x, 0, np.float64),
            "sum: keepdims is <class 'numpy.float64'>; it must be True or False. For another dtype, use astype().",
        ),
        (
            lambda x: nt.mean(x, 0, np.dtype("float32")),
            "mean: keepdims is dtype('float32'); it must be True or False. For another dtype, use astype().",
        ),
        (lambda x: nt.max(x, 0, np.zeros(3)), "max: keepdims is an array of shape (3,); it must be True or False."),
        (lambda x: nt.all(x, 0, None), "all: keepdims is None; it must be True or False."),
        (
            lambda x: nt.std(x, 0, True),
            "std: 1 argument too many by position, which takes x, axis. ddof, keepdims, correction must be named.",
        ),
        (
            lambda x: nt.var(x, 0, 1, True),
            "var: 2 arguments too many by position, which takes x, axis. ddof, keepdims, correction must be named.",
        ),
        (lambda x: nt.var(x, ddof=True), "var: ddof is True; it must be a number."),
        (lambda x: nt.cholesky(x @ x.T, "no"), "cholesky: upper is 'no'; it must be True or False."),
        (lambda x: nt.topk(x, 1, largest=0), "topk: largest is 0; it must be True or False."),
        (lambda x: nt.nan_to_num(x, 0.0), "nan_to_num: copy is 0.0; it must be True or False."),
        (lambda x: nt.norm(x, 2, 1, "yes"), "norm: keepdims is 'yes'; it must be True or False."),
        (lambda x: nt.dropout(x, "a"), "dropout: p is 'a'; it must be a number."),
        (lambda x: nt.dropout(x, True), "dropout: p is True; it must be a number."),
        (lambda x: nt.dropout(x, 0.5, 1), "dropout: training is 1; it must be True or False."),
        (lambda x: nt.elu(x, True), "elu: alpha is True; it must be a number."),
        (lambda x: nt.tril(x, "lower"), "tril: k is 'lower'; it must be an integer."),
        (
            lambda x: nt.smooth_l1_loss(x, x, False),
            "smooth_l1_loss: beta is False; it must be a number.",
        ),
        (
            lambda x: nt.cross_entropy(x, [0, 1], None, None),
            "cross_entropy_loss: label_smoothing is None; it must be a number.",
        ),
        (
            lambda x: nt.scaled_dot_product_attention(x, x, x, None, 0.0, True),
            "scaled_dot_product_attention: is_causal is 0.0; it must be True or False.",
        ),
    ],
)
def test_what_numpy_or_pytorch_mean_by_a_position_raises_if_it_is_not_meant_here(call, message):
    for x in (X, nt.tensor(X), nt.tensor(X, requires_grad=True)):
        with pytest.raises(OperandError) as caught:
            call(x)
        assert str(caught.value) == message


def test_flags_may_be_numpys_bools_and_untracked_tensors():
    for flag in (True, np.True_, np.array(True), nt.tensor(True)):
        assert nt.sum(X, 0, flag).shape == (1, 3)
        assert nt.tensor(X).sum(0, flag).shape == (1, 3)
        assert nt.norm(X, 2, 1, flag).shape == (2, 1)
    assert nt.sort(X, -1, True).tolist() == [[5.0, 3.0, 1.0], [6.0, 4.0, 2.0]]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: nt.sum(x, True),
        lambda x: nt.std(x, False),
        lambda x: nt.var(x, np.True_),
        lambda x: nt.var(x, (True, 0)),
        lambda x: nt.softmax(x, True),
        lambda x: nt.softmax(x, axis=(0, False)),
        lambda x: nt.softmin(x, True),
        lambda x: nt.norm(x, 2, True),
        lambda x: nt.median(x, True),
        lambda x: nt.quantile(x, 0.5, (0, True)),
        lambda x: nt.average(x, True),
        lambda x: nt.flip(x, True),
        lambda x: nt.roll(x, 1, True),
        lambda x: nt.roll(x, True, 0),
        lambda x: nt.repeat(x, 2, True),
        lambda x: nt.squeeze(x, True),
        lambda x: nt.expand_dims(x, True),
        lambda x: nt.swapaxes(x, True, 0),
        lambda x: nt.moveaxis(x, True, 0),
        lambda x: nt.permute(x, True, False),
        lambda x: nt.diff(x, 1, True),
        lambda x: nt.diagonal(x, 0, True, 0),
        lambda x: nt.trace(x, True),
        lambda x: nt.gather(x, True, np.zeros((2, 3), int)),
        lambda x: nt.take(x, [0], True),
        lambda x: nt.topk(x, 1, True),
        lambda x: nt.split(x, 2, False),
        lambda x: nt.chunk(x, 2, False),
        lambda x: nt.unbind(x, True),
        lambda x: nt.cumsum(x, True),
        lambda x: nt.sort(x, True),
        lambda x: nt.argmax(x, True),
        lambda x: nt.concat([x, x], True),
        lambda x: nt.stack([x, x], False),
        lambda x: nt.cross(x, x, True),
        lambda x: nt.tensordot(x, x, True),
        lambda x: nt.trapezoid(x, axis=True),
        lambda x: nt.gradient(x, axis=True),
        lambda x: nt.unique(x, axis=True),
        lambda x: nt.logsumexp(x, dim=True),
        lambda x: nt.reshape(x, True, 6),
        lambda x: nt.flatten(x, True),
        lambda x: nt.zeros(True),
    ],
)
def test_a_bool_is_no_axis_and_no_length(call):
    for x in (X, nt.tensor(X), nt.tensor(X, requires_grad=True)):
        with pytest.raises(NumtapeError, match=r"True|False"):
            call(x)


def test_the_methods_raise_as_the_functions_do():
    x = nt.tensor(X)
    for call in (
        lambda: x.cumsum(1, np.float64),
        lambda: x.sort(-1, "stable"),
        lambda: x.sum(0, np.float64),
        lambda: x.std(False),
        lambda: x.argmax(1, None),
        lambda: x.copy("C"),
        lambda: x.flatten("F"),
        lambda: x.dot(x.T, np.zeros((2, 2))),
        lambda: x.round(1, np.zeros((2, 3))),
        lambda: x.take([0], 1, None),
    ):
        with pytest.raises(OperandError):
            call()


def test_losses_take_by_position_what_pytorch_takes_there_or_raise():
    target = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    for call in (
        lambda: nt.bce_with_logits(X, target, None, False),
        lambda: nt.gaussian_nll_loss(X, target, np.ones_like(X), True),
        lambda: nt.instance_norm(X[None], np.zeros(2), np.ones(2)),
        lambda: nt.huber_loss(X, target, "sum"),
        lambda: nt.mse_loss(X, target, False),
        lambda: nt.dropout(X, 0.5, True, True),
    ):
        with pytest.raises(NumtapeError):
            call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.sum(0, axis=1), "sum: argument 'axis' was given twice."),
        (lambda x: x.sum(0, dim=1), "sum: argument 'axis' was given twice, the second time as 'dim'."),
        (lambda x: nt.leaky_relu(x, 0.1, negative_slope=0.5), "leaky_relu: argument 'negative_slope' was given twice."),
        (lambda x: nt.concat([x, x], 0, dim=1), "concat: argument 'axis' was given twice, the second time as 'dim'."),
        (lambda x: nt.take(x, [0], indices=[1]), "take: argument 'indices' was given twice."),
        (
            lambda x: nt.leaky_relu(x, np.ones(2)),
            "leaky_relu: negative_slope is an array of shape (2,); it must be a number.",
        ),
        (lambda x: nt.elu(x, [1.0]), "elu: alpha is [1.0]; it must be a number."),
        (lambda x: nt.tril(x, 1.5), "tril: k is 1.5; it must be an integer."),
        (lambda x: nt.chunk(x, 1.5), "chunk: chunks is 1.5; it must be an integer."),
    ],
)
def test_arguments_that_come_twice_or_are_no_numbers_are_named(call, message):
    with pytest.raises(OperandError) as raised:
        call(nt.ones((2, 3)))
    assert str(raised.value) == message
