"""Startup program ops that create process groups: a rendezvous, then rings over it."""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import Slots, attr, reads, required, writes
from compiler.ir.opdef.attribute_bounds import between
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.collective.base import Collective

MARK = TensorType(DType.INT64, (1,))
"""Type of the variable that names a rendezvous: it holds this rank's index."""


class CGenNcclId(Collective, op="c_gen_nccl_id"):
    """Rendezvous with the other ranks under the name of Out, at the endpoint of rank 0.

    `endpoint` is this rank's, `other_endpoints` those of the others in rank order. Out [1] holds
    the rank. Reference: collective/c_gen_nccl_id_op.cc.
    """

    no_kernel_reason = "it opens connections"

    Out = writes()
    endpoint = required(str)
    other_endpoints = attr(list[str]())
    rank = required(int)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"Out": MARK}

    def numpy(self) -> dict[str, Array]:
        others = list(self.other_endpoints)
        endpoints = [*others[: self.rank], self.endpoint, *others[self.rank :]]
        self.collective.create_id(self.variable, self.rank, endpoints)
        return {"Out": np.array([self.rank])}


MAX_RINGS = 256
"""Maximum number of rings of one job."""


class GenNcclId(Collective, op="gen_nccl_id"):
    """Rendezvous with the other trainers under the name of NCCLID, at the endpoint of trainer 0.

    With `nccl_comm_num` above 1 also under `<name>_1`, …. With `use_hierarchical_allreduce` each
    group of `hierarchical_allreduce_inter_nranks` trainers has a rendezvous
    `Hierarchical_inter_<name>_<i>`, and the first trainers of all groups one
    `Hierarchical_exter_<name>_<i>`. NCCLID [1] holds the trainer's index.
    Reference: distributed_ops/gen_nccl_id_op.cc.
    """

    no_kernel_reason = "it opens connections"

    NCCLID = writes()
    trainers = attr(list[str]())
    trainer_id = required(int)
    nccl_comm_num = attr(1, between(1, MAX_RINGS))
    use_hierarchical_allreduce = attr(False)
    hierarchical_allreduce_inter_nranks = attr(-1)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"NCCLID": MARK}

    def numpy(self) -> dict[str, Array]:
        count = self.nccl_comm_num
        names = [self.variable, *(f"{self.variable}_{i}" for i in range(1, count))]
        for name in names:
            self.collective.create_id(name, self.trainer_id, list(self.trainers))
        if self.use_hierarchical_allreduce:
            group = self.hierarchical_allreduce_inter_nranks
            number, index = divmod(self.trainer_id, group)
            near = list(self.trainers[number * group : (number + 1) * group])
            for i in range(count):
                self.collective.create_id(f"Hierarchical_inter_{self.variable}_{i}", index, near)
            for i in range(count if index == 0 else 0):
                far = f"Hierarchical_exter_{self.variable}_{i}"
                self.collective.create_id(far, number, list(self.trainers[::group]))
        return {"NCCLID": np.array([self.trainer_id])}


class CCommInit(Collective, op="c_comm_init"):
    """Create ring `ring_id` from the `nranks` ranks of the rendezvous named by X.

    Reference: collective/c_comm_init_op.cc.
    """

    no_kernel_reason = "it opens connections"

    X = reads()
    nranks = required(int)
    rank = required(int)
    ring_id = attr(0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}

    def numpy(self) -> dict[str, Array]:
        self.collective.init_ring(self.ring_id, self.variable, self.nranks, self.rank)
        return {}


class CCommInitAll(Collective, op="c_comm_init_all"):
    """Create ring `ring_id` of the devices of this machine: `devices`, or all.

    `collective.init_ring` receives an empty name, the number of `devices` (0 for all) and rank 0.
    Reference: collective/c_comm_init_all_op.cc.
    """

    no_kernel_reason = "it opens connections"

    devices = attr(list[int]())
    ring_id = attr(0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}

    def numpy(self) -> dict[str, Array]:
        self.collective.init_ring(self.ring_id, "", len(self.devices), 0)
        return {}
