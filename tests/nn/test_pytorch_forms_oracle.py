"""Functions in PyTorch's forms give what PyTorch gives."""

import itertools

import numpy as np
import pytest

import numtape as nt
from numtape import nn
from numtape.nn import functional as F

torch = pytest.importorskip("torch")


def test_the_largest_difference_as_a_distance():
    x = [np.array([[0.0, 0.0]]), np.array([[1.0, 2.0]]), np.array([[3.0, 1.0]])]
    for margin in (1.0, 5.0):
        theirs = [torch.tensor(each, requires_grad=True) for each in x]
        ours = [nt.tensor(each, requires_grad=True) for each in x]
        wanted = torch.nn.TripletMarginLoss(margin, p=float("inf"))(*theirs)
        found = nn.TripletMarginLoss(margin, p=float("inf"))(*ours)
        wanted.backward()
        found.backward()
        np.testing.assert_allclose(found.item(), wanted.item(), rtol=1e-12, atol=1e-15)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-12)


def test_pools_that_go_beyond_the_end():
    x = np.random.default_rng(0).normal(size=(2, 3, 7, 8))
    for k, s, p, d in itertools.product((2, 3), (1, 2, 3), (0, 1), (1, 2)):
        wanted = torch.nn.functional.max_pool2d(torch.tensor(x), k, s, p, d, ceil_mode=True).numpy()
        np.testing.assert_array_equal(F.max_pool2d(x, k, s, p, d, ceil_mode=True), wanted)
        wanted = torch.nn.functional.max_pool1d(torch.tensor(x[0]), k, s, p, d, ceil_mode=True).numpy()
        np.testing.assert_array_equal(F.max_pool1d(x[0], k, s, p, d, ceil_mode=True), wanted)


def test_cosines_and_shared_heads():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 4, 5)), rng.normal(size=(3, 4, 5))
    for dim in (0, 1, 2, -1):
        wanted = torch.nn.functional.cosine_similarity(torch.tensor(a), torch.tensor(b), dim).numpy()
        np.testing.assert_allclose(F.cosine_similarity(a, b, dim), wanted, rtol=1e-12)
    for first, second, dim in (((3, 4), (1, 4), 0), ((2, 4), (2, 1), 1), ((2, 3, 3), (3, 3), 1), ((5, 3), (3,), 1)):
        a, b = rng.normal(size=first), rng.normal(size=second)
        for x, y in ((a, b), (b, a)):
            ours = [nt.tensor(v, requires_grad=True) for v in (x, y)]
            theirs = [torch.tensor(v, requires_grad=True) for v in (x, y)]
            found = F.cosine_similarity(*ours, dim=dim)
            wanted = torch.nn.functional.cosine_similarity(*theirs, dim=dim)
            np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), rtol=1e-12)
            (found * found).sum().backward()
            (wanted * wanted).sum().backward()
            for u, v in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(u.grad.numpy(), v.grad.numpy(), rtol=1e-10, atol=1e-12)
    q, k = rng.normal(size=(2, 4, 3, 2)), rng.normal(size=(2, 2, 5, 2))
    wanted = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, (q, k, k)), enable_gqa=True).numpy()
    np.testing.assert_allclose(F.scaled_dot_product_attention(q, k, k, enable_gqa=True), wanted, rtol=1e-10)


def test_backward_hooks_see_what_pytorchs_see():
    seen = {}

    def model(library, key):
        made = library.Sequential(library.Linear(2, 3), library.Tanh(), library.Linear(3, 1)).double()
        seen[key] = []
        for part in made:
            part.register_full_backward_hook(
                lambda module, given, got: seen[key].append(
                    [None if g is None else np.array(g.tolist()) for g in (*given, *got)]
                )
            )
        return made

    theirs, ours = model(torch.nn, "theirs"), model(nn, "ours")
    ours.load_state_dict(theirs.state_dict())
    x = np.random.default_rng(0).normal(size=(4, 2))
    (theirs(torch.tensor(x, requires_grad=True)) ** 2).sum().backward()
    (ours(nt.tensor(x, requires_grad=True)) ** 2).sum().backward()
    assert len(seen["ours"]) == len(seen["theirs"]) == 3
    for found, wanted in zip(seen["ours"], seen["theirs"], strict=True):
        for a, b in zip(found, wanted, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-10)
