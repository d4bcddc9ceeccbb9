"""Ahead-of-time compilation of kernels, for GPUs that need not be present.

Triton bundles the assemblers of both GPU vendors, so every kernel of a module can be compiled on
any Linux machine. The assembler reports registers, shared memory and spills before any launch.
Equal kernels, of one module or of many, are compiled once; results are cached on disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from compiler.codegen.ahead.gpus import GpuArchitecture
from compiler.codegen.ahead.jobs import KernelJob, index_type, kernel_jobs, launch_constants
from compiler.codegen.ahead.kernel_cache import KernelCache
from compiler.codegen.ahead.machine_code import GpuCode, code_of
from compiler.codegen.ahead.pool import compiled
from compiler.codegen.module import KernelSpec, Module
from compiler.errors import CompileError
from compiler.support.dataclass import dataclass
from compiler.support.extras import install, missing
from compiler.support.private_folders import is_private
from compiler.support.settings.fluid import FLUID_CACHE

Progress = Callable[[int, int, str], None]
"""Progress callback: number done, total, and the job finished last."""


@dataclass(frozen=True)
class Built:
    """A kernel of a module compiled for one GPU; `constants` are those its launches pass.

    `variant` counts the kernels before it of the same name, which have other constants.
    """

    kernel: str
    gpu: GpuArchitecture
    job: KernelJob
    code: GpuCode
    constants: Mapping[str, object]
    variant: int = 0


def build(
    modules: Iterable[Module],
    targets: Sequence[GpuArchitecture],
    folder: Path,
    limit: int,
    progress: Progress = lambda done, whole, name: None,
    processes: int | None = None,
    large: bool = False,
) -> list[list[Built]]:
    """Compile the kernels of each module for every GPU; the result is in the modules' order.

    Results are cached in `folder`, up to `limit` bytes, unless others can write to it.
    `processes` is the number of parallel compilations, by default one per processor; `large`
    selects 64-bit indices for values of dynamic size, which may have 2^31 elements or more. Raises
    CompileError if Triton is missing, or listing all kernels that do not compile; the others are
    cached for the next call.
    """
    wanted = [
        [
            (spec, gpu, job, index)
            for gpu in targets
            for spec, job in kernel_jobs(module, gpu, index)
        ]
        for module, index in ((module, index_type(module, large)) for module in modules)
    ]
    jobs = list(dict.fromkeys(job for rows in wanted for _, _, job, _ in rows))
    codes = _compile_jobs(jobs, progress, processes, _kernel_cache(folder, limit))
    return [
        [
            Built(spec.name, gpu, job, codes[job], launch_constants(spec, index), variant)
            for variant, (spec, gpu, job, index) in zip(_variants(rows), rows, strict=True)
        ]
        for rows in wanted
    ]


def _variants(rows: Iterable[tuple[KernelSpec, GpuArchitecture, KernelJob, str]]) -> Iterator[int]:
    """For each kernel, how many before it have the same name and GPU."""
    counts = Counter[tuple[str, GpuArchitecture]]()
    for spec, gpu, *_ in rows:
        yield counts[spec.name, gpu]
        counts[spec.name, gpu] += 1


def _kernel_cache(folder: Path, limit: int) -> KernelCache | None:
    """Open the on-disk kernel cache; None if others can write to the folder."""
    if "triton" in missing("gpu"):
        text = "compiling kernels needs triton, which cannot be imported"
        raise CompileError(text, hint=install("gpu"))
    version = metadata.version("triton")
    return KernelCache(folder, limit, version) if is_private(folder, FLUID_CACHE) else None


def _compile_jobs(
    jobs: Sequence[KernelJob], progress: Progress, processes: int | None, cache: KernelCache | None
) -> dict[KernelJob, GpuCode]:
    codes = _cached(jobs, cache)
    missing = [job for job in jobs if job not in codes]
    failed: list[CompileError] = []
    for number, (job, answer) in enumerate(compiled(missing, processes), len(codes) + 1):
        try:
            codes[job] = code_of(job, answer)
            if cache:
                cache.put(job, codes[job])
        except CompileError as error:
            failed.append(error)
        progress(number, len(jobs), f"{job.gpu} {job.entry}")
    if missing and cache:
        cache.trim()
    if failed:
        raise CompileError("\n".join(sorted(str(failure) for failure in failed)))
    return codes


def _cached(jobs: Sequence[KernelJob], cache: KernelCache | None) -> dict[KernelJob, GpuCode]:
    """The jobs found in the cache."""
    cached = {job: cache.find(job) for job in jobs} if cache else {}
    return {job: code for job, code in cached.items() if code is not None}
