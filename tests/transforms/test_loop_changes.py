"""What changes around the steps of `nt.checkpoint_loop` before they run again: noticed, or of no consequence."""

import inspect
import itertools
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial

import numpy as np
import pytest

import numtape as nt
from numtape.errors import GradientError, OverwrittenError


def leaf(*values):
    return nt.tensor(np.array(values), requires_grad=True)


def constant(*values):
    return nt.tensor(np.array(values))


def plain(step, state, n):
    takes_number = len(inspect.signature(step).parameters) == 2
    for i in range(n):
        state = step(state, i) if takes_number else step(state)
    return state


def used(use, *, rebind=False, start=constant):
    """Return a program whose steps use a tensor, which is then written to, or another one in its place."""

    def program(loop, x, n):
        held = [start(0.5, 0.2)]
        y = loop(lambda s: use(s, held[0]), x, n)
        if rebind:
            held[0] = start(2.0, 3.0)
        else:
            with nt.no_grad():
                held[0].fill_(2.0)
        return y

    return program


def listed(start, change):
    """Return a program of which each step uses a tensor of its own."""

    def program(loop, x, n):
        xs = [start(0.5 + i, 0.2) for i in range(n)]
        y = loop(lambda s, i: nt.tanh(s * xs[i]), x, n)
        with nt.no_grad():
            for i in range(n):
                change(xs, i)
        return y

    return program


def rebound(start):
    return lambda xs, i: xs.__setitem__(i, start(2.0 + i, 3.0))


def kept(make):
    """Return a program whose steps keep something outside of the state."""
    return lambda loop, x, n: loop(make(), x, n)


def averaging_weight():
    w = leaf(0.5, 0.2)

    def step(s):
        h = nt.tanh(s + w)
        with nt.no_grad():
            w.mul_(0.9)
        return h

    return step


def training_weight():
    w = nt.nn.Parameter(constant(0.5, 0.2))
    optimizer = nt.optim.SGD([w], lr=0.1)

    def step(s):
        optimizer.zero_grad()
        ((s.detach() * w - 1.0) ** 2 + w).sum().backward()
        optimizer.step()
        return nt.tanh(s + w)

    return step


def accumulating(read):
    h = nt.zeros(2, dtype="float64")

    def step(s):
        with nt.no_grad():
            h.add_(s.detach() + 1.0)
        return nt.sin(s * read(h))

    return step


def in_place(s, c):
    d = nt.zeros(2, dtype="float64")
    d += c
    return nt.sin(s * d)


def attending(s, c):
    q = s.reshape(1, 2, 1)
    mask = (c < 1.0) & nt.tensor(np.array([[True, False], [True, True]]))
    return nt.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask | (c < 0.3)).reshape(2) + s


def casting(s, c):
    with nt.autocast():
        return (nt.stack([c, c]) @ s).astype("float64")


def threaded(s, c):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: nt.sin(s * c)).result()


def normalised(loop, x, n):
    norm = nt.nn.BatchNorm1d(2).to("float64").eval()
    y = loop(lambda s: nt.sin(norm(s.reshape(1, 2)).reshape(2)), x, n)
    norm.train()
    norm(3.0 * nt.randn(5, 2, dtype="float64", rng=0))
    norm.eval()
    return y


def of_a_number(loop, x, n):
    factor = 2.0
    y = loop(lambda s: nt.sin(s * factor), x, n)
    factor = 3.0
    return y


