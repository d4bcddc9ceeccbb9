"""Embedding tables on parameter servers: remote lookups, and lookups on the server itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes, writes_lod
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.ps.exchange import Exchange, split_sparse_rows
from compiler.ops.ps.server_interface import ServerInterface, connected

OLD = "lookup_table"
"""Version of the lookup op whose ids have a last axis of size 1, absent from outputs."""


class DistributedLookupTable(Exchange, op="distributed_lookup_table"):
    """Outputs = the rows of a table by Ids; padding_idx yields a row of zeros.

    The table is sharded over servers: `table_names` are blocks of `height_sections` rows on
    `endpoints`. Only the shape of W is read. Each row is requested once. Reference:
    distributed_lookup_table_op.cc.
    """

    Ids = reads(many=True, no_grad=True)
    Ids_lod = reads_lod("Ids", optional=True)
    W = reads(shape_only=True)
    Outputs = writes(many=True)
    Outputs_lod = writes_lod("Outputs")
    table_names = attr(list[str]())
    height_sections = attr(list[int]())
    endpoints = attr(list[str]())
    trainer_id = attr(0)
    lookup_table_version = attr(OLD)
    padding_idx = attr(-1)
    dtype = attr(DType.FP32.code)

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        drop = 1 if self.lookup_table_version == OLD else 0
        shapes = [tensor_type.shape[: tensor_type.rank - drop] for tensor_type in s.all("Ids")]
        outputs = [s.W.with_shape((*shape, s.W.shape[1])) for shape in shapes]
        return {"Outputs": outputs, "Outputs_lod": s.all("Ids_lod")}

    def numpy(
        self, Ids: list[Array], Ids_lod: list[Array] | None, W: Shape
    ) -> dict[str, list[Array]]:
        flat = np.concatenate([ids.reshape(-1) for ids in Ids])
        unique, positions = unique_ids(flat)
        server = connected(self.parameter_server)
        vectors = remote_rows(
            server, self.table_names, self.endpoints, self.height_sections, unique, self.trainer_id
        )
        rows = concat_rows(vectors, W).take(positions, axis=0, mode="clip")
        if self.padding_idx >= 0:
            rows[flat == self.padding_idx] = 0
        ends = np.cumsum([ids.size for ids in Ids])[:-1]
        drop = 1 if self.lookup_table_version == OLD else 0
        parts = zip(np.split(rows, ends), Ids, strict=True)
        outputs = [part.reshape(*ids.shape[: ids.ndim - drop], -1) for part, ids in parts]
        return {"Outputs": outputs, "Outputs_lod": Ids_lod or []}


def unique_ids(ids: Array) -> tuple[Array, Array]:
    """Return the distinct ids, ascending, and each id's index among them; int64.

    Ids and positions are sorted packed in one integer, several times as fast as `np.unique`.
    """
    if not ids.size or not 0 <= ids.min() <= ids.max() < 1 << 38 or len(ids) >= 1 << 24:
        unique, positions = np.unique(ids, return_inverse=True)
        return unique, positions.reshape(-1)
    packed = np.sort((ids << 24) | np.arange(len(ids)))
    values = packed >> 24
    is_first = np.append(True, values[1:] != values[:-1])
    positions = np.empty(len(ids), np.int64)
    positions[packed & ((1 << 24) - 1)] = np.cumsum(is_first) - 1
    return values[is_first], positions


def concat_rows(found: Sequence[Array], table: Sequence[Any]) -> Array:
    """Concatenate rows from several servers; with none, return [0, width of the table]."""
    if found:
        return np.concatenate(found)
    return np.zeros((0, int(table[1])), np.float32)


def remote_rows(
    server: ServerInterface,
    tables: Sequence[str],
    endpoints: Sequence[str],
    sections: Sequence[int],
    ids: Array,
    trainer_id: int,
) -> Sequence[Array]:
    """Fetch the rows of ascending ids, by block; raise IndexError for an id out of range."""
    _, rows = split_sparse_rows(sections, ids, ids)
    asked = [index for index, row_ids in enumerate(rows) if len(row_ids)]
    names = [tables[index] for index in asked]
    chosen = [endpoints[index] for index in asked]
    return server.prefetch(names, chosen, [rows[index] for index in asked], trainer_id)


class Prefetch(Exchange, op="prefetch"):
    """Out = the rows with the ids X, fetched from the servers `epmap`, one for each X.

    Reference: prefetch_op.cc.
    """

    X = reads(many=True)
    Out = writes(many=True)
    trainer_id = attr(0)
    epmap = attr(list[str]())
    X_names = attr(list[str]())

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}

    def numpy(self, X: list[Array]) -> dict[str, list[Array]]:
        rows = [array.reshape(-1) for array in X]
        server = connected(self.parameter_server)
        return {"Out": list(server.prefetch(self.X_names, self.epmap, rows, self.trainer_id))}


class PullBoxSparse(OpDef, op="pull_box_sparse"):
    """Out = for each id of Ids a row of `size` zeros, in the place of BoxPS's table.

    BoxPS is a closed-source server; release 1.8.5 without it leaves Out uninitialized. Ids have a
    last axis of size 1, which Out lacks. Reference: pull_box_sparse_op.cc.
    """

    Ids = reads(many=True, no_grad=True)
    Ids_lod = reads_lod("Ids", optional=True)
    Out = writes(many=True)
    Out_lod = writes_lod("Out")
    size = attr(1)
    is_sparse = attr(False)
    is_distributed = attr(False)
    no_kernel_reason = "BoxPS's table is not on this device"

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        shapes = [(*ids.shape[:-1], self.size) for ids in s.all("Ids")]
        return {
            "Out": [TensorType(DType.FP32, shape) for shape in shapes],
            "Out_lod": s.all("Ids_lod"),
        }

    def numpy(self, Ids: list[Array], Ids_lod: list[Array] | None) -> dict[str, list[Array]]:
        rows = [np.zeros((*ids.shape[:-1], self.size), np.float32) for ids in Ids]
        return {"Out": rows, "Out_lod": Ids_lod or []}


class LookupSparseTable(OpDef, op="lookup_sparse_table"):
    """Out = the rows of W with the ids Ids, on the server that holds every n-th row.

    Row i of W is the table's row i * n + the server's index; Ids refer to the table.
    Reference: lookup_sparse_table_op.cc, where W grows automatically.
    """

    W = reads()
    Ids = reads(no_grad=True)
    Out = writes()
    padding_idx = attr(-1)
    auto_grown_table = attr(False)
    is_test = attr(False)
    is_sparse = attr(True)
    is_distributed = attr(True)
    servers = attr(1)
    no_kernel_reason = "its table is in host memory"

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.W.with_shape((s.Ids.shape[0], s.W.shape[1]))

    def numpy(self, W: Array, Ids: Array) -> Array:
        positions = Ids.reshape(-1) // self.servers
        if positions.size and not 0 <= positions.min() <= positions.max() < len(W):
            raise IndexError(
                f"lookup_sparse_table: an id is out of range for the {len(W)} local rows"
            )
        rows = W[positions]
        if self.padding_idx >= 0:
            rows[Ids.reshape(-1) == self.padding_idx] = 0
        return rows
