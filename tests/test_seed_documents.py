"""Every code block of the documents that numtape makes true, in order, translated, with what its comments promise.

Three documents: hodu's gradient tape guide, ML Odyssey's page on automatic differentiation and TenfloweRS' guide.
hodu's also exists in Korean, with the same blocks, and as a copy from a package page: one translation serves all three.
A test is named after the document and the section of its block.
"""

import dataclasses
import gc
import importlib.metadata
import itertools
import weakref

import numpy as np
import pytest

import numtape as nt
from numtape.core.record import Record
from numtape.errors import ClosedError, ShapeError, TapeConsumedError


def live_records():
    return sum(type(o) is Record for o in gc.get_objects())


def mean_gradient(x, columns):
    """Return the derivative of ``(x @ w).mean()`` by w, which has that many columns."""
    return np.repeat(x.numpy().mean(axis=0)[:, None], columns, axis=1) / columns


# hodu: Gradient Tape Management Guide.


class Descent(nt.optim.Optimizer):
    """Plain gradient descent: the counterpart of hodu's derived SGD, which writes its rule and gets all the rest."""

    def __init__(self, params=None, lr=0.01):
        super().__init__(params, lr=lr)

    def update(self, param, grad, state, lr):
        return param - lr * grad, state


def test_hodu_how_zero_grad_works():
    optimizer = Descent(0.5)
    params = [nt.ones(2, requires_grad=True), nt.ones(3, requires_grad=True)]
    (params[0].sum() + params[1].sum()).backward()
    optimizer.step(params)
    assert [param.tolist() for param in params] == [[0.5, 0.5], [0.5, 0.5, 0.5]]

    # 1. Zero out each parameter's gradient.
    optimizer.zero_grad(params)
    assert [param.grad for param in params] == [None, None]

    # 2. clear_default_context_tape clears the default context only, and does not affect custom contexts.
    in_default = params[0] * 2.0
    with nt.GradientContext() as ctx:
        in_custom = params[1] * 3.0
        nt.clear_default_context_tape()
        assert len(nt.default_context().tape) == 0
        assert len(ctx.tape) == 1
        nt.compute_gradients(in_custom)
        assert params[1].grad.tolist() == [3.0, 3.0, 3.0]
        with pytest.raises(ClosedError, match=r"detach\(\)"):
            nt.compute_gradients(in_default)


@pytest.mark.parametrize("zeroed", ["before the forward", "before the backward", "after the step"])
def test_hodu_how_zero_grad_works_without_touching_a_graph(zeroed):
    # hodu's zero_grad also clears context 0; ours never touches a graph, so all three orders work.
    weight = nt.tensor([2.0], requires_grad=True)
    optimizer = nt.optim.SGD(0.25)
    for expected in (1.0, 0.5):
        if zeroed == "before the forward":
            optimizer.zero_grad([weight])
        loss = (weight * weight).sum()
        if zeroed == "before the backward":
            optimizer.zero_grad([weight])
        loss.backward()
        optimizer.step([weight])
        if zeroed == "after the step":
            optimizer.zero_grad([weight])
        assert weight.tolist() == [expected]


def test_hodu_using_optimizer_with_default_context():
    optimizer = nt.optim.SGD(0.01)
    x = nt.randn(4, 10, rng=0)
    weight = nt.randn(10, 5, rng=1).set_requires_grad(True)
    start = weight.numpy(copy=True)
    slope = mean_gradient(x, 5)
    for _ in range(100):
        # Forward: recorded in the default context's tape.
        output = x.matmul(weight)
        loss = output.mean([], False)
        assert len(nt.default_context().tape) == 2

        # Backward: reads that tape in reverse.
        nt.compute_gradients(loss)
        np.testing.assert_allclose(weight.grad.numpy(), slope, rtol=1e-5, atol=1e-7)
        assert len(nt.default_context().tape) == 0

        # Update: never recorded.
        params = [weight]
        optimizer.step(params)
        assert len(nt.default_context().tape) == 0

        optimizer.zero_grad(params)
        assert weight.grad is None
    np.testing.assert_allclose(weight.numpy(), start - 100 * 0.01 * slope, rtol=1e-5, atol=1e-5)


def test_hodu_what_is_gradient_context():
    with nt.GradientContext() as ctx:
        assert ctx.id > 0
        assert nt.current_context() == ctx
        # Operations in this scope are recorded in the context's tape.
        x = nt.randn(2, 3, rng=0).set_requires_grad(True)
        y = x.mul(2.0)
        assert len(ctx.tape) == 1
        assert len(nt.default_context().tape) == 0
        nt.compute_gradients(y)
        assert x.grad.tolist() == [[2.0] * 3] * 2
    # The context and its tape are gone; back to the default context.
    assert ctx.is_closed
    assert nt.current_context().id == 0


def test_hodu_important_note_when_using_custom_context_with_optimizer():
    x = nt.randn(4, 10, rng=0)
    weight = nt.randn(10, 5, rng=1).set_requires_grad(True)
    start = weight.numpy(copy=True)
    slope = mean_gradient(x, 5)
    with nt.GradientContext() as ctx:
        optimizer = nt.optim.SGD(0.01)
        for _ in range(100):
            loss = x.matmul(weight).mean([], False)
            assert len(ctx.tape) == 2
            nt.compute_gradients(loss)
            params = [weight]
            optimizer.step(params)
            optimizer.zero_grad(params)
            # hodu must clear by hand here; it is allowed, and nothing is left to clear.
            assert len(ctx.tape) == 0
            nt.clear_tape()
            assert len(ctx.tape) == 0
    np.testing.assert_allclose(weight.numpy(), start - 100 * 0.01 * slope, rtol=1e-5, atol=1e-5)


def adam_path(start, slope, steps, lr=0.001, eps=1e-8):
    """Return where Adam gets with a constant gradient: both corrected moments are exact from the first step on."""
    return start - steps * lr * slope / (np.abs(slope) + eps)


def test_hodu_example_1_training_with_default_context():
    optimizer = nt.optim.Adam(0.001, 0.9, 0.999, 1e-8)
    x = nt.randn(8, 784, rng=0, dtype="float64")
    weight = nt.randn(784, 10, rng=1, dtype="float64").set_requires_grad(True)
    bias = nt.zeros(10, dtype="float64").set_requires_grad(True)
    start = weight.numpy(copy=True)
    slope = mean_gradient(x, 10)
    losses = []
    for _ in range(100):
        logits = x.matmul(weight).add(bias)
        loss = logits.mean([], False)
        nt.compute_gradients(loss)
        np.testing.assert_allclose(weight.grad.numpy(), slope, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(bias.grad.numpy(), np.full(10, 0.1), rtol=1e-12)

        params = [weight, bias]
        optimizer.step(params)
        optimizer.zero_grad(params)
        assert (weight.grad, bias.grad) == (None, None)
        losses.append(loss.item())
    np.testing.assert_allclose(weight.numpy(), adam_path(start, slope, 100), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(bias.numpy(), np.full(10, -0.1), rtol=1e-6)
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))


