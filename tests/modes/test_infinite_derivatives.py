"""Beside an infinite derivative, the other elements of a Jacobian are what they are: zeros do not become NaN."""

import numpy as np
import pytest

import numtape as nt

MODES = ["auto", "forward", "reverse", "mixed"]
X = np.array([0.0, 1.0, 4.0])
W = np.arange(9.0).reshape(3, 3)


@pytest.mark.parametrize("mode", MODES)
def test_a_diagonal_has_zeros_beside_it(mode):
    found = nt.jacobian(lambda x: 2.0 * nt.sqrt(x), mode=mode)(X)
    np.testing.assert_array_equal(found, np.diag([np.inf, 1.0, 0.5]))


@pytest.mark.parametrize("mode", MODES)
def test_products_with_what_depends_on_all_inputs(mode):
    found = nt.jacobian(lambda x: nt.sqrt(x) * (W @ x), mode=mode)(X)
    np.testing.assert_array_equal(found, [[np.inf, 0.0, 0.0], [3.0, 16.0, 5.0], [12.0, 14.0, 25.75]])


@pytest.mark.parametrize("mode", MODES)
def test_in_float32_and_in_chunks(mode):
    found = nt.jacobian(nt.sqrt, mode=mode, chunk_size=2)(X.astype(np.float32))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.diag([np.inf, 0.5, 0.25]))


@pytest.mark.parametrize("mode", MODES)
def test_several_outputs_and_arguments(mode):
    f = nt.jacobian(lambda x, y: {"a": nt.sqrt(x) * y, "b": y * y}, argnums=(0, 1), mode=mode)
    found = f(X, np.array([1.0, 0.0, 1.0]))
    np.testing.assert_array_equal(found["a"][0], np.diag([np.inf, 0.0, 0.25]))
    np.testing.assert_array_equal(found["a"][1], np.diag([0.0, 1.0, 2.0]))
    np.testing.assert_array_equal(found["b"][0], np.zeros((3, 3)))
    np.testing.assert_array_equal(found["b"][1], np.diag([2.0, 0.0, 2.0]))


@pytest.mark.parametrize("mode", MODES)
def test_hessians(mode):
    found = nt.hessian(lambda x: nt.sqrt(x).sum() + (x * x).sum(), mode=mode)(X)
    np.testing.assert_array_equal(found, np.diag([-np.inf, 1.75, 1.96875]))


@pytest.mark.parametrize("mode", MODES)
def test_of_a_tape_and_recorded(mode):
    w = nt.tensor(np.ones(3), requires_grad=True)
    with nt.Tape(persistent=True) as tape:
        x = tape.watch(nt.tensor(X))
        y = nt.sqrt(x) * w
    np.testing.assert_array_equal(tape.jacobian(y, x, mode=mode).numpy(), np.diag([np.inf, 0.5, 0.25]))
    nt.jacobian(lambda x: nt.sqrt(x) * w, mode=mode)(nt.tensor(X))[1:, 1:].sum().backward()
    np.testing.assert_array_equal(w.grad.numpy()[1:], [0.5, 0.25])


@pytest.mark.parametrize("mode", MODES)
def test_what_is_no_number_stays_so(mode):
    with np.errstate(all="ignore"):
        found = nt.jacobian(lambda x: nt.log(x) * 0.0 + x, mode=mode)(X)
    np.testing.assert_array_equal(found, [[np.nan, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


def test_an_op_without_the_other_mode_leaves_what_was_found():
    @nt.custom_gradient
    def root(x):
        out = nt.sqrt(x)
        return out, lambda g: g * 0.5 / out

    found = nt.jacobian(root, mode="reverse")(X)
    np.testing.assert_array_equal(np.diag(found), [np.inf, 0.5, 0.25])
