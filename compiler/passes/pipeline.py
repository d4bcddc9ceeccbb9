"""The pipeline: the order of the passes as one list.

A pass of this package that declares the pass it runs before or after is not in the list.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

from compiler.errors import did_you_mean
from compiler.options import Options
from compiler.passes.base import Pass
from compiler.passes.device.assign_targets import AssignTargets, OpTarget
from compiler.passes.device.capture_step import CaptureStep
from compiler.passes.device.draw_keys import DrawKeys
from compiler.passes.device.layout import Layout
from compiler.passes.device.name_sizes import NameSizes
from compiler.passes.device.narrow_floats import NarrowFloats
from compiler.passes.distribute.bucket_all_reduces import BucketAllReduces, CompressAllReduces
from compiler.passes.fusion.fuse_batch_norm import FuseBatchNorm
from compiler.passes.fusion.fuse_epilogue import FuseEpilogue
from compiler.passes.fusion.fuse_pointwise import FusePointwise
from compiler.passes.fusion.group_updates import GroupUpdates
from compiler.passes.fusion.merge_squares import MergeSquares
from compiler.passes.fusion.quantized_products import QuantizedProducts
from compiler.passes.fusion.split_batch_norm import SplitBatchNorm
from compiler.passes.memory.insert_deletes import InsertDeletes
from compiler.passes.memory.recompute import Recompute
from compiler.passes.memory.reuse_memory import ReuseMemory
from compiler.passes.memory.schedule import Schedule
from compiler.passes.registry import insert_anchored, insert_registered, registered_names
from compiler.passes.simplify.drop_unread import DropUnread
from compiler.passes.simplify.eliminate_dead import EliminateDead
from compiler.passes.simplify.fold_constants import FoldConstants
from compiler.passes.simplify.merge_common import MergeCommon
from compiler.passes.simplify.merge_reshapes import MergeReshapes
from compiler.passes.simplify.merge_transposes import MergeTransposes
from compiler.passes.simplify.remove_dropout import RemoveDropout
from compiler.passes.simplify.remove_identities import RemoveIdentities
from compiler.passes.simplify.resolve_sizes import ResolveSizes

_LISTED: tuple[type[Pass], ...] = (
    ResolveSizes,
    DropUnread,
    RemoveDropout,
    RemoveIdentities,
    FuseBatchNorm,
    SplitBatchNorm,
    QuantizedProducts,
    NarrowFloats,
    Layout,
    FoldConstants,
    MergeTransposes,
    MergeReshapes,
    MergeCommon,
    EliminateDead,
    BucketAllReduces,
    MergeSquares,
    GroupUpdates,
    FusePointwise,
    FuseEpilogue,
    Schedule,
    Recompute,
    ReuseMemory,
    InsertDeletes,
)


def _self_placed() -> Iterator[type[Pass]]:
    """Yield the passes of this package that declare their position, in order of their modules."""
    found = pkgutil.walk_packages([str(Path(__file__).parent)], f"{__package__}.")
    for path in sorted(each.name for each in found if not each.ispkg and each.name != __name__):
        for made in vars(import_module(path)).values():
            if isinstance(made, type) and issubclass(made, Pass) and made.__module__ == path:
                yield made


PASSES: tuple[type[Pass], ...] = tuple(insert_anchored(_LISTED, _self_placed()))
"""Every pass, in the order of execution."""


_WHOLE_OPS = {each.name for each in PASSES} - {"schedule", "reuse_memory", "insert_deletes"}
"""Passes that are disabled so that each op of the program computes its own outputs."""


def pipeline(options: Options, target: OpTarget | None = None) -> list[Pass]:
    """Return the enabled passes in order; with a `target`, ops are assigned to it.

    Layout is not for NumPy, products of bytes are for native code; merged squares and grouped
    updates are for devices only. Memory planning requires a fixed schedule, so without its search
    `schedule` keeps the original order. Without a memory budget nothing is recomputed, without a
    `dtype` nothing is cast. Registered passes in the options are inserted at their positions;
    raises CompileError for unknown ones.
    """
    off = options.disable - {Schedule.name} | (_WHOLE_OPS if options.check_numbers else set[str]())
    off |= {Recompute.name} if options.memory_budget is None else set[str]()
    off |= {Layout.name} if target is None else set[str]()
    off |= {QuantizedProducts.name} if target is None or target.on_device else set[str]()
    off |= set[str]() if target and target.on_device else {MergeSquares.name, GroupUpdates.name}
    narrow = None if options.dtype == "fp32" else options.dtype
    off |= {NarrowFloats.name} if narrow is None else set[str]()
    kept = [each() for each in insert_registered(PASSES, options.added) if each.name not in off]
    kept = [
        NarrowFloats(narrow) if narrow and type(each) is NarrowFloats else each for each in kept
    ]
    bytewise = target is not None and target.multiplies_bytes
    kept = [
        QuantizedProducts(bytewise) if type(each) is QuantizedProducts else each for each in kept
    ]
    kept = [_layout(target.on_device) if target and type(each) is Layout else each for each in kept]
    kept = [_bucketing(options) if type(each) is BucketAllReduces else each for each in kept]
    as_written = options.check_numbers or Schedule.name in options.disable
    kept = [Schedule(search=not as_written) if type(each) is Schedule else each for each in kept]
    if target is None:
        return kept
    behind = GroupUpdates | FusePointwise | Schedule
    place = next(i for i, each in enumerate(kept) if isinstance(each, behind))
    keys = DrawKeys(target.supports, unseeded_dropouts=not target.on_device)
    device = [NameSizes(), keys] if target.on_device else [keys]
    last = [CaptureStep()] if options.cuda_graph and target.on_device else []
    return [*kept[:place], *device, AssignTargets(target), *kept[place:], *last]


def _layout(on_device: bool) -> Layout:
    """Return the pass that chooses layouts; on a CPU a convolution in the original one takes as
    long as dozens of reads of its images.
    """
    return Layout(permutes_filters=True) if on_device else Layout(extra_reads=64)


def _bucketing(options: Options) -> BucketAllReduces:
    """Return the pass that all-reduces gradients, configured by the options."""
    kind = BucketAllReduces if options.compress is None else CompressAllReduces
    return kind(options.bucket_bytes, options.overlap, options.compress)


def left_out(
    disable: Iterable[str] = (), only: Iterable[str] = (), stop_after: str | None = None
) -> frozenset[str]:
    """Return the passes to disable: `disable`, all not in `only` (unless empty), and all after
    `stop_after`.

    Raises ValueError for an unknown name.

    >>> sorted(left_out(only=["schedule", "reuse_memory"], stop_after="schedule"))[:2]
    ['bucket_all_reduces', 'drop_unread']
    """
    names = [each.name for each in insert_registered(PASSES, registered_names())]
    wanted = list(only)
    for name in (*disable, *wanted, *([stop_after] if stop_after else [])):
        if name not in names:
            hint = did_you_mean(name, names) or f"known passes: {', '.join(names)}"
            raise ValueError(f"unknown pass {name!r}; {hint}")
    behind = names[names.index(stop_after) + 1 :] if stop_after else []
    others = [name for name in names if wanted and name not in wanted]
    return frozenset([*disable, *others, *behind])


def named(names: list[str]) -> list[Pass]:
    """Return passes by name, in the given order; raise ValueError for an unknown name.

    >>> [each.name for each in named(["schedule", "reuse_memory"])]
    ['schedule', 'reuse_memory']
    """
    known = {each.name: each for each in insert_registered(PASSES, registered_names())}
    for name in names:
        if name not in known:
            raise ValueError(f"unknown pass {name!r}; known passes: {', '.join(known)}")
    return [known[name]() for name in names]
