"""What transforms, schedulers, tests and documents know about an op besides its rules, as data."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from .._typing import NDArray


class Structure(Enum):
    """Which elements of the output depend on which elements of an operand: the sparsity pattern follows."""

    ELEMENTWISE = "each on the one at its own place, after broadcasting"
    MOVES = "each on at most one, found by running the forward on labels"
    SCATTERS = "each operand element affects at most one, found by running the VJP on labels"
    LANES = "each on those along the parameter `axis`"
    MATRICES = "each on those of the matrices, along the last two axes, at its own place in the leading ones"
    TERMS = "each on the factors of its terms, which the fact `terms` lists"
    DENSE = "each on all"


class Back(Enum):
    """The memory that the cotangent of an operand takes when a VJP has made it of the output's."""

    OWN = "its own"
    SHARED = "that of the output's, which it is a view of"
    RESHAPED = "the same, if a view has the operand's shape, else its own"
    REPEATED = "as much as the output's takes, which it repeats without a copy"


class Inside(NamedTuple):
    """What the VJP of an op holds that runs records of its own."""

    #: How many bytes these take at once: what they keep for their rules, and cotangents.
    nbytes: int
    #: The arrays that the op's parameters hold, and that are let go on the way.
    let_go: "Sequence[NDArray]"


def no_samples() -> list[Any]:
    """Samples of an op that declares none; a test refuses it."""
    return []


class Facts(NamedTuple):
    """What transforms, tests and documents know about an op, as data."""

    #: The number of floating-point operations, from the output's shape, the operands' shapes and the parameters.
    cost: Callable[..., int]
    #: The same for each element of the output, if that is all it takes to know: of elementwise ops.
    flops: int | None = None
    #: How elements depend on each other.
    structure: Structure = Structure.DENSE
    #: For `TERMS`: a list of `Terms`, from the output's shape, the operands' shapes and the parameters.
    terms: Callable[..., Any] | None = None
    #: The arguments in which the op is linear, each alone.
    linear: frozenset[str] = frozenset()
    #: ``forward`` with a leading batch axis on any subset of the operands; None: a loop.
    batch: Callable[..., Any] | None = None
    #: The outputs for some of the unit vectors in the place of one operand, along a leading axis, if these are parts of
    #: another operand: from the operands, the position of that one, and which of its elements is 1 in each. None where
    #: it takes arithmetic.
    of_units: Callable[..., Any] | None = None
    #: The n-th coefficient of the output as a power series, from n, lists of those of the operands, and one of those of
    #: the output that come before; None stands for zero. Without it, the JVP tells.
    series: Callable[..., Any] | None = None
    #: What autocast does with float operands: "lower" takes them to its dtype, "widen" takes halves to float32, "keep"
    #: leaves them alone. Of a composed function, "lower" leaves it to its ops, and "widen" goes for all of them.
    precision: str = "keep"
    #: Whether the forward may see half arrays as they are.
    native_half: bool = False
    #: Whether the rules, too, may see half operands as they are.
    native_half_rules: bool = False
    #: The positions of outputs that the forward makes float32 for halves, since they may be beyond the range of these:
    #: a statement for the checks, which no engine reads.
    wide_outputs: tuple[int, ...] = ()
    #: Whether the output may be a view of the first operand.
    aliases: bool = False
    #: Where the derivative does not exist, in words; empty if it is smooth.
    kinks: str = ""
    #: Where the value is finite, overflow aside, as an expression of arguments, `abs` and `rint`; empty: everywhere.
    domain: str = ""
    #: Whether integer operands become floats first.
    to_float: bool = False
    #: The memory that cotangents of operands take; where that depends, a function of the argument's name, the operand's
    #: shape and the parameters. What takes less than it says does no harm.
    back: Back | Callable[..., Back] = Back.OWN
    #: How many elements the output has, from the operands' shapes and the parameters: for an op that may give much more
    #: than it is given, so that a memory budget can make room first. Elementwise ops and joins need not say it.
    size: Callable[..., int] | None = None
    #: For an op whose VJP runs records of its own: what it holds meanwhile, from the parameters.
    inside: Callable[..., Inside] | None = None
    #: Whether the VJP is known to be linear in the cotangent, as a true one is; one that a user made need not be.
    is_linear_backward: bool = True
    #: Adds the cotangent of the only operand to an array of its own, given that array, the output's cotangent and the
    #: parameters: for an op that selects, whose VJP is zero but in a few places. Many of these would take long to add.
    add_back: Callable[..., None] | None = None
    #: Whether the same operands and parameters give the same bits every time.
    deterministic: bool = True
    #: Whether the output is of integers or bools, so that nothing flows back.
    is_discrete: bool = False
    #: Further spellings.
    also: tuple[str, ...] = ()
    #: The NumPy functions that this op stands for.
    numpy: tuple[Any, ...] = ()
    #: Another way to compute the forward, for tests.
    reference: Callable[..., Any] | None = None
    #: Returns the samples that tests run over, rejected ones among them.
    samples: Callable[[], Iterable[Any]] = no_samples
