"""Dense parameters by all-reduce, tables on servers: train_heterogeneous.py OUT."""

import sys

import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker

import fleet
from tests.fleet import programs
from tests.fluid.parameter_server import nets, role

algorithm = fleet.KSDistributedFactory.instantiation(flag=1)
algorithm.init(role_maker.PaddleCloudRoleMaker())
main, startup = fluid.default_main_program(), fluid.default_startup_program()
main.random_seed = startup.random_seed = 7
cost, _, draw = nets.ctr_wide_deep(fluid)
strategy = fleet.GPUStrategy(dist_config=[fleet.TablesOnServers()])
strategy.setup_optimizer(algorithm, fluid.optimizer.Adagrad(0.05)).minimize(cost)
if algorithm.is_server():
    algorithm.init_server()
    algorithm.run_server()
else:
    algorithm.init_worker()
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(algorithm.startup_program)
    number, losses = algorithm.worker_index(), []
    for batch in role.batches({"rows": 6, "steps": 20}, draw):
        feed = role.fed(programs.share(batch, number, algorithm.worker_num()))
        losses.append(executor.run(algorithm.main_program, feed, [cost])[0].item())
    feeds = ["clicks", "user", "numbers", "label"]
    programs.leave(algorithm, executor, sys.argv[1], cost, losses, feeds)
