"""Hierarchical sigmoid: a class as a path through a binary tree."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, attr, attr_list, reads, writes
from compiler.ir.opdef.attribute_bounds import WIDE, at_least
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.loss import hierarchical_sigmoid_kernels, sampled_class_kernels
from compiler.ops.loss.hierarchical_sigmoid_kernels import TreePaths
from compiler.ops.shared_kernels import copy
from compiler.ops.train.selected_rows import rows_type
from compiler.ops.type_checks import (
    differ,
    require_dtype,
    require_same_dtype,
    require_same_shape,
    shown,
)


def expect_nodes(table: Array, forks: int) -> None:
    """Raise ValueError for a node that a path table names but the tree lacks."""
    if (table >= forks).any():
        raise ValueError(f"PathTable has {table.max()}, expected nodes up to {forks - 1}")


def expect_leaves(labels: Array, classes: int) -> None:
    """Raise ValueError for a label that is not a class."""
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        raise ValueError(f"label {labels[wrong][0]} is not a class: expected 0 to {classes - 1}")


def node_paths(
    Label: Array, PathTable: Array | None, PathCode: Array | None, classes: int, forks: int
) -> tuple[Array, Array, Array]:
    """Return the inner nodes on each row's path, the branches taken (0 or 1), and a validity mask.

    Without a table the tree is the complete binary one: class k is the leaf `k + classes` of a
    heap, inner node n its node `n + 1`. Raises ValueError for a class or node out of range.
    """
    if PathTable is not None and PathCode is not None:
        valid = np.logical_and.accumulate(PathTable >= 0, axis=1)
        expect_nodes(PathTable, forks)
        return np.where(valid, PathTable, 0), np.where(valid, PathCode, 0), valid
    labels = Label.reshape(-1, 1)
    expect_leaves(labels, classes)
    bits = np.arange((classes - 1).bit_length())
    nodes = (labels + classes) >> (bits + 1)
    valid = nodes > 0
    return np.where(valid, nodes - 1, 0), ((labels + classes) >> bits) & valid, valid


def node_costs(
    X: Array, vectors: Array, bias: Array | None, branches: Array, valid: Array
) -> tuple[Array, Array]:
    """Return the cost of each row [rows, 1], and log(1 + exp(score)) of each node on its path.

    `vectors` [rows, forks, width] and `bias` [rows, forks] are the weights of the nodes. Scores are
    clamped to ±40; a position beyond the path has the score 0, and its log(2) is included, as in
    the reference.
    """
    scores = np.einsum("rw,rfw->rf", X, vectors)
    if bias is not None:
        scores = scores + bias
    scores = np.where(valid, scores, 0).clip(-40, 40)
    passed = np.logaddexp(0, scores)
    return (passed - branches * scores).sum(1, keepdims=True).astype(X.dtype), passed.astype(
        X.dtype
    )


def tree_costs(
    X: Array,
    W: Array,
    Bias: Array | None,
    Label: Array,
    PathTable: Array | None,
    PathCode: Array | None,
    classes: int,
) -> tuple[Array, Array]:
    """Return the `node_costs` of the paths of `node_paths`."""
    forks, branches, valid = node_paths(Label, PathTable, PathCode, classes, len(W))
    bias = None if Bias is None else Bias.reshape(-1)[forks]
    return node_costs(X, W[forks], bias, branches, valid)


class HierarchicalSigmoid(OpDef, op="hierarchical_sigmoid"):
    """Out = -log of the probability of each row's path through a tree: [rows, 1].

    W has a row per inner node. The tree is the complete binary one with `num_classes` leaves, or
    each row has its own path: nodes in PathTable, branches in PathCode, padded with -1, [rows,
    longest]. PreOut is log(1 + exp(score)) by node. W_Out is W unchanged. With `is_sparse`, W has a
    sparse gradient. Reference: hierarchical_sigmoid_op.h.
    """

    unread_by_kernels = ("Bias",)

    sparse_grads = ("W",)

    X = reads()
    W = reads()
    Label = reads(no_grad=True)
    PathTable = reads(optional=True, no_grad=True)
    PathCode = reads(optional=True, no_grad=True)
    Bias = reads(optional=True)
    Out = writes()
    PreOut = writes(shares_lod=False)
    W_Out = writes(optional=True, inplace="W")
    num_classes = attr(2, at_least(2))
    is_sparse = attr(False)
    remote_prefetch = attr(False)
    trainer_id = attr(0)
    height_sections = attr_list(int, WIDE)
    epmap = attr_list(str)
    table_names = attr_list(str)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X, W, Label = s.X, s.W, s.Label
        PathTable, PathCode, Bias = s.get("PathTable"), s.get("PathCode"), s.get("Bias")
        require_dtype(self.kind, "Label", Label, DType.INT64)
        require_same_dtype(self.kind, X=X, W=W)
        if (PathTable is None) != (PathCode is None):
            raise ShapeError(f"{self.kind}: PathTable and PathCode must be given both or neither")
        if PathTable is not None and PathCode is not None:
            require_same_shape(self.kind, PathTable=PathTable, PathCode=PathCode)
        fits = (X.rank, W.rank) == (2, 2) and not differ(X.shape[1], W.shape[1])
        if not fits or differ(Label.numel, X.shape[0]):
            shapes = shown(X=X, W=W, Label=Label)
            raise ShapeError(
                f"{self.kind}: {shapes}, expected rows, nodes of equal width, a label per row"
            )
        nodes = W.shape[0] if PathTable is not None else self.num_classes - 1
        if is_less(W.shape[0], nodes) or (Bias is not None and is_less(Bias.numel, nodes)):
            shapes = f"W is {W} and Bias {Bias}"
            raise ShapeError(f"{self.kind}: {shapes}, expected at least {nodes} nodes, as in paths")
        longest: Size = (self.num_classes - 1).bit_length()
        if PathTable is not None:
            longest = PathTable.shape[1]
        rows = X.shape[0]
        return {"Out": X.with_shape((rows, 1)), "PreOut": X.with_shape((rows, longest)), "W_Out": W}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        W = s.W
        types = {"X": s.X, "W": W}
        if (Bias := s.get("Bias")) is not None:
            types["Bias"] = Bias
        if self.is_sparse and s.get("d_W_Out") is None:
            count = product(s.PreOut.shape)
            types |= {"W": W.with_shape((count, W.shape[1])), "W_rows": rows_type(count)}
        return types

    def numpy(
        self,
        X: Array,
        W: Array,
        Label: Array,
        PathTable: Array | None,
        PathCode: Array | None,
        Bias: Array | None,
    ) -> dict[str, Array]:
        cost, passed = tree_costs(X, W, Bias, Label, PathTable, PathCode, self.num_classes)
        return {"Out": cost, "PreOut": passed, "W_Out": W}

    def grad(
        self,
        X: Array,
        W: Array,
        Label: Array,
        PathTable: Array | None,
        PathCode: Array | None,
        Bias: Array | None,
        PreOut: Array,
        d_Out: Array,
        d_W_Out: Array | None,
    ) -> dict[str, Array]:
        forks, branches, valid = node_paths(Label, PathTable, PathCode, self.num_classes, len(W))
        slope = ((1 - np.exp(-PreOut) - branches) * valid * d_Out.reshape(-1, 1)).astype(X.dtype)
        gradients = {"X": np.einsum("rf,rfw->rw", slope, W[forks])}
        if Bias is not None:
            d_Bias = np.bincount(forks.ravel(), slope.ravel(), Bias.size)
            gradients["Bias"] = d_Bias.astype(Bias.dtype).reshape(Bias.shape)
        values = (slope[:, :, None] * X[:, None, :]).reshape(-1, X.shape[1])
        if self.is_sparse and d_W_Out is None:
            return gradients | {"W": values, "W_rows": forks.reshape(-1)}
        d_W = np.zeros_like(W) if d_W_Out is None else d_W_Out.copy()
        np.add.at(d_W, forks.reshape(-1), values)
        return gradients | {"W": d_W}

    def paths(
        self,
        W: DeviceOperand,
        Label: DeviceOperand,
        PathTable: DeviceOperand | None,
        PathCode: DeviceOperand | None,
    ) -> TreePaths:
        """Return the paths as kernels use them."""
        longest = (self.num_classes - 1).bit_length() if PathTable is None else PathTable.shape[1]
        return TreePaths(Label, PathTable, PathCode, self.num_classes, W.shape[0], longest)

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        W, Label = s.W, s.Label
        PathTable = s.get("PathTable")
        if PathTable is not None:
            k.line(f"{k.function(expect_nodes)}({PathTable}, {W.shape[0]})")
        else:
            k.line(f"{k.function(expect_leaves)}({Label}, {self.num_classes})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, W = s.X, s.W
        paths = self.paths(W, s.Label, s.get("PathTable"), s.get("PathCode"))
        passed = s.get("PreOut") or k.scratch((X.shape[0], paths.longest), X.type.dtype)
        hierarchical_sigmoid_kernels.costs(k, paths, (X, W, s.get("Bias")), passed, s.get("Out"))
        if (W_Out := s.get("W_Out")) is not None:
            copy(k, W, W_Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_W_rows = s.get("d_W_rows")
        paths = self.paths(s.W, s.Label, s.get("PathTable"), s.get("PathCode"))
        slope, forks = hierarchical_sigmoid_kernels.score_gradients(k, paths, s.PreOut, s.d_Out)
        if (d_X := s.get("d_X")) is not None:
            sampled_class_kernels.input_gradient(k, slope, forks, s.W, d_X)
        if (d_Bias := s.get("d_Bias")) is not None:
            sampled_class_kernels.bias_gradient(k, slope, forks, d_Bias)
        if d_W_rows is not None:
            copy(k, forks, d_W_rows)
        if (d_W := s.get("d_W")) is not None:
            sampled_class_kernels.weight_gradient(
                k, slope, forks, s.X, s.get("d_W_Out"), d_W, d_W_rows is not None
            )

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, W, Label = s.X, s.W, s.Label
        PathTable, PathCode, Bias = s.get("PathTable"), s.get("PathCode"), s.get("Bias")
        W_Out = s.get("W_Out")
        arguments = f"{X}, {W}, {Bias}, {Label}, {PathTable}, {PathCode}, {self.num_classes}"
        k.line(f"found = {k.function(tree_costs)}({arguments})")
        for place, output in enumerate((s.get("Out"), s.get("PreOut"))):
            if output is not None:
                k.line(f"np.copyto({output}, found[{place}])")
        if W_Out is not None and not k.aliased(W, W_Out):
            k.line(f"np.copyto({W_Out}, {W})")
