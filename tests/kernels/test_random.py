"""Draws that a backward asks for again are remembered, a bit each, within bounds."""

import threading

import numpy as np
import pytest

import numtape as nt
from numtape.kernels import random

MANY = (64, 128)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The streams from which words were drawn since, by a thread that remembers nothing yet."""
    asked: list[tuple[int, int]] = []
    words = random.words

    def counted(key: int, counter: int, count: int) -> np.ndarray:
        asked.append((key, counter))
        return words(key, counter, count)

    monkeypatch.setattr(random, "words", counted)
    monkeypatch.setattr(random._local, "chances", random._Remembered(), raising=False)
    return asked


def test_what_was_drawn_is_not_drawn_again(drawn):
    first = random.chances(3, 5, MANY, 0.9)
    again = random.chances(3, 5, MANY, 0.9)
    np.testing.assert_array_equal(first, again)
    assert again.dtype == bool
    assert drawn == [(3, 5)]


def test_what_is_remembered_cannot_be_written(drawn):
    expected = random.chances(3, 5, MANY, 0.9).copy()
    for _ in range(2):
        random.chances(3, 5, MANY, 0.9)[...] = False
    np.testing.assert_array_equal(random.chances(3, 5, MANY, 0.9), expected)


def test_other_draws_are_others(drawn):
    draws = [
        random.chances(3, 5, MANY, 0.9),
        random.chances(4, 5, MANY, 0.9),
        random.chances(3, 6, MANY, 0.9),
        random.chances(3, 5, MANY, 0.5),
    ]
    assert len(drawn) == 4
    assert all(not np.array_equal(a, b) for i, a in enumerate(draws) for b in draws[:i])
    # A shape is none of their business.
    np.testing.assert_array_equal(random.chances(3, 5, MANY[::-1], 0.9).ravel(), draws[0].ravel())
    assert len(drawn) == 4


def test_a_thread_remembers_so_many_bytes_at_most(drawn, monkeypatch):
    monkeypatch.setattr(random, "_MOST_REMEMBERED", 3000)
    for counter in range(10):
        random.chances(1, counter, MANY, 0.5)  # 1,024 bytes of bits.
    assert sum(bits.nbytes for bits in random._local.chances.bits.values()) <= 3000
    random.chances(1, 9, MANY, 0.5)
    assert len(drawn) == 10
    random.chances(1, 0, MANY, 0.5)
    assert len(drawn) == 11
    random.chances(1, 0, (1 << 15,), 0.5)  # More than all of it.
    random.chances(1, 0, (1 << 15,), 0.5)
    assert len(drawn) == 13


def test_threads_draw_the_same(drawn):
    found = []
    thread = threading.Thread(target=lambda: found.append(random.chances(3, 5, MANY, 0.9)))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0], random.chances(3, 5, MANY, 0.9))
    assert len(drawn) == 2


@pytest.mark.parametrize("config", [None, nt.CheckpointConfig("full")])
def test_a_backward_draws_no_masks(drawn, config):
    x = nt.ones(64, 128, requires_grad=True)
    with nt.Tape(checkpoint=config) as tape:
        loss = (nt.dropout(nt.exp(x), 0.2, rng=7) ** 2).sum()
    assert len(drawn) == 1
    tape.backward(loss)
    assert len(drawn) == 1
    mask = nt.dropout(np.ones((64, 128), np.float32), 0.2, rng=7)
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(2) * mask**2, rtol=1e-6)
