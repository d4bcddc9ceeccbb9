"""Checkpoints of eager mode: `.pdparams` and `.pdopt` files of release 1.8.5."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compiler.support.tracebacks import entry_point
from fluid.eager.variables import ParamBase, VarBase
from fluid.framework import in_dygraph_mode
from fluid.saving.files import bytes_writer
from fluid.saving.state_file import dump_state, load_checkpoint
from runtime.files.atomic_saves import reading, save_files

__all__ = ["load_dygraph", "save_dygraph"]

PARAMETERS, OPTIMIZER = ".pdparams", ".pdopt"
NAMES = "StructuredToParameterName@@"
"""The key of the variables' names, by their keys in the dict that was saved."""


@entry_point
def save_dygraph(state_dict: Mapping[str, object], model_path: str) -> None:
    """Write a `state_dict` to `model_path` with .pdparams, or .pdopt if it is an optimizer's.

    Raises AssertionError for an empty dict, a path that ends in a folder, and outside eager mode.
    """
    _expect_eager("save_dygraph")
    path = Path(model_path)
    assert path.name and not str(model_path).endswith("/"), (
        "The input model_path MUST be format of dirname/filename, but received filename is empty "
        "string."
    )
    assert state_dict, "state_dict is empty, no need to save"
    is_model = isinstance(next(iter(state_dict.values())), ParamBase)
    values = {key: _value(value) for key, value in state_dict.items()}
    variables = {key: value for key, value in state_dict.items() if isinstance(value, VarBase)}
    values[NAMES] = {key: variable.name for key, variable in variables.items()}
    name = path.name + (PARAMETERS if is_model else OPTIMIZER)
    save_files(path.parent, {name: bytes_writer(dump_state(values))})


def _value(value: object) -> Any:
    return np.asarray(value.array()) if isinstance(value, VarBase) else value


@entry_point
def load_dygraph(
    model_path: str, keep_name_table: bool = False
) -> tuple[dict[str, object], dict[str, object] | None]:
    """Return the dicts of parameters and of the optimizer, None if there is none.

    `model_path` is that of `save_dygraph`, also with one of its suffixes. Files are parsed as data:
    anything but arrays, numbers and strings raises CheckpointError. RuntimeError for a model that
    does not exist, AssertionError outside eager mode.
    """
    _expect_eager("load_dygraph")
    prefix = str(model_path).removesuffix(PARAMETERS).removesuffix(OPTIMIZER)
    files = [Path(prefix + suffix) for suffix in (PARAMETERS, OPTIMIZER)]
    if not files[0].is_file():
        raise RuntimeError(f"Parameter file [ {files[0]} ] not exists")
    with reading(files[0].parent):
        params, optimizer = [
            load_checkpoint(file.read_bytes(), str(file)) if file.is_file() else None
            for file in files
        ]
    assert params is not None
    if not keep_name_table:
        params.pop(NAMES, None)
    return params, optimizer


def _expect_eager(function: str) -> None:
    assert in_dygraph_mode(), (
        f"{function} can only be used in dygraph mode: within fluid.dygraph.guard()"
    )
