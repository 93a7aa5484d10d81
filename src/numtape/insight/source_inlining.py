"""Write the body of a forward where it is used, if that is straight-line code once its parameters are known."""

import ast
import builtins
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .source_definitions import definition_of
from .source_literals import index

#: More statements than these are easier to read as a function.
_MOST_STATEMENTS = 3


class NotInline(Exception):
    """A function has a body that is better pasted whole."""


def inlined(
    function: Any,
    operands: dict[str, str],
    params: dict[str, Any],
    literal: Callable[[Any], str],
    large: Callable[[Any], str],
) -> list[str]:
    """Return the statements that compute a function's result, the last of them an expression: the result.

    Variables are called ``_0``, ``_1`` and so on.

    Args:
        function: what to write.
        operands: an expression for each operand.
        params: the static parameters.
        literal: writes a value.
        large: names a large array.

    Raises:
        NotInline: if the body is not straight-line code of NumPy and built-in functions.
    """
    body = _Body(params, literal, large)
    body.add(function, {name: ast.parse(text, mode="eval").body for name, text in operands.items()})
    if not body.statements or body.result is None or len(body.statements) > _MOST_STATEMENTS:
        raise NotInline
    return body.statements


class _Body:
    """The statements of a function, those of checks left out, with operands and parameters put in."""

    def __init__(self, params: dict[str, Any], literal: Any, large: Any) -> None:
        self.params = params
        self.literal = literal
        self.large = large
        self._count = 0
        self.statements: list[str] = []
        self.result: str | None = None

    def add(self, function: Any, known: dict[str, ast.expr]) -> None:
        """Add the statements of a function whose names stand for `known` expressions."""
        definition = definition_of(function)
        if definition is None:
            raise NotInline
        self._block(_without_checks(definition.body), dict(known), function.__globals__)

    def _block(self, statements: Sequence[ast.stmt], known: dict[str, ast.expr], space: dict[str, Any]) -> None:
        for statement in _without_unused(statements):
            if self.result is not None:
                return
            if isinstance(statement, ast.Return) and statement.value is not None:
                self.result = self._text(statement.value, known, space)
                self.statements.append(self.result)
            elif isinstance(statement, ast.Try) and _only_raises(statement):
                self._block(statement.body, known, space)
            elif isinstance(statement, ast.If):
                self._block(statement.body if self._test(statement.test, space) else statement.orelse, known, space)
            elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], statement.value, known, space)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._call(statement.value, known, space)
            else:
                raise NotInline

    def _assign(self, target: ast.expr, value: ast.expr, known: dict[str, ast.expr], space: dict[str, Any]) -> None:
        text = self._text(value, known, space)
        if isinstance(target, ast.Name):
            name = f"_{self._count}"
            self._count += 1
            known[target.id] = ast.Name(name)
            self.statements.append(f"{name} = {text}")
        elif isinstance(target, ast.Subscript):
            self.statements.append(f"{self._text(target, known, space)} = {text}")
        else:
            raise NotInline

    def _call(self, call: ast.Call, known: dict[str, ast.expr], space: dict[str, Any]) -> None:
        """Add the statements of a function that is called for what it does."""
        function = space.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if not inspect.isfunction(function) or call.keywords:
            raise NotInline
        names = list(inspect.signature(function).parameters)[: len(call.args)]
        given: dict[str, ast.expr] = {}
        for name, argument in zip(names, call.args, strict=True):
            is_param = isinstance(argument, ast.Name) and argument.id in self.params and argument.id not in known
            if is_param and name != getattr(argument, "id", None):
                raise NotInline
            if not is_param:
                given[name] = ast.parse(self._text(argument, known, space), mode="eval").body
        self.add(function, given)

    def _test(self, test: ast.expr, space: dict[str, Any]) -> bool:
        """Decide a branch by the parameters; one that depends on operands is not known."""
        names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
        if not all(name in self.params or name in space or hasattr(builtins, name) for name in names):
            raise NotInline
        return bool(eval(compile(ast.Expression(test), "<test>", "eval"), {**space, **self.params}))

    def _text(self, node: ast.expr, known: dict[str, ast.expr], space: dict[str, Any]) -> str:
        put = _Substitution(known, self.params, self.literal, self.large)
        for name in {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}:
            is_numpy = space.get(name) is np and name == "np"
            is_builtin = hasattr(builtins, name) and name not in space
            if not (name in known or name in self.params or is_numpy or is_builtin):
                raise NotInline
        return ast.unparse(put.visit(ast.parse(ast.unparse(node), mode="eval").body))


class _Substitution(ast.NodeTransformer):
    """Puts operands and parameters into an expression."""

    def __init__(self, known: dict[str, ast.expr], params: dict[str, Any], literal: Any, large: Any) -> None:
        self.known = known
        self.params = params
        self.literal = literal
        self.large = large

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        key = node.slice.id if isinstance(node.slice, ast.Name) else None
        if key is not None and key not in self.known and isinstance(self.params.get(key), tuple):
            brackets = ast.parse(f"x[{index(self.params[key], self.large)}]", mode="eval").body
            assert isinstance(brackets, ast.Subscript)
            node.slice = brackets.slice
            node.value = self.visit(node.value)
            return node
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id in self.known:
            return self.known[node.id]
        return ast.parse(self.literal(self.params[node.id]), mode="eval").body if node.id in self.params else node


def _without_checks(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements but docstrings, and checks that the recorded call has passed."""
    kept = []
    for statement in statements:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.If) and not statement.orelse and isinstance(statement.body[-1], ast.Raise):
            continue
        kept.append(statement)
    return kept


def _without_unused(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements but assignments to names that, without the checks, nothing reads."""
    kept: list[ast.stmt] = []
    for position, statement in enumerate(statements):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            later = [node for after in statements[position + 1 :] for node in ast.walk(after)]
            if not any(isinstance(node, ast.Name) and node.id == statement.targets[0].id for node in later):
                continue
        kept.append(statement)
    return kept


def _only_raises(statement: ast.Try) -> bool:
    return not statement.finalbody and all(isinstance(handler.body[-1], ast.Raise) for handler in statement.handlers)