@pytest.mark.parametrize("main_runs_in_the_default_context", [False, True])
def test_hodu_example_2_independent_training_with_custom_context(main_runs_in_the_default_context):
    # As written, the auxiliary context is active for the main model too: backward follows the loss's own graph, so the
    # gradients are right either way.
    x = nt.randn(4, 100, rng=0, dtype="float64")
    main_optimizer = nt.optim.Adam(0.001, 0.9, 0.999, 1e-8)
    main_weight = nt.randn(100, 50, rng=1, dtype="float64").set_requires_grad(True)
    aux_weight = nt.randn(50, 10, rng=2, dtype="float64").set_requires_grad(True)
    main_slope = mean_gradient(x, 50)
    start = main_weight.numpy(copy=True)
    with nt.GradientContext() as aux_ctx:
        aux_optimizer = nt.optim.SGD(0.01)
        for _ in range(100):
            # Train the main model.
            main_ctx = nt.default_context() if main_runs_in_the_default_context else aux_ctx
            with main_ctx.activate():
                main_loss = x.matmul(main_weight).mean([], False)
                assert len(main_ctx.tape) == 2
                nt.compute_gradients(main_loss)
                np.testing.assert_allclose(main_weight.grad.numpy(), main_slope, rtol=1e-9, atol=1e-12)
                assert aux_weight.grad is None
                main_optimizer.step([main_weight])
                main_optimizer.zero_grad([main_weight])

            # Train the auxiliary model on the main model's weights.
            assert nt.current_context() == aux_ctx
            aux_input = main_weight.detach()
            aux_loss = aux_input.matmul(aux_weight).mean([], False)
            nt.compute_gradients(aux_loss)
            np.testing.assert_allclose(
                aux_weight.grad.numpy(), mean_gradient(main_weight.detach(), 10), rtol=1e-9, atol=1e-12
            )
            # Completely independent: nothing reached the main model.
            assert main_weight.grad is None
            before = aux_weight.numpy(copy=True)
            expected = before - 0.01 * aux_weight.grad.numpy()
            aux_optimizer.step([aux_weight])
            np.testing.assert_allclose(aux_weight.numpy(), expected, rtol=1e-12)
            aux_optimizer.zero_grad([aux_weight])
            nt.clear_tape()
    assert aux_ctx.is_closed
    np.testing.assert_allclose(main_weight.numpy(), adam_path(start, main_slope, 100), rtol=1e-9, atol=1e-12)


def test_hodu_example_3_nested_contexts():
    # Main work in the default context.
    main_x = nt.randn(2, 3, rng=0).set_requires_grad(True)
    main_y = main_x.mul(2.0)

    with nt.GradientContext() as ctx1:
        aux1_x = nt.randn(3, 4, rng=1).set_requires_grad(True)
        aux1_y = aux1_x.mul(3.0)
        nt.compute_gradients(aux1_y)
        assert aux1_x.grad.tolist() == [[3.0] * 4] * 3
        nt.clear_tape()

        with nt.GradientContext() as ctx2:
            assert ctx2.id != ctx1.id
            aux2_x = nt.randn(4, 5, rng=2).set_requires_grad(True)
            aux2_y = aux2_x.mul(4.0)
            nt.compute_gradients(aux2_y)
            assert aux2_x.grad.tolist() == [[4.0] * 5] * 4
            nt.clear_tape()

        # ctx2 is deleted; back in context 1.
        assert ctx2.is_closed
        assert nt.current_context() == ctx1

    # ctx1 is deleted; back in the default context, whose work goes on.
    assert ctx1.is_closed
    assert nt.current_context() == nt.default_context()
    assert main_x.grad is None
    nt.compute_gradients(main_y)
    assert main_x.grad.tolist() == [[2.0] * 3] * 2


@pytest.mark.parametrize("clears", [False, True])
def test_hodu_note_1_zero_grad_only_clears_default_context(clears):
    # hodu's "incorrect usage" leaks; here both usages leave nothing behind.
    weight = nt.ones(3, requires_grad=True)
    params = [weight]
    optimizer = nt.optim.SGD(0.01)
    with nt.GradientContext() as ctx:
        for _ in range(5):
            nt.compute_gradients((weight * weight).sum())
            optimizer.step(params)
            optimizer.zero_grad(params)
            assert len(ctx.tape) == 0
            if clears:
                nt.clear_tape()


def test_hodu_note_2_gradient_context_follows_raii_pattern():
    x = nt.ones(2, requires_grad=True)
    with nt.GradientContext() as ctx:
        y = x * 2.0
        nt.compute_gradients(x * 5.0)
    # When leaving the scope, all that the context recorded is destroyed; .grad outlives it.
    assert ctx.is_closed
    assert len(ctx.tape) == 0
    assert x.grad.tolist() == [5.0, 5.0]
    with pytest.raises(ClosedError, match=r"detach\(\)"):
        nt.compute_gradients(y)


def test_hodu_note_3_default_context_is_never_deleted():
    default = nt.default_context()
    assert default.id == 0
    with pytest.raises(ClosedError, match=r"context 0.* cannot be closed"):
        default.close()
    x = nt.ones(2, requires_grad=True)
    y = x * 2.0
    assert len(default.tape) == 1
    nt.clear_default_context_tape()
    assert len(default.tape) == 0
    with pytest.raises(ClosedError):
        nt.compute_gradients(y)
    nt.compute_gradients(x * 2.0)
    assert x.grad.tolist() == [2.0, 2.0]


def test_hodu_what_happens_if_you_forget_to_clear_the_tape():
    # The mistake costs nothing: memory stays constant, and a backward walks its own loss's records only.
    given = nt.randn(4, 10, rng=0)
    model = nt.nn.Linear(10, 5, rng=1)
    params = list(model.parameters())
    optimizer = nt.optim.SGD(1e-4)
    counts = []
    with nt.GradientContext() as ctx:
        for epoch in range(10000):
            output = model.forward(given)
            loss = output.mean([], False)
            nt.compute_gradients(loss)
            optimizer.step(params)
            optimizer.zero_grad(params)
            # Mistake: not calling clear_tape()!
            if epoch in (10, 5000, 9999):
                gc.collect()
                counts.append((live_records(), len(ctx.tape), len(nt.records(loss))))
    assert counts == [counts[0]] * 3
    assert counts[0][1] == 0


# ML Odyssey: Automatic Differentiation.


def test_ml_odyssey_tape():
    from numtape import Tape

    assert Tape is nt.Tape


def test_ml_odyssey_creating_a_tape():
    tape = nt.Tape()
    assert len(tape) == 0
    assert not tape.is_recording


def test_ml_odyssey_recording_operations_with_a_context_manager():
    tape = nt.Tape()
    with tape:
        x = nt.randn(10, 5, rng=0)
        w = nt.randn(5, 3, rng=1)
        y = x @ w
        loss = y.sum()
    assert [record.op.name for record in tape.records] == ["matmul", "sum"]
    assert loss.shape == ()


