"""Programs with `save`, `load`, `save_combine` and `load_combine` in their main block.

Compiled code accesses no files. A program is split at such ops: the parts between them are compiled
and run, and the Executor reads and writes the files itself.

A program decoded from a file or from bytes is untrusted and may name any file. Its file ops run
only on files inside the folder in FLUID_MODEL_FILES. An op appended by a script of this process
(`Operator.recorded`) is trusted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from compiler.ir.opdef.type_inference import check_slots, op_text
from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from compiler.support.per_version import PerVersion
from compiler.support.settings.fluid import FLUID_MODEL_FILES
from fluid.framework import Operator, Program
from fluid.recording.pruning import drop_blocks, reads_of
from fluid.running.fetched_values import Value
from fluid.running.route import Run
from runtime.device import CPUPlace
from runtime.errors import FileAccessError, NotInitialized
from runtime.files.atomic_saves import reading, save_files
from runtime.files.checkpoint import Tensor, load_in_order, load_tensor, records_writer
from runtime.sizes import LOD
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope

__all__ = ["FileStages"]

READS, WRITES = ("load", "load_combine"), ("save", "save_combine")


class FileStages:
    """Runs programs with file ops in stages; `run` is that of the Executor."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._stages: PerVersion[Program, dict[tuple[str, ...], Stages]]
        self._stages = PerVersion(lambda program: {})

    def applies(self, program: Program) -> bool:
        """Whether the main block of a program has a file op."""
        return any(op.type in READS + WRITES for op in program.global_block().ops)

    def run(
        self, program: Program, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope,
        on_device: bool = False,
    ) -> list[Value]:  # fmt: skip
        """Run all stages of a program; returns and raises as `Stages.run`."""
        stages = self._stages[program]
        if fetch not in stages:
            stages[fetch] = cut(program.copied(), fetch)  # results must not refer to the program
        return stages[fetch].run(partial(self._run, scope=scope), feed, fetch, scope)


@dataclass(frozen=True)
class Computed:
    """A stage without file ops, its feeds if known, and the values later stages need."""

    program: Program
    reads: frozenset[str]
    left: tuple[str, ...]


@dataclass(frozen=True)
class Stages:
    """A program as a list of stages; `kept` are its persistable variables."""

    steps: tuple[Computed | Operator, ...]
    kept: frozenset[str]

    def run(
        self, run: Run, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope
    ) -> list[Value]:
        """Run all stages; returns the fetched values, arrays or LoDTensors.

        Raises FileAccessError before anything runs if an op may not access its file; then the
        errors of the stages, FileAccessError for a file that is missing or must not be replaced,
        and CheckpointError for a file with other contents.
        """
        paths = {step: allowed(step) for step in self.steps if isinstance(step, Operator)}
        values = with_lod(feed)
        for step in self.steps:
            if isinstance(step, Computed):
                step_feed = {name: value for name, value in values.items() if name in step.reads}
                results = run(step.program, step_feed, list(step.left), return_numpy=False)
                values |= dict(zip(step.left, results, strict=True))
            elif step.type in READS:
                self._set(loaded(step, paths[step]), values, scope)
            else:
                names = step.inputs["X"]
                save(step, paths[step], {name: value_of(name, values, scope) for name in names})
        results = [value_of(name, values, scope) for name in fetch]
        return [tensor if tensor.lod() else np.asarray(tensor) for tensor in results]

    def _set(self, found: Mapping[str, Tensor], values: dict[str, LoDTensor], scope: Scope) -> None:
        """Store the values read, in the scope if the variable is persistable."""
        for name, (array, lod) in found.items():
            tensor = scope.var(name).get_tensor() if name in self.kept else LoDTensor()
            tensor.set(array, CPUPlace())
            tensor.set_lod(lod)
            if name not in self.kept:
                values[name] = tensor


def with_lod(feed: Mapping[str, Array]) -> dict[str, LoDTensor]:
    """Feeds by name, with their LoD offsets attached."""
    values = {name: LoDTensor(array) for name, array in feed.items() if LOD not in name}
    for name, tensor in values.items():
        levels = [key for key in feed if key.startswith(f"{name}{LOD}")]
        if levels:
            tensor.set_lod([feed[key].tolist() for key in levels])
    return values


def value_of(name: str, values: Mapping[str, LoDTensor], scope: Scope) -> LoDTensor:
    """The current value of a variable; raises NotInitialized without one."""
    value = values.get(name)
    variable = scope.find_var(name) if value is None else None
    tensor = value if variable is None else variable.get_tensor()
    if tensor is None or tensor.read() is None:
        hint = "run the startup program in this scope first"
        raise NotInitialized(f"variable {name!r} has no value", hint=hint)
    return tensor


