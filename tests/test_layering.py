"""Imports point down only, as ARCHITECTURE.md says, checked by reading every import; and it names what there is."""

import ast
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

import numtape

ROOT = Path(numtape.__file__).parent
#: From the bottom up; modules of one layer may import each other.
LAYERS = [
    {"counts", "errors", "devices", "dtypes", "tree", "config", "scheduler_config", "spelling", "_typing"},
    {"kernels", "verdicts"},
    {"core"},
    {"taylor"},
    {"ops"},
    {"conversion_members", "lifted", "protocols", "tensor_members", "tensors", "writing_members"},
    {
        "api",
        "arguments",
        "outputs",
        "directions",
        "exits",
        "series",
        "jacobians",
        "lone_gradients",
        "schedule",
        "sparse",
        "creation",
        "random_creation",
        "ranges",
        "grad_mode",
        "streams",
        "serialization",
    },
    {"transforms", "insight"},
    {"contexts", "gradients", "recording", "tape_derivatives", "tape_scopes", "tapes"},
    {"accumulation", "gradient_clipping", "nn", "optim", "data", "train", "interop", "implicit", "uncertainty"},
    {"testing"},
    {"cli"},
]
#: But for these, which know nothing of each other.
STRANGERS = {"transforms", "insight"}
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


ARCHITECTURE = Path(__file__).parent.parent / "ARCHITECTURE.md"


def test_the_picture_of_the_architecture_has_every_part_in_its_layer():
    picture = ARCHITECTURE.read_text().split("```")[1]
    layers = re.split(r"^ ?(\d+)  ", picture, flags=re.MULTILINE)[1:]
    drawn = {
        int(number): {name for line in text.splitlines() for name in re.split(r" {3,}", line.strip())[0].split()}
        for number, text in zip(layers[::2], layers[1::2], strict=True)
    }
    assert drawn == dict(enumerate(LAYERS))


@pytest.mark.parametrize("package", ["core", "transforms", "insight"])
def test_the_architecture_names_every_module(package):
    named = [name.split("/")[-1] for name in re.findall(r"`([\w/*]+)(?:\.py)?`", ARCHITECTURE.read_text())]
    modules = [path.stem for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"]
    assert [module for module in modules if not any(fnmatch(module, name) for name in named)] == []
