"""Every exception of the library, each with a failing example and its repair.

All of them inherit from `NumtapeError` and from the built-in that fits, so ``except ValueError`` keeps working.
"""

from typing import Any

import numpy as np


class NumtapeError(Exception):
    """The base of every error that numtape raises on purpose."""


class ShapeError(NumtapeError, ValueError):
    """Operands have shapes that do not go together.

    Fails: ``nt.ones(2, 3) + nt.ones(4)``. Repair: make the trailing axes equal or of length 1.
    """


class MissingAxesError(ShapeError, AttributeError):
    """A tensor has too few axes to have this member, so that ``hasattr`` says False.

    Fails: ``nt.ones(3).mT``. Repair: ``nt.ones(3).reshape(3, 1).mT``.
    """


class DtypeError(NumtapeError, TypeError):
    """A dtype is not supported, or not here.

    Fails: ``nt.tensor([1, 2], requires_grad=True)``. Repair: ``nt.tensor([1.0, 2.0], requires_grad=True)``.
    """


class ArgumentError(NumtapeError, ValueError):
    """A static argument has a value that the function cannot use.

    Fails: ``nt.dropout(x, p=1.5)``. Repair: a probability between 0 and 1.
    """


class LinearAlgebraError(ArgumentError, np.linalg.LinAlgError):
    """A matrix does not have what a decomposition or solution needs.

    Fails: ``nt.inv(nt.zeros(2, 2))``. Repair: check the rank, or use ``nt.pinv``.
    """


class OperandError(NumtapeError, TypeError):
    """An operand or argument is of a type that the function cannot use.

    Fails: ``nt.exp("text")``. Repair: pass a Tensor, an array or a number.
    """


class AxisError(NumtapeError, ValueError, IndexError):
    """An axis lies outside of the operand.

    Fails: ``nt.ones(2, 3).sum(axis=2)``. Repair: an axis from -2 to 1.
    """


class IndexingError(NumtapeError, IndexError):
    """An index does not fit the tensor.

    Fails: ``nt.ones(3)[5]``. Repair: an index from -3 to 2.
    """


class GradientError(NumtapeError, RuntimeError):
    """A derivative cannot be computed. The base of the errors below."""


class NotConnectedError(GradientError):
    """The target does not depend on the source through recorded ops.

    Fails: ``nt.ones(3).sum().backward()``. Repair: ``nt.ones(3, requires_grad=True).sum().backward()``.
    """


class NotDifferentiableError(GradientError):
    """The derivative is asked of an op, or of an argument, that has none.

    Fails: ``nt.where(x, a, b)`` for a tracked ``x``. Repair: pass ``x.detach()``, or use a smooth op.
    """


class ConvergenceError(GradientError, ArithmeticError):
    """A solver did not reach an answer, or what it returned is none.

    Fails: ``nt.implicit.root(lambda x: x * x + 1.0, 1.0)``. Repair: another start, another solver, or more iterations.
    """


class FreedError(GradientError):
    """The graph's arrays were freed by an earlier backward.

    Fails: ``loss.backward(); loss.backward()``. Repair: ``loss.backward(retain_graph=True)`` the first time.
    """


class PatternError(GradientError):
    """A sparsity pattern does not hold: derivatives are not zero where it says so.

    Fails: ``pattern = nt.sparsity(f, x); pattern.jacobian(y)`` where ``f`` takes another branch at ``y``. Repair: make
    the pattern again with ``nt.sparsity(f, y)``, or use ``nt.jacobian(f, sparse=True)``, which finds it at each call.
    """


class OverwrittenError(GradientError):
    """A value that a derivative rule or a recorded op needs was overwritten in place.

    Fails: ``y = nt.exp(x); z = y * y; y += 1; z.sum().backward()``. Repair: ``y = y + 1``, or ``clone()`` first.
    """


