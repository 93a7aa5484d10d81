"""Python's operators: what a tensor cannot use is left to the other operand."""

import numpy as np
import pytest

import numtape as nt


class Other:
    def __radd__(self, other):
        return "radd"

    def __rmatmul__(self, other):
        return "rmatmul"

    def __gt__(self, other):
        return "gt"


def test_unknown_operands_get_their_turn():
    t = nt.ones(2)
    assert t + Other() == "radd"
    assert t @ Other() == "rmatmul"
    assert (t < Other()) == "gt"


@pytest.mark.parametrize("other", ["a", None, object()])
def test_equality_with_what_is_no_number_is_false(other):
    t = nt.ones(2)
    assert (t == other) is False
    assert (t != other) is True
    assert t in [other, t]


def test_tensors_are_hashable_and_compare_elementwise():
    a, b = nt.ones(2), nt.ones(2)
    assert len({a, b, a}) == 2
    assert (a == b).tolist() == [True, True]


def test_bits_of_integers_and_bools():
    assert (nt.tensor([6]) & np.array([3])).tolist() == [2]
    assert (np.array([3]) & nt.tensor([6])).tolist() == [2]
    assert (~nt.tensor([5])).tolist() == [-6]
    assert (True | nt.tensor([False, True])).tolist() == [True, True]
    assert ((nt.tensor([1.0, 3.0]) > 2.0) ^ True).tolist() == [True, False]


def test_powers_keep_the_dtype_rules():
    assert (nt.tensor([2, 3]) ** 2).dtype == np.int64
    assert (nt.tensor([2, 3]) ** 2.0).dtype == np.float32
    assert (nt.tensor([2.0]) ** 2).dtype == np.float32
    assert (2 ** nt.tensor([1.0, 2.0])).tolist() == [2.0, 4.0]


def test_numpy_arrays_on_the_left_record():
    x = nt.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
    (np.array([3.0, 4.0]) * x).sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]
    assert isinstance(np.float64(2.0) * x, nt.Tensor)


def test_numpy_calls_are_matched_by_numpys_signature():
    x = nt.tensor([[3.0, 1.0], [2.0, 4.0]], dtype="float64")
    assert np.sort(x, 0, "stable").tolist() == [[2.0, 1.0], [3.0, 4.0]]
    assert np.cumsum(x, 0, np.float64).tolist() == [[3.0, 1.0], [5.0, 5.0]]
    assert np.argsort(x, -1, "stable").tolist() == [[1, 0], [0, 1]]
    assert np.sum(a=x) == 10.0
    assert np.max(x, 0, None, True).tolist() == [[3.0, 4.0]]
    assert np.var(x, 0, None, None, 1).tolist() == [0.5, 4.5]
    assert np.sum(x, axis=()).tolist() == x.tolist()
    assert np.add.reduce(x).tolist() == [5.0, 5.0]
    assert np.add.reduce(x, axis=None) == 10.0
    assert np.maximum.reduce(x, axis=1).tolist() == [3.0, 4.0]
    assert np.add.accumulate(x, axis=1).tolist() == [[3.0, 4.0], [2.0, 6.0]]


def test_in_place_methods_write_and_return_the_tensor():
    x = nt.tensor([1.0, -2.0, 3.0])
    assert x.add_(1.0) is x
    assert x.sub_(nt.ones(3), alpha=2).mul_(2.0).div_(4.0).tolist() == [0.0, -1.5, 1.0]
    assert x.clamp_(min=-1.0).tolist() == [0.0, -1.0, 1.0]
    assert x.copy_(np.arange(3.0)).tolist() == [0.0, 1.0, 2.0]
    assert x.fill_(4.0).tolist() == [4.0, 4.0, 4.0]
    assert x.zero_().tolist() == [0.0, 0.0, 0.0]


def test_in_place_methods_are_recorded():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    y = w * 3.0
    y.mul_(w).add_(w, alpha=2.0)
    y.sum().backward()
    assert w.grad.tolist() == [8.0, 14.0]


WRITES = {
    "fill_": lambda y, x: y.fill_(x),
    "copy_": lambda y, x: y.copy_(x),
    "ellipsis": lambda y, x: y.__setitem__(..., x),
    "nothing": lambda y, x: y.__setitem__((), x),
    "a new axis": lambda y, x: y.__setitem__(None, x),
    "a mask": lambda y, x: y.__setitem__(np.array(True), x),
}


@pytest.mark.parametrize("shape", [(), (2,)])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_is_written_over_a_tracked_tensor_has_the_gradient(write, shape):
    w, x = nt.full(shape, 3.0, requires_grad=True), nt.full(shape, 2.0, requires_grad=True)
    y = w * w
    write(y, x)
    (y * y).sum().backward()
    assert w.grad.tolist() == np.zeros(shape).tolist()
    assert x.grad.tolist() == np.full(shape, 4.0).tolist()


