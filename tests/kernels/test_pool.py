"""Threads that share work: nobody leaves before all have ended."""

import time

import pytest

from numtape.kernels import pool


def work(seen, number, seconds, error):
    time.sleep(seconds)
    if error is not None:
        raise error
    seen.append(number)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_in_one_call_waits_for_the_others(failing):
    seen = []
    calls = [(seen, i, 0.0 if i == failing else 0.05, ValueError("no") if i == failing else None) for i in range(3)]
    with pytest.raises(ValueError, match="no"):
        pool.run(work, calls)
    assert sorted(seen) == [i for i in range(3) if i != failing]


def test_a_signal_that_raises_waits_for_the_others():
    signal = pytest.importorskip("signal")
    if not hasattr(signal, "setitimer"):
        pytest.skip("there are no alarms here")

    class Alarm(Exception):
        pass

    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    seen = []
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(Alarm):
            pool.run(work, [(seen, 0, 0.0, None), (seen, 1, 0.1, None)])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen == [0, 1]
