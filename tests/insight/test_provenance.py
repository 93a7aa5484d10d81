"""explain_nan finds where a value that is not finite began: forward and backward, before and after a free."""

import threading
import weakref

import numpy as np
import pytest

import numtape as nt
from numtape.core.record import Block
from numtape.errors import OperandError

OPS = 200


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def chain(x, k, special):
    """Return the sum of what 200 ops make of x: the k-th is `special`, the others keep sign and zero."""
    steady = (nt.sin, nt.tanh, nt.atan, lambda y: y * 0.99)
    for i in range(OPS):
        x = special(x) if i == k else steady[i % 4](x)
    return x.sum()


def line_of(site):
    return site.split(" (", 1)[1]


def root(y):
    return nt.sqrt(y)  # The only line that takes a root.


def is_found(found, k, direction, index):
    return (found.number, found.op, found.direction, found.index, line_of(found.site)) == (
        k,
        "sqrt",
        direction,
        index,
        "return nt.sqrt(y)  # The only line that takes a root.)",
    )


def test_a_nan_born_at_any_of_200_ops_is_found_before_backward():
    x = nt.tensor([0.5, -0.5], requires_grad=True)
    found = [nt.explain_nan(chain(x, k, root)) for k in range(OPS)]
    assert sum(is_found(each, k, "forward", (1,)) for k, each in enumerate(found)) == OPS


def test_a_nan_born_at_any_of_200_ops_is_found_after_backward():
    x = nt.tensor([0.5, -0.5], requires_grad=True)
    count = 0
    for k in range(OPS):
        loss = chain(x, k, root)
        loss.backward()
        count += is_found(nt.explain_nan(loss), k, "forward", (1,))
    assert count == OPS


@pytest.mark.parametrize("retain_graph", [True, False])
def test_a_gradient_that_ends_at_any_of_200_ops_is_found(retain_graph):
    x = nt.tensor([0.5, 0.0], requires_grad=True)
    count = 0
    for k in range(OPS):
        loss = chain(x, k, root)
        loss.backward(retain_graph=retain_graph)
        count += is_found(nt.explain_nan(loss), k, "backward", (1,))
        assert not np.isfinite(x.grad.numpy()[1])
        x.zero_grad()
    assert count == OPS


def test_an_explanation_prints_what_where_why_and_what_to_do():
    x = nt.tensor([[1.0, 2.0], [0.0, -3.0]], requires_grad=True, name="x")
    loss = nt.log(x).mean()
    found = nt.explain_nan(loss)
    line = "loss = nt.log(x).mean()"
    assert str(found) == (
        "The first value that is not finite is nan at index (1, 1), in the forward of record %0, log at "
        f"{found.site}.\n"
        "  x = -3, the tensor 'x'\n"
        "Cause: log is finite where x > 0, and here x = -3.\n"
        "Repair: bound the operand before the op, with nt.clip or a small number that is added; or, if that element is "
        "not used, select twice, so that the op never sees that element:\n"
        "    ok = x > 0\n"
        "    y = nt.where(ok, nt.log(nt.where(ok, x, 0.5)), 0.0)"
    )
    assert line_of(found.site) == f"{line})"
    assert found
    assert np.isnan(found.value)
    assert [(seen.name, seen.value, seen.shape, seen.span) for seen in found.operands] == [
        ("x", -3.0, (2, 2), (-3.0, 2.0))
    ]


def test_the_number_of_the_record_is_that_of_the_summary():
    x = nt.tensor([2.0], requires_grad=True)
    loss = nt.sqrt(x * 3.0 - 7.0).sum()
    found = nt.explain_nan(loss)
    row = next(row for row in nt.summary(loss).splitlines() if row.startswith(f"%{found.number} "))
    assert row.split()[1] == found.op == "sqrt"


def test_what_is_finite_is_explained_as_such():
    x = nt.tensor([1.0], requires_grad=True)
    loss = (x * 2.0).sum()
    loss.backward()
    for given, text in [
        (loss, "Every value of the 2 records and every gradient of them is finite."),
        (x, "Every element of the tensor is finite, and so is its gradient, if it has one."),
        (nt.ones(0), "Every element of the tensor is finite, and so is its gradient, if it has one."),
    ]:
        found = nt.explain_nan(given)
        assert not found
        assert (str(found), found.direction, found.number) == (text, "none", None)


