"""The manifest of a folder of compiled kernels: all that a launch needs, as plain data.

`runtime.packages` reads it on a machine that has neither Triton nor a compiler.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compiler.codegen.ahead.build import Built

LOADED = {"cuda": "cubin", "hip": "hsaco"}
"""The suffix of the file that the driver loads."""


def code_files(built: Iterable[Built]) -> dict[str, bytes]:
    """The code of kernels, by file name."""
    return {
        _file(kernel, suffix): content
        for kernel in built
        for suffix, content in kernel.code.files.items()
    }


def kernel_rows(built: Iterable[Built]) -> list[dict[str, Any]]:
    """Return a row of plain data for each kernel, and for each variant of it.

    `parameters` are the types of a launch's arguments, in order; `nothing` is the number of null
    pointers that follow; `constants` are those every launch must repeat as compiled; `shared` is
    the shared memory of a program and `bytes` the size of the file, in bytes.
    """
    return [_row(kernel) for kernel in built]


def _row(each: Built) -> dict[str, Any]:
    job, code, gpu = each.job, each.code, each.gpu
    return {
        "kernel": each.kernel,
        "gpu": str(gpu),
        "file": _file(each, LOADED[gpu.maker]),
        "entry": code.entry,
        "parameters": [kind for _, kind in job.types],
        "nothing": len(code.parameters) - len(job.types),
        "constants": dict(each.constants),
        "threads": job.warps * gpu.warp_size,
        "shared": code.shared,
        "registers": code.registers,
        "spilled": code.spilled,
        "bytes": len(code.files[LOADED[gpu.maker]]),
    }


def _file(each: Built, suffix: str) -> str:
    variant = f"-{each.variant}" if each.variant else ""
    return f"{each.gpu.folder}/{each.kernel}{variant}.{suffix}"
