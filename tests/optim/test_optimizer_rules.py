"""Each rule equals its published formula, written out again here in plain NumPy, to 1e-12 over 100 steps."""

import math

import numpy as np
import pytest

import numtape as nt
from numtape import optim

STEPS = 100


def gradients(seed):
    """Gradients that do not depend on the parameter, of very different sizes."""
    generator = np.random.default_rng(seed)
    return generator.normal(size=(STEPS, 7)) * np.array([1e-4, 0.01, 0.1, 1.0, 3.0, 10.0, 0.0])


def start():
    return np.linspace(-1.0, 2.0, 7)


def sgd(p, grads, lr=0.1, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
    velocity = None
    for g in grads:
        g = g + weight_decay * p
        if momentum:
            velocity = g if velocity is None else momentum * velocity + (1 - dampening) * g
            g = g + momentum * velocity if nesterov else velocity
        p = p - lr * g
    return p


def adam(p, grads, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False, decoupled=False):
    m = v = largest = np.zeros_like(p)
    for t, g in enumerate(grads, 1):
        if decoupled:
            p = p - lr * weight_decay * p
        else:
            g = g + weight_decay * p
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        largest = np.maximum(largest, v)
        mean = m / (1 - betas[0] ** t)
        square = (largest if amsgrad else v) / (1 - betas[1] ** t)
        p = p - lr * mean / (np.sqrt(square) + eps)
    return p


def adamw(p, grads, weight_decay=1e-2, **options):
    return adam(p, grads, weight_decay=weight_decay, decoupled=True, **options)


def nadam(p, grads, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, momentum_decay=4e-3, decoupled=False):
    m = v = np.zeros_like(p)
    product = 1.0
    for t, g in enumerate(grads, 1):
        if decoupled:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        mu = betas[0] * (1 - 0.5 * 0.96 ** (t * momentum_decay))
        mu_next = betas[0] * (1 - 0.5 * 0.96 ** ((t + 1) * momentum_decay))
        product *= mu
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        mean = mu_next * m / (1 - product * mu_next) + (1 - mu) * g / (1 - product)
        p = p - lr * mean / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
    return p


def radam(p, grads, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
    m = v = np.zeros_like(p)
    rho_inf = 2 / (1 - betas[1]) - 1
    for t, g in enumerate(grads, 1):
        if decoupled:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        mean = m / (1 - betas[0] ** t)
        rho = rho_inf - 2 * t * betas[1] ** t / (1 - betas[1] ** t)
        if rho > 5:
            r = math.sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))
            p = p - lr * mean * r * math.sqrt(1 - betas[1] ** t) / (np.sqrt(v) + eps)
        else:
            p = p - lr * mean
    return p


def adagrad(p, grads, lr=0.1, lr_decay=0.0, weight_decay=0.0, initial_accumulator_value=0.0, eps=1e-10):
    total = np.full_like(p, initial_accumulator_value)
    for t, g in enumerate(grads):
        g = g + weight_decay * p
        total = total + g**2
        p = p - lr / (1 + t * lr_decay) * g / (np.sqrt(total) + eps)
    return p


def rmsprop(p, grads, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False):
    square = mean = velocity = np.zeros_like(p)
    for g in grads:
        g = g + weight_decay * p
        square = alpha * square + (1 - alpha) * g**2
        mean = alpha * mean + (1 - alpha) * g
        scale = np.sqrt(square - mean**2 if centered else square) + eps
        velocity = momentum * velocity + g / scale
        p = p - lr * velocity
    return p


def adadelta(p, grads, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0.0):
    square = total = np.zeros_like(p)
    for g in grads:
        g = g + weight_decay * p
        square = rho * square + (1 - rho) * g**2
        delta = np.sqrt(total + eps) / np.sqrt(square + eps) * g
        total = rho * total + (1 - rho) * delta**2
        p = p - lr * delta
    return p


