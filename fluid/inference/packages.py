"""Packages: writing and loading of a saved model compiled ahead of time.

A package is a folder: `module.py`, the model's program as it was saved (`__model__`), its
parameters in the module's layout (`params`), machine code of every kernel for every GPU, and
`kernels.json` with the size and SHA-256 of each file. A package for CPUs has a folder for each
level, such as `avx2`, with the module and its kernels for that level (`kernels.a`). Loading a
package compiles nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from io import BytesIO
from pathlib import Path

from compiler.codegen.module import Module
from compiler.errors import CompileError
from compiler.ir.model_format.program_desc import load_program
from compiler.ir.types import Array
from compiler.options import Options
from compiler.support.tracebacks import entry_point
from fluid.framework import Program
from fluid.inference.predictor import Predictor, Ready
from fluid.saving.files import PathName, as_path, bytes_writer
from fluid.saving.inference_model import MODEL_FILE, InferenceModel, edges
from runtime.device import CPUPlace, CUDAPlace
from runtime.files.atomic_saves import reading, save_files
from runtime.files.checkpoint import combined_writer, load_combined
from runtime.gpu.cuda import device_of, interprets
from runtime.gpu.package import on_device
from runtime.native.archive import archive
from runtime.native.package import on_cpu
from runtime.packages import FORMAT, MANIFEST, MODULE, OBJECTS, File, Package, read_package
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["is_package", "load_compiled", "write_cpu_package", "write_package"]

PARAMS = "params"


@entry_point
def load_compiled(
    dirname: PathName, place: CUDAPlace | None = None, params: Mapping[str, Array] | None = None,
    at_once: int | None = None, options: Options | None = None,
) -> Predictor:  # fmt: skip
    """Load a package that `fluid compile` wrote as a predictor; nothing is compiled.

    `place` is the GPU, by default the first; a package of NumPy code or for CPUs needs none, and
    of the latter the most capable level that this CPU has is run. `params` are
    arrays by name, instead of those in the package or if it has none; `at_once` is as in
    `create_predictor`; of `options` only `memory_limit` has an effect. With TRITON_INTERPRET=1
    kernels are interpreted on the host. A package's `module.py` is Python code that is executed.
    Raises PackageError if a file is damaged or modified, and if there is no code for the GPU or
    CPU; PlaceError if there is no GPU.
    """
    folder = as_path(dirname, "dirname")
    with reading(folder):
        package = read_package(folder)
        return Predictor(model_of(package, params), at_once, options, _ready(package, place))


def model_of(package: Package, params: Mapping[str, Array] | None = None) -> InferenceModel:
    """The model of a package: its program, feeds, fetches and parameters.

    Raises PackageError if a file was modified, and CompileError if a parameter is missing.
    """
    where = str(package.folder / MODEL_FILE)
    program = load_program(package.read(MODEL_FILE), where, factory=Program)
    feeds, fetches = (tuple(edges(program, kind, where)) for kind in ("feed", "fetch"))
    arrays = {**_packed(package), **(params or {})}
    for tensor in package.module().params:
        if tensor.given and tensor.name not in arrays:
            hint = "pass params={name: array}, or compile it with its parameters"
            raise CompileError(f"{package.folder} has no parameter {tensor.name!r}", hint=hint)
    tensors = {name: LoDTensor(array) for name, array in arrays.items()}
    return InferenceModel(program, feeds, fetches, tensors)


def _packed(package: Package) -> dict[str, Array]:
    if not package.params:
        return {}
    package.read(PARAMS)  # verifies the checksum
    tensors = load_combined(package.folder / PARAMS, package.params)
    return {name: array for name, (array, _) in tensors.items()}


def _ready(package: Package, place: CUDAPlace | None) -> Ready:
    """The module of a package on a place."""
    if package.cpus:
        return Ready(on_cpu(package), CPUPlace(), {})
    module = package.module()
    if module.target == "numpy":
        return Ready(module, CPUPlace(), {})
    where = place or CUDAPlace(0)
    if interprets():
        return Ready(module, where, {})
    module, names = on_device(package, device_of(where))
    return Ready(module, where, names)


def is_package(folder: Path) -> bool:
    """Whether a folder contains a manifest."""
    with reading(folder):
        return (folder / MANIFEST).is_file()


def write_package(
    out: Path,
    module: Module,
    program: bytes,
    params: Mapping[str, Array] | None,
    code: Mapping[str, bytes],
    rows: Sequence[Mapping[str, object]],
) -> None:
    """Write a package atomically, even if the process is killed.

    `program` is a saved program; `params` has at least the module's parameters, or is None to
    omit them; `code` are files by name; `rows` the kernel table of the manifest. Raises
    the errors of `save_files`.
    """
    files = {MODULE: module.source.encode(), MODEL_FILE: program, **code}
    _write(out, module, files, params, {"kernels": list(rows)})


def write_cpu_package(
    out: Path,
    modules: Mapping[str, Module],
    program: bytes,
    params: Mapping[str, Array] | None,
    objects: Mapping[str, Mapping[str, bytes]],
) -> None:
    """Write a package for CPUs, as `write_package`: a module and object files for each level.

    The modules are of one plan, so they have the same parameters. Raises the errors of
    `save_files`.
    """
    files = {MODEL_FILE: program}
    for level, module in modules.items():
        files[f"{level}/{MODULE}"] = module.source.encode()
        files[f"{level}/{OBJECTS}"] = archive(objects[level])
    first = next(iter(modules.values()))
    _write(out, first, files, params, {"kernels": [], "cpus": list(modules)})


def _write(
    out: Path, module: Module, files: dict[str, bytes], params: Mapping[str, Array] | None,
    table: Mapping[str, object],
) -> None:  # fmt: skip
    """Write files, the parameters of a module, and the manifest, which also has a table."""
    names = sorted(param.name for param in module.params if param.given) if params else []
    if params and names:
        stream = BytesIO()
        combined_writer({name: (params[name], ()) for name in names})(stream)
        files[PARAMS] = stream.getvalue()
    manifest = {"format": FORMAT, "params": names, **table}
    listed = {name: asdict(File.of(content)) for name, content in sorted(files.items())}
    files[MANIFEST] = f"{json.dumps({**manifest, 'files': listed}, indent=1)}\n".encode()
    save_files(out, {name: bytes_writer(content) for name, content in files.items()})
