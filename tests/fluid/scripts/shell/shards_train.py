import argparse
import multiprocessing
import os

import numpy as np
import paddle.fluid as fluid
from shards_net import batch, network

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    rank, count = (int(os.environ[name]) for name in ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"))
    print("trainer %d of %d" % (rank, count))
    pool = multiprocessing.get_context("spawn").Pool(1)
    batches = pool.map(batch, range(rank, count * args.steps, count))
    pool.close()
    x, y, loss = network()
    fluid.optimizer.MomentumOptimizer(0.05, 0.9).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    losses = np.zeros(args.steps, "f")
    for step, (inputs, outputs) in enumerate(batches):
        losses[step] = exe.run(feed={"x": inputs, "y": outputs}, fetch_list=[loss])[0]
        print("step %d: loss %f" % (step, losses[step]))
    fluid.io.save_params(exe, "trainer-%d" % rank)
    losses.tofile("trainer-%d/losses" % rank)
