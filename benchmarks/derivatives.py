"""Jacobians, Hessians and other whole derivatives against PyTorch and HIPS autograd.

Run: python benchmarks/derivatives.py [--rounds 31] [--json figures.json]
"""

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Report, interleaved, optional, options

import numtape as nt

N = 200


def layers(xp: Any, w: Any) -> Callable[[Any], Any]:
    return lambda v: xp.tanh(w @ xp.tanh(w @ v))


def energy(xp: Any, w: Any) -> Callable[[Any], Any]:
    return lambda v: xp.sum(xp.tanh(w @ v) ** 2)


def jacobians(report: Report, rounds: int, torch: Any, autograd: Any) -> None:
    rng = np.random.default_rng(0)
    w, v = rng.normal(size=(N, N)) / np.sqrt(N), rng.normal(size=N)
    ours = nt.jacobian(layers(nt, w))
    works: dict[str, Callable[[], Any]] = {"ours": lambda: ours(v)}
    if torch is not None:
        tw, tv = torch.tensor(w), torch.tensor(v)
        by_reverse, by_forward = torch.func.jacrev(layers(torch, tw)), torch.func.jacfwd(layers(torch, tw))
        np.testing.assert_allclose(ours(v), by_reverse(tv).numpy(), rtol=1e-11, atol=1e-13)
        works |= {"jacrev": lambda: by_reverse(tv), "jacfwd": lambda: by_forward(tv)}
    if autograd is not None:
        hips = autograd.jacobian(layers(autograd.numpy, w))
        works["autograd"] = lambda: hips(v)
    medians = interleaved(works, rounds, 3)
    report.add(f"Jacobian {N}x{N} of tanh(W tanh(W v))", medians["ours"] * 1e3, None, "ms")
    if torch is not None:
        report.add(
            "  ratio to the better of jacrev, jacfwd", medians["ours"] / min(medians["jacrev"], medians["jacfwd"]), 0.9
        )
    if autograd is not None:
        report.add("  ratio to HIPS autograd", medians["ours"] / medians["autograd"], 0.15)


def hessians(report: Report, rounds: int, torch: Any, autograd: Any) -> None:
    rng = np.random.default_rng(1)
    w, v = rng.normal(size=(N, N)) / np.sqrt(N), rng.normal(size=N)
    ours = nt.hessian(energy(nt, w))
    works: dict[str, Callable[[], Any]] = {"ours": lambda: ours(v)}
    if torch is not None:
        tw, tv = torch.tensor(w), torch.tensor(v)
        theirs = torch.func.hessian(energy(torch, tw))
        np.testing.assert_allclose(ours(v), theirs(tv).numpy(), rtol=1e-10, atol=1e-12)
        works["torch"] = lambda: theirs(tv)
    if autograd is not None:
        hips = autograd.hessian(energy(autograd.numpy, w))
        works["autograd"] = lambda: hips(v)
    medians = interleaved(works, rounds, 2)
    report.add(f"Hessian n={N} of sum(tanh(W v)**2)", medians["ours"] * 1e3, None, "ms")
    if torch is not None:
        report.add("  ratio to PyTorch", medians["ours"] / medians["torch"], 0.4)
    if autograd is not None:
        report.add("  ratio to HIPS autograd", medians["ours"] / medians["autograd"], 0.10)
    tracemalloc.start()
    result = ours(v)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    report.add("  peak memory / result", peak / result.nbytes, 3.0)


def log_likelihood(xp: Any, logsumexp: Any, x: Any, identity: Any, constant: float) -> Callable[..., Any]:
    """The log-likelihood of a mixture of Gaussians, by log-weights, means, and factors of the inverse covariances."""

    def function(alphas: Any, means: Any, diagonals: Any, lower: Any) -> Any:
        factors = lower + identity * xp.exp(diagonals)[:, None, :]
        scaled = xp.einsum("kij,nkj->nki", factors, x[:, None, :] - means)
        terms = alphas + xp.sum(diagonals, -1) - 0.5 * xp.sum(scaled**2, -1)
        return xp.sum(logsumexp(terms, -1)) - x.shape[0] * logsumexp(alphas, -1) + constant

    return function


def mixtures(report: Report, rounds: int, torch: Any) -> None:
    n, d, k = 1000, 20, 25
    rng = np.random.default_rng(2)
    x = rng.normal(size=(n, d))
    arguments = (
        rng.normal(size=k),
        rng.normal(size=(k, d)),
        0.1 * rng.normal(size=(k, d)),
        np.tril(0.1 * rng.normal(size=(k, d, d)), -1),
    )
    constant = -0.5 * n * d * np.log(2 * np.pi)
    ours = nt.value_and_grad(log_likelihood(nt, nt.logsumexp, x, np.eye(d), constant), argnums=(0, 1, 2, 3))
    works: dict[str, Callable[[], Any]] = {"ours": lambda: ours(*arguments)}
    if torch is not None:
        tensors = [torch.tensor(a, requires_grad=True) for a in arguments]
        theirs = log_likelihood(torch, torch.logsumexp, torch.tensor(x), torch.eye(d).double(), constant)
        works["torch"] = lambda: torch.autograd.grad(theirs(*tensors), tensors)
        for a, b in zip(ours(*arguments)[1], works["torch"](), strict=True):
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-9, atol=1e-9)
    medians = interleaved(works, rounds, 1)
    report.add(f"gradient of a Gaussian mixture's likelihood, n={n}, d={d}, K={k}", medians["ours"] * 1e3, None, "ms")
    if torch is not None:
        report.add("  ratio to PyTorch", medians["ours"] / medians["torch"], 0.9)