def test_ml_odyssey_recording_operations_explicitly():
    tape = nt.Tape()
    tape.start_recording()
    assert tape.is_recording

    x = nt.randn(10, 5, rng=0)
    w = nt.randn(5, 3, rng=1)
    y = x @ w
    loss = y.sum()

    tape.stop_recording()
    assert not tape.is_recording
    _ = y * 2.0
    assert [record.op.name for record in tape.records] == ["matmul", "sum"]
    assert loss.shape == ()


def test_ml_odyssey_computing_gradients():
    tape = nt.Tape()
    with tape:
        x = nt.randn(10, 5, rng=0)
        w = nt.randn(5, 3, rng=1)
        loss = (x @ w).sum()
    # Gradients with respect to all recorded tensors.
    grads = tape.backward(loss)
    dx = grads.get(x)
    dw = grads.get(w)
    np.testing.assert_allclose(dx.numpy(), np.ones((10, 3)) @ w.numpy().T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dw.numpy(), x.numpy().T @ np.ones((10, 3)), rtol=1e-5, atol=1e-6)


def test_ml_odyssey_complete_example():
    learning_rate = 0.01
    x = nt.randn(32, 784, rng=0, dtype="float64")
    w = nt.randn(784, 10, rng=1, dtype="float64")
    b = nt.randn(10, rng=2, dtype="float64")
    targets = np.random.default_rng(0).integers(0, 10, 32)

    tape = nt.Tape()
    with tape:
        logits = x @ w + b
        # Cross-entropy takes logits; the document's probabilities say so.
        probs = nt.softmax(logits, dim=-1)
        loss = nt.cross_entropy_loss(probs, targets, from_logits=False)

    grads = tape.backward(loss)
    dw = grads.get(w)
    db = grads.get(b)
    # Where a probability underflows its logarithm is bounded and its gradient is zero; elsewhere it is p - y.
    p = probs.numpy()
    picked = p[np.arange(32), targets]
    error = (p - np.eye(10)[targets]) / 32 * (picked > np.finfo(np.float64).eps)[:, None]
    np.testing.assert_allclose(db.numpy(), error.sum(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(dw.numpy(), x.numpy().T @ error, rtol=1e-9, atol=1e-12)
    before = w
    w = w - learning_rate * dw
    b = b - learning_rate * db
    assert w.shape == (784, 10)
    assert b.shape == (10,)
    np.testing.assert_allclose(w.numpy(), before.numpy() - 0.01 * dw.numpy(), rtol=1e-12)


def test_ml_odyssey_complete_example_from_logits():
    x = nt.randn(32, 784, rng=0, dtype="float64")
    w = nt.randn(784, 10, rng=1, dtype="float64")
    b = nt.randn(10, rng=2, dtype="float64")
    targets = np.random.default_rng(0).integers(0, 10, 32)
    with nt.Tape() as tape:
        logits = x @ w + b
        loss = nt.cross_entropy_loss(logits, targets)
    grads = tape.backward(loss)
    error = (nt.softmax(logits.detach(), dim=-1).numpy() - np.eye(10)[targets]) / 32
    np.testing.assert_allclose(grads.get(b).numpy(), error.sum(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(grads.get(w).numpy(), x.numpy().T @ error, rtol=1e-9, atol=1e-12)


def test_ml_odyssey_no_grad():
    from numtape import no_grad

    assert no_grad is nt.no_grad


def test_ml_odyssey_no_grad_as_a_context_manager():
    model = nt.nn.Linear(2, 3, bias=False)
    model.set_weights(nt.tensor([[1.0, 0.0], [0.0, 3.0], [2.0, 1.0]]))
    x = nt.tensor([[1.0, 0.0], [0.0, 1.0]])
    with nt.no_grad():
        # No gradients computed here.
        output = model.forward(x)
        predictions = output.argmax(dim=-1)
    assert not output.requires_grad
    assert nt.records(output) == []
    assert predictions.tolist() == [2, 1]


def test_ml_odyssey_is_grad_enabled():
    assert nt.is_grad_enabled() is True
    with nt.no_grad():
        assert nt.is_grad_enabled() is False


def test_ml_odyssey_set_grad_enabled():
    x = nt.ones(2, requires_grad=True)
    nt.set_grad_enabled(False)
    try:
        assert not nt.is_grad_enabled()
        assert not (x * 2.0).requires_grad
    finally:
        nt.set_grad_enabled(True)
    assert nt.is_grad_enabled()
    assert (x * 2.0).requires_grad


def test_ml_odyssey_gradient_accumulation():
    rng = np.random.default_rng(0)
    inputs = nt.tensor(rng.standard_normal((8, 3)))
    targets = nt.tensor(rng.standard_normal((8, 1)))
    model = nt.nn.Linear(3, 1, dtype="float64", rng=1)
    criterion = nt.nn.MSELoss()
    optimizer = nt.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.numpy(copy=True)
    error = inputs.numpy() @ before.T + model.bias.numpy() - targets.numpy()
    tape = nt.Tape()
    accumulation_steps = 4

    for i in range(accumulation_steps):
        batch = slice(2 * i, 2 * i + 2)
        with tape:
            # Entering again after a backward starts a new segment.
            assert len(tape) == 0
            output = model.forward(inputs[batch])
            loss = criterion.forward(output, targets[batch])
            loss = loss / accumulation_steps  # Scale for accumulation.

        grads = tape.backward(loss)
        assert model.weight in grads
        nt.accumulate_gradients(grads)  # Backward has added them; nothing counts twice.

    # The running total is in .grad: equal batches, so it is the gradient of the mean over all of them.
    gradient = 2.0 / 8 * error.T @ inputs.numpy()
    np.testing.assert_allclose(model.weight.grad.numpy(), gradient, rtol=1e-12)
    np.testing.assert_allclose(model.bias.grad.numpy(), 2.0 / 8 * error.sum(axis=0), rtol=1e-12)
    # Apply accumulated gradients.
    optimizer.step()
    optimizer.zero_grad()
    np.testing.assert_allclose(model.weight.numpy(), before - 0.1 * gradient, rtol=1e-12)
    assert [param.grad for param in model.parameters()] == [None, None]


def test_ml_odyssey_retain_graph():
    x = nt.tensor([1.0, 2.0])
    with nt.Tape() as tape:
        y = x * x * x
        loss1 = y.sum()
        loss2 = (y * 2.0).sum()
    grads1 = tape.backward(loss1, retain_graph=True)
    grads2 = tape.backward(loss2)  # Reuses the same graph.
    assert grads1[x].tolist() == [3.0, 12.0]
    assert grads2[x].tolist() == [6.0, 24.0]


DIFFERENTIABLE = {
    "Addition": lambda a, b: a + b,
    "Subtraction": lambda a, b: a - b,
    "Multiplication": lambda a, b: a * b,
    "Division": lambda a, b: a / b,
    "Power": lambda a, b: a**b,
    "Negation": lambda a, b: -a,
    "Matrix multiplication @": lambda a, b: a @ b,
    "Matrix multiplication matmul": lambda a, b: nt.matmul(a, b),
    "Transpose": lambda a, b: a.T,
    "Dot product": lambda a, b: nt.dot(a[0], b[0]),
    "Sum": lambda a, b: a.sum(),
    "Mean": lambda a, b: a.mean(),
    "Max": lambda a, b: a.max(),
    "ReLU": lambda a, b: nt.relu(a),
    "LeakyReLU": lambda a, b: nt.leaky_relu(a),
    "ELU": lambda a, b: nt.elu(a),
    "GELU": lambda a, b: nt.gelu(a),
    "Sigmoid": lambda a, b: nt.sigmoid(a),
    "Tanh": lambda a, b: nt.tanh(a),
    "Softmax": lambda a, b: nt.softmax(a),
    "LogSoftmax": lambda a, b: nt.log_softmax(a),
    "Conv2d": lambda a, b: nt.conv2d(a.reshape(1, 1, 2, 2), b.reshape(1, 1, 2, 2), padding=1),
    "BatchNorm2d": lambda a, b: nt.batch_norm(a.reshape(2, 1, 1, 2), None, None, b[0, :1], b[1, :1], training=True),
    "MaxPool2d": lambda a, b: nt.max_pool2d(a.reshape(1, 1, 2, 2), 2),
    "AvgPool2d": lambda a, b: nt.avg_pool2d(a.reshape(1, 1, 2, 2), 2),
    "Dropout": lambda a, b: nt.dropout(a, 0.5, rng=0),
    "CrossEntropyLoss": lambda a, b: nt.cross_entropy_loss(a, np.array([0, 1])),
    "MSELoss": lambda a, b: nt.mse_loss(a, b),
    "BCELoss": lambda a, b: nt.bce_loss(nt.sigmoid(a), np.array([[0.0, 1.0], [1.0, 0.0]])),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_ml_odyssey_supported_operations(name):
    a = np.array([[0.7, 1.3], [2.1, 0.4]])
    b = np.array([[1.1, 0.6], [0.9, 1.7]])
    assert nt.check_gradients(DIFFERENTIABLE[name], a, b).is_valid


LAYERS = {
    "Linear": (lambda: nt.nn.Linear(4, 3, dtype="float64", rng=0), (2, 4)),
    "Conv2d": (lambda: nt.nn.Conv2d(2, 3, 3, padding=1, dtype="float64", rng=0), (2, 2, 4, 4)),
    "BatchNorm2d": (lambda: nt.nn.BatchNorm2d(2, dtype="float64"), (3, 2, 4, 4)),
    "MaxPool2d": (lambda: nt.nn.MaxPool2d(2), (2, 2, 4, 4)),
    "AvgPool2d": (lambda: nt.nn.AvgPool2d(2), (2, 2, 4, 4)),
    "Dropout": (lambda: nt.nn.Dropout(0.5), (4, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_ml_odyssey_layers(name):
    make, shape = LAYERS[name]
    layer = make()
    x = np.random.default_rng(0).standard_normal(shape)
    names = [name for name, _ in layer.named_parameters()]

    def f(x, *values):
        nt.seed(0)  # The same elements drop out in each run.
        return nt.nn.functional_call(layer, dict(zip(names, values, strict=True)), x)

    # Both by the input and by every parameter.
    values = [param.numpy(copy=True) for param in layer.parameters()]
    assert nt.check_gradients(f, x, *values).is_valid


@pytest.mark.parametrize("name", ["CrossEntropyLoss", "MSELoss", "BCELoss"])
def test_ml_odyssey_losses(name):
    criterion = getattr(nt.nn, name)()
    logits = np.random.default_rng(0).standard_normal((4, 3))
    given, targets = {
        "CrossEntropyLoss": (logits, np.array([0, 2, 1, 1])),
        "MSELoss": (logits, np.ones((4, 3))),
        "BCELoss": (1.0 / (1.0 + np.exp(-logits)), np.eye(4, 3)),
    }[name]
    assert nt.check_gradients(lambda x: criterion.forward(x, targets), given).is_valid


def test_ml_odyssey_gradient_checkpointing():
    def expensive_forward(x):
        for _ in range(5):
            x = nt.tanh(x * 1.5)
        return x

    x = nt.tensor([0.3, 0.6], requires_grad=True)
    expensive_forward(x).sum().backward()
    expected = x.grad.numpy(copy=True)
    x.grad = None
    output = nt.checkpoint(expensive_forward, x)
    assert not any(record.is_kept for record in nt.records(output))
    output.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_ml_odyssey_check_for_nan_and_inf():
    x = nt.tensor([0.0, 1.0])
    y = nt.tensor([1.0, 2.0])
    with nt.Tape() as tape, np.errstate(all="ignore"):
        loss = (nt.sqrt(x) * 0.0 + nt.sqrt(x) + y).sum()
    grads = tape.backward(loss)
    found = {}
    for tensor_id, grad in grads.items():
        found[tensor_id] = (grad.has_nan(), grad.has_inf())
    # sqrt has an infinite slope at 0; 0 times it is NaN.
    assert found == {x.id: (True, False), y.id: (False, False)}
    with nt.Tape() as tape:
        loss = nt.sqrt(x).sum()
    grads = tape.backward(loss)
    assert [(grad.has_nan(), grad.has_inf()) for _, grad in grads.items()] == [(False, True)]


def exploding_model():
    """Return a model whose gradients, 100 for each weight and 50 for the bias, have the norm 150."""
    model = nt.nn.Linear(2, 1, rng=0)
    (model(nt.tensor([[2.0, 2.0]])) * 50.0).sum().backward()
    assert [param.grad.tolist() for param in model.parameters()] == [[[100.0, 100.0]], [50.0]]
    return model


def test_ml_odyssey_gradient_clipping():
    # Clip by global norm: over all parameters together.
    model = exploding_model()
    assert nt.clip_grad_norm(model.parameters(), max_norm=1.0).item() == 150.0
    np.testing.assert_allclose(model.weight.grad.numpy(), [[2.0 / 3.0, 2.0 / 3.0]], rtol=1e-6)
    np.testing.assert_allclose(model.bias.grad.numpy(), [1.0 / 3.0], rtol=1e-6)

    # Or clip by value.
    model = exploding_model()
    nt.clip_grad_value(model.parameters(), clip_value=0.5)
    assert [param.grad.tolist() for param in model.parameters()] == [[[0.5, 0.5]], [0.5]]


# TenfloweRS Autograd: Comprehensive Guide.


def test_tenflowers_gradient_tape():
    tape = nt.GradientTape()
    # Operations are recorded automatically.
    x = tape.watch(nt.ones(2, 2))
    y = x.mul(x)
    assert y.tolist() == [[1.0, 1.0], [1.0, 1.0]]  # Eager: the value is there at once.
    grads = tape.gradient([y], [x])  # dy/dx = 2x
    assert [g.tolist() for g in grads] == [[[2.0, 2.0], [2.0, 2.0]]]
    # Single-use: the tape is consumed.
    with pytest.raises(TapeConsumedError, match="persistent=True"):
        tape.gradient([y], [x])


def test_tenflowers_tracked_tensors():
    tape = nt.GradientTape()
    a = nt.ones(3, 3)
    untracked = a * 2.0
    assert not untracked.requires_grad
    b = tape.watch(a)
    assert isinstance(b, nt.TrackedTensor)
    assert (b * 2.0).requires_grad  # Propagates through operations.
    assert isinstance(b.id, int)
    # It can be converted back.
    regular = (b * 2.0).tensor()
    assert not regular.requires_grad
    assert regular.tolist() == [[2.0] * 3] * 3


def test_tenflowers_reverse_mode_backpropagation():
    # 1000 parameters, 1 loss value, one backward pass.
    parameters = [nt.tensor([float(i), 1.0], requires_grad=True) for i in range(500)]
    loss = sum(((p * p).sum() for p in parameters), nt.tensor(0.0))
    tape = nt.GradientTape()
    grads = tape.gradient([loss], parameters)
    assert [g.tolist() for g in grads] == [[2.0 * i, 2.0] for i in range(500)]


def test_tenflowers_forward_mode():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(0.5, dtype=nt.float64))
    frequencies = np.arange(1.0, 1001.0)

    # 1 input, 1000 outputs: one forward sweep computes all derivatives.
    outputs = nt.sin(x * frequencies)
    jacobian = tape.forward_gradient(x, outputs)

    assert jacobian.shape == (1000,)
    np.testing.assert_allclose(jacobian.numpy(), frequencies * np.cos(0.5 * frequencies), rtol=1e-12)
    assert tape.jacobian(outputs, x).shape == (1000,)
    decision = tape.scheduler.last_decision
    assert (decision.mode, decision.chosen.tangents) == (nt.SchedulingStrategy.FORWARD, 1)


def test_tenflowers_hybrid_mode_automatic_selection():
    config = nt.SchedulerConfig(
        strategy=nt.SchedulingStrategy.AUTO,
        forward_mode_threshold=10.0,
        reverse_mode_threshold=0.1,
        enable_mixed_mode=True,
    )
    tape = nt.GradientTape.with_scheduler_config(config)
    assert isinstance(tape.scheduler, nt.HybridScheduler)

    # It uses forward or reverse mode based on the graph's structure.
    x = tape.watch(nt.ones(50))
    few = nt.stack([x.sum(), (x * x).sum()])
    assert tape.jacobian(few, x).shape == (2, 50)
    assert tape.scheduler.last_decision.mode is nt.SchedulingStrategy.REVERSE
    y = tape.watch(nt.tensor(2.0))
    many = y * np.ones(50, np.float32)
    np.testing.assert_array_equal(tape.jacobian(many, y).numpy(), np.ones(50))
    assert tape.scheduler.last_decision.mode is nt.SchedulingStrategy.FORWARD


def test_tenflowers_higher_order_derivatives():
    # As written: dy_dx is a plain value, and what a new tape knows about it does not reach x. None, never a number.
    tape1 = nt.GradientTape()
    x = tape1.watch(nt.tensor([2.0, 3.0]))
    y = x.pow(nt.tensor(3.0))
    dy_dx = tape1.gradient([y], [x])[0]
    assert dy_dx.tolist() == [12.0, 27.0]  # 3x**2
    tape2 = nt.GradientTape()
    dy_dx_tracked = tape2.watch(dy_dx)
    assert tape2.gradient([dy_dx_tracked], [x]) == [None]


def test_tenflowers_higher_order_derivatives_with_nested_tapes():
    x = nt.tensor([2.0, 3.0])
    with nt.GradientTape() as tape2:
        tape2.watch(x)
        with nt.GradientTape() as tape1:
            tape1.watch(x)
            y = x.pow(nt.tensor(3.0))
        dy_dx = tape1.gradient([y], [x])
    d2y_dx2 = tape2.gradient(dy_dx, [x])
    assert dy_dx[0].tolist() == [12.0, 27.0]  # 3x**2
    assert d2y_dx2[0].tolist() == [12.0, 18.0]  # 6x


def test_tenflowers_installation():
    assert importlib.metadata.version("numtape") == nt.__version__
    hard = [line for line in importlib.metadata.requires("numtape") if "extra ==" not in line]
    assert sorted(line.split(">")[0].replace("-", "_") for line in hard) == ["ml_dtypes", "numpy"]


def test_tenflowers_minimal_example(capsys):
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)))
    # Forward pass: y = x**2, summed for a scalar loss.
    y = x.mul(x)
    loss = y.sum(None, False)
    grads = tape.gradient([loss], [x])
    print("Gradient:", grads[0].tolist())
    assert capsys.readouterr().out == "Gradient: [[2.0, 4.0], [6.0, 8.0]]\n"


def test_tenflowers_minimal_example_expected_output():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor([[1.0, 2.0], [3.0, 4.0]]))
    (gradient,) = tape.gradient([x.mul(x).sum()], [x])
    assert str(gradient) == "tensor([[2., 4.],\n        [6., 8.]])"  # 2x


def test_tenflowers_single_input_single_output():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(3.0))
    # y = x**2 + 2x + 1
    x_squared = x.mul(x)
    two_x = x.mul(nt.tensor(2.0))
    y = x_squared.add(two_x).add(nt.tensor(1.0))
    grad = tape.gradient([y], [x])
    assert grad[0].to_scalar() == 8.0  # 2(3) + 2


def test_tenflowers_multiple_inputs():
    tape = nt.GradientTape()
    x = tape.watch(nt.ones(2, 2))
    y = tape.watch(nt.ones(2, 2))
    z = x.mul(x).add(y.mul(y))
    loss = z.sum(None, False)
    # Rust's clone() copies a handle; here the tensors themselves are the sources.
    grads = tape.gradient([loss], [x, y])
    dx, dy = grads
    assert dx.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert dy.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_tenflowers_multiple_outputs():
    # As written the second call uses a consumed tape; it wants persistent=True, or both targets in one call.
    tape = nt.GradientTape(persistent=True)
    x = tape.watch(nt.ones(3))
    y1 = x.mul(nt.tensor(2.0))
    y2 = x.mul(x)
    grad_y1 = tape.gradient([y1], [x])
    grad_y2 = tape.gradient([y2], [x])
    assert grad_y1[0].tolist() == [2.0, 2.0, 2.0]
    assert grad_y2[0].tolist() == [2.0, 2.0, 2.0]  # 2x

    tape = nt.GradientTape()
    x = tape.watch(nt.ones(3))
    y1, y2 = x.mul(nt.tensor(2.0)), x.mul(x)
    assert tape.gradient([y1, y2], [x])[0].tolist() == [4.0, 4.0, 4.0]
    with pytest.raises(TapeConsumedError, match="persistent=True"):
        tape.gradient([y2], [x])


def test_tenflowers_working_with_neural_networks():
    rng = np.random.default_rng(0)
    inputs = nt.tensor(rng.standard_normal((16, 3)))
    targets = inputs @ nt.tensor(rng.standard_normal((3, 1)))
    model = nt.nn.Dense(3, 1, bias=False, dtype="float64", rng=0)

    def forward_with_tracked_weights(weights, inputs):
        return nt.nn.functional_call(model, {"weight": weights}, inputs)

    def training_step(model, inputs, targets, learning_rate):
        tape = nt.GradientTape()
        # Forward pass with tracked weights.
        weights_tracked = tape.watch(model.weights().clone())
        predictions = forward_with_tracked_weights(weights_tracked, inputs)
        loss = nt.mse_loss(predictions, targets)
        loss_value = loss.to_scalar()

        grads = tape.gradient([loss], [weights_tracked])
        error = predictions.numpy() - targets.numpy()
        np.testing.assert_allclose(grads[0].numpy(), 2 / 16 * error.T @ inputs.numpy(), rtol=1e-9, atol=1e-12)

        # Update weights.
        updated_weights = model.weights().sub(grads[0].mul(nt.tensor(learning_rate)))
        model.set_weights(updated_weights)
        return loss_value

    weights = model.weights()
    losses = [training_step(model, inputs, targets, 0.1) for _ in range(20)]
    # The parameter is written in place: it is the same leaf as before, and optimizers still know it.
    assert model.weights() is weights
    assert weights.is_leaf
    assert weights.grad is None
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))


