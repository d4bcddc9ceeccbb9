"""Compressions of a small network by a strategy; the numbers compared are of release 1.8.5."""

import numpy as np

import fluid
from fluid import layers
from fluid.contrib.slim import Compressor

RANDOM = np.random.RandomState(0)
X = RANDOM.rand(16, 1, 6, 6).astype("float32")
Y = RANDOM.randint(0, 3, (16, 1)).astype("int64")
CPU = fluid.CPUPlace()
CONFIG = """
version: 1.0
pruners:
    pruner: {class: StructurePruner, pruning_axis: {'*': 0}, criterions: {'*': l1_norm}}
controllers:
    annealing: {class: SAController, reduce_rate: 0.9, init_temperature: 10, max_iter_number: 50}
strategies:
    strategy: {class: CLASS, FIELDS}
compressor:
    epoch: EPOCHS
    strategies: [strategy]
"""


def reader():
    for start in range(0, 16, 4):
        yield [(X[i], Y[i]) for i in range(start, start + 4)]


def built(filters=(32, 40)):
    """Main and startup program, and the names of results."""

    def named(name):
        return fluid.ParamAttr(name=f"s_{name}")

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard("s_"):
        image, label = fluid.data("img", [None, 1, 6, 6]), fluid.data("label", [None, 1], "int64")
        h = layers.conv2d(
            image, filters[0], 3, padding=1, param_attr=named("conv1_weights"),
            bias_attr=named("conv1_b"),
        )  # fmt: skip
        h = layers.batch_norm(
            h, act="relu", param_attr=named("s"), bias_attr=named("o"), moving_mean_name="s_m",
            moving_variance_name="s_v",
        )  # fmt: skip
        h = layers.conv2d(
            layers.pool2d(h, 2, pool_stride=2), filters[1], 3, padding=1, act="relu",
            param_attr=named("conv2_weights"), bias_attr=False,
        )  # fmt: skip
        y = layers.fc(h, 3, param_attr=named("fc_w"), bias_attr=named("fc_b"))
        loss = layers.mean(layers.softmax_with_cross_entropy(y, label))
        accuracy = layers.accuracy(layers.softmax(y), label)
        likelihood = layers.exp(layers.scale(loss, -1.0))
    names = {"loss": loss, "acc": accuracy, "likelihood": likelihood, "y": y}
    return main, startup, {key: var.name for key, var in names.items()}


def compressed(strategy, fields, epochs, folder, space=None):
    """Run a strategy, with its arguments as YAML; returns the compressor and its scope."""
    main, startup, names = built()
    scope = fluid.Scope()
    fluid.Executor(CPU).run(startup, scope=scope)
    random = np.random.RandomState(1)
    for param in sorted(main.all_parameters(), key=lambda param: param.name):
        values = random.randn(*param.shape) * 0.2
        values = np.abs(values) if param.name.endswith("v") else values
        scope.find_var(param.name).get_tensor().set(values.astype("float32"), CPU)
    np.random.seed(7)  # controllers draw from it
    ends = [("img", "img"), ("label", "label")]
    results = [(name, names[name]) for name in ("acc", "loss", "likelihood")]
    compressor = Compressor(
        CPU, scope, main, reader, ends, [("loss", names["loss"])], main.clone(for_test=True), reader,
        ends, results, search_space=space,
        train_optimizer=None if space else fluid.optimizer.Momentum(0.01, 0.9),
    )  # fmt: skip
    file = folder / "config.yaml"
    text = CONFIG.replace("CLASS", strategy).replace("FIELDS", fields)
    file.write_text(text.replace("EPOCHS", str(epochs)))
    compressor.config(str(file))
    return compressor, scope
