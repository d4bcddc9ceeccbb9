"""Saving and loading of inference models: a pruned program and its parameters, in one folder.

The program is written as release 1.8.5 writes it, between feed and fetch ops; each release loads
what the other saved.
"""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping, Sequence
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any, cast

from compiler.errors import CompileError, did_you_mean
from compiler.ir.model_format.program_desc import dump_program, load_program
from compiler.support.dataclass import dataclass
from compiler.support.tracebacks import entry_point
from fluid.executor import Executor
from fluid.framework import Program, Variable
from fluid.recording.program_bytes import program_bytes
from fluid.recording.var_types import VarDesc
from fluid.saving.files import PathName, as_path, bytes_writer
from fluid.saving.persistables import (
    IN_MEMORY,
    expect_executor,
    expect_program,
    is_persistable,
    persistable_files,
    read_persistables,
    set_variables,
)
from runtime.files.atomic_saves import Writer, reading, save_files
from runtime.tensors.lod_tensor import LoDTensor

__all__ = [
    "InferenceModel",
    "append_fetch_ops",
    "edges",
    "load_inference_model",
    "prepend_feed_ops",
    "read_inference_model",
    "save_inference_model",
]

MODEL_FILE = "__model__"
LATER_MODEL, LATER_PARAMS = ".pdmodel", ".pdiparams"
"""Suffixes of the files of later releases."""
VarType = VarDesc.VarType