def test_tenflowers_gradient_checkpointing():
    config = nt.CheckpointConfig(
        strategy=nt.CheckpointStrategy.SELECTIVE, checkpoint_every_n=3, min_compute_cost=100, memory_budget_mb=1024
    )
    rng = np.random.default_rng(0)
    weights = [nt.tensor(rng.standard_normal((64, 64)) / 8, requires_grad=True) for _ in range(50)]

    def run(tape):
        with tape:
            hidden = nt.tensor(rng_input)
            for w in weights:
                hidden = nt.tanh(hidden @ w)
            loss = hidden.sum()
        kept = sum(record.nbytes for record in tape.records if record.is_kept)
        return tape.gradient(loss, weights), kept

    rng_input = rng.standard_normal((8, 64))
    expected, everything = run(nt.GradientTape())
    found, kept = run(nt.GradientTape.with_checkpoint_config(config))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert kept <= everything * 0.4


def test_tenflowers_gradient_checkpointing_auto():
    config = nt.CheckpointConfig(strategy=nt.CheckpointStrategy.AUTO, memory_budget_mb=4096)
    assert (config.checkpoint_every_n, config.min_compute_cost) == (1, 100)
    assert nt.CheckpointConfig().strategy is nt.CheckpointStrategy.AUTO
    x = nt.tensor([1.0, 2.0])
    with nt.GradientTape.with_checkpoint_config(config) as tape:
        y = (tape.watch(x) * x).sum()
    np.testing.assert_array_equal(tape.gradient(y, x).numpy(), [2.0, 4.0])


