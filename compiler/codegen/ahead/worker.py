"""A worker process that compiles kernels: reads a JSON job per line, writes a JSON answer per line.

It runs as a script and imports nothing of this project, so that it starts fast. It ignores
Triton's interpreter mode even if its parent uses it.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import linecache
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SUFFIXES = {"cuda": ("ptx", "cubin"), "hip": ("amdgcn", "hsaco")}
"""The files kept of a compilation: the assembly and the machine code."""

_BYTES = {"b8": 1, "u8": 1, "b16": 2, "u16": 2, "b32": 4, "u32": 4, "f32": 4}


def main() -> None:
    """Answer jobs until the input ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not mix with answers
    for line in sys.stdin:
        out.write(json.dumps(_answer(json.loads(line))) + "\n")
        out.flush()


def _answer(job: Mapping[str, Any]) -> dict[str, Any]:
    """Compile a job; returns its result, or the error."""
    log = io.StringIO()
    try:
        with contextlib.redirect_stdout(log):
            return _compile_job(job, log)
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        return {"error": f"{type(error).__name__}: {error}"[-2000:]}


def _compile_job(job: Mapping[str, Any], log: io.StringIO) -> dict[str, Any]:
    maker, _, core = job["gpu"].partition(":")
    kernel = _compile(job, maker, core)
    code = {suffix: _bytes(kernel.asm[suffix]) for suffix in SUFFIXES[maker]}
    text = code[SUFFIXES[maker][0]].decode()
    metadata = kernel.metadata
    usage = _cuda_usage(log.getvalue(), code) if maker == "cuda" else _hip_usage(text)
    return {
        "entry": metadata.name,
        "shared": int(metadata.shared),
        "scratch": _scratch(metadata),
        "registers": usage[0],
        "spilled": usage[1],
        "parameters": _ptx_parameters(text) if maker == "cuda" else _hip_parameters(text),
        "code": {suffix: base64.b64encode(data).decode() for suffix, data in code.items()},
    }


def _compile(job: Mapping[str, Any], maker: str, core: str) -> Any:
    triton, language = import_module("triton"), import_module("triton.language")
    compiler, backends = import_module("triton.compiler"), import_module("triton.backends.compiler")
    with contextlib.suppress(AttributeError):  # if Triton has it, its log reports registers
        triton.knobs.nvidia.dump_ptxas_log = True
    function = _function(job)
    names: list[str] = function.arg_names
    types = {name: kind.partition(":") for name, kind in job["types"]}
    numbers = {name: _constant(language, value) for name, value in job["constants"]}
    warps = 64 if core.startswith("gfx9") else 32
    return compiler.compile(
        compiler.ASTSource(
            function,
            {name: types[name][0] if name in types else "constexpr" for name in names},
            {(names.index(name),): value for name, value in numbers.items()},
            {
                (names.index(name),): [["tt.divisibility", int(kind[2])]]
                for name, kind in types.items()
                if kind[2]
            },
        ),
        target=backends.GPUTarget(maker, int(core) if maker == "cuda" else core, warps),
        options=dict(job["options"]),
    )


def _function(job: Mapping[str, Any]) -> Any:
    """Define the kernel, with its source registered for Triton to read."""
    source, filename = job["source"], f"<{job['entry']}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    namespace: dict[str, Any] = {"__name__": job["entry"]}
    exec(compile(source, filename, "exec", dont_inherit=True), namespace)
    return namespace[job["entry"]]


def _constant(language: Any, value: Any) -> Any:
    return getattr(language, value) if isinstance(value, str) else value


def _scratch(metadata: Any) -> int:
    """Bytes of global scratch memory that the kernel needs; not every Triton version reports it."""
    names = ("global_scratch_size", "profile_scratch_size")
    return sum(int(getattr(metadata, name, 0) or 0) for name in names)


def _bytes(code: str | bytes) -> bytes:
    return code.encode() if isinstance(code, str) else code


# ---- resource usage -------------------------------------------------------------------------


def _cuda_usage(log: str, code: Mapping[str, bytes]) -> tuple[int | None, int | None]:
    """Registers of a thread and bytes spilled, from the assembler's log or from cuobjdump."""
    registers = _number(r"Used (\d+) registers", log)
    if registers is not None:
        return registers, _number(r"(\d+) bytes spill stores", log)
    folder = Path(import_module("triton").__file__ or "").parent
    tool = folder / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        return None, None
    with TemporaryDirectory() as scratch:
        file = Path(scratch, "kernel.cubin")
        file.write_bytes(code["cubin"])
        command = [str(tool), "-res-usage", str(file)]
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return _number(r"REG:(\d+)", output), _number(r"STACK:(\d+)", output)


def _hip_usage(text: str) -> tuple[int | None, int | None]:
    """Registers and spilled registers, as reported in AMD's assembly."""
    return _number(r"\.vgpr_count:\s+(\d+)", text), _number(r"\.vgpr_spill_count:\s+(\d+)", text)


def _number(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    return int(match[1]) if match else None


def _ptx_parameters(text: str) -> list[int]:
    """The bytes of each parameter of the entry, in order."""
    (head,) = re.findall(r"\.entry\s+\w+\s*\((.*?)\)", text, re.DOTALL)
    return [_BYTES.get(kind, 8) for kind in re.findall(r"\.param\s+\.(\w+)", head)]


def _hip_parameters(text: str) -> list[int]:
    """The size in bytes of each parameter, without hidden ones that the driver fills in."""
    parameters = re.findall(r"\.size:\s+(\d+)\n\s+\.value_kind:\s+(\w+)", text)
    return [int(size) for size, kind in parameters if not kind.startswith("hidden_")]


if __name__ == "__main__":
    main()
