"""The machine code of a kernel, and the resources it uses."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from compiler.codegen.ahead.jobs import KernelJob
from compiler.errors import CompileError
from compiler.support.dataclass import dataclass

SCRATCH = 8
"""Bytes of each hidden pointer that Triton passes after a kernel's own parameters."""


@dataclass(frozen=True)
class GpuCode:
    """A kernel compiled for one GPU.

    `files` are the assembly and the loadable binary, by suffix. `registers` are those of a thread,
    `spilled` the bytes (on hip: registers) spilled, None if the assembler does not report them;
    `shared` bytes per program; `parameters` the bytes of each, in order.
    """

    entry: str
    files: Mapping[str, bytes]
    registers: int | None
    spilled: int | None
    shared: int
    parameters: tuple[int, ...]


def code_of(job: KernelJob, answer: Mapping[str, Any]) -> GpuCode:
    """Decode a worker's answer; CompileError if it is an error or the code cannot be launched."""
    if "error" in answer:
        raise CompileError(f"{job.entry} does not compile for {job.gpu}: {answer['error']}")
    files = {suffix: base64.b64decode(text) for suffix, text in answer["code"].items()}
    parameters = tuple(answer["parameters"])
    expect_parameters(job, parameters, answer["scratch"])
    usage = answer["registers"], answer["spilled"], answer["shared"]
    return GpuCode(answer["entry"], files, *usage, parameters)


def expect_parameters(job: KernelJob, found: tuple[int, ...], scratch: int) -> None:
    """Raise CompileError if the code's parameters differ from those that launches pass."""
    own = tuple(size_of(kind) for _, kind in job.types)
    others = found[len(own) :]
    if found[: len(own)] != own or any(size != SCRATCH for size in others):
        raise CompileError(f"{job.entry} takes parameters of {found} bytes, not {own}")
    if scratch:
        raise CompileError(
            f"{job.entry} requires {scratch} bytes of scratch memory from its launches"
        )


def size_of(kind: str) -> int:
    """The size in bytes of a parameter type.

    >>> size_of("*fp32:16"), size_of("i32")
    (8, 4)
    """
    plain = kind.partition(":")[0]
    return 8 if plain.startswith("*") else int(plain.lstrip("iufp")) // 8