def test_tenflowers_mixed_precision_training():
    amp_config = nt.AmpConfig(
        enabled=True,
        precision_mode=nt.PrecisionMode.FLOAT16,
        loss_scaler=nt.LossScaler.Dynamic(
            init_scale=65536.0,
            growth_factor=2.0,
            backoff_factor=0.5,
            growth_interval=2000,
        ),
        autocast_ops=["matmul", "conv2d"],
        keep_fp32_ops=["softmax", "layer_norm"],
    )
    tape = nt.GradientTape.with_amp_config(amp_config)
    weight = tape.watch(nt.full((3, 3), 0.5))
    with tape:
        hidden = nt.ones(2, 3) @ weight
        normal = nt.layer_norm(hidden * nt.tensor([1.0, 2.0, 3.0], dtype=nt.float16), (3,))
        loss = (nt.softmax(normal) * 2.0**-20).sum()
    # Operations automatically cast to FP16 where safe.
    assert (hidden.dtype, normal.dtype, loss.dtype) == (nt.float16, nt.float32, nt.float32)
    # Loss scaling prevents underflow in gradients.
    (gradient,) = tape.gradient([loss], [weight])
    assert gradient.dtype == nt.float32
    assert not tape.overflow
    assert amp_config.loss_scaler.good_steps == 1


