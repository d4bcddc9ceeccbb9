"""Dense parameters by all-reduce, tables on servers: train_heterogeneous.py OUT."""

import json
import sys
from pathlib import Path

import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker

import fleet
from tests.fleet import programs
from tests.fluid.parameter_server import role

algorithm = fleet.KSDistributedFactory.instantiation(flag=1)
algorithm.init(role_maker.PaddleCloudRoleMaker())
main, startup = fluid.default_main_program(), fluid.default_startup_program()
main.random_seed = startup.random_seed = 7
cost, _, draw = role.ctr_wide_deep(fluid)
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
    total = [0.0] * len(losses)
    algorithm.all_reduce_worker(losses, total)
    algorithm.barrier_workers()
    out = Path(sys.argv[1])
    if algorithm.is_first_worker():
        mean = [each / algorithm.worker_num() for each in total]
        (out / "losses.json").write_text(json.dumps(mean))
        algorithm.save_persistables(executor, str(out / "state"))
        names = ["clicks", "user", "numbers", "label"]
        algorithm.save_inference_model(executor, str(out / "model"), names, [cost])
    algorithm.barrier_workers()
    algorithm.stop_worker()
