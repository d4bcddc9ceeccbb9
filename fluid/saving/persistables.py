"""Saving and loading of variables between the global scope and tensor files.

No `save` or `load` op is run. All values are collected before the first write, and all files are
read before the first variable is set, so an error changes neither files nor scope.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Protocol

from compiler.ir.program import VarKind
from compiler.ir.types import Array
from compiler.support.escape import one_line
from compiler.support.tracebacks import entry_point
from fluid import parameter_server
from fluid.compiler import CompiledProgram
from fluid.executor import Executor, global_scope
from fluid.framework import Program, Variable, default_main_program
from fluid.saving.files import PathName, as_path
from fluid.saving.variables import (
    get_program_parameter,
    get_program_persistable_vars,
    has_fixed_shape,
    is_parameter,
    is_persistable,
)
from runtime.device import Place
from runtime.errors import CheckpointError, NotInitialized, OtherModel
from runtime.files.atomic_saves import Writer, reading, save_files
from runtime.files.checkpoint import (
    Tensor,
    combined_writer,
    load_combined,
    load_tensor,
    read_tensor,
    tensor_path,
    tensor_writer,
)
from runtime.tensors.lod_tensor import LoDTensor

__all__ = [
    "IN_MEMORY",
    "expect_executor",
    "expect_program",
    "get_program_parameter",
    "get_program_persistable_vars",
    "is_parameter",
    "is_persistable",
    "load_params",
    "load_persistables",
    "load_vars",
    "persistable_files",
    "read_persistables",
    "read_variables",
    "save_params",
    "save_persistables",
    "save_vars",
    "set_variables",
    "value_of",
]

IN_MEMORY = "the bytes given"
"""What messages call data that was passed as bytes."""


# ---- saving and loading ----


@entry_point
def save_vars(
    executor: Executor,
    dirname: PathName | None,
    main_program: Program | None = None,
    vars: Iterable[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Save `vars`, or the variables of a program that match `predicate`, from the global scope.

    Each is written to a file with its name in the folder `dirname`, or all to the file `filename`;
    without either they are returned as bytes. All files are written atomically, even if the
    process is killed. Raises NotInitialized, and writes nothing, if a variable has no value
    yet; TypeError for an invalid Executor, Program or Variable; the errors of `save_files`.
    """
    expect_executor(executor)
    chosen = _chosen(main_program, vars, predicate)
    if not chosen:
        warnings.warn("there is no variable to save in the program", stacklevel=3)
        return None
    return _save(dirname, filename, {name: value_of(name) for name in chosen})


def _save(
    dirname: PathName | None, filename: str | None, tensors: Mapping[str, Tensor]
) -> bytes | None:
    """Write tensors to files, or return them as bytes if no file is named."""
    if dirname is None and filename is None:
        stream = BytesIO()
        combined_writer(tensors)(stream)
        return stream.getvalue()
    save_files(*_files(as_path(dirname, "dirname"), filename, tensors))
    return None


def persistable_files(
    program: Program, dirname: PathName, filename: str | None
) -> dict[str, Writer]:
    """The files `save_persistables` writes into a folder, by name. Raises NotInitialized."""
    tensors = {name: value_of(name) for name in _chosen(program, None, is_persistable)}
    return _files(as_path(dirname, "dirname"), filename, tensors)[1]