def test_tenflowers_deterministic_training():
    found = []
    for _ in range(2):
        det_config = nt.DeterministicConfig(
            mode=nt.DeterministicMode.STRICT, global_seed=42, operation_seeds=True, cudnn_deterministic=True
        )
        with nt.GradientTape.with_deterministic_config(det_config) as tape:
            # All random operations use deterministic seeding.
            x = tape.watch(nt.randn(4, 4))
            loss = (nt.dropout(x) @ nt.randn(4, 2)).sum()
        found.append((loss.item(), tape.gradient(loss, x).tolist()))
    # Same seed: identical results every time.
    assert found[0] == found[1]


def test_tenflowers_performance_benchmarking(capsys):
    config = nt.BenchmarkConfig(
        num_warmup=10, num_iterations=100, measure_throughput=True, measure_memory=True, statistical_analysis=True
    )
    benchmark = nt.PerformanceBenchmark(config)
    tape = nt.GradientTape()
    parameters = [tape.watch(nt.ones(3)), tape.watch(nt.ones(3))]
    loss = (parameters[0] * parameters[1]).sum()

    benchmark.start_benchmark("backward_pass")
    grads = tape.gradient([loss], parameters)
    result = benchmark.end_benchmark("backward_pass")

    print(f"Mean time: {result.mean_time_ms:.2f}ms")
    print(f"Throughput: {result.throughput_ops_per_sec:.0f} ops/sec")
    assert len(grads) == 2
    assert result.mean_time_ms > 0.0
    assert result.throughput_ops_per_sec == pytest.approx(1000.0 / result.mean_time_ms)
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["Mean time", "Throughput"]


def test_tenflowers_memory_profiling():
    w = nt.ones(1000, requires_grad=True)
    x = nt.tensor([2.0])
    profiler = nt.GradientMemoryProfiler()
    profiler.start_profiling()

    profiler.record_checkpoint("before_forward")
    with nt.GradientTape() as tape:
        tape.watch(x)
        output = nt.exp(x * w).sum()
    profiler.record_checkpoint("after_forward")

    grads = tape.gradient(output, x)
    profiler.record_checkpoint("after_backward")

    forward_memory = profiler.get_memory_delta("before_forward", "after_forward")
    assert isinstance(forward_memory, float)
    assert forward_memory == 4004 / 2**20  # The result of exp, which its rule reads, and the output.
    # A tape's gradient() frees nothing: a tensor has its graph as long as it lives.
    leak_report = profiler.detect_leaks()
    assert leak_report.num_suspicious == 1
    assert leak_report.leaks[0].holder.startswith("local 'output' of test_tenflowers_memory_profiling (")
    del output
    assert profiler.detect_leaks().num_suspicious == 0
    profiler.stop_profiling()
    assert grads.shape == (1,)


