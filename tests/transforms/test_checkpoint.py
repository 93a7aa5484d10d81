"""`nt.checkpoint`: values inside a function are dropped and made again; the numbers are those of a plain call."""

import numpy as np
import pytest

import numtape as nt
from numtape.core.op import Op
from numtape.testing import op_checks

ENTRIES = [entry for entry in op_checks.entries() if isinstance(entry, Op)]


def layers(count, rng, size=8):
    return [nt.tensor(rng.standard_normal((size, size)) / 3, requires_grad=True) for _ in range(count)]


def gradients(loss, tensors):
    for tensor in tensors:
        tensor.grad = None
    loss().backward()
    return [tensor.grad.numpy(copy=True) for tensor in tensors]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_gradients_of_every_op_equal_the_plain_ones_bit_for_bit(entry):
    for sample in op_checks.samples(entry):
        if not op_checks.has_derivative(entry, sample):
            continue
        case = op_checks.case_of(entry, sample)

        def function(*operands, case=case):
            # Twice tanh, so that the op's operands and outputs are intermediates.
            inner = [nt.tanh(x) for x in operands]
            return [nt.tanh(y) for y in case.values(inner)]

        def squares(outputs):
            total = 0.0
            for y in outputs:
                total = total + (y * y).sum()
            return total

        def plain(*operands, function=function, squares=squares):
            return squares(function(*operands))

        def checkpointed(*operands, function=function, squares=squares):
            return squares(nt.checkpoint(function, *operands))

        numbers = tuple(range(len(case.operands)))
        with np.errstate(all="ignore"):
            try:
                expected = nt.grad(plain, numbers)(*case.operands)
            except nt.errors.NumtapeError:
                continue  # tanh has left the op's domain.
            found = nt.grad(checkpointed, numbers)(*case.operands)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_function_runs_once_and_keeps_nothing():
    rng = np.random.default_rng(0)
    weights = layers(4, rng)
    calls = []

    def function(x):
        calls.append(1)
        for w in weights:
            x = nt.tanh(x @ w)
        return x

    x = nt.tensor(rng.standard_normal((3, 8)), requires_grad=True)
    y = nt.checkpoint(function, x)
    assert [record.is_kept for record in nt.records(y)] == [False] * 8
    y.sum().backward()
    assert calls == [1]


def test_captured_tensors_get_their_gradients():
    rng = np.random.default_rng(1)
    weights = layers(5, rng)
    x = nt.tensor(rng.standard_normal((3, 8)), requires_grad=True)

    def function(x):
        for w in weights:
            x = nt.gelu(x @ w)
        return x

    expected = gradients(lambda: (function(x) ** 2).sum(), [x, *weights])
    found = gradients(lambda: (nt.checkpoint(function, x) ** 2).sum(), [x, *weights])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_captured_intermediates_are_kept_from_outside():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    scale = x + 1.0  # No rule reads it here, but the function does.
    y = nt.checkpoint(lambda t: nt.exp(t * scale), x)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([2.0, 6.0]) * [3.0, 5.0], rtol=1e-6)


def test_dropout_draws_once_and_repeats():
    x = nt.ones(1000, requires_grad=True)
    nt.seed(3)
    plain = nt.dropout(nt.exp(x), 0.5) * 2.0
    after_plain = nt.rand(1).item()
    plain.sum().backward()
    expected = x.grad.numpy(copy=True)
    x.grad = None
    nt.seed(3)
    checkpointed = nt.checkpoint(lambda t: nt.dropout(nt.exp(t), 0.5) * 2.0, x)
    assert nt.rand(1).item() == after_plain
    checkpointed.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_batch_statistics_are_updated_once():
    def statistics(call):
        nt.seed(0)
        model = nt.nn.Sequential(nt.nn.Linear(4, 6), nt.nn.BatchNorm1d(6), nt.nn.ReLU())
        x = nt.tensor(np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32))
        (call(model, x) ** 2).sum().backward()
        return [p.grad.numpy() for p in model.parameters()] + [b.numpy() for b in model.buffers()]

    plain = statistics(lambda model, x: model(x))
    checkpointed = statistics(nt.checkpoint)
    for a, b in zip(plain, checkpointed, strict=True):
        np.testing.assert_array_equal(a, b)


