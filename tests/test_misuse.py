"""Every way to misuse the library that we know of, with the class and the full message of the error it raises."""

import copy
import io
import math
import pickle
import re
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.special

import numtape as nt
from numtape import errors
from numtape.core import context

#: Name, function that misuses, class of the error, its full message.
CASES: list[tuple[str, Callable[[], Any], type[Exception], str]] = []


def misuse(error, message):
    """Add a function to the table, with the error that it raises."""

    def add(function):
        CASES.append((function.__name__, function, error, message))
        return function

    return add


def leaf():
    """Return a leaf that requires a gradient."""
    return nt.tensor([1.0, 2.0], requires_grad=True)


def tracked():
    """Return a tensor with a history."""
    return leaf() * 2.0


def watched():
    """Return a tape that is not persistent, a tensor that it watches, and the square of that."""
    tape = nt.GradientTape()
    x = tape.watch(nt.ones(2))
    return tape, x, x * x


def without_scipy():
    """Return a block in which SciPy cannot be imported."""
    return mock.patch.dict(sys.modules, {"scipy": None, "scipy.special": None})


@pytest.fixture(autouse=True)
def no_tensor_has_left():
    """Forget which tensor left the tape last, since errors name it."""
    context.current().thread.exits.clear()


# What several messages say.
LEAVES = (
    ": the tensor is tracked, and its gradient would be lost without a word. Use tensor.numpy() to leave the tape, "
    "nt.stack([...]) or nt.tensor([...]) to join tensors, and nt functions to compute."
)
NO_OP = (
    ": has no op in numtape (or not with these options), and an operand is tracked, so its gradient would be lost. "
    "Write it with nt functions, or leave the tape with numpy() or detach()."
)
NOT_CONNECTED = (
    "the tensor depends on nothing that is tracked. Make a leaf with requires_grad=True, watch it on a tape, and "
    "compute with nt or np functions outside of no_grad."
)
OUT_IS_ARRAY = (
    ": out is an array, which cannot be tracked, but an operand is; give a tensor as out, or leave the tape with "
    "numpy()."
)
CLEARED = (
    ", which was cleared, rewound, reset or closed since, and a wanted source lies behind it. Take gradients before "
    "clearing, or detach() what crosses."
)
FREED = (
    ": an earlier backward has freed the arrays of this graph. Call the first backward with retain_graph=True, or "
    "add the losses and call backward once."
)
LEAF_WRITE = (
    ": a leaf that requires a gradient or is watched cannot be written in place while gradients are recorded; use "
    "`with nt.no_grad():` for an update, or compute a new tensor."
)
OVERWRITTEN = ". Write the result to a new tensor (y = y + 1 instead of y += 1), or clone() before the write."
STALE = (
    "; its history no longer tells its contents. Write through the tensor itself (x[0, 1] = v instead of x[0][1] = v), "
    "or clone() before the write."
)
COMPLEX = " is not supported, since numtape computes with real numbers; keep real and imaginary parts in two tensors."
MANY = ". Index one, reduce with sum() or mean(), or use tolist()."
NO_DERIVATIVE = " has no derivative; only float tensors do. Use astype(nt.float32), or write 1.0 instead of 1."
NO_TENSORS = "; arguments are tensors, arrays, numbers and trees of them."
CLOSED = ": this tape is closed; make a new one, or reset() instead of close()."
INDICES = "; indices are integers, bools, slices, None and `...`."
OLD_MARK = (
    "rewind: this mark is of another tape, or of a part that was rewound, reset or finished by a gradient since; "
    "call mark() anew."
)
BROADCAST = "; the shapes do not broadcast: from the last axis on, lengths must be equal or 1."
NO_NUMBERS = ", which are no numbers; give numbers, nested lists of them, or an array."


# Leaving the tape unnoticed.


@misuse(errors.LeavesTapeError, "np.asarray(tensor)" + LEAVES)
def asarray_of_a_tracked_tensor():
    np.asarray(tracked())


@misuse(errors.LeavesTapeError, "np.asarray(tensor)" + LEAVES)
def array_of_a_list_of_tracked_tensors():
    np.array([tracked(), tracked()])


@misuse(errors.LeavesTapeError, "np.asarray(tensor)" + LEAVES)
def assigning_a_tracked_tensor_to_a_slice_of_an_array():
    array = np.zeros(2)
    array[:] = tracked()


@misuse(
    errors.NotConnectedError,
    "backward: "
    + NOT_CONNECTED
    + " The last tensor that left the tape did so by float() at FILE:LINE (array[0] = tracked().sum()).",
)
def assigning_a_tracked_tensor_to_an_element_of_an_array():
    array = np.zeros(2)
    array[0] = tracked().sum()
    nt.tensor(array).sum().backward()


@misuse(
    errors.NotConnectedError,
    "backward: " + NOT_CONNECTED + " The last tensor that left the tape did so by float() at FILE:LINE "
    "(nt.tensor(math.sin(tracked().sum())).backward()).",
)
def math_sin_of_a_tracked_tensor():
    nt.tensor(math.sin(tracked().sum())).backward()


@misuse(
    errors.NotConnectedError,
    "backward: " + NOT_CONNECTED + " The last tensor that left the tape did so by float() at FILE:LINE "
    "(nt.tensor(float(tracked().sum())).backward()).",
)
def float_of_a_tracked_tensor():
    nt.tensor(float(tracked().sum())).backward()


@misuse(
    errors.NotConnectedError,
    "backward: " + NOT_CONNECTED + " The last tensor that left the tape did so by int() at FILE:LINE (nt.tensor(1.0 * "
    "int(tracked().sum())).backward()).",
)
def int_of_a_tracked_tensor():
    nt.tensor(1.0 * int(tracked().sum())).backward()


@misuse(
    errors.NotConnectedError,
    "backward: " + NOT_CONNECTED + " The last tensor that left the tape did so by item() at FILE:LINE "
    "(nt.tensor(tracked().sum().item()).backward()).",
)
def item_of_a_tracked_tensor():
    nt.tensor(tracked().sum().item()).backward()


@misuse(
    errors.NotConnectedError,
    "compute_gradients: " + NOT_CONNECTED + " The last tensor that left the tape did so by item() at FILE:LINE "
    "(nt.compute_gradients(nt.tensor([tracked().sum().item()]))).",
)
def compute_gradients_after_item():
    nt.compute_gradients(nt.tensor([tracked().sum().item()]))


@misuse(
    errors.NotConnectedError,
    "backward: "
    + NOT_CONNECTED
    + " The last tensor that left the tape did so by float() at FILE:LINE (loss = nt.tensor(float(tracked().sum()))).",
)
def tape_backward_after_float():
    with nt.GradientTape() as tape:
        loss = nt.tensor(float(tracked().sum()))
    tape.backward(loss)


@misuse(errors.LeavesTapeError, "DLPack export" + LEAVES)
def dlpack_of_a_tracked_tensor():
    np.from_dlpack(tracked())


@misuse(errors.UnsupportedError, "np.bincount" + NO_OP)
def bincount_of_a_tracked_tensor():
    np.bincount([0, 1], weights=tracked())


@misuse(errors.UnsupportedError, "np.fft.fft" + NO_OP)
def fft_of_a_tracked_tensor():
    np.fft.fft(tracked())


@misuse(errors.UnsupportedError, "np.unwrap" + NO_OP)
def unwrap_of_a_tracked_tensor():
    np.unwrap(tracked())


@misuse(errors.UnsupportedError, "np.savetxt" + NO_OP)
def save_of_a_tracked_tensor():
    np.savetxt(io.StringIO(), tracked())


@misuse(errors.UnsupportedError, "np.copyto" + NO_OP)
def copyto_an_array_from_a_tracked_tensor():
    np.copyto(np.zeros(2), tracked())


@misuse(errors.UnsupportedError, "np.put" + NO_OP)
def put_of_a_tracked_tensor_into_an_array():
    np.put(np.zeros(2), [0, 1], tracked())


@misuse(errors.UnsupportedError, "np.add.at" + NO_OP)
def add_at_with_a_tracked_tensor():
    np.add.at(np.zeros(2), [0, 1], tracked())


@misuse(errors.UnsupportedError, "np.add.at" + NO_OP)
def add_at_on_a_tracked_tensor():
    np.add.at(tracked(), [0, 1], 1.0)


@misuse(errors.UnsupportedError, "np.add.reduceat" + NO_OP)
def ufunc_reduceat_of_a_tracked_tensor():
    np.add.reduceat(tracked(), [0])


@misuse(errors.UnsupportedError, "np.hypot.outer" + NO_OP)
def ufunc_outer_without_an_op_of_a_tracked_tensor():
    np.hypot.outer(tracked(), tracked())


@misuse(errors.UnsupportedError, "np.frexp" + NO_OP)
def ufunc_without_an_op_of_a_tracked_tensor():
    np.frexp(tracked())


@misuse(errors.UnsupportedError, "np.exp" + NO_OP)
def ufunc_with_an_unknown_option_of_a_tracked_tensor():
    np.exp(tracked(), dtype=np.float64)


@misuse(errors.OperandError, "exp" + OUT_IS_ARRAY)
def out_that_is_an_array_for_a_tracked_tensor():
    np.exp(tracked(), out=np.zeros(2, np.float32))


@misuse(errors.OperandError, "mul" + OUT_IS_ARRAY)
def out_of_an_nt_function_that_is_an_array_for_a_tracked_tensor():
    nt.mul(tracked(), 2.0, out=np.zeros(2, np.float32))


@misuse(errors.OperandError, "add" + OUT_IS_ARRAY)
def adding_a_tracked_tensor_into_an_array():
    array = np.zeros(2)
    array += tracked()


@misuse(
    errors.UnsupportedError,
    "np.sum: has no op in numtape (or not with these options), and an operand is tracked, so its gradient would be "
    "lost. Write it with nt functions, or leave the tape with numpy() or detach().",
)
def out_of_a_reduction_that_is_an_array_for_a_tracked_tensor():
    np.sum(tracked(), out=np.zeros(()))


@misuse(errors.OperandError, "exp: out must be a tensor or an array, not list.")
def out_that_is_no_array():
    np.exp(nt.ones(2), out=[0.0, 0.0])


@misuse(errors.LeavesTapeError, "np.asarray(tensor)" + LEAVES)
def vectorize_over_a_tracked_tensor():
    np.vectorize(lambda v: v * 2.0)(tracked())


@misuse(errors.UnsupportedError, "np.apply_along_axis" + NO_OP)
def apply_along_axis_over_a_tracked_tensor():
    np.apply_along_axis(lambda row: row, 0, tracked())


SCIPY_ASKED = (
    " SciPy asked for it: numtape.interop.scipy has linear_operator(A) @ x and spsolve for sparse matrices, "
    "fftconvolve, dct, and solvers on functions of tensors."
)


