"""`fluid.save` and `fluid.load`: complete training state, in files with a common prefix.

`.pdparams` contains the parameters by name, `.pdopt` the other persistable variables, `.pdmodel`
the program. The files of `save_params` and related functions can be loaded too. Everything is read
and checked against the program before anything is set.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import numpy as np

from compiler.errors import did_you_mean
from compiler.ir.types import Array
from compiler.support.tracebacks import entry_point
from fluid.executor import Executor
from fluid.framework import Program, Variable
from fluid.saving.files import PathName, as_path, bytes_writer
from fluid.saving.persistables import (
    expect_executor,
    expect_program,
    expect_variables,
    has_fixed_shape,
    is_parameter,
    is_persistable,
    load_vars,
    read_variables,
    set_variables,
    value_of,
)
from fluid.saving.state_file import StateValue, dump_state, load_state
from fluid.saving.variables import is_belong_to_optimizer
from runtime.device import CPUPlace
from runtime.errors import NotInFile, NotInitialized, OtherModel
from runtime.files.atomic_saves import reading, save_files, saved_files
from runtime.files.checkpoint import load_tensor
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["load", "load_program_state", "save", "set_program_state"]

PARAMETERS, OPTIMIZER, MODEL = ".pdparams", ".pdopt", ".pdmodel"


@entry_point
def save(program: Program, model_path: PathName) -> None:
    """Write `model_path` with .pdparams, .pdopt and .pdmodel after it, as release 1.8.5 does.

    The three files are written atomically, even if the process is killed. Raises AssertionError
    for a path that ends in a folder, the errors of `save_files`, and NotInitialized, without
    writing, if a variable has no value yet.
    """
    expect_program(program)
    if not as_path(model_path, "model_path").name or str(model_path).endswith("/"):
        raise AssertionError(f"model_path MUST be dirname/file_prefix, but received {model_path!r}")
    state = {
        PARAMETERS: dump_state(_values(filter(is_parameter, program.list_vars()))),
        OPTIMIZER: dump_state(_values(filter(is_belong_to_optimizer, program.list_vars()))),
        MODEL: program.serialize_to_string(),
    }
    path = as_path(model_path, "model_path")
    save_files(
        path.parent, {path.name + suffix: bytes_writer(data) for suffix, data in state.items()}
    )


@entry_point
def load(
    program: Program,
    model_path: PathName,
    executor: Executor | None = None,
    var_list: Iterable[Variable] | None = None,
) -> None:
    """Set the parameters and other persistable variables of a program from files.

    `model_path` is the path passed to `save`, also with one of its suffixes, or, together with an
    `executor`, a folder or file of `save_vars` and related functions; a file requires `var_list`,
    the variables that it was saved with. Raises FileNotFoundError, CheckpointError for invalid
    files, LookupError for a name that a file or the program lacks, RuntimeError if shapes or
    dtypes differ; in these cases nothing is set.
    """
    if executor is not None:
        expect_executor(executor)
    prefix = _prefix(model_path)
    with reading(Path(prefix).parent):
        is_state = Path(prefix + PARAMETERS).is_file()
        if is_state:
            _load_state(expect_program(program), prefix)
    if is_state:
        return
    if executor is None:
        raise ValueError(
            f"there is no {prefix}{PARAMETERS}: to load what save_params, save_persistables or "
            "save_vars wrote, pass an executor"
        )
    if Path(model_path).is_dir():
        _load_folder(executor, expect_program(program), Path(model_path))
    else:
        _load_file(executor, expect_program(program), Path(model_path), var_list)


@entry_point
def load_program_state(
    model_path: PathName, var_list: Iterable[Variable] | None = None
) -> dict[str, Array]:
    """Read the arrays saved by `save` or `save_vars`, by name; nothing is set.

    In a folder every file is read, or those of `var_list`; a single file requires `var_list`.
    Raises FileNotFoundError, CheckpointError for invalid files, ValueError without `var_list`.
    """
    prefix, path = _prefix(model_path), Path(model_path)
    with reading(Path(prefix).parent):
        if Path(prefix + PARAMETERS).is_file():
            return cast(dict[str, Array], _state_of(prefix))
    variables = None if var_list is None else _expect_variables(var_list)
    if path.is_file() and variables is None:
        raise ValueError(f"{path} has no names: pass the variables it was saved with as var_list")
    if variables is not None:
        folder, filename = (path.parent, path.name) if path.is_file() else (path, None)
        tensors = read_variables(str(folder), filename, [var.name for var in variables])
        return {name: tensor[0] for name, (_, tensor) in tensors.items()}
    with reading(path):
        files = saved_files(path)
        if not files:
            raise FileNotFoundError(f"there is neither {prefix}{PARAMETERS} nor a folder {path}")
        return {file.relative_to(path).as_posix(): load_tensor(file)[0] for file in files}


@entry_point
def set_program_state(program: Program, state_dict: Mapping[str, Array]) -> None:
    """Set the persistable variables of a program that `state_dict` contains.

    The startup program must have run. Names unknown to the program cause a warning. Raises
    AssertionError if a variable has no value yet, or another shape or dtype; then nothing is set.
    """
    wanted = [var for var in expect_program(program).list_vars() if is_persistable(var)]
    for var in wanted:
        _expect_like(var.name, state_dict.get(var.name))
    _set({var.name: state_dict[var.name] for var in wanted if var.name in state_dict})
    unused = sorted(set(state_dict) - {var.name for var in wanted})
    if unused:
        names = ", ".join(unused)
        warnings.warn(f"not set, as the program has no such variable: {names}", stacklevel=3)


# ---- what is saved


def _values(variables: Iterable[Variable]) -> dict[str, Array]:
    return {var.name: value_of(var.name)[0] for var in variables}


# ---- what is loaded


def _prefix(model_path: PathName) -> str:
    path = str(as_path(model_path, "model_path"))
    for suffix in (PARAMETERS, OPTIMIZER, MODEL):
        path = path.removesuffix(suffix)
    return path


def _state_of(
    prefix: str, suffixes: Iterable[str] = (PARAMETERS, OPTIMIZER)
) -> dict[str, StateValue]:
    files = [Path(prefix + suffix) for suffix in suffixes]
    states = [load_state(file.read_bytes(), str(file)) for file in files if file.is_file()]
    return {name: value for state in states for name, value in state.items()}


def _load_state(program: Program, prefix: str) -> None:
    params = [var for var in program.list_vars() if is_parameter(var)]
    others = [var for var in program.list_vars() if is_belong_to_optimizer(var)]
    if others and not Path(prefix + OPTIMIZER).is_file():
        raise FileNotFoundError(f"there is no {prefix}{OPTIMIZER}, but {others[0].name!r} needs it")
    arrays: dict[str, Array] = {}
    for suffix, variables in ((PARAMETERS, params), (OPTIMIZER, others)):
        state = _state_of(prefix, [suffix])
        for var in variables:
            if var.name not in state:
                hint = did_you_mean(var.name, state) or "was it saved from another program?"
                raise NotInFile(f"Can not find {var.name!r} in {prefix}{suffix}; {hint}")
            arrays[var.name] = _checked_array(var, state[var.name], prefix + suffix)
    _set(arrays)


def _checked_array(var: Variable, value: StateValue, where: str) -> Array:
    """Return a loaded value; OtherModel unless it is an array of the variable's shape and dtype."""
    shape, dtype = var.shape, var.element.numpy
    fits = isinstance(value, np.ndarray) and (value.shape == shape or not has_fixed_shape(var))
    if not isinstance(value, np.ndarray) or not fits or value.dtype != dtype:
        array = isinstance(value, np.ndarray)
        actual = f"{value.dtype}{list(value.shape)}" if array else type(value).__name__
        raise OtherModel(
            f"variable {var.name!r} is {dtype}{list(shape)} in the program, but {actual} in {where}"
        )
    return value