class LeafWriteError(GradientError):
    """A leaf that requires a gradient, or is watched, was written in place while recording.

    Fails: ``w -= 0.1 * g``. Repair: ``with nt.no_grad(): w -= 0.1 * g``. An argument of a function that is being
    differentiated cannot be written at all; repair: ``w = w.clone()`` first.
    """


class LeavesTapeError(NumtapeError, TypeError):
    """A tracked tensor would leave the tape unnoticed.

    Fails: ``np.asarray(y)`` for a tracked ``y``. Repair: ``y.numpy()`` to leave, ``nt.stack`` to stay.
    """

    #: How it would leave, and what else there is to say, until somebody outside has named the function that does it.
    how: str | None = None
    hint: str = ""


class StreamedError(GradientError):
    """A tensor made inside of a function that `nt.jvp` streamed was differentiated afterwards: its graph is gone.

    Fails: ``nt.jvp(lambda x: kept.append(x * x) or x, 1.0, 1.0); kept[0].backward()``. Repair: `nt.grad` inside of the
    function, or tensors as the arguments of `jvp`.
    """


class NonFiniteError(GradientError, FloatingPointError):
    """A loss or a gradient is not finite inside of `nt.detect_anomaly`; `explanation` tells where that began.

    Fails: ``nt.log(x).sum().backward()`` for an ``x`` with a zero in it. Repair: the one that the message names.
    """

    def __init__(self, message: str, explanation: Any = None) -> None:
        super().__init__(message)
        self.explanation = explanation


class TapeConsumedError(GradientError):
    """A tape that is not persistent was asked for a second gradient.

    Fails: ``tape.gradient(y, x); tape.gradient(z, x)``. Repair: ``nt.GradientTape(persistent=True)``.
    """


class ClosedError(GradientError):
    """A closed or cleared tape or context is used, or lies between a loss and a wanted source.

    Fails: ``tape.close(); tape.gradient(y, x)``. Repair: take gradients before closing, or ``detach()`` what crosses.
    """


class UnsupportedError(NumtapeError, TypeError):
    """A NumPy function, or an option of it, has no op for tracked tensors.

    Fails: ``np.bincount(y)`` for a tracked ``y``. Repair: use an op of numtape, or leave the tape with ``y.numpy()``.
    """


class MissingExtraError(NumtapeError, ImportError):
    """An optional package is not installed.

    Fails: ``nt.digamma(x)`` without SciPy. Repair: ``pip install numtape[scipy]``.
    """


class SavedFileError(NumtapeError, ValueError):
    """A file is not one that `nt.load` reads, or breaks the rules of its format. Nothing of it is loaded.

    Fails: ``nt.load("model.pt")``. Repair: convert it, as the message says.
    """


class DamagedFileError(SavedFileError):
    """A file was cut short, or its bytes changed since it was written. Nothing of it is loaded.

    Fails: ``nt.load(path)`` after a bit of the file flipped. Repair: load another copy, as `Checkpoints` does.
    """


class MemoryBudgetError(NumtapeError, MemoryError):
    """A memory budget is below what the computation needs, however much of it is computed again.

    Fails: ``CheckpointConfig(memory_budget_mb=1)`` on a tape that records 2 MB in one op. Repair: the least budget that
    the message names, or a smaller batch.
    """


class DeterminismError(NumtapeError, RuntimeError):
    """In strict mode, something cannot promise the same bits every time.

    Fails: ``nt.rand(3)`` inside ``nt.deterministic()`` without a seed. Repair: ``nt.seed(0)`` first, or
    ``nt.deterministic(global_seed=0)``.
    """


class UnknownNameError(NumtapeError, AttributeError):
    """The package, or a tensor, has nothing of that name.

    Fails: ``nt.sotfmax``. Repair: ``nt.softmax``.
    """


class MissingGradientError(NumtapeError, KeyError):
    """A `Gradients` map has no entry for the tensor asked for.

    Fails: ``grads[z]`` of an intermediate ``z``. Repair: ``tape.backward(loss, keep="all")`` or ``tape.watch(z)``.
    """

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; a sentence reads better as it is.
        return str(self.args[0]) if self.args else ""
