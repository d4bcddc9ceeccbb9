"""Data parallelism in eager mode: one trainer is the layer itself."""

import numpy as np

import fluid
from fluid.dygraph import DataParallel, Linear, ParallelEnv, guard, prepare_context, to_variable


def test_one_trainer_is_the_layer_itself() -> None:
    with guard():
        net = Linear(2, 1)
        parallel = DataParallel(net, prepare_context())
        assert (ParallelEnv().nranks, ParallelEnv().local_rank) == (1, 0)
        x = to_variable(np.ones([3, 2], "float32"))
        loss = fluid.layers.mean(parallel(x))
        assert parallel.scale_loss(loss) is loss
        loss.backward()
        parallel.apply_collective_grads()
        assert net.weight.gradient().ravel().tolist() == [1.0, 1.0]
        assert list(parallel.state_dict()) == ["weight", "bias"]
        assert parallel.parameters() == [net.weight, net.bias]
