"""The threads of BLAS libraries: who holds them to one, also in forks."""

import os
import subprocess
import sys

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")


def printed(program, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_fork
def test_a_process_forked_while_another_thread_enters_scopes_goes_on():
    program = (
        "import os, signal, threading\n"
        "import numtape as nt\n"
        "with nt.deterministic():  # Imports; a fork in the middle of one hangs in any program.\n"
        "    pass\n"
        "is_over = []\n"
        "def work():\n"
        "    while not is_over:\n"
        "        with nt.deterministic():\n"
        "            pass\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()\n"
        "found = []\n"
        "for _ in range(100):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        signal.alarm(5)\n"
        "        with nt.deterministic():\n"
        "            os._exit(0)\n"
        "    found.append(os.waitpid(child, 0)[1])\n"
        "    if any(found):\n"
        "        break\n"
        "is_over.append(True)\n"
        "thread.join()\n"
        "assert found == [0] * 100, found\n"
    )
    printed(program)


@needs_fork
def test_a_fork_is_in_the_scopes_of_its_own_thread_only():
    program = (
        "import os, threading\n"
        "import numtape as nt\n"
        "is_in, may_leave = threading.Event(), threading.Event()\n"
        "def work():\n"
        "    with nt.deterministic():\n"
        "        is_in.set()\n"
        "        may_leave.wait()\n"
        "nt.set_num_threads(2)\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()\n"
        "is_in.wait()\n"
        "if os.fork() == 0:\n"
        "    print(nt.get_num_threads(), flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "with nt.deterministic():\n"
        "    if os.fork() == 0:\n"
        "        print(nt.get_num_threads(), flush=True)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "may_leave.set()\n"
        "thread.join()\n"
        "print(nt.get_num_threads())\n"
    )
    assert printed(program) == "2\n1\n2\n"


@pytest.mark.parametrize("first", ["", "import scipy.sparse.linalg\n"], ids=["loaded inside", "loaded before"])
def test_scipys_library_has_one_thread_in_strict_mode_as_well(first):
    pytest.importorskip("scipy")
    # With two threads SuperLU gives other bits for this system.
    program = first + (
        "import hashlib\n"
        "import numpy as np\n"
        "import numtape as nt\n"
        "from numtape.interop.scipy import spsolve\n"
        "from numtape.kernels import blas\n"
        "rng = np.random.default_rng(0)\n"
        "dense = rng.normal(size=(600, 600)) * (rng.random((600, 600)) < 0.3) + 10.0 * np.eye(600)\n"
        "rows, columns = np.nonzero(dense)\n"
        "starts = np.searchsorted(rows, np.arange(601))\n"
        "right = rng.normal(size=(600, 200))\n"
        "with nt.deterministic():\n"
        "    found = spsolve((dense[rows, columns], columns, starts), right)\n"
        "    inside = [library.threads() for library in blas._libraries()]\n"
        "after = [library.threads() for library in blas._libraries()]\n"
        "print(set(inside), len(set(after)), hashlib.sha256(found.tobytes()).hexdigest())\n"
    )
    one, two = (printed(program, OPENBLAS_NUM_THREADS=count) for count in ("1", "2"))
    assert one == two
    assert one.startswith("{1} 1 ")
