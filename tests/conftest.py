"""Fixtures that every test shares."""

import gc
import signal

import numpy as np
import pytest

import numtape as nt
from numtape.core import context

nt.ops.load_all()  # Tests are collected for each op of the registry.


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace):
    """Give doctests the two names that every example uses."""
    doctest_namespace["nt"] = nt
    doctest_namespace["np"] = np


@pytest.fixture(autouse=True)
def ambient_state_is_restored():
    """Fail a test that leaves the ambient state changed; start each with an empty context 0."""
    nt.clear_default_context_tape()
    state = context.current()
    before = (state, state.grad, state.tapes, state.scopes, state.context, state.transforms)
    yield
    state = context.current()
    after = (state, state.grad, state.tapes, state.scopes, state.context, state.transforms)
    assert after == before, "the test left the ambient state changed"
    assert nt.default_dtype() == nt.float32


def pytest_configure():
    """Let interrupts reach the tests that send them, also in a job of a shell that has told it to ignore them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish():
    """Take all that was made so far out of the garbage collector's sight: most of it are the many collected tests.

    Each collection, and each look for who holds what, would walk over them.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def everything_in_sight():
    """Let a test see what was there before it: the main thread's context, the variables of modules."""
    gc.unfreeze()
    gc.collect()  # Tapes of tests whose errors are in a cycle with the frames that they tell of.
    yield
    gc.freeze()