@misuse(errors.LeavesTapeError, "np.asarray(tensor)" + LEAVES + SCIPY_ASKED)
def sparse_matrix_times_a_tracked_tensor():
    scipy.sparse.eye_array(2) @ tracked()


@misuse(errors.LeavesTapeError, "np.asarray(tensor)" + LEAVES + " SciPy asked for it: use nt.softmax.")
def a_function_of_scipy_that_numtape_has_of_a_tracked_tensor():
    scipy.special.softmax(tracked())


@misuse(
    errors.LeavesTapeError,
    "np.asarray(tensor)" + LEAVES + " SciPy asked for it: detach() what is tracked, be it the start or captured by the "
    "function, or call SciPy in nt.no_grad(); numtape.interop.scipy has solvers on functions of tensors.",
)
def a_tracked_tensor_that_scipy_starts_from():
    scipy.optimize.minimize(lambda x: (x**2).sum(), tracked())


@misuse(
    errors.NotConnectedError,
    "backward: "
    + NOT_CONNECTED
    + " The last tensor that left the tape did so by float() at FILE:LINE (array = np.fromiter(tracked(), "
    "np.float32)).",
)
def an_array_from_an_iterator_over_a_tracked_tensor():
    array = np.fromiter(tracked(), np.float32)
    nt.from_numpy(array).sum().backward()


# Shapes.


@misuse(errors.ShapeError, "add: a has shape (2, 3) and b has shape (4,)" + BROADCAST)
def adding_shapes_that_do_not_broadcast():
    nt.ones(2, 3) + nt.ones(4)


@misuse(errors.ShapeError, "add: a has shape (2, 3) and b has shape (4,)" + BROADCAST)
def adding_arrays_that_do_not_broadcast():
    nt.add(np.ones((2, 3)), np.ones(4))


@misuse(errors.ShapeError, "add: the result has shape (2, 3) and the tensor to write (3,).")
def adding_in_place_what_does_not_fit():
    x = nt.ones(3)
    x += nt.ones(2, 3)


@misuse(
    errors.ShapeError,
    "matmul: a has shape (2, 3) and b has shape (4, 3); the last axis of a (3) must equal the second-to-last axis "
    "of b (4). Did you mean matmul(a, b.T)?",
)
def matmul_of_shapes_that_do_not_match():
    nt.ones(2, 3) @ nt.ones(4, 3)


@misuse(errors.ShapeError, "matmul: a has shape (2, 3) and b has shape (); numbers are multiplied with *.")
def matmul_of_a_number():
    nt.ones(2, 3) @ 2.0


@misuse(
    errors.ShapeError,
    "dot: a has shape (3,) and b has shape (4,); the last axis of a (3) must have the length of axis 0 of b (4).",
)
def dot_of_shapes_that_do_not_match():
    nt.dot(nt.ones(3), nt.ones(4))


@misuse(errors.ShapeError, "einsum: operand 1 has shape (4, 3); label 'j' has length 4 there and 3 before.")
def einsum_of_shapes_that_do_not_match():
    nt.einsum("ij,jk->ik", nt.ones(2, 3), nt.ones(4, 3))


@misuse(errors.ArgumentError, "einsum: 'ij,jk->ik' describes 2 operands, but 1 were given.")
def einsum_with_too_few_operands():
    nt.einsum("ij,jk->ik", nt.ones(2, 3))


@misuse(errors.ShapeError, "reshape: x has shape (2, 3) with 6 elements, which do not fit shape (4, 2).")
def reshape_to_another_size():
    nt.ones(2, 3).reshape(4, 2)


@misuse(errors.ShapeError, "reshape: x has shape (2, 3) with 6 elements, which do not fit shape (-1, -1).")
def reshape_with_two_unknown_axes():
    nt.ones(2, 3).reshape(-1, -1)


@misuse(errors.OperandError, "reshape: wants integers, or one tuple of them, not (2.5,).")
def reshape_to_a_float():
    nt.ones(2, 3).reshape(2.5)


@misuse(errors.ShapeError, "reshape: x has shape (2, 3) with 6 elements, which do not fit shape (5,).")
def view_to_another_size():
    nt.ones(2, 3).view(5)


@misuse(
    errors.ShapeError,
    "concat: arrays[1] has shape (2, 4) and arrays[0] has shape (2, 3); all axes but 0 must have the same length.",
)
def concat_of_shapes_that_do_not_match():
    nt.concat([nt.ones(2, 3), nt.ones(2, 4)])


@misuse(errors.ArgumentError, "concat: the sequence is empty; give at least one tensor or array.")
def concat_of_nothing():
    nt.concat([])


@misuse(errors.OperandError, "concat: wants a sequence of tensors or arrays, not float.")
def concat_of_a_number():
    nt.concat(2.0)


@misuse(errors.OperandError, "concat: axis is tensor([1., 1.]); an axis is an integer, or a tuple of integers.")
def concat_of_separate_tensors():
    nt.concat(nt.ones(2), nt.ones(2))


@misuse(
    errors.ShapeError, "stack: arrays[1] has shape (3,) and arrays[0] has shape (2,); all must have the same shape."
)
def stack_of_shapes_that_do_not_match():
    nt.stack([nt.ones(2), nt.ones(3)])


@misuse(errors.ShapeError, "where: condition has shape (2,) and a has shape (3,) and b has shape (3,)" + BROADCAST)
def where_of_shapes_that_do_not_match():
    nt.where(nt.ones(2) > 0, nt.ones(3), nt.ones(3))


@misuse(
    errors.ShapeError,
    "broadcast_to: x has shape (3,), which does not broadcast to (2, 4): from the last axis on, lengths must be "
    "equal or 1 in x.",
)
def broadcast_to_a_shape_that_does_not_match():
    nt.broadcast_to(nt.ones(3), (2, 4))


@misuse(
    errors.ShapeError,
    "mse_loss: prediction has shape (3,) and target has shape (4,); the shapes must be equal, since losses do not "
    "broadcast. Did you mean to reshape one of them?",
)
def mse_loss_of_shapes_that_do_not_match():
    nt.mse_loss(nt.ones(3), nt.ones(4))


@misuse(
    errors.ShapeError,
    "mse_loss: prediction has shape (3,) and target has shape (3, 1); the shapes must be equal, since losses do not"
    " broadcast. Did you mean to reshape one of them?",
)
def mse_loss_that_would_broadcast():
    nt.mse_loss(nt.ones(3), nt.ones(3, 1))


@misuse(
    errors.ShapeError,
    "cross_entropy_loss: logits has shape (4, 3) and target has shape (2,); class indices must have shape (4,), "
    "without the axis of classes (1).",
)
def cross_entropy_with_targets_of_another_length():
    nt.cross_entropy_loss(nt.ones(4, 3), nt.tensor([0, 1]))


@misuse(
    errors.IndexingError,
    "cross_entropy_loss: target holds class 3, but logits has shape (2, 3) with 3 classes on axis 1; class indices "
    "are 0 to 2, or -100 (ignore_index).",
)
def cross_entropy_with_a_class_out_of_range():
    nt.cross_entropy_loss(nt.ones(2, 3), nt.tensor([0, 3]))


@misuse(
    errors.DtypeError,
    "cross_entropy_loss: target has shape (2,) and dtype float32; class indices are integers. Did you mean "
    "target.astype(int)?",
)
def cross_entropy_with_float_classes():
    nt.cross_entropy_loss(nt.ones(2, 3), nt.tensor([0.0, 1.0]))


@misuse(
    errors.ShapeError,
    "conv2d: x has shape (5, 5); it must be (batch, channels, height, width) or, for one sample, (channels, height,"
    " width). Add missing axes with reshape.",
)
def conv2d_with_too_few_axes():
    nt.conv2d(nt.ones(5, 5), nt.ones(1, 1, 3, 3))


@misuse(
    errors.ShapeError,
    "conv2d: x has shape (1, 2, 5, 5) and weight has shape (4, 3, 3, 3) with groups=1, which takes 3 channels; x "
    "has 2. Change the weight's shape, or groups.",
)
def conv2d_with_other_channels():
    nt.conv2d(nt.ones(1, 2, 5, 5), nt.ones(4, 3, 3, 3))


@misuse(
    errors.ShapeError,
    "conv2d: x has shape (1, 1, 2, 2), which padding makes (2, 2), and the kernel reaches over (3, 3); it must not "
    "be larger. Pad more, or use a smaller kernel or dilation.",
)
def conv2d_with_a_kernel_larger_than_the_image():
    nt.conv2d(nt.ones(1, 1, 2, 2), nt.ones(1, 1, 3, 3))


@misuse(errors.ArgumentError, "conv2d: stride is 0; it must be an integer of at least 1, or 2 of them.")
def conv2d_with_stride_zero():
    nt.conv2d(nt.ones(1, 1, 5, 5), nt.ones(1, 1, 3, 3), stride=0)


@misuse(errors.MissingAxesError, "mT: the tensor has shape (3,); a matrix has two axes or more. Use reshape.")
def mT_of_a_vector():
    return nt.ones(3).mT


@misuse(
    errors.ArgumentError,
    "transpose: for a matrix, transpose(0, 1) is the matrix itself in NumPy and its transpose in PyTorch; write x.T"
    " for the transpose.",
)
def transpose_of_a_matrix_by_two_axes():
    nt.ones(2, 3).transpose(0, 1)


@misuse(errors.ShapeError, "permute: x has shape (2, 3) and axes are (0,); axes must name each of the 2 axes once.")
def permute_with_too_few_axes():
    nt.ones(2, 3).permute(0)


@misuse(
    errors.ArgumentError,
    "split: axis 0 of x has length 5 and cannot be cut into 2 parts evenly; array_split and chunk allow a shorter "
    "part.",
)
def split_into_unequal_parts():
    nt.split(nt.ones(5), 2)


@misuse(errors.ShapeError, "squeeze: x has shape (2, 3) and axis 0 has length 2; only axes of length 1 can be removed.")
def squeeze_of_a_long_axis():
    nt.ones(2, 3).squeeze(0)


@misuse(errors.ShapeError, "inv: x has shape (2, 3); matrices must be square, the last two axes of one length.")
def inverse_of_a_matrix_that_is_not_square():
    nt.inv(nt.ones(2, 3))


@misuse(
    errors.LinearAlgebraError,
    "inv: x has shape (2, 2), and x is singular; use pinv or lstsq, or add a small multiple of the identity.",
)
def inverse_of_a_singular_matrix():
    nt.inv(nt.zeros(2, 2))


@misuse(
    errors.LinearAlgebraError,
    "cholesky: x has shape (2, 2), and x is not positive definite; add a small multiple of the identity if it "
    "should be.",
)
def cholesky_of_a_matrix_that_is_not_positive():
    nt.cholesky(-nt.eye(2))


