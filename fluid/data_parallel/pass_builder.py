"""The list of passes of a BuildStrategy, which scripts may edit (Paddle 1.8.5 `PassBuilder`).

Graphs are optimised by the compiler's own passes (docs/passes.md), independent of this list. It
lists the passes that the strategy requests, so that `all_passes`, `append_pass`, `insert_pass` and
`remove_pass` work; only two have an effect: `graph_viz_pass` writes the program to the file in its
attribute `graph_viz_path`, and `multi_batch_merge_pass` computes `num_repeats` passes per update.
The others name optimisations that the compiler always performs.
"""

from __future__ import annotations

from pathlib import Path

from compiler.errors import CompileError, did_you_mean
from fluid.data_parallel.batch_merge import BATCH_MERGE
from fluid.data_parallel.graphviz import program_dot
from fluid.framework import Program

__all__ = ["BuildPass", "PassBuilder"]

_BY_FLAG = {
    "enable_sequential_execution": "sequential_execution_pass",
    "sync_batch_norm": "sync_batch_norm_pass",
    "fuse_relu_depthwise_conv": "fuse_relu_depthwise_conv_pass",
    "fuse_bn_act_ops": "fuse_bn_act_pass",
    "enable_auto_fusion": "fusion_group_pass",
    "fuse_elewise_add_act_ops": "fuse_elewise_add_act_pass",
    "fuse_all_optimizer_ops": "fuse_all_optimizer_ops_pass",
    "fuse_all_reduce_ops": "fuse_all_reduce_op_pass",
    "enable_inplace": "buffer_shared_inplace_pass",
    "memory_optimize": "buffer_shared_cross_op_memory_reuse_pass",
}
_ALWAYS = ("multi_devices_pass", "multi_devices_check_pass")
VIZ = "graph_viz_pass"
KNOWN = frozenset({*_BY_FLAG.values(), *_ALWAYS, VIZ, BATCH_MERGE, "multi_devices_print_pass"})


class BuildPass:
    """A pass with a type and attributes."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._attributes: dict[str, object] = {}

    def type(self) -> str:
        """The name of the pass."""
        return self._kind

    def has(self, name: str) -> bool:
        """Whether an attribute was set."""
        return name in self._attributes

    def set(self, name: str, value: object) -> None:
        """Set an attribute, replacing an earlier value."""
        self._attributes[name] = value

    def set_int(self, name: str, value: int) -> None:
        """Set an attribute to an integer."""
        self.set(name, int(value))

    def set_str(self, name: str, value: str) -> None:
        """Set an attribute to a string."""
        self.set(name, str(value))

    @property
    def repeats(self) -> int:
        """The passes per update of a `multi_batch_merge_pass`; 1 for others."""
        repeats = self._attributes.get("num_repeats", 1)
        return int(str(repeats)) if self._kind == BATCH_MERGE else 1

    def apply(self, program: Program) -> None:
        """Write the program as Graphviz text, for a `graph_viz_pass` with a path."""
        path = self._attributes.get("graph_viz_path")
        if self._kind == VIZ and path:
            Path(str(path)).write_text(program_dot(program), encoding="utf-8")


class PassBuilder:
    """An ordered list of passes."""

    def __init__(self, kinds: list[str]) -> None:
        self._passes = [BuildPass(kind) for kind in kinds]

    @staticmethod
    def of(strategy: object) -> PassBuilder:
        """The passes requested by the flags of a BuildStrategy."""
        kinds = [kind for flag, kind in _BY_FLAG.items() if getattr(strategy, flag)]
        return PassBuilder([*kinds, *_ALWAYS])

    def all_passes(self) -> list[BuildPass]:
        """The passes in order."""
        return list(self._passes)

    def append_pass(self, pass_type: str) -> BuildPass:
        """Add a pass at the end and return it; CompileError for an unknown type."""
        return self.insert_pass(len(self._passes), pass_type)

    def insert_pass(self, idx: int, pass_type: str) -> BuildPass:
        """Add a pass before position `idx` and return it.

        Raises CompileError for a position outside the list and for an unknown type.
        """
        if pass_type not in KNOWN:
            hint = did_you_mean(pass_type, KNOWN)
            raise CompileError(f"no pass {pass_type!r}; {hint}".rstrip("; "))
        self._expect_position(idx, len(self._passes) + 1)
        self._passes.insert(idx, new_pass := BuildPass(pass_type))
        return new_pass

    def remove_pass(self, idx: int) -> None:
        """Remove the pass at a position; CompileError where there is none."""
        self._expect_position(idx, len(self._passes))
        del self._passes[idx]

    def _expect_position(self, idx: int, count: int) -> None:
        if not 0 <= idx < count:
            passes = len(self._passes)
            raise CompileError(f"position {idx} is outside the list of {passes} passes")