@entry_point
def save_params(
    executor: Executor,
    dirname: PathName | None,
    main_program: Program | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Save the parameters of a program as `save_vars` does, without optimizer state.

    Parameters of a trainer's program that are on parameter servers are fetched from there, whole.
    """
    program = expect_program(main_program)
    names = {var.name for var in get_program_parameter(program)}
    remote = {name: value for name, value in _remote_values(program).items() if name in names}
    if not remote:
        return save_vars(executor, dirname, main_program, None, is_parameter, filename)
    return _save_with(executor, dirname, program, is_parameter, filename, remote)


@entry_point
def save_persistables(
    executor: Executor,
    dirname: PathName | None,
    main_program: Program | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Save all persistable variables as `save_vars` does, to resume training.

    Variables of a trainer's program that are on parameter servers are fetched from there, whole.
    """
    program = expect_program(main_program)
    remote = _remote_values(program)
    if not remote:
        return save_vars(executor, dirname, main_program, None, is_persistable, filename)
    return _save_with(executor, dirname, program, is_persistable, filename, remote)


def _save_with(
    executor: Executor,
    dirname: PathName | None,
    program: Program,
    predicate: Callable[[Variable], bool],
    filename: str | None,
    remote: Mapping[str, Array],
) -> bytes | None:
    """Save variables of a trainer's program: its own, and those fetched from servers."""
    expect_executor(executor)
    names = _local_names(program, _chosen(program, None, predicate))
    tensors: dict[str, Tensor] = {n: value_of(n) for n in names if n not in remote}
    tensors |= {name: (array, ()) for name, array in remote.items()}
    return _save(dirname, filename, tensors)


@entry_point
def load_vars(
    executor: Executor,
    dirname: PathName | None,
    main_program: Program | None = None,
    vars: Iterable[Variable] | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | bytes | None = None,
) -> None:
    """Set `vars`, or the variables of a program that match `predicate`, in the global scope.

    Reads the files that `save_vars` writes; with `dirname` None, `filename` is the bytes it
    returned. Raises FileNotFoundError and CheckpointError naming the file, RuntimeError with both
    shapes or dtypes if a file's differ from the program's; in these cases nothing is set.
    """
    place = expect_executor(executor)
    chosen = _chosen(main_program, vars, predicate)
    set_variables(_read(dirname, filename, chosen), place)


def read_persistables(
    dirname: PathName | None, program: Program, filename: str | bytes | None = None
) -> dict[str, LoDTensor]:
    """Read what `load_persistables` would set, by name, without setting it; raises as it does."""
    return _read(dirname, filename, _chosen(program, None, is_persistable))


def _read(
    dirname: PathName | None, filename: str | bytes | None, chosen: Mapping[str, Variable]
) -> dict[str, LoDTensor]:
    if dirname is None and filename is None:
        raise ValueError("dirname and filename cannot both be None: where are the variables?")
    tensors = read_variables(dirname, filename, list(chosen))
    return {name: _checked_tensor(var, *tensors[name]) for name, var in chosen.items()}


@entry_point
def load_params(
    executor: Executor,
    dirname: PathName | None,
    main_program: Program | None = None,
    filename: str | bytes | None = None,
) -> None:
    """Load the parameters of a program as `load_vars` does."""
    load_vars(executor, dirname, main_program, None, is_parameter, filename)


class _Part(Protocol):
    """A variable of a parameter server, which is cut from another one."""

    origin: str

    def cut(self, array: Array) -> Array:
        """Return this part of the values of `origin`."""
        ...


@entry_point
def load_persistables(
    executor: Executor,
    dirname: PathName | None,
    main_program: Program | None = None,
    filename: str | bytes | None = None,
) -> None:
    """Load all persistable variables of a program as `load_vars` does.

    A parameter server's program slices its shards from files with the whole variables; a trainer's
    program loads the variables that trainers hold.
    """
    program = expect_program(main_program)
    parts: dict[str, _Part] = {}
    if parameter_server.has_placement(program):
        parts = parameter_server.parts_of(program)
    if parts:
        place = expect_executor(executor)
        wholes = list(dict.fromkeys(part.origin for part in parts.values()))
        tensors = read_variables(dirname, filename, wholes)
        sliced = {name: LoDTensor(e.cut(tensors[e.origin][1][0])) for name, e in parts.items()}
        set_variables(sliced, place)
        return
    chosen = _chosen(program, None, is_persistable)
    local = [chosen[name] for name in _local_names(program, chosen)]
    load_vars(executor, dirname, program, local, None, filename)


# ---- what they take, where it lies ----


def _remote_values(program: Program) -> Mapping[str, Array]:
    """The variables of a trainer's program that are on servers, whole, by name."""
    on_servers = parameter_server.has_placement(program)
    return parameter_server.merged_values(program) if on_servers else {}


def _local_names(program: Program, names: Iterable[str]) -> list[str]:
    """The variables of a program that this process holds."""
    on_servers = parameter_server.has_placement(program)
    return parameter_server.local_names(program, iter(names)) if on_servers else list(names)


def expect_program(given: object) -> Program:
    """The program, that of a CompiledProgram, or the default main program.

    Raises TypeError for anything else.
    """
    program = given.program if isinstance(given, CompiledProgram) else given
    program = default_main_program() if program is None else program
    if not isinstance(program, Program):
        raise TypeError(
            f"main_program must be a fluid.Program, but received {type(given).__name__}"
        )
    return program


def expect_executor(executor: object) -> Place:
    """The place of an executor; raises TypeError for anything else."""
    if not isinstance(executor, Executor):
        raise TypeError(
            f"executor must be a fluid.Executor, but received {type(executor).__name__}"
        )
    return executor.place


def _chosen(
    main_program: Program | None,
    vars: Iterable[Variable] | None,
    predicate: Callable[[Variable], bool] | None,
) -> dict[str, Variable]:
    program = expect_program(main_program)
    variables = list(filter(predicate, program.list_vars()) if vars is None else vars)
    expect_variables(variables, "vars must be Variables, but received")
    return {var.name: var for var in variables if var.kind is not VarKind.RAW}


def expect_variables(values: Iterable[object], text: str) -> None:
    """Raise TypeError, a text and the type, if a value is not a Variable."""
    for value in values:
        if not isinstance(value, Variable):
            raise TypeError(f"{text} {type(value).__name__}")


def value_of(name: str) -> Tensor:
    """The value of a variable in the global scope; raises NotInitialized without one."""
    variable = global_scope().find_var(name)
    tensor = LoDTensor() if variable is None else variable.get_tensor()
    array = tensor.read()
    if array is None:
        hint = "run the startup program in this scope first"
        raise NotInitialized(f"variable {name!r} has no value to save", hint=hint)
    return array, tuple(tuple(level) for level in tensor.lod())


def _files(
    folder: Path, filename: str | None, tensors: Mapping[str, Tensor]
) -> tuple[Path, dict[str, Writer]]:
    """The folder of the tensor files, and a writer for each file."""
    if filename is not None:
        path = folder / as_path(filename, "filename")
        return path.parent, {path.name: combined_writer(tensors)}
    paths = {name: tensor_path(folder, name) for name in tensors}
    return folder, {name: tensor_writer(str(path), *tensors[name]) for name, path in paths.items()}


def read_variables(
    dirname: PathName | None, filename: str | bytes | None, names: list[str]
) -> dict[str, tuple[str, Tensor]]:
    """The tensor of each name and the file it is in; all are of the same save.

    Raises FileNotFoundError and CheckpointError naming the file.
    """
    if dirname is None:
        return {name: (IN_MEMORY, tensor) for name, tensor in _unpack(filename, names)}
    folder = as_path(dirname, "dirname")
    if filename is not None:
        path = folder / as_path(filename, "filename")
        with reading(path.parent):
            tensors = load_combined(path, names)
        where = one_line(str(path))
        return {name: (where, tensor) for name, tensor in tensors.items()}
    paths = {name: tensor_path(folder, name) for name in names}
    with reading(folder):
        return {name: (one_line(str(path)), load_tensor(path)) for name, path in paths.items()}


def _unpack(data: object, names: list[str]) -> list[tuple[str, Tensor]]:
    if not isinstance(data, bytes):
        raise TypeError(f"without dirname, filename is bytes, but received {type(data).__name__}")
    stream = BytesIO(data)
    tensors = [(name, read_tensor(stream, f"{IN_MEMORY} ({name})")) for name in sorted(names)]
    if left := len(data) - stream.tell():
        actual = f"{left} more bytes after {len(names)} tensors: name all that were saved"
        raise CheckpointError(f"{IN_MEMORY}: expected their end, given {actual}")
    return tensors


def _checked_tensor(var: Variable, where: str, tensor: Tensor) -> LoDTensor:
    """Return a loaded tensor; OtherModel unless its shape and dtype are those of the variable.

    `where` names the file in messages.
    """
    array, lod = tensor
    dims = array.shape if var.dims is None else var.dims
    sizes_fit = all(want < 0 or want == size for want, size in zip(dims, array.shape, strict=False))
    if has_fixed_shape(var) and (len(dims) != array.ndim or not sizes_fit):
        mismatch = f"the shape {dims} in the program, but {array.shape} in {where}"
        raise OtherModel(f"variable {var.name!r} has {mismatch}: was it saved from another model?")
    if var.element.numpy != array.dtype:
        mismatch = f"{var.element.numpy} in the program, but {array.dtype} in {where}"
        raise OtherModel(f"variable {var.name!r} is {mismatch}: was it saved from another model?")
    loaded = LoDTensor(array)
    loaded.set_lod(lod)
    return loaded


def set_variables(tensors: Mapping[str, LoDTensor], place: Place) -> None:
    """Set variables of the global scope, creating missing ones."""
    scope = global_scope()
    for name, loaded in tensors.items():
        tensor = (scope.find_var(name) or scope.var(name)).get_tensor()
        tensor.set(loaded.read(), place)
        tensor.set_lod(loaded.lod())
