"""Ops that read or write tensor files; `fluid.Executor` runs them between other ops.

They are never part of a compiled module, so compiled code does no file I/O: see
fluid/running/file_ops.py.
"""

from __future__ import annotations

from compiler.ir.opdef import HostOp, Slots, attr, attr_list, reads, required, writes
from compiler.ir.types import TensorType


class FileOp(HostOp):
    """An op on the file `file_path`; loaded types are those of the file."""

    no_kernel_reason = "it reads or writes a file"

    file_path = required(str)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}


class Save(FileOp, op="save"):
    """Write X to a file; on a parameter server, below the directory of `checkpoint_notify`.

    Without `overwrite` an existing file is an error. Reference: save_op.cc.
    """

    X = reads()
    kLookupTablePath = writes(optional=True)
    overwrite = attr(True)
    save_as_fp16 = attr(False)


class SaveCombine(FileOp, op="save_combine"):
    """Write all of X to one file, consecutively. Reference: save_combine_op.cc."""

    X = reads(many=True)
    Y = writes(optional=True)
    overwrite = attr(True)
    save_as_fp16 = attr(False)
    save_to_memory = attr(False)


class Load(FileOp, op="load"):
    """Out = the tensor in a file.

    With a non-negative `seek`, only the elements from that offset that fill the shape `shape`.
    Reference: load_op.cc.
    """

    Out = writes()
    load_as_fp16 = attr(False)
    seek = attr(-1)
    shape = attr_list(int)


class LoadCombine(FileOp, op="load_combine"):
    """Out = all tensors of a file, in order. Reference: load_combine_op.cc."""

    Out = writes(many=True)
    load_as_fp16 = attr(False)
    model_from_memory = attr(False)