@misuse(errors.ShapeError, "zeros: the shape is (-1,); lengths are not negative.")
def zeros_of_a_negative_shape():
    nt.zeros(-1)


@misuse(errors.OperandError, "zeros: the shape is (2.5,); give integers or one tuple of them, and dtype by keyword.")
def zeros_of_a_float_shape():
    nt.zeros(2.5)


@misuse(errors.OperandError, "zeros: the shape is ('2',); give integers or one tuple of them, and dtype by keyword.")
def zeros_of_a_text_shape():
    nt.zeros("2")


@misuse(errors.ShapeError, "full: the shape is (2,) and fill_value has shape (3,), which does not broadcast to it.")
def full_with_a_value_that_does_not_broadcast():
    nt.full((2,), [1.0, 2.0, 3.0])


@misuse(
    errors.ShapeError, "full_like: the shape is (2,) and fill_value has shape (3,), which does not broadcast to it."
)
def full_like_with_a_value_that_does_not_broadcast():
    nt.full_like(nt.ones(2), [1.0, 2.0, 3.0])


@misuse(errors.ArgumentError, "eye: n is 2.5; it must be an integer that is not negative.")
def eye_of_a_float():
    nt.eye(2.5)


@misuse(errors.ArgumentError, "eye: n is -1; it must be an integer that is not negative.")
def eye_of_a_negative_number():
    nt.eye(-1)


@misuse(errors.ArgumentError, "arange: step is 0; it must not be.")
def arange_with_step_zero():
    nt.arange(0, 3, 0)


@misuse(errors.OperandError, "arange: stop is '3'; it must be a real number.")
def arange_of_text():
    nt.arange("3")


@misuse(errors.ArgumentError, "linspace: num is -1; it must be an integer that is not negative.")
def linspace_with_a_negative_number_of_points():
    nt.linspace(0.0, 1.0, -1)


@misuse(errors.ArgumentError, "linspace: num is 2.5; it must be an integer that is not negative.")
def linspace_with_a_float_number_of_points():
    nt.linspace(0.0, 1.0, 2.5)


@misuse(errors.ArgumentError, "permutation: n is -1; it must be an integer that is not negative.")
def permutation_of_a_negative_number():
    nt.permutation(-1)


@misuse(errors.ArgumentError, "permutation: n is 2.5; it must be an integer that is not negative.")
def permutation_of_a_float():
    nt.permutation(2.5)


@misuse(errors.ArgumentError, "randint: low is 3 and high is 3; high must be larger.")
def randint_with_an_empty_range():
    nt.randint(3, 3)


@misuse(errors.OperandError, "randint: low is 0.5; bounds are integers.")
def randint_with_float_bounds():
    nt.randint(0.5, 3.5)


@misuse(errors.ArgumentError, "randint: Python integer 299 out of bounds for int8; use a wider dtype, or a float one.")
def randint_beyond_its_dtype():
    nt.randint(0, 300, (2,), dtype="int8")


@misuse(
    errors.ArgumentError,
    "permutation: Python integer 299 out of bounds for int8; use a wider dtype, or a float one.",
)
def permutation_beyond_its_dtype():
    nt.permutation(300, dtype="int8")


@misuse(errors.ArgumentError, "tensor: Python integer 300 out of bounds for int8; use a wider dtype, or a float one.")
def tensor_beyond_its_dtype():
    nt.tensor([1, 300], dtype="int8")


@misuse(errors.ArgumentError, "tensor: cannot convert float NaN to integer; use a wider dtype, or a float one.")
def nan_as_an_integer():
    nt.tensor([math.nan], dtype="int64")


@misuse(errors.ArgumentError, "setitem: Python integer 300 out of bounds for uint8; use a wider dtype, or a float one.")
def item_beyond_its_dtype():
    nt.zeros(2, dtype="uint8")[0] = 300


@misuse(errors.ArgumentError, "setitem: Python integer -1 out of bounds for uint8; use a wider dtype, or a float one.")
def fill_beyond_its_dtype():
    nt.zeros(2, dtype="uint8").fill_(-1)


@misuse(
    errors.ArgumentError,
    "scatter: Python integer 300 out of bounds for uint8 (x has shape (2,) and index has shape (1,) and src has "
    "shape ()).",
)
def scatter_beyond_its_dtype():
    nt.zeros(2, dtype="uint8").scatter_(0, nt.tensor([0]), 300)


@misuse(
    errors.ArgumentError,
    "stack: Python integer 300 out of bounds for uint8 (arrays[0] has shape () and arrays[1] has shape ()).",
)
def stack_beyond_its_dtype():
    nt.stack([nt.tensor(1, dtype="uint8"), 300])


@misuse(errors.ArgumentError, "diff: Python integer 300 out of bounds for uint8; use a wider dtype, or a float one.")
def edge_beyond_its_dtype():
    nt.diff(nt.zeros(2, dtype="uint8"), prepend=300)


@misuse(errors.ArgumentError, "full: Python integer 300 out of bounds for uint8; use a wider dtype, or a float one.")
def full_beyond_its_dtype():
    nt.full((2,), 300, dtype="uint8")


@misuse(
    errors.ArgumentError,
    "full_like: Python integer -1 out of bounds for uint8; use a wider dtype, or a float one.",
)
def full_like_beyond_its_dtype():
    nt.full_like(nt.zeros(2, dtype="uint8"), -1)


@misuse(errors.DtypeError, "randint: draws integers, but dtype is float32; use uniform, or astype().")
def randint_of_a_float_dtype():
    nt.randint(0, 3, (2,), dtype="float32")


@misuse(errors.DtypeError, "rand: draws floats, but dtype is int64; use randint.")
def rand_of_an_integer_dtype():
    nt.rand(2, dtype="int64")


@misuse(errors.ArgumentError, "normal: std is -1.0; a standard deviation is not negative.")
def normal_with_a_negative_deviation():
    nt.normal(0.0, -1.0, (2,))


@misuse(errors.OperandError, "uniform: the shape is (2.5,); give integers or one tuple of them, and dtype by keyword.")
def uniform_with_a_float_shape():
    nt.uniform(0.0, 1.0, 2.5)


@misuse(
    errors.ArgumentError, "np.asarray(tensor): a copy is needed to convert float32 to float64; leave copy=False out."
)
def asarray_without_a_copy_in_another_dtype():
    np.array(nt.ones(2), np.float64, copy=False)


# Dtypes.


@misuse(errors.DtypeError, "requires_grad: a tensor of int64" + NO_DERIVATIVE)
def requires_grad_of_integers():
    nt.tensor([1, 2], requires_grad=True)


@misuse(errors.DtypeError, "requires_grad: a tensor of bool" + NO_DERIVATIVE)
def requires_grad_of_bools():
    nt.tensor([True]).requires_grad_()


@misuse(errors.DtypeError, "grad: argument 0 has dtype int64, which has no derivative; use astype(float).")
def grad_of_an_integer_array():
    nt.grad(lambda x: (x * x).sum())(np.arange(3))


@misuse(errors.DtypeError, "grad: argument 0 has dtype int64, which has no derivative; use astype(float).")
def grad_of_an_integer_tensor():
    nt.grad(lambda x: (x * x).sum())(nt.arange(3))


@misuse(errors.OperandError, "grad: argument 0 is of type bool, which has no derivative" + NO_TENSORS)
def grad_of_a_bool():
    nt.grad(lambda x: x * 1.0)(True)


@misuse(errors.DtypeError, "grad: argument 0 has dtype bool, which has no derivative; use astype(float).")
def grad_of_a_numpy_bool():
    nt.grad(lambda x: x * 1.0)(np.True_)


@misuse(errors.OperandError, "grad: argument 0 is of type str, which has no derivative" + NO_TENSORS)
def grad_of_text():
    nt.grad(lambda x: x * 1.0)("text")


@misuse(
    errors.DtypeError,
    "grad: argument 0 has dtype complex128, but numtape computes with real numbers; pass real and imaginary parts "
    "as two arguments.",
)
def grad_of_a_complex_number():
    nt.grad(lambda x: x * 1.0)(1j)


@misuse(
    errors.DtypeError,
    "grad: argument 0 has dtype complex128, but numtape computes with real numbers; pass real and imaginary parts "
    "as two arguments.",
)
def grad_of_a_complex_array():
    nt.grad(lambda x: x.sum())(np.ones(2, complex))


@misuse(errors.DtypeError, "dtype: complex128" + COMPLEX)
def tensor_of_complex_numbers():
    nt.tensor([1.0 + 2.0j])


@misuse(errors.DtypeError, "dtype: complex128" + COMPLEX)
def tensor_of_a_complex_dtype():
    nt.zeros(2, dtype="complex128")


@misuse(errors.DtypeError, "mul: operand 'b' has dtype complex128, which" + COMPLEX)
def complex_operand():
    nt.ones(2) * 1j


@misuse(errors.DtypeError, "exp: operand 'x' has dtype complex128, which" + COMPLEX)
def complex_array_operand():
    nt.exp(np.ones(2, complex))


@misuse(errors.DtypeError, "complex(): numtape computes with real numbers; use float().")
def complex_of_a_tensor():
    complex(nt.tensor(1.0))


@misuse(errors.DtypeError, "dtype: complex128" + COMPLEX)
def astype_complex():
    nt.ones(2).astype(complex)


@misuse(errors.DtypeError, "dtype: complex128" + COMPLEX)
def from_numpy_of_complex_numbers():
    nt.from_numpy(np.ones(2, complex))


@misuse(errors.OperandError, "from_numpy: wants an array, not list; use nt.tensor, which copies.")
def from_numpy_of_a_list():
    nt.from_numpy([1.0, 2.0])


@misuse(
    errors.DtypeError,
    "dtype: object is not supported; dtypes are bool, integers, float16, bfloat16, float32 and float64.",
)
def from_numpy_of_objects():
    nt.from_numpy(np.array([None]))


@misuse(errors.DtypeError, "dtype: 'flaot32' is not a dtype; examples are 'float32', np.float64 and nt.bfloat16.")
def unknown_dtype_name():
    nt.zeros(2, dtype="flaot32")


@misuse(
    errors.DtypeError,
    "dtype: float128 is not supported; dtypes are bool, integers, float16, bfloat16, float32 and float64.",
)
def longdouble():
    nt.tensor(np.ones(2, np.longdouble))


@misuse(errors.DtypeError, "dtype: 'float33' is not a dtype; examples are 'float32', np.float64 and nt.bfloat16.")
def to_an_unknown_dtype():
    nt.ones(2).to("float33")


@misuse(errors.DtypeError, "set_default_dtype: int32 is not a float dtype; use float16, bfloat16, float32 or float64.")
def default_dtype_of_integers():
    nt.set_default_dtype("int32")


