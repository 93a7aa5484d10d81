"""Parts of the last state that depend on nothing, and steps that other threads work for: as the plain loop does."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from plain_loops import LOOPS, OTHERS, array, assert_as_plain, backward, constant, leaf, on_gradient_tape, plain, total

import numtape as nt
from numtape.errors import NotConnectedError

C = constant(0.3, 0.2)
WEIGHT = leaf(0.4, 0.5)
X = np.array([0.7, 1.1])


def halted(s, i):
    return nt.sin(s[0]), (s[1] * 1.1).detach() if i == 1 else s[1] * s[0]


#: Programs whose result depends on nothing that is tracked.
UNCONNECTED = {
    "a constant": lambda loop, x: loop(lambda s: (nt.sin(s[0]), s[1] * 1.1), (x, C), 3)[1],
    "a constant passed on": lambda loop, x: loop(lambda s: (nt.sin(s[0]), s[1]), (x, C), 3)[1],
    "time": lambda loop, x: loop(lambda s: (nt.sin(s[0]), s[1] + 0.1), (x, nt.tensor(0.0)), 3)[1],
    "an average": lambda loop, x: loop(lambda s: (nt.sin(s[0]), 0.9 * s[1] + 0.1 * s[0].detach()), (x, C), 3)[1],
    "a detached state": lambda loop, x: loop(lambda s: nt.sin(s.detach()), x, 3),
    "a part detached in the end": lambda loop, x: loop(halted, (x, C), 2)[1],
    "a loop inside": lambda loop, x: loop(lambda s: loop(lambda q: (nt.sin(q[0]) * q[1], q[1] * 1.1), s, 2), (x, C), 2)[
        1
    ],
    "loops inside": lambda loop, x: loop(
        lambda s: (loop(lambda q: q * s[0], s[0], 2), loop(lambda q: q * s[1], s[1], 2)), (x, C), 2
    )[1],
    "a loop inside that takes both": lambda loop, x: loop(
        lambda s: loop(lambda q: (q[0] * s[0], q[1] * s[1]), s, 2), (x, C), 2
    )[1],
    "constants alone": lambda loop, x: loop(lambda s: nt.sin(s) * C, C * 1.0, 3),
}


@pytest.mark.parametrize("loop", [plain, *LOOPS.values()], ids=["plain", *LOOPS])
@pytest.mark.parametrize("program", UNCONNECTED.values(), ids=UNCONNECTED)
def test_a_part_that_depends_on_nothing_is_a_constant(program, loop):
    y = program(loop, leaf(0.7, 1.1))
    assert not y.requires_grad
    with pytest.raises(NotConnectedError):
        y.sum().backward()
    assert on_gradient_tape(lambda x: program(loop, x).sum(), X) is None


#: Programs of which one part depends on something, and another part on other things.
CONNECTED = {
    "late": lambda loop, x: loop(lambda s: (nt.sin(s[0]), s[2] * 1.1, s[2]), (x, C, x), 3)[1],
    "once": lambda loop, x: loop(lambda s, i: (nt.sin(s[0]), s[1] * 1.1 + (s[0] if i == 1 else 0.0)), (x, C), 3)[1],
    "by change of places": lambda loop, x: loop(lambda s: (s[1], s[0] * 1.1), (x, C), 3)[1],
    "in a loop inside": lambda loop, x: loop(lambda s: loop(lambda q: (q[0] * q[1], q[1]), s, 2), (x, C), 2)[0],
}


@pytest.mark.parametrize("derivative", [backward, *OTHERS.values()], ids=["backward", *OTHERS])
@pytest.mark.parametrize("program", CONNECTED.values(), ids=CONNECTED)
def test_a_part_that_depends_on_something_is_not(program, derivative):
    assert_as_plain(program, derivative, X)


def test_a_part_that_depends_on_a_weight_alone_has_its_gradient():
    def gradients(loop):
        w, x = leaf(0.4, 0.5), leaf(0.7, 1.1)
        loop(lambda s: (nt.sin(s[0]), s[1] * w), (x, C), 3)[1].sum().backward()
        return x.grad, w.grad.tolist()

    for loop in LOOPS.values():
        assert gradients(loop) == gradients(plain)


POOL = ThreadPoolExecutor(2)

THREADED = {
    "one op": lambda loop, x: loop(lambda s: POOL.submit(lambda: nt.sin(s * C)).result() + s * 0.1, x, 4),
    "two threads": lambda loop, x: loop(lambda s: sum(POOL.map(lambda k: nt.sin(s * WEIGHT * k), [1.0, 2.0])), x, 3),
    "in a loop inside": lambda loop, x: loop(
        lambda s: loop(lambda q: POOL.submit(lambda: nt.sin(q * C) * WEIGHT).result(), s, 2), x, 2
    ),
    "all": lambda loop, x: loop(lambda s: POOL.submit(nt.sin, s).result(), x, 3),
}


@pytest.mark.parametrize("name", ["grad", "jvp", "jvp of tensors", "hessian", "hessian forward", "hvp", "grad of jvp"])
@pytest.mark.parametrize("program", THREADED.values(), ids=THREADED)
def test_other_threads_may_work_for_a_step_to_every_order(program, name):
    assert_as_plain(program, OTHERS[name], X)
    assert_as_plain(program, backward, X)


def test_what_another_thread_computes_with_is_compared():
    factor = [1.0]

    def gradient(x):
        y = nt.checkpoint_loop(lambda s: POOL.submit(lambda: nt.sin(s * factor[0])).result(), x, 3, verify=True)
        factor[0] += 1.0
        return total(y)

    with pytest.raises(nt.errors.GradientError, match="gave other values"):
        array(nt.hessian(gradient)(X))


def test_other_ops_of_another_thread_are_named():
    ops = [nt.sin]
    y = nt.checkpoint_loop(lambda s: POOL.submit(lambda: ops[0](s)).result(), leaf(0.3, 0.7), 3)
    ops[0] = nt.cos
    with pytest.raises(nt.errors.GradientError, match="ran other ops"):
        y.sum().backward()
