"""Imports point down only: the layers of ARCHITECTURE.md, checked by reading every import statement."""

import ast
from pathlib import Path

import pytest

import numtape

ROOT = Path(numtape.__file__).parent
#: From the bottom up; modules of one layer that stand in separate strings are strangers to each other.
LAYERS = [
    {"errors", "devices", "dtypes", "tree", "config", "scheduler_config", "spelling", "_typing"},
    {"kernels"},
    {"core"},
    {"taylor"},
    {"ops"},
    {"conversion_members", "lifted", "protocols", "tensor_members", "tensors", "writing_members"},
    {
        "api",
        "arguments",
        "directions",
        "exits",
        "series",
        "jacobians",
        "schedule",
        "sparse",
        "creation",
        "random_creation",
        "grad_mode",
        "streams",
        "serialization",
    },
    {"transforms", "insight", "compiler"},
    {"contexts", "gradients", "recording", "tape_derivatives", "tape_scopes", "tapes"},
    {"accumulation", "gradient_clipping", "nn", "optim", "data", "train", "interop", "implicit", "uncertainty"},
    {"testing"},
    {"cli"},
]
STRANGERS = {"transforms", "insight", "compiler"}
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}


def parts():
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py" and path.name != "__main__.py")


def part_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path):
    """Yield the top-level part of the package that each import of a file reaches."""
    package = ("numtape", *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            full = (*base, *(node.module.split(".") if node.module else ()))
            if len(full) > 1:
                yield full[1]
            else:
                yield from (alias.name for alias in node.names if alias.name != "__version__")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("numtape"):
            yield node.module.split(".")[1]


@pytest.mark.parametrize("path", parts(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    part = part_of(path)
    assert part in LAYER, f"{part} has no layer"
    for other in imported(path):
        if other == part:
            continue
        assert LAYER[other] <= LAYER[part], f"{part} imports {other}, which lies above it"
        assert not (other in STRANGERS and part in STRANGERS), f"{part} and {other} are strangers"


def test_core_knows_no_op_and_no_config():
    for path in (ROOT / "core").glob("*.py"):
        assert not {"ops", "config", "tensors", "tapes"} & set(imported(path)), path.name


def test_ops_know_no_tensor_class():
    for path in (ROOT / "ops").glob("*.py"):
        assert "tensors" not in set(imported(path)), path.name


def test_no_module_has_a_name_that_says_nothing():
    for path in parts():
        assert path.stem not in {"utils", "misc", "common", "helpers"}


def test_files_stay_short():
    long = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in parts()}
    assert {name: n for name, n in long.items() if n > 500} == {}