@misuse(errors.DtypeError, "add: a result of float32 cannot be stored in a tensor of int64.")
def adding_floats_to_integers_in_place():
    x = nt.arange(3)
    x += 0.5


@misuse(errors.DtypeError, "setitem: a value of float32 cannot be stored in a tensor of int64.")
def storing_floats_in_integers():
    x = nt.arange(3)
    x[0] = nt.tensor(0.5)


@misuse(errors.DtypeError, "setitem: a value of float64 cannot be stored in a tensor of int64.")
def storing_a_python_float_in_integers():
    x = nt.arange(3)
    x[0] = 0.5


@misuse(errors.DtypeError, "setitem: a value of <U4 cannot be stored in a tensor of float32.")
def storing_text():
    x = nt.ones(3)
    x[0] = "text"


@misuse(
    errors.ShapeError,
    "setitem: x[key] has shape (2,) and the value to store has shape (3,), which does not broadcast to it.",
)
def storing_what_does_not_fit():
    x = nt.ones(3)
    x[:2] = nt.ones(3)


@misuse(errors.DtypeError, "exp: a result of float32 cannot be stored in a tensor of int64.")
def out_of_another_kind():
    nt.exp(nt.ones(2), out=nt.arange(2))


@misuse(errors.ArgumentError, "to: there is no device 'cuda'; numtape computes on \"cpu\".")
def device_cuda():
    nt.ones(2).to("cuda")


@misuse(errors.ArgumentError, "zeros: there is no device 'cuda'; numtape computes on \"cpu\".")
def device_of_a_creator():
    nt.zeros(2, device="cuda")


@misuse(errors.ArgumentError, "to: there is no device 'cuda'; numtape computes on \"cpu\".")
def tensor_to_cuda():
    nt.zeros(2).cuda()


ELEMENT = (
    "an element that was taken out of a tensor is a copy, as in NumPy, and cannot be written; write x[i] = v, or "
    "x[i] += v, or clone() it first."
)


@misuse(errors.OverwrittenError, f"setitem: {ELEMENT}")
def fill_an_element():
    nt.zeros(3)[0].fill_(7.0)


@misuse(errors.OverwrittenError, f"mul: {ELEMENT}")
def multiply_an_element_of_a_tracked_tensor():
    (nt.ones(3, requires_grad=True) * 1.0)[0].mul_(5.0)


@misuse(errors.OverwrittenError, f"add: {ELEMENT}")
def element_as_out():
    nt.add(nt.ones(()), 1.0, out=nt.zeros(3)[1])


@misuse(errors.ArgumentError, "to: there is no device 'cuda:0'; numtape computes on \"cpu\".")
def device_cuda_with_a_number():
    nt.ones(2).to("cuda:0")


# Functional API.


@misuse(
    errors.ShapeError,
    "grad: <lambda> returned shape (3,); a gradient is of a scalar. Use sum(), or nt.vjp for other cotangents.",
)
def grad_of_a_function_with_many_results():
    nt.grad(lambda x: x * 2.0)(np.ones(3))


@misuse(errors.OperandError, "grad: <lambda> returned list; it must return a scalar tensor.")
def grad_of_a_function_that_returns_a_list():
    nt.grad(lambda x: [x.sum()])(np.ones(3))


@misuse(errors.OperandError, "grad: objective returned NoneType; it must return a scalar tensor.")
def grad_of_a_function_that_returns_nothing():
    def objective(x):
        x.sum()

    nt.grad(objective)(np.ones(3))


@misuse(
    errors.OperandError,
    "grad: <lambda> returned tuple; it must return a scalar tensor; with has_aux=True, it may return a pair.",
)
def grad_of_a_function_that_returns_a_pair():
    nt.grad(lambda x: (x.sum(), 1))(np.ones(3))


@misuse(errors.OperandError, "grad: <lambda> returned bool; it must return a scalar tensor.")
def grad_of_a_function_that_returns_a_bool():
    nt.grad(lambda x: True)(np.ones(3))


@misuse(errors.DtypeError, "grad: <lambda> returned a tensor of int64, which has no derivative; it must return floats.")
def grad_of_a_function_that_returns_integers():
    nt.grad(lambda x: x.argmax())(np.ones(3))


@misuse(errors.LeavesTapeError, "np.asarray(tensor)" + LEAVES)
def grad_of_a_function_that_leaves_the_tape():
    nt.grad(lambda x: np.asarray(x).sum())(np.ones(3))


@misuse(
    errors.NotConnectedError,
    "grad: sin returned a constant, and a tracked tensor left the tape by float() at FILE:LINE "
    "(nt.grad(math.sin)(1.0)), so its gradient would be lost. Use nt functions instead of math, nt.stack instead of"
    " filling an array, and return a tensor if a constant is meant.",
)
def grad_of_a_function_that_returns_float():
    nt.grad(math.sin)(1.0)


@misuse(
    errors.NotConnectedError,
    "grad: objective returned a constant, and a tracked tensor left the tape by float() at FILE:LINE "
    "(array[0] = x[0] * 2.0), so its gradient would be lost. Use nt functions instead of math, nt.stack instead of "
    "filling an array, and return a tensor if a constant is meant.",
)
def grad_of_a_function_that_fills_an_array():
    def objective(x):
        array = np.zeros(2)
        array[0] = x[0] * 2.0
        return array.sum()

    nt.grad(objective)(np.ones(2))


@misuse(
    errors.OperandError,
    "grad: wants a function, not float; nt.grad differentiates functions, and backward() a loss that is computed "
    "already.",
)
def grad_of_no_function():
    nt.grad(3.0)


@misuse(
    errors.OperandError,
    "value_and_grad: wants a function, not Tensor; nt.value_and_grad differentiates functions, and backward() a "
    "loss that is computed already.",
)
def value_and_grad_of_a_tensor():
    nt.value_and_grad(nt.ones(3).sum())


@misuse(
    errors.OperandError,
    "vjp: wants a function, not Tensor; nt.vjp differentiates functions, and backward() a loss that is computed "
    "already.",
)
def vjp_of_no_function():
    nt.vjp(nt.ones(3), nt.ones(3))


@misuse(
    errors.ArgumentError,
    "grad: argnums is array([1., 1., 1.]); it must be an integer or a tuple of integers. The function's arguments "
    "go to the result: nt.grad(f)(x).",
)
def grad_called_with_values_at_once():
    nt.grad(lambda x: x, np.ones(3))


@misuse(
    errors.ArgumentError,
    "grad: argnums has 1, but the function got 1 positional arguments; argnums counts these, from 0 on.",
)
def argnums_out_of_range():
    nt.grad(lambda x: x.sum(), argnums=1)(np.ones(3))


@misuse(
    errors.ArgumentError,
    "grad: argnums is 'x'; it must be an integer or a tuple of integers. The function's arguments go to the result:"
    " nt.grad(f)(x).",
)
def argnums_as_text():
    nt.grad(lambda x: x.sum(), argnums="x")(np.ones(3))


@misuse(
    errors.ArgumentError,
    "grad: argnums is 0.0; it must be an integer or a tuple of integers. The function's arguments go to the result:"
    " nt.grad(f)(x).",
)
def argnums_as_a_float():
    nt.grad(lambda x: x.sum(), argnums=0.0)(np.ones(3))


@misuse(
    errors.ArgumentError,
    "grad: argnums is True; it must be an integer or a tuple of integers. The function's arguments go to the "
    "result: nt.grad(f)(x).",
)
def argnums_as_a_bool():
    nt.grad(lambda x: x.sum(), argnums=True)(np.ones(3))


@misuse(errors.ArgumentError, "grad: argnums is (0, 0); each argument may be named once.")
def argnums_twice():
    nt.grad(lambda x: x.sum(), argnums=(0, 0))(np.ones(3))


@misuse(errors.ArgumentError, "grad: argnums is (0, -1); each argument may be named once.")
def argnums_twice_by_a_negative_number():
    nt.grad(lambda x: x.sum(), argnums=(0, -1))(np.ones(3))


@misuse(
    errors.ArgumentError,
    "grad: argnums has 0, but the function got 0 positional arguments; argnums counts these, from 0 on.",
)
def grad_without_positional_arguments():
    nt.grad(lambda x: x.sum())(x=np.ones(3))


@misuse(
    errors.OperandError,
    "grad: has_aux is set, but <lambda> returned Tensor; it must return a pair, what is differentiated and anything "
    "else.",
)
def has_aux_without_a_pair():
    nt.grad(lambda x: x.sum(), has_aux=True)(np.ones(3))


@misuse(
    errors.OperandError,
    "value_and_grad: has_aux is set, but <lambda> returned a tuple of 3; it must return a pair, what is "
    "differentiated and anything else.",
)
def has_aux_with_a_triple():
    nt.value_and_grad(lambda x: (x.sum(), 1, 2), has_aux=True)(np.ones(3))


@misuse(errors.ShapeError, "vjp: cotangent 0 of <lambda> has shape (2,) and its output (3,); they must be equal.")
def vjp_with_a_cotangent_of_another_shape():
    _, pull = nt.vjp(lambda x: x * 2.0, np.ones(3))
    pull(np.ones(2))


@misuse(errors.ArgumentError, "vjp: <lambda> has 1 outputs, but 2 cotangents were given; give one for each output.")
def vjp_with_too_many_cotangents():
    _, pull = nt.vjp(lambda x: x * 2.0, np.ones(3))
    pull([np.ones(3), np.ones(3)])


@misuse(errors.ArgumentError, "vjp: <lambda> has 2 outputs, but 1 cotangents were given; give one for each output.")
def vjp_with_too_few_cotangents():
    _, pull = nt.vjp(lambda x: (x * 2.0, x * 3.0), np.ones(3))
    pull(np.ones(3))


@misuse(errors.OperandError, "vjp: cotangent 0 of <lambda> is a str (<U4); it must be real numbers.")
def vjp_with_a_cotangent_of_text():
    _, pull = nt.vjp(lambda x: x * 2.0, np.ones(3))
    pull("text")


@misuse(errors.OperandError, "vjp: cotangent 0 of <lambda> is a ndarray (complex128); it must be real numbers.")
def vjp_with_a_complex_cotangent():
    _, pull = nt.vjp(lambda x: x * 2.0, np.ones(3))
    pull(np.ones(3) * 1j)


@misuse(errors.DtypeError, "vjp: argument 0 has dtype int64, which has no derivative; use astype(float).")
def vjp_of_an_integer_array():
    nt.vjp(lambda x: x * 2.0, np.arange(3))


@misuse(errors.OperandError, "vjp: <lambda> returned str; it must return a tensor.")
def vjp_of_a_function_that_returns_text():
    nt.vjp(lambda x: "text", np.ones(3))


