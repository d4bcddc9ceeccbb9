"""Checkpoints of eager mode, in the files of release 1.8.5."""

from pathlib import Path

import numpy as np
import pytest

import fluid
from fluid.dygraph import Linear, NoamDecay, guard, load_dygraph, save_dygraph, to_variable
from runtime.files.checkpoint import CheckpointError


def trained(steps: int = 1, state: tuple | None = None):
    """A layer after some steps, and its optimizer."""
    net = Linear(2, 1, param_attr=fluid.ParamAttr(initializer=fluid.initializer.Constant(1.0)))
    optimizer = fluid.optimizer.Adam(NoamDecay(4, 3), parameter_list=net.parameters())
    if state is not None:
        net.set_dict(state[0])
        optimizer.set_dict(state[1])
    for _ in range(steps):
        loss = fluid.layers.mean(net(to_variable(np.ones([3, 2], "float32"))))
        loss.backward()
        optimizer.minimize(loss)
        net.clear_gradients()
    return net, optimizer


def test_training_continues_from_checkpoint(tmp_path: Path) -> None:
    prefix = str(tmp_path / "sub" / "model")
    with guard():
        expected = trained(3)[0].weight.numpy()
    with guard():
        net, optimizer = trained(1)
        fluid.save_dygraph(net.state_dict(), prefix)
        save_dygraph(optimizer.state_dict(), prefix)
    with guard():
        params, state = load_dygraph(prefix + ".pdparams")
        assert sorted(params) == ["bias", "weight"]
        assert state is not None
        assert state["LR_Scheduler"] == {"step_num": 2}
        assert state["global_step"].tolist() == [2]
        net, _ = trained(2, (params, state))
        np.testing.assert_array_equal(net.weight.numpy(), expected)


def test_names_of_a_file(tmp_path: Path) -> None:
    with guard():
        save_dygraph(Linear(2, 1).state_dict(), str(tmp_path / "model"))
        params, state = load_dygraph(str(tmp_path / "model"), keep_name_table=True)
    names = {"weight": "linear_0.w_0", "bias": "linear_0.b_0"}
    assert (params["StructuredToParameterName@@"], state) == (names, None)


def test_errors(tmp_path: Path) -> None:
    with guard():
        with pytest.raises(RuntimeError, match="not exists"):
            load_dygraph(str(tmp_path / "none"))
        with pytest.raises(AssertionError, match="state_dict is empty"):
            save_dygraph({}, str(tmp_path / "model"))
        (tmp_path / "bad.pdparams").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
        with pytest.raises(CheckpointError, match=r"bad\.pdparams"):
            load_dygraph(str(tmp_path / "bad"))
        net = Linear(2, 1)
        with pytest.raises(RuntimeError, match=r"Can't not find \[ bias \]"):
            net.set_dict({"weight": net.weight.numpy()})
    with pytest.raises(AssertionError, match="dygraph mode"):
        load_dygraph(str(tmp_path / "bad"))