def test_tenflowers_memory_bandwidth():
    x = nt.tensor([1.0, 2.0])
    y = nt.tensor([3.0, 4.0])
    # Bad: a new tensor in every iteration.
    temps = [x.mul(y) for _ in range(3)]
    assert len({temp.numpy().ctypes.data for temp in temps}) == 3
    # Good: the buffer is used again.
    temp = nt.zeros(2)
    address = temp.numpy().ctypes.data
    for _ in range(1000):
        assert x.mul_into(y, temp) is temp
    assert temp.numpy().ctypes.data == address
    assert temp.tolist() == [3.0, 8.0]


def test_tenflowers_tape_overhead():
    # Bad: track everything.
    tape = nt.GradientTape()
    given = nt.ones(2)
    x = tape.watch(given)
    y = x.add(nt.tensor(1.0))
    assert len(nt.records(y)) == 1
    # watch marks the tensor itself, so the document's second try is recorded as well ...
    assert x is given
    assert len(nt.records(given.add(nt.tensor(1.0)))) == 1
    # Good: ... and what needs no gradient is computed before anything is watched.
    tape = nt.GradientTape()
    given = nt.ones(2)
    y = given.add(nt.tensor(1.0))
    assert not y.requires_grad
    z = tape.watch(y)
    loss = z * z
    assert len(nt.records(loss)) == 1
    assert tape.gradient(loss, z).tolist() == [4.0, 4.0]


def test_tenflowers_pattern_1_gradient_accumulation():
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((4, 3)) for _ in range(4)]
    parameters = [
        nt.tensor(rng.standard_normal((3, 2)), requires_grad=True),
        nt.tensor(rng.standard_normal(2), requires_grad=True),
    ]
    optimizer = nt.optim.SGD(parameters, lr=0.01)
    accumulation_steps = 4
    accumulated_grads = [nt.zeros(p.shape, dtype="float64") for p in parameters]

    def loss_of(batch):
        return ((batch @ parameters[0] + parameters[1]) ** 2).mean()

    for batch in batches:
        tape = nt.GradientTape()
        loss = loss_of(batch)
        grads = tape.gradient([loss], parameters)
        accumulated_grads = [accum.add(grad) for accum, grad in zip(accumulated_grads, grads, strict=True)]

    # Average, and apply.
    accumulated_grads = [grad.div(nt.tensor(float(accumulation_steps))) for grad in accumulated_grads]
    whole = nt.GradientTape().gradient([loss_of(np.concatenate(batches))], parameters)
    for grad, expected in zip(accumulated_grads, whole, strict=True):
        np.testing.assert_allclose(grad.numpy(), expected.numpy(), rtol=1e-12)
    # gradient() only returns.
    assert [p.grad for p in parameters] == [None, None]
    before = loss_of(np.concatenate(batches)).item()
    expected = [p.numpy() - 0.01 * g.numpy() for p, g in zip(parameters, accumulated_grads, strict=True)]
    optimizer.step(accumulated_grads)
    for p, value in zip(parameters, expected, strict=True):
        np.testing.assert_allclose(p.numpy(), value, rtol=1e-12)
    assert loss_of(np.concatenate(batches)).item() < before


def test_tenflowers_pattern_2_conditional_gradients():
    weight = nt.tensor([2.0, 3.0])

    def forward(given, training):
        if training:
            tape = nt.GradientTape()
            tracked = tape.watch(given)
            return tracked * weight
        return given * weight  # No tracking overhead.

    x = nt.ones(2)
    evaluated = forward(x, training=False)
    assert not evaluated.requires_grad
    assert nt.records(evaluated) == []
    trained = forward(x, training=True)
    # The tape is gone; the output keeps its graph alive.
    assert trained.requires_grad
    assert nt.GradientTape().gradient(trained, x).tolist() == [2.0, 3.0]
    assert trained.tolist() == evaluated.tolist()


def test_tenflowers_tape_management_do():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    before = live_records()
    for _ in range(3):
        tape = nt.GradientTape()
        loss = (w * w).sum()
        assert tape.gradient([loss], [w])[0].tolist() == [2.0, 4.0]
        held = weakref.ref(tape), weakref.ref(loss)
        del tape, loss
        # The tape is dropped, memory released.
        assert [ref() for ref in held] == [None, None]
        assert live_records() == before


def test_tenflowers_tape_management_dont():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    tape = nt.GradientTape()
    finished = 0

    def train():
        nonlocal finished
        for _ in range(2):
            tape.gradient([(w * w).sum()], [w])
            finished += 1

    with pytest.raises(TapeConsumedError, match="persistent=True"):
        train()
    assert finished == 1


def test_tenflowers_gradient_validation():
    checker = nt.NumericalChecker()
    tape = nt.GradientTape()
    x = tape.watch(nt.ones(5))

    @nt.custom_op(vjp={"x": lambda g, x: g * 3 * x**2}, check=False)
    def custom_op(x, /):
        return x**3

    @nt.custom_op(vjp={"x": lambda g, x: g * 3 * x}, check=False)
    def wrong_op(x, /):
        return x**3 + x

    result = checker.check_gradient_central(tape, x, lambda tape, x: custom_op(x))
    assert result.is_valid, f"Gradient check failed: {result.max_error}"
    assert result.max_error < 1e-6
    assert not checker.check_gradient_central(tape, x, lambda tape, x: wrong_op(x)).is_valid


def test_tenflowers_api_numerical_validation():
    x = nt.GradientTape().watch(nt.tensor([0.5, 1.5]))
    result = nt.NumericalChecker().check_gradient_central(nt.GradientTape(), x, lambda tape, x: (x * x).sum())
    assert isinstance(result, nt.ValidationResult)
    assert (result.is_valid, result.max_error < 1e-6) == (True, True)


def test_tenflowers_error_handling():
    params = [nt.ones(3, requires_grad=True)]

    def training_step(given):
        tape = nt.GradientTape()
        output = given @ params[0]
        loss = (output * output).sum()
        grads = tape.gradient([loss], params)
        return loss.to_scalar(), grads[0].tolist()

    assert training_step(nt.ones(1, 3)) == (9.0, [6.0, 6.0, 6.0])
    # Errors propagate, as the built-in kind that fits, and leave nothing behind.
    with pytest.raises(ShapeError, match="matmul"):
        training_step(nt.ones(1, 4))
    with pytest.raises(ValueError, match="matmul"):
        training_step(nt.ones(1, 4))
    assert training_step(nt.ones(1, 3)) == (9.0, [6.0, 6.0, 6.0])


