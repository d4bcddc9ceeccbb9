"""What steers a program: its input and output, conditional blocks, and the end of a value's life.

None of these computes numbers of its own; converting, running and generating code treat each in
their own way. Their slots and attributes are declared here so that programs can be checked.
"""

from __future__ import annotations

from compiler.ir.opdef import HostOp, OpDef, attr, reads, required, writes
from compiler.ir.program import BlockRef
from compiler.ir.types import TensorType


class Feed(HostOp, op="feed"):
    """Out = column `col` of what the caller feeds, which X stands for. Reference: feed_op.cc."""

    X = reads()
    Out = writes()
    col = required(int)

    def infer(self) -> dict[str, TensorType]:
        return {}


class Fetch(HostOp, op="fetch"):
    """Column `col` of what the caller gets, which Out stands for, is X. Reference: fetch_op.cc."""

    X = reads()
    Out = writes()
    col = required(int)

    def infer(self) -> dict[str, TensorType]:
        return {}


class ConditionalBlock(OpDef, op="conditional_block"):
    """Run the block `sub_block` if Cond is true; what it writes in blocks around it is in Out.

    Cond is one boolean if `is_scalar_condition`, else the block runs where no Cond is empty. Input
    names what the block reads from outside; Scope holds nothing here.
    Reference: conditional_block_op.cc.
    """

    Cond = reads(many=True)
    Input = reads(many=True, optional=True)
    Out = writes(many=True, optional=True)
    Scope = writes(optional=True)
    sub_block = attr(BlockRef(0))
    is_scalar_condition = attr(False)
    skip_eager_deletion_vars = attr(list[str]())

    def infer(self) -> dict[str, TensorType]:
        return {}


class DeleteVar(HostOp, op="delete_var"):
    """Free the memory of X. Reference: delete_var_op.cc."""

    X = reads(many=True)

    def infer(self) -> dict[str, TensorType]:
        return {}
