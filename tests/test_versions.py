"""Writes in place are noticed, whatever name they go through: the result is right, or an error names the line."""

import gc

import numpy as np
import pytest

import numtape as nt
from numtape.core.record import Record
from numtape.errors import LeafWriteError, LeavesTapeError, OperandError, OverwrittenError, UnsupportedError


def leaf(*values):
    return nt.tensor(values if len(values) > 1 else values[0], dtype="float64", requires_grad=True)


def write_item_of_view(base, w):
    base[0][1] = w


def add_to_view(base, w):
    row = base[0]
    row += w


def write_through_reshape(base, w):
    base.reshape(4)[3] = w


@pytest.mark.parametrize("write", [write_item_of_view, add_to_view, write_through_reshape])
def test_a_tracked_write_through_a_view_of_an_untracked_base_is_not_lost(write):
    w, v = leaf(2.0), leaf(1.0)
    base = nt.zeros(2, 2, dtype="float64")
    write(base, w)
    with pytest.raises(OverwrittenError, match="through another view"):
        (base * v).sum().backward()
    with pytest.raises(OverwrittenError, match="through another view"):
        base.sum()


def test_a_view_of_a_base_that_took_a_tracked_write_is_stale():
    w = leaf(1.0, 1.0, 1.0)
    base = nt.zeros(3, dtype="float64")
    row = base[:2]
    base[:] = w
    with pytest.raises(OverwrittenError):
        row.sum()


def stale_view():
    base = nt.zeros(3, dtype="float64")
    row = base[:]
    base[:] = leaf(1.0, 2.0, 3.0) * 2.0
    return row


@pytest.mark.parametrize(
    "write",
    [
        lambda row: row.mul_(1.5),
        lambda row: row.__setitem__(0, 5.0),
        lambda row: row[:2].add_(1.0),
        lambda row: np.add.at(row, [0], 1.0),
        lambda row: np.put(row, [0], 1.0),
        lambda row: np.nextafter(nt.ones(3), 2.0, out=row, where=[True, False, False]),
    ],
)
def test_no_write_that_is_not_recorded_makes_a_stale_view_usable(write):
    row = stale_view()
    with nt.no_grad():
        write(row)
    with pytest.raises(OverwrittenError, match="through another view"):
        (row * row).sum()


def test_a_stale_view_that_was_written_says_so():
    row = stale_view()
    with nt.no_grad():
        row.mul_(1.5)
    with pytest.raises(OverwrittenError, match=r"through another view, before it was written itself at .*mul_"):
        row.sum()


@pytest.mark.parametrize(
    ("write", "arguments"),
    [
        (np.put, ([0], 1.0)),
        (np.place, ([True, False, False], [1.0])),
        (np.putmask, ([True, False, False], 1.0)),
        (np.put_along_axis, (np.array([0]), 1.0, 0)),
        (np.add.at, ([0], 1.0)),
        (np.i0, ()),
    ],
)
def test_a_stale_view_is_tracked_for_numpy_functions_without_an_op(write, arguments):
    with pytest.raises(UnsupportedError, match="an operand is tracked"):
        write(stale_view(), *arguments)


def test_a_stale_view_leaves_the_tape_by_explicit_exits_only():
    row, array = stale_view(), np.zeros(3)
    with pytest.raises(LeavesTapeError):
        np.asarray(row)
    with pytest.raises(LeavesTapeError):
        array[:] = row
    with pytest.raises(OperandError, match="out is an array"):
        np.add(row, 1.0, out=array)
    assert row.numpy().tolist() == row.detach().tolist() == row.tolist() == [2.0, 4.0, 6.0]


def test_a_stale_view_that_is_overwritten_as_a_whole_can_be_used():
    row = stale_view()
    np.add(np.ones(3), 1.0, out=row)
    assert (row * row).sum().item() == 12.0


def overwritten(x):
    """Compute a number, then overwrite it without a record: its history tells another one."""
    y = (x * x).sum()
    with nt.no_grad():
        y += 1.0
    return y


def on_a_tape(differentiate):
    with nt.Tape() as tape:
        x = tape.watch(nt.tensor([1.0, 2.0]))
        y = overwritten(x)
    return differentiate(tape, y, x)


