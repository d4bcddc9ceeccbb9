"""Samples of collectives over a world of one rank, which the interpreter has."""

from tests.ops.samples import Sample, integers, numbers

X = {"X": numbers(4, 3)}

SAMPLES = [
    Sample("c_allreduce_sum", X, grads=("X",)),
    *(Sample(f"c_allreduce_{each}", X) for each in ("max", "min", "prod")),
    *(Sample(f"c_reduce_{each}", X, {"root_id": 0}) for each in ("sum", "max", "min", "prod")),
    Sample("c_allreduce_sum_rows", {**X, "X_rows": integers(4, high=9)}),
    *(Sample("allreduce", X, {"reduce_type": index}) for index in range(4)),
    Sample("c_broadcast", X, {"root": 0}),
    Sample("broadcast", X),
    Sample("barrier", X),
    Sample("c_allgather", X, {"nranks": 1}, grads=("X",)),
    Sample("c_reducescatter", X),
    Sample("c_scatter", X),
    Sample("c_sync_calc_stream", X),
    Sample("c_sync_comm_stream", X, {"ring_id": 1}),
    Sample("c_gen_nccl_id", {}, {"endpoint": "127.0.0.1:6170", "rank": 0}),
    Sample("gen_nccl_id", {}, {"trainers": ["127.0.0.1:6170"], "trainer_id": 0}),
    Sample("c_comm_init", {"X": integers(1, high=1)}, {"nranks": 1, "rank": 0}),
    Sample("c_comm_init_all", {}),
    *(
        Sample(each, X)
        for each in ("start_all_reduce", "all_reduce_bucket", "reduce_bucket", "broadcast_bucket")
    ),
]
