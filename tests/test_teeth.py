"""The checks have teeth: derivative rules that are mutated, in what they return or in their source, fail them."""

import ast
import contextlib
import copy
import functools
import inspect
import itertools
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from numtape.core.declare import registry
from numtape.core.op import Op, Reads, Rule, _zeros
from numtape.testing import op_checks

CHECKS = (op_checks.check_jvp, op_checks.check_transpose, op_checks.check_second_order)
#: How many samples every mutant meets; those that survive meet the others as well.
FIRST = 2


@dataclass(frozen=True)
class Mutant:
    """An op's rule, or rules, with one fault each."""

    op: Op
    what: str
    replaced: dict[Rule, Rule]


@contextlib.contextmanager
def in_place_of(mutant: Mutant) -> Iterator[None]:
    """Let the op run with the mutant's rules, and put its own back."""
    op = mutant.op
    before = {slot: getattr(op, slot) for slot in Op.__slots__ if slot != "__weakref__"}
    try:
        op.pulls = tuple(mutant.replaced.get(rule, rule) for rule in op.pulls)
        op.pushes = tuple(mutant.replaced.get(rule, rule) for rule in op.pushes)
        op.joint = mutant.replaced.get(op.joint, op.joint)
        op.plans = {needs: op._plan(needs) for needs in op.plans}
        op.push_plans = {}
        yield
    finally:
        for slot, value in before.items():
            setattr(op, slot, value)


def rules_of(op: Op) -> dict[Callable[..., Any], list[Rule]]:
    """Return the compiled rules of an op by the function that they call: both modes of an elementwise op share one."""
    found: dict[Callable[..., Any], list[Rule]] = {}
    for rule in (*op.pulls, *op.pushes, op.joint):
        if isinstance(rule, Rule) and rule not in found.setdefault(rule.function, []):
            found[rule.function].append(rule)
    return found


def _mutant(op: Op, what: str, rules: list[Rule], function: Callable[..., Any]) -> Mutant:
    return Mutant(op, what, {rule: Rule(function, rule.reads) for rule in rules})


# Faults in what a rule returns.


def _largest_times(x: Any, factor: float) -> Any:
    """Multiply the largest element of an array or a tensor."""
    mask = np.ones(x.shape)
    mask.reshape(-1)[np.argmax(np.abs(getattr(x, "array", x)))] = factor
    return x * mask


FAULTS: dict[str, Callable[[Any], Any]] = {
    "too large by 1 %": lambda x: x * 1.01,
    "off by 0.001": lambda x: x + 1e-3,
    "sign of one element": lambda x: _largest_times(x, -1.0),
    "one element lost": lambda x: _largest_times(x, 0.0),
    "zero": lambda x: x * 0.0,
}


def faulty(function: Callable[..., Any], fault: Callable[[Any], Any], position: int | None) -> Callable[..., Any]:
    """Return a rule with a fault in its result: of several results, in the one at `position`, or in all if None."""

    def rule(*args: Any) -> Any:
        result = function(*args)
        if not isinstance(result, tuple | list):
            return fault(result)
        return tuple(
            part if part is None or position not in (None, i) else fault(part) for i, part in enumerate(result)
        )

    return rule


