"""Item trees for retrieval, as tables of nodes: children of nodes, and samples by layer.

Zhu et al., "Learning Tree-based Deep Model for Recommender Systems", KDD 2018.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, required, required_list, writes
from compiler.ir.opdef.attribute_bounds import Accepted
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.math.axes import element_type
from compiler.ops.shape.random import generator
from compiler.ops.type_checks import differ, require_dtype, require_same_dtype, shown

BEFORE_CHILDREN = 3
"""Columns of a node before those of its children: its item, its layer, its parent."""


def require_rows(kind: str, ids: Array, count: int, table: str) -> None:
    """Raise ValueError for an id that is no row of a table."""
    wrong = (ids < 0) | (ids >= count)
    if wrong.any():
        raise ValueError(
            f"{kind}: X has {ids[wrong].reshape(-1)[0]}, which is not a row of {table}: expected "
            f"0 to {count - 1}"
        )


class TdmChild(OpDef, op="tdm_child"):
    """Child [*X, `child_nums`] = the children of each node in X, zeros if it has none.

    TreeInfo is [nodes, 3 + `child_nums`]: item, layer, parent and children of each node; node 0 is
    the root, whose Child is 0. LeafMask is 1 where a child has an item, else 0. Raises
    ValueError for a node that is not in TreeInfo. Reference: tdm_child_op.h.
    """

    no_kernel_reason = "ids are range-checked on the host"
    lod_source = "X"

    X = reads(no_grad=True)
    TreeInfo = reads(no_grad=True)
    Child = writes()
    LeafMask = writes()
    child_nums = required(int, Accepted(low=1))
    dtype = attr(DType.INT32.code)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        TreeInfo = s.TreeInfo
        require_dtype(self.kind, "X", s.X, DType.INT32, DType.INT64)
        require_dtype(self.kind, "TreeInfo", TreeInfo, DType.INT32, DType.INT64)
        width = BEFORE_CHILDREN + self.child_nums
        if TreeInfo.rank != 2 or differ(TreeInfo.shape[1], width):
            raise ShapeError(f"tdm_child: TreeInfo is {TreeInfo}, expected [nodes, {width}]")
        result = TensorType(index_type(self.kind, self.dtype), (*s.X.shape, self.child_nums))
        return {"Child": result, "LeafMask": result}

    def numpy(self, X: Array, TreeInfo: Array) -> dict[str, Array]:
        require_rows("tdm_child", X, len(TreeInfo), "TreeInfo")
        children = TreeInfo[X, BEFORE_CHILDREN:]
        children[(X == 0) | (children[..., 0] == 0)] = 0
        require_rows("tdm_child", children, len(TreeInfo), "TreeInfo")
        dtype = element_type(self.dtype)
        leaf = (TreeInfo[children, 0] != 0) & (children.any(axis=-1, keepdims=True))
        return {"Child": children.astype(dtype), "LeafMask": leaf.astype(dtype)}


def index_type(kind: str, code: int) -> DType:
    """Return the dtype of a code; raises BadAttribute unless it is int32 or int64."""
    if code not in (DType.INT32.code, DType.INT64.code):
        raise BadAttribute(f"{kind}: attribute 'dtype' is {code}, expected int32 (2) or int64 (3)")
    return DType.of(code)


def negative_samples(
    source: np.random.Generator, nodes: Array, positives: Array, count: int
) -> Array:
    """For each positive sample `count` distinct other nodes uniformly: [rows, count].

    Raises ValueError if there are fewer others.
    """
    order = source.random((len(positives), len(nodes)))
    order[nodes == positives[:, None]] = 2.0
    chosen = np.argsort(order, axis=1)[:, :count]
    if count and (np.take_along_axis(order, chosen, axis=1) > 1.0).any():
        raise ValueError(f"tdm_sampler: a layer has {len(nodes)} nodes, expected more than {count}")
    return nodes[chosen]


class TdmSampler(OpDef, op="tdm_sampler"):
    """Out [rows, samples]: for each layer the node on the path to each leaf, then negative samples.

    X [rows, 1] are indices of leaves, Travel [leaves, layers] their paths from below the root,
    Layer [nodes, 1] the nodes of all layers; those of layer i begin at `layer_offset_lod[i]`.
    `neg_samples_num_list` is the number of negatives per layer, drawn without repetition; nodes on
    the path are in Out if `output_positive` is set. Labels are 1 for those, Mask is 0 after the end
    of the path (a node 0), where Out is 0. A `seed` of 0 draws differently in every step. Raises
    ValueError for a leaf that is not in Travel. Reference: tdm_sampler_op.h.
    """

    no_kernel_reason = "ids are range-checked on the host"
    lod_source = ""
    is_random = True

    X = reads(no_grad=True)
    Travel = reads(no_grad=True)
    Layer = reads(no_grad=True)
    Out = writes()
    Labels = writes(optional=True)
    Mask = writes()
    output_positive = attr(True)
    neg_samples_num_list = required_list(int, Accepted(low=0))
    layer_offset_lod = required_list(int, Accepted(low=0))
    seed = attr(0)
    dtype = attr(DType.INT32.code)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X, Travel, Layer = s.X, s.Travel, s.Layer
        for slot, type in (("X", X), ("Travel", Travel), ("Layer", Layer)):
            require_dtype(self.kind, slot, type, DType.INT32, DType.INT64)
        require_same_dtype(self.kind, Travel=Travel, Layer=Layer)
        self.require_layers()
        layers = len(self.neg_samples_num_list)
        fits = (X.rank, Travel.rank, Layer.rank) == (2, 2, 2) and not (
            differ(X.shape[1], 1) or differ(Travel.shape[1], layers) or differ(Layer.shape[1], 1)
        )
        if not fits or differ(Layer.shape[0], self.layer_offset_lod[-1]):
            shapes = shown(X=X, Travel=Travel, Layer=Layer)
            expected = f"[rows, 1], [leaves, {layers}] and [{self.layer_offset_lod[-1]}, 1]"
            raise ShapeError(f"tdm_sampler: {shapes} do not fit, expected {expected}")
        samples = sum(self.neg_samples_num_list) + layers * self.output_positive
        result = TensorType(index_type(self.kind, self.dtype), (X.shape[0], samples))
        return {"Out": result, "Labels": result, "Mask": result}

    def require_layers(self) -> None:
        """Raise BadAttribute unless there are layers, each with more nodes than negatives."""
        counts, starts = self.neg_samples_num_list, self.layer_offset_lod
        sizes = [end - start for start, end in pairwise(starts)]
        fits = len(sizes) == len(counts) > 0 and starts[0] == 0
        if not fits or any(count >= size for count, size in zip(counts, sizes, strict=True)):
            raise BadAttribute(
                f"tdm_sampler: 'layer_offset_lod' {starts} and 'neg_samples_num_list' {counts} do "
                "not fit: expected more nodes in each layer than samples, the first at 0"
            )

    def numpy(self, X: Array, Travel: Array, Layer: Array) -> dict[str, Array]:
        require_rows("tdm_sampler", X, len(Travel), "Travel")
        source, starts = generator(self.seed), self.layer_offset_lod
        has_positive, slots = int(self.output_positive), {"Out": [X], "Labels": [X], "Mask": [X]}
        for layer, count in enumerate(self.neg_samples_num_list):
            positives = Travel[X[:, 0], layer]
            nodes = Layer[starts[layer] : starts[layer + 1], 0]
            drawn = negative_samples(source, nodes, positives, count)
            candidates: Array = np.concatenate([positives[:, None], drawn], axis=1)[
                :, 1 - has_positive :
            ]
            on_path: Array = np.broadcast_to(positives[:, None] != 0, candidates.shape)
            chosen: Array = np.where(on_path, candidates, 0)
            slots["Out"].append(chosen)
            label: Array = np.zeros_like(candidates)
            label[:, :has_positive] = on_path[:, :has_positive]
            slots["Labels"].append(label)
            slots["Mask"].append(on_path)
        dtype = element_type(self.dtype)
        return {
            slot: np.concatenate(parts[1:], axis=1).astype(dtype) for slot, parts in slots.items()
        }