def test_infinities_of_a_mask_that_die_out_are_not_blamed():
    x = nt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    scores = nt.where(np.array([True, False, True]), x, -np.inf)
    loss = (nt.softmax(scores) * nt.log(x - 1.5)).sum()  # log of a negative number.
    assert nt.explain_nan(loss).op == "log"
    assert not nt.explain_nan((nt.softmax(scores) * x).sum())


def test_a_row_that_is_masked_as_a_whole_is_found_with_the_mask():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    loss = nt.softmax(x + np.array([-np.inf, -np.inf], np.float32)).sum()
    found = nt.explain_nan(loss)
    assert (found.op, found.direction, found.number) == ("softmax", "forward", 1)
    assert found.cause.startswith(
        "inf - inf, 0 * inf or inf / inf in softmax: among its operands are infinities, which came in as 'b' of add at "
    )


def test_an_infinity_is_followed_to_where_it_began_not_to_where_it_became_nan():
    x = nt.tensor([100.0], requires_grad=True)
    big = nt.exp(x)
    found = nt.explain_nan((big - big).sum())
    assert (found.op, found.value, found.number) == ("exp", np.inf, 0)


def test_data_and_parameters_that_were_not_finite_are_named():
    x = nt.tensor([[1.0, np.nan]], name="batch")
    w = nt.ones(2, 1, requires_grad=True, name="weight")
    found = nt.explain_nan((x @ w).sum())
    assert (found.op, found.index, found.cause) == (
        "matmul",
        (0, 1),
        "'a', batch, was not finite before matmul read it.",
    )
    with nt.no_grad():
        w[1, 0] = np.inf
    found = nt.explain_nan((nt.ones(1, 2) @ w).sum())
    assert found.cause.startswith("'b', weight, was not finite before matmul read it; it was last written at ")
    assert found.cause.endswith("(w[1, 0] = np.inf).")
    found = nt.explain_nan(w)
    assert str(found).startswith("inf at index (1, 0) in a tensor that no op made, written at ")


def test_an_operand_that_is_repeated_is_named_by_its_place_in_the_result():
    x = nt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    mask = np.array([True, False, True])
    for nan in (np.nan, np.array([np.nan]), np.array(np.nan)):
        found = nt.explain_nan(nt.where(mask, x, nan).sum())
        assert (found.op, found.index, found.operands[0].value) == ("where", (1,), pytest.approx(np.nan, nan_ok=True))
    assert nt.explain_nan((x + float("nan")).sum()).index == (0,)
    assert nt.explain_nan((x * nt.tensor([[1.0], [np.nan]])).sum()).index == (1, 0)


def test_a_nan_that_is_written_in_place_is_found_at_the_write():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2.0
    y[1] = np.nan
    found = nt.explain_nan((y * 3.0).sum())
    assert (found.number, found.cause) == (
        1,
        f"the number nan given as 'part' was not finite before {found.op} read it.",
    )
    assert line_of(found.site) == "y[1] = np.nan)"


def test_a_nan_that_goes_through_a_buffer_that_was_written_twice_is_found():
    x = nt.tensor([1.0, -1.0], requires_grad=True)
    buffer = nt.zeros(3)
    buffer[0] = x[0]
    buffer[1] = nt.log(x[1])
    assert nt.explain_nan(buffer.sum()).op == "log"
    buffer = nt.full((3,), np.nan)
    buffer[0] = x[0]
    buffer[1] = x[1]
    found = nt.explain_nan(buffer.sum())
    assert (found.op, found.cause) == ("setitem", "'x', tensor[3], was not finite before setitem read it.")


def test_one_of_several_outputs_is_followed():
    x = nt.tensor([-1.0, 4.0], requires_grad=True)
    low, high = nt.split(x, 2)
    found = nt.explain_nan(nt.sqrt(low).sum())
    assert (found.op, found.number) == ("sqrt", 2)
    assert not nt.explain_nan(nt.sqrt(high).sum())


