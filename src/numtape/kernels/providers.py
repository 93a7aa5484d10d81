"""Which library runs matrix products and convolutions: chosen here, in one place, for all ops.

NumPy can run everything. Others take what they are faster at, and return None for the rest. Products are here, and
convolutions in a file of their own, since few programs need them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from .._typing import Dtype, NDArray
from ..dtypes import HALF_DTYPES, bfloat16, float32
from ..errors import ArgumentError, MissingExtraError
from .forks import in_child, loading
from .halves import to_float32, to_half
from .views import aligned

#: Multiplications in a product, from which on oneDNN gains what calling it through ctypes costs (10 us). It is also
#: where OpenBLAS begins to use threads. Threads of two libraries must not take turns: each waits busily for its work,
#: in the way of the other, which doubled the time of a CNN's training step. So oneDNN gets the products of all
#: programs, also where there are no convolutions and BLAS would do as well: nobody knows whether one will come, and the
#: same product gives the same bits before and after it.
LEAST_PRODUCT = 1 << 19
#: The same for a convolution. Once loaded oneDNN is faster at smaller ones too, but these do not pay for loading it.
LEAST_CONVOLUTION = 1 << 16
#: The same for a product with bfloat16, or each of a stack, by matrix instructions.
LEAST_TILED = 1 << 21

#: Up to how many terms a sum of a product may have so that it takes as long to write the result as to compute it.
_THIN = 8
#: How many bytes of a result to write at once: they lie in three quarters as many pages as a CPU keeps the addresses of
#: (64), and are too few for OpenBLAS to use threads.
_PIECE_BYTES = 3 << 16
#: The fewest rows that are worth a call.
_FEWEST_ROWS = 8

#: What `provider` accepts: whichever is fastest, or one for everything that it can run.
NAMES = ("auto", "numpy", "onednn", "amx")

_chosen = "auto"
#: Who has run anything in this process.
_ran: set[str] = set()
in_child(_ran.clear)
_pinned: ContextVar[str | None] = ContextVar("numtape_pinned_provider", default=None)
#: The same, but for what `held` has pinned.
_asked: ContextVar[str | None] = ContextVar("numtape_asked_provider", default=None)


def provider(name: str | None = None) -> str:
    """Choose who runs matrix products and convolutions in this process, and return who does.

    Args:
        name: "auto" (whichever is fastest of those that are installed), "numpy", "onednn" or "amx" (wherever they
            can), or None to leave the choice as it is.

    Raises:
        ArgumentError: if there is no such provider.
        MissingExtraError: if it is not installed, does not run here, or is lost by a fork.

    Example:
        >>> nt.kernels.provider()
        'auto'
    """
    global _chosen
    if name is not None:
        _chosen = _checked(name)
    return active()


def active() -> str:
    """Return the provider chosen for the scope, or else for the process."""
    return _pinned.get() or _chosen


def taken() -> str:
    """Return the provider as `active` does; if it is "auto", also which others than NumPy ran anything so far."""
    return f"auto ({', '.join(sorted(_ran))})" if active() == "auto" and _ran else active()


@contextmanager
def pinned(name: str) -> Iterator[None]:
    """Let one provider run everything that it can within a scope, whatever was chosen for the process.

    Raises:
        ArgumentError: if there is no such provider.
        MissingExtraError: if it is not installed, does not run here, or is lost by a fork.

    Example:
        >>> from numtape.kernels import providers
        >>> with providers.pinned("numpy"):
        ...     providers.active()
        'numpy'
    """
    name = _checked(name)
    tokens = _pinned.set(name), _asked.set(name)
    try:
        yield
    finally:
        _pinned.reset(tokens[0])
        _asked.reset(tokens[1])


@contextmanager
def held(name: str | None) -> Iterator[None]:
    """Do as `pinned` does, until ``held(None)`` inside: what others have pinned counts there."""
    token = _pinned.set(_asked.get() if name is None else _checked(name))
    try:
        yield
    finally:
        _pinned.reset(token)


def _checked(name: str) -> str:
    if name not in NAMES:
        raise ArgumentError(f"provider: {name!r} is not one; use 'auto', 'numpy', 'onednn' or 'amx'.")
    if name == "onednn":
        from .onednn_library import library

        library()  # Raises if it is missing.
    elif name == "amx":
        from . import amx

        reason = amx.why_missing()
        if reason is not None:
            raise MissingExtraError(f"{reason}.")
    return name


def describe() -> str:
    """Return in one line which providers there are, and why one is missing."""
    from . import amx
    from .onednn_library import library, why_missing

    found, missing = ["NumPy"], []
    if (reason := why_missing()) is None:
        found.append(f"oneDNN {library().version}")
    else:
        missing.append(f"oneDNN: {reason}")
    if (reason := amx.why_missing()) is None:
        found.append("AMX")
    else:
        missing.append(reason)
    line = "; ".join([", ".join(found), *missing])
    return line if active() == "auto" else f"{line} (chosen: {active()})"


def by_onednn(kernel: str, work: int, least: int, *arguments: Any) -> NDArray | None:
    """Let oneDNN run a kernel if it may and can; return None if NumPy has to."""
    choice = _pinned.get() or _chosen
    if choice not in ("auto", "onednn") or (work < least and choice == "auto"):
        return None
    with loading:
        from . import onednn  # With all that it needs, which small programs do not.

    if choice == "onednn":
        _checked(choice)  # A forked process inherits the choice, but may be unable to keep it.
    run: Callable[..., NDArray | None] = getattr(onednn, kernel)
    done = run(*arguments)
    if done is not None:
        _ran.add("onednn")
    return done


def _by_amx(a: NDArray, b: NDArray, bias: NDArray | None, dtype: Dtype) -> NDArray | None:
    """Let matrix instructions run a product with bfloat16 if they may and can; return None if others have to."""
    choice = _pinned.get() or _chosen
    if choice not in ("auto", "amx") or min(a.ndim, b.ndim) < 2:
        return None
    if choice == "auto" and a.shape[-2] * a.shape[-1] * b.shape[-1] < LEAST_TILED:
        return None
    with loading:
        from . import amx

    done = amx.matmul(a, b, bias, dtype)
    if done is not None:
        _ran.add("amx")
    return done


def matmul(a: NDArray, b: NDArray, bias: NDArray | None = None, dtype: Dtype | None = None) -> NDArray:
    """Return ``a @ b + bias``; halves are added up in float32 and rounded once, at the end.

    Args:
        a: of shape (..., m, k).
        b: of shape (..., k, n).
        bias: of shape (n,), or None.
        dtype: of the result for half operands: float32, or None for their own if they have the same, or else float32.

    Example:
        >>> from numtape.kernels import providers
        >>> providers.matmul(np.ones((2, 3), nt.bfloat16), np.ones((3, 1), nt.bfloat16))
        array([[3],
               [3]], dtype=bfloat16)
    """
    working = a.dtype
    if working in HALF_DTYPES or b.dtype in HALF_DTYPES:
        return _half_product(a, b, bias, dtype or (working if working is b.dtype else float32))
    is_thin = (
        a.ndim == b.ndim == 2
        and 0 < a.shape[1] == b.shape[0] <= _THIN
        and a.shape[0] * b.shape[1] * working.itemsize > _PIECE_BYTES
    )
    if working is float32 and b.ndim > 1:
        work = a.size * b.shape[-1]
        if (work >= LEAST_PRODUCT and not is_thin) or (_pinned.get() or _chosen) == "onednn":
            done = by_onednn("matmul", work, LEAST_PRODUCT, a, b, bias, float32)
            if done is not None:
                return done
    if _pinned.get() is not None:
        a, b = aligned(a), aligned(b)
    if a.ndim == b.ndim == 2 and a.shape[1] == 1 == b.shape[0]:
        # A column times a row: BLAS would clear the result first, and np.matmul is slow at it.
        out: NDArray = np.einsum("i,j->ij", a[:, 0], b[0])
    else:
        out = _thin_product(a, b) if is_thin else np.matmul(a, b)
    if bias is not None:
        out += bias
    return out


def _thin_product(a: NDArray, b: NDArray) -> NDArray:
    """Return the product of two matrices with few terms in each sum, some rows at a time.

    It takes as long as writing the result, which BLAS does by columns through all rows: three times as long where these
    lie in more pages than the CPU keeps the addresses of. Large products it shares with threads that take longer to
    wake up than such a product takes.
    """
    (m, k), n = a.shape, b.shape[1]
    out = np.empty((m, n), np.result_type(a, b))
    rows = max(_FEWEST_ROWS, _PIECE_BYTES // (n * out.itemsize))
    whole = m - m % rows
    np.matmul(a[:whole].reshape(-1, rows, k), b, out=out[:whole].reshape(-1, rows, n))
    if whole < m:
        np.matmul(a[whole:], b, out=out[whole:])
    return out


def _half_product(a: NDArray, b: NDArray, bias: NDArray | None, dtype: Dtype) -> NDArray:
    wide_bias = None if bias is None else np.ascontiguousarray(to_float32(bias))
    work = a.size * b.shape[-1] if b.ndim > 1 else 0
    done = None
    if a.dtype is b.dtype:
        done = by_onednn("matmul", work, LEAST_PRODUCT, a, b, wide_bias, dtype)
    if done is None:
        done = _by_amx(a, b, wide_bias, dtype)
    if done is None and {a.dtype, b.dtype} == {bfloat16, float32}:
        done = by_onednn("rounded_matmul", work, LEAST_PRODUCT, a, b, wide_bias)
    if done is not None:
        return done
    out = matmul(to_float32(a), to_float32(b), wide_bias)
    return to_half(out, dtype) if dtype in HALF_DTYPES else out
