"""Data parallelism in eager mode: one trainer is the layer itself."""

import numpy as np

import fluid
from fluid.dygraph import DataParallel, Linear, ParallelEnv, guard, prepare_context, to_variable


def test_variables_as_one_and_apart_again() -> None:
    arrays = [np.arange(6, dtype="float32").reshape(2, 3), np.arange(4, dtype="float32")[:, None]]
    with guard():
        parallel = DataParallel(Linear(2, 1))
        variables = [to_variable(array) for array in arrays]
        groups = parallel._coalesce_tensors({0: variables, 1: variables[:1]})
        assert [(group[0].shape, group[1]) for group in groups] == [
            ([10], variables), ([6], variables[:1]),
        ]  # fmt: skip
        whole, parts, shapes = groups[0]
        assert shapes == [[2, 3], [4, 1]]
        parallel._split_tensors([[whole * 2.0, parts, shapes]])
        for variable, array in zip(variables, arrays, strict=True):
            np.testing.assert_array_equal(variable.numpy(), array * 2)
        parallel._reshape_inplace(variables[0], [3, 2])
        np.testing.assert_array_equal(variables[0].numpy(), arrays[0].reshape(3, 2) * 2)


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
