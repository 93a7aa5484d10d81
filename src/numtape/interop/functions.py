"""Functions of trees as solvers want them: of one vector, with derivatives, and looked at before the solver starts."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import tree
from .._typing import NDArray
from ..api import gradients_of, vjp
from ..arguments import Arguments, call, depends_on_others
from ..core.context import current, entered
from ..core.value import Value, wrap
from ..errors import LeavesTapeError, NonFiniteError, NotConnectedError, OperandError, ShapeError
from ..jacobians import hessian, jacobian
from ..outputs import title
from ..sparse.exits import on_tape
from ..sparse.sparsity import sparsity
from ..tensors import Tensor
from .outside import depends_on_outside, watch_used
from .vectors import Layout, flat

#: For each solver of SciPy's, the one that can be differentiated through.
_IMPLICIT = {"minimize": "minimize", "least_squares": "least_squares", "curve_fit": "least_squares", "root": "root"}

#: A Jacobian is sparse from so many columns and elements on (8 MB, dense), if no larger part of it may be other than 0.
_LEAST_COLUMNS = 200
_LEAST_ELEMENTS = 1_000_000
_MOST_FILLED = 0.1


def solving() -> entered:
    """Return a block for a solver's own calls: nobody outside records or differentiates them."""
    return entered(grad=False, tapes=())


class VectorFunction:
    """A function of a tree and of further arguments, as one of a vector.

    Args:
        name: of the solver, for messages.
        function: what the user gave.
        layout: of the tree.
        args: the further arguments.
    """

    def __init__(self, name: str, function: Callable[..., Any], layout: Layout, args: tuple[Any, ...]) -> None:
        if not callable(function):
            raise OperandError(f"{name}: wants a function, not {type(function).__name__}.")
        self.name = name
        self.function = function
        self.layout = layout
        self.args = args
        #: Messages name the user's function.
        self.__name__ = title(function)

    def __call__(self, vector: Any) -> Any:
        """Return what the function returns, for a vector that is a tensor to differentiate by."""
        with on_tape(self.name, self):
            return self._values(vector)

    def _values(self, vector: Any) -> Any:
        return self.function(self.layout.split(vector), *self.args)

    def point(self, vector: NDArray) -> NDArray:
        """Return a vector of the solver's in the dtype that the function computes in."""
        return np.array(vector, self.layout.dtype)

    def plain(self, vector: NDArray) -> NDArray:
        """Return all values of the function in one float64 vector, without derivatives."""
        with solving():
            out = flat(self._values(wrap(Tensor, self.point(vector))))
        return np.asarray(out.array if isinstance(out, Value) else out, np.float64)

    def _at_start(self) -> Any:
        return self._values(wrap(Tensor, self.point(self.layout.vector)))

    def check_alone(self) -> None:
        """Raise if the function depends on a tracked tensor besides its arguments: the answer has no graph."""
        if depends_on_outside(self._at_start):
            self._refuse_tracked()

    def start(self, differentiates: bool = True) -> tuple[Any, list[Any]]:
        """Call the function where the solver will start, and raise if it cannot go on from there.

        Returns:
            What the function returned, and its leaves as tensors.
        """
        name, layout = self.name, self.layout
        if not differentiates:
            self.check_alone()
            values = self.plain(layout.vector)
            self._check_finite(values)
            return values, [wrap(Tensor, values)]
        is_asked = current().grad
        watch_used(self._at_start)
        with entered(tapes=()), on_tape(name, self):
            inputs = Arguments(name, (layout.split(self.point(layout.vector)), *self.args), 0)
            out_tree, outs, _ = call(name, self.function, inputs, {}, False)
            if is_asked and depends_on_others(inputs, outs):
                self._refuse_tracked()
            if all(out.node is None for out in outs):
                raise NotConnectedError(
                    f"{name}: what {self.__name__} returned does not depend on {layout.title} through recorded ops, so "
                    "its derivative would be zero everywhere. Compute with nt or np functions of its argument, without "
                    "item(), numpy() or detach()."
                )
            inputs.release()
        self._check_finite(np.concatenate([out.array.ravel() for out in outs]))
        return out_tree, outs

    def as_returned(self, out_tree: Any, outs: list[Any], vector: NDArray) -> Any:
        """Return values in one vector in the structure that the function returned at the start, as arrays."""
        ends = np.cumsum([out.array.size for out in outs])[:-1]
        parts = zip(np.split(np.array(vector), ends), outs, strict=True)
        return tree.unflatten(out_tree, [part.reshape(out.shape) for part, out in parts])

    def _refuse_tracked(self) -> None:
        solver = _IMPLICIT.get(self.name)
        way = f"Use nt.implicit.{solver} to differentiate the answer by it, or pass" if solver else "Pass"
        raise LeavesTapeError(
            f"{self.name}: {self.__name__} depends on a tracked tensor besides {self.layout.title}, whose gradient "
            f"would be lost. {way} its detach(), or call {self.name} in nt.no_grad()."
        )

    def _check_finite(self, values: NDArray) -> None:
        if not np.all(np.isfinite(values)):
            raise NonFiniteError(
                f"{self.name}: {self.__name__} is {_first_bad(values)} at {self.layout.title}; choose a point "
                "where it is finite. nt.explain_nan of what it returns tells where that begins."
            )


