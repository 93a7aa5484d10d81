"""Families of ops that are loaded when first asked for: whoever asks, in a fresh process, finds them."""

import os
import subprocess
import sys
import textwrap

import pytest

import numtape as nt
from numtape import ops
from numtape.core.declare import composed

#: Each alone in a process that has loaded no family late; what it does needs one.
ASKING = {
    "by name": "assert nt.conv2d(x[None, None], x[None, None]).shape == (1, 1, 1, 1)",
    "by a further spelling": "assert nt.swish(x).shape == (2, 2)",
    "by import": "from numtape import mse_loss, hinge_loss",
    "by import of everything": "exec('from numtape import *'); assert layer_norm is nt.layer_norm",
    "by NumPy's function": "assert np.einsum('ij,ij->', x, x).node is not None",
    "by another of NumPy's functions": "assert np.interp(x, [0.0, 1.0], [0.0, 2.0]).node is not None",
    "by dir": "assert {'gelu', 'swish', 'conv2d'} <= set(dir(nt))",
    "by the module of ops": "assert 'gelu' in dir(nt.ops); assert nt.ops.gelu is nt.gelu",
    "by a name for autocast": """
        config = nt.AmpConfig(keep_fp32_ops=("layer_norm",))
        with nt.Tape(amp=config):
            assert nt.layer_norm(x, 2).dtype == nt.float32
        """,
    "by a profile": """
        with nt.profile() as profile:
            nt.gelu(x)
        assert "gelu" in str(profile)
        """,
    "by the checks of all ops": """
        from numtape.testing import op_cases
        assert {"conv", "gelu", "einsum"} <= {entry.name for entry in op_cases.entries()}
        """,
    "by a name that does not exist": """
        try:
            nt.con2d
        except AttributeError as error:
            assert "conv2d" in str(error), error
        else:
            raise AssertionError
        """,
}

START = """
import sys
import numpy as np
import numtape as nt

assert not [name for name in sys.modules if name in {families}]
x = nt.ones(2, 2, requires_grad=True)
"""


def families():
    return {f"numtape.ops.{family}" for family in ops.FAMILIES.values()}


@pytest.mark.parametrize("asking", ASKING)
def test_whoever_asks_finds_it(asking):
    code = START.format(families=families()) + textwrap.dedent(ASKING[asking])
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_name_is_of_the_family_that_is_said_to_have_it():
    for name, family in ops.FAMILIES.items():
        found = getattr(nt, name)
        assert found is getattr(ops, name)
        assert found.__module__ == f"numtape.ops.{family}"
        assert name not in ops.__all__


def test_no_other_name_is_found():
    with pytest.raises(AttributeError, match=r"module 'numtape\.ops' has no attribute 'nothing'"):
        _ = ops.nothing


INTERRUPTED = """
import sys
import numtape as nt

left = int(sys.argv[1])

def interrupt(frame, event, arg):
    global left
    if event == "call" and frame.f_code.co_name == "_register":
        left -= 1
        if left < 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

sys.setprofile(interrupt)
try:
    nt.gelu
except KeyboardInterrupt:
    pass
else:
    raise AssertionError
sys.setprofile(None)
assert nt.gelu(nt.ones(2)).shape == nt.elu(nt.ones(2)).shape == (2,)
assert "swish" in dir(nt)
with nt.profile():
    nt.cross_entropy(nt.ones(2, 2), nt.tensor([0, 1]))
"""


@pytest.mark.parametrize("number", [0, 2, 5])
def test_a_family_is_loaded_again_after_an_interrupt(number):
    code = [sys.executable, "-W", "error", "-c", INTERRUPTED, str(number)]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_op_of_another_place_must_not_have_the_same_name():
    with pytest.raises(TypeError, match="op gelu is declared twice"):

        @composed()
        def gelu(x):
            """Return nothing of use."""


FORKED = """
import os
import threading
import time
import numtape as nt

threading.Thread(target=lambda: nt.swish(nt.ones(2))).start()
time.sleep({seconds})
child = os.fork()
if not child:
    nt.swish(nt.ones(2))
    os._exit(0)
deadline = time.monotonic() + 20
while os.waitpid(child, os.WNOHANG) == (0, 0):
    if time.monotonic() > deadline:
        os.kill(child, 9)
        raise SystemExit("the child hangs")
    time.sleep(0.01)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("seconds", [0.0, 0.0005, 0.002, 0.005])
def test_a_fork_waits_until_a_family_is_loaded(seconds):
    code = [sys.executable, "-W", "ignore", "-c", FORKED.format(seconds=seconds)]
    done = subprocess.run(code, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