# Backward, tapes and contexts.


@misuse(errors.NotConnectedError, "backward: " + NOT_CONNECTED)
def backward_of_an_untracked_tensor():
    nt.ones(3).sum().backward()


@misuse(
    errors.NotConnectedError,
    "backward: the tensor has dtype int64, which has no derivative; give one of floats that it came from.",
)
def backward_of_integers():
    leaf().argmax().backward()


@misuse(errors.NotConnectedError, "backward: " + NOT_CONNECTED)
def backward_of_what_no_grad_computed():
    with nt.no_grad():
        loss = leaf().sum()
    loss.backward()


@misuse(errors.ShapeError, "backward: the tensor has shape (2,); give gradient=, or reduce it with sum() or mean().")
def backward_of_many_elements():
    tracked().backward()


@misuse(errors.ShapeError, "backward: the gradient given has shape (3,) and the tensor (2,); they must be equal.")
def backward_with_a_gradient_of_another_shape():
    tracked().backward(gradient=np.ones(3))


@misuse(errors.OperandError, "backward: the gradient given is a tensor, an array or a real number, not str (<U4).")
def backward_with_a_gradient_of_text():
    tracked().backward(gradient="text")


@misuse(
    errors.OperandError, "backward: the gradient given is a tensor, an array or a real number, not list (complex128)."
)
def backward_with_a_complex_gradient():
    tracked().backward(gradient=[1j, 1j])


@misuse(
    errors.ArgumentError,
    "backward: .grad never carries a graph; to differentiate gradients, take them by nt.grad(f)(x), or by "
    "tape.gradient(loss, x) within another tape.",
)
def backward_with_create_graph():
    tracked().sum().backward(create_graph=True)


@misuse(errors.FreedError, "sum at FILE:LINE (loss = (y * y).sum())" + FREED)
def second_backward():
    y = tracked()
    loss = (y * y).sum()
    loss.backward()
    loss.backward()


@misuse(errors.FreedError, "mul at FILE:LINE (shared = y * y)" + FREED)
def second_backward_through_a_shared_part():
    y = tracked()
    shared = y * y
    shared.sum().backward()
    shared.exp().sum().backward()


@misuse(
    errors.TapeConsumedError,
    "gradient: this tape was consumed by an earlier gradient(); use persistent=True to call it again, or give "
    "several targets in one call.",
)
def second_gradient_of_a_tape():
    tape, x, y = watched()
    tape.gradient(y, x)
    tape.gradient(y, x)


@misuse(
    errors.TapeConsumedError,
    "Tape: gradient() has consumed this tape; make a new one for each step, call reset(), or use persistent=True.",
)
def entering_a_consumed_tape():
    tape, x, y = watched()
    tape.gradient(y, x)
    with tape:
        pass


@misuse(errors.ClosedError, "gradient" + CLOSED)
def gradient_of_a_closed_tape():
    tape, x, y = watched()
    tape.close()
    tape.gradient(y, x)


@misuse(errors.ClosedError, "backward" + CLOSED)
def backward_of_a_closed_tape():
    tape, _, y = watched()
    tape.close()
    tape.backward(y)


@misuse(errors.ClosedError, "watch" + CLOSED)
def watching_on_a_closed_tape():
    tape = nt.GradientTape()
    tape.close()
    tape.watch(nt.ones(2))


@misuse(errors.ClosedError, "Tape" + CLOSED)
def entering_a_closed_tape():
    tape = nt.GradientTape()
    tape.close()
    with tape:
        pass


@misuse(errors.ClosedError, "mark" + CLOSED)
def marking_a_closed_tape():
    tape = nt.GradientTape()
    tape.close()
    tape.mark()


@misuse(errors.ClosedError, "reset" + CLOSED)
def resetting_a_closed_tape():
    tape = nt.GradientTape()
    tape.close()
    tape.reset()


@misuse(errors.ClosedError, "mul: the result of FILE:LINE (y = x * x) belongs to a tape" + CLEARED)
def gradient_after_reset():
    x = nt.ones(2, requires_grad=True)
    with nt.Tape() as tape:
        y = x * x
    tape.reset()
    tape.gradient(y, x)


@misuse(errors.ClosedError, "mul: the result of FILE:LINE (y = (x * x).sum()) belongs to a tape" + CLEARED)
def backward_of_what_a_closed_tape_recorded():
    x = nt.ones(2, requires_grad=True)
    with nt.Tape() as tape:
        y = (x * x).sum()
    tape.close()
    y.backward()


@misuse(errors.ClosedError, "mul: the result of FILE:LINE (y = (x * x).sum()) belongs to a tape" + CLEARED)
def backward_of_what_was_rewound():
    x = nt.ones(2, requires_grad=True)
    with nt.Tape() as tape:
        mark = tape.mark()
        y = (x * x).sum()
        tape.rewind(mark)
    y.backward()


@misuse(errors.ArgumentError, OLD_MARK)
def rewinding_to_the_mark_of_another_tape():
    nt.Tape().rewind(nt.Tape().mark())


@misuse(errors.ArgumentError, OLD_MARK)
def rewinding_to_a_mark_that_was_rewound():
    x = nt.ones(2)
    with nt.Tape() as tape:
        early = tape.mark()
        x * x
        late = tape.mark()
        tape.rewind(early)
        tape.rewind(late)


@misuse(errors.ArgumentError, OLD_MARK)
def rewinding_to_a_mark_before_reset():
    x = nt.ones(2)
    tape = nt.Tape()
    mark = tape.mark()
    tape.reset()
    with tape:
        y = (x * x).sum()
    tape.rewind(mark)
    tape.gradient(y, x)


@misuse(errors.OperandError, "rewind: wants what mark() returned, not int.")
def rewinding_to_a_number():
    nt.Tape().rewind(0)


@misuse(errors.ArgumentError, 'gradient: unconnected is \'zeros\'; it must be "none", "zero" or "error".')
def gradient_with_an_unknown_option():
    tape, x, y = watched()
    tape.gradient(y, x, unconnected="zeros")


@misuse(errors.OperandError, "gradient: targets must be a tensor or an iterable of tensors, but float was given.")
def gradient_of_a_number():
    tape, x, _ = watched()
    tape.gradient(3.0, x)


@misuse(errors.OperandError, "gradient: sources must be a tensor or an iterable of tensors, but ndarray was given.")
def gradient_by_an_array():
    tape, _, y = watched()
    tape.gradient(y, np.ones(2))


@misuse(errors.OperandError, "gradient: sources must be a tensor or an iterable of tensors, but str was given.")
def gradient_by_text():
    tape, _, y = watched()
    tape.gradient(y, "x")


@misuse(errors.OperandError, "gradient: sources must be a tensor or an iterable of tensors, but NoneType was given.")
def gradient_by_none():
    tape, x, y = watched()
    tape.gradient(y, [x, None])


@misuse(errors.ArgumentError, "gradient: there are no targets; give at least one tensor.")
def gradient_without_targets():
    tape, x, _ = watched()
    tape.gradient([], x)


@misuse(
    errors.ArgumentError,
    "gradient: 1 targets and 2 output_gradients were given; give one for each target, or None for ones.",
)
def gradient_with_too_many_output_gradients():
    tape, x, y = watched()
    tape.gradient([y], [x], output_gradients=[np.ones(2), np.ones(2)])


@misuse(errors.ShapeError, "gradient: the gradient given has shape (3,) and the tensor (2,); they must be equal.")
def gradient_with_output_gradients_of_another_shape():
    tape, x, y = watched()
    tape.gradient(y, x, output_gradients=nt.ones(3))


@misuse(errors.ShapeError, "gradient: the gradient given has shape (3,) and the tensor (2,); they must be equal.")
def gradient_with_an_array_as_output_gradient():
    tape, x, y = watched()
    tape.gradient(y, x, output_gradients=np.ones(3))


@misuse(errors.NotConnectedError, "gradient: the targets do not depend on w; was it watched before use?")
def gradient_of_an_unconnected_source():
    tape, _, y = watched()
    tape.gradient(y, nt.ones(2, name="w"), unconnected="error")


@misuse(
    errors.NotConnectedError,
    "gradient: the targets do not depend on tensor[2]: "
    + NOT_CONNECTED
    + " The last tensor that left the tape did so by float() at FILE:LINE (tape.gradient(nt.tensor(float(y.sum())), "
    'x, unconnected="error")).',
)
def gradient_of_an_unconnected_source_after_float():
    tape, x, y = watched()
    tape.gradient(nt.tensor(float(y.sum())), x, unconnected="error")


@misuse(
    errors.NotConnectedError,
    "gradient: the targets do not depend on tensor[2]: the tensor has dtype int64, which has no derivative; "
    "give one of floats that it came from.",
)
def gradient_of_integers():
    tape, x, y = watched()
    tape.gradient(y.argmax(), x, unconnected="error")


@misuse(errors.ArgumentError, 'backward: keep is \'everything\'; it must be "leaves" or "all".')
def tape_backward_with_an_unknown_option():
    tape, _, y = watched()
    tape.backward(y, keep="everything")


@misuse(errors.OperandError, "backward: wants the loss tensor itself, not float; call it with the tensor, not its id.")
def tape_backward_of_a_number():
    tape, _, _ = watched()
    tape.backward(3.0)


@misuse(errors.OperandError, "backward: wants the loss tensor itself, not list; call it with the tensor, not its id.")
def tape_backward_of_a_list():
    tape, _, y = watched()
    tape.backward([y, y])


@misuse(errors.NotConnectedError, "backward: " + NOT_CONNECTED)
def tape_backward_of_an_untracked_tensor():
    tape, _, _ = watched()
    tape.backward(nt.ones(2))


@misuse(errors.FreedError, "mul at FILE:LINE (return tape, x, x * x)" + FREED)
def tape_backward_twice():
    tape, _, y = watched()
    tape.backward(y)
    tape.backward(y)


@misuse(
    errors.OperandError, "backward_steps: wants the loss tensor itself, not float; call it with the tensor, not its id."
)
def backward_steps_of_a_number():
    tape, _, _ = watched()
    list(tape.backward_steps(3.0))


@misuse(errors.OperandError, "watch: wants tensors, not ndarray; make one with nt.tensor(...).")
def watching_an_array():
    nt.GradientTape().watch(np.ones(2))


@misuse(errors.OperandError, "watch: wants tensors, not float; make one with nt.tensor(...).")
def watching_a_number():
    nt.GradientTape().watch(x=3.0)


@misuse(errors.DtypeError, "watch: a tensor of int64 has no derivative; use astype(nt.float32).")
def watching_integers():
    nt.GradientTape().watch(nt.arange(3))


@misuse(errors.OperandError, "records: wants a tensor, not float.")
def records_of_a_number():
    nt.records(3.0)