def test_tenflowers_resource_cleanup():
    params = [nt.tensor([1.0, 2.0], requires_grad=True)]
    optimizer = nt.optim.SGD(params, lr=0.1)

    def run():
        tape = nt.GradientTape()
        intermediate = params[0] * params[0]
        loss = intermediate.sum()
        grads = tape.gradient([loss], params)
        optimizer.step(grads)
        return weakref.ref(tape), weakref.ref(intermediate), weakref.ref(loss), weakref.ref(grads[0])

    gc.collect()
    gc.disable()
    try:
        before = live_records()
        # The tape and the intermediate tensors are dropped at the end of the block, without the collector.
        assert [ref() for ref in run()] == [None] * 4
        assert live_records() == before
        # Force cleanup if needed.
        large_tensor = nt.zeros(1000)
        held = weakref.ref(large_tensor)
        del large_tensor
        assert held() is None
    finally:
        gc.enable()
    np.testing.assert_allclose(params[0].numpy(), [0.8, 1.6], rtol=1e-6)


def test_tenflowers_issue_1_exploding_gradients():
    params = [nt.tensor([30.0], requires_grad=True), nt.tensor([40.0, 0.0], requires_grad=True)]
    tape = nt.GradientTape()
    loss = (params[0] ** 2).sum() + (params[1] ** 2).sum()
    grads = tape.gradient([loss], params)
    clipped = nt.gradient_clipping.clip_by_global_norm(grads, 1.0)
    np.testing.assert_allclose(clipped[0].numpy(), [0.6], rtol=1e-6)
    np.testing.assert_allclose(clipped[1].numpy(), [0.8, 0.0], rtol=1e-6)
    # A new list: what the tape gave is as it was.
    assert [grad.tolist() for grad in grads] == [[60.0], [80.0, 0.0]]


def test_tenflowers_issue_1_numerical_instability():
    logits = nt.tensor([1000.0, 0.0], requires_grad=True)
    log_probs = logits.log_softmax()
    loss = -log_probs.sum()  # More stable than the logarithm of exp.
    assert loss.item() == 1000.0
    loss.backward()
    assert logits.grad.tolist() == [1.0, -1.0]


def test_tenflowers_issue_1_mixed_precision_issues():
    def needs_adjustment(loss):
        return loss.to_scalar() > 1e10 or loss.to_scalar() < 1e-10

    x = nt.ones(2, requires_grad=True)
    assert not needs_adjustment(x.sum())
    assert needs_adjustment((x * 1e11).sum())
    assert needs_adjustment((x * 1e-11).sum())


def test_tenflowers_issue_2_reduce_batch_size():
    effective_batch = 64
    actual_batch = 16
    accumulation_steps = effective_batch // actual_batch
    assert accumulation_steps == 4
    x = np.random.default_rng(0).standard_normal((effective_batch, 3))
    w = nt.tensor(np.ones(3), requires_grad=True)
    for batch in np.split(x, accumulation_steps):
        (((batch @ w) ** 2).mean() / accumulation_steps).backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * x.T @ (x @ np.ones(3)) / effective_batch, rtol=1e-12)


def test_tenflowers_issue_2_profile_memory():
    weights = [nt.randn(64, 64, requires_grad=True, rng=i) for i in range(4)]
    with nt.GradientMemoryProfiler() as profiler:
        hidden = nt.ones(32, 64)
        for w in weights:
            hidden = nt.gelu(hidden @ w)
        hidden.sum().backward()
    # Identify which operations use most memory.
    assert {row.name for row in profiler.by_op()[:2]} == {"gelu", "matmul"}


def test_tenflowers_issue_3_slow_gradient_computation(capsys):
    tape = nt.GradientTape()
    params = [tape.watch(nt.ones(3))]
    loss = nt.exp(params[0]).sum()

    benchmark = nt.PerformanceBenchmark()
    benchmark.start_benchmark("backward")
    tape.gradient([loss], params)
    result = benchmark.end_benchmark("backward")

    print(f"Backward pass: {result.mean_time_ms:.2f}ms")
    assert capsys.readouterr().out.startswith("Backward pass: ")


def test_tenflowers_issue_4_non_deterministic_results():
    config = nt.DeterministicConfig(
        mode=nt.DeterministicMode.STRICT, global_seed=42, operation_seeds=True, cudnn_deterministic=True
    )
    with nt.GradientTape.with_deterministic_config(config):
        first = nt.rand(3).tolist()
    with nt.deterministic(global_seed=42, operation_seeds=True):
        assert nt.rand(3).tolist() == first


def test_tenflowers_api_gradient_tape():
    tape = nt.GradientTape()
    given = nt.tensor([1.0, 2.0])
    tracked = tape.watch(given)
    assert isinstance(tracked, nt.TrackedTensor)
    result = tape.gradient(targets=[tracked * 3.0], sources=[tracked])
    assert type(result) is list
    assert result[0].tolist() == [3.0, 3.0]
    assert isinstance(result[0], nt.Tensor)


def test_tenflowers_api_gradient_tape_with_deterministic_config():
    tape = nt.GradientTape.with_deterministic_config(nt.DeterministicConfig())
    assert isinstance(tape, nt.GradientTape)
    x = tape.watch(nt.tensor(3.0))
    with tape:
        y = x * x
    assert tape.gradient(y, x).item() == 6.0


def test_tenflowers_api_tracked_tensor():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert x.tensor().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert not (x.tensor() * 2.0).requires_grad
    # The same operations as Tensor.
    assert x.add(x).tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert x.mul(x).tolist() == [[1.0, 4.0], [9.0, 16.0]]
    assert x.matmul(x).tolist() == [[7.0, 10.0], [15.0, 22.0]]
    assert tape.gradient([x.add(x), x.matmul(x)], [x])[0].tolist() == [[9.0, 13.0], [11.0, 15.0]]


def test_tenflowers_api_checkpoint_config():
    assert [field.name for field in dataclasses.fields(nt.CheckpointConfig) if field.init] == [
        "strategy",
        "checkpoint_every_n",
        "min_compute_cost",
        "memory_budget_mb",
    ]


def test_tenflowers_api_amp_config():
    fields = ["enabled", "precision_mode", "loss_scaler", "autocast_ops", "keep_fp32_ops"]
    config = nt.AmpConfig()
    assert [getattr(config, name) for name in fields] == [True, nt.PrecisionMode.BFLOAT16, None, (), ()]
    assert [mode.name for mode in nt.PrecisionMode] == ["FLOAT16", "BFLOAT16", "FLOAT32"]


def test_tenflowers_api_deterministic_config():
    assert [field.name for field in dataclasses.fields(nt.DeterministicConfig) if field.init] == [
        "mode",
        "global_seed",
        "operation_seeds",
        "cudnn_deterministic",
    ]


def test_tenflowers_api_gradient_clipping():
    gradients = [nt.tensor([3.0]), nt.tensor([[0.25, -4.0]])]
    clipped = nt.gradient_clipping.clip_by_global_norm(gradients, 100.0)
    assert [grad.tolist() for grad in clipped] == [[3.0], [[0.25, -4.0]]]
    clipped = nt.gradient_clipping.clip_by_value(gradients, 0.5)
    assert type(clipped) is list
    assert [grad.tolist() for grad in clipped] == [[0.5], [[0.25, -0.5]]]
    assert all(isinstance(grad, nt.Tensor) for grad in clipped)
