"""A trainer of several, as a script: trains on its half of each batch and prints what it has.

    trainer.py NUMBER ENDPOINTS DEVICES STRATEGY [alone]

`ENDPOINTS` has commas between; each trainer has `DEVICES` CPU devices. `STRATEGY` is AllReduce or
Reduce; with the latter, what the scope holds of the optimizer is printed before it is read. With
`alone`, trainer 0 reads it while the others train on.
"""

import json
import os
import sys

import numpy as np

import fluid

number, endpoints, devices = int(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3])
os.environ["CPU_NUM"] = str(devices)
fluid.default_startup_program().random_seed = number + 1  # trainers begin differently
hidden = fluid.layers.fc(fluid.data("x", [None, 2]), 3)
loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 1)))
fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
fluid.Executor().run(fluid.default_startup_program())
strategy = fluid.BuildStrategy()
strategy.trainers_endpoints = endpoints
strategy.reduce_strategy = getattr(fluid.BuildStrategy.ReduceStrategy, sys.argv[4])
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
scope = fluid.global_scope()
tensors = {n: scope.find_var(n).get_tensor() for n in scope.local_var_names()}
velocities = {n: tensor for n, tensor in tensors.items() if "velocity" in n}
held = sum(
    int(np.prod(velocity.shape())) for velocity in velocities.values() if not velocity.is_offloaded
)
if sys.argv[5:] == ["alone"]:
    if number:
        runner.run([loss], feed={"x": share})
    print([np.array(velocity) for velocity in velocities.values()])
(fetched,) = runner.run([min(velocities)], feed={"x": share})
values = {n: np.array(tensors[n]).ravel().tolist() for n in ("fc_0.w_0", *sorted(velocities))}
(loss_after,) = runner.run([loss], feed={"x": share})
print(json.dumps({"losses": losses, "values": values, "held": held, "after": loss_after.tolist()}))
