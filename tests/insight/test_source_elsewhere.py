"""Code that `to_numpy_source` writes is right at other values than those recorded, masks and branches included."""

import gc
import weakref

import numpy as np
import pytest

import numtape as nt
from numtape.core.op import Composite
from numtape.insight.source import to_numpy_source
from numtape.ops.origins import derived, held, origin_of
from numtape.testing.op_checks import case_of, entries, samples

#: Functions whose code may raise at other values: how many elements differ is part of their result's shape.
OF_ANY_SHAPE = {"unique"}


def total(outs):
    """Return a number that depends on each element of tracked outputs in its own way; None if none is tracked."""
    found = None
    for out in outs:
        if getattr(out, "node", None) is not None:
            part = (out * np.cos(np.arange(out.size)).reshape(out.shape)).sum()
            found = part if found is None else found + part
    return found


def elsewhere(arrays):
    """Yield arrays of the same shapes with other elements: in other order, of other signs and sizes."""
    rng = np.random.default_rng(3)
    yield [np.flip(x).copy() for x in arrays]
    yield [-x for x in arrays]
    yield [rng.permutation(x.ravel()).reshape(x.shape) for x in arrays]
    yield [x * 3.0 + 1.0 for x in arrays]


def tensors_of(arrays, tracked=None):
    return [
        nt.tensor(x.copy(), requires_grad=tracked is None or i == tracked, name=f"v{i}") for i, x in enumerate(arrays)
    ]