def test_nested_checkpoints_drop_inside_and_outside():
    rng = np.random.default_rng(2)
    weights = layers(6, rng)
    x = nt.tensor(rng.standard_normal((3, 8)), requires_grad=True)

    def chain(x, some):
        for w in some:
            x = nt.tanh(x @ w)
        return x

    def outer(x):
        for i in (0, 2, 4):
            x = nt.checkpoint(chain, x, weights[i : i + 2])
        return x

    expected = gradients(lambda: chain(x, weights).sum(), [x, *weights])
    y = nt.checkpoint(outer, x)
    assert not any(record.is_kept for record in nt.records(y))
    found = gradients(lambda: nt.checkpoint(outer, x).sum(), [x, *weights])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def wave(x):
    return nt.sin(nt.exp(nt.sin(x)) * x)


def test_higher_orders_in_both_modes():
    x = np.linspace(0.1, 1.0, 4)

    def plain(x):
        return wave(x).sum()

    def checkpointed(x):
        return nt.checkpoint(wave, x).sum()

    np.testing.assert_array_equal(nt.grad(checkpointed)(x), nt.grad(plain)(x))
    np.testing.assert_array_equal(nt.jvp(checkpointed, x, x)[1], nt.jvp(plain, x, x)[1])
    np.testing.assert_array_equal(nt.hessian(checkpointed)(x), nt.hessian(plain)(x))
    np.testing.assert_array_equal(nt.hvp(checkpointed, x, x)[1], nt.hvp(plain, x, x)[1])
    np.testing.assert_array_equal(nt.jacobian(lambda x: nt.checkpoint(wave, x))(x), nt.jacobian(wave)(x))
    third = nt.grad(lambda x: nt.grad(lambda x: nt.grad(checkpointed)(x).sum())(x).sum())
    plain_third = nt.grad(lambda x: nt.grad(lambda x: nt.grad(plain)(x).sum())(x).sum())
    np.testing.assert_array_equal(third(x), plain_third(x))
    found = nt.derivatives(lambda t: nt.checkpoint(wave, t), 0.3, 3)
    np.testing.assert_array_equal(found, nt.derivatives(wave, 0.3, 3))


def test_a_tapes_forward_gradient_makes_values_again():
    x = nt.tensor([0.3, 0.4], dtype="float64")
    tape = nt.GradientTape(persistent=True)
    tape.watch(x)
    y = nt.checkpoint(wave, x)
    forward, reverse = (nt.jacobian(wave, mode=mode)(x.numpy()) for mode in ("forward", "reverse"))
    np.testing.assert_array_equal(tape.forward_gradient(x, y).numpy(), forward)
    np.testing.assert_array_equal(tape.gradient(y, x).numpy(), np.diag(reverse))
    assert not any(record.is_kept for record in nt.records(y))


def test_a_graph_can_be_walked_twice_and_stays_dropped():
    x = nt.tensor([0.3, 0.4], requires_grad=True)
    y = nt.checkpoint(wave, x).sum()
    y.backward(retain_graph=True)
    first = x.grad.numpy(copy=True)
    inside = nt.records(y)[:-1]
    assert not any(record.is_kept for record in inside)
    y.backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * first)


def test_several_outputs_and_trees():
    x = nt.tensor(np.random.default_rng(0).standard_normal((4, 4)), requires_grad=True)

    def function(x):
        q, r = nt.qr(nt.exp(x))
        return {"q": q, "parts": (nt.tanh(r), x * 2.0)}

    def loss(result):
        return (result["q"] ** 3).sum() + result["parts"][0].sum() + result["parts"][1].sum()

    expected = gradients(lambda: loss(function(x)), [x])
    found = gradients(lambda: loss(nt.checkpoint(function, x)), [x])
    np.testing.assert_array_equal(found[0], expected[0])


