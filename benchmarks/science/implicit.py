"""Derivatives through solvers: time against one linear solve, memory against iterations and steps, agreement.

Run: python benchmarks/science/implicit.py [--rounds 15] [--json figures.json]
"""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from harness import Report, interleaved, options

import numtape as nt
from numtape.implicit.krylov import conjugate_gradients

UNKNOWNS = 1000


def peak_bytes(work: Callable[[], Any]) -> int:
    """Return by how many bytes memory rises while something runs, once the interpreter has its free lists."""
    gc.collect()
    work()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    work()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak


class Minimiser:
    """The least value of x A x / 2 + sum(log cosh x) - b x, by its parameters A and b."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        root = rng.normal(size=(UNKNOWNS, UNKNOWNS)) / np.sqrt(UNKNOWNS)
        self.matrix = nt.tensor(root @ root.T + 0.5 * np.eye(UNKNOWNS), requires_grad=True)
        self.right = nt.tensor(rng.normal(size=UNKNOWNS), requires_grad=True)
        self.cotangent = rng.normal(size=UNKNOWNS)

    def function(self, x: Any, matrix: Any, right: Any) -> Any:
        return 0.5 * (x @ (matrix @ x)) + nt.log(nt.cosh(x)).sum() - (right * x).sum()

    def answer(self, matrix: Any, solver: Any = None) -> Any:
        return nt.implicit.minimize(
            self.function, np.zeros(UNKNOWNS), matrix, self.right, linear="cg", solver=solver, tol=1e-2
        )

    def descend(self, iterations: int) -> Callable[..., Any]:
        """Return a solver that goes downhill so many times."""

        def solver(function: Any, x: Any) -> Any:
            slope = nt.grad(function)
            for _ in range(iterations):
                x = x - 0.2 * slope(x)
            return x

        return solver


def minimiser_figures(report: Report, rounds: int) -> None:
    case = Minimiser()
    by_all = case.answer(case.matrix)
    by_right = case.answer(case.matrix.detach())
    curvature = 1.0 / np.cosh(by_all.numpy()) ** 2
    matrix = case.matrix.numpy()
    hessian = matrix + np.diag(curvature)

    def pull(answer: Any) -> Callable[[], None]:
        return lambda: answer.backward(case.cotangent, retain_graph=True)

    def by_products() -> Any:
        # The function as written has the products with the matrix and with its transpose.
        return conjugate_gradients(
            lambda v: 0.5 * (matrix @ v + matrix.T @ v) + curvature * v, case.cotangent, 1e-11, 10_000
        )

    # The first gradient of an answer also finds out whether it is an isolated one.
    fresh = {
        "first gradient by A and b": [case.answer(case.matrix) for _ in range(rounds + 1)],
        "first gradient by b": [case.answer(case.matrix.detach()) for _ in range(rounds + 1)],
    }
    works = {
        **{name: (lambda answers=answers: pull(answers.pop())()) for name, answers in fresh.items()},
        "another gradient by A and b": pull(by_all),
        "another gradient by b": pull(by_right),
        "one dense solve": lambda: np.linalg.solve(hessian, case.cotangent),
        "one CG solve": by_products,
    }
    times = interleaved(works, rounds, 1)
    for name in list(works)[:4]:
        for solve in ("one dense solve", "one CG solve"):
            report.add(f"minimiser of {UNKNOWNS} variables, {name} / {solve}", times[name] / times[solve], 3.0)
    few, many = (peak_bytes(pull_of(case, iterations)) for iterations in (40, 400))
    report.add("memory of answer and gradient, 400 iterations / 40", many / few, 1.01)


def pull_of(case: Minimiser, iterations: int) -> Callable[[], None]:
    """Return work that solves by so many iterations, and takes the gradient."""
    return lambda: case.answer(case.matrix, case.descend(iterations)).backward(case.cotangent)


def pendulum(t: float, y: Any, p: Any) -> Any:
    return nt.stack([y[1], -p[0] * nt.sin(y[0]) - p[1] * y[1]])


def gradients(gradient: str, steps: int | None = None, pendulums: int = 1) -> Any:
    """Return the gradient of where pendulums end, by their start and their parameters."""
    y0 = nt.tensor(np.outer([1.0, 0.0], np.linspace(0.5, 1.0, pendulums)), requires_grad=True)
    p = nt.tensor(np.array([4.0, 0.1]), requires_grad=True)
    how = {"rtol": 1e-11, "atol": 1e-13} if steps is None else {"method": "rk4", "step_size": 5.0 / steps}
    times = np.linspace(0.0, 5.0, 6 if steps is None else 2)
    (nt.implicit.odeint(pendulum, y0, times, p, gradient=gradient, **how) ** 2).sum().backward()
    return np.concatenate([y0.grad.numpy().reshape(-1), p.grad.numpy()])


def ode_figures(report: Report) -> None:
    exact = gradients("unrolled")
    off = float(np.abs(gradients("adjoint") - exact).max())
    report.add("adjoint, largest difference from unrolled", off / 1e-8, 1.0, "e-8")
    differ = float((gradients("checkpointed") != exact).sum())
    report.add("checkpointed, elements that differ from unrolled", differ, 0.0, "")
    for how, bound in (("adjoint", 1.1), ("checkpointed", None), ("unrolled", None)):
        few, many = (peak_bytes(lambda how=how, n=n: gradients(how, n, pendulums=500)) for n in (200, 2000))
        report.add(f"memory of {how}, 2,000 steps / 200", many / few, bound)
        report.add(f"memory of {how}, 2,000 steps", many / 2**20, None, "MB")


def main() -> int:
    given = options(__doc__ or "")
    report = Report("Derivatives through solvers")
    minimiser_figures(report, given.rounds)
    ode_figures(report)
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
