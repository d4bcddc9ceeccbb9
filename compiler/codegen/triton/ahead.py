"""Kernels compiled ahead of time, for GPUs that need not be here.

Triton brings the assemblers of both makers' GPUs along, so that every kernel of a module becomes
machine code on any Linux machine. What the assembler says of it, registers, shared memory and what
did not fit into registers, is there to see before a GPU is.
"""

from __future__ import annotations

import json
import linecache
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from compiler.codegen.module import KernelSpec, Module
from compiler.errors import CompileError

WARPS = 4
"""Warps of a program, as launches have it unless told otherwise."""

SUFFIXES = {"cuda": ("ptx", "cubin"), "hip": ("amdgcn", "hsaco")}
"""What is kept of a compilation: the text of the assembler, and the machine code."""

MANIFEST = "kernels.json"


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU: `cuda` with its compute capability, or `hip` with the name of its core."""

    maker: str
    core: str

    @property
    def warp_size(self) -> int:
        """Threads that go in step."""
        return 64 if self.core.startswith("gfx9") else 32

    def __str__(self) -> str:
        return f"{self.maker}:{self.core}"


def gpus(text: str) -> list[Gpu]:
    """GPUs as a user lists them. Raises CompileError for what is none.

    >>> [str(each) for each in gpus("cuda:90,hip:gfx942")]
    ['cuda:90', 'hip:gfx942']
    """
    return [_gpu(each.strip()) for each in text.split(",")]


def _gpu(text: str) -> Gpu:
    maker, _, core = text.partition(":")
    known = {"cuda": r"\d{2,3}", "hip": r"gfx[0-9a-f]{3,4}"}
    if maker not in known or not re.fullmatch(known[maker], core):
        raise CompileError(
            f"{text!r} is no kind of GPU", hint="cuda:80, cuda:90, cuda:100, hip:gfx942, …"
        )
    return Gpu(maker, core)


@dataclass(frozen=True)
class Built:
    """A kernel compiled for one GPU: its code by suffix, and what it needs there.

    `registers` are those of a thread, `spilled` the bytes (or, on hip, registers) that did not fit;
    None where the assembler does not say.
    """

    kernel: str
    gpu: Gpu
    code: dict[str, bytes]
    shared: int
    registers: int | None
    spilled: int | None


def build(
    module: Module, targets: Sequence[Gpu], begun: Callable[[str, Gpu], None] | None = None
) -> Iterator[Built]:
    """Every kernel of a module for every GPU; `begun` is told of each before it is compiled.

    Raises CompileError where Triton is missing or interprets, and where a kernel does not compile.
    """
    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        raise CompileError("kernels cannot be compiled while TRITON_INTERPRET is set: unset it")
    functions = _functions(module)
    for gpu in targets:
        for spec in module.kernels:
            if begun is not None:
                begun(spec.name, gpu)
            yield _built(functions[spec.name], spec, gpu)


def _functions(module: Module) -> dict[str, Any]:
    """The kernels of a module, which Triton reads as source."""
    try:
        import_module("triton")
    except ImportError as error:
        raise CompileError("kernels are compiled by triton, which is not installed") from error
    filename = f"<kernels {module.digest[:12]}>"
    lines = module.source.splitlines(keepends=True)
    linecache.cache[filename] = (len(module.source), None, lines, filename)
    namespace: dict[str, Any] = {"__name__": module.name}
    exec(compile(module.source, filename, "exec", dont_inherit=True), namespace)
    return namespace


def _built(function: Any, spec: KernelSpec, gpu: Gpu) -> Built:
    compiler, backends = import_module("triton.compiler"), import_module("triton.backends.compiler")
    language = import_module("triton.language")
    constants = {**spec.constants, "INDEX": language.int32}
    names: list[str] = function.arg_names
    types = {name: spec.types.get(name, "constexpr") for name in names}
    places = {(names.index(name),): value for name, value in constants.items()}
    core = int(gpu.core) if gpu.maker == "cuda" else gpu.core
    try:
        made = compiler.compile(
            compiler.ASTSource(function, types, places),
            target=backends.GPUTarget(gpu.maker, core, gpu.warp_size),
            options={"num_warps": WARPS, "enable_fp_fusion": True},
        )
    except Exception as error:
        error.add_note(f"while compiling {spec.name} for {gpu}")
        raise
    code = {suffix: _bytes(made.asm[suffix]) for suffix in SUFFIXES[gpu.maker]}
    usage = _cuda_usage(code["cubin"]) if gpu.maker == "cuda" else _hip_usage(code["amdgcn"])
    return Built(spec.name, gpu, code, int(made.metadata.shared), *usage)


def _bytes(code: str | bytes) -> bytes:
    return code.encode() if isinstance(code, str) else code


def _cuda_usage(cubin: bytes) -> tuple[int | None, int | None]:
    """Registers and bytes of stack, as NVIDIA's tool reads them from machine code."""
    folder = Path(import_module("triton").__file__ or "").parent
    tool = folder / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        return None, None
    with TemporaryDirectory() as place:
        file = Path(place, "kernel.cubin")
        file.write_bytes(cubin)
        done = subprocess.run(
            [str(tool), "-res-usage", str(file)], capture_output=True, text=True, check=False
        )
    return _number(r"REG:(\d+)", done.stdout), _number(r"STACK:(\d+)", done.stdout)


def _hip_usage(assembly: bytes) -> tuple[int | None, int | None]:
    """Registers and spilled registers, as AMD's assembler notes them."""
    text = assembly.decode()
    return _number(r"\.vgpr_count:\s+(\d+)", text), _number(r"\.vgpr_spill_count:\s+(\d+)", text)


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return int(found[1]) if found else None


def save(folder: Path, built: Sequence[Built]) -> None:
    """Write code as `<gpu>/<kernel>.<suffix>` below a folder, and a list of it as JSON."""
    rows: list[dict[str, Any]] = []
    for each in built:
        place = folder / str(each.gpu).replace(":", "-")
        place.mkdir(parents=True, exist_ok=True)
        for suffix, code in each.code.items():
            (place / f"{each.kernel}.{suffix}").write_bytes(code)
        row = asdict(each) | {"gpu": str(each.gpu), "warps": WARPS}
        row["code"] = sorted(f"{place.name}/{each.kernel}.{suffix}" for suffix in each.code)
        rows.append(row)
    (folder / MANIFEST).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
