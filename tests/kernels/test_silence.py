"""Silence is what np.errstate(all="ignore") gives, and ends with its block."""

import contextlib
import threading

import numpy as np
import pytest

from numtape.kernels import silence
from numtape.kernels.silence import silent


def test_nothing_is_said_inside_and_the_rest_is_as_before():
    with np.errstate(all="raise"):
        before = np.geterr()
        with silent():
            assert set(np.geterr().values()) == {"ignore"}
            assert np.isinf(np.ones(1) / np.zeros(1)).all()
        assert np.geterr() == before
        with pytest.raises(FloatingPointError):
            np.ones(1) / np.zeros(1)


def test_blocks_nest_and_end_with_an_error():
    before = np.geterr()
    with pytest.raises(KeyError), silent(), silent():
        raise KeyError
    assert np.geterr() == before


def test_a_state_set_inside_ends_with_the_block():
    before = np.geterr()
    with silent(), np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        np.ones(1) / np.zeros(1)
    assert np.geterr() == before


def test_threads_have_their_own():
    seen = []
    with silent():
        thread = threading.Thread(target=lambda: seen.append(np.geterr()))
        thread.start()
        thread.join()
    assert seen == [np.geterr()]


def test_where_the_variable_is_not_found_np_errstate_does_it(monkeypatch):
    monkeypatch.setattr(np, "errstate", lambda **kinds: contextlib.nullcontext())
    assert silence._find() is None


def test_settings_of_others_are_kept():
    seen = []
    with np.errstate(call=lambda *given: seen.append(given)):
        with silent(), np.errstate(divide="call"):
            np.ones(1) / np.zeros(1)
        assert len(seen) == 1


def test_a_state_that_stays_is_worked_out_once(monkeypatch):
    with np.errstate(over="raise"):
        with silent():
            pass
        monkeypatch.setattr(np, "errstate", lambda **kinds: pytest.fail("it was worked out again"))
        with silent():
            assert set(np.geterr().values()) == {"ignore"}
        assert np.geterr()["over"] == "raise"