def faulty_read(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    """Return a rule that reads one of its values 1 % too large."""

    def rule(*args: Any) -> Any:
        given = list(args)
        value = given[place]
        given[place] = tuple(part * 1.01 for part in value) if isinstance(value, tuple) else value * 1.01
        return function(*given)

    return rule


def faults_in_results(op: Op) -> Iterator[Mutant]:
    """Yield mutants of an op whose rules compute what they should and return something else."""
    for function, rules in rules_of(op).items():
        title = _title(op, function)
        positions: list[int | None] = [None]
        if op.joint is not None and function is op.joint.function:
            positions = [i for i, rule in enumerate(op.pulls) if isinstance(rule, Rule)]
        for position, (what, fault) in itertools.product(positions, FAULTS.items()):
            # Of a derivative that is zero, only an addition makes another.
            if function is not _zeros or what == "off by 0.001":
                where = "" if position is None else f" by {op.arguments[position]}"
                yield _mutant(op, f"{title}{where}: {what}", rules, faulty(function, fault, position))
        for place, (kind, _) in enumerate(rules[0].reads, 1):
            if kind == Reads.OUT:
                yield _mutant(op, f"{title}: out 1 % too large", rules, faulty_read(function, place))
    yield from _exchanged(op, op.pulls, "cotangents")
    yield from _exchanged(op, op.pushes, "tangents")


def _exchanged(op: Op, rules: tuple[Any, ...], what: str) -> Iterator[Mutant]:
    """Exchange the rules of two arguments."""
    for a, b in itertools.combinations([rule for rule in rules if isinstance(rule, Rule)], 2):
        if (a.function.__code__.co_code, a.reads) != (b.function.__code__.co_code, b.reads):
            yield Mutant(op, f"{what} exchanged", {a: b, b: a})


def _title(op: Op, function: Callable[..., Any]) -> str:
    places = [
        f"{mode} of {name}"
        for mode, rules in (("VJP", op.pulls), ("JVP", op.pushes))
        for name, rule in zip(op.arguments, rules, strict=True)
        if isinstance(rule, Rule) and rule.function is function
    ]
    return ", ".join(places)


# Faults in the source of a rule.


@functools.cache
def functions_of(path: str) -> dict[int, list[Any]]:
    """Return the lambdas and functions of a file by the line that they begin on."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found: dict[int, list[Any]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda | ast.FunctionDef):
            found.setdefault(node.lineno, []).append(node)
    return found


def source_of(function: types.FunctionType) -> Any:
    """Return the node of a rule's source; of several lambdas on one line, the one that compiles to the same code."""
    code = function.__code__
    path = inspect.getsourcefile(function)
    for node in functions_of(path).get(code.co_firstlineno, []) if path else []:
        if isinstance(node, ast.FunctionDef):
            if node.name == function.__name__:
                return node
            continue
        made = compiled(node, function).__code__
        if (made.co_code, made.co_names, made.co_varnames) == (code.co_code, code.co_names, code.co_varnames):
            return node
    return None


def compiled(node: Any, function: types.FunctionType) -> types.FunctionType:
    """Return a function made of a node, with the globals and the closure of another."""
    if isinstance(node, ast.Lambda):
        body: list[ast.stmt] = [ast.Return(node)]
    else:
        plain = copy.copy(node)
        plain.decorator_list = []
        plain.returns = None
        body = [plain, ast.Return(ast.Name(node.name, ast.Load()))]
    names = function.__code__.co_freevars
    outer = ast.FunctionDef(
        "outer",
        ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, []),
        body,
        [],
    )
    outer.type_params = []
    module = ast.fix_missing_locations(ast.Module([outer], []))
    scope = dict(function.__globals__)
    exec(compile(module, "<mutant>", "exec"), scope)
    made: types.FunctionType = scope["outer"](*(cell.cell_contents for cell in function.__closure__ or ()))
    return made


