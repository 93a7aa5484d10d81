"""What records say of the lines that made them stays short, whatever these lines hold."""

import linecache

import numpy as np
import pytest

import numtape as nt
from numtape.core.record import describe_site, shortened
from numtape.errors import OperandError, OverwrittenError

LONG = "y = x * x; " + "z = y + 0.0; " * 1000 + "y[0] = 9.0; loss = (y * z).sum()"


def run(source, **names):
    """Run a line of a file that the interpreter can quote."""
    filename = "long_lines.py"
    linecache.cache[filename] = (len(source), None, [source + "\n"], filename)
    exec(compile(source, filename, "exec"), names)
    return names


def test_a_long_line_is_quoted_in_part():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    names = run(LONG, x=x)
    site = nt.records(names["loss"])[0].site
    assert site == f"long_lines.py:1 ({LONG[:97]}...)"
    with pytest.raises(OverwrittenError) as caught:
        run("y = x * x; z = y * y; y[0] = 9.0; z.sum().backward()" + " " * 5 + "; pass" * 5000, x=x)
    assert len(str(caught.value)) < 600


def test_a_short_line_is_quoted_in_full():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    assert y.node.site.endswith("(y = x * x)")
    assert describe_site(None, 0) == "an unknown line"


def test_text_is_shortened_to_what_fits():
    assert shortened("a" * 100) == "a" * 100
    assert shortened("a" * 101) == "a" * 97 + "..."


def test_data_is_quoted_in_part():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(OperandError) as caught:
        nt.add(x, [[1.0]] * 5000 + [1.0])
    assert len(str(caught.value)) < 400
    with pytest.raises(OperandError) as caught:
        x.backward([[1.0]] * 5000 + [1.0])
    assert len(str(caught.value)) < 400
    np.testing.assert_array_equal(x.numpy(), [1.0, 2.0])
