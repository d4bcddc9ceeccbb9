"""A trainer of several, as a script: trains on its half of each batch and prints what it has.

    trainer.py NUMBER ENDPOINTS DEVICES

`ENDPOINTS` has commas between; each trainer has `DEVICES` CPU devices.
"""

import json
import os
import sys

import numpy as np

import fluid

number, endpoints, devices = int(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3])
os.environ["CPU_NUM"] = str(devices)
fluid.default_startup_program().random_seed = number + 1  # trainers begin differently
loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(fluid.data("x", [None, 2]), 1)))
fluid.optimizer.SGD(0.1).minimize(loss)
fluid.Executor().run(fluid.default_startup_program())
strategy = fluid.BuildStrategy()
strategy.trainers_endpoints = endpoints
runner = fluid.ParallelExecutor(
    False,
    loss_name=loss.name,
    build_strategy=strategy,
    num_trainers=len(endpoints),
    trainer_id=number,
)
draw, losses = np.random.default_rng(0), []
for _ in range(3):
    batch = draw.random((8, 2), np.float32)
    share = batch.reshape(len(endpoints), -1, 2)[number]
    losses.append(runner.run([loss], feed={"x": share})[0].tolist())
weights = np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())
print(json.dumps({"losses": losses, "weights": weights.ravel().tolist()}))