#: Comparisons are turned round; with <= for < only the kinks would differ, which have tests of their own.
OPERATORS: dict[type[Any], type[Any]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


def changes(node: ast.AST, parameters: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield what one node may be changed to, with words for it."""
    match node:
        case ast.BinOp(left, op, right):
            if other := OPERATORS.get(type(op)):
                yield f"{type(op).__name__} to {other.__name__}", ast.BinOp(left, other(), right)
            if isinstance(op, ast.Sub | ast.Div | ast.MatMult | ast.Pow):
                yield f"operands of {type(op).__name__} exchanged", ast.BinOp(right, op, left)
        case ast.Compare(left, [op], comparators):
            if other := OPERATORS.get(type(op)):
                yield f"{type(op).__name__} to {other.__name__}", ast.Compare(left, [other()], comparators)
        case ast.UnaryOp(ast.USub(), operand) if not isinstance(operand, ast.Constant):
            yield "minus dropped", operand
        case ast.Constant(float() as number):
            yield f"{number} changed", ast.Constant(number * 1.1 or 1.0)
        case ast.Constant(int() as number) if not isinstance(number, bool):
            yield f"{number} changed", ast.Constant(number + 1)
        case ast.Name(name, ast.Load()) if name in parameters and len(parameters) > 1:
            other_name = parameters[(parameters.index(name) + 1) % len(parameters)]
            yield f"{name} to {other_name}", ast.Name(other_name, ast.Load())


class Change(ast.NodeTransformer):
    """Replace one node of a tree, given by identity."""

    def __init__(self, target: ast.AST, replacement: ast.AST) -> None:
        self.target = target
        self.replacement = replacement

    def visit(self, node: ast.AST) -> Any:
        return self.replacement if node is self.target else self.generic_visit(node)


def faults_in_source(op: Op) -> Iterator[Mutant]:
    """Yield mutants of an op with one change in the source of a rule."""
    for function, rules in rules_of(op).items():
        node = None if function is _zeros else source_of(function)
        if node is None:
            continue
        code = function.__code__
        names = code.co_varnames[: code.co_argcount]
        is_array = [True, *(kind in (Reads.OPERAND, Reads.OUT) for kind, _ in rules[0].reads)]
        arrays = [name for name, wanted in zip(names, is_array, strict=True) if wanted]
        statements = [node.body] if isinstance(node, ast.Lambda) else node.body
        parts = list(itertools.chain.from_iterable(map(ast.walk, statements)))
        # Whose shape or dtype is taken seldom matters.
        described = {id(x.value) for x in parts if isinstance(x, ast.Attribute) and x.attr in ("shape", "dtype")}
        for part in parts:
            if id(part) in described:
                continue
            for what, replacement in changes(part, arrays):
                made = compiled(_changed(node, part, replacement), function)
                if (made.__code__.co_code, made.__code__.co_consts) != (code.co_code, code.co_consts):
                    yield _mutant(op, f"{_title(op, function)}: line {part.lineno}, {what}", rules, made)


def _changed(node: Any, part: ast.AST, replacement: ast.AST) -> Any:
    copies: dict[int, Any] = {}
    duplicate = copy.deepcopy(node, copies)
    return Change(copies[id(part)], replacement).visit(duplicate)


# The judgement.


def outcome(mutant: Mutant, samples: list[Any]) -> str:
    """Say how a mutant fared: "caught" by an assertion, "raised" something else, or "survived"."""
    with in_place_of(mutant), np.errstate(all="ignore"):
        for check, sample in itertools.product(CHECKS, samples):
            try:
                check(mutant.op, sample)
            except AssertionError:
                return "caught"
            except Exception:
                return "raised"
    return "survived"


def samples_of(op: Op) -> list[Any]:
    """Return the samples of an op that have something to differentiate."""
    usable = []
    for sample in op_checks.samples(op):
        operands = [] if sample.skip_derivatives else op_checks.case_of(op, sample).operands
        if operands and all(x.size for x in operands):
            usable.append(sample)
    return usable


OPS = [entry for entry in op_checks.entries() if isinstance(entry, Op) and not entry.facts.is_discrete]


def test_no_check_fails_without_a_mutation():
    for op in OPS:
        assert outcome(Mutant(op, "nothing", {}), samples_of(op)) == "survived", op.name


def test_all_rules_have_a_source_to_mutate():
    functions = {function for op in OPS for function in rules_of(op)} - {_zeros}
    assert [f for f in functions if source_of(f) is None] == []


def test_a_mutant_is_gone_afterwards_whatever_happens():
    op = registry["mul"]
    before = (op.pulls, op.pushes, op.joint, op.plans)
    mutant = next(faults_in_results(op))

    def interrupted():
        with in_place_of(mutant):
            assert op.pulls != before[0]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (op.pulls, op.pushes, op.joint, op.plans) == before


def test_mutated_rules_fail_a_check():
    fates: dict[str, list[str]] = {"caught": [], "raised": [], "survived": []}
    for op in OPS:
        samples = samples_of(op)
        for mutant in itertools.chain(faults_in_results(op), faults_in_source(op)):
            fate = outcome(mutant, samples[:FIRST])
            if fate == "survived":
                fate = outcome(mutant, samples[FIRST:])
            fates[fate].append(f"{op.name}: {mutant.what}")
    caught, raised, survived = (fates[fate] for fate in ("caught", "raised", "survived"))
    print(f"{len(caught)} caught, {len(raised)} raised, {len(survived)} survived", *survived, sep="\n")
    assert len(caught) > 2000
    # Most survivors are no faults: a factor on what is only compared with zero, a choice between two right ways, or a
    # kink, which has a test of its own. A mutant that raises by itself says little of the checks and does not count.
    assert len(caught) / (len(caught) + len(survived)) >= 0.95, survived
