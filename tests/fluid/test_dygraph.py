"""Layers that are objects, in programs: parameters, sublayers, hooks, and training."""

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.dygraph import LayerList, ParameterList, Sequential, nn, to_variable

pytestmark = pytest.mark.usefixtures("fresh_programs")


class Net(fluid.Layer):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(3, 4, act="tanh")
        self.out = nn.Linear(4, 1, bias_attr=False)
        self.scale = self.create_parameter([1], attr=fluid.ParamAttr("scale"))

    def forward(self, x):
        return self.out(self.hidden(x)) * self.scale


def test_a_network_is_trained():
    net = Net()
    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1])
    loss = nn.MSELoss()(net(x), y)
    fluid.optimizer.SGD(0.1).minimize(loss, parameter_list=net.parameters())
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    feed = {"x": np.eye(3, dtype="float32"), "y": np.ones((3, 1), "float32")}
    losses = [exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(50)]
    assert losses[-1] < losses[0]


def test_names_of_parameters():
    net = Net()
    assert net.full_name() == "net_0"
    assert {name: param.name for name, param in net.named_parameters()} == {
        "scale": "scale",
        "hidden.weight": "linear_0.w_0",
        "hidden.bias": "linear_0.b_0",
        "out.weight": "linear_1.w_0",
    }
    assert set(net.state_dict()) == {"scale", "hidden.weight", "hidden.bias", "out.weight"}
    assert [name for name, _ in net.named_sublayers()] == ["hidden", "out"]
    assert net.parameters(include_sublayers=False) == [net.scale]
    net.out = None
    assert net.sublayers() == [net.hidden]
    del net.scale
    with pytest.raises(AttributeError, match="scale"):
        _ = net.scale
    with pytest.raises(TypeError, match="of type Layer or None"):
        net.hidden = 1


def test_two_calls_share_parameters():
    net = nn.Embedding([10, 4])
    ids = fluid.data("ids", [None, 5], "int64")
    net(ids)
    net(ids)
    assert len(fluid.default_main_program().all_parameters()) == 1
    assert [op.input("W") for op in fluid.default_main_program().global_block().ops] == [
        ["embedding_0.w_0"]
    ] * 2


def test_hooks():
    layer = nn.Linear(2, 2)
    x = fluid.data("x", [None, 2])
    before = layer.register_forward_pre_hook(lambda layer, inputs: inputs[0] * 2.0)
    after = layer.register_forward_post_hook(lambda layer, inputs, out: (inputs, out))
    (changed,), out = layer(x)
    assert changed is not x
    assert out.shape == (-1, 2)
    before.remove()
    after.remove()
    assert layer(x).shape == (-1, 2)


def test_containers():
    model = Sequential(nn.Linear(3, 4), ("last", nn.Linear(4, 2)))
    assert model(fluid.data("x", [None, 3])).shape == (-1, 2)
    assert [name for name, _ in model.named_parameters()][::2] == ["0.weight", "last.weight"]
    del model["last"]
    assert len(model) == 1
    chosen = LayerList([nn.Linear(2, 2) for _ in range(3)])
    chosen.insert(1, model[0])
    assert [layer.full_name() for layer in chosen][1] == "linear_0"
    assert len(chosen.append(nn.Dropout())) == 5
    assert [layer.full_name() for layer in chosen[1:3]] == ["linear_0", "linear_3"]
    del chosen[1:]
    assert len(chosen) == 1
    model[0].weight = chosen[0].weight
    assert [name for name, _ in model[0].named_parameters()] == ["weight", "bias"]
    params = ParameterList([model[0].weight])
    assert list(params.append(model[0].bias)) == model.parameters()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Conv2D(3, 4, 3, param_attr=False), "param_attr"),
        (lambda: nn.Conv2D(3, 4, 3, groups=2), "divisible by groups"),
        (lambda: nn.Pool2D(2, "sum"), "pool_type"),
        (lambda: nn.Pool2D(), "pool_size"),
        (lambda: nn.Dropout(1.5), "between 0 and 1"),
        (lambda: nn.PRelu("some"), "all, channel, element"),
        (lambda: nn.LayerNorm([4])(fluid.data("x", [2, 3])), r"\[2, 3\]"),
        (lambda: nn.MSELoss("most"), "reduction"),
        (lambda: fluid.Layer()(1), "does not define forward"),
        (lambda: to_variable(np.ones(3)), "dygraph mode"),
    ],
)
def test_errors(make, message):
    with pytest.raises(
        (AssertionError, ValueError, RuntimeError, NotImplementedError), match=message
    ):
        make()


def test_losses():
    rows, classes = fluid.data("rows", [4, 3]), fluid.data("classes", [4], "int64")
    loss = nn.NLLLoss(reduction="none", ignore_index=2)(layers.log(rows), classes)
    close = nn.L1Loss("sum")(rows, rows * 2.0)
    binary = nn.BCELoss(reduction="mean")(rows, rows)
    inputs = np.full((4, 3), 0.5, "float32")
    feed = {"rows": inputs, "classes": np.array([0, 1, 2, 0])}
    result = fluid.Executor().run(feed=feed, fetch_list=[loss, close, binary])
    half = np.log(2.0, dtype="float32")
    np.testing.assert_allclose(result[0], [half, half, 0.0, half], rtol=1e-6)
    np.testing.assert_allclose(result[1].ravel(), [6.0], rtol=1e-6)
    np.testing.assert_allclose(result[2].ravel(), [half], rtol=1e-6)
