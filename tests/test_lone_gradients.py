"""The short way to a gradient by one array gives what the general way does: numbers, errors and what is left behind."""

import gc
import weakref

import numpy as np
import pytest

import numtape as nt
from numtape import api

DATA = np.linspace(-1.0, 1.5, 6)
WEIGHT = nt.tensor(np.linspace(0.5, 2.0, 6), requires_grad=True)
CONSTANT = nt.tensor(np.linspace(0.5, 2.0, 6))


def rosenbrock(x):
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def partly_without(x):
    with nt.no_grad():
        y = x * 2.0
    return (y * x).sum()


def writes_in_place(x):
    y = x * 2.0
    y[1:3] = x[:2] ** 2
    y += x
    return (y * y).sum()


def clears(x):
    y = x * 2.0
    nt.clear_tape()
    return y.sum()


def in_a_context(x):
    with nt.GradientContext().activate():
        return (x * x).sum()


def in_a_tape(x):
    with nt.Tape():
        y = x * x
    return y.sum()


def inner_gradient(x):
    return (nt.grad(lambda y: (y**3).sum())(x) * x).sum()


def inner_tape(x):
    tape = nt.GradientTape(persistent=True)
    y = tape.watch(x * 1.0)
    return (tape.gradient((y**3).sum(), y) * x).sum()


def hooked(x):
    y = x * x
    y.register_hook(lambda g: g * 3.0)
    return y.sum()


def hooked_at_the_argument(x):
    x.register_hook(lambda g: g * 3.0)
    return (x * x).sum()


FUNCTIONS = [
    rosenbrock,
    lambda x: (x * WEIGHT).sum(),
    lambda x: (x * CONSTANT).sum(),
    lambda x: (x * CONSTANT.numpy()).sum(),
    lambda x: x[2],
    lambda x: x[2:3],
    lambda x: x.max() + 2.0,
    lambda x: (x @ x).reshape(1, 1),
    lambda x: nt.stack(nt.split(x, 3)[1:2]).sum(),
    lambda x: np.sin(x).mean() + x.var(),
    lambda x: WEIGHT.sum(),
    lambda x: 3.0,
    lambda x: nt.tensor(2.0),
    lambda x: (x * nt.checkpoint(lambda y: y.exp(), x)).sum(),
    lambda x: nt.checkpoint_loop(lambda y: nt.ones_like(y), x, 3).sum(),
    lambda x: nt.floor(x).sum(),
    partly_without,
    writes_in_place,
    in_a_context,
    in_a_tape,
    inner_gradient,
    inner_tape,
    hooked,
    hooked_at_the_argument,
]
REFUSED = [
    lambda x: x * 2.0,
    lambda x: (x, x),
    lambda x: None,
    lambda x: x.argmax(),
    lambda x: np.float64(float(x[0])),
    lambda x: nt.tensor(float(x[0])) * 2.0,
    lambda x: (x * float("text")).sum(),
    clears,
]


