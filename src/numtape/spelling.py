"""Names that a package does not have: the error, with the name that may be meant."""

import difflib
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from .errors import UnknownNameError


def suggesting(package: str, elsewhere: Mapping[str, str] = MappingProxyType({})) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package that raises, and names what is spelled nearly like the unknown name.

    Args:
        package: the full name of the package.
        elsewhere: names of other libraries, each with a sentence that says what to write here.
    """

    def missing(name: str) -> NoReturn:
        known = [] if name.startswith("_") else [each for each in dir(sys.modules[package]) if not each.startswith("_")]
        found = difflib.get_close_matches(name, known, n=1)
        near = f"Did you mean {package.replace('numtape', 'nt', 1)}.{found[0]}?" if found else ""
        raise UnknownNameError(f"{package}: there is no {name!r}. {elsewhere.get(name, near)}".rstrip())

    return missing
