"""A script of release 1.8 with OpenKS names, run by two workers: train_collective.py OUT."""

import json
import sys
from pathlib import Path

import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker

import fleet
from tests.fleet import programs

MODES = {
    "nccl2": [fleet.NCCL2Mode()],
    "grad_allreduce": [fleet.CollectiveMode(), fleet.GradAllreduce()],
}
algorithm = fleet.KSDistributedFactory.instantiation(flag=1)
algorithm.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
means = {}
for mode, settings in MODES.items():
    with programs.fresh():
        cost = programs.mlp()
        strategy = fleet.GPUStrategy([fleet.NumThreadsConfig(32)], settings)
        strategy.setup_optimizer(algorithm, fluid.optimizer.Adagrad(0.01)).minimize(cost)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(algorithm.startup_program)
        losses = []
        for batch in programs.batches(4):
            feed = programs.share(batch, algorithm.worker_index(), algorithm.worker_num())
            losses.append(executor.run(algorithm.main_program, feed, [cost])[0].item())
        total = [0.0] * len(losses)
        algorithm.all_reduce_worker(losses, total)
        means[mode] = [each / algorithm.worker_num() for each in total]
algorithm.barrier_worker()
if algorithm.is_first_worker():
    (Path(sys.argv[1]) / "losses.json").write_text(json.dumps(means))
