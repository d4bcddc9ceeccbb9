"""Native kernels that are compiled while their module is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from threading import Thread
from typing import Any, TypeAlias

from compiler.codegen.module import Module
from compiler.codegen.native.host import host_machine
from compiler.support.lazy_loading import load
from runtime.native.threads import available

TargetOrName: TypeAlias = Any
"""A code generator, or its name; processes that find their modules on disk import none."""


def with_early_kernels(target: str, compile: Callable[[TargetOrName], Module]) -> Module:
    """Call `compile` with a target; of native code, other threads compile the kernels meanwhile.

    The module has their object files. Steps that equal those of earlier modules are taken from the
    cache on disk, where new ones go.
    """
    if target != "native":
        return compile(target)
    native = load(partial(import_module, "compiler.codegen.native.target")).NativeTarget
    steps = load(partial(import_module, "compiler.codegen.native.commands.step_store"))
    stored = steps.StepStore.from_env()
    if available() < 2:
        module = compile(native(stored=stored))
    else:
        early = load(partial(import_module, "runtime.native.early")).EarlyObjects()
        with early:
            early.start(host_machine())
            module = compile(native(on_kernel=early.add, stored=stored))
        module = replace(module, objects=early.of(module.kernels_ir))
    if stored is not None:
        Thread(target=stored.keep, name="fluid-store").start()
    return module
