"""Every kind of save, of a program whose variables all hold the number of their version.

`load` collects the versions of everything a load returns, the program's among them: a set of one
number is a whole save, a set of two a torn one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fluid

PREFIX, TOGETHER = "state", "all"


@dataclass(frozen=True)
class Versioned:
    """A program of a version; half of its variables are parameters, half an optimizer's."""

    program: fluid.Program
    result: fluid.Variable
    scope: fluid.Scope

    @property
    def executor(self) -> fluid.Executor:
        """An executor on the CPU."""
        return fluid.Executor(fluid.CPUPlace())


def versioned(version: int, count: int, size: int) -> Versioned:
    """A program with `count` variables of `size` float32 numbers, all equal to `version`."""
    main, scope = fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [size])
        variables = [_variable(main, index, size) for index in range(count)]
        result = fluid.layers.scale(fluid.layers.sums([x, *variables]), float(version))
    for var in variables:
        value = np.full(size, version, np.float32)
        scope.var(var.name).get_tensor().set(value, fluid.CPUPlace())
    return Versioned(main, result, scope)


def _variable(program: fluid.Program, index: int, size: int) -> fluid.Variable:
    block = program.global_block()
    if index % 2:
        return block.create_var(
            name=f"moment_{index}", shape=[size], dtype="float32", persistable=True
        )
    return block.create_parameter(name=f"weight_{index}", shape=[size], dtype="float32")


@dataclass(frozen=True)
class Kind:
    """A kind of checkpoint: how it is saved into a folder, and the versions that a load returns."""

    name: str
    save: Callable[[Versioned, Path], object]
    load: Callable[[Versioned, Path], set[float]]


def _values(arrays: Iterable[Any]) -> set[float]:
    return {float(number) for array in arrays for number in np.unique(np.asarray(array))}


def _scale(program: fluid.Program) -> float:
    """The version of a program: the factor of its first op `scale`."""
    ops = program.global_block().ops
    return float(next(op.attr("scale") for op in ops if op.type == "scale"))


def _in_scope(load: Callable[[], object], program: fluid.Program) -> set[float]:
    with fluid.scope_guard(fluid.Scope()):
        load()
        scope = fluid.global_scope()
        names = [var.name for var in program.list_vars() if fluid.io.is_persistable(var)]
        return _values(scope.find_var(name).get_tensor() for name in names)


def _load_variables(filename: str | None) -> Callable[[Versioned, Path], set[float]]:
    def load(model: Versioned, folder: Path) -> set[float]:
        place = str(folder), model.program, filename
        values = _in_scope(
            lambda: fluid.io.load_persistables(model.executor, *place), model.program
        )
        if filename is not None:
            return values
        with fluid.scope_guard(fluid.Scope()):
            return values | _values(fluid.load_program_state(str(folder)).values())

    return load


def _load_state(model: Versioned, folder: Path) -> set[float]:
    state = fluid.load_program_state(str(folder / PREFIX))
    program = fluid.Program.parse_from_string((folder / f"{PREFIX}.pdmodel").read_bytes())
    return _values(state.values()) | {_scale(program)}


def _load_model(params: str | None) -> Callable[[Versioned, Path], set[float]]:
    def load(model: Versioned, folder: Path) -> set[float]:
        with fluid.scope_guard(fluid.Scope()):
            program, _, _ = fluid.io.load_inference_model(
                str(folder), model.executor, params_filename=params
            )
            scope = fluid.global_scope()
            names = [v.name for v in program.list_vars() if fluid.io.is_persistable(v)]
            tensors = [scope.find_var(name).get_tensor() for name in names]
            return _values(tensors) | {_scale(program)}

    return load


def _save_variables(filename: str | None) -> Callable[[Versioned, Path], object]:
    return lambda model, folder: fluid.io.save_persistables(
        model.executor, str(folder), model.program, filename
    )


def _save_model(params: str | None) -> Callable[[Versioned, Path], object]:
    return lambda model, folder: fluid.io.save_inference_model(
        str(folder), ["x"], [model.result], model.executor, model.program, params_filename=params
    )


KINDS = (
    Kind("separate", _save_variables(None), _load_variables(None)),
    Kind("combined", _save_variables(TOGETHER), _load_variables(TOGETHER)),
    Kind(
        "fluid.save",
        lambda model, folder: fluid.save(model.program, str(folder / PREFIX)),
        _load_state,
    ),
    Kind("model, separate", _save_model(None), _load_model(None)),
    Kind("model, combined", _save_model(TOGETHER), _load_model(TOGETHER)),
)


def save(kind: Kind, model: Versioned, folder: Path) -> None:
    """Save a version of the variables into a folder."""
    with fluid.scope_guard(model.scope):
        kind.save(model, folder)


def leftovers(folder: Path) -> list[str]:
    """Files and folders that are not part of a checkpoint: drafts and records of saves."""
    return sorted(path.name for path in folder.rglob(".*"))