def kernel_sum(xp: Any) -> Callable[[Any, Any], Any]:
    """The sum of a Gaussian kernel over all pairs of two clouds of points."""
    return lambda x, y: xp.sum(xp.exp(-xp.sum((x[:, None, :] - y) ** 2, -1)))


def pairs(report: Report, rounds: int, torch: Any) -> None:
    rng = np.random.default_rng(4)
    clouds = rng.normal(size=(500, 3)), rng.normal(size=(500, 3))
    ours = nt.grad(kernel_sum(nt), argnums=(0, 1))
    works: dict[str, Callable[[], Any]] = {"ours": lambda: ours(*clouds)}
    if torch is not None:
        tensors = [torch.tensor(cloud, requires_grad=True) for cloud in clouds]
        theirs = kernel_sum(torch)
        works["torch"] = lambda: torch.autograd.grad(theirs(*tensors), tensors)
        for a, b in zip(ours(*clouds), works["torch"](), strict=True):
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-9, atol=1e-12)
    medians = interleaved(works, rounds, 1)
    report.add("gradient of a kernel's sum over 500 x 500 pairs of points", medians["ours"] * 1e3, None, "ms")
    if torch is not None:
        report.add("  ratio to PyTorch", medians["ours"] / medians["torch"], None)


def bottlenecks(report: Report, rounds: int) -> None:
    """A signal of 1,000 samples, described by 3 numbers and made again from these: R^1000 -> R^3 -> R^1000."""
    rng = np.random.default_rng(3)
    times = np.linspace(0.0, 1.0, 1000)
    windows = rng.uniform(size=(3, 1000)) / 1000
    x = rng.normal(size=1000)

    def resynthesized(signal: Any) -> Any:
        loudness = nt.log1p(nt.exp(-(signal**2))) * nt.tanh(signal) + nt.sqrt(1.0 + signal**2)
        amplitude, decay, frequency = windows @ loudness
        swing = nt.sin(40.0 * frequency * times) + 0.5 * nt.cos(20.0 * frequency * times**2)
        return amplitude * nt.exp(-decay * times) * swing / (1.0 + decay * times**2)

    scheduler = nt.HybridScheduler()
    auto, plain = nt.jacobian(resynthesized, scheduler=scheduler), nt.jacobian(resynthesized, mode="reverse")
    np.testing.assert_allclose(auto(x), plain(x), rtol=1e-9, atol=1e-15)
    works = {"auto": lambda: auto(x), "plain": lambda: plain(x)}
    # In turns, each call finds the caches full of the other's; in a row it does not.
    medians, in_a_row = interleaved(works, max(5, rounds // 3), 1), interleaved(works, max(5, rounds // 3), 20)
    print(scheduler.explain())
    report.add("Jacobian of R^1000 -> R^3 -> R^1000, auto", medians["auto"] * 1e3, None, "ms")
    report.add("  ratio to plain reverse", medians["auto"] / medians["plain"], 0.05)
    report.add("  ratio to plain reverse, 20 calls in a row", in_a_row["auto"] / in_a_row["plain"], None)


def loops(report: Report, rounds: int) -> None:
    """1,000 explicit Euler steps of a predator and its prey."""

    def simulate(rate: Any) -> Any:
        prey, predators = rate * 1.0, rate * 0.5
        for _ in range(1000):
            prey, predators = (
                prey + 0.001 * (prey * rate - prey * predators),
                predators + 0.001 * (prey * predators - predators),
            )
        return prey + predators

    x = nt.tensor(np.array(1.1))
    array = np.array([1.1])
    one = np.array(1.0)
    point = np.array(1.1)
    works = {
        "derivative": lambda: nt.jvp(simulate, point, one),
        "undifferentiated": lambda: simulate(x),
        "numpy": lambda: simulate(array),
    }
    medians = interleaved(works, rounds, 1)
    report.add("forward derivative of 1,000 Euler steps", medians["derivative"] * 1e3, None, "ms")
    report.add("  ratio to the undifferentiated loop", medians["derivative"] / medians["undifferentiated"], 4.0)
    report.add("  ratio to the loop on bare arrays", medians["derivative"] / medians["numpy"], None)


def main() -> int:
    given = options(__doc__ or "")
    torch, autograd = optional("torch"), optional("autograd")
    if autograd is not None:
        optional("autograd.numpy")
    report = Report(f"derivatives, NumPy {np.__version__}, medians of {given.rounds} interleaved rounds")
    jacobians(report, given.rounds, torch, autograd)
    hessians(report, given.rounds, torch, autograd)
    mixtures(report, given.rounds, torch)
    pairs(report, given.rounds, torch)
    bottlenecks(report, given.rounds)
    loops(report, given.rounds)
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
