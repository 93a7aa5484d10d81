"""A parameter with its optimizer and its scaler, and one step of them, for tests of loss scaling."""

import numtape as nt

INFINITE = float("inf")


def make(init_scale=1024.0, lr=0.5, **settings):
    """Return a parameter, its optimizer and a scaler."""
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    return w, nt.optim.SGD([w], lr=lr), nt.LossScaler.Dynamic(init_scale=init_scale, **settings)


def one_step(w, optimizer, scaler, overflow=False):
    optimizer.zero_grad()
    scaler.scale((w * (INFINITE if overflow else 1.0)).sum()).backward()
    result = scaler.step(optimizer)
    scaler.update()
    return result


def amp(**settings):
    return nt.AmpConfig(precision_mode="float16", **settings)


def two_optimizers():
    a, b = (nt.tensor([1.0], requires_grad=True, name=name) for name in "ab")
    return a, b, nt.optim.SGD([a], lr=0.1), nt.optim.SGD([b], lr=0.1), nt.LossScaler.Dynamic(8.0)
