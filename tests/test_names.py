"""Names that NumPy and PyTorch share or do not: one test for each row of docs/numpy_and_pytorch.md."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import numtape as nt
from numtape.core.declare import public, registry
from numtape.core.op import Composite
from numtape.errors import ArgumentError, IndexingError, OperandError, ShapeError
from numtape.testing import op_checks

DOCUMENT = Path(__file__).parent.parent / "docs" / "numpy_and_pytorch.md"
X = np.array([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]])


def both(name, *args, x=X, **kwargs):
    """Call a function on a tensor and as its method, and on an array; return the array, all three being equal."""
    function = getattr(nt, name)
    plain = function(x, *args, **kwargs)
    assert not isinstance(plain, nt.Tensor)
    t = nt.tensor(x, requires_grad=True)
    for result in (function(t, *args, **kwargs), getattr(t, name)(*args, **kwargs)):
        pairs = zip(result, plain, strict=True) if isinstance(result, tuple) else [(result, plain)]
        for mine, expected in pairs:
            assert isinstance(mine, nt.Tensor)
            np.testing.assert_array_equal(mine.numpy(), expected)
    return plain


def gradient(function, x=X):
    """Return the gradient of a weighted sum, so that the places of elements matter."""

    def total(x):
        out = function(x)
        return (out * np.arange(1.0, 1.0 + out.size).reshape(out.shape)).sum()

    return nt.grad(total)(x)


# Names that both have.


def test_getitem_of_one_element_is_a_copy_that_cannot_be_written():
    x = nt.tensor([1.0, 2.0, 3.0])
    element = x[0]
    element += 5.0  # A new number, as NumPy's.
    for number in x:
        number *= 2.0
    first, *_ = x
    first -= 1.0
    assert (element.item(), first.item(), x.tolist()) == (6.0, 0.0, [1.0, 2.0, 3.0])
    x[0] += 5.0
    x[1:2].fill_(7.0)
    x.unbind()[2].zero_()
    assert x.tolist() == [6.0, 7.0, 0.0]
    with pytest.raises(nt.errors.OverwrittenError, match="is a copy, as in NumPy"):
        x[0].fill_(1.0)
    matrix = nt.zeros(2, 2)
    for row in matrix:
        row.add_(1.0)  # Rows are views in both.
    assert matrix.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_getitem_of_one_element_can_become_a_variable():
    w, b = nt.tensor([1.0, 2.0])
    w.requires_grad = b.requires_grad = True
    optimizer = nt.optim.SGD([b], lr=0.5)
    (w * b).backward()
    with nt.no_grad():
        for p in (w,):
            p -= 0.5 * p.grad
    optimizer.step()
    assert (w.item(), b.item(), w.requires_grad) == (0.0, 1.5, True)
    with pytest.raises(nt.errors.LeafWriteError):
        w += 1.0
    module = nt.nn.Module()
    module.register_buffer("scale", nt.arange(3.0)[1])
    module.load_state_dict({"scale": nt.tensor(5.0)})
    assert module.scale.item() == 5.0
    element = nt.arange(3.0)[1]
    element.data = 7.0
    assert element.item() == 7.0


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x[0, 0].reshape(1),
        lambda x: x[0, 0][None],
        lambda x: x[0, 0].flatten(),
        lambda x: x.diagonal(),
        lambda x: nt.diag(x),
        lambda x: nt.einsum("ii->i", x),
        lambda x: x.expand(2, 2),
        lambda x: x[0, :1].expand(3),
    ],
)
def test_a_variable_made_of_memory_that_cannot_be_written_has_its_own(make):
    x = nt.ones(2, 2)
    w = make(x).requires_grad_()
    optimizer = nt.optim.SGD([w], lr=0.25)
    (w * w).sum().backward()
    optimizer.step()
    assert w.tolist() == nt.full(w.shape, 0.5).tolist()
    watched = nt.Tape().watch(make(x))
    module = nt.nn.Module()
    module.register_buffer("scale", make(x))
    with nt.no_grad():
        watched.mul_(2.0)
        module.scale.add_(1.0)
    assert watched.tolist() == module.scale.tolist() == nt.full(w.shape, 2.0).tolist()
    assert x.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_a_variable_with_memory_of_its_own_knows_what_was_written_before_only():
    x, w = nt.eye(2), nt.ones(2, requires_grad=True)
    diagonal = x.diagonal()
    early = (w * diagonal).sum()
    x *= 2.0
    diagonal.requires_grad_()
    with pytest.raises(nt.errors.OverwrittenError):
        early.backward()
    late = (w * diagonal).sum()
    x *= 2.0
    late.backward()
    assert w.grad.tolist() == [2.0, 2.0]


def test_getitem_of_one_element_can_begin_a_sum():
    def total(x):
        found = x[0]
        for i in range(1, 3):
            found += x[i] * x[i]
        for number in x:
            found += number * number
        return found

    x = np.array([1.0, 2.0, 3.0])
    assert nt.grad(total)(x).tolist() == [3.0, 8.0, 12.0]
    assert nt.jvp(total, x, np.ones(3)) == (28.0, 23.0)
    assert nt.jacobian(total)(x).tolist() == [3.0, 8.0, 12.0]


def test_var_divides_by_n_unless_told_otherwise():
    np.testing.assert_allclose(both("var", axis=0), [2.25, 2.25, 2.25], rtol=1e-15)
    np.testing.assert_allclose(both("var", axis=0, ddof=1), [4.5, 4.5, 4.5], rtol=1e-15)
    np.testing.assert_allclose(both("var", axis=0, correction=1), [4.5, 4.5, 4.5], rtol=1e-15)
    np.testing.assert_allclose(both("var", dim=0, correction=0, keepdim=True), [[2.25, 2.25, 2.25]], rtol=1e-15)
    np.testing.assert_allclose(gradient(lambda x: x.var(axis=0)), [[-1.5, 3.0, -4.5], [1.5, -3.0, 4.5]], rtol=1e-14)
    np.testing.assert_allclose(np.var(nt.tensor(X), axis=0).numpy(), [2.25, 2.25, 2.25], rtol=1e-15)


def test_std_divides_by_n_unless_told_otherwise():
    np.testing.assert_allclose(both("std", axis=0), [1.5, 1.5, 1.5], rtol=1e-15)
    np.testing.assert_allclose(both("std", axis=0, ddof=1), np.full(3, 4.5**0.5), rtol=1e-15)
    np.testing.assert_allclose(both("std", dim=0, correction=1), np.full(3, 4.5**0.5), rtol=1e-15)
    np.testing.assert_allclose(gradient(lambda x: x.std(axis=0)), [[-0.5, 1.0, -1.5], [0.5, -1.0, 1.5]], rtol=1e-14)


def test_repeat_repeats_each_element_in_a_row():
    assert both("repeat", 2).tolist() == [1, 1, 5, 5, 3, 3, 4, 4, 2, 2, 6, 6]
    assert both("repeat", 2, axis=0).tolist() == [X[0].tolist()] * 2 + [X[1].tolist()] * 2
    assert both("repeat", 2, dim=0).tolist() == [X[0].tolist()] * 2 + [X[1].tolist()] * 2
    assert gradient(lambda x: x.repeat(2)).tolist() == [[3.0, 7.0, 11.0], [15.0, 19.0, 23.0]]
    assert both("tile", (1, 2)).tolist() == [[1, 5, 3, 1, 5, 3], [4, 2, 6, 4, 2, 6]]


def test_split_takes_a_number_of_parts_or_where_to_cut():
    x = np.arange(6.0)
    assert [part.tolist() for part in both("split", 2, x=x)] == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert [part.tolist() for part in both("split", [2, 3], x=x)] == [[0.0, 1.0], [2.0], [3.0, 4.0, 5.0]]
    assert gradient(lambda x: x.split(2)[1], x).tolist() == [0.0, 0.0, 0.0, 1.0, 2.0, 3.0]
    with pytest.raises(ArgumentError, match=r"^split: axis 0 of x has length 6 and cannot be cut into 4 parts evenly"):
        nt.split(x, 4)


def test_pad_takes_pairs_the_first_axis_first():
    padded = nt.pad(X, ((1, 0), (0, 2)))
    assert padded.tolist() == [[0, 0, 0, 0, 0], [1, 5, 3, 0, 0], [4, 2, 6, 0, 0]]
    assert np.pad(nt.tensor(X), ((1, 0), (0, 2))).numpy().tolist() == padded.tolist()
    assert gradient(lambda x: nt.pad(x, ((1, 0), (0, 2)))).tolist() == [[6.0, 7.0, 8.0], [11.0, 12.0, 13.0]]


def test_size_is_a_number():
    assert nt.tensor(X).size == 6
    assert np.size(nt.tensor(X)) == 6
    assert nt.tensor(X).shape == (2, 3)


def test_max_gives_values_only():
    assert both("max") == 6.0
    assert both("max", axis=1).tolist() == [5.0, 6.0]
    assert both("max", dim=1, keepdim=True).tolist() == [[5.0], [6.0]]
    assert both("max", 0).tolist() == [4.0, 5.0, 6.0]
    assert gradient(lambda x: x.max(axis=1)).tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]
    assert both("argmax", dim=1).tolist() == [1, 2]


def test_min_gives_values_only():
    assert both("min") == 1.0
    assert both("min", axis=1).tolist() == [1.0, 2.0]
    assert both("min", dim=1, keepdim=True).tolist() == [[1.0], [2.0]]
    assert gradient(lambda x: x.min(axis=1)).tolist() == [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]
    assert both("argmin", dim=1).tolist() == [0, 1]


def test_sort_gives_values_only():
    assert both("sort").tolist() == [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]
    assert both("sort", dim=0).tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert both("sort", descending=True).tolist() == [[5.0, 3.0, 1.0], [6.0, 4.0, 2.0]]
    assert gradient(lambda x: x.sort()).tolist() == [[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]]
    assert both("argsort").tolist() == [[0, 2, 1], [1, 0, 2]]


def test_median_gives_values_only_and_the_mean_of_the_middle_two():
    assert both("median") == 3.5
    assert both("median", axis=1).tolist() == [3.0, 4.0]
    assert both("median", axis=1, keepdims=True).tolist() == [[3.0], [4.0]]
    assert gradient(lambda x: x.median()).tolist() == [[0.0, 0.0, 0.5], [0.5, 0.0, 0.0]]


def test_norm_of_a_matrix_is_a_matrix_norm():
    for ord, expected in ((1, 9.0), (2, np.linalg.norm(X, 2)), (np.inf, 12.0), (None, np.sqrt((X**2).sum()))):
        np.testing.assert_allclose(both("norm", ord), expected, rtol=1e-14)
        np.testing.assert_allclose(np.linalg.norm(nt.tensor(X), ord).item(), expected, rtol=1e-14)
    assert nt.vector_norm(X, 1) == 21.0
    assert gradient(lambda x: x.norm(1)).tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]


def test_meshgrid_runs_along_axis_1_first():
    a, b = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0])
    assert [x.shape for x in nt.meshgrid(a, b)] == [(2, 3), (2, 3)]
    assert nt.meshgrid(nt.tensor(a), b)[0].tolist() == [[1.0, 2.0, 3.0]] * 2
    assert [x.shape for x in nt.meshgrid(a, b, indexing="ij")] == [(3, 2), (3, 2)]


def test_nonzero_gives_one_array_for_each_axis():
    mask = np.array([[True, False, True], [False, True, False]])
    assert [part.tolist() for part in nt.nonzero(mask)] == [[0, 0, 1], [0, 2, 1]]
    assert [part.tolist() for part in nt.tensor(mask).nonzero()] == [[0, 0, 1], [0, 2, 1]]
    assert nt.stack(nt.nonzero(mask), axis=1).tolist() == [[0, 0], [0, 2], [1, 1]]


def test_equal_compares_elementwise():
    assert nt.equal(X, X.T.reshape(2, 3)).tolist() == [[True, False, False], [False, False, True]]
    assert nt.tensor(X).equal(X).tolist() == [[True] * 3] * 2


def test_cross_is_along_the_last_axis():
    a, b = np.eye(3)[:2], np.eye(3)[1:]
    assert nt.cross(a, b).tolist() == np.cross(a, b).tolist()
    assert nt.cross(a.T, b.T, dim=0).tolist() == np.cross(a, b).T.tolist()
    assert nt.cross(a.T, b, 0).tolist() == np.cross(a.T, b, 0).tolist()


def test_nan_to_num_has_copy_before_nan():
    x = np.array([np.nan, 1.0])
    assert nt.nan_to_num(x, True, 2.0).tolist() == [2.0, 1.0]
    assert nt.nan_to_num(x, nan=2.0).tolist() == [2.0, 1.0]
    with pytest.raises(OperandError, match=r"^nan_to_num: copy is 2\.0; it must be True or False\.$"):
        nt.nan_to_num(x, 2.0)


def test_unique_has_return_index_first():
    values, index = nt.unique(np.array([3.0, 1.0, 3.0]), True)
    assert (values.tolist(), index.tolist()) == ([1.0, 3.0], [1, 0])


def test_gradient_gives_one_array_for_one_axis():
    assert nt.gradient(np.array([1.0, 2.0, 4.0])).tolist() == [1.0, 1.5, 2.0]
    assert nt.gradient(np.array([1.0, 2.0, 4.0]), 0.5).tolist() == [2.0, 3.0, 4.0]
    assert [x.shape for x in nt.gradient(X)] == [(2, 3), (2, 3)]


# Names that only PyTorch has.


def test_view_shares_memory_and_raises_where_it_cannot():
    assert both("view", 3, 2).tolist() == [[1.0, 5.0], [3.0, 4.0], [2.0, 6.0]]
    assert both("view", (3, -1)).tolist() == [[1.0, 5.0], [3.0, 4.0], [2.0, 6.0]]
    assert both("view", -1).tolist() == X.ravel().tolist()
    t = nt.tensor(X)
    assert np.shares_memory(t.view(6).numpy(), t.numpy())
    assert gradient(lambda x: x.view(6)).tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    with pytest.raises(ShapeError, match=r"^view: .*use reshape, which copies\.$"):
        t.T.view(6)


def test_permute_takes_all_axes_in_their_new_order():
    x = np.arange(24.0).reshape(2, 3, 4)
    for result in (
        both("permute", 2, 0, 1, x=x),
        both("permute", (2, 0, 1), x=x),
        both("permute", dims=(2, 0, 1), x=x),
    ):
        assert result.shape == (4, 2, 3)
        assert result[3, 1, 2] == x[1, 2, 3]
    expected = np.transpose(np.arange(1.0, 25.0).reshape(4, 2, 3), (1, 2, 0))
    np.testing.assert_array_equal(gradient(lambda x: x.permute(2, 0, 1), x), expected)


def test_unsqueeze_makes_an_axis_at_its_place_in_the_result():
    assert both("unsqueeze", 0).shape == (1, 2, 3)
    assert both("unsqueeze", 1).shape == (2, 1, 3)
    assert both("unsqueeze", -1).shape == (2, 3, 1)
    assert both("unsqueeze", dim=2).shape == (2, 3, 1)
    assert gradient(lambda x: x.unsqueeze(1)).tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def test_cat_is_concat():
    t = nt.tensor(X)
    assert nt.cat is nt.concat
    assert nt.cat([t, t], dim=1).shape == (2, 6)
    assert nt.cat((X, X)).tolist() == [*X.tolist(), *X.tolist()]
    assert gradient(lambda x: nt.cat([x, x[:1]], 0)).tolist() == [[8.0, 10.0, 12.0], [4.0, 5.0, 6.0]]


def test_chunk_makes_at_most_so_many_parts_of_one_length():
    x = np.arange(7.0)
    assert [part.tolist() for part in both("chunk", 3, x=x)] == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0]]
    assert [part.shape for part in both("chunk", 2, dim=1)] == [(2, 2), (2, 1)]
    assert len(both("chunk", 4, x=np.arange(5.0))) == 3
    assert gradient(lambda x: x.chunk(3)[2], x).tolist() == [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]


def test_gather_takes_elements_along_an_axis():
    index = np.array([[2, 0], [1, 1]])
    for result in (
        both("gather", 1, index),
        both("gather", axis=1, index=index),
        both("gather", dim=1, index=index),
        both("gather", -1, index),
    ):
        assert result.tolist() == [[3.0, 1.0], [2.0, 2.0]]
    assert both("gather", 0, np.array([[1, 0]])).tolist() == [[4.0, 5.0]]
    assert nt.tensor(X).gather(1, nt.tensor(index)).tolist() == [[3.0, 1.0], [2.0, 2.0]]
    assert gradient(lambda x: x.gather(1, index)).tolist() == [[2.0, 0.0, 1.0], [0.0, 7.0, 0.0]]


def test_scatter_writes_along_an_axis_into_a_copy():
    index, src = np.array([[2, 0], [1, 1]]), np.array([[10.0, 20.0], [30.0, 40.0]])
    for result in (
        both("scatter", 1, index, src),
        both("scatter", dim=1, index=index, src=src),
        both("scatter", axis=1, index=index, src=src),
    ):
        assert result.tolist() == [[20.0, 5.0, 10.0], [4.0, 40.0, 6.0]]
    assert both("scatter", 1, index, 7.0).tolist() == [[7.0, 5.0, 7.0], [4.0, 7.0, 6.0]]
    assert gradient(lambda x: x.scatter(1, index, src)).tolist() == [[0.0, 2.0, 0.0], [4.0, 0.0, 6.0]]
    assert gradient(lambda s: nt.scatter(X, 1, index, s), src).tolist() == [[3.0, 1.0], [0.0, 5.0]]


def test_topk_gives_values_and_indices():
    values, indices = both("topk", 2)
    assert (values.tolist(), indices.tolist()) == ([[5.0, 3.0], [6.0, 4.0]], [[1, 2], [2, 0]])
    values, indices = both("topk", 1, dim=0, largest=False)
    assert (values.tolist(), indices.tolist()) == ([[1.0, 2.0, 3.0]], [[0, 1, 0]])
    assert gradient(lambda x: x.topk(2)[0]).tolist() == [[0.0, 1.0, 2.0], [4.0, 0.0, 3.0]]


def test_clamp_is_clip():
    assert nt.clamp is nt.clip
    for result in (both("clamp", 2.0, 4.0), both("clamp", min=2.0, max=4.0), both("clip", 2.0, 4.0)):
        assert result.tolist() == [[2.0, 4.0, 3.0], [4.0, 2.0, 4.0]]
    assert both("clamp", min=2.0).tolist() == [[2.0, 5.0, 3.0], [4.0, 2.0, 6.0]]
    assert both("clamp", max=2.0).tolist() == [[1.0, 2.0, 2.0], [2.0, 2.0, 2.0]]
    assert gradient(lambda x: x.clamp(2.0, 4.0)).tolist() == [[0.0, 0.0, 3.0], [4.0, 5.0, 0.0]]


def test_expand_repeats_without_copying_and_keeps_a_length_at_minus_one():
    x = np.array([[1.0], [2.0]])
    assert both("expand", -1, 3, x=x).tolist() == [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    assert both("expand", (2, -1, 3), x=x).shape == (2, 2, 3)
    t = nt.tensor(x)
    assert np.shares_memory(t.expand(2, 5).numpy(), t.numpy())
    assert gradient(lambda x: x.expand(-1, 3), x).tolist() == [[6.0], [15.0]]


def test_masked_fill_puts_one_value_where_a_mask_holds():
    mask = np.array([[True, False, True], [False, False, True]])
    assert both("masked_fill", mask, 9.0).tolist() == [[9.0, 5.0, 9.0], [4.0, 2.0, 9.0]]
    assert both("masked_fill", mask=mask, value=9.0).tolist() == [[9.0, 5.0, 9.0], [4.0, 2.0, 9.0]]
    assert nt.tensor(X).masked_fill(nt.tensor(mask), 9.0).tolist() == [[9.0, 5.0, 9.0], [4.0, 2.0, 9.0]]
    assert gradient(lambda x: x.masked_fill(mask, 9.0)).tolist() == [[0.0, 2.0, 0.0], [4.0, 5.0, 0.0]]
    assert nt.masked_fill([1.0, 2.0], [True, False], nt.tensor(9.0)).tolist() == [9.0, 2.0]
    for shape in ((), (2,)):
        for dtype, other in (("float16", "float32"), ("float32", "float64"), ("float64", "float32")):
            value = nt.tensor(3.0, dtype=other, requires_grad=True)
            filled = nt.ones(*shape, dtype=dtype).masked_fill(True, value)
            filled.sum().backward()
            assert (filled.dtype, value.grad.item()) == (dtype, filled.size)


def test_flatten_joins_the_axes_from_start_to_end():
    x = np.arange(24.0).reshape(2, 3, 4)
    assert both("flatten", x=x).shape == (24,)
    assert both("flatten", 1, x=x).shape == (2, 12)
    assert both("flatten", start_dim=1, x=x).shape == (2, 12)
    assert both("flatten", start_dim=0, end_dim=1, x=x).shape == (6, 4)
    assert gradient(lambda x: x.flatten()).tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def test_numel_is_the_number_of_elements():
    assert nt.tensor(X).numel() == 6
    assert nt.tensor(3.0).numel() == 1


# Arguments.


def test_transpose_exchanges_two_axes_of_three_and_raises_for_a_matrix():
    x = np.arange(24.0).reshape(2, 3, 4)
    assert both("transpose", 0, 1, x=x).shape == (3, 2, 4)
    assert both("transpose", -1, 0, x=x).shape == (4, 3, 2)
    assert both("transpose", 2, 0, 1, x=x).shape == (4, 2, 3)
    assert both("transpose", x=x).shape == (4, 3, 2)
    assert both("transpose").tolist() == X.T.tolist()
    assert both("transpose", 1, 0).tolist() == X.T.tolist()
    assert np.transpose(nt.tensor(x), (1, 0, 2)).shape == (3, 2, 4)
    message = (
        "transpose: for a matrix, transpose(0, 1) is the matrix itself in NumPy and its transpose in PyTorch; "
        "write x.T for the transpose."
    )
    for call in (lambda: nt.transpose(X, 0, 1), lambda: nt.tensor(X).transpose(0, 1)):
        with pytest.raises(ArgumentError, match=f"^{re.escape(message)}$"):
            call()


def _calls(name, parameter):
    """Return calls of a public function that give a parameter, as arguments before it and keywords after it."""
    face, entry = public[name], registry[name]
    signature = inspect.signature(face)
    if name in EXPLICIT:
        calls = EXPLICIT[name]
    elif isinstance(entry, Composite) or entry.face is face:
        calls = [(sample.args, sample.params) for sample in op_checks.samples(entry)]
    else:
        calls = []
    for args, params in calls:
        bound = signature.bind(*args, **params)
        if parameter in bound.arguments:
            given = list(bound.args)
            keywords = dict(bound.kwargs)
            if parameter not in keywords:
                names = list(bound.arguments)
                place = names.index(parameter)
                keywords.update({names[i]: given[i] for i in range(place, len(given))})
                given = given[:place]
            yield given, keywords


INDEX = np.array([[1, 0, 1]])
#: Calls of functions whose samples have other arguments, or never give an axis.
EXPLICIT = {
    "average": [((X,), {"axis": 1}), ((X,), {"axis": 1, "keepdims": True})],
    "cross": [((X, X[::-1]), {"axis": 1})],
    "diff": [((X,), {"axis": 0})],
    "flip": [((X,), {"axis": 1})],
    "gather": [((X, 0, INDEX), {})],
    "roll": [((X, 1), {"axis": 1})],
    "repeat": [((X, 2), {"axis": 1})],
    "scatter": [((X, 0, INDEX, np.ones((1, 3))), {})],
    "scatter_add": [((X, 0, INDEX, np.ones((1, 3))), {})],
    "segment_sum": [((X, np.array([0, 1, 0]), 2), {"axis": 1})],
    "topk": [((X, 2), {"axis": 1})],
}


def _with(parameter):
    return [name for name in registry if name in public and parameter in inspect.signature(public[name]).parameters]


def _assert_same(actual, expected):
    pairs = zip(actual, expected, strict=True) if isinstance(expected, tuple | list) else [(actual, expected)]
    for mine, other in pairs:
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("name", _with("axis"))
def test_dim_is_axis_everywhere(name):
    calls = list(_calls(name, "axis"))
    assert calls
    for args, keywords in calls:
        with np.errstate(all="ignore"):
            expected = public[name](*args, **keywords)
            others = {key: value for key, value in keywords.items() if key != "axis"}
            _assert_same(public[name](*args, dim=keywords["axis"], **others), expected)


@pytest.mark.parametrize("name", _with("keepdims"))
def test_keepdim_is_keepdims_everywhere(name):
    calls = list(_calls(name, "keepdims"))
    assert calls
    for args, keywords in calls:
        with np.errstate(all="ignore"):
            expected = public[name](*args, **keywords)
            others = {key: value for key, value in keywords.items() if key != "keepdims"}
            _assert_same(public[name](*args, keepdim=keywords["keepdims"], **others), expected)


REDUCTIONS = [
    *("sum", "mean", "prod", "max", "min", "var", "std", "logsumexp", "nansum", "nanmean"),
    *("median", "any", "all", "count_nonzero", "vector_norm", "average"),
]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_an_empty_list_of_axes_reduces_all_axes(name):
    function = getattr(nt, name)
    for x in (X, nt.tensor(X)):
        for given in ({"axis": ()}, {"axis": []}):
            result = function(x, **given)
            assert result.shape == ()
            np.testing.assert_array_equal(np.asarray(result), np.asarray(function(X)))


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "std", "any", "all"])
def test_numpys_own_functions_reduce_nothing_for_an_empty_list_of_axes(name):
    expected = getattr(np, name)(X, axis=())
    result = getattr(np, name)(nt.tensor(X), axis=())
    assert result.shape == (2, 3)
    np.testing.assert_array_equal(result.numpy(), expected)


def test_every_row_of_the_tables_has_a_test():
    names = re.findall(r"^\| `(\w+)", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    tests = [name for name in globals() if name.startswith("test_")]
    assert len(names) == 41
    assert [name for name in names if not any(test.startswith(f"test_{name}_") for test in tests)] == []


TALL = np.array([[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]])


def test_lstsq_returns_the_solution_only():
    b = np.array([2.0, 4.0, 1.0])
    np.testing.assert_allclose(nt.lstsq(TALL, b), [1.0, 1.0])
    assert len(np.linalg.lstsq(nt.tensor(TALL), nt.tensor(b))) == 4


def test_svd_is_reduced_unless_numpy_is_asked():
    assert nt.svd(TALL)[0].shape == (3, 2)
    assert np.linalg.svd(nt.tensor(TALL))[0].shape == (3, 3)


def test_eigh_and_cholesky_refuse_asymmetric_matrices():
    for function in (nt.eigh, nt.cholesky):
        with pytest.raises(nt.errors.NumtapeError):
            function(np.array([[2.0, 1.0], [0.0, 2.0]]))


def test_the_method_sort_returns_a_copy():
    x = nt.tensor([3.0, 1.0])
    assert x.sort().tolist() == [1.0, 3.0]
    assert x.tolist() == [3.0, 1.0]


def test_mean_of_integers_has_the_default_dtype():
    for function in (nt.mean, nt.var, lambda x: x / x):
        assert function(nt.tensor([1, 2])).dtype == np.float32


def test_diagonal_is_k():
    for name in ("triu", "tril", "diag"):
        assert both(name, diagonal=1).tolist() == both(name, k=1).tolist()
    with pytest.raises(nt.errors.OperandError, match="argument 'k' was given twice, the second time as 'diagonal'"):
        nt.triu(nt.ones(2, 2), k=1, diagonal=1)
    with pytest.raises(nt.errors.OperandError, match="there is no argument 'diagonal'"):
        nt.flatten(nt.ones(2, 2), diagonal=1)


NEGATIVE = np.array([0, -1])


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("embedding", lambda x: nt.embedding(NEGATIVE, x.reshape(3, 1))),
        ("embedding", lambda x: nt.nn.functional.embedding(nt.tensor(NEGATIVE), x.reshape(3, 1))),
        ("gather", lambda x: nt.gather(x, 0, NEGATIVE)),
        ("gather", lambda x: x.gather(0, nt.tensor(NEGATIVE))),
        ("scatter", lambda x: nt.scatter(x, 0, NEGATIVE, 1.0)),
        ("scatter", lambda x: x.detach().clone().scatter_(0, nt.tensor(NEGATIVE), 1.0)),
        ("scatter_add", lambda x: nt.scatter_add(x, -1, NEGATIVE, np.ones(2))),
        ("index_select", lambda x: nt.index_select(x, 0, NEGATIVE)),
    ],
)
def test_negative_indices_raise_where_only_pytorch_has_the_name(name, call):
    pattern = rf"^{name}: index -1 is negative; along axis -?\d of (x|weight), which has shape \(3,( 1)?\), indices "
    with pytest.raises(IndexingError, match=pattern + r"run from 0 to 2\. Add 3 to those that count from the end\.$"):
        call(nt.tensor([1.0, 2.0, 3.0], requires_grad=True))


def test_negative_indices_count_from_the_end_where_numpy_has_the_name():
    x = nt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    assert nt.take(x, NEGATIVE).tolist() == nt.take_along_axis(x, NEGATIVE).tolist() == x[NEGATIVE].tolist() == [1, 3]
