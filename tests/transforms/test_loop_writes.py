"""Steps that change what they were given, and programs that write to what a loop has seen: right, or named."""

import dataclasses

import numpy as np
import pytest

import numtape as nt
from numtape.errors import GradientError, OverwrittenError


def leaf(*values):
    return nt.tensor(np.array(values), requires_grad=True)


def in_dict(s):
    s["x"] = nt.sin(s["x"]) * s["k"]
    return s


def in_list(s):
    s[0] = nt.sin(s[0]) * s[1]
    return s


def popped(s):
    x = s.pop("x")
    return {"k": s.pop("k"), "x": nt.sin(x) * 1.5}


@dataclasses.dataclass
class Ball:
    place: nt.Tensor
    speed: nt.Tensor


def leapfrog(ball):
    ball.speed = ball.speed - 0.1 * nt.sin(ball.place)
    ball.place = ball.place + 0.1 * ball.speed
    return ball


@pytest.mark.parametrize(
    ("step", "state"),
    [
        (in_dict, lambda x, k: {"x": x, "k": k}),
        (in_list, lambda x, k: [x, k]),
        (popped, lambda x, k: {"x": x, "k": k}),
        (leapfrog, Ball),
    ],
)
@pytest.mark.parametrize("options", [{"n": 5}, {"n": 5, "verify": True, "snapshots": 1}])
def test_a_step_may_put_new_tensors_into_its_state_and_return_it(step, state, options):
    def last(loop):
        x, k = leaf(0.3, 0.7), leaf(1.4, 0.9)
        sum(nt.sum(part) for part in nt.tree.leaves(loop(state(x, k)))).backward()
        return [x.grad.numpy(), k.grad.numpy()]

    def plain(s):
        for _ in range(5):
            s = step(s)
        return s

    given = state(leaf(0.3, 0.7), leaf(1.4, 0.9))
    leaves = nt.tree.leaves(given)
    nt.checkpoint_loop(step, given, **options)
    assert all(a is b for a, b in zip(nt.tree.leaves(given), leaves, strict=True))
    found, expected = last(lambda s: nt.checkpoint_loop(step, s, **options)), last(plain)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


def test_states_that_are_kept_and_overwritten_are_named():
    x, kept = leaf(0.3, 0.7), []

    def step(s):
        kept.append(s.detach())
        return nt.sin(s) * 1.5

    y = nt.checkpoint_loop(step, x * 1.0, 6)
    kept[3] *= 100.0
    with pytest.raises(OverwrittenError, match=r"part of the state before step \d was overwritten since, at .*kept"):
        y.sum().backward()


def test_results_that_were_passed_on_unchanged_can_be_written():
    x, theta, dt = leaf(0.3, 0.7), leaf(0.9, 1.2), nt.tensor(np.ones(2))
    y, second, third = nt.checkpoint_loop(lambda s: (nt.sin(s[0] * s[1] * s[2]), s[1], s[2]), (x, theta, dt), 5)
    second *= 2.0
    third[:] = 9.0
    assert (theta.tolist(), dt.tolist()) == ([0.9, 1.2], [1.0, 1.0])
    (y.sum() + second.sum()).backward()
    plain, other = leaf(0.3, 0.7), leaf(0.9, 1.2)
    s = plain
    for _ in range(5):
        s = nt.sin(s * other)
    (s.sum() + (other * 2.0).sum()).backward()
    np.testing.assert_allclose(x.grad.numpy(), plain.grad.numpy())
    np.testing.assert_allclose(theta.grad.numpy(), other.grad.numpy())


def test_a_state_that_a_step_overwrites_unrecorded_is_named():
    def step(s):
        with nt.no_grad():
            s *= 1.1
        return nt.sin(s)

    with pytest.raises(OverwrittenError):
        nt.checkpoint_loop(step, leaf(0.3, 0.7) * 1.0, 5).sum().backward()


def halved(dt):
    return lambda s: s + (dt / 2) * nt.sin(s)


@pytest.mark.parametrize("write", [lambda dt: dt.mul_(0.5), lambda dt: dt.zero_()])
def test_constants_that_steps_compute_with_and_that_are_overwritten_are_named(write):
    x, dt = leaf(0.3, 0.7), nt.tensor(np.array(0.1))
    y = nt.checkpoint_loop(halved(dt), x, 5)
    write(dt)
    with pytest.raises(OverwrittenError, match=r"its step reads a tensor of shape \(\) that was overwritten since"):
        y.sum().backward()


def test_data_that_is_bound_anew_is_named():
    w, data = leaf(0.3, 0.7), nt.zeros(6, 2, dtype="float64")

    def step(s, i):
        return nt.tanh(s * w + data[i])

    y = nt.checkpoint_loop(step, nt.zeros(2, dtype="float64"), 6)
    data = nt.ones(6, 2, dtype="float64")
    with pytest.raises(GradientError, match="took other tensors from outside when it ran again"):
        y.sum().backward()


def test_what_a_step_leaves_to_the_next_beside_the_state_is_named_and_what_it_computes_once_is_not():
    memory = {"mean": nt.zeros(2, dtype="float64")}

    def averaging(s):
        memory["mean"] = 0.9 * memory["mean"] + 0.1 * s.detach()
        return nt.sin(s - memory["mean"])

    y = nt.checkpoint_loop(averaging, leaf(0.3, 0.7), 6)
    with pytest.raises(GradientError, match="took other tensors from outside when it ran again"):
        y.sum().backward()

    factor = nt.tensor(np.array(0.1))

    def caching(s):
        memory.setdefault("factor", nt.exp(factor))
        return nt.sin(s * memory["factor"])

    x = leaf(0.3, 0.7)
    nt.checkpoint_loop(caching, x, 6).sum().backward()
    plain = leaf(0.3, 0.7)
    s = plain
    for _ in range(6):
        s = nt.sin(s * np.exp(0.1))
    s.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), plain.grad.numpy())


@pytest.mark.parametrize("keep", [lambda log, s: log + s.detach().sum(), lambda log, s: nt.maximum(log, s.detach())])
def test_what_is_only_looked_at_may_go_from_step_to_step(keep):
    log = nt.zeros(2, dtype="float64")

    def step(s):
        nonlocal log
        log = keep(log, s)
        return nt.sin(s) * 1.5

    x = leaf(0.3, 0.7)
    nt.checkpoint_loop(step, x, 8).sum().backward()
    plain = s = leaf(0.3, 0.7)
    for _ in range(8):
        s = nt.sin(s) * 1.5
    s.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), plain.grad.numpy())


def test_results_that_are_one_tensor_are_apart():
    def step(s):
        both = nt.sin(s[0])
        return both, both

    x = leaf(0.3, 0.7)
    first, second = nt.checkpoint_loop(step, (x, x), 3)
    second *= 2.0
    (first * first).sum().backward()
    plain = s = leaf(0.3, 0.7)
    for _ in range(3):
        s = nt.sin(s)
    (s * s).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), plain.grad.numpy())
