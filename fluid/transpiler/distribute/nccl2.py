"""Mode `nccl2`: trainers that know each other's endpoints and all-reduce gradients (spec B.8)."""

from __future__ import annotations

from fluid.distributed.job import CollectiveJob
from fluid.framework import Program
from fluid.recording.var_types import VarDesc
from fluid.transpiler.distribute.config import DistributeTranspilerConfig
from fluid.transpiler.distribute.endpoints import endpoint_list

__all__ = ["transpile_nccl2"]

ID = "NCCLID"


def transpile_nccl2(
    main: Program,
    startup: Program,
    trainer_id: int,
    trainers: object,
    current_endpoint: str,
    config: DistributeTranspilerConfig,
) -> None:
    """Let `startup` exchange the ring ids, and record the trainers in `main`.

    Nothing is awaited here, whatever `config.wait_port` is: only trainer 0 listens at its
    endpoint, and the startup program waits for all.

    Raises ValueError for invalid endpoints, a rank outside of them, a `current_endpoint` that is
    not among them, and levels of rings that they do not fill.
    """
    endpoints = endpoint_list(trainers, trainer_id, current_endpoint)
    _check_levels(endpoints, config)
    levels = config.use_hierarchical_allreduce
    main.job = CollectiveJob(
        is_chief=trainer_id == 0,
        endpoints=tuple(endpoints),
        rings=config.nccl_comm_num,
        group=config.hierarchical_allreduce_inter_nranks if levels else 0,
    )
    _append_id(startup, trainer_id, endpoints, config)


def _check_levels(endpoints: list[str], config: DistributeTranspilerConfig) -> None:
    """ValueError unless the ranks fill the lower rings of a hierarchical all-reduce."""
    if not config.use_hierarchical_allreduce:
        return
    ranks, lower = len(endpoints), config.hierarchical_allreduce_inter_nranks
    if lower < 2 or ranks <= lower or ranks % lower:
        raise ValueError(
            "use_hierarchical_allreduce needs hierarchical_allreduce_inter_nranks of at least 2, "
            f"fewer than the trainers and a divisor of their number: got {lower} for {ranks} "
            "trainers"
        )


def _append_id(
    startup: Program, rank: int, endpoints: list[str], config: DistributeTranspilerConfig
) -> None:
    block = startup.global_block()
    for name in _id_names(config):
        block.create_var(name=name, persistable=True, type=VarDesc.VarType.RAW)
    block.append_op(
        "gen_nccl_id",
        outputs={ID: ID},
        attrs={
            "trainers": endpoints,
            "trainer_id": rank,
            "nccl_comm_num": config.nccl_comm_num,
            "use_hierarchical_allreduce": config.use_hierarchical_allreduce,
            "hierarchical_allreduce_inter_nranks": config.hierarchical_allreduce_inter_nranks,
        },
    )


def _id_names(config: DistributeTranspilerConfig) -> list[str]:
    """The id variables: one per ring, and with two levels two more for each."""
    rings = range(config.nccl_comm_num)
    names = [ID, *(f"{ID}_{ring}" for ring in rings[1:])]
    if config.use_hierarchical_allreduce:
        for ring in rings:
            names += [f"Hierarchical_inter_{ID}_{ring}", f"Hierarchical_exter_{ID}_{ring}"]
    return names
