"""Small inputs for every op, used to check types, gradients and generated code.

Each module is an op family with a list `SAMPLES`; `samples()` collects them all. Shapes are uneven
and values distinct, so that a swapped axis or a dropped element is detected.
"""

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCKS = (
    "conditional_block conditional_block_grad conditional_block_infer if loop recurrent "
    "recurrent_grad unwind while while_grad"
).split()
_ARRAYS = (
    "add_to_array array_to_lod_tensor beam_search_decode copy_array empty_array lod_array_length "
    "lod_tensor_to_array read_from_array stack_steps sum_arrays take_from_array "
    "tensor_array_to_tensor write_to_array"
).split()

_SERVED = (
    "checkpoint_notify distributed_lookup_table fetch_barrier fetched listen_and_serv prefetch recv "
    "recv_save remote_hierarchical_sigmoid remote_nce send send_barrier sum_over_servers"
).split()
_FILES = "load load_combine save save_combine".split()

WITHOUT_NUMBERS = {
    "feed": "the executor hands its value over",
    "fetch": "the executor takes its value away",
    "delete_var": "it frees memory",
    "pack_bucket": "gradients of known sizes, with anything between them: see tests/distribute",
    "unpack_bucket": "the same, taken apart",
    "wait_all_reduce": "it waits for what another op started: see tests/distribute",
    "fusion_seqexpand_concat_fc": "its first X alone has a LoD, see test_recorded.py",
    "py_func": "the program has the function, see test_print.py",
    **dict.fromkeys(_SERVED, "parameter servers have its numbers, see test_ps.py"),
    **dict.fromkeys(_FILES, "it reads or writes a file: see tests/fluid/running/test_file_ops.py"),
    **dict.fromkeys(_BLOCKS, "it computes what the ops in its block compute"),
    **dict.fromkeys(_ARRAYS, "it reads or makes a tensor array, see test_tensor_arrays.py"),
}
"""Forward ops that compute no numbers of their own, or on no tensors, each with the reason."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One call of an op.

    `inputs` has an array for each slot, or a list of them for a slot with many; `grads` names the input
    slots whose gradient is compared with finite differences.
    """

    op: str
    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    grads: tuple[str, ...] = ()


@cache
def samples() -> tuple[Sample, ...]:
    """Return every sample of every family, families in order of their names."""
    names = sorted(found.name for found in pkgutil.iter_modules(__path__))
    families = [import_module(f"{__name__}.{name}") for name in names]
    return tuple(sample for family in families for sample in family.SAMPLES)


def numbers(*shape: int, low: float = -1.0, high: float = 1.0, seed: int = 0) -> NDArray[Any]:
    """Return float32 values between `low` and `high`, evenly spaced and shuffled.

    No two are equal within one array or across seeds, and none is 0 where `low` is `-high`.
    """
    count = int(np.prod(shape))
    steps = (np.arange(count) + 0.37 + 0.01 * seed) * ((high - low) / count)
    order = np.random.default_rng(seed).permutation(count)
    return (low + steps)[order].reshape(shape).astype(np.float32)


def integers(*shape: int, low: int = 0, high: int, seed: int = 0) -> NDArray[Any]:
    """Return int64 values of `low <= value < high`."""
    return np.random.default_rng(seed).integers(low, high, shape)