@entry_point
def save_inference_model(
    dirname: PathName,
    feeded_var_names: str | list[str] | None,
    target_vars: Variable | list[Variable],
    executor: Executor,
    main_program: Program | None = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Save the ops that compute the targets from the feeds, with their parameters; returns fetch
    names.

    The program is written to `dirname/__model__` or `model_filename`, the parameters to files with
    their names or all to `params_filename`. The given program is not changed: the results are named
    `save_infer_model/scale_0.tmp_0` and so on, equal at every call. With `export_for_deployment`
    False the whole program is saved, in `__model__.main_program`, and both lists may be empty.

    Raises ValueError if feeds are not names or targets not variables, for a feed that the targets
    do not need and a required data layer that is not fed; otherwise as `save_vars`. Program and
    parameters are written atomically, even if the process is killed.
    """
    feeds = [feeded_var_names] if isinstance(feeded_var_names, str) else feeded_var_names
    feeds = [] if feeds is None and not export_for_deployment else feeds
    targets = [target_vars] if isinstance(target_vars, Variable) else target_vars
    _check_ends(feeds, targets, some=export_for_deployment)
    assert feeds is not None
    expect_executor(executor)
    program = expect_program(main_program).clone()
    program.undo_renaming()
    if any(op.type == "auc" for op in program.global_block().ops):
        warnings.warn(
            "please ensure that you have set the auc states to zeros before saving inference model",
            stacklevel=3,
        )
    named = program.current_names(tuple([var.name for var in targets]))
    results = [_result(program, index, name) for index, name in enumerate(named)]
    if export_for_deployment:
        program = _deployable(program, feeds, results)
    data = dump_program(program) if export_for_deployment else program_bytes(program)
    file = _base_name(model_filename) or MODEL_FILE
    file = file if export_for_deployment else f"{file}.main_program"
    params: dict[str, Writer] = {}
    if program_only:
        warnings.warn("program_only: the parameters are not saved", stacklevel=3)
    else:
        if params_filename is None:
            _expect_other_names(program, file)
        params = persistable_files(program, dirname, _base_name(params_filename))
    save_files(Path(dirname), {**params, file: bytes_writer(data)})
    return results


@entry_point
def load_inference_model(
    dirname: PathName | None,
    executor: Executor,
    model_filename: str | bytes | None = None,
    params_filename: str | bytes | None = None,
    pserver_endpoints: list[str] | None = None,
) -> list[Any]:
    """Load a saved program; returns a list of the program, the feed names and the fetch variables.

    Its parameters are set in the global scope. `dirname` is the folder it was saved in, or the
    prefix of .pdmodel and .pdiparams files of later releases, or such a .pdmodel; with `dirname`
    None, `model_filename` and `params_filename` are bytes. `pserver_endpoints` replace those in its
    ops. Raises ValueError for a missing folder, CompileError for a file that is not a program, and
    the errors of `load_vars`; in these cases nothing is set.
    """
    place = expect_executor(executor)
    model = read_inference_model(dirname, model_filename, params_filename)
    set_variables(model.params, place)
    for op in model.program.global_block().ops if pserver_endpoints else ():
        if op.has_attr("epmap"):
            op.set_attr("epmap", pserver_endpoints)
    return [model.program, [var.name for var in model.feeds], list(model.fetches)]


@dataclass(frozen=True)
class InferenceModel:
    """A program for inference with its feed and fetch variables, and its parameters by name."""

    program: Program
    feeds: tuple[Variable, ...]
    fetches: tuple[Variable, ...]
    params: Mapping[str, LoDTensor]


def read_inference_model(
    dirname: PathName | None,
    model_filename: str | bytes | None = None,
    params_filename: str | bytes | None = None,
) -> InferenceModel:
    """Read an inference model without changing a scope; raises as `load_inference_model`."""
    with reading(_folder(as_path(dirname, "dirname"))) if dirname is not None else nullcontext():
        data, where, folder, params = _model(dirname, model_filename, params_filename)
        program = load_program(data, where, factory=Program)
        feeds, fetches = (tuple(edges(program, kind, where)) for kind in ("feed", "fetch"))
        return InferenceModel(program, feeds, fetches, read_persistables(folder, program, params))


def prepend_feed_ops(
    inference_program: Program, feed_target_names: list[str], feed_holder_name: str = "feed"
) -> None:
    """Insert feed ops: column i of the variable `feed` becomes the i-th feed.

    Raises ValueError for a feed that the program does not have.
    """
    block = inference_program.global_block()
    for name in feed_target_names:
        if not block.has_var(name):
            raise ValueError(f"the program has no feed {name!r}; {did_you_mean(name, block.vars)}")
    block.create_var(name=feed_holder_name, type=VarType.FEED_MINIBATCH, persistable=True)
    for index, name in enumerate(feed_target_names):
        slots = {"X": [feed_holder_name]}, {"Out": [name]}
        block.add_op("feed", *slots, {"col": index, "op_role": 0}, index=0)


def append_fetch_ops(
    inference_program: Program, fetch_target_names: list[str], fetch_holder_name: str = "fetch"
) -> None:
    """Append fetch ops: the i-th result is stored in column i of the variable `fetch`."""
    block = inference_program.global_block()
    block.create_var(name=fetch_holder_name, type=VarType.FETCH_LIST, persistable=True)
    for index, name in enumerate(fetch_target_names):
        slots = {"X": [name]}, {"Out": [fetch_holder_name]}
        block.add_op("fetch", *slots, {"col": index, "op_role": 0})


def _check_ends(feeds: object, targets: object, some: bool) -> None:
    """Raise ValueError if feeds are not names or targets not variables; `some` requires targets."""
    if not _is_list_of(feeds, str):
        raise ValueError(f"'feed_var_names' should be a list of str, but received {feeds!r}")
    if (some and not targets) or not _is_list_of(targets, Variable):
        raise ValueError(f"'target_vars' should be a list of Variable, but received {targets!r}")


def _is_list_of(values: object, kind: type) -> bool:
    is_list = isinstance(values, list | tuple)
    return is_list and all(isinstance(v, kind) for v in cast(Sequence[object], values))


def _expect_other_names(program: Program, file: str) -> None:
    """Raise ValueError if a parameter's file would be the program's file."""
    if any(var.name == file and is_persistable(var) for var in program.list_vars()):
        raise ValueError(
            f"parameter {file!r} and the program would be one file: give a params_filename, which "
            "all parameters go into"
        )


def _result(program: Program, index: int, target: str) -> str:
    """Append the op that names a target as in saved models; returns that name."""
    block = program.global_block()
    var = block.var(target)
    names = (f"save_infer_model/scale_{index}.tmp_{again}" for again in count())
    name = next(name for name in names if not block.has_var(name))
    block.create_var(name=name, dtype=var.dtype, lod_level=var.lod_level)
    block.append_op("scale", {"X": [target]}, {"Out": [name]}, {"scale": 1.0})
    return name


def _deployable(program: Program, feeds: list[str], results: list[str]) -> Program:
    """The pruned program in inference mode, between feed and fetch ops."""
    block = program.global_block()
    for index in reversed(range(len(block.ops))):
        if block.ops[index].type in ("feed", "fetch"):
            block.remove_op(index)
    pruned = program.prune_with_input(list(feeds), [*results]).inference_optimize()
    read = {name for _, names in program.readers for name in names}
    _check_feeds(pruned, feeds, read)
    prepend_feed_ops(pruned, feeds)
    append_fetch_ops(pruned, results)
    return pruned


def _check_feeds(program: Program, feeds: list[str], batches: Container[str]) -> None:
    """Check that fed variables are needed, and that required data layers are fed.

    Values of `batches` came from readers, which are not saved.
    """
    read = {name for block in program.blocks for op in block.ops for name in op.reads()}
    for name in feeds:
        if name not in read:
            hint = did_you_mean(name, sorted(read)) or "feed only what the targets need"
            raise ValueError(f"feed {name!r}: var {name} not in this block of the targets; {hint}")
    for var in program.list_vars():
        if var.is_data and var.name in read and var.name not in feeds and var.name not in batches:
            raise ValueError(f"the targets need the data {var.name!r}: add it to feeded_var_names")


def _model(
    dirname: PathName | None, model: str | bytes | None, params: str | bytes | None
) -> tuple[bytes, str, str | None, str | bytes | None]:
    """The bytes of a saved program, their origin, and the location of its parameters."""
    if dirname is None:
        if not isinstance(model, bytes) or not isinstance(params, bytes):
            what = "without dirname, model_filename and params_filename must both be bytes"
            raise ValueError(
                f"{what}, but received {type(model).__name__}, {type(params).__name__}"
            )
        return model, IN_MEMORY, None, params
    folder, name, params = _located(as_path(dirname, "dirname"), model, params)
    path = folder / (name or MODEL_FILE)
    if not path.is_file():
        hint = "give its name as model_filename, if it has another"
        raise FileNotFoundError(f"there is no saved program {path}: {hint}")
    return path.read_bytes(), str(path), str(folder), params


def _folder(path: Path) -> Path:
    """The folder of a saved model, from the folder or the prefix of its files."""
    return path if path.is_dir() else path.parent


def _located(
    path: Path, model: str | bytes | None, params: str | bytes | None
) -> tuple[Path, str | None, str | None]:
    """The folder of a saved model, and the names of its files."""
    if path.is_dir():
        return path, _base_name(model), _base_name(params)
    prefix = path.stem if path.suffix == LATER_MODEL and path.is_file() else path.name
    if model is None and path.with_name(prefix + LATER_MODEL).is_file():
        return path.parent, prefix + LATER_MODEL, _base_name(params) or prefix + LATER_PARAMS
    hint = "; it is a file: give its folder, and its name as model_filename" * path.is_file()
    raise ValueError(f"there is no directory named {str(path)!r}{hint}")


def edges(program: Program, kind: str, where: str) -> list[Variable]:
    """The variables of the feed or fetch ops, in column order."""
    block = program.global_block()
    ops = [op for op in block.ops if op.type == kind]
    columns = [op.attrs.get("col", 0) for op in ops]
    if any(columns.count(column) != 1 for column in range(len(ops))):
        raise CompileError(f"{where}: its {kind} ops have the columns {columns}, not 0, 1, …")
    names = [op.writes() if kind == "feed" else op.reads() for op in ops]
    for name in names:
        if len(name) != 1 or name[0] not in block.vars:
            raise CompileError(f"{where}: a {kind} op has {name}, not one variable of the program")
    ordered = sorted(zip(columns, names, strict=True))
    return [block.vars[name] for _, (name,) in ordered]


def _base_name(filename: str | bytes | None) -> str | None:
    return as_path(filename, "a file name").name if filename else None
