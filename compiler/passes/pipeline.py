"""The pipeline: the order of the passes as one list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from compiler.errors import did_you_mean
from compiler.options import Options
from compiler.passes.base import OpTarget, Pass
from compiler.passes.device.assign_targets import AssignTargets
from compiler.passes.device.call_libraries import CallLibraries
from compiler.passes.device.capture_step import CaptureStep
from compiler.passes.device.draw_keys import DrawKeys
from compiler.passes.device.layout import Layout
from compiler.passes.device.name_sizes import NameSizes
from compiler.passes.device.narrow_floats import NarrowFloats
from compiler.passes.distribute.bucket_all_reduces import BucketAllReduces
from compiler.passes.fusion.fuse_attention import FuseAttention
from compiler.passes.fusion.fuse_batch_norm import FuseBatchNorm
from compiler.passes.fusion.fuse_epilogue import FuseEpilogue
from compiler.passes.fusion.fuse_pointwise import FusePointwise
from compiler.passes.fusion.group_updates import GroupUpdates
from compiler.passes.fusion.merge_bias_gradients import MergeBiasGradients
from compiler.passes.fusion.merge_squares import MergeSquares
from compiler.passes.fusion.quantized_products import QuantizedProducts
from compiler.passes.fusion.split_batch_norm import SplitBatchNorm
from compiler.passes.memory.insert_deletes import InsertDeletes
from compiler.passes.memory.recompute import Recompute
from compiler.passes.memory.reuse_memory import ReuseMemory
from compiler.passes.memory.schedule import Schedule
from compiler.passes.registry import insert_registered, registered_names
from compiler.passes.simplify.drop_unread import DropUnread
from compiler.passes.simplify.eliminate_dead import EliminateDead
from compiler.passes.simplify.fold_constants import FoldConstants
from compiler.passes.simplify.merge_common import MergeCommon
from compiler.passes.simplify.merge_reshapes import MergeReshapes
from compiler.passes.simplify.merge_transposes import MergeTransposes
from compiler.passes.simplify.remove_dropout import RemoveDropout
from compiler.passes.simplify.remove_identities import RemoveIdentities
from compiler.passes.simplify.resolve_sizes import ResolveSizes

PASSES: tuple[type[Pass], ...] = (
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
    MergeBiasGradients,
    BucketAllReduces,
    MergeSquares,
    NameSizes,
    DrawKeys,
    FuseAttention,
    AssignTargets,
    GroupUpdates,
    FusePointwise,
    FuseEpilogue,
    CallLibraries,
    Schedule,
    Recompute,
    ReuseMemory,
    InsertDeletes,
    CaptureStep,
)
"""Every pass, in the order of execution. Which ones run, and how, each decides in `configure`."""

OPTIONAL = tuple(pass_ for pass_ in PASSES if not pass_.required)
"""The passes that options may disable, and that may run alone."""

_REWRITES = frozenset(pass_.name for pass_ in OPTIONAL) - {ReuseMemory.name, InsertDeletes.name}
"""Passes that are disabled so that each op of the program computes its own outputs."""


def pipeline(options: Options, target: OpTarget | None = None) -> list[Pass]:
    """Return the passes to run, in order; with a `target`, ops are assigned to it.

    Registered passes in the options are inserted at their positions; raises CompileError for
    unknown ones.
    """
    if options.check_numbers:
        options = replace(options, disable=options.disable | _REWRITES)
    classes = insert_registered(PASSES, options.added)
    return [instance for cls in classes if (instance := cls.configure(options, target)) is not None]


def left_out(
    disable: Iterable[str] = (), only: Iterable[str] = (), stop_after: str | None = None
) -> frozenset[str]:
    """Return the passes to disable: `disable`, all not in `only` (unless empty), and all after
    `stop_after`.

    Raises ValueError for an unknown name.

    >>> sorted(left_out(only=["schedule", "reuse_memory"], stop_after="schedule"))[:2]
    ['bucket_all_reduces', 'call_libraries']
    """
    names = [*_selectable()]
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
    available = _selectable()
    for name in names:
        if name not in available:
            raise ValueError(f"unknown pass {name!r}; known passes: {', '.join(available)}")
    return [available[name]() for name in names]


def _selectable() -> dict[str, type[Pass]]:
    """Return the optional passes and all registered ones by name, in order."""
    return {
        pass_.name: pass_
        for pass_ in insert_registered(PASSES, registered_names())
        if not pass_.required
    }
