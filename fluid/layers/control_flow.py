"""Public module of the control flow layers: conditions, branches, loops and arrays."""

from __future__ import annotations

from fluid.layers.control.arrays import (
    array_length,
    array_read,
    array_to_lod_tensor,
    array_write,
    create_array,
    lod_rank_table,
    lod_tensor_to_array,
    max_sequence_len,
    merge_lod_tensor,
    reorder_lod_tensor_by_rank,
    select_input,
    select_output,
    shrink_memory,
    split_lod_tensor,
)
from fluid.layers.control.blocks import BlockGuard, ConditionalBlock, ConditionalBlockGuard
from fluid.layers.control.branches import IfElse, Switch, case, cond, switch_case
from fluid.layers.control.dynamic_rnn import DynamicRNN
from fluid.layers.control.host import Assert, Print
from fluid.layers.control.logic import (
    equal,
    greater_equal,
    greater_than,
    increment,
    less_equal,
    less_than,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
)
from fluid.layers.control.loops import While, while_loop
from fluid.layers.control.static_rnn import StaticRNN

__all__ = [
    "Assert",
    "BlockGuard",
    "ConditionalBlock",
    "ConditionalBlockGuard",
    "DynamicRNN",
    "IfElse",
    "Print",
    "StaticRNN",
    "Switch",
    "While",
    "array_length",
    "array_read",
    "array_to_lod_tensor",
    "array_write",
    "case",
    "cond",
    "create_array",
    "equal",
    "greater_equal",
    "greater_than",
    "increment",
    "less_equal",
    "less_than",
    "lod_rank_table",
    "lod_tensor_to_array",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "max_sequence_len",
    "merge_lod_tensor",
    "not_equal",
    "reorder_lod_tensor_by_rank",
    "select_input",
    "select_output",
    "shrink_memory",
    "split_lod_tensor",
    "switch_case",
    "while_loop",
]
