"""The answer of an equation as one record, with its derivatives by the implicit function theorem.

From F(x, p) = 0 follows F_x dx + F_p dp = 0. Forward mode solves F_x dx = -F_p dp; reverse mode solves F_x^T u = g and
passes on -F_p^T u. In higher orders both are differentiated themselves: the linear system is then an equation of its
own, linear in its unknowns, with a record as any other, and x is the output of this one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.apply import apply
from ..core.batching import Batched
from ..core.context import current, entered
from ..core.facts import Facts
from ..core.gradients import link_of, push_forward, sweep
from ..core.op import Op
from ..core.value import Lifted, Value, array_of, wrap
from ..errors import NotDifferentiableError
from ..lifted import BatchedTensor
from ..ops.casting import alias
from ..tensors import Tensor
from ..transforms.custom import per_output
from ..transforms.loop_states import tensors_of
from ..transforms.transposing import is_recorded
from .capturing import Watcher, alone, cut_off, refers_to_tensors
from .equations import Equation, Form, Leaves, Space
from .linearization import columns
from .problem import Problem, linear_solver


def answer(problem: Problem) -> Leaves:
    """Solve a problem, and return the leaves of the answer: tensors with one record behind them, or arrays."""
    if any(isinstance(value, Lifted) for value in tensors_of(problem.args)):
        raise NotDifferentiableError(
            f"{problem.equation.name}: an argument is a power series or a batch; use nt.jvp or nt.grad."
        )
    problem.solve_first()
    operands = problem.operands()
    if operands:
        return parts_of(apply(IMPLICIT, operands, {"problem": problem}))
    found = problem.fresh or []
    has_tensors = problem.equation.space.has_tensors or refers_to_tensors(problem.equation.function)
    return [wrap(Tensor, x) for x in found] if has_tensors else list(found)


def parts_of(values: Any) -> Leaves:
    """Return several outputs, or one, as a list."""
    return list(values) if isinstance(values, tuple | list) else [values]


def _implicit(operands: tuple[NDArray, ...], /, *, problem: Problem) -> Any:
    """Solve an equation.

    The answer is that of the first run, or of another one with the same operands.
    """
    outs, problem.fresh = problem.fresh, None
    if outs is None:
        space = problem.equation.space
        args = problem.filled([wrap(Tensor, array) for array in operands])
        with alone(grad=False):
            outs = space.split(problem.solve(space.join(space.start), args))
    return tuple(outs) if len(outs) > 1 else outs[0]


def _pull(g: Any, operands: tuple[Any, ...], out: Any, needs: tuple[bool, ...], problem: Problem) -> list[Any]:
    """Return the cotangents of all operands."""
    x = parts_of(out)
    cotangents = [_or_zeros(c, part) for c, part in zip(parts_of(g), x, strict=True)]
    if is_recorded((*cotangents, *operands)):
        _check_recorded(problem, x, operands)
        with _one_more_transform():
            return _pull_recorded(cotangents, operands, x, problem)
    system = problem.system(x, operands)
    right, is_batch = columns(cotangents)
    u = system.solve(right, is_transposed=True)
    return system.point.pull(system.point.space.split(-u if is_batch else -u[:, 0]), is_batch, needs)


def _push(t: Any, operands: tuple[Any, ...], out: Any, index: int, problem: Problem) -> Any:
    """Return the tangent of the answer, given that of one operand."""
    x = parts_of(out)
    if is_recorded((t, *operands)):
        _check_recorded(problem, x, operands)
        with _one_more_transform():
            tangents = _push_recorded(t, operands, x, index, problem)
    else:
        system = problem.system(x, operands)
        right, is_batch = columns(system.point.push(index, t))
        dx = system.solve(-right, is_transposed=False)
        parts = system.point.space.split(dx if is_batch else dx[:, 0])
        tangents = [BatchedTensor.of(part) for part in parts] if is_batch else parts
    return tuple(tangents) if len(tangents) > 1 else tangents[0]


def _one_more_transform() -> entered:
    """Return a block in which what is recorded keeps its links, until the sweeps over it are done."""
    return entered(transforms=current().transforms + 1)


def _check_recorded(problem: Problem, x: Leaves, operands: Sequence[Any]) -> None:
    """Raise where a plain derivative would: what is recorded next is not looked at by itself."""
    with alone(grad=False):
        problem.system([array_of(part) for part in x], [array_of(operand) for operand in operands])


def _pull_recorded(cotangents: Leaves, operands: Sequence[Any], x: Leaves, problem: Problem) -> list[Any]:
    """Do what `_pull` does on tensors, so that it can be differentiated."""
    u = _solve_recorded(_transposed(problem), cotangents, operands, x, problem)
    outs, unknowns, parameters = _recorded(problem, operands, x)
    pairs = [(out, -part) for out, part in zip(outs, u, strict=True) if out.node is not None]
    with cut_off([*unknowns, *parameters]):
        found = sweep([out for out, _ in pairs], [c for _, c in pairs], parameters, create_graph=True) if pairs else {}
    return [_or_zeros(found.get(link_of(parameter)), parameter) for parameter in parameters]


def _push_recorded(t: Any, operands: Sequence[Any], x: Leaves, index: int, problem: Problem) -> Leaves:
    """Do what `_push` does on tensors."""
    outs, unknowns, parameters = _recorded(problem, operands, x)
    with cut_off([*unknowns, *parameters]):
        found = push_forward(outs, [parameters[index]], [t], create_graph=True)
    right = [-_or_zeros(pushed, out) for pushed, out in zip(found, outs, strict=True)]
    return _solve_recorded(_moved(problem), right, operands, x, problem)


def _recorded(problem: Problem, operands: Sequence[Any], x: Leaves) -> tuple[Leaves, Leaves, Leaves]:
    """Run F on the tape; return its leaves, and stand-ins for the unknowns and for the operands.

    The unknowns are themselves computed from the operands: sweeps by one must not go on to the other.
    """
    unknowns = [alias(part) for part in x]
    parameters = [alias(_as_tensor(operand)) for operand in operands]
    first = len(parameters) - len(problem.captured)
    stand_ins = dict(zip(map(link_of, problem.captured), parameters[first:], strict=True))
    with Watcher([*unknowns, *parameters], stand_ins):
        outs = problem.equation.residual(unknowns, problem.filled(parameters))
    return outs, unknowns, parameters


def _solve_recorded(form: Form, right: Leaves, operands: Sequence[Any], x: Leaves, problem: Problem) -> Leaves:
    """Return the solution of a linear system with F_x as an answer with a record of its own."""
    outer = problem.equation
    space = Space(outer.name, "x", [np.zeros(part.shape, part.dtype) for part in x])
    equation = Equation(outer.name, outer.function, space, form, outer.is_minimum, is_linear=True)
    equation.title, equation.matrix, equation.is_given = outer.title, outer.matrix, outer.is_given
    args = (_alike(right), [_as_tensor(part) for part in x], problem.filled(operands))
    inner = Problem(equation, linear_solver(equation, problem.linear), args, problem.linear, problem.captured, problem)
    return parts_of(apply(IMPLICIT, inner.operands(), {"problem": inner}))


def _transposed(problem: Problem) -> Form:
    """Return the form of F_x(x, args)^T u - g, of u and of g, x and the arguments of F."""

    def form(equation: Equation, u: Leaves, args: tuple[Any, ...], recorded: bool) -> Leaves:
        g, x, inner = args
        x = [alias(part) for part in x]
        outs = problem.equation.residual(x, inner)
        pairs = [(out, part) for out, part in zip(outs, u, strict=True) if out.node is not None]
        found = sweep([out for out, _ in pairs], [part for _, part in pairs], x, create_graph=True) if pairs else {}
        return [_as_tensor(_or_zeros(found.get(link_of(a)), a)) - b for a, b in zip(x, g, strict=True)]

    return form


def _moved(problem: Problem) -> Form:
    """Return the form of F_x(x, args) dx - b, of dx and of b, x and the arguments of F."""

    def form(equation: Equation, dx: Leaves, args: tuple[Any, ...], recorded: bool) -> Leaves:
        b, x, inner = args
        x = [alias(part) for part in x]
        outs = problem.equation.residual(x, inner)
        found = push_forward(outs, x, dx, create_graph=True)
        return [_as_tensor(_or_zeros(t, out)) - part for t, out, part in zip(found, outs, b, strict=True)]

    return form


def _or_zeros(found: Any, like: Any) -> Any:
    return np.zeros(like.shape, like.dtype) if found is None else found


def _as_tensor(x: Any) -> Any:
    return x if isinstance(x, Value) else wrap(Tensor, np.asarray(x))


def _alike(parts: Leaves) -> Leaves:
    """Return parts as tensors, and all as batches if some are."""
    count = next((len(part.members) for part in parts if isinstance(part, Batched)), None)
    if count is None:
        return [_as_tensor(part) for part in parts]
    # What is no batch among batches is zero.
    return [
        part if isinstance(part, Batched) else BatchedTensor.of(_as_tensor(np.zeros((count, *part.shape), part.dtype)))
        for part in parts
    ]


IMPLICIT = Op(
    _implicit,
    _implicit,
    pulls={},
    pushes={"operands": _push},
    joint=_pull,
    is_variadic=True,
    facts=Facts(cost=per_output, native_half=True),
)