@pytest.mark.parametrize("shape", [(), (2,)])
def test_zero_and_clamp_are_recorded_for_any_shape(shape):
    w = nt.full(shape, 3.0, requires_grad=True)
    y = w * w
    y.zero_()
    (y * y + w).sum().backward()
    assert w.grad.tolist() == np.ones(shape).tolist()
    for bounds, slope in (((0.0, 10.0), 6.0), ((0.0, 1.0), 0.0), ((None, 9.0), 6.0), ((10.0,), 0.0)):
        w.grad = None
        y = w * w
        assert y.clamp_(*bounds) is y
        y.sum().backward()
        assert w.grad.tolist() == np.full(shape, slope).tolist()


def test_data_is_the_memory_of_a_leaf_without_its_history():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    assert not w.data.requires_grad
    with nt.no_grad():
        w.data -= 0.5
    assert w.tolist() == [0.5, 1.5]
    w.data = nt.tensor([5.0, 6.0])
    assert w.tolist() == [5.0, 6.0]
    assert w.requires_grad


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_data_that_was_replaced_can_be_put_back(dtype):
    model = nt.nn.Linear(2, 1).to(dtype)
    optimizer = nt.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)

    def step():
        optimizer.zero_grad()
        model(nt.ones(1, 2, dtype=dtype)).sum().backward()
        optimizer.step()

    step()
    before = {name: p.tolist() for name, p in model.named_parameters()}
    backup = {name: p.data for name, p in model.named_parameters()}
    for p in model.parameters():
        p.data = nt.full(p.shape, 8.0, dtype=dtype)
    step()
    assert model.weight.tolist() == [[7.25, 7.25]]
    assert model.state_dict()["bias"].tolist() == [7.25]
    for name, p in model.named_parameters():
        p.data = backup[name]
    assert {name: p.tolist() for name, p in model.named_parameters()} == before
    step()
    assert {name: p.tolist() for name, p in backup.items()} == before
    assert model.weight.tolist() == (nt.tensor(before["weight"], dtype=dtype) - 0.875).tolist()


def test_data_of_two_tensors_can_be_swapped():
    a, b = nt.tensor([1.0, 1.0], requires_grad=True), nt.tensor([2.0, 2.0], requires_grad=True)
    a.data, b.data = b.data, a.data
    assert (a.tolist(), b.tolist()) == ([2.0, 2.0], [1.0, 1.0])
    (a * b).sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([1.0, 1.0], [2.0, 2.0])


def test_data_that_is_replaced_is_noticed_by_graphs_that_read_it():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    old, part = x.data, x[:1]
    loss = (x * x).sum()
    x.data = [3.0, 4.0]
    old += 1.0  # It is no memory of a leaf any more.
    with pytest.raises(nt.errors.OverwrittenError, match="the value of 'b', saved at"):
        loss.backward(retain_graph=True)
    x.data = old
    with pytest.raises(nt.errors.OverwrittenError):
        loss.backward()
    with pytest.raises(nt.errors.OverwrittenError, match="clone"):
        part * 2.0
    y = x * x
    z = y * y
    y.data = [0.0, 0.0]
    z.sum().backward()  # What was saved is as it was.
    assert x.grad.tolist() == [32.0, 108.0]
    with pytest.raises(nt.errors.OverwrittenError):
        y + 1.0


def test_data_that_cannot_be_stored_leaves_the_tensor_as_it_is():
    x = nt.ones(2)
    view = x[:1]
    for source, error in (([1.0, 2.0, 3.0], nt.errors.ShapeError), ([1j, 2j], nt.errors.NumtapeError)):
        with pytest.raises(error):
            x.data = source
    x += 1.0
    assert view.tolist() == [2.0]


def test_detach_in_place_cuts_the_graph():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    h = nt.ones(2)
    for _ in range(3):
        w.grad = None
        h = w * h
        (h * h).sum().backward()
        assert h.detach_() is h
        assert (h.requires_grad, h.is_leaf) == (False, True)
    assert w.grad.tolist() == [2.0 * 1.0, 2.0 * 2.0**3 * 2.0**2]
    assert not (w.detach_() * 2.0).requires_grad
    with nt.Tape() as tape:
        x = tape.watch(nt.tensor([3.0]))
        y = (x * x).detach_()
        z = (x * y).sum()
        with pytest.raises(nt.errors.GradientError, match="use detach"):
            x.detach_()
    assert tape.gradient(z, x).tolist() == [9.0]


def test_detach_in_place_leaves_records_that_notice_writes():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    y = w * 3.0
    loss = (y * y).sum()
    y.detach_()
    kept, y = y, y + 1.0
    loss.backward(retain_graph=True)
    assert w.grad.tolist() == [18.0, 36.0]
    kept += 1.0
    with pytest.raises(nt.errors.OverwrittenError):
        loss.backward()


@pytest.mark.parametrize("differentiate", [nt.grad, nt.jacobian, nt.hessian, lambda f: lambda x: nt.jvp(f, x, x)[1]])
def test_detach_in_place_is_detach_in_transforms(differentiate):
    def in_place(x):
        y = x * x
        y.detach_()
        return (y * x * x).sum()

    x = np.array([1.0, 2.0])
    wanted = differentiate(lambda x: ((x * x).detach() * x * x).sum())(x)
    assert np.array_equal(differentiate(in_place)(x), wanted)
