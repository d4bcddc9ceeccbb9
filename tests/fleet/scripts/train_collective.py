"""A script of release 1.8 with OpenKS names, run by two workers: train_collective.py OUT.

The quick-start network of OpenKS is trained in both modes, then a network with each strategy. OUT
gets `rank<i>.npz`: the losses of each job under `JOB:loss`, and its parameters under `JOB:name`.
"""

import sys
from pathlib import Path

import numpy as np
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker

import fleet
from tests.fleet import programs
from tests.fluid.data_parallel import ranks
from tests.fluid.data_parallel.nets import NETS

MODES = {
    "nccl2": [fleet.NCCL2Mode()],
    "grad_allreduce": [fleet.CollectiveMode(), fleet.GradAllreduce()],
}
STRATEGIES = {
    "plain": {},
    "local_sgd": {"use_local_sgd": True},
    "amp": {"use_amp": True, "amp_loss_scaling": 1024.0},
    "recompute": {"forward_recompute": True},
    "amp_recompute": {"use_amp": True, "amp_loss_scaling": 1024.0, "forward_recompute": True},
}
algorithm = fleet.KSDistributedFactory.instantiation(flag=1)
algorithm.init(role_maker.PaddleCloudRoleMaker(is_collective=True))


def run(loss, batches):
    """The losses of this worker on its share of batches, and its parameters."""
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(algorithm.startup_program)
    losses = []
    for batch in batches:
        feed = programs.share(batch, algorithm.worker_index(), algorithm.worker_num())
        losses += executor.run(algorithm.main_program, feed, [loss])
    scope = fluid.global_scope()
    names = [param.name for param in loss.block.program.all_parameters()]
    results = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
    return {"loss": np.ravel(losses), **results}


def quick_start(mode):
    loss = programs.mlp()
    strategy = fleet.GPUStrategy([fleet.NumThreadsConfig(32)], MODES[mode])
    strategy.setup_optimizer(algorithm, fluid.optimizer.Adagrad(0.01)).minimize(loss)
    return run(loss, programs.batches(4))


def trained_by(name):
    network = "ctr_wide_deep" if name == "local_sgd" else "digits_mlp"
    make, batch = NETS[network]
    fluid.default_startup_program().random_seed = 7
    loss = make()
    strategy = fleet.GPUStrategy().strategy
    if "recompute" in name:
        kept = ["fc_0.tmp_2", "fc_1.tmp_2"]
        strategy.recompute_checkpoints = [loss.block.var(each) for each in kept]
    for field, value in STRATEGIES[name].items():
        setattr(strategy, field, value)
    optimizer = ranks.OPTIMIZERS[network]()
    algorithm.distributed_optimizer(optimizer, strategy).minimize(loss)
    draw = np.random.default_rng(2)
    return run(loss, [batch(draw, ranks.ROWS) for _ in range(ranks.STEPS)])


found = {}
for job, train in [(m, quick_start) for m in MODES] + [(s, trained_by) for s in STRATEGIES]:
    with programs.fresh():
        found |= {f"{job}:{name}": value for name, value in train(job).items()}
total = [0.0] * 4
algorithm.all_reduce_worker(found["nccl2:loss"], total)
found["total:loss"] = np.array(total)
algorithm.barrier_worker()
np.savez(Path(sys.argv[1]) / f"rank{algorithm.worker_index()}.npz", **found)