@misuse(errors.OperandError, "summary: wants a tensor, not float.")
def summary_of_a_number():
    nt.summary(3.0)


@misuse(
    errors.OperandError,
    "compute_gradients: wants the loss tensor itself, not int; call it with the tensor, not its id.",
)
def compute_gradients_of_an_id():
    nt.compute_gradients(leaf().sum().id)


@misuse(errors.NotConnectedError, "compute_gradients: " + NOT_CONNECTED)
def compute_gradients_of_an_untracked_tensor():
    nt.compute_gradients(nt.ones(2))


@misuse(errors.ClosedError, "mul: the result of FILE:LINE (return leaf() * 2.0) belongs to context 0" + CLEARED)
def backward_after_clear_tape():
    y = tracked()
    nt.clear_tape()
    y.sum().backward()


@misuse(errors.ClosedError, "mul: the result of FILE:LINE (return leaf() * 2.0) belongs to context 0" + CLEARED)
def backward_after_clear_default_context_tape():
    y = tracked()
    loss = (y * y).sum()
    nt.clear_default_context_tape()
    loss.backward()


@misuse(errors.ClosedError, "mul: the result of FILE:LINE (y = x * 2.0) belongs to context N" + CLEARED)
def backward_across_a_closed_context():
    x = leaf()
    with nt.GradientContext():
        y = x * 2.0
    (y * 3.0).sum().backward()


@misuse(errors.ClosedError, "GradientContext: context N is closed; make a new one.")
def activating_a_closed_context():
    ctx = nt.GradientContext()
    ctx.close()
    ctx.activate()


@misuse(errors.ClosedError, "GradientContext: context N is closed; make a new one.")
def entering_a_closed_context():
    ctx = nt.GradientContext()
    ctx.close()
    with ctx:
        pass


@misuse(errors.ClosedError, "GradientContext: context 0, the default, cannot be closed; clear_tape() empties it.")
def closing_the_default_context():
    nt.default_context().close()


@misuse(
    errors.ClosedError,
    "GradientContext: the end of this block would close context 0, the default, which stays open; use `with "
    "nt.default_context().activate():`.",
)
def entering_the_default_context():
    with nt.default_context():
        pass


@misuse(
    errors.MissingGradientError,
    "Gradients: this tensor is an intermediate result, whose gradient is not kept; use tape.backward(loss, "
    'keep="all"), or tape.watch(tensor) before backward.',
)
def lookup_of_an_intermediate():
    tape, _, y = watched()
    tape.backward(y * 2.0)[y]


@misuse(
    errors.MissingGradientError,
    "Gradients: the loss does not depend on w, or it was not tracked then; get() gives None instead.",
)
def lookup_of_a_foreign_tensor():
    tape, _, y = watched()
    tape.backward(y)[nt.ones(2, name="w")]


@misuse(errors.OperandError, "Gradients: look up by the tensor itself, not by int.")
def lookup_of_a_number():
    tape, x, y = watched()
    tape.backward(y)[x.id]


@misuse(errors.OperandError, "Gradients: look up by the tensor itself, not by str.")
def lookup_by_name():
    tape, _, y = watched()
    tape.backward(y)["x"]


@misuse(errors.OperandError, "Gradients: look up by the tensor itself, not by int.")
def get_of_a_number():
    tape, x, y = watched()
    tape.backward(y).get(x.id)


@misuse(
    errors.GradientError,
    "retain_grad: the tensor is untracked, so no gradient will arrive; make it depend on a tensor with "
    "requires_grad=True.",
)
def retain_grad_of_an_untracked_tensor():
    nt.ones(2).retain_grad()


@misuse(
    errors.GradientError,
    "requires_grad: this tensor was computed from tracked ones, so it stays tracked; use detach().",
)
def requires_grad_off_for_a_result():
    tracked().requires_grad = False


@misuse(
    errors.GradientError,
    "deepcopy: this tensor was computed from tracked ones, and its history cannot be copied; deepcopy detach() of "
    "it, or use clone() to stay on the tape.",
)
def deepcopy_of_a_result():
    copy.deepcopy(tracked())


@misuse(
    errors.GradientError,
    "copy: this tensor was computed from tracked ones, and its history cannot be copied; copy detach() of it, or "
    "use clone() to stay on the tape.",
)
def copy_of_a_result():
    copy.copy(tracked())


@misuse(
    errors.GradientError,
    "pickle: this tensor was computed from tracked ones, and its history cannot be copied; pickle detach() of it, "
    "or use clone() to stay on the tape.",
)
def pickle_of_a_result():
    pickle.dumps(tracked())


@misuse(errors.ShapeError, "grad: the tensor has shape (2,) and the gradient (3,); they must be equal.")
def grad_of_another_shape():
    leaf().grad = nt.ones(3)


@misuse(errors.DtypeError, "grad: the tensor has dtype float32 and the gradient float64; use astype().")
def grad_of_another_dtype():
    leaf().grad = nt.ones(2, dtype="float64")


@misuse(errors.ShapeError, "grad: the tensor has shape (2,) and the gradient (3,); they must be equal.")
def grad_of_an_array_of_another_shape():
    leaf().grad = np.ones(3)


@misuse(errors.OperandError, "grad: a gradient is a tensor, an array of real numbers or None, not str (<U4).")
def grad_set_to_text():
    leaf().grad = "text"


@misuse(errors.OperandError, "grad: a gradient is a tensor, an array of real numbers or None, not list (complex128).")
def grad_set_to_complex_numbers():
    leaf().grad = [1j, 1j]


@misuse(
    errors.OperandError,
    "no_grad: takes no arguments, but float was given; write `with nt.no_grad():` or `@nt.no_grad()`, with "
    "parentheses.",
)
def decorating_nothing_with_no_grad():
    nt.no_grad(3.0)


@misuse(errors.OperandError, "no_grad: decorates functions, not Tensor; for a block, write `with nt.no_grad(...):`.")
def no_grad_around_a_tensor():
    nt.no_grad()(nt.ones(2))


@misuse(
    errors.OperandError,
    "no_grad: takes no arguments, but function was given; write `with nt.no_grad():` or `@nt.no_grad()`, with "
    "parentheses.",
)
def no_grad_without_parentheses():
    @nt.no_grad
    def function():
        pass


@misuse(errors.OperandError, "set_grad_enabled: mode is 'off'; it must be True or False.")
def set_grad_enabled_of_text():
    nt.set_grad_enabled("off")


# In-place writes.


@misuse(errors.LeafWriteError, "sub" + LEAF_WRITE)
def writing_to_a_leaf():
    x = leaf()
    x -= 0.1


@misuse(errors.LeafWriteError, "setitem" + LEAF_WRITE)
def storing_in_a_leaf():
    leaf()[0] = 1.0


@misuse(errors.LeafWriteError, "exp" + LEAF_WRITE)
def out_that_is_a_leaf():
    nt.exp(nt.ones(2), out=leaf())


@misuse(errors.LeafWriteError, "mul" + LEAF_WRITE)
def writing_to_a_watched_tensor():
    tape = nt.GradientTape()
    x = tape.watch(nt.ones(2))
    x *= 2.0


@misuse(
    errors.LeafWriteError,
    "add: a view of a leaf that requires a gradient or is watched cannot be written in place while gradients are "
    "recorded; use `with nt.no_grad():` for an update, or compute a new tensor.",
)
def writing_to_a_view_of_a_leaf():
    x = leaf()
    view = x[:1]
    view += 1.0


@misuse(
    errors.OverwrittenError,
    "mul: the derivative needs the value of 'b', saved at FILE:LINE (z = y * y), but it was overwritten in place at"
    " FILE:LINE (y += 1.0)" + OVERWRITTEN,
)
def overwriting_a_saved_value():
    y = nt.exp(leaf())
    z = y * y
    y += 1.0
    z.sum().backward()


@misuse(
    errors.OverwrittenError,
    "sum: this tensor was computed at FILE:LINE (z = nt.exp(leaf())) and its memory was overwritten without being "
    "recorded at FILE:LINE (z += 1.0); its history no longer tells its contents. Write outside of no_grad, or clone() "
    "before the write.",
)
def overwriting_a_saved_result():
    z = nt.exp(leaf())
    with nt.no_grad():
        z += 1.0
    z.sum().backward()


@misuse(
    errors.OverwrittenError,
    "mul: the derivative needs the value of 'b', saved at FILE:LINE (loss = (x * x).sum()), but it was overwritten "
    "in place at FILE:LINE (x -= 0.1)" + OVERWRITTEN,
)
def overwriting_a_leaf_between_forward_and_backward():
    x = leaf()
    loss = (x * x).sum()
    with nt.no_grad():
        x -= 0.1
    loss.backward()


@misuse(
    errors.OverwrittenError,
    "mul: the derivative needs the value of 'b', saved at FILE:LINE (loss = (leaf() * c).sum()), but it was "
    "overwritten in place at FILE:LINE (c += 1.0)" + OVERWRITTEN,
)
def overwriting_a_constant_between_forward_and_backward():
    c = nt.ones(2)
    loss = (leaf() * c).sum()
    c += 1.0
    loss.backward()


@misuse(
    errors.OverwrittenError,
    "mul: this tensor was computed at FILE:LINE (view = y[:1]) and its memory was overwritten through another view "
    "at FILE:LINE (y += 1.0)" + STALE,
)
def using_a_stale_view():
    y = tracked()
    view = y[:1]
    y += 1.0
    view * 2.0


@misuse(
    errors.OverwrittenError,
    "mul: this tensor was computed at FILE:LINE (return leaf() * 2.0) and its memory was overwritten through "
    "another view at FILE:LINE (view += 1.0)" + STALE,
)
def using_a_stale_base():
    y = tracked()
    view = y[:1]
    view += 1.0
    y * 2.0


@misuse(errors.OverwrittenError, "add: the tensor's memory is read-only; use clone() to get memory of its own.")
def writing_to_read_only_memory():
    x = nt.from_numpy(np.broadcast_to(1.0, (2,)))
    x += 1.0


@misuse(errors.OverwrittenError, "setitem: the tensor's memory is read-only; use clone() to get memory of its own.")
def storing_in_read_only_memory():
    array = np.ones(2)
    array.flags.writeable = False
    nt.from_numpy(array)[0] = 2.0


@misuse(errors.ShapeError, "mul: the result has shape (2,) and the tensor to write (3,).")
def mul_into_another_shape():
    nt.ones(2).mul_into(2.0, nt.ones(3))


@misuse(errors.OperandError, "mul" + OUT_IS_ARRAY)
def mul_into_an_array():
    leaf().mul_into(2.0, np.ones(2, np.float32))


# Axes, indices, arguments.


@misuse(errors.AxisError, "sum: axis 2 is out of bounds for array of dimension 2; x has shape (2, 3).")
def axis_out_of_bounds():
    nt.ones(2, 3).sum(axis=2)


