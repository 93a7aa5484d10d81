"""Tensor: an array that remembers how it was computed. One line per operator, naming its op."""

from typing import Any

from . import ops, protocols
from .conversion_members import ConversionMembers
from .core.declare import runner
from .core.faces import is_operand, operator
from .core.inplace import write_op
from .core.value import is_element
from .errors import MissingAxesError, ShapeError
from .ops.indexing import setitem
from .tensor_members import Members
from .writing_members import WritingMembers, scaled


def _operator(face: Any) -> Any:
    return operator(face.op)


def _swapped(face: Any) -> Any:
    return operator(face.op, is_swapped=True)


def _in_place(face: Any) -> Any:
    """Return an augmented assignment that writes an op's result into its first operand; elements are made anew."""

    def method(self: Any, other: Any) -> Any:
        if not is_operand(other):
            return NotImplemented
        return face(self, other) if is_element(self) else write_op(self, face.op, (self, other))

    return method


def _divmod(self: Any, other: Any) -> Any:
    """Return ``self // other`` and ``self % other``."""
    return (self // other, self % other) if is_operand(other) else NotImplemented


def _swapped_divmod(self: Any, other: Any) -> Any:
    return (other // self, other % self) if is_operand(other) else NotImplemented


_square = runner(ops.square)


def _power(self: Any, exponent: Any, modulus: None = None) -> Any:
    """Return ``self ** exponent``; squares are an op of their own, since they are common and cheaper."""
    if modulus is not None:
        return NotImplemented
    if type(exponent) is int and exponent == 2:
        return _square(self, None)
    return ops.pow(self, exponent) if is_operand(exponent) else NotImplemented


class Tensor(Members, WritingMembers, ConversionMembers):
    """An n-dimensional array of numbers whose ops can be recorded and differentiated.

    Made by `nt.tensor`, `nt.zeros` and the like, or by ops on tensors. It hashes by identity and compares
    elementwise. NumPy's functions accept it and record.
    """

    __slots__ = ()
    # NumPy's operators defer to ours.
    __array_priority__ = 1000

    # What NumPy calls.
    __array__ = protocols.array
    __array_ufunc__ = protocols.array_ufunc
    __array_function__ = protocols.array_function

    # Operators.
    __hash__ = object.__hash__
    __pos__ = ops.positive
    __neg__ = ops.neg
    __abs__ = ops.abs
    __add__ = _operator(ops.add)
    __radd__ = _swapped(ops.add)
    __iadd__ = _in_place(ops.add)
    __sub__ = _operator(ops.sub)
    __rsub__ = _swapped(ops.sub)
    __isub__ = _in_place(ops.sub)
    __mul__ = _operator(ops.mul)
    __rmul__ = _swapped(ops.mul)
    __imul__ = _in_place(ops.mul)
    __truediv__ = _operator(ops.div)
    __rtruediv__ = _swapped(ops.div)
    __itruediv__ = _in_place(ops.div)
    __floordiv__ = _operator(ops.floor_divide)
    __rfloordiv__ = _swapped(ops.floor_divide)
    __ifloordiv__ = _in_place(ops.floor_divide)
    __mod__ = _operator(ops.remainder)
    __rmod__ = _swapped(ops.remainder)
    __imod__ = _in_place(ops.remainder)
    __divmod__ = _divmod
    __rdivmod__ = _swapped_divmod
    __pow__ = _power
    __rpow__ = _swapped(ops.pow)
    __ipow__ = _in_place(ops.pow)
    __matmul__ = _operator(ops.matmul)
    __rmatmul__ = _swapped(ops.matmul)
    __imatmul__ = _in_place(ops.matmul)
    __eq__ = _operator(ops.equal)
    __ne__ = _operator(ops.not_equal)
    __lt__ = _operator(ops.less)
    __le__ = _operator(ops.less_equal)
    __gt__ = _operator(ops.greater)
    __ge__ = _operator(ops.greater_equal)
    __and__ = _operator(ops.bitwise_and)
    __rand__ = _swapped(ops.bitwise_and)
    __iand__ = _in_place(ops.bitwise_and)
    __or__ = _operator(ops.bitwise_or)
    __ror__ = _swapped(ops.bitwise_or)
    __ior__ = _in_place(ops.bitwise_or)
    __xor__ = _operator(ops.bitwise_xor)
    __rxor__ = _swapped(ops.bitwise_xor)
    __ixor__ = _in_place(ops.bitwise_xor)
    __invert__ = ops.bitwise_not
    __round__ = ops.round
    __getitem__ = ops.getitem
    __setitem__ = setitem

    # Ops as methods.
    mul = ops.mul
    div = ops.div
    neg = ops.neg
    pow = ops.pow
    abs = ops.abs
    sign = ops.sign
    square = ops.square
    sqrt = ops.sqrt
    rsqrt = ops.rsqrt
    reciprocal = ops.reciprocal
    maximum = ops.maximum
    minimum = ops.minimum
    clip = clamp = ops.clip
    floor = ops.floor
    ceil = ops.ceil
    round = ops.round
    trunc = fix = ops.trunc
    exp = ops.exp
    expm1 = ops.expm1
    log = ops.log
    log2 = ops.log2
    log10 = ops.log10
    log1p = ops.log1p
    sigmoid = ops.sigmoid
    sin = ops.sin
    cos = ops.cos
    tan = ops.tan
    sinh = ops.sinh
    cosh = ops.cosh
    tanh = ops.tanh
    eq = ops.equal
    ne = ops.not_equal
    lt = ops.less
    le = ops.less_equal
    gt = ops.greater
    ge = ops.greater_equal
    isnan = ops.isnan
    isinf = ops.isinf
    isfinite = ops.isfinite
    matmul = mm = ops.matmul
    dot = ops.dot
    outer = ger = ops.outer
    sum = ops.sum
    mean = ops.mean
    prod = ops.prod
    max = amax = ops.max
    min = amin = ops.min
    var = ops.var
    std = ops.std
    logsumexp = ops.logsumexp
    any = ops.any
    all = ops.all
    argmax = ops.argmax
    argmin = ops.argmin
    norm = ops.norm
    cumsum = ops.cumsum
    cumprod = ops.cumprod
    argsort = ops.argsort
    sort = ops.sort
    topk = ops.topk
    median = ops.median
    nonzero = ops.nonzero
    reshape = ops.reshape
    view = ops.view
    flatten = ops.flatten
    ravel = ops.ravel
    transpose = ops.transpose
    permute = ops.permute
    moveaxis = ops.moveaxis
    swapaxes = ops.swapaxes
    squeeze = ops.squeeze
    unsqueeze = ops.unsqueeze
    broadcast_to = ops.broadcast_to
    expand = ops.expand
    flip = ops.flip
    roll = ops.roll
    repeat = ops.repeat
    tile = ops.tile
    split = ops.split
    chunk = ops.chunk
    unbind = ops.unbind
    diagonal = ops.diagonal
    tril = ops.tril
    triu = ops.triu
    trace = ops.trace
    take = ops.take
    gather = ops.gather
    scatter = ops.scatter
    scatter_add = ops.scatter_add
    index_select = ops.index_select
    masked_fill = ops.masked_fill
    nan_to_num = ops.nan_to_num
    inverse = ops.inv
    det = ops.det
    relu = ops.relu
    softmax = ops.softmax
    log_softmax = ops.log_softmax
    acos = arccos = ops.acos
    acosh = arccosh = ops.acosh
    addmm = ops.addmm
    allclose = ops.allclose
    asin = arcsin = ops.asin
    asinh = arcsinh = ops.asinh
    atan = arctan = ops.atan
    atan2 = arctan2 = ops.atan2
    atanh = arctanh = ops.atanh
    bitwise_and = ops.bitwise_and
    bitwise_not = ops.bitwise_not
    bitwise_or = ops.bitwise_or
    bitwise_xor = ops.bitwise_xor
    cbrt = ops.cbrt
    cholesky = ops.cholesky
    count_nonzero = ops.count_nonzero
    cross = ops.cross
    deg2rad = ops.deg2rad
    diag = ops.diag
    diff = ops.diff
    digamma = ops.digamma
    erf = ops.erf
    erfc = ops.erfc
    erfinv = ops.erfinv
    exp2 = ops.exp2
    fliplr = ops.fliplr
    flipud = ops.flipud
    floor_divide = ops.floor_divide
    fmod = ops.fmod
    hardshrink = ops.hardshrink
    hypot = ops.hypot
    inner = ops.inner
    isclose = ops.isclose
    kron = ops.kron
    lgamma = ops.lgamma
    logaddexp = ops.logaddexp
    logaddexp2 = ops.logaddexp2
    logical_and = ops.logical_and
    logical_not = ops.logical_not
    logical_or = ops.logical_or
    logical_xor = ops.logical_xor
    logit = ops.logit
    matrix_power = ops.matrix_power
    nanmean = ops.nanmean
    nansum = ops.nansum
    positive = ops.positive
    prelu = ops.prelu
    qr = ops.qr
    quantile = ops.quantile
    rad2deg = ops.rad2deg
    remainder = ops.remainder
    searchsorted = ops.searchsorted
    sinc = ops.sinc
    slogdet = ops.slogdet
    svd = ops.svd
    unique = ops.unique
    vdot = ops.vdot
    vecdot = ops.vecdot
    xlogy = ops.xlogy
    multiply = ops.mul
    divide = true_divide = ops.div
    negative = ops.neg
    absolute = ops.abs
    equal = ops.equal
    greater = ops.greater
    greater_equal = ops.greater_equal
    less = ops.less
    less_equal = ops.less_equal
    not_equal = ops.not_equal
    movedim = ops.moveaxis
    swapdims = ops.swapaxes
    bmm = ops.matmul
    astype = ops.cast
    clone = copy = ops.clone
    detach = ops.stop_gradient

    def tensor(self) -> "Tensor":
        """Return the untracked value, sharing memory."""
        untracked: Tensor = ops.stop_gradient(self)
        return untracked

    def add(self, other: Any, *, alpha: Any = 1, out: Any = None) -> "Tensor":
        """Return ``self + alpha * other``."""
        total: Tensor = ops.add(self, scaled(other, alpha), out)  # type: ignore[call-arg]
        return total

    def sub(self, other: Any, *, alpha: Any = 1, out: Any = None) -> "Tensor":
        """Return ``self - alpha * other``."""
        difference: Tensor = ops.sub(self, scaled(other, alpha), out)  # type: ignore[call-arg]
        return difference

    subtract = sub

    def where(self, condition: Any, other: Any) -> "Tensor":
        """Return this tensor where a condition holds and another one elsewhere, as PyTorch's method does."""
        chosen: Tensor = ops.where(condition, self, other)
        return chosen

    def polygamma(self, n: int) -> "Tensor":
        """Return the derivative of `digamma` of order `n`, elementwise. Needs SciPy."""
        found: Tensor = ops.polygamma(n, self)
        return found

    def clamp_min(self, min: Any) -> "Tensor":
        """Return the tensor with elements that are below `min` brought to it."""
        bounded: Tensor = ops.clip(self, min, None)
        return bounded

    def clamp_max(self, max: Any) -> "Tensor":
        """Return the tensor with elements that are above `max` brought to it."""
        bounded: Tensor = ops.clip(self, None, max)
        return bounded

    def mul_into(self, other: Any, out: "Tensor") -> "Tensor":
        """Write ``self * other`` into `out` and return it."""
        written: Tensor = ops.mul(self, other, out=out)  # type: ignore[call-arg]
        return written

    # Shapes.
    @property
    def T(self) -> "Tensor":
        """The tensor with its axes reversed."""
        turned: Tensor = ops.permute(self, tuple(range(self.ndim))[::-1])
        return turned

    def t(self) -> "Tensor":
        """Return a matrix with its axes exchanged, and what has fewer axes as it is."""
        if self.ndim > 2:
            raise ShapeError(f"t: the tensor has shape {self.shape}; a matrix has two axes. Use mT, or permute.")
        return self.T

    def expand_as(self, other: Any) -> "Tensor":
        """Return the tensor repeated to the shape of another one."""
        repeated: Tensor = ops.expand(self, other.shape)
        return repeated

    def view_as(self, other: Any) -> "Tensor":
        """Return a view in the shape of another tensor."""
        shaped: Tensor = ops.view(self, other.shape)
        return shaped

    @property
    def mT(self) -> "Tensor":
        """The tensor with its last two axes exchanged."""
        if self.ndim < 2:
            raise MissingAxesError(
                f"mT: the tensor has shape {self.shape}; a matrix has two axes or more. Use reshape."
            )
        turned: Tensor = ops.swapaxes(self, -1, -2)
        return turned


Tensor.plain = Tensor
