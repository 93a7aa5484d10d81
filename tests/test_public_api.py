"""The public names: each op is exported once, documented, and spelled as declared; nothing else leaks."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import numtape as nt
from numtape.core.declare import public, registry

NAMES = sorted(name for name in dir(nt) if not name.startswith("_"))
MODULES = {"errors", "ops", "tree", "api", "core", "creation", "dtypes", "grad_mode", "kernels", "protocols", "streams"}
MODULES |= {"tapes", "tensors", "tensor_members", "testing", "contexts", "gradients", "insight", "cli"}
MODULES |= {"accumulation", "arguments", "config", "data", "gradient_clipping", "jacobians", "lifted", "nn", "optim"}
MODULES |= {"recording", "schedule", "serialization", "series", "taylor", "train", "transforms"}


@pytest.mark.parametrize("name", sorted(registry))
def test_every_op_with_a_public_function_is_exported(name):
    if name in public:
        assert getattr(nt, name) is public[name]
        for spelling in registry[name].facts.also:
            assert getattr(nt, spelling) is public[name]


def test_every_exported_op_is_listed_once():
    assert len(nt.ops.__all__) == len(set(nt.ops.__all__))
    for name in nt.ops.__all__:
        assert getattr(nt, name) is getattr(nt.ops, name)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in MODULES])
def test_public_functions_have_a_docstring_with_an_example(name):
    value = getattr(nt, name)
    if not callable(value):
        return
    doc = inspect.getdoc(value)
    assert doc, f"nt.{name} has no docstring"
    if inspect.isfunction(value):
        assert ">>>" in doc, f"nt.{name} has no example"
        assert inspect.signature(value)


def test_names_of_later_issues_are_absent_not_stubs():
    for name in ("compile", "distributed"):
        assert not hasattr(nt, name)


def test_the_version_heads_the_changelog():
    changelog = Path(__file__).parents[1] / "CHANGELOG.md"
    assert f"## {nt.__version__}" in changelog.read_text()


def test_importing_pulls_in_nothing_heavy():
    heavy = ("scipy", "torch", "jax", "matplotlib", "numpy.random")
    code = f"import sys, numtape; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_modules_that_docstrings_name_are_there():
    assert nt.accumulation.GradientAccumulator is nt.GradientAccumulator
    assert nt.gradient_clipping.clip_grad_norm is nt.clip_grad_norm
