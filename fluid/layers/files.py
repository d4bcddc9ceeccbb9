"""Layers that save or load variables each time the program runs.

Release 1.8.5 defines them in `layers.tensor`, outside `__all__`, where they fail: the slots and
attributes that they name do not exist.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.recording.annotations import Attributes, Slots
from fluid.recording.checks import check_type

__all__ = ["load_combine", "save", "save_combine"]


def save(x: Variable, file_path: str, overwrite: bool = True) -> None:
    """Save a variable to a file; an existing file is an error at run time unless `overwrite`."""
    check_type(x, "x", Variable, "save")
    _append("save", {"X": x}, {}, {"file_path": file_path, "overwrite": overwrite})


def save_combine(x: Sequence[Variable], file_path: str, overwrite: bool = True) -> None:
    """Save variables, in order, to one file."""
    check_type(x, "x", (list, tuple), "save_combine")
    attrs = {"file_path": file_path, "overwrite": overwrite}
    _append("save_combine", {"X": list(x)}, {}, attrs)


def load_combine(out: Sequence[Variable], file_path: str) -> None:
    """Load the variables that `save_combine` saved, in the same order."""
    check_type(out, "out", (list, tuple), "load_combine")
    _append("load_combine", {}, {"Out": list(out)}, {"file_path": file_path})


def _append(kind: str, inputs: Slots, outputs: Slots, attrs: Attributes) -> None:
    LayerHelper(kind).append_op(kind, inputs=inputs, outputs=outputs, attrs=attrs)
