"""Sampled losses with weights on parameter servers: only the rows needed by a batch are fetched.

Programs have `nce` and `hierarchical_sigmoid` with `remote_prefetch`, `table_names`, `epmap` and
`height_sections`; program conversion rewrites them to these ops. Sparse gradients need no server
and use the gradient ops of the plain versions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.ir.opdef import Slots, attr, attr_list, reads, required, writes
from compiler.ir.opdef.attribute_bounds import WIDE, at_least
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.loss.hierarchical_sigmoid import HierarchicalSigmoid, node_costs, node_paths
from compiler.ops.loss.nce import Nce, sampled_costs, sampled_labels
from compiler.ops.ps.exchange import Exchange
from compiler.ops.ps.server_interface import ServerInterface, connected
from compiler.ops.ps.tables import concat_rows, remote_rows
from compiler.ops.type_checks import numeric


def remote_vectors(
    server: ServerInterface, tables: tuple[Any, ...], trainer_id: int, numbers: Array, whole: Shape
) -> tuple[Array, Array]:
    """Fetch the distinct rows of a table for some indices; return them and each index's position.

    `tables` is (blocks of the table, their servers, their numbers of rows); `whole` is the shape of
    the table.
    """
    unique, positions = np.unique(numbers, return_inverse=True)
    names, endpoints, sections = tables
    rows = remote_rows(server, names, endpoints, sections, unique, trainer_id)
    return concat_rows(rows, whole), positions.reshape(numbers.shape)


class RemoteNce(Exchange, op="remote_nce"):
    """Cost of each row as in `nce`, with the rows of Weight fetched from servers.

    Only the shape of Weight is read. Reference: nce_op.h with remote_prefetch.
    """

    is_random = True

    Input = reads(no_grad=True)
    Label = reads(no_grad=True)
    Weight = reads(shape_only=True)
    Bias = reads(optional=True, no_grad=True)
    SampleWeight = reads(optional=True, no_grad=True)
    CustomDistProbs = reads(optional=True, no_grad=True)
    CustomDistAlias = reads(optional=True, no_grad=True)
    CustomDistAliasProbs = reads(optional=True, no_grad=True)
    Key = reads(optional=True, no_grad=True)
    Cost = writes()
    SampleLogits = writes()
    SampleLabels = writes()
    num_total_classes = required(int, at_least(1))
    num_neg_samples = attr(10, at_least(0))
    sampler = attr(0)
    seed = attr(0)
    is_sparse = attr(False)
    custom_neg_classes = attr_list(int)
    place = attr(0)
    remote_prefetch = attr(True)
    trainer_id = attr(0)
    height_sections = attr_list(int, WIDE)
    epmap = attr_list(str)
    table_names = attr_list(str)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return Nce(self.attributes).infer(s)

    def numpy(
        self,
        Input: Array,
        Label: Array,
        Weight: Shape,
        Bias: Array | None,
        SampleWeight: Array | None,
        CustomDistProbs: Array | None,
        CustomDistAlias: Array | None,
        CustomDistAliasProbs: Array | None,
        Key: Array | None,
    ) -> dict[str, Array]:
        count, negatives = self.num_total_classes, self.num_neg_samples
        alias = (CustomDistAlias, CustomDistAliasProbs)
        sampling = (count, negatives, self.custom_neg_classes, self.sampler, self.seed)
        labels = sampled_labels(Label, *sampling, (Key, self.place), alias)
        tables = (self.table_names, self.epmap, self.height_sections)
        server = connected(self.parameter_server)
        vectors, positions = remote_vectors(server, tables, self.trainer_id, labels, Weight)
        bias = None if Bias is None else Bias.reshape(-1)[labels]
        how = (self.sampler, count, negatives, SampleWeight, CustomDistProbs)
        cost, shares = sampled_costs(Input, vectors[positions], bias, labels, *how)
        return {"Cost": cost, "SampleLogits": shares, "SampleLabels": labels}


class RemoteHierarchicalSigmoid(Exchange, op="remote_hierarchical_sigmoid"):
    """Cost of each row as in `hierarchical_sigmoid`, with the rows of W fetched from servers.

    Only the shape of W is read, and there is no W_Out. Reference: hierarchical_sigmoid_op.h with
    remote_prefetch.
    """

    X = reads(no_grad=True)
    W = reads(shape_only=True)
    Label = reads(no_grad=True)
    PathTable = reads(optional=True, no_grad=True)
    PathCode = reads(optional=True, no_grad=True)
    Bias = reads(optional=True, no_grad=True)
    Out = writes()
    PreOut = writes()
    num_classes = attr(2, at_least(2))
    is_sparse = attr(False)
    remote_prefetch = attr(True)
    trainer_id = attr(0)
    height_sections = attr_list(int, WIDE)
    epmap = attr_list(str)
    table_names = attr_list(str)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        types = HierarchicalSigmoid(self.attributes).infer(s)
        return {"Out": types["Out"], "PreOut": types["PreOut"]}

    def numpy(
        self,
        X: Array,
        W: Shape,
        Label: Array,
        PathTable: Array | None,
        PathCode: Array | None,
        Bias: Array | None,
    ) -> dict[str, Array]:
        classes, (height, _) = self.num_classes, numeric(W)
        forks, branches, valid = node_paths(Label, PathTable, PathCode, classes, height)
        tables = (self.table_names, self.epmap, self.height_sections)
        server = connected(self.parameter_server)
        vectors, positions = remote_vectors(server, tables, self.trainer_id, forks, W)
        bias = None if Bias is None else Bias.reshape(-1)[forks]
        cost, passed = node_costs(X, vectors[positions], bias, branches, valid)
        return {"Out": cost, "PreOut": passed}