def test_a_parameter_and_its_gradient_are_explained_by_the_last_backward():
    a = nt.tensor([1.0, 0.0], requires_grad=True, name="a")
    b = nt.tensor([1.0, 2.0], requires_grad=True, name="b")
    loss = (nt.sqrt(a) * b).sum()
    loss.backward()
    for given in (a, a.grad):
        found = nt.explain_nan(given)
        assert (found.op, found.direction, found.index) == ("sqrt", "backward", (1,))
    assert not nt.explain_nan(b)


def test_a_gradient_without_its_loss_says_what_to_keep():
    a = nt.tensor([0.0], requires_grad=True, name="a")
    nt.sqrt(a).sum().backward()
    assert str(nt.explain_nan(a)) == (
        "What is not finite cannot be followed to where it began.\n"
        "Cause: the gradient of a is not finite, and the loss of this thread's last backward is no longer held.\n"
        "Repair: keep the loss and ask for it: nt.explain_nan(loss)."
    )


def test_a_gradient_of_a_tape_is_explained_with_its_loss():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor([0.0, 1.0]))
    loss = nt.sqrt(x).sum()
    gradient = tape.gradient(loss, x)
    assert nt.explain_nan(gradient, loss=loss).op == "sqrt"
    assert nt.explain_nan(gradient).repair == (
        "look at where it was made; of a gradient, ask with its loss: nt.explain_nan(gradient, loss=loss)."
    )


def test_a_gradient_that_another_backward_left_is_not_blamed_on_this_one():
    x = nt.tensor([0.0], requires_grad=True, name="x")
    nt.sqrt(x).sum().backward()
    loss = (x * 2.0).sum()
    loss.backward()
    found = nt.explain_nan(x)
    assert found.direction == "unknown"
    assert found.cause.startswith(
        "computed again, the gradient of x by this loss is finite: what is not came from another backward that was "
        "added to .grad, from a hook, or from a write; it was last written at "
    )


def test_backward_of_a_loss_that_is_not_finite_frees_nothing():
    for run in (lambda loss: loss.backward(), lambda loss: nt.Tape().backward(loss)):
        x = nt.tensor([-1.0], requires_grad=True)
        mask = nt.ones(1 << 12)
        held = weakref.ref(mask)
        loss = (nt.sqrt(x) * mask).sum()
        del mask
        run(loss)
        run(loss)
        assert held() is not None
        assert nt.explain_nan(loss).op == "sqrt"


def test_looking_changes_nothing():
    x = nt.tensor([1.0, 0.0], requires_grad=True)
    seen = []
    y = nt.sqrt(x)
    y.register_hook(lambda g: seen.append(1))
    loss = y.sum()
    loss.backward()
    before = x.grad.tolist()
    text = nt.summary(loss)
    assert str(nt.explain_nan(loss)) == str(nt.explain_nan(loss))
    assert (x.grad.tolist(), nt.summary(loss), seen) == (before, text, [1])


def test_after_a_step_the_overwritten_parameter_is_named_with_both_lines():
    w = nt.tensor([0.0], requires_grad=True, name="w")
    optimizer = nt.optim.SGD([w], lr=0.1)
    loss = nt.sqrt(w * 2.0).sum()
    loss.backward()
    optimizer.step()
    found = nt.explain_nan(loss)
    read, written = found.cause.split(" was overwritten since at ")
    assert found.direction == "unknown"
    assert line_of(read) == "loss = nt.sqrt(w * 2.0).sum()),"
    assert line_of(written) == "optimizer.step()): w holds other values."
    assert found.repair == (
        "ask before that: nt.explain_nan(loss) between backward() and optimizer.step(), or run the step inside of "
        "nt.detect_anomaly()."
    )


def test_a_large_operand_that_nobody_held_is_named_and_what_is_left_gives_a_lead():
    x = nt.tensor(np.linspace(-1.0, 1.0, 8001), requires_grad=True)
    loss = nt.where(x > 0, nt.sqrt(nt.relu(x)), 0.0).sum()
    loss.backward()
    found = nt.explain_nan(loss)
    assert (found.direction, found.op) == ("unknown", "where")
    assert "is gone: an untracked operand of shape (8001,) that nobody held" in found.cause
    assert found.cause.endswith("the derivative of sqrt by x is inf where x = 0.")


