"""Every example in docstrings, the README and the documents runs and gives what it shows."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import numtape as nt

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.usefixtures("everything_in_sight")

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def modules():
    for found in pkgutil.walk_packages(nt.__path__, "numtape."):
        if not found.name.endswith("__main__"):
            yield found.name


@pytest.mark.parametrize("name", list(modules()))
def test_docstring_examples(name):
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    tests = finder.find(module, name, module=module, extraglobs={"nt": nt, "np": np})
    # Faces are functions of their own; their docstrings belong to the module that declares them.
    for value in vars(module).values():
        if callable(value) and getattr(value, "__module__", None) == name and hasattr(value, "__wrapped__"):
            example = doctest.DocTestParser().get_doctest(
                value.__doc__ or "", {"nt": nt, "np": np}, f"{name}.{value.__name__}", None, None
            )
            tests.append(example)
    for test in {test.name: test for test in tests}.values():
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.S)


@pytest.mark.parametrize("path", [p for p in DOCUMENTS if blocks(p)], ids=lambda p: p.name)
def test_python_blocks_of_documents_run(path, capsys):
    for block in blocks(path):
        exec(compile(block, str(path), "exec"), {"nt": nt, "np": np})
