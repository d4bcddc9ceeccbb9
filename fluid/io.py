"""`fluid.io`: saving and loading, and data readers, under the names of release 1.8.5."""

from __future__ import annotations

from fluid.dataloader import BatchSampler as BatchSampler
from fluid.dataloader import Dataset
from fluid.reader import DataLoader, PyReader, default_collate_fn
from fluid.reading.decorators import (
    ComposeNotAligned,
    batch,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)
from fluid.saving.graph_nodes import load_persistable_nodes, save_persistable_nodes
from fluid.saving.inference_model import (
    append_fetch_ops,
    load_inference_model,
    prepend_feed_ops,
    save_inference_model,
)
from fluid.saving.of_servers import (
    load_distributed_persistables,
    replace_endpoints,
    save_distributed_persistables,
)
from fluid.saving.persistables import (
    expect_program,
    get_program_parameter,
    get_program_persistable_vars,
    is_parameter,
    is_persistable,
    load_params,
    load_persistables,
    load_vars,
    save_params,
    save_persistables,
    save_vars,
)
from fluid.saving.program_state import load, load_program_state, save, set_program_state
from fluid.saving.variables import (
    clone_var_in_block,
    get_parameter_value,
    get_parameter_value_by_name,
    is_belong_to_optimizer,
)

_clone_var_in_block_ = clone_var_in_block
_endpoints_replacement = replace_endpoints
_get_valid_program = expect_program
_load_distributed_persistables = load_distributed_persistables
_save_distributed_persistables = save_distributed_persistables
_load_persistable_nodes = load_persistable_nodes
_save_persistable_nodes = save_persistable_nodes

__all__ = [
    "save_vars",
    "save_params",
    "save_persistables",
    "load_vars",
    "load_params",
    "load_persistables",
    "save_inference_model",
    "load_inference_model",
    "batch",
    "save",
    "load",
    "load_program_state",
    "set_program_state",
    "get_program_parameter",
    "get_program_persistable_vars",
    "is_parameter",
    "is_persistable",
    "prepend_feed_ops",
    "append_fetch_ops",
    "PyReader",
    "DataLoader",
    "Dataset",
    "get_parameter_value",
    "get_parameter_value_by_name",
    "is_belong_to_optimizer",
    "default_collate_fn",
    "cache",
    "map_readers",
    "buffered",
    "compose",
    "chain",
    "shuffle",
    "ComposeNotAligned",
    "firstn",
    "xmap_readers",
    "multiprocess_reader",
]
