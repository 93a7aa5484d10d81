"""No growth, in every way to take a gradient: a few hundred steps by default, a hundred thousand with -m soak."""

import contextlib
import gc
import random
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import numtape as nt
from numtape.core.buffers import Buffers
from numtape.core.record import Record
from numtape.insight.memory import GradientMemoryProfiler
from numtape.kernels.views import broadcast_view

WARM_UP = 100


def plain(w):
    (w * w).sum().backward()
    w.zero_grad()


def create_graph(w):
    with nt.Tape() as tape:
        loss = (w * w * w).sum()
    first = tape.backward(loss, create_graph=True)[w]
    first.sum().backward()
    w.zero_grad()


def nested_tapes(w):
    with nt.Tape() as outer:
        with nt.Tape() as inner:
            loss = (w * w * w).sum()
        first = inner.gradient(loss, w)
    outer.gradient(first, w)


def custom_context_never_cleared(w):
    # The parameter `in_context` is the other reading: one context for all steps, which is never cleared either.
    context = nt.GradientContext()
    with context.activate():
        (w * w).sum().backward()
    w.zero_grad()


def exception_in_forward(w):
    with contextlib.suppress(nt.errors.ShapeError):
        (w * w) @ nt.ones(3)


def exception_in_backward(w):
    y = (w * 2.0).exp()
    z = (y * y).sum()
    y += 1.0
    try:
        z.backward()
    except nt.errors.OverwrittenError:
        w.zero_grad()


def checkpoint(w):
    nt.checkpoint(lambda x: nt.exp(nt.sin(x)) * x, w).sum().backward()
    w.zero_grad()


def profiler_on(w):
    with GradientMemoryProfiler() as profiler:
        profiler.record_checkpoint("before")
        loss = (w * w).sum()
        profiler.record_checkpoint("after")
        loss.backward()
    w.zero_grad()


def profiler_on_while_a_backward_raises(w):
    profiler = GradientMemoryProfiler()
    profiler.start_profiling()
    exception_in_backward(w)
    profiler.stop_profiling()


def hooks(w):
    handle = w.register_hook(lambda g: g * 2.0)
    y = w * w
    y.register_hook(lambda g: g + 1.0)
    y.retain_grad()
    y.sum().backward()
    handle.remove()
    w.zero_grad()


AMP = nt.AmpConfig(precision_mode="float16", loss_scaler=nt.LossScaler.Dynamic(growth_interval=3))


def amp_skip(w):
    with nt.GradientTape.with_amp_config(AMP) as tape:
        half = w.astype("float16")
        loss = (half * half * 100.0).sum()  # The scale grows until gradients overflow: every few steps one is skipped.
    gradients = tape.backward(loss)
    nt.optim.SGD([w], lr=0.0).step(gradients)
    w.zero_grad()


def functional(w):
    nt.grad(nt.grad(lambda x: x**3))(2.0)


SCENARIOS = [
    plain,
    create_graph,
    nested_tapes,
    custom_context_never_cleared,
    exception_in_forward,
    exception_in_backward,
    checkpoint,
    profiler_on,
    profiler_on_while_a_backward_raises,
    hooks,
    amp_skip,
    functional,
]


def alive():
    """Return what must not grow: records, the bytes of arrays that they keep, objects, and blocks of memory."""
    gc.collect()
    objects = gc.get_objects()
    records = [item for item in objects if type(item) is Record]
    buffers = Buffers()
    for record in records:
        if record.is_kept:
            buffers.hold(record.array)
    counts = (len(records), buffers.live, len(objects))
    del objects, records, buffers
    return (*counts, sys.getallocatedblocks())


def run(step, w, count):
    for _ in range(count):
        step(w)


def check_no_growth(step, w, steps):
    run(step, w, WARM_UP)
    alive()
    records, nbytes, objects, blocks = alive()
    run(step, w, steps)
    after = alive()
    assert after[:2] == (records, nbytes)
    # What may be left is the interpreter's own, caches and free lists, and no more after many steps than after few.
    assert abs(after[2] - objects) < 20
    assert abs(after[3] - blocks) < 100


@pytest.mark.parametrize("steps", [300, pytest.param(100_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("in_context", [False, True], ids=["default", "context"])
@pytest.mark.parametrize("step", SCENARIOS)
def test_no_growth(step, in_context, steps):
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    if not in_context:
        check_no_growth(step, w, steps)
        return
    with nt.GradientContext() as context:
        check_no_growth(step, w, steps)
        assert len(context.tape) == 0


def test_a_step_that_keeps_a_freed_graph_would_be_noticed():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    losses = []

    def leaking(w):
        losses.append((w * w).sum())
        losses[-1].backward()

    with pytest.raises(AssertionError):
        check_no_growth(leaking, w, 10)


def test_views_leave_nothing_in_the_interpreters_cache_of_lookups():
    # Its slots go by the addresses of names, and each keeps its name: one made anew is kept wherever memory moves.
    rng = random.Random(0)
    others = [b""] * 1000

    def move_memory(x):
        others[rng.randrange(1000)] = bytes(rng.choice([0, 24]))  # 24 take as much as a name of eight letters.

    def view_while_memory_moves(x):
        broadcast_view(x, (2,))
        move_memory(x)

    x = np.ones(())
    run(move_memory, x, 10_000)
    run(view_while_memory_moves, x, 10)
    alive()
    blocks = alive()[-1] - sum(map(bool, others))
    run(view_while_memory_moves, x, 10_000)
    assert abs(alive()[-1] - sum(map(bool, others)) - blocks) < 10


def test_nobody_sets_an_attribute_of_flags_which_makes_a_name_anew():
    for path in Path(nt.__file__).parent.rglob("*.py"):
        assert not re.search(r"\.flags\.\w+ = ", path.read_text()), f"{path}: call setflags"


@pytest.mark.parametrize("steps", [300, pytest.param(100_000, marks=pytest.mark.soak)])
def test_one_profiler_for_all_steps_stays_within_its_timeline(steps):
    w = nt.tensor(np.ones(100), requires_grad=True)
    with GradientMemoryProfiler() as profiler:
        for _ in range(steps):
            loss = (w * w).exp().sum()
            profiler.record_checkpoint("after forward")
            loss.backward()
            w.zero_grad()
    assert len(profiler.activations.timeline) < 20_000
    assert len(profiler.checkpoints) == 1
    assert profiler.live_bytes == loss.nbytes
    assert profiler.detect_leaks().num_suspicious == 0