def assert_right_elsewhere(function, arrays, others, tracked=None, may_raise=False):
    """Write the code at `arrays`, run it at others, and compare with the tape there; return how often that was."""
    loss = function(*tensors_of(arrays, tracked))
    if loss is None:
        return 0
    source = to_numpy_source(loss, check=False)  # It is compared here, elsewhere too.
    gradient = source.load()["gradient"]
    count = 0
    for moved in others:
        # Constants that the code does not take are those of the recording.
        moved = [x if f"v{i}" in source.arguments else arrays[i] for i, x in enumerate(moved)]
        tensors = tensors_of(moved, tracked)
        try:
            expected = function(*tensors)
            expected.backward()
        except (nt.errors.NumtapeError, np.linalg.LinAlgError):
            continue
        given = {f"v{i}": x for i, x in enumerate(moved) if f"v{i}" in source.arguments}
        try:
            value, found = gradient(**{**source.arguments, **given})
        except ValueError:
            assert may_raise
            continue
        np.testing.assert_allclose(value, expected.numpy(), 1e-8, 1e-9)
        for tensor in tensors:
            if tensor.name in found and tensor.grad is not None:
                np.testing.assert_allclose(found[tensor.name], tensor.grad.numpy(), 1e-7, 1e-8)
        count += 1
    return count


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", [e for e in entries() if isinstance(e, Composite)], ids=lambda e: e.name)
def test_functions_made_of_ops_are_right_at_other_values(entry):
    for sample in samples(entry):
        case = case_of(entry, sample)
        if not case.operands or any(x.dtype != np.float64 for x in case.operands):
            continue

        def function(*operands, case=case):
            return total(case.values(list(operands)))

        with np.errstate(all="ignore"):
            others = list(elsewhere(case.operands))
            assert_right_elsewhere(function, case.operands, others, may_raise=entry.name in OF_ANY_SHAPE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", [e for e in entries() if isinstance(e, Composite)], ids=lambda e: e.name)
def test_functions_made_of_ops_are_right_for_other_data_beside_one_operand_that_is_tracked(entry):
    for sample in samples(entry):
        case = case_of(entry, sample)
        if len(case.operands) < 2 or any(x.dtype != np.float64 for x in case.operands):
            continue

        def function(*operands, case=case):
            return total(case.values(list(operands)))

        with np.errstate(all="ignore"):
            others = list(elsewhere(case.operands))[-2:]
            for tracked in range(len(case.operands)):
                assert_right_elsewhere(function, case.operands, others, tracked)


WEIGHT = nt.tensor(0.25, dtype="float64")
POINTS, HEIGHTS = np.linspace(0.0, 3.0, 14), np.cos(np.linspace(0.0, 3.0, 14)) + np.arange(14)
SQUARES = np.random.default_rng(0).normal(size=(2, 3, 3))
FUNCTIONS = {
    "prelu": (lambda x: nt.prelu(x, WEIGHT), [1.0, -2.0], [-1.0, 2.0]),
    "interp": (lambda x: np.interp(x, [0.0, 1.0, 2.0], [0.0, 1.0, 5.0]), [0.5, 1.5, 3.0], [1.5, -0.5, 0.5]),
    "interp in a table": (lambda x: np.interp(x, POINTS, HEIGHTS), [0.5, 1.5, -1.0], [2.5, 9.0, 0.1]),
    "pinv": (lambda x: nt.pinv(x, 0.3), SQUARES, SQUARES[::-1].copy()),
    "pinv of each": (lambda x: nt.pinv(x, np.array([[0.1], [0.3]])), SQUARES, SQUARES[::-1].copy()),
    "padded embedding": (
        lambda x: nt.nn.functional.embedding(np.array([0, 1, 1]), x, padding_idx=1),
        np.arange(6.0).reshape(3, 2),
        np.ones((3, 2)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_masks_that_a_function_makes_are_made_again(name):
    function, recorded, other = FUNCTIONS[name]
    assert assert_right_elsewhere(lambda x: (function(x) ** 2).sum(), [np.array(recorded)], [[np.array(other)]]) == 1


def test_a_layer_that_learns_its_slope_is_right_for_other_data():
    data, other = np.linspace(-1.0, 1.0, 20), np.linspace(2.0, -1.0, 20)
    assert assert_right_elsewhere(lambda x, w: nt.prelu(x, w).sum(), [data, np.ones(1)], [[other, np.ones(1)]], 1) == 1
    source = to_numpy_source(nt.prelu(data, nt.tensor([0.5], dtype="float64", requires_grad=True)).sum())
    value, _ = source.load()["gradient"](**{**source.arguments, "constant": -np.ones(20)})
    assert value == -10.0


def test_a_tape_that_watches_everything_watches_no_derived_constant():
    x = nt.tensor(np.array([0.5, 1.5]), name="x")
    with nt.Tape() as tape:
        loss = np.interp(x, [0.0, 1.0, 2.0], [0.0, 1.0, 5.0]).sum()
    source = tape.to_numpy_source(loss)
    assert list(source.arguments) == ["x"]
    value, gradients = source.load()["gradient"](np.array([1.5, 0.5]))
    assert (value, gradients["x"].tolist()) == (3.5, [4.0, 1.0])


def test_a_derived_constant_tells_what_it_is_made_of_and_a_plain_one_does_not():
    x = nt.tensor([1.0, -1.0], requires_grad=True)
    mask = derived(nt.greater, x, 0)
    output = origin_of(mask)
    assert output is not None
    assert (output.origin.op.name, output.position) == ("greater", None)
    assert output.origin.links[0] is x
    assert origin_of(held(x)) is not None
    assert held(x).node is None
    assert origin_of(x > 0) is origin_of(derived(nt.greater, x.detach(), 0)) is None
    assert type(derived(nt.greater, np.ones(2), 0)) is np.ndarray


def test_what_unique_tells_besides_does_not_hold_the_graph():
    x = nt.tensor([3.0, 1.0], requires_grad=True) * 2.0
    places = nt.unique(x, return_index=True)[1]
    alive = weakref.ref(x)
    del x
    gc.collect()
    assert alive() is None
    assert origin_of(places) is None


@pytest.mark.parametrize(
    ("name", "written"),
    [("x\u00b2", "x2"), ("x\u2081", "x1"), ("\u00b5", "\u03bc"), ("a b.c", "a_b_c"), ("\u00b2", "p2"), ("1a", "p1a")],
)
def test_names_that_are_no_identifiers_are_changed(name, written):
    x = nt.tensor([1.0, 2.0], requires_grad=True, name=name)
    source = to_numpy_source(nt.sin(x).sum())
    _, gradients = source.load()["gradient"](np.array([0.5, 1.0]))
    np.testing.assert_allclose(gradients[written], np.cos([0.5, 1.0]))


def test_names_that_python_reads_as_one_stay_apart():
    x, y = (nt.tensor([value], requires_grad=True, name=name) for name, value in (("\ufb01", 1.0), ("fi", 2.0)))
    source = to_numpy_source((x * x * y).sum())
    _, gradients = source.load()["gradient"](np.array([3.0]), np.array([5.0]))
    assert [g.tolist() for g in gradients.values()] == [[30.0], [9.0]]