@misuse(errors.AxisError, "softmax: axis 2 is out of bounds for array of dimension 2; x has shape (2, 3).")
def axis_out_of_bounds_of_softmax():
    nt.softmax(nt.ones(2, 3), axis=2)


@misuse(errors.AxisError, "concat: axis 1 is out of bounds for array of dimension 1; x has shape (2,).")
def axis_out_of_bounds_of_concat():
    nt.concat([nt.ones(2), nt.ones(2)], axis=1)


@misuse(errors.AxisError, "stack: axis 3 is out of bounds for array of dimension 2; x has shape (2,).")
def axis_out_of_bounds_of_stack():
    nt.stack([nt.ones(2), nt.ones(2)], axis=3)


@misuse(errors.ArgumentError, "sum: duplicate value in 'axis' (x has shape (2, 3)).")
def axis_given_twice():
    nt.ones(2, 3).sum(axis=(0, 0))


@misuse(errors.OperandError, "sum: axis is 'rows'; an axis is an integer, or a tuple of integers.")
def axis_as_text():
    nt.ones(2, 3).sum(axis="rows")


@misuse(errors.OperandError, "sum: axis is 0.5; an axis is an integer, or a tuple of integers.")
def axis_as_a_float():
    nt.ones(2, 3).sum(axis=0.5)


@misuse(errors.OperandError, "sum: there is no argument 'axes'; the arguments are x, axis, keepdims.")
def axes_instead_of_axis():
    nt.ones(2, 3).sum(axes=0)


@misuse(errors.OperandError, "sum: argument 'axis' was given twice, the second time as 'dim'.")
def dim_and_axis():
    nt.ones(2, 3).sum(axis=0, dim=1)


@misuse(
    errors.OperandError, "mse_loss: there is no argument 'reduce'; the arguments are prediction, target, reduction."
)
def unknown_keyword_of_a_composed_function():
    nt.mse_loss(nt.ones(2), nt.ones(2), reduce="mean")


@misuse(errors.OperandError, "softmax: there is no argument 'foo'; the arguments are x, axis.")
def unknown_keyword_of_softmax():
    nt.softmax(nt.ones(2), dims=0, foo=1)


@misuse(errors.OperandError, "sum: 4 arguments too many by position, which takes x, axis, keepdims.")
def too_many_arguments():
    nt.ones(2).sum(0, False, 3, 4, 5, 6)


@misuse(errors.OperandError, "matmul: operand 'b' is missing; the operands are a, b.")
def missing_operand_of_matmul():
    nt.matmul(nt.ones(2, 2))


@misuse(
    errors.OperandError,
    "an operand, [[1.0, 2.0], [3.0]], makes no array (setting an array element with a sequence. The requested array "
    "has an inhomogeneous shape after 1 dimensions. The detected shape was (2,) + inhomogeneous part.).",
)
def rows_of_different_lengths():
    nt.dot(nt.ones(2), [[1.0, 2.0], [3.0]])


@misuse(
    errors.OperandError,
    "grad: argument 0 is an integer that no float64 holds (int too large to convert to float).",
)
def integer_beyond_floats():
    nt.grad(lambda x: x * x)(10**400)


@misuse(
    errors.ArgumentError,
    "checkpoint_loop: until is 5; it must be a function of the state. A number of steps is n.",
)
def number_for_until():
    nt.checkpoint_loop(lambda s: s, nt.ones(2), until=5)


@misuse(errors.ArgumentError, "mse_loss: reduction is 'avg'; it must be 'mean', 'sum' or 'none'.")
def unknown_reduction():
    nt.mse_loss(nt.ones(2), nt.ones(2), reduction="avg")


@misuse(errors.ArgumentError, "pad: mode is 'mirror'; the modes are constant, reflect, symmetric, edge, wrap.")
def unknown_mode_of_pad():
    nt.pad(nt.ones(2), 1, mode="mirror")


@misuse(errors.ArgumentError, "pad: pad_width is -1; widths are integers from 0 on.")
def negative_pad_width():
    nt.pad(nt.ones(2), -1)


@misuse(errors.ArgumentError, "dropout: p is 1.5; a probability lies between 0 and 1.")
def dropout_with_a_probability_above_one():
    nt.dropout(nt.ones(2), p=1.5)


@misuse(errors.OperandError, "dropout: rng must be an nt.Generator, an integer seed or None, not Generator.")
def dropout_with_a_numpy_generator():
    nt.dropout(nt.ones(2), p=0.5, rng=np.random.default_rng(0))


@misuse(errors.OperandError, "rand: rng must be an nt.Generator, an integer seed or None, not Generator.")
def rand_with_a_numpy_generator():
    nt.rand(2, rng=np.random.default_rng(0))


@misuse(errors.OperandError, "rand: rng must be an nt.Generator, an integer seed or None, not float.")
def rand_with_a_float_rng():
    nt.rand(2, rng=0.5)


@misuse(errors.OperandError, "rand: rng must be an nt.Generator, an integer seed or None, not bool.")
def rand_with_a_bool_rng():
    nt.rand(2, rng=True)


@misuse(errors.ArgumentError, "seed: the seed is 0.5; seeds are integers.")
def float_seed():
    nt.seed(0.5)


@misuse(errors.ArgumentError, "seed: the seed is True; seeds are integers.")
def bool_seed():
    nt.seed(True)


@misuse(errors.ArgumentError, "Generator: the seed is 'seed'; seeds are integers.")
def seed_of_text():
    nt.Generator("seed")


@misuse(errors.ArgumentError, "Generator: the seed has 301 bits; seeds have 255 at most.")
def seed_that_is_too_large():
    nt.Generator(2**300)


@misuse(errors.ArgumentError, "rand: the seed has 301 bits; seeds have 255 at most.")
def rng_that_is_too_large():
    nt.rand(2, rng=2**300)


@misuse(errors.ArgumentError, "Generator.split: n is -1; it is the number of streams to make.")
def split_into_a_negative_number_of_streams():
    nt.Generator(0).split(-1)


@misuse(errors.ArgumentError, "Generator.split: n is 1.5; it is the number of streams to make.")
def split_into_a_float_number_of_streams():
    nt.Generator(0).split(1.5)


@misuse(
    errors.ArgumentError,
    "Generator.load_state_dict: wants a dict with 'key' and 'counter', as state_dict() gives, not ['state'].",
)
def state_of_another_kind():
    nt.Generator(0).load_state_dict({"state": 1})


@misuse(errors.ArgumentError, "Generator.load_state_dict: 'counter' is 'many'; it must be an integer.")
def state_with_a_text_counter():
    nt.Generator(0).load_state_dict({"key": 1, "counter": "many"})


@misuse(
    errors.ArgumentError,
    "Generator.load_state_dict: wants a dict with 'key' and 'counter', as state_dict() gives, not int.",
)
def state_that_is_no_dict():
    nt.Generator(0).load_state_dict(3)


@misuse(
    errors.ArgumentError, "topk: k is 4 and axis -1 has length 3; k lies between 0 and the length (x has shape (3,))."
)
def topk_with_a_large_k():
    nt.topk(nt.ones(3), 4)


@misuse(errors.ArgumentError, "huber_loss: delta is -1.0; it must be positive.")
def huber_loss_with_a_negative_delta():
    nt.huber_loss(nt.ones(2), nt.ones(2), delta=-1.0)


# Numbers, containers, indices.


@misuse(errors.ShapeError, "item(): the tensor has shape (3,); only one element makes a number" + MANY)
def item_of_many_elements():
    nt.ones(3).item()


@misuse(errors.ShapeError, "float(): the tensor has shape (3,); only one element makes a number" + MANY)
def float_of_many_elements():
    float(nt.ones(3))


@misuse(errors.ShapeError, "int(): the tensor has shape (3,); only one element makes a number" + MANY)
def int_of_many_elements():
    int(nt.ones(3))


@misuse(errors.ShapeError, "bool(): the tensor has shape (3,); use any() or all() for all but one element.")
def bool_of_many_elements():
    bool(nt.ones(3) > 0)


@misuse(errors.ShapeError, "bool(): the tensor has shape (0,); use any() or all() for all but one element.")
def bool_of_no_elements():
    bool(nt.zeros(0))


@misuse(errors.ShapeError, "bool(): the tensor has shape (3,); use any() or all() for all but one element.")
def condition_on_many_elements():
    if nt.ones(3) == nt.ones(3):
        pass


@misuse(errors.OperandError, "len(): a tensor without axes has no length; size is 1, and item() gives the number.")
def len_of_a_number():
    len(nt.tensor(1.0))


@misuse(errors.OperandError, "iteration: a tensor without axes has no elements to go through; use item().")
def iterating_over_a_number():
    list(nt.tensor(1.0))


@misuse(errors.OperandError, "iteration: a tensor without axes has no elements to go through; use item().")
def unpacking_a_number():
    _, _ = nt.tensor(1.0)


@misuse(
    errors.OperandError,
    "index: only integer tensors of one element stand for an integer, not float32 of shape (); use int().",
)
def float_as_an_index_of_a_list():
    [1, 2][nt.tensor(1.0)]


@misuse(
    errors.OperandError,
    "index: only integer tensors of one element stand for an integer, not float32 of shape (); use int().",
)
def range_of_a_float_tensor():
    range(nt.tensor(2.0))


@misuse(errors.ShapeError, "format: the tensor has shape (2,) and the format is '.3f', which is for one number" + MANY)
def formatting_many_elements():
    return f"{nt.ones(2):.3f}"


@misuse(errors.IndexingError, "getitem: x has shape (3,); index 5 is out of bounds for axis 0 with size 3.")
def index_out_of_range():
    nt.ones(3)[5]


@misuse(
    errors.IndexingError,
    "getitem: x has shape (3,); too many indices for array: array is 1-dimensional, but 2 were indexed.",
)
def too_many_indices():
    nt.ones(3)[0, 0]


@misuse(errors.IndexingError, "getitem: an index has dtype float64" + INDICES)
def float_index():
    nt.ones(3)[1.0]


@misuse(errors.IndexingError, "getitem: an index has dtype float32" + INDICES)
def float_tensor_index():
    nt.ones(3)[nt.tensor([0.0, 1.0])]


@misuse(errors.IndexingError, "getitem: a slice bound is 0.5; bounds are integers.")
def float_slice_bound():
    nt.ones(3)[0.5:2]


@misuse(errors.IndexingError, "getitem: an index has dtype <U1" + INDICES)
def text_index():
    nt.ones(3)["a"]


@misuse(errors.IndexingError, "getitem: an index is [[0], [0, 1]], which makes no array" + INDICES)
def ragged_index():
    nt.ones(3)[[[0], [0, 1]]]