def _load_folder(executor: Executor, program: Program, folder: Path) -> None:
    """Load the variables of a program from a folder; warns about its other files."""
    with reading(folder):
        files = {file.relative_to(folder).as_posix() for file in saved_files(folder)}
    wanted = [var for var in program.list_vars() if var.name in files]
    unused = sorted(files - {var.name for var in wanted})
    if unused:
        names = ", ".join(unused)
        warnings.warn(f"files of {folder} that the program has no use for: {names}", stacklevel=4)
    load_vars(executor, str(folder), program, vars=wanted)


def _load_file(
    executor: Executor, program: Program, path: Path, var_list: Iterable[Variable] | None
) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"there is neither {path}{PARAMETERS} nor {path}")
    if var_list is None:
        raise ValueError(f"{path} has no names: pass the variables it was saved with as var_list")
    variables = _expect_variables(var_list)
    names = {var.name for var in program.list_vars()}
    for var in variables:
        if var.name not in names:
            hint = did_you_mean(var.name, names)
            raise LookupError(f"{var.name!r} of var_list is not in the program; {hint}")
    load_vars(executor, str(path.parent), program, vars=variables, filename=path.name)


def _set(arrays: Mapping[str, Array]) -> None:
    set_variables({name: LoDTensor(array) for name, array in arrays.items()}, CPUPlace())


def _expect_variables(var_list: Iterable[Variable]) -> list[Variable]:
    variables = list(var_list)
    expect_variables(variables, "var_list holds Variables, but received")
    return variables


def _expect_like(name: str, given: Array | None) -> None:
    """Raise AssertionError unless a variable has a value of the same shape and dtype."""
    try:
        value, _ = value_of(name)
    except NotInitialized:
        raise AssertionError(
            f"variable {name!r} has no value: run the startup program first, in this scope"
        ) from None
    if given is not None and (value.shape, value.dtype) != (given.shape, given.dtype):
        raise AssertionError(
            f"variable {name!r} is {value.dtype}{list(value.shape)}, "
            f"but the state has {given.dtype}{list(given.shape)}"
        )
