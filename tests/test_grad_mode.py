"""What grad mode promises: no_grad above all, for blocks, functions, generators and coroutines."""

import pytest

import numtape as nt


def test_no_grad_records_nothing_and_enable_grad_records_again():
    w = nt.tensor([1.0], requires_grad=True)
    assert nt.is_grad_enabled()
    with nt.no_grad():
        assert not nt.is_grad_enabled()
        assert not (w * w).requires_grad
        with nt.enable_grad():
            assert nt.is_grad_enabled()
            assert (w * w).requires_grad
        assert not nt.is_grad_enabled()
    assert nt.is_grad_enabled()


def test_grad_mode_is_restored_after_an_exception():
    for mode in (nt.no_grad, lambda: nt.set_grad_enabled(False)):

        def fail(mode=mode):
            with mode():
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert nt.is_grad_enabled()


def test_one_no_grad_object_can_be_entered_inside_itself():
    quiet = nt.no_grad()
    with quiet:
        with quiet:
            assert not nt.is_grad_enabled()
        assert not nt.is_grad_enabled()
    assert nt.is_grad_enabled()


@pytest.mark.parametrize("is_tape_inside", [False, True])
def test_no_grad_wins_over_a_tape(is_tape_inside):
    x, w = nt.tensor([1.0]), nt.tensor([1.0], requires_grad=True)
    tape = nt.Tape()
    if is_tape_inside:
        with nt.no_grad(), tape:
            y = x * w
    else:
        with tape, nt.no_grad():
            y = x * w
    assert len(tape) == 0
    assert not y.requires_grad
    # Nothing was watched on use either.
    assert x.node is None


def test_no_grad_wins_over_a_tensor_that_was_watched():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor([1.0]))
    with nt.no_grad():
        y = x * x
    assert tape.gradient(y, x) is None


def test_enable_grad_inside_of_no_grad_lets_a_tape_record():
    x = nt.tensor([3.0])
    with nt.no_grad(), nt.Tape() as tape, nt.enable_grad():
        y = x * x
    assert tape.gradient(y, x).tolist() == [6.0]


def test_gradients_can_be_taken_inside_no_grad():
    w = nt.tensor([3.0], requires_grad=True)
    loss, other = (w * w).sum(), (w * w).sum()
    with nt.no_grad():
        loss.backward()
        assert nt.GradientTape().gradient(other, w).tolist() == [6.0]
    assert w.grad.tolist() == [6.0]


@pytest.mark.parametrize("how", ["gradient", "backward"])
def test_no_grad_wins_over_an_outer_tape_that_would_record_the_gradient(how):
    x = nt.tensor([3.0])
    with nt.Tape() as outer:
        with nt.Tape() as inner:
            y = (x * x).sum()
        recorded = len(outer)
        with nt.no_grad():
            dy = inner.gradient(y, x) if how == "gradient" else inner.backward(y)[x]
        assert len(outer) == recorded
    assert dy.tolist() == [6.0]
    assert not dy.requires_grad
    # What the outer tape can reach was not freed.
    assert outer.gradient(y, x).tolist() == [6.0]


def test_no_grad_decorates_functions():
    w = nt.tensor([3.0], requires_grad=True)

    @nt.no_grad()
    def double(t, *, factor=2.0):
        """Return twice a tensor."""
        assert not nt.is_grad_enabled()
        return t * factor

    assert double.__name__ == "double"
    assert double.__doc__ == "Return twice a tensor."
    assert not double(w).requires_grad
    assert double(w, factor=3.0).tolist() == [9.0]
    assert nt.is_grad_enabled()


def test_a_decorated_function_that_raises_restores_grad_mode():
    @nt.no_grad()
    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert nt.is_grad_enabled()


def test_a_decorated_function_may_call_itself():
    @nt.no_grad()
    def count(n):
        return 0 if n == 0 else 1 + count(n - 1)

    assert count(5) == 5
    assert nt.is_grad_enabled()


