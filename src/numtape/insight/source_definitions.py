"""The definition of a function as a syntax tree, without the decorators that make ops of functions."""

import ast
import functools
import inspect
import textwrap
from types import FunctionType, ModuleType
from typing import Any

_OURS = __name__.partition(".")[0]


def is_ours(module: str) -> bool:
    """Say whether a module belongs to numtape."""
    return module.partition(".")[0] == _OURS


def definition_of(function: Any) -> ast.FunctionDef | None:
    """Return a new syntax tree of a function's definition; None if it has none that can be read."""
    text = _text_of(function) if isinstance(function, FunctionType) else None
    if text is None:
        return None
    (definition,) = ast.parse(text).body
    assert isinstance(definition, ast.FunctionDef)
    return definition


@functools.lru_cache(maxsize=1024)
def _text_of(function: FunctionType) -> str | None:
    # Finding a function in its file takes far longer than reading it.
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError):
        return None
    if not isinstance(definition, ast.FunctionDef):
        return None
    kept = [decorator for decorator in definition.decorator_list if not _declares(decorator, function.__globals__)]
    definition.decorator_list = kept
    text = ast.get_docstring(definition)
    if text is not None:
        # Examples speak of numtape; the first line says what the function is for.
        definition.body[0] = ast.Expr(ast.Constant(text.partition("\n")[0]))
    return ast.unparse(definition)


def _declares(decorator: ast.expr, space: dict[str, Any]) -> bool:
    """Say whether a decorator is one of numtape's."""
    callee = decorator.func if isinstance(decorator, ast.Call) else decorator
    while isinstance(callee, ast.Attribute):
        callee = callee.value
    made = space.get(callee.id) if isinstance(callee, ast.Name) else None
    return is_ours(made.__name__ if isinstance(made, ModuleType) else str(getattr(made, "__module__", "")))
