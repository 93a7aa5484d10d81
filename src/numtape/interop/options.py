"""Options and methods of SciPy's solvers by name, checked before the solver sees them."""

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any

from ..errors import ArgumentError

#: Arguments that hold derivatives, which are computed here.
_DERIVATIVES = frozenset(("jac", "hess", "hessp", "jac_sparsity"))
#: What SciPy's `curve_fit` calls otherwise, or what is always so here.
_ELSEWHERE = {
    "full_output": "the answer always has all of it: fun, message, and SciPy's result as scipy",
    "check_finite": "observations are always checked; leave out those that are not finite",
    "nan_policy": "observations are always checked; leave out those that are not finite",
}


def check_options(name: str, options: Iterable[str], known: Collection[str]) -> None:
    """Raise if an option is none of the solver's, or one that is decided here."""
    for option in options:
        if option in _DERIVATIVES:
            raise ArgumentError(f"{name}: {option} is not taken, since derivatives are computed exactly; leave it out.")
        if option not in known:
            raise ArgumentError(
                f"{name}: there is no option {option!r}; {_ELSEWHERE.get(option) or near(option, known)}."
            )


def options_of(solver: Callable[..., Any], own: Collection[str]) -> list[str]:
    """Return the names of the arguments of a solver of SciPy's, but for those that are given by its caller here."""
    return [each for each in inspect.signature(solver).parameters if each not in own]


def check_method(name: str, method: Any, known: Collection[str]) -> None:
    """Raise if a method that is given by name is none of the solver's; case does not count."""
    if isinstance(method, str) and method.lower() not in known:
        raise ArgumentError(f"{name}: there is no method {method!r}; {near(method, known)}.")


def check_word(name: str, title: str, word: Any, known: Collection[str]) -> None:
    """Raise if a choice that is given by name is none of those that there are; case counts."""
    if isinstance(word, str) and word not in known:
        raise ArgumentError(f"{name}: there is no {title} {word!r}; {near(word, known)}.")


def near(given: str, known: Collection[str]) -> str:
    """Return which name may have been meant, or all of them, in words."""
    plain = "".join(filter(str.isalnum, given.lower()))
    # First what is the same up to hyphens and an ending.
    begun = [each for each in sorted(known) if plain and "".join(filter(str.isalnum, each.lower())).startswith(plain)]
    found = begun if len(begun) == 1 else difflib.get_close_matches(given.lower(), known, n=1)
    return f"write {found[0]!r}" if found else f"there are {', '.join(sorted(known))}"