def test_writes_in_place_inside_are_right():
    def function(x):
        total = nt.zeros(4, dtype="float64")
        for i in range(4):
            total[i] = nt.exp(x[i]) * x[i]
        total *= x
        return nt.sin(total)

    x = np.linspace(0.1, 0.7, 4)
    plain = nt.grad(lambda x: function(x).sum())(x)
    np.testing.assert_array_equal(nt.grad(lambda x: nt.checkpoint(function, x).sum())(x), plain)


def test_a_buffer_that_is_written_again_later_is_made_again_as_it_was():
    def function(x):
        buffer = nt.zeros(2, dtype="float64")
        buffer[0] = x[0]
        early = nt.exp(buffer).sum() ** 2
        buffer[1] = x[1] * 3.0
        return early + buffer.sum()

    x = nt.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
    nt.checkpoint(function, x).backward()
    np.testing.assert_allclose(x.grad.numpy(), [2 * (np.e + 1) * np.e + 1, 3.0], rtol=1e-14)


def test_inside_no_grad_it_only_calls():
    with nt.no_grad():
        y = nt.checkpoint(wave, nt.tensor([1.0], requires_grad=True))
    assert not y.requires_grad


def test_an_exception_leaves_everything_as_it_was():
    x = nt.tensor([1.0], requires_grad=True)

    def fails(x):
        nt.exp(x)
        raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        nt.checkpoint(fails, x)
    wave(x).sum().backward()
    assert x.grad is not None


def test_a_parameter_that_changed_before_the_backward_is_named():
    w = nt.tensor([2.0], requires_grad=True)
    y = nt.checkpoint(lambda w: nt.exp(nt.sin(w)), w).sum()
    with nt.no_grad():
        w += 1.0
    with pytest.raises(nt.errors.OverwrittenError, match="sin: the derivative needs the value of 'x', saved at "):
        y.backward()


def test_a_function_that_writes_to_its_argument_is_named():
    x = nt.tensor([1.0, 2.0], requires_grad=True) * 1.0

    def mutates(t):
        t[0] = 5.0
        return nt.exp(t)

    with pytest.raises(nt.errors.OverwrittenError) as caught:
        nt.checkpoint(mutates, x)
    message = str(caught.value)
    assert "mutates writes to its argument tensor[2] in place, at " in message
    assert "test_checkpoint.py" in message
    assert message.endswith("so it could not be run again; compute a new tensor there, or pass a clone().")


def test_a_function_that_writes_to_an_array_is_named():
    def mutates(x, a):
        y = nt.exp(x + a).sum()
        a *= 2
        return y

    a = np.ones(3)
    with pytest.raises(nt.errors.OverwrittenError, match=r"mutates writes to a read-only array in place\. Those among"):
        nt.checkpoint(mutates, nt.ones(3, requires_grad=True), a)
    assert a.flags.writeable
    assert a.tolist() == [1.0, 1.0, 1.0]


def views_and_bases():
    b = np.arange(6.0)
    yield [b[:3], b]
    yield [b, b[:3], b, b[1:2][:1], b[:3]]
    yield [np.frombuffer(b), b, b.reshape(2, 3).T]
    yield [np.asarray(memoryview(b)), b]
    yield [np.frombuffer(bytearray(16))]
    yield [np.lib.stride_tricks.as_strided(b, (3,)), b]
    matrix = b.view(np.matrix)
    yield [matrix[0, :2], matrix, b]
    locked = np.arange(4.0)
    view = locked[:2]
    locked.setflags(write=False)
    yield [view, locked, view[:1]]


@pytest.mark.parametrize("arrays", list(views_and_bases()))
def test_arrays_are_as_writable_as_before_whatever_they_are_views_of(arrays):
    x = nt.ones(3, requires_grad=True)
    before = [array.flags.writeable for array in arrays]

    def raises(x, *arrays):
        raise KeyError("its own")

    y = nt.checkpoint(lambda x, *arrays: nt.sin(x) * arrays[-1].sum(), x, *arrays)
    assert y.shape == (3,)
    assert [array.flags.writeable for array in arrays] == before
    with pytest.raises(KeyError, match="its own"):
        nt.checkpoint(raises, x, *arrays)
    assert [array.flags.writeable for array in arrays] == before