#: Those that are noticed in each case, and those that only `verify` tells.
ALWAYS = {
    "a list bound anew": listed(constant, rebound(constant)),
    "a list of leaves bound anew": listed(leaf, rebound(leaf)),
    "a list written": listed(constant, lambda xs, i: xs[i].fill_(2.0)),
    "a list of leaves written": listed(leaf, lambda xs, i: xs[i].fill_(2.0)),
    "a leaf written by steps": kept(averaging_weight),
    "an optimizer in steps": kept(training_weight),
    "a constant written": used(lambda s, c: nt.sin(s * c)),
    "a constant bound anew": used(lambda s, c: nt.sin(s * c), rebind=True),
    "a constant of a loop inside written": used(lambda s, c: nt.checkpoint_loop(lambda q: nt.sin(q * c), s, 2)),
    "a constant of a loop inside bound anew": used(
        lambda s, c: nt.checkpoint_loop(lambda q: nt.sin(q * c), s, 2), rebind=True
    ),
    "a leaf detached and written": used(lambda s, c: nt.sin(s * c.detach()), start=leaf),
    "a leaf detached and bound anew": used(lambda s, c: nt.sin(s * c.detach()), start=leaf, rebind=True),
    "an index written": used(lambda s, c: nt.sin(s)[(c < 0.4).astype("int64")] * nt.arange(1.0, 3.0)),
    "a matrix cast": used(casting),
    "a mask of where": used(lambda s, c: nt.where(c > 0.4, nt.sin(s), 0.5 * s)),
    "a tensor that steps write to": kept(partial(accumulating, lambda h: h.detach())),
}
BY_VALUE = {
    "a list of arrays": listed(lambda *v: np.array(v), lambda xs, i: xs[i].fill(2.0)),
    "an in-place op": used(in_place),
    "an attention mask": used(attending),
    "batch normalisation": normalised,
    "numpy": used(lambda s, c: nt.sin(s * c.numpy())),
    "asarray": used(lambda s, c: nt.sin(s * (2.0 * np.asarray(c)))),
    "item": used(lambda s, c: nt.sin(s * c[0].item())),
    "a bound by item": used(lambda s, c: nt.clip(nt.sin(s), -c[0].item(), c[0].item()) + 0.1 * s),
    "a number": of_a_number,
    "another thread": used(threaded),
    "a tensor that steps write to, by item": kept(partial(accumulating, lambda h: h[0].item())),
    "a tensor that steps write to, by numpy": kept(partial(accumulating, lambda h: h.numpy().copy())),
}


NAMED = r"loop: (step \d of|its step|the derivative needs)"


def gradient(program, loop, start, n):
    x = leaf(*start)
    (program(loop, x * 1.0, n) * constant(1.0, 2.0)).sum().backward()
    return x.grad.numpy()


@pytest.mark.parametrize("start", [(0.3, 0.7), (0.0, 0.0)], ids=["numbers", "zeros"])
@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("program", [*ALWAYS.values(), *BY_VALUE.values()], ids=[*ALWAYS, *BY_VALUE])
def test_verify_notices_what_changes(program, n, start):
    loop = partial(nt.checkpoint_loop, verify=True, snapshots=2)
    with pytest.raises((GradientError, OverwrittenError), match=NAMED):
        gradient(program, loop, start, n)


@pytest.mark.parametrize("start", [(0.3, 0.7), (0.0, 0.0)], ids=["numbers", "zeros"])
@pytest.mark.parametrize("program", ALWAYS.values(), ids=ALWAYS)
def test_what_changes_in_tensors_is_noticed_without_verify(program, start):
    with pytest.raises((GradientError, OverwrittenError), match=NAMED):
        gradient(program, partial(nt.checkpoint_loop, snapshots=2), start, 5)


@pytest.mark.parametrize("program", [*ALWAYS.values(), *BY_VALUE.values()], ids=[*ALWAYS, *BY_VALUE])
def test_verify_notices_what_changes_in_recorded_gradients(program):
    loop = partial(nt.checkpoint_loop, verify=True)
    with pytest.raises((GradientError, OverwrittenError)):
        nt.hessian(lambda x: (program(loop, x, 5) ** 2).sum())(np.array([0.3, 0.7]))


def filled():
    buffer = nt.zeros(2, dtype="float64")

    def step(s, i):
        buffer.fill_(0.1 * i)
        return nt.sin(s) + buffer

    return step


def copied():
    buffer = nt.zeros(2, dtype="float64")

    def step(s):
        with nt.no_grad():
            buffer.copy_(2.0 * s.detach())
        return nt.sin(s) + 2.0 * buffer

    return step


def masked(make):
    nt.seed(0)
    masks = [None]

    def step(s, i):
        if i == 0:
            masks[0] = make()
        return nt.sin(s) * masks[0]

    return step


def cached(size, make):
    table = lru_cache(size)(make)
    return lambda s, i: nt.sin(s) * table(i % 3)


def scaled_once():
    scales = []

    def step(s):
        if not scales:
            scales.append(s.detach().abs().max() + 1.0)
        return nt.sin(s) / scales[0]

    return step


def logged():
    log = nt.zeros(9, 2, dtype="float64")

    def step(s, i):
        log[i] = s.detach()
        return 1.1 * nt.sin(s)

    return step


def held():
    seen = []

    def step(s):
        seen.append(s.detach())
        return nt.sin(s) * seen[-1]

    return step


