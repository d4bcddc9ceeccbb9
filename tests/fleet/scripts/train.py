"""A script of release 1.8 with OpenKS names, run as servers and workers: train.py OUT MODE."""

import sys

import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker

import fleet
from tests.fleet import programs

algorithm = fleet.KSDistributedFactory.instantiation(flag=0)
algorithm.init(role_maker.PaddleCloudRoleMaker())
main, startup = fluid.default_main_program(), fluid.default_startup_program()
main.random_seed = startup.random_seed = 1
cost = programs.mlp()
modes = {
    "sync": fleet.SyncModeConfig(),
    "half_async": fleet.HalfSyncModelConfig(),
    "async": fleet.ASyncModelConfig(),
    "geo": fleet.GeoSGDModelConfig(2),
}
strategy = fleet.CPUStrategy([modes[sys.argv[2]]])
strategy.setup_optimizer(
    algorithm, fluid.optimizer.Adagrad(0.01) if sys.argv[2] == "sync" else fluid.optimizer.SGD(0.01)
).minimize(cost)
if algorithm.is_server():
    algorithm.init_server()
    algorithm.run_server()
else:
    algorithm.init_worker()
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(algorithm.startup_program)
    number, losses = algorithm.worker_index(), []
    for batch in programs.batches(4):
        feed = programs.share(batch, number, algorithm.worker_num())
        losses.append(executor.run(algorithm.main_program, feed, [cost])[0].item())
    feeds = ["x", "y"]
    programs.leave(algorithm, executor, sys.argv[1], cost, losses, feeds)
