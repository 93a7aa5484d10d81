"""A function that was named in the shell: find it, and what to call it with."""

import difflib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np


class UsageError(Exception):
    """What was typed cannot be done; the message says how to repair it."""


def place_of(error: BaseException) -> str:
    """Return the file and the line in which an error was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _load(place: str) -> ModuleType:
    """Import a module by its name, as seen from the current directory, or from a file."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not (place == error.name or place.startswith(f"{error.name}.")):
            raise UsageError(f"{place} cannot be imported: {error}.") from error
        raise UsageError(
            f"there is no module {error.name!r} in {here} or among the installed ones; run from the directory that "
            "holds it, or give path/to/file.py:function."
        ) from error
    except UsageError:
        raise
    except SystemExit as error:
        raise UsageError(
            f"{place} cannot be imported: it ends with sys.exit({error.code!r}); put that under "
            'if __name__ == "__main__".'
        ) from error
    except Exception as error:
        raise UsageError(f"{place} cannot be imported: {type(error).__name__}: {error}.") from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    # Files next to it are imported as they are when it runs as a script.
    sys.path.insert(0, str(path.resolve().parent))
    # Dataclasses and the like look their module up while it runs; a module of this name keeps its place.
    before = sys.modules.get(spec.name)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        if before is not None:
            sys.modules[spec.name] = before
    return module


def find(target: str) -> tuple[ModuleType, Callable[..., Any]]:
    """Return the function that was named as ``module:function`` or ``path/to/file.py:function``, and its module."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise UsageError(f"{target!r} names no function; write module:function or path/to/file.py:function.")
    module = _load(place)
    function: Any = module
    for part in name.split("."):
        if not hasattr(function, part):
            known = [other for other in dir(function) if callable(getattr(function, other, None)) and other[0] != "_"]
            near = difflib.get_close_matches(part, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known) or 'none'}."
            raise UsageError(f"{place} has no function {part!r}; {hint}")
        function = getattr(function, part)
    if not callable(function):
        raise UsageError(f"{place}:{name} is no function but {type(function).__name__}.")
    return module, function


def argument_lists(
    function: Callable[..., Any], target: str, expression: str | None, module: ModuleType
) -> list[tuple[Any, ...]]:
    """Return what to call it with: what was typed, else the function's samples, else its defaults."""
    if expression is not None:
        return [_evaluated(expression, module)]
    samples = getattr(function, "samples", None)
    if samples is not None:
        given = samples() if callable(samples) else samples
        if not isinstance(given, list | tuple) or not given:
            raise UsageError(
                f"{target}.samples is {given!r}; set it to a list of argument tuples, as [(np.ones(3), 2.0)], or to a "
                "function that returns one."
            )
        return [sample if isinstance(sample, tuple) else (sample,) for sample in given]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = [p for p in inspect.signature(function).parameters.values() if p.kind in kinds]
    except ValueError:
        parameters = []
    missing = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    if missing or not parameters:
        wants = f"needs {', '.join(missing)}" if missing else "has no positional arguments"
        raise UsageError(
            f'{target} {wants}; give arguments, as in --args "np.ones(3), 2.0", or defaults, or set '
            "function.samples to a list of argument tuples."
        )
    return [tuple(p.default for p in parameters)]


def _evaluated(expression: str, module: ModuleType) -> tuple[Any, ...]:
    """Return the arguments that an expression stands for; np, nt and the module's own names are known in it."""
    # The package's name, without an import of what lies above this layer.
    package = importlib.import_module(__name__.partition(".")[0])
    listed = expression.strip().removesuffix(",")  # With which one argument may be written.
    try:
        return tuple(eval(f"({listed},)" if listed else "()", {**vars(module), "np": np, "nt": package}))
    except Exception as error:
        raise UsageError(
            f"--args {expression!r} cannot be evaluated: {type(error).__name__}: {error}. It is a Python expression "
            'with np and nt, as "np.ones(3), 2.0".'
        ) from error