FACTOR = constant(0.3, 0.2)
RIGHT = {
    "a buffer that is filled": kept(filled),
    "a buffer of two loops": lambda loop, x, n: (lambda step: loop(step, x, n) + loop(step, x, n))(filled()),
    "a buffer of the state": kept(copied),
    "a mask of the first step": kept(partial(masked, lambda: (nt.rand(2) > 0.3).astype("float64"))),
    "numbers of the first step": kept(partial(masked, lambda: nt.rand(2, dtype="float64"))),
    "a small cache": kept(partial(cached, 2, lambda k: nt.exp(FACTOR * k))),
    "a small cache of new tensors": kept(partial(cached, 2, lambda k: constant(0.1 * k, 0.2))),
    "a small cache of what is computed": kept(partial(cached, 2, lambda k: nt.exp(constant(0.1 * k, 0.2)))),
    "a cache": kept(partial(cached, None, lambda k: nt.exp(FACTOR * k))),
    "a scale of the first state": kept(scaled_once),
    "a log": kept(logged),
    "a log that is read": kept(held),
    "a constant bound to an equal one": lambda loop, x, n: used(
        lambda s, c: nt.sin(s * c), rebind=True, start=lambda *v: constant(0.5, 0.2)
    )(loop, x, n),
}


@pytest.mark.parametrize("options", [{}, {"snapshots": 2}, {"snapshots": 2, "verify": True}])
@pytest.mark.parametrize("program", RIGHT.values(), ids=RIGHT)
def test_what_is_the_same_again_is_not_suspected(program, options):
    loop = partial(nt.checkpoint_loop, **options)
    expected = gradient(program, plain, (0.3, 0.7), 9)
    np.testing.assert_allclose(gradient(program, loop, (0.3, 0.7), 9), expected, rtol=1e-13)

    def second(loop):
        return nt.hessian(lambda x: (program(loop, x, 9) ** 2).sum())(np.array([0.3, 0.7]))

    np.testing.assert_allclose(second(loop), second(plain), rtol=1e-11)


def test_what_steps_only_compare_gets_no_gradient():
    w, x = leaf(0.3, -0.2), leaf(0.3, 0.7)
    nt.checkpoint_loop(lambda s: nt.where(w > 0, nt.sin(s), s * w.detach()), x, 3).sum().backward()
    assert w.grad is None


@pytest.mark.parametrize("use", [lambda s, k: s + k, lambda s, k: (s * k + k) * k])
def test_what_a_step_makes_for_itself_is_compared_by_verify_alone(use):
    rng = np.random.default_rng(0)

    def last(verify):
        return nt.checkpoint_loop(
            lambda s: use(nt.sin(s), nt.tensor(rng.normal(size=2)) * 2.0), leaf(0.3, 0.7), 4, verify=verify
        )

    last(verify=False).sum().backward()
    y = last(verify=True).sum()
    with pytest.raises(GradientError, match="gave other values when it ran again"):
        y.backward()


OTHER_FORMS = {
    "a shorter tensor": (lambda s: s * nt.ones(3, dtype="float64"), lambda s: s * nt.full((1,), 7.0, dtype="float64")),
    "a shorter array": (lambda s: s * np.ones(3), lambda s: s * np.full(1, 7.0)),
    "an array for a number": (lambda s: s * 1.0, lambda s: s * np.full(3, 7.0)),
    "a number for an array": (lambda s: s * np.ones(3), lambda s: s * 7.0),
    "a shorter mask": (
        lambda s: nt.where(np.ones(3, bool), s, 2.0 * s),
        lambda s: nt.where(np.zeros(1, bool), s, 2.0 * s),
    ),
    "another dtype": (
        lambda s: s * nt.ones(3, dtype="float64"),
        lambda s: s * nt.full((3,), 7.0, dtype="float32"),
    ),
    "in what does not depend on the state": (
        lambda s: s * (WEIGHT * np.ones(3)),
        lambda s: s * (WEIGHT * np.full(1, 7.0)),
    ),
}
WEIGHT = nt.tensor([1.0, 1.0, 1.0], dtype="float64", requires_grad=True)


@pytest.mark.parametrize("name", OTHER_FORMS)
def test_operands_of_other_shapes_or_dtypes_are_named(name):
    first, later = OTHER_FORMS[name]
    x = nt.tensor(np.ones(3), requires_grad=True)
    runs = itertools.count()
    y = nt.checkpoint_loop(lambda s: (first if next(runs) < 4 else later)(s), x, 4, snapshots=1)
    with pytest.raises(nt.errors.GradientError, match="ran again for the backward"):
        y.sum().backward()
