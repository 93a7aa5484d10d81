"""Paste functions into code that must run without numtape: their source, and all that it uses, once each.

Annotations go, since they would need imports; numtape's own exceptions become the built-in ones that they are made of;
functions that apply ops become the ops' forwards, and kernels that call libraries those of NumPy.
"""

import ast
import functools
import inspect
import sys
from importlib.util import resolve_name
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ..core.op import Op
from ..errors import NumtapeError, UnsupportedError
from .source_definitions import definition_of, is_ours
from .source_literals import NoLiteral, literal
from .source_names import Names
from .source_stand_ins import STAND_INS


def numpy_name(function: Any) -> str | None:
    """Return the dotted name under which NumPy has a function, if it has."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc):
        return f"np.{owner.__name__}.{function.__name__}"
    name = getattr(function, "__name__", "")
    if name and getattr(np, name, None) is function:
        return f"np.{name}"
    return f"np.linalg.{name}" if name and getattr(np.linalg, name, None) is function else None


class Kernels:
    """The functions and constants pasted so far, in an order in which they can be run."""

    def __init__(self, names: Names) -> None:
        self._names = names
        #: Import statements that the pasted code needs.
        self.imports: set[str] = set()
        #: The pasted definitions.
        self.definitions: list[str] = []
        self._known: dict[Any, str] = {}

    def paste(self, function: Any, title: str) -> str:
        """Paste a function, if it is not there yet, and return its name.

        Raises:
            UnsupportedError: if it, or something that it uses, has no source that runs elsewhere.
        """
        function = STAND_INS.get(function, function)
        known = self._known.get(function)
        if known is not None:
            return known
        if not inspect.isfunction(function):
            raise UnsupportedError(f"{title} is a {type(function).__name__}, which has no source to paste.")
        definition = definition_of(function)
        if definition is None:
            raise UnsupportedError(f"the definition of {title} cannot be read.")
        # Its own name: what uses it has no local variable of that name.
        name = self._known[function] = self._names.fresh(function.__name__)
        space = _namespace(function)
        definition.name = name
        self._add(definition, space, function.__module__)
        return name

    def _add(self, statement: ast.stmt, space: dict[str, Any], module: str) -> None:
        """Add a statement after everything that it uses."""
        linked = _Linker(self, statement, space, module).visit(statement)
        self.definitions.append(ast.unparse(linked))

    def link(self, name: str, value: Any, module: str) -> str:
        """Return the expression that stands for a global name in pasted code."""
        if isinstance(value, ModuleType):
            line = f"import {value.__name__}"
            self.imports.add(line if value.__name__ == name else f"{line} as {name}")
            return name
        found = self._function(name, value)
        if found is not None:
            return found
        if isinstance(value, type):
            return self._class(name, value)
        return self._constant(name, value, module)

    def _function(self, name: str, value: Any) -> str | None:
        plain = numpy_name(value)
        if plain is not None:
            return plain
        op = getattr(value, "op", None)
        if isinstance(op, Op):
            return numpy_name(op.forward) or self.paste(op.forward, op.name)
        inner = inspect.unwrap(value) if isinstance(value, functools._lru_cache_wrapper) else value
        if isinstance(inner, FunctionType) and inner.__module__.partition(".")[0] not in sys.stdlib_module_names:
            if inner.__module__.partition(".")[0] == "numpy":
                return self._imported(name, inner)
            return self.paste(inner, inner.__name__)
        if inspect.isbuiltin(value) or isinstance(value, FunctionType):
            return self._imported(name, value)
        return None

    def _class(self, name: str, value: type) -> str:
        if issubclass(value, NumtapeError):
            return next(base.__name__ for base in value.__mro__ if base.__module__ == "builtins")
        if is_ours(value.__module__):
            raise UnsupportedError(f"it uses the class {name}.")
        return self._imported(name, value)

    def _imported(self, name: str, value: Any) -> str:
        own = value.__name__
        if getattr(value, "__module__", None) is None:
            raise UnsupportedError(f"it uses {name}, a {type(value).__name__} that no module has.")
        self.imports.add(f"from {value.__module__} import {own}" + ("" if own == name else f" as {name}"))
        return name

    def _constant(self, name: str, value: Any, module: str) -> str:
        key = (module, name)
        if key not in self._known:
            self._known[key] = self._names.fresh(name)
            try:
                text = literal(value)
                if "ml_dtypes." in text:
                    self.imports.add("import ml_dtypes")
                self.definitions.append(f"{self._known[key]} = {text}")
            except NoLiteral:
                self._statement(name, self._known[key], module)
        return self._known[key]

    def _statement(self, name: str, written: str, module: str) -> None:
        """Paste the statement of a module that makes a value."""
        home = sys.modules[module]
        for statement in ast.parse(inspect.getsource(home)).body:
            if isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        origin = "." * statement.level + (statement.module or "")
                        self._statement(alias.name, written, resolve_name(origin, home.__package__))
                        return
            target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
            if isinstance(target, ast.Name) and target.id == name and getattr(statement, "value", None) is not None:
                made = ast.copy_location(ast.Assign([ast.Name(written, ast.Store())], statement.value), statement)  # type: ignore[attr-defined]
                self._add(made, vars(home), module)
                return
        raise UnsupportedError(f"it uses {name}, which no statement of {module} makes.")


class _Linker(ast.NodeTransformer):
    """Replaces what a definition uses from outside by what stands for it, and drops annotations."""

    def __init__(self, kernels: Kernels, statement: ast.stmt, space: dict[str, Any], module: str) -> None:
        self.kernels = kernels
        self.space = space
        self.module = module
        self.local = _bound_names(statement)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id not in self.local:
            owner = self.space.get(node.value.id)
            if isinstance(owner, ModuleType) and is_ours(owner.__name__):
                text = self.kernels.link(node.attr, getattr(owner, node.attr), owner.__name__)
                return ast.parse(text, mode="eval").body
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id in self.local or node.id not in self.space:
            return node
        text = self.kernels.link(node.id, self.space[node.id], self.module)
        return ast.parse(text, mode="eval").body

    def visit_Call(self, node: ast.Call) -> Any:
        # No tensor comes here, so that what asks for one is known.
        if isinstance(node.func, ast.Name) and node.func.id == "isinstance" and len(node.args) == 2:
            kinds = [kind for kind in _alternatives(node.args[1]) if not self._is_our_class(kind)]
            if not kinds:
                return ast.Constant(False)
            node.args[1] = functools.reduce(lambda a, b: ast.BinOp(a, ast.BitOr(), b), kinds)
        return self.generic_visit(node)

    def _is_our_class(self, node: ast.expr) -> bool:
        found = self.space.get(node.id) if isinstance(node, ast.Name) else None
        return isinstance(found, type) and is_ours(found.__module__)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        node.test = self.visit(node.test)
        if isinstance(node.test, ast.Constant):
            return self.visit(node.body if node.test.value else node.orelse)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> Any:
        node.test = self.visit(node.test)
        if isinstance(node.test, ast.Constant):
            return [self.visit(statement) for statement in (node.body if node.test.value else node.orelse)]
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> Any:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return None
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))


def _alternatives(node: ast.expr) -> list[ast.expr]:
    """Return the classes of ``A | B | C``."""
    if isinstance(node, ast.BinOp):
        return [*_alternatives(node.left), *_alternatives(node.right)]
    return [node]


def _namespace(function: FunctionType) -> dict[str, Any]:
    cells = inspect.getclosurevars(function).nonlocals if function.__closure__ else {}
    return {**function.__globals__, **cells}


def _bound_names(statement: ast.stmt) -> set[str]:
    """Return the names that a function binds itself: parameters, targets, functions inside."""
    found: set[str] = set()
    if not isinstance(statement, ast.FunctionDef):
        return found
    for node in ast.walk(statement):
        if isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ExceptHandler) and node.name is not None:
            found.add(node.name)
    return found