@misuse(errors.ArgumentError, "getitem: slice step cannot be zero (x has shape (3,)).")
def slice_step_zero():
    nt.ones(3)[::0]


@misuse(errors.IndexingError, "getitem: x has shape (3,); index 7 is out of bounds for axis 0 with size 3.")
def index_out_of_range_of_a_list():
    nt.ones(3)[[0, 7]]


@misuse(errors.IndexingError, "setitem: x has shape (3,); index 5 is out of bounds for axis 0 with size 3.")
def storing_out_of_range():
    nt.ones(3)[5] = 1.0


@misuse(errors.IndexingError, "setitem: an index has dtype float64" + INDICES)
def storing_by_a_float_index():
    nt.ones(3)[1.0] = 1.0


@misuse(errors.IndexingError, "take: index 7 is out of bounds for axis 0 with size 3; x has shape (3,).")
def take_out_of_range():
    nt.take(nt.ones(3), [7])


@misuse(errors.IndexingError, "gather: index 7 is out of bounds for axis 0 with size 3; x has shape (3,).")
def gather_out_of_range():
    nt.gather(nt.ones(3), 0, nt.tensor([7]))


# Operands and constructors.


@misuse(errors.OperandError, "add: operand 'b' is None; it must be a tensor, an array or a number.")
def none_as_an_operand():
    nt.add(nt.ones(2), None)


@misuse(errors.OperandError, "exp: operand 'x' is None; it must be a tensor, an array or a number.")
def none_to_a_function():
    nt.exp(None)


@misuse(errors.OperandError, "sum: operand 'x' is None; it must be a tensor, an array or a number.")
def none_to_a_reduction():
    nt.sum(None)


@misuse(errors.OperandError, "mul: operand 'b' is of type str; it must be a tensor, an array or a number.")
def text_as_an_operand():
    nt.mul(nt.ones(2), "2")


@misuse(errors.OperandError, "exp: operand 'x' is of type str; it must be a tensor, an array or a number.")
def text_to_a_function():
    nt.exp("text")


@misuse(errors.OperandError, "add: operand 'b' is of type object; it must be a tensor, an array or a number.")
def object_as_an_operand():
    nt.add(nt.ones(2), object())


@misuse(errors.OperandError, "add: operand 'b' is of type dict; it must be a tensor, an array or a number.")
def dict_as_an_operand():
    nt.add(nt.ones(2), {"a": 1})


@misuse(errors.OperandError, "less: operand 'b' is of type str; it must be a tensor, an array or a number.")
def comparing_with_text():
    return nt.less(nt.ones(2), "a")


@misuse(errors.OperandError, "matmul: operand 'b' is of type str; it must be a tensor, an array or a number.")
def matmul_with_text():
    nt.matmul(nt.ones(2), "a")


@misuse(errors.OperandError, "sum: operand 'x' is of type str; it must be a tensor, an array or a number.")
def sum_of_text():
    nt.sum("text")


@misuse(
    errors.OperandError,
    "tensor: the data, of type list, does not make an array; nested lists must hold numbers and have equal lengths "
    "at each depth.",
)
def tensor_of_ragged_data():
    nt.tensor([[1.0], [1.0, 2.0]])


@misuse(
    errors.ShapeError, "stack: arrays[1] has shape (3,) and arrays[0] has shape (2,); all must have the same shape."
)
def tensor_of_ragged_tensors():
    nt.tensor([nt.ones(2), nt.ones(3)])


@misuse(errors.OperandError, "tensor: data of type str makes an array of <U4" + NO_NUMBERS)
def tensor_of_text():
    nt.tensor("text")


@misuse(errors.OperandError, "tensor: data of type NoneType makes an array of object" + NO_NUMBERS)
def tensor_of_none():
    nt.tensor(None)


@misuse(errors.OperandError, "tensor: data of type generator makes an array of object" + NO_NUMBERS)
def tensor_of_a_generator():
    nt.tensor(i for i in range(3))


@misuse(errors.OperandError, "tensor: data of type dict makes an array of object" + NO_NUMBERS)
def tensor_of_a_dict():
    nt.tensor({"a": 1})


@misuse(errors.DtypeError, "requires_grad: a tensor of int64" + NO_DERIVATIVE)
def tensor_of_an_array_with_requires_grad():
    nt.tensor(np.arange(3), requires_grad=True)


@misuse(errors.DtypeError, "requires_grad: a tensor of int64" + NO_DERIVATIVE)
def tensor_of_tracked_integers():
    nt.tensor([nt.tensor(1), nt.tensor(2)], requires_grad=True)


@misuse(errors.OperandError, "name: the name of a tensor is text, not int.")
def name_that_is_no_text():
    nt.tensor([1.0], name=3)


@misuse(errors.UnknownNameError, "numtape: there is no 'sotfmax'. Did you mean nt.softmax?")
def unknown_name():
    return nt.sotfmax


@misuse(
    errors.UnknownNameError,
    "numtape: there is no 'asarray'. Did you mean nt.tensor, which copies, or nt.from_numpy, which does not?",
)
def name_of_another_library():
    return nt.asarray


@misuse(errors.UnknownNameError, "numtape: there is no 'device'. There is one device, the string \"cpu\".")
def devices_as_objects():
    return nt.device("cpu")


@misuse(errors.UnknownNameError, "numtape: there is no 'qqqqqqqq'.")
def unknown_name_without_a_near_one():
    return nt.qqqqqqqq


@misuse(
    errors.OperandError,
    "zeros: the shape is ((2,), 'float32'); give integers or one tuple of them, and dtype by keyword.",
)
def zeros_with_shape_and_dtype_by_position():
    nt.zeros((2,), "float32")


@misuse(errors.OperandError, "zeros_like: data of type str makes an array of <U4" + NO_NUMBERS)
def zeros_like_of_text():
    nt.zeros_like("text")


@misuse(errors.OperandError, "zeros_like: data of type NoneType makes an array of object" + NO_NUMBERS)
def zeros_like_of_none():
    nt.zeros_like(None)


# Trees.


@misuse(errors.ArgumentError, "tree.map: the trees have 2, 1 leaves; they must have the same structure.")
def tree_map_over_trees_of_different_sizes():
    nt.tree.map(lambda a, b: a, [1, 2], [1])


@misuse(errors.ArgumentError, "tree.unflatten: fewer leaves were given than the tree has.")
def unflatten_with_too_few_leaves():
    nt.tree.unflatten([1, 2], [1])


@misuse(errors.ArgumentError, "tree.unflatten: more leaves were given than the tree has.")
def unflatten_with_too_many_leaves():
    nt.tree.unflatten([1, 2], [1, 2, 3])


@misuse(
    errors.NotDifferentiableError,
    "where: argument 'condition' has no derivative, but a tracked tensor was given; pass condition.detach() if its "
    "gradient is not wanted.",
)
def where_with_a_tracked_condition():
    nt.where(leaf(), 1.0, leaf())


@misuse(errors.OperandError, "tree.register: cls is 3; it must be a class.")
def registering_what_is_no_class():
    nt.tree.register(3, lambda t: t, lambda t, new: t)


# Missing parts.


@misuse(errors.MissingExtraError, "digamma: needs SciPy; pip install numtape[scipy]")
def digamma_without_scipy():
    with without_scipy():
        nt.digamma(nt.ones(2))


@misuse(errors.MissingExtraError, "lgamma: needs SciPy; pip install numtape[scipy]")
def lgamma_without_scipy():
    with without_scipy():
        nt.lgamma(nt.ones(2))


@misuse(errors.OperandError, "check_gradients: no argument is a float tensor, array or number.")
def check_gradients_of_nothing():
    nt.check_gradients(lambda: 1.0)


def plain(message):
    """Return a message without what differs from run to run: paths, lines and the numbers of contexts."""
    message = re.sub(r"\S+test_misuse\.py:\d+", "FILE:LINE", message)
    return re.sub(r"context [1-9]\d*", "context N", message)


@pytest.mark.parametrize(("function", "error", "message"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_misuse_raises(function, error, message):
    with pytest.raises(error) as caught:
        function()
    assert type(caught.value) is error
    assert plain(str(caught.value)) == message


def test_there_are_cases_for_every_error_class():
    raised = {error for _, _, error, _ in CASES}
    defined = {c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.NumtapeError)}
    # Saved files, streamed functions and memory budgets have tests of their own.
    elsewhere = {
        errors.SavedFileError,
        errors.DamagedFileError,
        errors.StreamedError,
        errors.MemoryBudgetError,
        errors.NonFiniteError,
        errors.DeterminismError,
        errors.PatternError,
        errors.ConvergenceError,
    }
    assert defined - raised - elsewhere == {errors.NumtapeError}


def test_names_of_cases_differ():
    assert len({name for name, *_ in CASES}) == len(CASES)


@pytest.mark.parametrize(
    "function",
    [
        lambda: nt.exp(nt.ones(2), axis=0),
        lambda: nt.add(nt.ones(2), nt.ones(2), alpha=2.0),
        lambda: nt.add(nt.ones(2)),
        lambda: nt.exp(),
        lambda: nt.tensor([1.0], requires_gradient=True),
        lambda: nt.zeros(2, pin_memory=True),
        lambda: nt.full((2,)),
        lambda: nt.seed(),
    ],
)
def test_arguments_that_a_signature_does_not_have_raise(function):
    with pytest.raises(TypeError, match="argument"):
        function()


def test_attributes_of_tensors_cannot_be_made_up():
    x = nt.ones(2)
    for name in ("gradient", "datum", "shape"):
        with pytest.raises(AttributeError, match=name):
            setattr(x, name, nt.ones(2))


def test_array_of_a_tensor_is_read_only():
    with pytest.raises(ValueError, match="read-only"):
        nt.ones(2).numpy()[0] = 2.0


def test_a_constant_function_has_a_zero_gradient():
    assert nt.grad(lambda x: 3.0)(2.0) == 0.0
    assert nt.grad(lambda x: nt.tensor(3.0) if x.item() > 1.0 else x * x)(2.0) == 0.0


def test_a_tensor_of_a_tracked_tensor_stays_on_the_tape():
    x = leaf()
    nt.tensor(x * 3.0, name="copy").sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert nt.tensor(x.detach(), requires_grad=True).is_leaf


def test_an_error_leaves_a_consumed_tape_usable_after_reset():
    tape, x, y = watched()
    tape.gradient(y, x)
    with pytest.raises(errors.TapeConsumedError):
        tape.gradient(y, x)
    tape.reset()
    tape.watch(x)
    assert tape.gradient(x * x, x).tolist() == [2.0, 2.0]


def test_an_array_is_one_output_gradient():
    tape, x, y = watched()
    assert tape.gradient(y, x, output_gradients=np.array([1.0, 10.0])).tolist() == [2.0, 20.0]
