"""What `nt.profile` times: every op, forward and backward, in its context only, and nothing when it is off."""

import asyncio
import contextvars
import gc
import pickle
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import numtape as nt
from numtape.core.declare import registry
from numtape.core.facts import Facts
from numtape.core.op import Op
from numtape.errors import ArgumentError, OperandError, ShapeError
from numtape.insight import timing
from numtape.insight.activations import Activations
from numtape.insight.spans import Row, Span, rows_by_op

X = nt.tensor(np.linspace(0.5, 1.5, 8, dtype=np.float32), requires_grad=True)


def rows(profile):
    return {row.name: row for row in profile.by_op()}


def forwards():
    return {name: op.forward for name, op in registry.items() if isinstance(op, Op)}


OWN = forwards()


@pytest.fixture(autouse=True)
def everything_is_put_back():
    yield
    X.grad = None
    assert forwards() == OWN
    assert timing.current_log.get() is None


def python_calls(function):
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "call" and frame.f_code.co_name != "_free_links"

    function()
    sys.setprofile(trace)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "function", [lambda: X * 0.999, lambda: X + X, lambda: X.exp(), lambda: X.sum(), lambda: X[1:]]
)
def test_off_adds_no_call_to_an_op(function):
    before = python_calls(function)
    with nt.profile():
        during = python_calls(function)
    assert during > before
    assert python_calls(function) == before


