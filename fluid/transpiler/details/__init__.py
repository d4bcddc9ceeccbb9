"""What release 1.8's transpilers are made of: programs as code, union-find, waiting for servers."""

from fluid.transpiler.details.checkport import wait_server_ready
from fluid.transpiler.details.program_utils import (
    block_to_code,
    delete_ops,
    find_op_by_input_arg,
    find_op_by_output_arg,
    get_indent_space,
    op_to_code,
    program_to_code,
    variable_to_code,
)
from fluid.transpiler.details.ufind import UnionFind
from fluid.transpiler.details.vars_distributed import VarDistributed, VarsDistributed, VarStruct

__all__ = [
    "UnionFind",
    "VarDistributed",
    "VarStruct",
    "VarsDistributed",
    "block_to_code",
    "delete_ops",
    "find_op_by_input_arg",
    "find_op_by_output_arg",
    "get_indent_space",
    "op_to_code",
    "program_to_code",
    "variable_to_code",
    "wait_server_ready",
]
