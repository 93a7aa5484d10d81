"""One object that is entered by several threads, tasks and generators at once: each leaves what it entered."""

import asyncio
import threading

import numpy as np
import pytest

import numtape as nt
from numtape.core.context import current, entered
from numtape.core.scopes import Scope

X = nt.tensor([1.0, 2.0])
W = nt.tensor([1.0, 2.0], requires_grad=True)


def settings():
    """Return what scopes change of the surroundings."""
    state = current()
    tapes = tuple(map(id, state.tapes))
    return state.grad, state.context.id, tapes, state.scopes, state.observers, state.watch_all


def in_turn(makers, order):
    """Run generators up to a yield, each in a thread, then on to their ends in this order; return what they saw."""
    seen = [[] for _ in makers]
    turns = [threading.Semaphore(0) for _ in makers]
    has_paused = threading.Semaphore(0)

    def run(number, make):
        try:
            for _ in make(seen[number]):
                has_paused.release()
                turns[number].acquire()
        except Exception as error:
            seen[number].append(error)
        finally:
            has_paused.release()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(makers)]
    for thread in threads:
        thread.start()
        has_paused.acquire()
    for number in order:
        turns[number].release()
        threads[number].join()
    return seen


SCOPES = {
    "no_grad": nt.no_grad,
    "enable_grad": nt.enable_grad,
    "a context": lambda: nt.GradientContext().activate(),
    "a scope": Scope,
    "anomaly": nt.detect_anomaly,
    "autocast": nt.autocast,
    "deterministic": lambda: nt.deterministic(global_seed=0),
    "profile": nt.profile,
    "a tape": nt.Tape,
    "gradient tape": nt.GradientTape,
    "entered": lambda: entered(grad=False),
}


@pytest.mark.parametrize("make", SCOPES.values(), ids=SCOPES)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first in first out", "last in first out"])
def test_threads_that_share_a_scope_leave_their_own(make, order):
    shared = make()

    def use(seen):
        before = settings()
        with shared:
            seen.append(settings() != before or make is nt.enable_grad)
            inside = settings()
            yield
            # The other one may have left by now.
            seen.append(settings() == inside)
        seen.append(settings() == before)

    assert in_turn((use, use), order) == [[True, True, True]] * 2


@pytest.mark.parametrize("make", SCOPES.values(), ids=SCOPES)
def test_tasks_that_share_a_scope_leave_their_own(make):
    shared = make()

    async def use(turns):
        before = settings()
        with shared:
            inside = settings()
            for _ in range(turns):
                await asyncio.sleep(0)
                assert settings() == inside
        assert settings() == before

    async def main():
        await asyncio.gather(use(1), use(3), use(2))

    asyncio.run(main())


def test_gradients_are_on_again_after_a_shared_no_grad():
    quiet = nt.no_grad()

    def use(seen):
        with quiet:
            yield
        seen.append((W * W).requires_grad)

    assert in_turn((use, use), (0, 1)) == [[True], [True]]


def test_a_tape_that_two_threads_enter_records_both_until_each_leaves():
    tape = nt.Tape(persistent=True)

    def use(seen):
        x = nt.tensor([3.0])
        with tape:
            y = x * x
            yield
            z = y * x
        seen += [tape.gradient(z, x).tolist(), tape.is_recording, (x.detach() * 2.0).requires_grad]

    assert in_turn((use, use), (0, 1)) == [[[27.0], False, False]] * 2
    assert len(tape) == 4


def test_a_context_that_two_threads_enter_closes_when_the_last_one_leaves():
    ctx = nt.GradientContext()

    def use(seen):
        w = nt.tensor([3.0], requires_grad=True)
        with ctx:
            y = w * w
            yield
            (y * w).sum().backward()
        seen += [w.grad.tolist(), ctx.is_closed]

    assert in_turn((use, use), (0, 1)) == [[[27.0], False], [[27.0], True]]


def test_a_context_that_is_entered_inside_of_itself_closes_at_the_outer_end():
    ctx = nt.GradientContext()
    with ctx:
        with ctx:
            y = W * W
        assert not ctx.is_closed
        y.sum().backward()
    assert ctx.is_closed


def test_a_generator_that_ends_after_the_scopes_around_it_leaves_what_it_entered():
    quiet = nt.no_grad()

    def numbers():
        with quiet:
            yield 1
            yield 2

    generator = numbers()
    with nt.GradientContext().activate(), quiet:
        next(generator)
    assert not nt.is_grad_enabled()
    generator.close()
    assert nt.is_grad_enabled()
    assert nt.current_context() == nt.default_context()


def test_a_generator_that_is_closed_in_another_thread_does_not_outlive_the_scope_around_it():
    def numbers():
        with nt.no_grad():
            yield 1

    with nt.GradientContext().activate():
        generator = numbers()
        next(generator)
        closing = threading.Thread(target=generator.close)
        closing.start()
        closing.join()
    assert nt.is_grad_enabled()
    np.testing.assert_array_equal((W * X).numpy(), [1.0, 4.0])
    assert (W * X).requires_grad


def test_a_scope_in_a_task_puts_back_what_it_found_though_the_scopes_around_the_task_were_left():
    async def child(seen, may_go_on):
        seen.append(nt.is_grad_enabled())
        await may_go_on.wait()
        with nt.enable_grad():
            pass
        nt.grad(lambda x: x * x)(1.0)
        seen.append(nt.is_grad_enabled())

    async def main():
        seen, may_go_on = [], asyncio.Event()
        with nt.no_grad():
            task = asyncio.create_task(child(seen, may_go_on))
            await asyncio.sleep(0)
        may_go_on.set()
        await task
        return seen

    assert asyncio.run(main()) == [False, False]
    assert nt.is_grad_enabled()


def test_a_task_records_nothing_on_a_tape_that_was_left():
    async def child(tape, may_go_on):
        await may_go_on.wait()
        W * 2.0
        return len(tape)

    async def main():
        may_go_on = asyncio.Event()
        with nt.Tape() as tape:
            task = asyncio.create_task(child(tape, may_go_on))
            await asyncio.sleep(0)
            kept = W * 3.0
        may_go_on.set()
        return await task, len(tape), kept

    assert asyncio.run(main())[:2] == (1, 1)


def test_set_grad_enabled_is_for_its_block_alone():
    async def evaluate():
        with nt.set_grad_enabled(False):
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def train(seen):
        await asyncio.sleep(0)
        seen.append(nt.is_grad_enabled())

    async def main():
        seen = []
        await asyncio.gather(evaluate(), train(seen), evaluate())
        return seen

    assert asyncio.run(main()) == [True]
    assert nt.is_grad_enabled()
    off = nt.set_grad_enabled(False)
    for _ in range(2):
        with off:
            assert not nt.is_grad_enabled()
        assert nt.is_grad_enabled()
