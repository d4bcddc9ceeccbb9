"""Compression by configuration files; losses and weights are those of release 1.8.5."""

import sys

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.contrib.slim import Compressor
from fluid.contrib.slim.core import ConfigFactory

RANDOM = np.random.RandomState(0)
X = RANDOM.rand(8, 1, 6, 6).astype("float32")
Y = RANDOM.randint(0, 3, (8, 1)).astype("int64")
CPU = fluid.CPUPlace()
PRUNING = """
version: 1.0
pruners:
    pruner_1:
        class: StructurePruner
        pruning_axis: {'*': 0}
        criterions: {'*': l1_norm}
strategies:
    pruning:
        class: UniformPruneStrategy
        pruner: pruner_1
        start_epoch: 0
        target_ratio: 0.593
        pruned_params: '.*conv.*_weights'
compressor:
    epoch: 2
    checkpoint_path: CHECKPOINTS
    strategies: [pruning]
"""
DISTILLATION = """
distillers:
    l2: {class: L2Distiller, student_feature_map: STUDENT, teacher_feature_map: TEACHER}
strategies:
    distillation: {class: DistillationStrategy, distillers: [l2], start_epoch: 0, end_epoch: 1}
compressor:
    epoch: 2
    strategies: [distillation]
"""


def reader():
    for start in (0, 4):
        yield [(X[i], Y[i]) for i in range(start, start + 4)]


def built(prefix):
    """Main and startup program, and the loss, accuracy and feature map, by name."""

    def named(name):
        return fluid.ParamAttr(name=prefix + name)

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(prefix):
        image, label = fluid.data("img", [None, 1, 6, 6]), fluid.data("label", [None, 1], "int64")
        h = layers.conv2d(
            image, 4, 3, padding=1, param_attr=named("conv1_weights"), bias_attr=named("conv1_b")
        )
        h = layers.batch_norm(
            h, act="relu", param_attr=named("s"), bias_attr=named("o"),
            moving_mean_name=prefix + "m", moving_variance_name=prefix + "v",
        )  # fmt: skip
        h = layers.conv2d(
            h, 4, 3, padding=1, groups=4, use_cudnn=False, param_attr=named("dw_w"), bias_attr=False
        )
        h = layers.pool2d(h, 2, pool_stride=2)
        features = layers.conv2d(
            h, 6, 3, padding=1, act="relu", param_attr=named("conv2_weights"), bias_attr=False
        )
        y = layers.fc(features, 3, param_attr=named("fc_w"), bias_attr=named("fc_b"))
        loss = layers.mean(layers.softmax_with_cross_entropy(y, label))
        accuracy = layers.accuracy(layers.softmax(y), label)
    return main, startup, {"loss": loss.name, "acc": accuracy.name, "features": features.name}


def started(scope, main, startup, seed):
    """Set the parameters to numbers of a seed."""
    fluid.Executor(CPU).run(startup, scope=scope)
    random = np.random.RandomState(seed)
    for param in sorted(main.all_parameters(), key=lambda param: param.name):
        values = random.randn(*param.shape)
        values = np.abs(values) if param.name.endswith("v") else values
        scope.find_var(param.name).get_tensor().set(values.astype("float32"), CPU)


def compressed(config, folder, teacher=None):
    """Run a configuration; returns the compressor and its scope."""
    main, startup, names = built("s_")
    scope = fluid.Scope()
    started(scope, main, startup, 1)
    teachers = []
    if teacher is not None:
        started(scope, *teacher[:2], 2)
        teachers = [teacher[0].clone(for_test=True)]
    ends = [("img", "img"), ("label", "label")]
    compressor = Compressor(
        CPU, scope, main, reader, ends, [("loss", names["loss"])], main.clone(for_test=True), reader,
        ends, [("acc", names["acc"]), ("loss", names["loss"])], teacher_programs=teachers,
        train_optimizer=fluid.optimizer.Momentum(0.01, 0.9),
        distiller_optimizer=fluid.optimizer.Momentum(0.01, 0.9),
    )  # fmt: skip
    file = folder / "config.yaml"
    file.write_text(config.replace("CHECKPOINTS", str(folder / "checkpoints")))
    compressor.config(str(file))
    return compressor, scope


def sums(scope, *names):
    return [float(np.array(scope.find_var(name).get_tensor()).sum()) for name in names]


def test_uniform_pruning_and_its_checkpoint(tmp_path) -> None:
    for _ in range(2):  # the second one continues after the last epoch
        compressor, scope = compressed(PRUNING, tmp_path)
        graph = compressor.run()
        results = compressor.context.eval_results
        assert results["acc"] == pytest.approx([0.375, 0.375])
        assert results["loss"] == pytest.approx([1.2583, 1.1976], abs=2e-4)
        assert graph.numel_params() == 184
        values = sums(scope, "s_conv1_weights", "s_s", "s_dw_w", "s_conv2_weights", "s_fc_w")
        assert values == pytest.approx([-2.9264, -1.2685, 0.8552, 10.757, 6.8369], abs=2e-3)
        assert graph.var("s_conv2_weights").shape() == (3, 2, 3, 3)
    assert {path.name for path in (tmp_path / "checkpoints" / "1").iterdir()} == {
        "context.json", "eval_model", "model",
    }  # fmt: skip


def test_distillation(tmp_path) -> None:
    student, teacher = built("s_")[2], built("t_")
    config = DISTILLATION.replace("STUDENT", student["features"])
    config = config.replace("TEACHER", teacher[2]["features"])
    compressor, scope = compressed(config, tmp_path, teacher)
    compressor.run()
    assert compressor.context.eval_results["loss"] == pytest.approx([20.3541, 26.9798], rel=1e-4)
    assert sums(scope, "s_dw_w", "s_fc_w") == pytest.approx([-0.8329, 5.1859], abs=2e-3)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("UniformPruneStrategy", "UniformPrunStrategy", "did you mean 'UniformPruneStrategy'"),
        ("UniformPruneStrategy", "MKLDNNPostTrainingQuantStrategy", "of 'pruning' is not here"),
        ("[pruning]", "[other]", "there is no strategy 'other'"),
    ],
)
def test_wrong_names_raise(tmp_path, old, new, message) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(PRUNING.replace(old, new))
    with pytest.raises(ValueError, match=message):
        ConfigFactory(str(file))


def test_channels_that_cannot_be_followed_raise(tmp_path) -> None:
    config = PRUNING.replace("'.*conv.*_weights'", "'.*none'")
    with pytest.raises(ValueError, match="no parameter matches pruned_params"):
        compressed(config, tmp_path)[0].run()


def test_files_may_include_each_other(tmp_path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(f"include: [{second}]\ncompressor: {{epoch: 3}}\n")
    second.write_text(f"include: [{first}]\ncompressor: {{checkpoint_path: there}}\n")
    expected = {"epoch": 3, "checkpoint_path": "there", "strategies": []}
    assert ConfigFactory(str(first)).compressor == expected


def test_without_yaml_the_extra_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ImportError, match=r"fluid-compiler\[slim\]"):
        ConfigFactory(str(tmp_path / "config.yaml"))
