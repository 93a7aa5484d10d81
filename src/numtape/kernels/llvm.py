"""Compile functions by LLVM for the CPU at hand (the extra ``compile``)."""

import ctypes
import importlib
from collections.abc import Callable
from typing import Any

from ..errors import MissingExtraError
from .forks import loading

#: Engines own the compiled code, for as long as the process runs.
_engines: list[Any] = []


def is_there() -> bool:
    """Say whether llvmlite can be imported, which takes 70 ms the first time."""
    try:
        with loading:
            _binding()
    except MissingExtraError:
        return False
    return True


def features() -> set[str]:
    """Return the names of the instruction sets that the CPU announces.

    Raises:
        MissingExtraError: if llvmlite is not installed.
    """
    with loading:
        return {name for name, is_there in _binding().get_host_cpu_features().items() if is_there}


def compiled(text: str, name: str, arguments: int) -> Callable[..., None]:
    """Compile a function of addresses and integers, all of 64 bits, that returns nothing.

    It lets go of Python's lock while it runs.

    Raises:
        MissingExtraError: if llvmlite is not installed.
    """
    return function_at(address_of(text, name), arguments)


def function_at(address: int, arguments: int) -> Callable[..., None]:
    """Return the function at an address, which takes so many addresses and integers."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * arguments)(address)


def address_of(text: str, name: str) -> int:
    """Compile a function, for other compiled ones to call; return its address. LLVM makes vectors of its loops.

    Raises:
        MissingExtraError: if llvmlite is not installed.
    """
    with loading:
        return _address_of(_binding(), text, name)


def _address_of(llvm: Any, text: str, name: str) -> int:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=3)
    options = llvm.create_pipeline_tuning_options(3)
    options.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address(name))


def _binding() -> Any:
    try:
        return importlib.import_module("llvmlite.binding")
    except ImportError as error:
        raise MissingExtraError('llvmlite is missing: pip install "numtape[compile]".') from error