class Objective(VectorFunction):
    """A scalar function with gradients, Hessians and products with them."""

    def __init__(self, name: str, function: Callable[..., Any], layout: Layout, args: tuple[Any, ...]) -> None:
        super().__init__(name, function, layout, args)
        self._both = gradients_of(name, self, 0, False)
        #: The last point of a gradient, and that of Hessian products, with what is known there.
        self._last: tuple[NDArray, Any] | None = None
        self._products: tuple[NDArray, Any] | None = None

    def value(self, vector: NDArray) -> float:
        """Return the value alone."""
        values = self.plain(vector)
        if values.size != 1:
            self._refuse_shape(values.shape)
        return float(values[0])

    def value_and_gradient(self, vector: NDArray) -> tuple[float, NDArray]:
        """Return the value and the gradient; the last ones are remembered."""
        last = self._last
        if last is None or not np.array_equal(last[0], vector):
            with solving():
                value, gradient = self._both(self.point(vector))
            last = self._last = np.array(vector), (value, np.asarray(gradient, np.float64))
        value, gradient = last[1]
        return value, gradient.copy()

    def hessian(self, vector: NDArray) -> NDArray:
        """Return the Hessian."""
        with solving():
            return np.asarray(hessian(self)(self.point(vector)), np.float64)

    def hessian_product(self, vector: NDArray, direction: NDArray) -> NDArray:
        """Return the Hessian times a direction; the gradient is recorded once for all products at a point."""
        products = self._products
        if products is None or not np.array_equal(products[0], vector):
            with solving():
                _, pull = vjp(lambda x: self._both(x)[1], self.point(vector))
            products = self._products = np.array(vector), pull
        # The Hessian is symmetric: its transpose does as well.
        with solving():
            (product,) = products[1](self.point(direction))
        return np.asarray(product, np.float64)

    def start(self, differentiates: bool = True) -> tuple[Any, list[Any]]:
        """Do what every function does, and look at the gradient."""
        out, outs = super().start(differentiates)
        if not tree.is_leaf(out) or outs[0].array.size != 1:
            self._refuse_shape(outs[0].shape if tree.is_leaf(out) else None)
        if differentiates:
            _, gradient = self.value_and_gradient(self.layout.vector)
            if not np.all(np.isfinite(gradient)):
                place = self.layout.names[int(np.argmin(np.isfinite(gradient)))]
                raise NonFiniteError(
                    f"{self.name}: the gradient of {self.__name__} is {_first_bad(gradient)} by {place} at "
                    f"{self.layout.title}; choose a point where it is finite. nt.explain_nan of what it returns tells "
                    "where that begins."
                )
        return out, outs

    def _refuse_shape(self, shape: Any) -> None:
        got = "a tree" if shape is None else f"shape {shape}"
        raise ShapeError(
            f"{self.name}: {self.__name__} returned {got}; it must return one number. Use sum(), or least_squares for "
            "residuals."
        )


class Residuals(VectorFunction):
    """A function of several values, with its Jacobian, dense or sparse."""

    def __init__(self, name: str, function: Callable[..., Any], layout: Layout, args: tuple[Any, ...]) -> None:
        super().__init__(name, function, layout, args)
        self._dense = jacobian(self._flat)

    def _flat(self, vector: Any) -> Any:
        return flat(self(vector))

    def jacobian(self, vector: NDArray) -> NDArray:
        """Return the Jacobian, with a row for each value and a column for each element of the vector."""
        with solving():
            return np.asarray(self._dense(self.point(vector)), np.float64)

    @functools.cached_property
    def _sparse(self) -> Callable[[NDArray], Any]:
        # It remembers the pattern from one point to the next.
        return jacobian(self._flat, sparse=True)

    def sparse_jacobian(self, vector: NDArray) -> Any:
        """Return the Jacobian as a sparse matrix of SciPy."""
        with solving():
            return self._sparse(self.point(vector)).astype(np.float64)

    def is_sparse(self, count: int) -> bool:
        """Say whether a Jacobian of `count` rows is better a sparse matrix: large, and mostly zeros."""
        size = self.layout.size
        if size < _LEAST_COLUMNS or size * count < _LEAST_ELEMENTS:
            return False
        with solving():  # The pattern alone: a full matrix would be computed twice.
            pattern = sparsity(self._flat, self.point(self.layout.vector))
        return pattern.nnz < _MOST_FILLED * size * count


def _first_bad(values: NDArray) -> str:
    return str(values.ravel()[int(np.argmin(np.isfinite(values)))])