# ---- cutting


def cut(program: Program, fetch: tuple[str, ...]) -> Stages:
    """Split a program into stages at its file ops."""
    ops = program.global_block().ops
    positions = [at for at, op in enumerate(ops) if op.type in READS + WRITES]
    persistable = frozenset(var.name for var in program.list_vars() if var.persistable)
    steps: list[Computed | Operator] = []
    for start, end in zip([0, *(at + 1 for at in positions)], [*positions, len(ops)], strict=True):
        if start < end:
            later = {name for op in ops[end:] for name in reads_of(program, op)} | {*fetch}
            steps.append(computed(program, start, end, later - persistable))
        steps += ops[end : end + 1]
    return Stages(tuple(steps), persistable)


def computed(program: Program, start: int, end: int, later: set[str]) -> Computed:
    """The stage of ops `start` to `end` of the main block; `later` are names that later stages
    read.
    """
    copied = program.copied()
    main = copied.global_block()
    main.ops = main.ops[start:end]
    copied.readers = []
    reads = frozenset(name for op in main.ops for name in reads_of(copied, op))
    written = dict.fromkeys(name for op in main.ops for name in op.writes())
    drop_blocks(copied)
    copied.touch()
    return Computed(copied, reads, tuple(name for name in written if name in later))


# ---- files


def allowed(op: Operator) -> Path:
    """The resolved path of an op's file; raises FileAccessError if the op may not access it."""
    check_slots(op)
    file_path = op.attrs.get("file_path")
    if op.attrs.get("model_from_memory") or op.attrs.get("save_to_memory"):
        hint = "pass the bytes to fluid.io.load_vars, or save to a file"
        raise failure(op, "saves to memory, which is not supported", hint)
    if not isinstance(file_path, str) or not file_path or "\0" in file_path:
        raise failure(op, "has no file", "give it a path")
    path, folder = Path(os.path.realpath(file_path)), FLUID_MODEL_FILES.read()
    inside = bool(folder) and path.is_relative_to(os.path.realpath(str(folder)))
    if op.recorded or inside:
        return path
    verb = "write" if op.type in WRITES else "read"
    raise failure(
        op,
        f"is in a decoded program and must not {verb} files",
        f"set the environment variable {FLUID_MODEL_FILES.name} to a folder that holds the file if "
        "you trust the program with that folder, or remove the op",
    )


def failure(op: Operator, what: str, hint: str) -> FileAccessError:
    """A FileAccessError with the op and its file."""
    message = f"{op.type} on the file {op.attrs.get('file_path')!r:.300} {what}"
    return FileAccessError(message, op=op_text(op), source=op.source, hint=hint)


def loaded(op: Operator, path: Path) -> dict[str, Tensor]:
    """The tensors that an op reads, by the names of its outputs."""
    names = op.outputs["Out"]
    if not path.is_file():
        raise failure(op, "finds no such file", "save the variable first, or check the path")
    with reading(path.parent):
        combined = op.type == "load_combine"
        tensors = load_in_order(path, names) if combined else [load_tensor(path)]
    tensors = [part_of(op, tensor) for tensor in tensors]
    if op.attrs.get("load_as_fp16"):
        tensors = [(array.astype(np.float16), lod) for array, lod in tensors]
    return dict(zip(names, tensors, strict=True))


def part_of(op: Operator, tensor: Tensor) -> Tensor:
    """The tensor, or the elements selected by `seek` and `shape`; FileAccessError
    beyond its end.
    """
    start: int = op.attrs.get("seek", -1)
    shape: list[int] = op.attrs.get("shape") or []
    if start < 0:
        return tensor
    flat, count = tensor[0].reshape(-1), prod(shape)
    if min(shape, default=0) < 0 or start + count > flat.size:
        what = f"reads {shape} from element {start} of only {flat.size}"
        raise failure(op, what, "check its attributes 'seek' and 'shape'")
    return flat[start : start + count].reshape(shape), ()


def save(op: Operator, path: Path, tensors: Mapping[str, LoDTensor]) -> None:
    """Write tensors to the file of an op, atomically."""
    if path.exists() and not op.attrs.get("overwrite", True):
        raise failure(op, "must not replace an existing file", "set its attribute 'overwrite'")
    records: list[tuple[str, Tensor]] = []
    for name in op.inputs["X"]:
        array = np.asarray(tensors[name])
        if op.attrs.get("save_as_fp16"):
            array = array.astype(np.float16)
        records.append((name, (array, tuple(map(tuple, tensors[name].lod())))))
    save_files(path.parent, {path.name: records_writer(records)})
