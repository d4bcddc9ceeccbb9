"""Native kernels that are compiled while their module is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

from compiler.codegen.module import Module
from compiler.codegen.native.host import host_machine
from compiler.support.lazy_loading import load
from runtime.native.threads import available

TargetOrName: TypeAlias = Any
"""A code generator, or its name; processes that find their modules on disk import none."""


def with_early_kernels(target: str, compile: Callable[[TargetOrName], Module]) -> Module:
    """Call `compile` with a target; of native code, other threads compile the kernels meanwhile.

    The module has their object files.
    """
    if target != "native" or available() < 2:
        return compile(target)
    early = load(partial(import_module, "runtime.native.early")).EarlyObjects()
    with early:
        early.start(host_machine())
        native = load(partial(import_module, "compiler.codegen.native.target")).NativeTarget
        module = compile(native(on_kernel=early.add))
    return replace(module, objects=early.of(module.kernels_ir))
