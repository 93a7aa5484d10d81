"""Matrix instructions give what NumPy gives, but for rounding; where there are none, NumPy is put to the same tests."""

import itertools
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import numtape as nt
from numtape.errors import MissingExtraError
from numtape.kernels import amx, halves, llvm, llvm_conversion, pool, providers

needs_tiles = pytest.mark.skipif(not amx.is_available(), reason=str(amx.why_missing()))


@pytest.fixture
def by_tiles():
    """Let matrix instructions run whatever they can, however small."""
    with providers.pinned("amx" if amx.is_available() else "numpy"):
        yield


def normal(*shape, seed=0, dtype=nt.bfloat16):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def assert_close(ours, a, b, bias=0.0, error=2e-7):
    """Compare a product with that of float64; the error is relative to the sum of the terms' sizes."""
    a, b = np.float64(a), np.float64(b)
    assert ours.shape == (a @ b).shape
    assert (np.abs(np.float64(ours) - (a @ b + bias)) <= error * (np.abs(a) @ np.abs(b) + np.abs(bias))).all()


def printed(program):
    """Run a program in a process of its own, and return what it prints."""
    command = [sys.executable, "-W", "ignore", "-c", program]
    return subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout


SIZES = (1, 7, 17, 33, 100)


@pytest.mark.parametrize("rows", SIZES)
def test_products_of_any_size_and_order_agree(rows, by_tiles):
    for terms, columns, a_is_turned, b_is_turned in itertools.product(SIZES, SIZES, (False, True), (False, True)):
        a = normal(terms, rows).T if a_is_turned else normal(rows, terms)
        b = normal(columns, terms, seed=1).T if b_is_turned else normal(terms, columns, seed=1)
        bias = normal(columns, seed=2, dtype=np.float32)
        wide = providers.matmul(a, b, bias, dtype=nt.float32)
        assert_close(wide, a, b, bias)
        np.testing.assert_array_equal(providers.matmul(a, b, bias), wide.astype(nt.bfloat16))


@pytest.mark.parametrize("rows", SIZES)
def test_float32_beside_bfloat16_keeps_17_bits(rows, by_tiles):
    for terms, columns, is_left, is_turned in itertools.product(SIZES, SIZES, (False, True), (False, True)):
        a = normal(rows, terms, dtype=np.float32 if is_left else nt.bfloat16)
        b = normal(terms, columns, seed=1, dtype=nt.bfloat16 if is_left else np.float32)
        if is_turned:
            a, b = b.T, a.T
        out = providers.matmul(a, b)
        assert out.dtype == np.float32
        assert_close(out, a, b, error=2.0**-17)