@pytest.mark.parametrize(
    ("name", "differentiate"),
    [
        ("backward", lambda: overwritten(leaf(1.0, 2.0)).backward()),
        ("backward", lambda: on_a_tape(lambda tape, y, x: tape.backward(y))),
        ("gradient", lambda: on_a_tape(lambda tape, y, x: tape.gradient(y, x))),
        ("jacobian", lambda: on_a_tape(lambda tape, y, x: tape.jacobian(y, x))),
        ("forward_gradient", lambda: on_a_tape(lambda tape, y, x: tape.forward_gradient(x, y))),
        ("compute_gradients", lambda: nt.compute_gradients(overwritten(leaf(1.0, 2.0)))),
        ("grad of overwritten", lambda: nt.grad(overwritten)(np.ones(2))),
        ("grad of overwritten", lambda: nt.grad(overwritten)(nt.ones(2))),
        ("vjp of overwritten", lambda: nt.vjp(overwritten, np.ones(2))),
        ("jvp of overwritten", lambda: nt.jvp(overwritten, np.ones(2), np.ones(2))),
        ("jacobian of overwritten", lambda: nt.jacobian(overwritten)(np.ones(2))),
        ("jacobian of overwritten", lambda: nt.jacobian(overwritten, mode="forward")(np.ones(2))),
        ("hessian of overwritten", lambda: nt.hessian(overwritten)(np.ones(2))),
        ("hvp of overwritten", lambda: nt.hvp(overwritten, np.ones(2), np.ones(2))),
    ],
)
def test_what_was_overwritten_without_a_record_is_not_differentiated(name, differentiate):
    with pytest.raises(OverwrittenError, match=rf"^{name}: .*without being recorded at .*y \+= 1"):
        differentiate()


def test_views_without_recorded_writes_take_what_no_grad_writes():
    w, base = leaf(1.0, 1.0, 1.0), nt.zeros(3, dtype="float64")
    row = base[:]
    with nt.no_grad():
        base += 1.0
        row.mul_(3.0)
    (row * base * w).sum().backward()
    assert w.grad.tolist() == [9.0, 9.0, 9.0]


@pytest.mark.parametrize("cut", [lambda y: y.detach(), nt.stop_gradient, lambda y: y.tensor()])
def test_a_detached_tensor_shares_its_version(cut):
    x = leaf(1.0, 2.0)
    y = x * 3.0
    z = (y * y).sum()
    d = cut(y)
    d += 10.0
    with pytest.raises(OverwrittenError):
        z.backward()


def test_a_leaf_cannot_be_written_through_a_view():
    x, w = leaf(1.0, 2.0), leaf(5.0)
    with pytest.raises(LeafWriteError, match="view of a leaf"):
        x[0:1][0] = w
    with pytest.raises(LeafWriteError):
        np.add(np.ones(2), 1.0, out=x[:])
    with pytest.raises(LeafWriteError):
        x[0:2] += 1.0
    assert x.tolist() == [1.0, 2.0]


def test_memory_beside_a_leaf_can_be_written():
    buffer = nt.zeros(8)
    w, u, rest = buffer[:3], buffer[3:6], buffer[6:]
    for leaf in (w, u):
        leaf.requires_grad_()
    views = w.view(3, 1), u[:2]
    rest += 1.0
    for target, title in ((views[0], "view of a leaf"), (views[1], "view of a leaf"), (u, "add: a leaf")):
        with pytest.raises(LeafWriteError, match=title):
            target.add_(1.0)
    del w, views
    with pytest.raises(LeafWriteError, match="add: a leaf"):
        u += 1.0
    assert buffer.tolist() == [0.0] * 6 + [1.0] * 2


def test_a_transform_does_not_let_its_function_write_the_callers_memory():
    array = np.array([1.0, 2.0])

    def doubles(z):
        z *= 2.0
        return z.sum()

    for given in (array, leaf(1.0, 2.0)):
        with pytest.raises(LeafWriteError):
            nt.grad(doubles)(given)
    assert array.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("split", [lambda c: nt.split(c, 2), lambda c: nt.chunk(c, 2), lambda c: nt.array_split(c, 2)])
def test_parts_share_the_version_of_what_was_split(split):
    x = leaf(1.0, 1.0, 1.0, 1.0)
    c = nt.ones(4, dtype="float64")
    a, _ = split(c)
    y = (x * c).sum()
    a += 5.0
    with pytest.raises(OverwrittenError):
        y.backward()


def test_overwriting_an_output_that_a_rule_reads_is_noticed():
    a = leaf([2.0, 1.0], [1.0, 3.0])
    q, r = nt.qr(a)
    loss = q[0, 0] + r.sum()
    q[...] = 0.0
    with pytest.raises(OverwrittenError):
        loss.backward()