def test_a_view_whose_base_an_outer_checkpoint_guards_stays_writable():
    b = np.arange(3.0)
    view = b[:]

    def outer(x, b):
        return nt.checkpoint(lambda x, view: nt.sin(x) * view, x, view)

    nt.checkpoint(outer, nt.ones(3, requires_grad=True), b)
    assert b.flags.writeable
    assert view.flags.writeable


def test_a_write_to_what_was_no_argument_is_numpys_own_error():
    def writes(x):
        t = x.numpy()
        t[0] = 1
        return nt.sin(x)

    with pytest.raises(ValueError, match="read-only") as caught:
        nt.checkpoint(writes, nt.ones(3, requires_grad=True))
    assert not isinstance(caught.value, nt.errors.NumtapeError)


@pytest.mark.parametrize(
    ("result", "kind"),
    [(None, "NoneType"), ([], "list"), (1.0, "float"), (np.ones(2), "ndarray"), ([nt.ones(1), "a"], "str")],
)
def test_a_function_that_returns_no_tensors_is_named(result, kind):
    def gives(x):
        return result

    name = gives.__qualname__
    with pytest.raises(nt.errors.OperandError) as caught:
        nt.checkpoint(gives, nt.ones(2))
    assert str(caught.value) == (
        f"checkpoint: {name} returned {kind}; it must return a tensor, or a tuple, list or dict of tensors."
    )


def test_calling_the_function_first_is_an_error_that_says_so():
    with pytest.raises(nt.errors.OperandError, match=r"call nt.checkpoint\(f, x\)"):
        nt.checkpoint(nt.ones(2))


@pytest.mark.parametrize("segments", [1, 2, 3, 7, 50])
def test_checkpoint_sequential_equals_the_model(segments):
    nt.seed(0)
    model = nt.nn.Sequential(*[part for _ in range(4) for part in (nt.nn.Linear(4, 4), nt.nn.GELU())])
    x = nt.tensor(np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32), requires_grad=True)
    everything = [x, *model.parameters()]
    expected = gradients(lambda: model(x).sum(), everything)
    found = gradients(lambda: nt.checkpoint_sequential(model, segments, x).sum(), everything)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_checkpoint_sequential_says_what_it_wants():
    with pytest.raises(nt.errors.ArgumentError, match="segments is 0; it must be a positive integer"):
        nt.checkpoint_sequential([nt.sin], 0, nt.ones(1))
    with pytest.raises(nt.errors.OperandError, match=r"wants an nn.Sequential or a list of functions, not Linear"):
        nt.checkpoint_sequential(nt.nn.Linear(1, 1), 2, nt.ones(1))
    wants = "wants an nn.Sequential or a list of functions; element"
    with pytest.raises(nt.errors.OperandError, match=rf"{wants} 0 of the str is of type str, which cannot be called"):
        nt.checkpoint_sequential("x", 2, nt.ones(1))
    with pytest.raises(nt.errors.OperandError, match=rf"{wants} 1 of the list is of type int, which cannot be called"):
        nt.checkpoint_sequential([nt.sin, 3], 1, nt.ones(1))


def test_an_array_that_the_function_captures_and_refills_is_named():
    b = np.zeros(3)

    def refills(h):
        for i in range(4):
            b[:] = i
            h = nt.sin(h + b)
        return h.sum()

    loss = nt.checkpoint(refills, nt.tensor([0.1, 0.2, 0.3], dtype="float64", requires_grad=True))
    with pytest.raises(nt.errors.OverwrittenError) as caught:
        loss.backward()
    text = str(caught.value)
    assert text.startswith("add: its result at ")
    assert text.endswith(
        "was dropped and is computed again, but the NumPy array given for 'b' was overwritten since; give a copy of it "
        "(array.copy(), or nt.tensor instead of nt.from_numpy), or make a new array instead of writing to it."
    )


