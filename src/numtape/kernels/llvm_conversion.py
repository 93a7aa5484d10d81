"""Conversions between float32 and halves, compiled by LLVM for the CPU at hand (the extra ``compile``)."""

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any

from .._typing import Dtype
from ..dtypes import bfloat16, float16, float32

Kernel = Callable[[int, int, int], None]

_TYPES: dict[Dtype, str] = {float16: "half", bfloat16: "bfloat", float32: "float"}
#: One element at a time, as the formats define it; LLVM makes vectors of it. Takes two addresses and a count above 0.
_LOOP = """
define void @convert(ptr noalias %source, ptr noalias %target, i64 %count) {{
entry:
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %from = getelementptr {source}, ptr %source, i64 %i
  %to = getelementptr {target}, ptr %target, i64 %i
  %x = load {source}, ptr %from
  %y = {instruction} {source} %x to {target}
  store {target} %y, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %body, label %done
done:
  ret void
}}
"""
#: Engines own the compiled code, for as long as the process runs.
_engines: list[Any] = []


@functools.cache
def kernel(source: Dtype, target: Dtype) -> Kernel | None:
    """Return a function of two addresses and a count that converts contiguous elements, or None without llvmlite.

    Compiling takes about 10 ms, and importing llvmlite 70 ms.
    """
    try:
        llvm: Any = importlib.import_module("llvmlite.binding")
    except ImportError:
        return None
    instruction = "fptrunc" if target.itemsize < source.itemsize else "fpext"
    text = _LOOP.format(source=_TYPES[source], target=_TYPES[target], instruction=instruction)
    engine = _compile(llvm, text)
    _engines.append(engine)
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return prototype(engine.get_function_address("convert"))


def _compile(llvm: Any, text: str) -> Any:
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
    return engine
