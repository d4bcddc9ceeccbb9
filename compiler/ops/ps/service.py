"""Server control: the server loop, checkpoints, reductions over servers, and received variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.ir.opdef import HostOp, OpDef, Slots, attr, reads, required, writes
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.math.axes import element_type
from compiler.ops.ps.exchange import Exchange
from compiler.ops.ps.server_interface import connected
from compiler.ops.type_checks import literal_shape


class ListenAndServ(HostOp, op="listen_and_serv"):
    """Serve parameters at `endpoint` until all `Fanin` trainers have completed.

    X lists the gradients that trainers send; `grad_to_block_id` maps a gradient to the block of its
    update, "name:block". A step runs `lr_decay_block_id`, then `clip_block_id`, then the other
    `optimize_blocks`. `sync_mode` selects whether steps wait for all trainers; `distributed_mode`
    is its form in release 1.8.5. The runtime interprets the program: no module contains this op.
    Reference: listen_and_serv_op.cc; `sync_mode` is of release 1.6, `clip_block_id` an extension.
    """

    no_kernel_reason = "it serves trainers"

    X = reads(many=True, optional=True)
    endpoint = attr("127.0.0.1:6164")
    pserver_id = attr(-1)
    grad_to_block_id = attr(list[str]())
    distributed_mode = attr(0)
    sync_mode = attr(True)
    dc_asgd = attr(False)
    optimize_blocks = attr(list[Any]())
    prefetch_var_name_to_block_id = attr(list[str]())
    sparse_grad_to_param = attr(list[str]())
    Fanin = attr(1)
    checkpint_block_id = attr(-1)
    lr_decay_block_id = attr(-1)
    clip_block_id = attr(-1)
    rpc_get_thread_num = attr(1)
    rpc_send_thread_num = attr(1)
    rpc_prefetch_thread_num = attr(1)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}

    def numpy(self) -> dict[str, Array]:
        raise RuntimeError(
            f"a server of {self.endpoint} must run as its own program: pass the result of "
            "get_pserver_program to Executor.run"
        )


class SumOverServers(Exchange, op="sum_over_servers"):
    """Out = the sum of X over the servers of a job, each of which runs this op once per step."""

    X = reads()
    Out = writes(inplace="X")
    X_names = attr(list[str]())

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"Out": s.X}

    def numpy(self, X: Array) -> dict[str, Array]:
        name = self.X_names[0] if self.X_names else ""
        return {"Out": np.asarray(connected(self.parameter_server).sum_over_servers(name, X))}


class RefByTrainerId(OpDef, op="ref_by_trainer_id"):
    """Out = X[TrainerId]. Reference: ref_by_trainer_id_op.cc."""

    no_kernel_reason = "the trainer is known at run time only"

    X = reads(many=True)
    TrainerId = reads(no_grad=True)
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.all("X")[0]

    def numpy(self, X: list[Array], TrainerId: Array) -> Array:
        number = int(TrainerId.reshape(-1)[0])
        if not 0 <= number < len(X):
            raise IndexError(
                f"ref_by_trainer_id: TrainerId is {number}, expected 0 to {len(X) - 1}"
            )
        return X[number]


class FakeInit(OpDef, op="fake_init"):
    """Out = a placeholder for a table on servers: zeros, of which only the shape is used.

    Reference: fake_init_op.cc.
    """

    no_kernel_reason = "its values are never read"

    Out = writes()
    shape = attr(list[int]())

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return TensorType(DType.FP32, literal_shape(self.kind, self.shape))

    def numpy(self) -> Array:
        return np.broadcast_to(np.float32(0.0), self.shape)


class CheckpointNotify(Exchange, op="checkpoint_notify"):
    """Request the servers `epmap` to save their shard of `lookup_table` below `dir`.

    Reference: checkpoint_notify_op.cc.
    """

    epmap = attr(list[str]())
    dir = required(str)
    lookup_table = attr("")
    trainer_id = attr(0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}

    def numpy(self) -> dict[str, Array]:
        server = connected(self.parameter_server)
        server.checkpoint_notify(self.epmap, self.dir, self.lookup_table, self.trainer_id)
        return {}


class RecvSave(Exchange, op="recv_save"):
    """Receive the slices of a variable from the servers `endpoints` and write it to a file.

    Slice i is `remote_varnames[i]` there and has the shape `slice_shapes[i]`, such as "500,1000";
    concatenated along rows they are the variable of shape `shape` and type `dtype`.
    `slice_varnames` are the names on the trainer and `is_sparse` how they are received there; both
    are unused. Raises ValueError if the slices
    do not match `shape`, FileExistsError for an existing file without `overwrite`.
    Reference: recv_save_op.cc.
    """

    dtype = attr(DType.FP32.code)
    overwrite = attr(True)
    file_path = required(str)
    shape = attr(list[int]())
    slice_varnames = attr(list[str]())
    remote_varnames = attr(list[str]())
    slice_shapes = attr(list[str]())
    endpoints = attr(list[str]())
    trainer_id = attr(0)
    is_sparse = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}

    def numpy(self) -> dict[str, Array]:
        server = connected(self.parameter_server)
        parts = server.recv(self.remote_varnames, self.endpoints, self.trainer_id)
        whole = concat_slices(parts, self.slice_shapes, self.shape)
        dtype = element_type(self.dtype)
        if whole.dtype != dtype:
            raise ValueError(f"recv_save: the servers sent {whole.dtype}, expected 'dtype' {dtype}")
        server.save_tensor(self.file_path, whole, self.overwrite)
        return {}


def concat_slices(parts: Sequence[Array], described: Sequence[str], shape: Sequence[int]) -> Array:
    """Concatenate slices along rows; raise ValueError if shapes differ from those described."""
    for part, text in zip(parts, described, strict=True):
        if [int(size) for size in text.split(",")] != list(part.shape):
            raise ValueError(f"recv_save: a slice is {list(part.shape)}, expected [{text}]")
    whole = np.concatenate([np.asarray(part) for part in parts])
    if list(whole.shape) != list(shape):
        raise ValueError(f"recv_save: the slices form {list(whole.shape)}, expected {list(shape)}")
    return whole
