"""Hierarchical sigmoid kernels: one program per inner node on each row's path.

A class or node out of range yields NaN and a zero gradient: kernels cannot raise the host's error.
Gradients of nodes are accumulated in nondeterministic order.
"""

from __future__ import annotations

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType
from compiler.ops.loss.binary_losses import softplus
from compiler.ops.shared_kernels import inside, listed
from compiler.support.dataclass import dataclass

MAX_SCORE = 40.0
"""Scores are clamped to plus and minus this."""


@dataclass(frozen=True)
class TreeNode:
    """An inner node on a row's path: its index, the branch taken, and whether it exists.

    `wrong` is true if the class or node index is out of range.
    """

    number: Number
    branch: Number
    there: Number
    wrong: Number


@dataclass(frozen=True)
class TreePaths:
    """The paths of rows, of at most `longest` nodes: from `table` and `code`, or the labels."""

    label: DeviceOperand
    table: DeviceOperand | None
    code: DeviceOperand | None
    classes: int
    forks: Size
    longest: Size

    def node_at(self, k: KernelBuilder, row: Number, position: Number) -> TreeNode:
        """Return the node at a position of a row's path; the device version of `node_paths`."""
        if self.table is not None and self.code is not None:
            return self._listed(k, self.table, self.code, row, position)
        label = self.label.reshaped((self.label.type.numel,))[row]
        in_range = inside(k, label, self.classes)
        leaf = k.where(in_range, label, 0) + self.classes
        halves = [2**step for step in range(int(str(self.longest)) + 1)]
        step, next_step = (listed(k, at, halves, DType.INT64) for at in (position, position + 1))
        node = k.div(leaf, next_step)
        there = (node > 0) & in_range
        return TreeNode(k.where(there, node - 1, 0), k.mod(k.div(leaf, step), 2), there, ~in_range)

    def _listed(
        self,
        k: KernelBuilder,
        table: DeviceOperand,
        code: DeviceOperand,
        row: Number,
        position: Number,
    ) -> TreeNode:
        """Return a node of a path given by tensors; the first negative number ends the path."""
        r = k.loop(self.longest)
        least = k.min(k.where(r <= position, table[row, r], 0), r)
        number = table[row, position]
        in_range = inside(k, number, self.forks)
        ended = least < 0
        there = in_range & ~ended
        return TreeNode(k.where(there, number, 0), code[row, position], there, ~in_range & ~ended)


def costs(
    k: KernelBuilder,
    paths: TreePaths,
    given: tuple[DeviceOperand, DeviceOperand, DeviceOperand | None],
    passed: DeviceOperand,
    out: DeviceOperand | None,
) -> None:
    """Emit kernels for log(1 + exp(score)) of each node, `passed`, and for the cost of each row.

    `given` is (X, W, bias of the nodes or None).
    """
    X, W, bias = given
    rows, width = X.shape
    term = k.scratch(passed.shape, X.type.dtype)
    i, position = k.grid(*passed.shape)
    fork, r = paths.node_at(k, i, position), k.loop(width)
    score = k.sum(X[i, r] * W.at(fork.number, r, where=fork.there, other=0), r)
    if bias is not None:
        forks = bias.reshaped((bias.type.numel,))
        score = score + forks.at(fork.number, where=fork.there, other=0)
    score = k.where(fork.there, k.clip(score, -MAX_SCORE, MAX_SCORE), 0.0)
    softplus_score = softplus(k, score)
    cost = softplus_score - k.where(k.equal(fork.branch, 1), score, 0.0)
    k.store(passed, (i, position), softplus_score)
    k.store(term, (i, position), k.where(fork.wrong, float("nan"), cost))
    if out is not None:
        (i,) = k.grid(rows)
        r = k.loop(passed.shape[1])
        k.store(out, (i, 0), k.sum(term[i, r], r))


def score_gradients(
    k: KernelBuilder, paths: TreePaths, passed: DeviceOperand, d_Out: DeviceOperand
) -> tuple[DeviceOperand, DeviceOperand]:
    """Emit a kernel for the gradient of each score, and its node index: [rows, longest] each."""
    slope, forks = (k.scratch(passed.shape, dtype) for dtype in (passed.type.dtype, DType.INT64))
    i, position = k.grid(*passed.shape)
    fork = paths.node_at(k, i, position)
    share = 1.0 - k.exp(-passed[i, position]) - k.astype(fork.branch, passed.type.dtype)
    k.store(slope, (i, position), k.where(fork.there, share * d_Out[i, 0], 0.0))
    k.store(forks, (i, position), fork.number)
    return slope, forks
