"""`nt.sparsity`: the sparsity pattern of a function's Jacobian or Hessian, found once and used for many points."""

from collections.abc import Callable
from typing import Any

from ..arguments import Argnums, check_argnums, check_callable
from ..jacobians import scalar_gradients, scheduler_for
from ..outputs import title
from .derivatives import Computer, recorded, sparse_derivative
from .matrices import Matrix, check_library
from .plans import Plans


def sparsity(
    function: Callable[..., Any], /, *args: Any, argnums: Argnums = 0, mode: str = "auto", **kwargs: Any
) -> "Sparsity":
    """Return the sparsity pattern of a function's Jacobian, to be used again at other points.

    The pattern comes from the recorded graph, without hints: it holds wherever the function runs the same ops with the
    same indices. Each later call checks that, and raises a `PatternError` where it does not.

    Args:
        function: takes tensors and returns a tensor or a tree of tensors.
        *args: where to run it.
        argnums: which argument, or arguments, to differentiate by; each may be a tree.
        mode: "auto" (the fewest sweeps), "forward" (columns), "reverse" (rows) or "mixed" (both).
        **kwargs: passed on to the function.

    Example:
        >>> pattern = nt.sparsity(lambda x: x[1:] - x[:-1] ** 2, np.zeros(1000))
        >>> print(pattern)
        Jacobian of shape (999, 1000), 1,998 entries (0.20%): 2 tangents by columns
        >>> pattern.jacobian(np.ones(1000)).toarray()[:2, :4]
        array([[-2.,  1.,  0.,  0.],
               [ 0., -2.,  1.,  0.]])
    """
    return Sparsity(function, argnums, mode, args, kwargs)


class Sparsity:
    """The sparsity pattern of a function: what `nt.sparsity` returns."""

    def __init__(
        self, function: Callable[..., Any], argnums: Argnums, mode: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        name = "sparsity"
        check_callable(name, function)
        check_argnums(name, argnums)
        check_library(name)
        self._function = function
        self._argnums = argnums
        self._jacobian = Computer("Sparsity.jacobian", scheduler_for(name, mode, None), None, False, is_fixed=True)
        self._hessian = Computer("Sparsity.hessian", scheduler_for(name, mode, None), None, True, is_fixed=True)
        inputs, _, outs, _ = recorded(name, function, args, kwargs, argnums, False, None)
        self._plans: Plans = self._jacobian.learn(outs, inputs.tensors)
        inputs.release()

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of elements of the output, and of what is differentiated by."""
        shape: tuple[int, int] = self._plans.pattern.shape
        return shape

    @property
    def nnz(self) -> int:
        """The number of entries of the Jacobian that may differ from zero."""
        return int(self._plans.pattern.nnz)

    @property
    def matrix(self) -> Matrix:
        """The pattern as a SciPy matrix of bools; a copy."""
        return self._plans.pattern.copy()

    @property
    def colours(self) -> int:
        """The number of sweeps that give the whole Jacobian."""
        return min(plan.colours for plan in self._plans.promising())

    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """Return the Jacobian at a point, as `nt.jacobian` with ``sparse=True`` does.

        Raises:
            PatternError: if the pattern does not hold there.

        Example:
            >>> nt.sparsity(lambda x: x ** 2, np.zeros(2)).jacobian(np.array([1.0, 2.0])).toarray()
            array([[2., 0.],
                   [0., 4.]])
        """
        return sparse_derivative(self._function, self._argnums, False, self._jacobian)(*args, **kwargs)

    def hessian(self, *args: Any, **kwargs: Any) -> Any:
        """Return the Hessian of a scalar function at a point; its pattern is that of the first point asked for.

        Raises:
            PatternError: if the pattern does not hold there.

        Example:
            >>> nt.sparsity(lambda x: (x[1:] * x[:-1]).sum(), np.zeros(3)).hessian(np.ones(3)).toarray()
            array([[0., 1., 0.],
                   [1., 0., 1.],
                   [0., 1., 0.]])
        """
        found = sparse_derivative(self._function, self._argnums, False, self._hessian, scalar_gradients)
        return found(*args, **kwargs)

    def __str__(self) -> str:
        lines = [_described("Jacobian", self._plans)]
        if self._hessian.known is not None:
            lines.append(_described("Hessian", self._hessian.known[1]))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Sparsity of {title(self._function)}: {_described('Jacobian', self._plans)}>"


def _described(what: str, plans: Plans) -> str:
    pattern = plans.pattern
    size = pattern.shape[0] * pattern.shape[1]
    share = f" ({pattern.nnz / size:.2%})" if size else ""
    plan = min(plans.promising(), key=lambda plan: plan.colours)
    counts = ((plan.tangents, "tangent"), (plan.cotangents, "cotangent"))
    sweeps = " and ".join(f"{count} {kind}{'s' * (count > 1)}" for count, kind in counts if count)
    return f"{what} of shape {pattern.shape}, {pattern.nnz:,} entries{share}: {sweeps or 'no sweep'} by {plan.name}"
