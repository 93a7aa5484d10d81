"""What the code of a function reads from outside, found in its instructions: variables, and attributes that follow."""

import dis
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

#: Instructions of these families that reach no further than the function itself or are looked at below. Any other one
#: of them, an import or a write to an attribute for example, cannot be followed.
_KNOWN = (
    *("LOAD_FAST", "LOAD_CONST", "LOAD_SMALL_INT", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLOSURE", "LOAD_ATTR"),
    *("LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT", "LOAD_SPECIAL"),
    *("STORE_FAST", "STORE_SUBSCR", "STORE_SLICE", "STORE_DEREF", "DELETE_FAST", "DELETE_SUBSCR"),
)
_FAMILIES = ("LOAD_", "STORE_", "DELETE_", "IMPORT_")


@dataclass
class Use:
    """A name that code reads, and the attributes that it takes from it right away: ``module.table`` is one use."""

    #: "global", "enclosing" and "local" for variables; "value" is an attribute of a result, "super" one of super().
    kind: str
    names: list[str]


def uses_of(code: CodeType) -> list[Use] | None:
    """Return all that code reads, functions inside it included; None if it does more than can be followed."""
    found: list[Use] = []
    for each in _codes(code):
        if not _read(each, found):
            return None
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _read(code: CodeType, found: list[Use]) -> bool:
    #: What the next attribute would be taken from.
    chain: Use | None = None
    for each in dis.get_instructions(code):
        name = each.opname
        if name.startswith(_FAMILIES) and not name.startswith(_KNOWN):
            return False
        if name == "STORE_DEREF" and each.argval in code.co_freevars:
            return False
        if name == "LOAD_SUPER_ATTR":
            del found[-2:]  # The class and the object that it takes.
            chain = _noted(found, "super", each.argval)
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            # Code may jump here with something else.
            if chain is None or each.is_jump_target:
                chain = _noted(found, "value", each.argval)
            else:
                chain.names.append(each.argval)
        elif name.startswith("LOAD_GLOBAL"):
            chain = _noted(found, "global", each.argval)
        elif name == "LOAD_DEREF":
            chain = _noted(found, "enclosing", each.argval)
        elif "LOAD_FAST" in name:
            chain = None
            for local in each.argval if isinstance(each.argval, tuple) else (each.argval,):
                # A cell is loaded to be given to a function inside, which is read as well.
                if local not in (*code.co_cellvars, *code.co_freevars):
                    chain = _noted(found, "local", local)
        elif name not in ("CACHE", "EXTENDED_ARG"):
            chain = None
    return True


def _noted(found: list[Use], kind: str, name: str) -> Use:
    found.append(Use(kind, [name]))
    return found[-1]