LAYOUTS = {
    "rows of a larger matrix": (normal(5, 20)[:, :7], normal(7, 9)[:, 2:6]),
    "every second row": (normal(10, 7)[::2], normal(14, 4)[::2]),
    "every second column": (normal(5, 14)[:, ::2], normal(7, 8)[:, ::2]),
    "backwards": (normal(5, 7)[::-1], normal(7, 4)[:, ::-1]),
    "repeated": (np.broadcast_to(normal(7), (5, 7)), np.broadcast_to(normal(7, 1), (7, 4))),
    "stacks": (normal(4, 5, 7), normal(4, 7, 4)),
    "heads": (normal(2, 5, 4, 7).swapaxes(1, 2), normal(2, 5, 4, 7).transpose(0, 2, 3, 1)),
    "broadcast stacks": (normal(4, 1, 5, 7), normal(3, 7, 2)),
    "nothing to add": (normal(5, 0), normal(0, 3)),
    "no rows": (normal(0, 7), normal(7, 3)),
    "a vector": (normal(7), normal(7, 3)),
    "a float32 stack": (normal(3, 5, 7, dtype=np.float32), normal(3, 4, 7).swapaxes(1, 2)),
    "a float32 stack, turned": (normal(3, 7, 5).swapaxes(1, 2), normal(3, 4, 7, dtype=np.float32).swapaxes(1, 2)),
    "float16": (normal(5, 7, dtype=np.float16), normal(7, 4, dtype=np.float16)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_of_any_layout_agree(layout, by_tiles):
    a, b = LAYOUTS[layout]
    assert_close(providers.matmul(a, b, dtype=nt.float32), a, b, error=2.0**-17)


@needs_tiles
def test_the_number_of_threads_does_not_show(monkeypatch):
    cases = [((300, 500), (500, 700)), ((700, 500), (500, 300)), ((3, 400, 300), (3, 300, 200))]
    for a, b in ((normal(*a), normal(*b, dtype=np.float32)) for a, b in cases):
        found = []
        for count in (1, 2, 3, 8):
            monkeypatch.setattr(pool, "threads", lambda count=count: count)
            found.append(amx.matmul(a, b, None, nt.float32))
        assert all(np.array_equal(found[0], other) for other in found)
        assert_close(found[0], a, b, error=2.0**-17)


@needs_tiles
def test_threads_of_the_caller_do_not_disturb_each_other():
    wrong = []

    def work(seed):
        a, b = normal(200, 300, seed=seed), normal(300, 200, seed=seed + 9)
        expected = amx.matmul(a, b, None, nt.float32)
        found = [amx.matmul(a, b, None, nt.float32) for _ in range(20)]
        wrong.extend(seed for each in found if not np.array_equal(each, expected))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("wide", ["neither", "a", "b"])
def test_what_is_not_finite_arrives(wide, by_tiles):
    a, b = np.eye(40, dtype=np.float32) * 2.0, np.ones((40, 40), np.float32)
    a[3, 3], a[5, 5], b[7, 7] = np.inf, np.nan, -np.inf
    b[9, 9], b[10, 10] = 1.6e38, 3e38
    a, b = a.astype(np.float32 if wide == "a" else nt.bfloat16), b.astype(np.float32 if wide == "b" else nt.bfloat16)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = np.matmul(np.float32(a), np.float32(b))
        found = providers.matmul(a, b, dtype=nt.float32)
        rounded = providers.matmul(a, b, dtype=nt.bfloat16)
    np.testing.assert_allclose(found, expected, rtol=2.0**-17)
    if wide == "neither":
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.float32(rounded), np.float32(expected.astype(nt.bfloat16)))


@pytest.mark.parametrize("kernel", ["llvm", "numpy"])
def test_two_halves_add_up_to_17_bits(kernel, monkeypatch):
    if kernel == "numpy":
        monkeypatch.setattr(llvm_conversion, "splitter", lambda: None)
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(5000) * 10.0 ** rng.integers(-30, 38, 5000)).astype(np.float32)
    x = np.concatenate([x, -x, np.float32([0.0, -0.0, 1.0, 3.4e38, -3.4028235e38, 1e-45])])
    upper, lower = halves.split(x)
    assert upper.dtype == lower.dtype == nt.bfloat16
    total = np.float64(upper) + np.float64(lower)
    # The largest are cut, not rounded, so that they do not become infinite.
    share = np.where(np.abs(x) > 3.38e38, 2.0**-16, 2.0**-17)
    assert (np.abs(total - x) <= np.maximum(share * np.abs(np.float64(x)), 2.0**-133)).all()
    assert (np.float32(lower)[np.float32(upper) == x] == 0).all()
    assert (np.abs(total) <= np.finfo(np.float32).max).all()
    upper, lower = halves.split(np.float32([np.inf, -np.inf, np.nan]))
    assert np.float32(upper)[:2].tolist() == [np.inf, -np.inf]
    assert np.isnan(np.float32(upper[2]))
    assert np.float32(lower).tolist() == [0.0, 0.0, 0.0]


def test_both_ways_to_split_agree(monkeypatch):
    ties = (np.arange(1000, dtype=np.uint32) * 0x8000 + 0x3F800000).view(np.float32)
    largest = np.float32([3.4028235e38, -3.4e38, 3.39e38, 1e-40, 0.0, -0.0, np.inf])
    x = np.concatenate([normal(10_000, dtype=np.float32), ties, -ties, largest])
    found = halves.split(x)
    assert [part.size for part in halves.split(x[:0])] == [0, 0]
    monkeypatch.setattr(llvm_conversion, "splitter", lambda: None)
    for ours, theirs in zip(found, halves.split(x), strict=True):
        np.testing.assert_array_equal(ours.view(np.uint16), theirs.view(np.uint16))