def test_enable_grad_and_set_grad_enabled_decorate_too():
    w = nt.tensor([3.0], requires_grad=True)

    @nt.enable_grad()
    def on():
        return (w * w).requires_grad

    @nt.set_grad_enabled(False)
    def off():
        return (w * w).requires_grad

    # Decorating changes nothing by itself.
    assert nt.is_grad_enabled()
    assert off() is False
    with nt.no_grad():
        assert on() is True
        assert not nt.is_grad_enabled()
    assert nt.is_grad_enabled()


def test_a_decorated_generator_runs_without_gradients_and_does_not_leak_between_steps():
    w = nt.tensor([3.0], requires_grad=True)

    @nt.no_grad()
    def multiples(n):
        for i in range(n):
            assert not nt.is_grad_enabled()
            yield w * float(i)

    for made in multiples(3):
        assert nt.is_grad_enabled()
        assert not made.requires_grad
        assert (w * w).requires_grad
    assert nt.is_grad_enabled()
    # Left in the middle, it changes nothing either.
    running = multiples(3)
    next(running)
    assert nt.is_grad_enabled()
    running.close()
    assert nt.is_grad_enabled()


def test_a_decorated_generator_can_be_sent_to_and_returns_its_value():
    @nt.no_grad()
    def echo():
        got = yield (nt.is_grad_enabled(), "first")
        got = yield (nt.is_grad_enabled(), got)
        return got

    def outer():
        result = yield from echo()
        yield ("returned", result)

    running = outer()
    assert next(running) == (False, "first")
    assert running.send("a") == (False, "a")
    assert running.send("b") == ("returned", "b")
    assert nt.is_grad_enabled()


def test_a_decorated_generator_gets_what_is_thrown_at_it():
    @nt.no_grad()
    def patient():
        try:
            yield 1
        except ValueError as error:
            yield (nt.is_grad_enabled(), str(error))

    running = patient()
    assert next(running) == 1
    assert running.throw(ValueError("thrown")) == (False, "thrown")
    assert nt.is_grad_enabled()


def test_a_decorated_generator_cleans_up_inside_its_mode_when_closed():
    modes = []

    @nt.no_grad()
    def running():
        try:
            yield 1
        finally:
            modes.append(nt.is_grad_enabled())

    started = running()
    next(started)
    started.close()
    assert modes == [False]
    assert nt.is_grad_enabled()


def test_a_decorated_coroutine_runs_without_gradients():
    @nt.no_grad()
    async def mode():
        return nt.is_grad_enabled()

    with pytest.raises(StopIteration) as stopped:
        mode().send(None)
    assert stopped.value.value is False
    assert nt.is_grad_enabled()


def test_set_grad_enabled_is_a_call():
    w = nt.tensor([3.0], requires_grad=True)
    nt.set_grad_enabled(False)
    try:
        assert not nt.is_grad_enabled()
        assert not (w * w).requires_grad
    finally:
        nt.set_grad_enabled(True)
    assert (w * w).requires_grad


@pytest.mark.parametrize("flag", [False, True])
def test_set_grad_enabled_is_a_with_statement(flag):
    with nt.no_grad():
        with nt.set_grad_enabled(flag):
            assert nt.is_grad_enabled() is flag
        assert not nt.is_grad_enabled()
    with nt.set_grad_enabled(flag):
        assert nt.is_grad_enabled() is flag
    assert nt.is_grad_enabled()


def test_a_bare_call_inside_a_block_ends_with_the_block():
    with nt.no_grad():
        nt.set_grad_enabled(True)
        assert nt.is_grad_enabled()
    assert nt.is_grad_enabled()
    with nt.enable_grad():
        nt.set_grad_enabled(False)
        assert not nt.is_grad_enabled()
    assert nt.is_grad_enabled()


def test_functional_gradients_switch_grad_mode_on_for_their_own_call():
    with nt.no_grad():
        assert nt.grad(lambda x: x**3)(2.0) == 12.0
        assert not nt.is_grad_enabled()


def test_no_grad_inside_a_differentiated_function_counts():
    def function(x):
        with nt.no_grad():
            constant = x * x
        return constant * x

    assert nt.grad(function)(3.0) == 9.0