def test_an_index_may_be_written_after_use():
    x = leaf(1.0, 2.0, 3.0)
    index = nt.tensor([0])
    y = x[index].sum()
    index += 2
    y.backward()
    assert x.grad.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("change", ["backward", "zero_grad"])
def test_a_gradient_that_was_used_and_then_changed_is_noticed(change):
    x, w = leaf(1.0), leaf(3.0)
    (x * 2.0).backward()
    y = x.grad * w
    if change == "backward":
        (x * 5.0).backward()
    else:
        x.zero_grad(set_to_none=False)
    with pytest.raises(OverwrittenError):
        y.backward()


def test_setting_a_gradient_copies_it():
    x, y = leaf(1.0), leaf(2.0)
    g = nt.tensor(0.0, dtype="float64")
    x.grad = g
    y.grad = g
    (x * 2.0 + y * 3.0).backward()
    assert (x.grad.item(), y.grad.item(), g.item()) == (2.0, 3.0, 0.0)


def test_a_pullback_notices_that_its_argument_was_overwritten():
    t = nt.tensor([1.0, 2.0], dtype="float64")
    _, pull = nt.vjp(lambda x: x * x, t)
    t += 10.0
    with pytest.raises(OverwrittenError):
        pull(np.ones(2))


def test_numpy_functions_that_write_or_return_views_are_noticed():
    for write in (
        lambda c: np.copyto(c, 7.0),
        lambda c: np.add.at(c, [0], 5.0),
        lambda c: np.put(c, [0], 5.0),
        lambda c: np.real(c).__iadd__(1.0),
    ):
        x = leaf(1.0, 1.0)
        c = nt.ones(2, dtype="float64")
        y = (x * c).sum()
        write(c)
        with pytest.raises(OverwrittenError):
            y.backward()


def test_a_version_made_in_a_recorded_sweep_is_the_tensors_own():
    x, w, s = leaf(1.0, 2.0), leaf([1.0, 0.0], [0.0, 1.0]), leaf(1.0, 1.0)
    with nt.Tape() as tape:
        y = x * 1.0
        g = tape.backward(y @ w, gradient=s, create_graph=True)[w]
        y += 100.0
        total = (g * 3.0).sum()
    with pytest.raises(OverwrittenError):
        tape.gradient(total, s)


def test_only_the_view_that_wrote_is_taken_for_an_own_write():
    x, w = leaf(1.0, 2.0, 3.0, 4.0), leaf(1.0, 1.0)
    y = x * 1.0
    u = y[2:4]
    u += w
    with nt.no_grad():
        p = y[0:2]
    with pytest.raises(OverwrittenError):
        y[0:2] = p


def test_accumulating_into_an_untracked_buffer_makes_no_cycle():
    gc.collect()
    gc.disable()
    try:
        w = leaf(1.0, 2.0)
        before = sum(type(o) is Record for o in gc.get_objects())
        total = nt.zeros(2, dtype="float64")
        total += w
        total[0:1] = w[1:]
        del total
        assert sum(type(o) is Record for o in gc.get_objects()) == before
    finally:
        gc.enable()


def test_discrete_ops_write_into_untracked_tensors():
    x = leaf(1.0, 2.0)
    b = nt.tensor([False, False])
    np.equal(x, 1.0, out=b)
    assert b.tolist() == [True, False]


def test_a_retained_gradient_follows_the_tensor_through_a_write():
    x = leaf(2.0)
    y = x * 5.0
    y.retain_grad()
    y *= 3.0
    (y * 7.0).backward()
    assert y.grad.item() == 7.0
    assert x.grad.item() == 105.0


def test_scopes_see_writes():
    from numtape.core.scopes import Scope

    class Count(Scope):
        def __init__(self):
            self.names = []

        def around(self, op, compute, arrays, params):
            self.names.append(op.name)
            return compute(op, arrays, params)

    x = nt.ones(3)
    with Count() as count:
        x += 1.0
        x *= 2.0
        nt.exp(x, out=x)
    assert count.names == ["add", "mul", "exp"]


def test_differences_of_order_0_are_a_copy():
    x = nt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    loss = (x * x).sum()
    copy = nt.diff(x, n=0)
    copy[0] = 100.0
    loss.backward()
    assert x.grad.tolist() == [2.0, 4.0, 6.0]
