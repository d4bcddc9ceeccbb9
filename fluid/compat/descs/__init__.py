"""Descriptions: a program, block, op or variable with the methods of Paddle's native objects.

`program.desc`, `block.desc`, `op.desc` and `var.desc` return one. A description has no data of
its own: it reads and changes the described object, without the checks of `Block.append_op`. Read
`variables`, then `ops`, then `programs`.
"""

from fluid.compat.descs.ops import OpDesc
from fluid.compat.descs.programs import BlockDesc, ProgramDesc
from fluid.compat.descs.variables import VarDesc

__all__ = ["BlockDesc", "OpDesc", "ProgramDesc", "VarDesc"]
