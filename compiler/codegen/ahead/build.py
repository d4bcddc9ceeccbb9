"""Kernels compiled ahead of time, for GPUs that need not be here.

Triton brings the assemblers of both makers' GPUs along, so that every kernel of a module becomes
machine code on any Linux machine. What the assembler says of it, registers, shared memory and what
did not fit into registers, is there to see before a GPU is. Kernels that are equal, of one module
or of many, are compiled once, and what was compiled before is taken from disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from compiler.codegen.ahead.gpus import Gpu
from compiler.codegen.ahead.jobs import Job, index_of, jobs_of, said
from compiler.codegen.ahead.kernel_cache import KernelCache
from compiler.codegen.ahead.machine_code import Code, code_of
from compiler.codegen.ahead.pool import compiled
from compiler.codegen.module import Module
from compiler.errors import CompileError
from compiler.private_folders import is_private

Told = Callable[[int, int, str], None]
"""What is told of progress: how many are done, of how many, and which was done last."""


@dataclass(frozen=True)
class Built:
    """A kernel of a module compiled for one GPU; `constants` are those that its launches say."""

    kernel: str
    gpu: Gpu
    job: Job
    code: Code
    constants: Mapping[str, object]


def build(
    modules: Iterable[Module],
    targets: Sequence[Gpu],
    folder: Path,
    limit: int,
    told: Told = lambda done, whole, name: None,
    processes: int | None = None,
    large: bool = False,
) -> list[list[Built]]:
    """The kernels of each module for every GPU, in the modules' order.

    What is compiled is kept in a folder, `limit` bytes of it, unless others can write to it.
    `processes` is how many are compiled at once, by default one a processor; kernels are `large`
    where values of open sizes may have 2^31 elements or more. Raises CompileError where Triton is
    missing, and where kernels do not compile: it names all of them, and what was compiled is kept
    for the next time.
    """
    wanted = [
        [(spec, gpu, job, index) for gpu in targets for spec, job in jobs_of(module, gpu, index)]
        for module, index in ((module, index_of(module, large)) for module in modules)
    ]
    jobs = list(dict.fromkeys(job for rows in wanted for _, _, job, _ in rows))
    made = _made(jobs, told, processes, _shelf(folder, limit))
    return [
        [Built(spec.name, gpu, job, made[job], said(spec, index)) for spec, gpu, job, index in rows]
        for rows in wanted
    ]


def _shelf(folder: Path, limit: int) -> KernelCache | None:
    """Kernels that were compiled before; None where the folder is not this user's alone."""
    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError as error:
        raise CompileError("kernels are compiled by triton, which is not installed") from error
    return KernelCache(folder, limit, version) if is_private(folder, "FLUID_CACHE") else None


def _made(
    jobs: Sequence[Job], told: Told, processes: int | None, shelf: KernelCache | None
) -> dict[Job, Code]:
    known = _known(jobs, shelf)
    missing = [job for job in jobs if job not in known]
    failed: list[CompileError] = []
    for number, (job, answer) in enumerate(compiled(missing, processes), len(known) + 1):
        try:
            known[job] = code_of(job, answer)
            if shelf:
                shelf.put(job, known[job])
        except CompileError as error:
            failed.append(error)
        told(number, len(jobs), f"{job.gpu} {job.entry}")
    if missing and shelf:
        shelf.trim()
    if failed:
        raise CompileError("\n".join(sorted(str(each) for each in failed)))
    return known


def _known(jobs: Sequence[Job], shelf: KernelCache | None) -> dict[Job, Code]:
    """What was compiled before."""
    found = {job: shelf.find(job) for job in jobs} if shelf else {}
    return {job: code for job, code in found.items() if code is not None}