@needs_tiles
def test_a_training_step_under_autocast_uses_them_both_ways(monkeypatch):
    seen = []
    run = amx.matmul
    monkeypatch.setattr(
        amx, "matmul", lambda *arguments: seen.append([str(x.dtype) for x in arguments[:2]]) or run(*arguments)
    )
    x = nt.tensor(normal(256, 128, dtype=np.float32), requires_grad=True)
    weight = nt.tensor(normal(128, 128, seed=1, dtype=np.float32), requires_grad=True)
    gradients = []
    for name in ("auto", "numpy"):
        x.grad = weight.grad = None
        with providers.pinned(name):
            with nt.autocast(nt.bfloat16):
                loss = nt.tanh(nt.linear(x, weight) * 0.1).sum()
            loss.backward()
        gradients.append([x.grad.numpy(), weight.grad.numpy()])
    assert seen == [["bfloat16", "bfloat16"], ["float32", "bfloat16"], ["float32", "bfloat16"]]
    for ours, plain in zip(*gradients, strict=True):
        # The forward is rounded to bfloat16, here and there another way.
        np.testing.assert_allclose(ours, plain, atol=2.0**-8 * np.abs(plain).max())


@needs_tiles
def test_a_forked_process_has_threads_of_its_own():
    a, b = normal(256, 512), normal(512, 256)
    expected = amx.matmul(a, b, None, nt.float32)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(amx.matmul(a, b, None, nt.float32), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


@needs_tiles
def test_a_cpu_that_ends_the_process_that_tries_is_found_out():
    program = (
        "import ctypes\n"
        "from numtape.kernels import amx, amx_code\n"
        "amx_code._CONFIGURATION = bytes([9]) + amx_code._CONFIGURATION[1:]\n"
        "assert amx.why_missing() == 'AMX: announced by the CPU, but does not run', amx.why_missing()\n"
    )
    printed(program)


def test_without_llvmlite_one_line_says_so(monkeypatch):
    monkeypatch.setattr(llvm, "is_there", lambda: False)
    monkeypatch.setattr(amx.platform, "system", lambda: "Linux")
    monkeypatch.setattr(amx.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(amx, "why_missing", amx.why_missing.__wrapped__)
    with pytest.raises(MissingExtraError) as caught:
        nt.kernels.provider("amx")
    assert str(caught.value) == 'AMX: llvmlite is missing: pip install "numtape[compile]".'
    a = normal(64, 64)
    assert amx.matmul(a, a, None, nt.bfloat16) is None
    monkeypatch.setattr(amx.platform, "system", lambda: "Darwin")
    assert amx.why_missing() == "AMX: only on Linux on x86-64"


def test_a_cpu_without_the_instructions_is_told_from_one_that_hides_them(monkeypatch):
    monkeypatch.setattr(amx.platform, "system", lambda: "Linux")
    monkeypatch.setattr(amx.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(llvm, "is_there", lambda: True)
    monkeypatch.setattr(llvm, "features", lambda: {"avx2"})
    assert amx.why_missing.__wrapped__() == "AMX: not an instruction of this CPU"


@needs_tiles
def test_long_and_tall_products_need_no_large_buffers():
    del amx._buffers.__dict__["a"], amx._buffers.__dict__["b"]
    for a, b in ((normal(8, 40_000), normal(40_000, 33)), (normal(70_000, 64), normal(64, 5, dtype=np.float32))):
        assert_close(amx.matmul(a, b, None, nt.float32), a, b, error=2.0**-17)
        np.testing.assert_array_equal(
            np.float32(amx.matmul(a, b, None, nt.bfloat16)),
            np.float32(amx.matmul(a, b, None, nt.float32).astype(nt.bfloat16)),
        )
    assert sum(held.nbytes for held in amx._buffers.__dict__.values()) < 12 << 20


@needs_tiles
def test_a_bias_that_does_not_fit_is_not_read_beyond_its_end():
    x = normal(200, 200)
    with pytest.raises(ValueError, match="broadcast"):
        providers.matmul(x, x, np.ones(3, np.float32))


def test_an_interrupt_leaves_no_thread_behind_with_freed_memory():
    program = (
        "import signal, numpy as np, numtape as nt\n"
        "from numtape.kernels import halves, pool\n"
        "pool.threads = lambda: 2\n"
        "halves.compile_now()\n"
        "for i in range(30):\n"
        "    x = np.ones(2**25, np.float32)\n"
        "    signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        "    try:\n"
        "        signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.0003 * i)\n"
        "        halves.to_half(x, nt.float16)\n"
        "        signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "    except KeyboardInterrupt:\n"
        "        pass\n"
        "    del x\n"
    )
    printed(program)


def test_threads_that_end_after_the_program_still_compute():
    program = (
        "import threading, time, numpy as np, numtape as nt\n"
        "from numtape.kernels import halves, pool\n"
        "pool.threads = lambda: 2\n"
        "halves.compile_now()\n"
        "x = np.ones(2**21, np.float32)\n"
        "def work():\n"
        "    time.sleep(0.5)\n"
        "    print((halves.to_half(x, nt.bfloat16) == 1).all())\n"
        "threading.Thread(target=work).start()\n"
    )
    assert printed(program) == "True\n"


@needs_tiles
def test_a_process_that_ignores_its_children_finds_them_all_the_same():
    program = (
        "import signal\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "from numtape.kernels import amx\n"
        "assert amx.is_available()\n"
    )
    printed(program)


def test_a_process_that_may_not_fork_does_without(monkeypatch):
    def fail():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(amx.os, "fork", fail)
    if amx.is_available():
        assert not amx._works()


@needs_tiles
def test_digests_name_who_computed(tmp_path):
    program = (
        "import numpy as np, numtape as nt\n"
        "from numtape.kernels.machine import machine\n"
        "before = machine()['provider']\n"
        "x = nt.ones(256, 256).astype(nt.bfloat16)\n"
        "x @ x\n"
        "print(before, '|', machine()['provider'])\n"
    )
    assert printed(program) == "auto | auto (amx)\n"


@needs_tiles
def test_a_process_forked_while_another_thread_compiles_goes_on():
    program = (
        "import os, threading, time, numpy as np, numtape as nt\n"
        "def work():\n"
        "    x = nt.tensor(np.ones((256, 256), np.float32), requires_grad=True)\n"
        "    with nt.autocast():\n"
        "        y = (x @ x).sum()\n"
        "    y.backward()\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()\n"
        "children = []\n"
        "for _ in range(4):\n"
        "    time.sleep(0.05)\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        work()\n"
        "        os._exit(0)\n"
        "    children.append(child)\n"
        "thread.join()\n"
        "assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4\n"
    )
    printed(program)


@needs_tiles
def test_numbers_that_cancel_leave_an_exact_zero():
    w = nt.tensor(np.ones((192, 192), np.float32), requires_grad=True)
    c = nt.tensor(np.tile([[1.0], [1.0], [-2.0]], (64, 192)).astype(np.float32))
    with nt.autocast():
        y = nt.ones(192, 192) @ w
    (y * c).sum().backward()
    assert (w.grad.numpy() == 0).all()


@pytest.mark.parametrize(("size_of_a", "size_of_b"), [(1e-30, 1e-9), (1e-20, 1e-17), (1e-37, 1.0), (1.0, 1e-39)])
@pytest.mark.parametrize("dtype", [nt.bfloat16, np.float32], ids=str)
def test_small_numbers_are_not_flushed(by_tiles, size_of_a, size_of_b, dtype):
    a, b = normal(64, 64, dtype=np.float64) * size_of_a, normal(64, 64, seed=1, dtype=np.float64) * size_of_b
    a, b = a.astype(nt.bfloat16), b.astype(dtype)
    ours = providers.matmul(a, b, dtype=nt.float32)
    wanted, size = np.float64(a) @ np.float64(b), np.abs(np.float64(a)) @ np.abs(np.float64(b))
    # What is subnormal itself has fewer digits.
    assert (np.abs(ours - wanted) <= 4e-7 * size + 2.0**-140).all()