def test_a_large_operand_that_is_still_held_is_read_again():
    x = nt.tensor(np.linspace(-1.0, 1.0, 8001), requires_grad=True)
    mask = x > 0
    loss = nt.where(mask, nt.sqrt(nt.relu(x)), 0.0).sum()
    loss.backward()
    assert (nt.explain_nan(loss).op, nt.explain_nan(loss).direction) == ("sqrt", "backward")


def test_memory_that_numpy_changed_since_is_not_trusted():
    data = np.array([np.nan, 1.0])
    x = nt.ones(2, dtype=nt.float64, requires_grad=True)
    loss = (x + nt.from_numpy(data)).sum()
    data[0] = 1.0
    found = nt.explain_nan(loss)
    assert (found.op, found.direction) == ("add", "unknown")
    assert found.cause == (
        f"computed again, the result of sum at {found.site} is not what it was: 'b', the NumPy array that add read at "
        f"{found.site}, was overwritten since."
    )


def test_dropped_values_are_made_again():
    for x, direction in [([1.0, -4.0], "forward"), ([1.0, 0.0], "backward")]:
        x = nt.tensor(x, requires_grad=True)
        loss = (nt.exp(nt.sqrt(x * 2.0)) * x).sum()
        block = Block()
        dropped = [record for record in nt.records(loss) if record.is_kept]
        for record in dropped:
            record.array = block
        found = nt.explain_nan(loss)
        assert (found.op, found.index, found.direction) == ("sqrt", (1,), direction)
        assert [record.array for record in dropped] == [block] * len(dropped)


def test_a_gradient_that_is_a_graph_itself_is_explained_forward():
    x = nt.tensor([0.0], requires_grad=True)
    with nt.Tape(persistent=True) as tape:
        loss = nt.sqrt(x).sum()
        gradient = tape.backward(loss, create_graph=True)[x]
    found = nt.explain_nan(gradient)
    assert (found.direction, found.op) == ("forward", "div")


def test_a_given_gradient_is_used():
    x = nt.tensor([0.0, 4.0], requires_grad=True)
    y = nt.sqrt(x)
    assert nt.explain_nan(y, gradient=nt.tensor([0.0, 1.0])).cause.startswith("0 * inf: ")
    found = nt.explain_nan(y * 1.0, gradient=nt.tensor([np.nan, 1.0]))
    assert found.cause == "the gradient that the sweep started from is not finite."


def test_the_gradient_that_a_backward_was_given_is_remembered():
    x = nt.tensor([0.0, 4.0], requires_grad=True)
    y = nt.sqrt(x)
    y.backward(nt.tensor([0.0, 1.0]))
    for found in (nt.explain_nan(y), nt.explain_nan(x)):
        assert found.cause.startswith("0 * inf: ")
        assert found.operands[-1].value == 0.0
    x = nt.tensor([1e-30], requires_grad=True)
    y = (x * 1e30) * 1e30
    y.backward(nt.tensor([1e-30]))
    assert not nt.explain_nan(y)


def test_a_large_gradient_that_a_backward_was_given_must_be_held():
    x = nt.tensor(np.arange(1000.0), requires_grad=True)
    y, given = nt.sqrt(x), nt.tensor(np.arange(1000.0))
    y.backward(given)
    assert nt.explain_nan(y).cause.startswith("0 * inf: ")
    del given
    found = nt.explain_nan(y)
    assert found.direction == "unknown"
    assert found.repair == "give it here, too: nt.explain_nan(loss, gradient=gradient)."
    y = nt.sqrt(x)
    y.backward(nt.ones_like(x))
    assert nt.explain_nan(y).cause == "the derivative of sqrt by x is inf where x = 0."


def test_half_gradients_that_overflow_when_rounded_are_found():
    x = nt.tensor([1.0, 2.0], dtype=nt.float16, requires_grad=True)
    loss = (x.astype(nt.float32) * 1e6).sum()
    loss.backward()
    assert np.isinf(x.grad.numpy()).all()
    found = nt.explain_nan(loss)
    assert (found.op, found.direction, found.index) == ("cast", "backward", (0,))


