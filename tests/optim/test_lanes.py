"""Large parameters are updated by several threads, with the same bits as by one."""

import numpy as np
import pytest

import numtape as nt
from numtape.kernels import pool


def trained(make, threads, monkeypatch, dtype):
    monkeypatch.setattr(pool, "threads", lambda: threads)
    rng = np.random.default_rng(0)
    params = [nt.tensor(rng.normal(size=n).astype(dtype), requires_grad=True) for n in (1_500_003, 700)]
    optimizer = make(params)
    for _ in range(3):
        for p in params:
            p.grad = nt.tensor(rng.normal(size=p.shape).astype(dtype))
        optimizer.step()
    slots = [optimizer._updates._slots[p] for p in params]
    return [p.numpy() for p in params], [slot._lanes for slot in slots]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, nt.bfloat16], ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda p: nt.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: nt.optim.AdamW(p, lr=0.1, amsgrad=True),
        lambda p: nt.optim.Lion(p, lr=0.1),
    ],
)
def test_the_bits_do_not_depend_on_the_threads(make, dtype, monkeypatch):
    alone, lanes = trained(make, 1, monkeypatch, dtype)
    assert lanes == [1, 1]
    shared, lanes = trained(make, 3, monkeypatch, dtype)
    assert lanes == [1 if dtype == nt.bfloat16 else 3, 1]
    for a, b in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(a, b)


def test_threads_have_no_errors_of_their_own(monkeypatch):
    monkeypatch.setattr(pool, "threads", lambda: 2)
    p = nt.tensor(np.full(2_000_000, 1e38, np.float32), requires_grad=True)
    p.grad = nt.tensor(np.full(2_000_000, -1e38, np.float32))
    nt.optim.SGD([p], lr=1e4).step()
    assert np.isinf(p.numpy()).all()