@pytest.fixture
def general(monkeypatch):
    """Return a function that runs another one with the short way closed."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(api, "is_array_alone", lambda *args: False)
            return function()

    return run


def outcome(function):
    try:
        return function()
    except Exception as error:
        return type(error), str(error)


def assert_same(a, b):
    if isinstance(a, tuple):
        assert isinstance(b, tuple)
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert type(a) is type(b)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            assert a.flags.writeable
            assert a.base is None
            np.testing.assert_array_equal(a, b)
        elif isinstance(a, nt.Tensor):
            assert a.requires_grad == b.requires_grad
            np.testing.assert_array_equal(a.numpy(), b.numpy())
        else:
            assert a == b


@pytest.mark.parametrize("transform", [nt.grad, nt.value_and_grad])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_both_ways_give_the_same(transform, dtype, number, general):
    data = DATA.astype(dtype)
    derivative = transform(FUNCTIONS[number])
    assert_same(derivative(data), general(lambda: derivative(data)))
    np.testing.assert_array_equal(data, DATA.astype(dtype))


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_both_ways_raise_the_same(number, general):
    derivative = nt.grad(REFUSED[number])
    found = outcome(lambda: derivative(DATA))
    assert isinstance(found[0], type)
    assert issubclass(found[0], Exception)
    assert found == general(lambda: outcome(lambda: derivative(DATA)))


def test_other_arguments_and_keywords_are_passed_on(general):
    derivative = nt.grad(lambda power, x, *, factor: (x**power).sum() * factor, argnums=1)
    assert_same(derivative(3, DATA, factor=2.0), general(lambda: derivative(3, DATA, factor=2.0)))
    last = nt.grad(lambda power, x: (x**power).sum(), argnums=-1)
    np.testing.assert_allclose(last(3, DATA), 3 * DATA**2)
    with pytest.raises(nt.errors.ArgumentError, match="argnums has 2, but the function got 1 positional arguments"):
        nt.grad(lambda x: x.sum(), argnums=2)(DATA)


def test_the_short_way_is_taken(monkeypatch):
    taken = []
    short = api.gradient_alone

    def noted(*args):
        taken.append(short(*args))
        return taken[-1]

    monkeypatch.setattr(api, "gradient_alone", noted)
    nt.grad(rosenbrock)(DATA)
    nt.value_and_grad(rosenbrock)(DATA.astype(np.float32))
    assert len(taken) == 2
    assert all(gradient is not None for gradient in taken)


@pytest.mark.parametrize("around", [nt.Tape, nt.profile, nt.detect_anomaly, lambda: nt.no_grad()])
def test_what_is_around_takes_the_general_way(around, monkeypatch):
    expected = nt.grad(rosenbrock)(DATA)
    if around is not nt.detect_anomaly:
        monkeypatch.setattr(api, "gradient_alone", lambda *args: pytest.fail("it was not alone"))
    with around():
        np.testing.assert_array_equal(nt.grad(rosenbrock)(DATA), expected)


def test_a_gradient_inside_of_another_is_recorded():
    np.testing.assert_allclose(nt.grad(lambda x: nt.grad(lambda y: (y**3).sum())(x).sum())(DATA), 6 * DATA)


def test_the_argument_is_released_and_nothing_is_held():
    seen = []

    def keeps(x):
        seen.append(x)
        out = (x * x).sum()
        seen.append(weakref.ref(out))
        return out

    gc.disable()
    try:
        nt.grad(keeps)(DATA)
        argument, out = seen
        assert not argument.requires_grad
        assert argument.node is None
        assert (argument * 2.0).node is None
        assert out() is None
    finally:
        gc.enable()


def test_a_gradient_that_is_not_finite_can_be_explained():
    gradient = nt.grad(lambda x: nt.sqrt(x * 0.0).sum())(DATA)
    assert not np.isfinite(gradient).all()

    def keeps(x, losses):
        losses.append(nt.log(x * 0.0).sum())
        return losses[0]

    losses = []
    with np.errstate(all="ignore"):
        nt.grad(lambda x: keeps(x, losses))(np.ones(2))
    assert "log" in str(nt.explain_nan(losses[0]))


def test_the_state_is_as_before_after_an_error():
    def fails(x):
        raise KeyError("on the way")

    for _ in range(2):
        with pytest.raises(KeyError):
            nt.grad(fails)(DATA)
    np.testing.assert_array_equal(nt.grad(rosenbrock)(DATA), nt.grad(rosenbrock)(DATA.copy()))
    assert nt.is_grad_enabled()
    assert not (nt.tensor(DATA) * 2.0).requires_grad


@pytest.mark.parametrize("argnums", [0, (0,)])
def test_a_block_from_outside_that_ends_inside_takes_nothing_of_the_transform(argnums):
    def batches():
        with nt.no_grad():
            yield 1

    def loss(x):
        next(data, None)  # It ends here, and leaves its block.
        return (x**3).sum()

    with nt.no_grad():
        data = batches()
        next(data)
        gradient = nt.grad(loss, argnums=argnums)(DATA)
        data = batches()
        next(data)
        assert nt.jvp(loss, DATA, np.ones(6))[1] == pytest.approx((3 * DATA**2).sum())
    np.testing.assert_allclose(gradient if argnums == 0 else gradient[0], 3 * DATA**2)
    assert nt.is_grad_enabled()


@pytest.mark.parametrize("argnums", [0, (0,)])
def test_what_others_hold_is_copied(argnums):
    kept = np.full(6, 7.0)
    seen = []

    @nt.custom_gradient
    def ruled(x):
        return x * x, lambda g: kept

    def hooked(x):
        x.register_hook(seen.append)
        return (x * x).sum()

    for function in (lambda x: ruled(x).sum(), hooked):
        gradient = nt.grad(function, argnums=argnums)(DATA)
        gradient = gradient if argnums == 0 else gradient[0]
        gradient *= 100.0
    np.testing.assert_array_equal(kept, 7.0)
    np.testing.assert_array_equal(seen[0].numpy(), 2 * DATA)