def test_threads_explain_their_own_losses():
    found = {}

    def run(op):
        x = nt.tensor([-1.0], requires_grad=True)
        with np.errstate(all="ignore"):
            loss = op(x).sum()
            loss.backward()
            found[op] = [nt.explain_nan(loss).op for _ in range(50)]

    threads = [threading.Thread(target=run, args=(op,)) for op in (nt.sqrt, nt.log)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (set(found[nt.sqrt]), set(found[nt.log])) == ({"sqrt"}, {"log"})


def test_what_is_no_tensor_is_refused():
    with pytest.raises(OperandError) as caught:
        nt.explain_nan(float("nan"))
    assert str(caught.value) == (
        "explain_nan: tensor must be a tensor (the loss, a gradient or a parameter), not float."
    )
    with pytest.raises(OperandError) as caught:
        nt.explain_nan(nt.ones(1), loss=3)
    assert str(caught.value) == "explain_nan: loss must be a tensor (the loss, a gradient or a parameter), not int."


def test_a_hook_that_made_the_gradient_nan_is_named_after_the_fact():
    x = nt.tensor([1.0, 2.0], requires_grad=True, name="x")
    y = x * 3.0
    y.register_hook(lambda g: g * np.nan)
    loss = y.sum()
    loss.backward()
    for found in (nt.explain_nan(loss), nt.explain_nan(x)):
        assert (found.direction, found.op) == ("backward", "mul")
        assert found.cause.startswith(f"the hook <lambda> at {__file__}:")
        assert found.cause.endswith(" on the result of mul returned a gradient that is not finite.")


def test_a_hook_of_a_leaf_is_named_after_the_fact():
    x = nt.tensor([1.0, 2.0], requires_grad=True, name="x")
    x.register_hook(lambda g: g / 0.0)
    loss = (x * 3.0).sum()
    loss.backward()
    found = nt.explain_nan(loss)
    assert (found.direction, found.op, found.index) == ("backward", "mul", (0,))
    assert found.cause.endswith(" on x returned a gradient that is not finite.")


def test_hooks_that_return_nothing_leave_a_finite_graph_finite():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    x.register_hook(seen.append)
    loss = (x * 3.0).sum()
    assert not nt.explain_nan(loss)


def test_a_retained_gradient_is_explained_by_the_backward_that_made_it():
    x = nt.tensor([0.0, 4.0], requires_grad=True)
    h = x * 1.0
    h.retain_grad()
    loss = nt.sqrt(h).sum()
    loss.backward()
    assert np.isinf(h.grad.numpy()[0])
    for found in (nt.explain_nan(h), nt.explain_nan(h.grad), nt.explain_nan(h, loss=loss)):
        assert (found.direction, found.op, found.number) == ("backward", "sqrt", 1)
    h.grad = None
    assert not nt.explain_nan(h)


def test_a_gradient_of_a_backward_in_another_thread_says_so():
    found = []

    def ask(a):
        found.append(nt.explain_nan(a))

    a = nt.tensor([0.0], requires_grad=True, name="a")
    loss = nt.sqrt(a).sum()
    loss.backward()
    asking = threading.Thread(target=ask, args=(a,))
    asking.start()
    asking.join()
    assert found[0].cause == (
        "the gradient of a is not finite, and no backward ran in this thread: it ran in another one, whose loss is not "
        "known here."
    )
    assert found[0].repair == "give the loss, too: nt.explain_nan(x, loss=loss)."
    (nt.ones(1, requires_grad=True) * 2.0).sum().backward()
    other = (nt.ones(1, requires_grad=True) * 2.0).sum()
    other.backward()
    assert "does not depend on it: it is of another one." in nt.explain_nan(a).cause
    assert nt.explain_nan(a, loss=loss).op == "sqrt"


def test_a_delivered_gradient_that_contradicts_the_replay_is_not_explained_away():
    y = nt.tensor([1.0, 2.0], dtype="float64", requires_grad=True, name="y")
    c = np.array([1.0, 2.0])
    loss = nt.sqrt(y - c).sum()
    loss.backward()
    c[:] = 0.0
    for found in (nt.explain_nan(loss), nt.explain_nan(y)):
        # The loss, which is held, was another one too.
        assert (found.direction, found.op, found.index, found.value) == ("unknown", "sub", (0,), np.inf)
        assert found.cause == (
            f"computed again, the result of sum at {found.site} is not what it was: 'b', the NumPy array that sub read "
            f"at {found.site}, was overwritten since."
        )


def test_a_gradient_of_another_backward_is_not_blamed_on_an_array_that_is_as_it_was():
    y = nt.tensor([1.0, 2.0], dtype="float64", requires_grad=True, name="y")
    nt.sqrt(y - 1.0).sum().backward()
    loss = nt.sqrt(y * np.array([1.0, 2.0])).sum()
    loss.backward()
    for found in (nt.explain_nan(loss), nt.explain_nan(y)):
        assert found.direction == "unknown"
        assert found.cause.startswith(
            "computed again, the gradient of y by this loss is finite: what is not came from another backward"
        )


def test_an_array_that_a_dropped_op_read_and_that_was_refilled_is_named():
    x = nt.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
    c = np.array([1.0, 2.0])
    with nt.GradientTape(checkpoint=nt.CheckpointConfig("full")) as tape:
        h = nt.sqrt(x - c)
        for _ in range(10):
            h = nt.sin(h)
        loss = h.sum()
    tape.backward(loss)
    c[:] = 0.0
    found = nt.explain_nan(loss)
    assert found.direction == "unknown"
    assert "was overwritten since: the NumPy array array[2] holds other values" in found.cause


def test_a_tensor_in_numpys_memory_that_was_refilled_is_not_guessed_about():
    data = np.array([1.0, 0.0])
    w = nt.tensor(np.ones(2), requires_grad=True)
    loss = nt.sqrt(w * nt.from_numpy(data)).sum()
    loss.backward()
    assert nt.explain_nan(loss).index == (1,)
    data[:] = [0.0, 1.0]
    for asked in (loss, w):
        found = nt.explain_nan(asked)
        assert (found.direction, found.index) == ("unknown", (1,))
        assert "'b', the NumPy array that mul read at" in found.cause


def test_after_a_step_and_a_refill_a_finite_loss_with_finite_gradients_is_fine():
    w = nt.tensor(np.array([1.0, 2.0]), requires_grad=True)
    data = np.array([1.0, 4.0])
    loss = nt.log(w * data).sum()
    loss.backward()
    data[:] = 0.0
    found = nt.explain_nan(loss)
    assert not found
    assert found.cause == (
        "The loss and the gradients that its backward gave are finite; the rest can no longer be looked at."
    )
    nt.optim.SGD([w], lr=0.1).step()
    assert not nt.explain_nan(loss)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_mean_of_nothing_is_called_so():
    found = nt.explain_nan(nt.tensor(np.zeros(0), requires_grad=True).mean())
    assert found.cause == "mean of no elements: x of shape (0,)."
    assert found.repair == "look at what left none: a selection, a mask or an empty batch."


@pytest.mark.parametrize(
    "backward",
    [
        lambda y: y.backward(nt.ones(3)),
        nt.compute_gradients,
        lambda y: nt.GradientTape().backward(y),
    ],
    ids=["Tensor.backward", "compute_gradients", "tape.backward"],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_backward_from_several_numbers_one_of_which_is_not_finite_frees_nothing(backward):
    w = nt.tensor([1.0, 0.0, 2.0], requires_grad=True)
    y = nt.log(w)
    backward(y)
    backward(y)
    assert nt.explain_nan(y).op == "log"


@pytest.mark.parametrize("freedom", [{"ddof": 1}, {"correction": 1}], ids=["ddof", "correction"])
def test_no_degrees_of_freedom_are_diagnosed(freedom):
    x = nt.ones(3, 1, requires_grad=True)
    with np.errstate(all="ignore"):
        found = nt.explain_nan(x.std(1, **freedom))
    assert found.cause == "division by zero degrees of freedom: std is of 1 elements, and 1 are taken off."
    assert found.repair == "take ddof=0, or the deviation of more elements."