@pytest.mark.parametrize("size", [5, 4_000, 100_003])
def test_an_array_that_is_refilled_or_changes_its_order_is_noticed(size):
    for change in (lambda b: b.fill(7.0), lambda b: b.__setitem__(slice(None), np.roll(b, 1))):
        b = np.random.default_rng(0).standard_normal(size)
        x = nt.tensor(np.ones(size), requires_grad=True)
        loss = nt.checkpoint(lambda x, b=b: nt.sin(x + b).sum(), x)
        change(b)
        with pytest.raises(nt.errors.OverwrittenError):
            loss.backward()


def test_arrays_that_stay_as_they_are_pass_in_any_layout():
    x = nt.tensor(np.ones((64, 1000)), requires_grad=True)
    base = np.random.default_rng(0).standard_normal((1000, 64))
    repeated = np.broadcast_to(base[:1].T, (64, 1000))
    flags = base.T > 0
    every_other = base[::2].T.repeat(2, 1)
    loss = nt.checkpoint(lambda x: nt.where(flags, nt.sin(x + base.T) * repeated + every_other, 0.0).sum(), x)
    loss.backward()
    assert x.grad.shape == x.shape


def test_a_number_in_an_array_without_axes_that_is_refilled_is_noticed():
    row = np.array([2.0, 3.0])
    for k in (np.array(2.0), np.array(2, np.int64), row[0:1].reshape(()), row[1, ...]):
        x = nt.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
        captured = nt.checkpoint(lambda x, k=k: nt.sin(nt.exp(x * k)), x).sum()
        given = nt.checkpoint(lambda x, k: nt.sin(nt.exp(x * k)), x, k).sum()
        nt.checkpoint(lambda x, k=k: nt.sin(nt.exp(x * k)), x).sum().backward()
        k[...] = 5
        for loss in (captured, given):
            with pytest.raises(nt.errors.OverwrittenError, match="the NumPy array given for 'b' was overwritten since"):
                loss.backward()


def test_a_counter_that_the_function_moves_on_is_noticed():
    count = np.array(0.0)

    def counts(x):
        nonlocal count
        for _ in range(3):
            count += 1
            x = nt.sin(x * count)
        return x.sum()

    loss = nt.checkpoint(counts, nt.tensor([0.1, 0.2], dtype="float64", requires_grad=True))
    with pytest.raises(nt.errors.OverwrittenError):
        loss.backward()


@pytest.mark.parametrize("part", [slice(None), slice(1, None)])
def test_a_tensor_in_numpys_memory_that_is_refilled_is_named(part):
    memory = np.ones(4)
    given = nt.from_numpy(memory)[part]
    x = nt.tensor(np.ones(given.shape), requires_grad=True)
    loss = nt.checkpoint(lambda x: nt.sin(x + given) * x, x).sum()
    memory[:] = 5.0
    with pytest.raises(nt.errors.OverwrittenError, match="the NumPy array given for 'b' was overwritten since"):
        loss.backward(retain_graph=True)
    memory[:] = 1.0
    loss.backward()
    assert np.allclose(x.grad.numpy(), np.cos(2.0) + np.sin(2.0))


@pytest.mark.parametrize("share", [lambda array: array, nt.from_numpy])
def test_an_array_that_a_derivative_reads_is_named_if_it_was_refilled(share):
    memory = np.ones(3)
    given = share(memory)
    x = nt.tensor(np.ones(3), requires_grad=True)
    product, total = nt.checkpoint(lambda x: (x * given).sum(), x), nt.checkpoint(lambda x: (x + given).sum(), x)
    memory[:] = 7.0
    with pytest.raises(
        nt.errors.OverwrittenError, match=r"mul: its derivative at .* is computed from what it has read"
    ):
        product.backward()
    total.backward()  # It does not depend on the array.
    assert x.grad.tolist() == [1.0, 1.0, 1.0]


def test_without_gradients_a_function_returns_what_it_would():
    w = nt.ones(3, requires_grad=True)
    with nt.no_grad():
        assert type(nt.checkpoint(lambda w: nt.grad(lambda t: (w * t).sum())(np.ones(3)), w)) is np.ndarray