def lion(p, grads, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.0):
    m = np.zeros_like(p)
    for g in grads:
        p = p - lr * (np.sign(betas[0] * m + (1 - betas[0]) * g) + weight_decay * p)
        m = betas[1] * m + (1 - betas[1]) * g
    return p


CASES = [
    (optim.SGD, sgd, {"lr": 0.1}),
    (optim.SGD, sgd, {"lr": 0.1, "weight_decay": 0.1}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (optim.Adam, adam, {"lr": 0.01}),
    (optim.Adam, adam, {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (optim.Adam, adam, {"lr": 0.01, "betas": (0.0, 0.9), "eps": 1e-4}),
    (optim.Adam, adam, {"lr": 0.01, "amsgrad": True, "betas": (0.9, 0.95)}),
    (optim.AdamW, adamw, {"lr": 0.01}),
    (optim.AdamW, adamw, {"lr": 0.01, "weight_decay": 0.3, "amsgrad": True}),
    (optim.NAdam, nadam, {"lr": 0.01}),
    (optim.NAdam, nadam, {"lr": 0.01, "weight_decay": 0.1, "momentum_decay": 0.02}),
    (optim.RAdam, radam, {"lr": 0.01}),
    (optim.RAdam, radam, {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.98)}),
    (optim.Adagrad, adagrad, {"lr": 0.1}),
    (
        optim.Adagrad,
        adagrad,
        {"lr": 0.1, "lr_decay": 0.05, "weight_decay": 0.1, "initial_accumulator_value": 0.2, "eps": 1e-3},
    ),
    (optim.RMSprop, rmsprop, {"lr": 0.01}),
    (optim.RMSprop, rmsprop, {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}),
    (optim.RMSprop, rmsprop, {"lr": 0.01, "momentum": 0.5, "centered": True, "eps": 1e-3}),
    (optim.Adadelta, adadelta, {"lr": 1.0}),
    (optim.Adadelta, adadelta, {"lr": 0.5, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.1}),
    (optim.Lion, lion, {"lr": 0.01}),
    (optim.Lion, lion, {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.3}),
]


@pytest.mark.parametrize(("cls", "reference", "options"), CASES, ids=lambda x: getattr(x, "__name__", None))
def test_a_rule_equals_its_formula_over_100_steps(cls, reference, options):
    w = nt.tensor(start(), requires_grad=True)
    optimizer = cls([w], **options)
    for g in gradients(3):
        w.grad = g
        optimizer.step()
    np.testing.assert_allclose(w.numpy(), reference(start(), gradients(3), **options), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("cls", "reference"), [(optim.NAdam, nadam), (optim.RAdam, radam)])
def test_decoupled_weight_decay_shrinks_the_parameter_itself(cls, reference):
    w = nt.tensor(start(), requires_grad=True)
    optimizer = cls([w], lr=0.01, weight_decay=0.2, decoupled_weight_decay=True)
    for g in gradients(4):
        optimizer.step([g])
    expected = reference(start(), gradients(4), weight_decay=0.2, decoupled=True)
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16])
def test_half_parameters_are_updated_in_float32_and_rounded_once(dtype):
    values = np.linspace(-1.0, 2.0, 40_000).astype(dtype)
    w = nt.tensor(values, requires_grad=True)
    optimizer = optim.Adam([w], lr=0.01)
    optimizer.step([np.linspace(-3.0, 1.0, 40_000)])
    g = np.linspace(-3.0, 1.0, 40_000).astype(np.float32)
    wide = values.astype(np.float32)
    expected = (wide - np.float32(0.01) * g / (np.abs(g) + np.float32(1e-8))).astype(dtype)
    apart = np.abs(w.numpy().astype(float) - expected.astype(float))
    assert w.dtype == dtype
    assert optimizer.state[w]["exp_avg"].dtype == nt.float32
    # The two orders of rounding may differ in the last place of a half number.
    assert (
        apart <= np.abs(expected.astype(float)) * float(np.finfo(np.float16).eps if dtype == nt.float16 else 2**-7)
    ).all()
    assert (apart == 0).mean() > 0.99
