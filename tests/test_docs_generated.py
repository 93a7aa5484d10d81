"""Generated documents are what their generators write, and what they say is what happens."""

import importlib.util
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import numtape as nt
from numtape import tree
from numtape.errors import LeavesTapeError, UnsupportedError

DOCS = Path(__file__).parent.parent / "docs"


def _load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


table = _load("generate_numpy_functions")
COMMITTED = (DOCS / "numpy_functions.md").read_text(encoding="utf-8")
ROWS = table.rows()
#: Functions that write files, or take dates.
LEFT_OUT = ("save", "savetxt", "savez", "savez_compressed", "busday_count", "busday_offset", "is_busday")
#: A symmetric, positive definite matrix with elements between 0 and 1.
MATRIX = np.array([[0.75, 0.25], [0.25, 0.5]])
#: Arguments where the forms below do not show the derivative.
ARGUMENTS = {
    "where": lambda x: (np.array([True, False]), x, x),
    "arccosh": lambda x: (x + 1.0,),
    "acosh": lambda x: (x + 1.0,),
    "interp": lambda x: (x, np.array([0.0, 1.0]), np.array([0.0, 1.0])),
    "einsum": lambda x: ("ij,jk", x, x),
    "copyto": lambda x: (np.ones((2, 2)), x),
    "cross": lambda x: (x @ np.ones((2, 3)), np.ones((2, 3))),
    "linalg.cross": lambda x: (x @ np.ones((2, 3)), np.ones((2, 3))),
    "vecmat": lambda x: (np.ones(2), x),
    "broadcast_to": lambda x: (x, (3, 2, 2)),
    "tensordot": lambda x: (x, x),
    "meshgrid": lambda x: (x[0], x[1]),
    "percentile": lambda x: (x, 50),
    "quantile": lambda x: (x, 0.5),
    "astype": lambda x: (x, np.float64),
    "apply_along_axis": lambda x: (np.sum, 0, x),
    "apply_over_axes": lambda x: (np.sum, x, 0),
    "linalg.multi_dot": lambda x: ([x, x, x],),
    "nanpercentile": lambda x: (x, 50),
    "nanquantile": lambda x: (x, 0.5),
    "piecewise": lambda x: (x, [np.array([[True, False], [True, True]])], [1.0]),
    "choose": lambda x: (np.array([[0, 1], [1, 0]]), [x, x]),
    "bincount": lambda x: (np.array([0, 1]), x[0]),
    "put": lambda x: (np.ones((2, 2)), 0, x[0]),
    "put_along_axis": lambda x: (np.ones((2, 2)), np.array([[0, 1]]), x[:1], 0),
    "place": lambda x: (np.ones((2, 2)), np.ones((2, 2), bool), x),
    "putmask": lambda x: (np.ones((2, 2)), np.ones((2, 2), bool), x),
    "add.at": lambda x: (np.ones((2, 2)), 0, x[0]),
    "multiply.at": lambda x: (np.ones((2, 2)), 0, x[0]),
    "add.reduceat": lambda x: (x, [0, 1]),
    "multiply.reduceat": lambda x: (x, [0, 1]),
    "maximum.reduceat": lambda x: (x, [0, 1]),
    "minimum.reduceat": lambda x: (x, [0, 1]),
    "logaddexp.reduceat": lambda x: (x, [0, 1]),
}
#: Forms of arguments, of which the first that NumPy accepts is taken.
FORMS = (
    lambda x: (x,),
    lambda x: (x, x),
    lambda x: ([x, x],),
    lambda x: (x, 1),
    lambda x: (x, 0, 1),
    lambda x: (x, np.array([[0, 1], [1, 0]]), 0),
    lambda x: (x, (4,)),
    lambda x: (x, np.array([[True, False], [True, True]])),
    lambda x: (x, np.array([[True, False], [True, True]]), 0.5),
    lambda x: (x[0],),
    lambda x: (x[0], x[0]),
    lambda x: (x[0], x[0], 1),
    lambda x: (np.array([[0, 1], [1, 0]]), [x, x]),
    lambda x: ([x[0] > 0.5], [x[0]]),
    lambda x: (x[0], [x[0] > 0.5], [0.5, 0.1]),
)


def _accepted(row):
    """Return a form of arguments that NumPy accepts, and its answer; None if there is none here."""
    for form in [ARGUMENTS[row.name]] if row.name in ARGUMENTS else FORMS:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("error")
            try:
                return form, row.function(*form(MATRIX.copy()))
            except Exception:
                continue
    return None


def _flat(result):
    leaves = tree.leaves(result) if isinstance(result, tuple | list | dict) else [result]
    return [x.numpy() if isinstance(x, nt.Tensor) else x for x in leaves]


def test_the_table_is_what_the_generator_writes():
    """With another NumPy than the table's, the rows that both have."""
    version = ".".join(np.__version__.split(".")[:2])
    if f"for NumPy {version}." in COMMITTED:
        assert table.document() == COMMITTED
    committed = {line.split("`")[1]: line for line in COMMITTED.splitlines() if line.startswith("| `")}
    generated = {f"np.{row.name}": str(row) for row in ROWS if f"np.{row.name}" in committed}
    assert generated == {name: committed[name] for name in generated}
    assert len(generated) > 300


def test_every_numtape_function_that_the_table_names_is_there():
    assert [row.op for row in ROWS if row.op and not hasattr(nt, row.op.removeprefix("nt."))] == []


TRIED = [row for row in ROWS if row.name not in LEFT_OUT and _accepted(row) is not None]


def test_nearly_every_function_is_tried():
    untried = [row.name for row in ROWS if row not in TRIED]
    assert len(untried) <= 0.1 * len(ROWS), untried


@pytest.mark.parametrize("row", TRIED, ids=[row.name for row in TRIED])
def test_tracked_tensors_do_what_the_table_says(row):
    form, expected = _accepted(row)
    x = nt.tensor(MATRIX.copy(), requires_grad=True)
    given = form(x * 1.0)
    if row.tracked == table.RAISES:
        with pytest.raises((UnsupportedError, LeavesTapeError)):
            row.function(*given)
        return
    actual = row.function(*given)
    leaves = actual if isinstance(actual, tuple | list) else [actual]
    is_tracked = any(isinstance(part, nt.Tensor) and part.requires_grad for part in tree.leaves(list(leaves)))
    assert is_tracked == (row.tracked == table.RECORDS)
    if not row.name.endswith("_like"):
        _assert_equal(actual, expected, row.name)


@pytest.mark.parametrize("row", TRIED, ids=[row.name for row in TRIED])
def test_untracked_tensors_get_numpys_answer(row):
    form, expected = _accepted(row)
    actual = row.function(*form(nt.tensor(MATRIX.copy())))
    if not row.name.endswith("_like"):
        _assert_equal(actual, expected, row.name)


def _assert_equal(actual, expected, name):
    for a, e in zip(_flat(actual), _flat(expected), strict=True):
        if isinstance(e, np.ndarray | np.generic | float | int):
            np.testing.assert_allclose(np.asarray(a, np.asarray(e).dtype), e, rtol=1e-12, atol=1e-15, err_msg=name)