def test_on_adds_one_call_to_a_run_and_one_to_a_step_and_off_none(monkeypatch):
    monkeypatch.setattr(timing, "SHORT_SECONDS", float("inf"))  # How long a run takes decides about nothing here.

    def calls(count):
        y = X
        for _ in range(count // 2):
            y = y * 0.999 + X
        y.backward(np.ones(8, np.float32))

    def between(few, many):
        return python_calls(lambda: calls(many)) - python_calls(lambda: calls(few))

    calls(20)
    calls(20)
    before = between(20, 60)
    with nt.profile():
        assert between(20, 60) - before == 40 + 40
    assert between(20, 60) == before


def test_a_program_without_a_profile_does_not_load_the_profiler():
    code = "import sys, numtape as nt; (nt.ones(3) * 2.0).sum(); print('numtape.insight.timing' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_run_and_every_step_is_counted():
    with nt.profile() as profile:
        y = X
        for _ in range(10):
            y = y * 0.999 + X
        y.exp().sum().backward()
    found = rows(profile)
    assert {name: (row.calls, row.steps) for name, row in found.items() if row.steps} == {
        "mul": (10, 10),
        "add": (10, 10),
        "exp": (1, 1),
        "sum": (1, 1),
    }
    assert all(0.0 < row.self_seconds <= row.seconds for row in found.values())
    assert all(0.0 < row.backward_self_seconds <= row.backward_seconds for row in found.values())


def test_times_add_up_to_the_block():
    with nt.profile() as profile:
        (X * 2.0).exp().sum().backward()
        time.sleep(0.01)
    total = profile.forward_seconds + profile.backward_seconds + profile.python_seconds
    assert total == pytest.approx(profile.seconds)
    assert profile.python_seconds > 0.009
    own = sum(row.all_self_seconds for row in profile.by_op())
    assert own == pytest.approx(profile.forward_seconds + profile.backward_seconds)


def test_bits_are_the_same_with_and_without():
    def run():
        x = nt.tensor(np.linspace(-1.0, 1.0, 12).reshape(3, 4), requires_grad=True)
        nt.seed(3)
        y = nt.dropout(nt.softmax(x @ x.T, axis=1), 0.5).max(axis=0).sum() + x[1:].std()
        y.backward()
        return y.numpy().tobytes(), x.grad.numpy().tobytes()

    plain = run()
    with nt.profile():
        assert run() == plain
    with nt.profile(values=True, memory=True, stacks=True):
        assert run() == plain


def test_work_is_counted_for_runs_that_are_long_enough():
    a, b = nt.ones(200, 300), nt.ones(300, 100)
    big = nt.ones(1000, 1000)
    with nt.profile() as profile:
        a @ b
        big + big
        X * 2.0
    found = rows(profile)
    assert (found["matmul"].flops, found["matmul"].nbytes) == (2 * 200 * 300 * 100, 4 * (60_000 + 30_000 + 20_000))
    assert (found["add"].flops, found["add"].nbytes) == (1_000_000, 12_000_000)
    assert found["add"].bytes_per_second == pytest.approx(12_000_000 / found["add"].seconds)
    assert found["matmul"].flops_per_second == pytest.approx(12_000_000 / found["matmul"].seconds)


def test_a_short_run_has_no_rate():
    assert Row("mul", calls=1, seconds=1e-6).flops_per_second is None
    assert Row("mul", calls=1, seconds=1e-6).bytes_per_second is None


def test_an_op_with_a_wrong_cost_does_not_end_the_program():
    def cost(*shapes):
        raise RuntimeError("wrong")

    class Wrong:
        is_variadic = False
        facts = Facts(cost=cost)

    assert timing._work(Wrong, (np.ones(3),), {}, np.ones(3)) == (0, 48)


@pytest.mark.parametrize(
    ("function", "nbytes"),
    [
        (lambda x: nt.broadcast_to(x, (1000, 1000)), 0),
        (lambda x: x.T, 0),
        (lambda x: x[::2], 0),
        (lambda x: x[np.array([3, 1])], 2 * 2 * 8000),
        (lambda x: x * 2.0, 16_000_008),
    ],
)
def test_what_moves_reads_as_much_as_it_writes_and_views_do_neither(function, nbytes):
    x = nt.ones(1000, 1000, dtype="float64") if nbytes else nt.ones(1000, 1, dtype="float64")
    with nt.profile() as profile:
        function(x)
    assert profile.by_op()[0].nbytes in (0, nbytes)  # Of what is too short for a rate, nothing is known.


def test_the_operations_of_a_long_einsum_are_those_of_its_order():
    a, b, v = nt.ones(100, 100), nt.ones(100, 100), nt.ones(100, 1)
    with nt.profile() as profile:
        nt.einsum("ij,jk,kl->il", a, b, v)
    assert profile.by_op()[0].flops == 2 * 2 * 100 * 100


def test_lines_are_those_of_the_user_forward_and_backward():
    with nt.profile() as profile:
        y = X.exp() * 2.0
        z = y.sum()
        z.backward()
    named = {row.name.partition(".py:")[2].partition(" ")[2]: (row.calls, row.steps) for row in profile.by_line()}
    assert named == {"(y = X.exp() * 2.0)": (2, 2), "(z = y.sum())": (1, 1)}


def test_ops_inside_of_rules_belong_to_the_step_and_its_line():
    x = nt.tensor(np.linspace(-1.0, 1.0, 100), requires_grad=True)
    with nt.profile() as profile:
        y = nt.gelu(x)
        y.sum().backward()
    spans = profile.spans()
    inner = [span for span in spans if span.parent is not None]
    assert {span.op.name for span in inner} >= {"normal_cdf"}
    assert all(span.parent.is_step and span.parent.op.name == "gelu" for span in inner)
    step = next(span for span in spans if span.is_step and span.op.name == "gelu")
    assert step.self_seconds == pytest.approx(step.seconds - sum(span.seconds for span in inner))
    assert len(profile.by_line()) == 2


def test_an_op_inside_of_itself_counts_its_time_once():
    op = registry["exp"]
    site = (test_an_op_inside_of_itself_counts_its_time_once.__code__, 0)
    outer = Span(op, 0.0, 10.0, site, False, (site,), inside_seconds=4.0)
    inner = Span(op, 2.0, 6.0, site, False, (site,), parent=outer)
    (row,) = rows_by_op([outer, inner])
    assert (row.calls, row.seconds, row.self_seconds) == (2, 10.0, 10.0)


def test_plain_arrays_no_grad_random_and_half_ops_are_seen():
    data = np.ones(4)
    half = nt.ones(4, dtype="float16")
    with nt.profile() as profile, nt.no_grad():
        nt.exp(data)
        nt.add(data, data)
        X * 2.0
        nt.dropout(X, 0.5, rng=0)
        half * half
        nt.concat([X, X])
    found = rows(profile)
    assert {name: row.calls for name, row in found.items() if name in ("exp", "add", "dropout", "concat")} == {
        "exp": 1,
        "add": 1,
        "dropout": 1,
        "concat": 1,
    }
    assert found["mul"].calls == 2
    assert all(row.steps == 0 for row in found.values())


def test_a_backward_of_what_was_recorded_before_is_seen():
    y = (X * 2.0).sum()
    with nt.profile() as profile:
        y.backward()
    assert {name: (row.calls, row.steps) for name, row in rows(profile).items()} == {"mul": (0, 1), "sum": (0, 1)}
    (line,) = profile.by_line()
    assert line.name.endswith("(y = (X * 2.0).sum())")


def test_results_stay_when_the_block_raises():
    profile = nt.profile()
    message = (
        r"add: a has shape \(8,\) and b has shape \(3,\); the shapes do not broadcast: from the last axis on, "
        r"lengths must be equal or 1\."
    )
    with pytest.raises(ShapeError, match=message), profile:
        (X * 2.0) + nt.ones(3)
    assert {name: row.calls for name, row in rows(profile).items()} == {"mul": 1}
    assert "mul" in profile.table()


def test_results_stay_when_a_rule_raises():
    @nt.custom_gradient
    def fails(x):
        def pull(g):
            raise ZeroDivisionError("in the rule")

        return x * 1.0, pull

    y = (fails(X * 2.0) + 1.0).sum()
    profile = nt.profile()
    with pytest.raises(ZeroDivisionError, match="in the rule"), profile:
        y.backward()
    assert {name: row.steps for name, row in rows(profile).items()} == {"sum": 1, "add": 1, "mul": 0}
    with profile:
        (X * 3.0).sum().backward()
    assert rows(profile)["sum"].steps == 2


def test_profiles_nest_and_the_outer_one_sees_all():
    with nt.profile() as outer:
        X * 1.0
        with nt.profile() as inner:
            X + X
        X * 2.0
    assert {name: row.calls for name, row in rows(outer).items()} == {"mul": 2, "add": 1}
    assert {name: row.calls for name, row in rows(inner).items()} == {"add": 1}


def test_a_profile_entered_again_adds_up_and_inside_of_itself_counts_once():
    profile = nt.profile()
    for _ in range(3):
        with profile:
            X * 2.0
    with profile:
        X * 2.0
        with profile:
            X * 2.0
    assert rows(profile)["mul"].calls == 5


def test_results_can_be_read_inside_of_the_block():
    with nt.profile() as profile:
        X * 2.0
        assert rows(profile)["mul"].calls == 1
        X * 2.0
        assert rows(profile)["mul"].calls == 2


def test_a_decorated_function_is_profiled_at_each_call():
    profile = nt.profile()

    @profile
    def double(x):
        """Double it."""
        return x * 2.0

    double(X)
    double(X)
    assert double.profile is profile
    assert double.__doc__ == "Double it."
    assert rows(profile)["mul"].calls == 2


def test_a_decorated_coroutine_is_profiled_until_it_ends():
    profile = nt.profile()

    @profile
    async def double(x):
        await asyncio.sleep(0)
        return x * 2.0

    asyncio.run(double(X))
    assert rows(profile)["mul"].calls == 1


def test_tasks_have_profiles_of_their_own():
    async def work(profile, times):
        with profile:
            for _ in range(times):
                X * 2.0
                await asyncio.sleep(0)

    async def both():
        await asyncio.gather(work(first, 2), work(second, 5))

    first, second = nt.profile(), nt.profile()
    asyncio.run(both())
    assert (rows(first)["mul"].calls, rows(second)["mul"].calls) == (2, 5)


def test_a_task_that_outlives_its_profile_adds_nothing_to_it():
    async def late(leave):
        await leave.wait()
        with nt.profile() as own:
            X * 2.0
        return own

    async def main():
        leave = asyncio.Event()
        with nt.profile() as profile:
            task = asyncio.create_task(late(leave))
            await asyncio.sleep(0)
        with nt.profile():
            leave.set()
            own = await task
        return profile, own

    profile, own = asyncio.run(main())
    assert rows(profile) == {}
    assert rows(own)["mul"].calls == 1


def test_a_profile_may_be_left_in_another_context_than_it_was_entered():
    profile = nt.profile()
    contextvars.Context().run(profile.__enter__)
    contextvars.Context().run(profile.__exit__)
    assert profile.by_op() == []
    assert profile.seconds > 0.0


def test_threads_are_seen_where_they_enter_the_profile():
    profile = nt.profile()
    alone = nt.profile()
    ready = threading.Barrier(3)

    def work(entered):
        x = nt.tensor(np.ones(8), requires_grad=True)
        with entered:
            ready.wait()
            for _ in range(50):
                (x * 2.0).sum().backward()

    threads = [threading.Thread(target=work, args=(each,)) for each in (profile, profile, alone)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (rows(profile)["mul"].calls, rows(profile)["mul"].steps) == (100, 100)
    assert (rows(alone)["mul"].calls, rows(alone)["mul"].steps) == (50, 50)
    assert len({segment.thread for segment in profile._all_segments()}) == 2


def test_an_op_of_another_thread_is_not_seen():
    with nt.profile() as profile:
        thread = threading.Thread(target=lambda: nt.ones(3) * 2.0)
        thread.start()
        thread.join()
    assert profile.by_op() == []


def test_second_order_runs_are_seen_inside_of_the_sweep():
    with nt.profile() as profile:
        gradient = nt.grad(nt.grad(lambda x: (x**3).sum()))
        assert gradient(2.0) == 12.0
    assert profile.backward_seconds > 0.0
    assert rows(profile)["pow"].steps >= 2


def test_jacobians_forward_mode_and_training_run_under_a_profile():
    model = nt.nn.Linear(3, 2, rng=0)
    optimizer = nt.optim.Adam(model.parameters())
    batch = nt.ones(4, 3)
    for asked in ({}, {"values": True, "memory": True, "stacks": True}):
        with nt.profile(**asked) as profile:
            assert nt.jvp(lambda x: (x * x).sum(), np.ones(3), np.ones(3))[1] == 6.0
            assert nt.jacobian(lambda x: x * x)(np.arange(3.0)).tolist() == [[0, 0, 0], [0, 2, 0], [0, 0, 4]]
            model(batch).sum().backward()
            optimizer.step()
        assert rows(profile)["linear"].steps == 1


def test_numbers_by_record_with_values_and_memory():
    with nt.profile(values=True, memory=True) as profile:
        y = nt.tensor([3.0, 4.0], requires_grad=True) * 2.0
        z = y.sum()
        z.backward()
    numbers = profile[y.node.index]
    assert {name: numbers[name] for name in ("mean", "std", "min", "max", "grad_norm")} == {
        "mean": 7.0,
        "std": 1.0,
        "min": 6.0,
        "max": 8.0,
        "grad_norm": pytest.approx(2**0.5),
    }
    assert numbers["live_bytes"] == 8.0
    assert profile[z.node.index]["live_bytes"] == 12.0
    assert profile[z.node.index]["grad_norm"] == 1.0
    assert set(numbers) >= {"seconds", "backward_seconds", "backward_live_bytes"}
    assert set(profile) == {y.node.index, z.node.index}


def test_numbers_say_how_many_values_are_not_finite():
    with nt.profile(values=True) as profile, np.errstate(all="ignore"):
        y = nt.log(nt.tensor([0.0, -1.0, 1.0], requires_grad=True))
    assert {k: v for k, v in profile[y.node.index].items() if k not in ("seconds", "flops")} == {
        "nans": 1.0,
        "infs": 1.0,
        "mean": 0.0,
        "std": 0.0,
        "min": 0.0,
        "max": 0.0,
    }


def test_numbers_of_halves_empties_several_outputs_and_writes():
    x = nt.tensor(np.arange(6.0), requires_grad=True)
    half = nt.tensor([1.0, 2.0], dtype="float16", requires_grad=True)
    empty = nt.tensor(np.zeros((0, 3)), requires_grad=True)
    with nt.profile(values=True) as profile:
        a, b = nt.split(x, 2)
        c = half * 2.0
        d = empty * 2.0
        e = x * 1.0
        e[0] = 9.0
        (a.sum() + b.sum() + c.sum().astype("float64") + e.sum()).backward()
    assert (profile[a.node.index]["mean"], profile[b.node.index]["mean"]) == (1.0, 4.0)
    assert profile[c.node.index]["max"] == 4.0
    assert not {"mean", "nans"} & set(profile[d.node.index])
    assert profile[e.node.index].get("max", 9.0) == 9.0
    assert profile[e.node.index]["grad_norm"] == pytest.approx(6**0.5)


def test_seconds_of_the_backward_are_known_by_record_without_details():
    with nt.profile() as profile:
        y = X * 2.0
        y.sum().backward()
    assert set(profile[y.node.index]) == {"backward_seconds"}


def test_an_unrecorded_run_gives_its_time_to_no_record():
    constant = nt.ones(3)
    with nt.profile(stacks=True) as profile:
        constant * 2.0
        constant * 3.0
        y = X * 2.0
        constant * 4.0
    z = X * 3.0
    assert set(profile) == {y.node.index}
    assert profile.get(z.node.index) is None


def test_stacks_tell_who_called_a_line():
    def inner():
        return X * 2.0

    with nt.profile(stacks=True) as profile:
        inner().sum().backward()
    by_name = {row.name.partition(" ")[2]: row for row in profile.by_line()}
    outer, own = by_name["(inner().sum().backward())"], by_name["(return X * 2.0)"]
    assert (outer.calls, own.calls) == (1, 1)
    assert outer.seconds == pytest.approx(outer.self_seconds + own.seconds)
    assert outer.backward_seconds == pytest.approx(outer.backward_self_seconds + own.backward_seconds)
    step = next(span for span in profile.spans() if span.is_step and span.op.name == "mul")
    assert [code.co_name for code, _ in step.stack] == ["test_stacks_tell_who_called_a_line", "inner"]


def test_the_table_shows_the_most_expensive_rows_and_where_the_time_went():
    with nt.profile() as profile:
        (X * 2.0).exp().sum().backward()
    lines = profile.table(most=2).splitlines()
    headings = ["op", "calls", "self", "total", "back", "back self", "back total", "share", "FLOP/s", "bytes/s"]
    assert lines[0].split() == " ".join(headings).split()
    assert len(lines) == 6
    assert lines[-2] == "... and 1 more"
    assert [word.split()[0] for word in lines[-1].partition(": ")[2].split(", ")] == ["ops", "backward", "Python"]
    assert str(profile) == profile.table()
    assert profile.table(by="line").startswith("line ")


def test_an_empty_profile_has_an_empty_table():
    with nt.profile() as profile:
        pass
    assert profile.by_op() == profile.by_line() == []
    assert profile.table().splitlines()[-1].endswith("ops 0.0%, backward 0.0%, Python 100.0%")
    assert nt.profile().table().splitlines()[-1] == "0 s: ops 0.0%, backward 0.0%, Python 0.0%"
    assert repr(nt.profile()) == "<profile of 0 s>"
    assert bool(profile)
    assert len(profile) == 0


@pytest.mark.parametrize(
    ("mistake", "kind", "message"),
    [
        (
            lambda: nt.profile(lambda x: x),
            OperandError,
            "profile: takes no positional arguments, but function was given; write `with nt.profile():` or "
            "`@nt.profile()`, with parentheses.",
        ),
        (lambda: nt.profile(values=1), ArgumentError, "profile: values is 1; it must be a bool."),
        (
            lambda: nt.profile()(3),
            OperandError,
            "profile: decorates functions, not int; for a block, write `with nt.profile():`.",
        ),
        (
            lambda: nt.profile()(lambda: (yield)),
            OperandError,
            "profile: generators cannot be decorated; use `with nt.profile():` inside.",
        ),
        (
            lambda: nt.profile().__exit__(),
            ArgumentError,
            "profile: it is left but was not entered; write `with nt.profile():`.",
        ),
        (
            lambda: nt.profile().table(by="file"),
            ArgumentError,
            "profile.table: by is 'file'; it must be 'op' or 'line'.",
        ),
        (
            lambda: nt.profile().table(most=0),
            ArgumentError,
            "profile.table: most is 0; it must be a positive integer.",
        ),
    ],
)
def test_mistakes_say_what_to_do(mistake, kind, message):
    with pytest.raises(kind) as error:
        mistake()
    assert str(error.value) == message


def test_an_op_of_a_user_is_timed_and_may_go():
    @nt.custom_op(vjp={"x": lambda g, x: g * 2.0 * x})
    def squared(x, /):
        return x * x

    x = nt.tensor(np.ones(3), requires_grad=True)
    squared(x).sum().backward()
    with nt.profile() as profile:
        squared(x).sum().backward()
    assert {row.name: (row.calls, row.steps) for row in profile.by_op() if row.name == "squared"} == {"squared": (1, 1)}
    op = weakref.ref(squared.op)
    del squared, profile, x
    gc.collect()
    assert op() is None


def test_memory_is_counted_as_the_memory_profiler_counts_it():
    weights = [nt.tensor(np.eye(64, dtype=np.float32), requires_grad=True) for _ in range(4)]

    def run():
        h = nt.ones(2, 64)
        for w in weights:
            h = nt.tanh(h @ w)
        loss = h.sum()
        loss.backward()
        return loss

    with nt.profile(memory=True) as profile:
        loss = run()
    with Activations() as counted:
        again = run()
    curve = nt.from_json(nt.to_json(loss, profile=profile)).memory
    assert curve.is_measured
    # No gradient of a weight, of 16,384 bytes each, is among them.
    assert max(curve.backward) == counted.backward_peak < 16_384 // 4
    assert max(curve.forward) == counted.forward_peak
    assert again.item() == loss.item()


def test_the_memory_of_an_op_with_several_results_is_measured():
    x = nt.tensor(np.eye(3), requires_grad=True)
    with nt.profile(memory=True) as profile:
        loss = nt.slogdet(x)[1] * 1.0
        loss.backward()
    assert nt.from_json(nt.to_json(loss, profile=profile)).memory.is_measured


def test_a_profile_cannot_be_pickled_and_says_what_can():
    x = nt.ones(3, requires_grad=True)
    with nt.profile() as profile:
        loss = (x * 2.0).sum()
        loss.backward()
    with pytest.raises(TypeError) as error:
        pickle.dumps(profile)
    assert str(error.value) == (
        "profile: a profile refers to ops and to code, and cannot be pickled or copied; take dict(profile), which is "
        "plain numbers by record that nt.to_html and nt.to_json accept, or write it with to_chrome_trace(path)."
    )
    numbers = pickle.loads(pickle.dumps(dict(profile)))
    assert nt.to_json(loss, profile=numbers) == nt.to_json(loss, profile=profile)


def test_profiles_may_be_left_in_any_order():
    x = nt.ones(10, requires_grad=True)
    first, second = nt.profile(), nt.profile()
    first.__enter__()
    second.__enter__()
    nt.sin(x)
    first.__exit__(None, None, None)
    nt.exp(x).sum().backward()
    second.__exit__(None, None, None)
    nt.tanh(x)
    assert [span.op.name for span in first.spans()] == ["sin"]
    assert [(row.name, row.calls, row.steps) for row in sorted(second.by_op(), key=lambda row: row.name)] == [
        ("exp", 1, 1),
        ("sin", 1, 0),
        ("sum", 1, 1),
    ]
    with nt.profile() as third:
        nt.exp(x)
    assert [span.op.name for span in third.spans()] == ["exp"]


def test_a_profile_of_a_task_outlives_the_one_that_the_task_began_in():
    x = nt.ones(10)
    outer, inner = nt.profile(), nt.profile()
    outer.__enter__()
    task = contextvars.copy_context()
    task.run(inner.__enter__)
    outer.__exit__(None, None, None)
    nt.tanh(x)
    task.run(nt.sin, x)
    task.run(inner.__exit__, None, None, None)
    task.run(nt.cos, x)
    assert [span.op.name for span in inner.spans()] == ["sin"]
    assert outer.spans() == []
