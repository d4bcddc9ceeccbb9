"""What generated kernels fetch: counters of a step, by the command and of small programs."""

import json
from pathlib import Path

import numpy as np
import pytest

import fluid
from compiler.debugging.explanation import study_graph
from compiler.driver import feed_shapes
from compiler.ir.conversion.program_to_graph import to_graph
from fluid.__main__ import main
from tools.ptx.step_counters import count_step

pytest.importorskip("triton")
pytest.importorskip("torch")

MODEL = Path(__file__).resolve().parents[2] / "golden" / "inference" / "digits_mlp__separate"


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def counters(build, **feed):
    """The counters of a program that `build` records over float32 feeds of fixed inner sizes."""
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        names = {name: fluid.data(name, [None, *a.shape[1:]]) for name, a in feed.items()}
        out = build(**names)
    scope = fluid.Scope()
    if startup.global_block().ops:
        fluid.Executor().run(startup, scope=scope)
    graph = to_graph(program, feed_shapes(program, list(feed)), [out.name])
    sizes = {name: 8 for var in graph.feeds() for name in var.type.names}
    module = study_graph("counted", graph, sizes, target="triton").module
    return count_step(module, feed, dict(scope.arrays())).kernels


def images(*shape):
    return np.random.default_rng(0).random((8, *shape), "f4")


def test_pools_of_odd_channels_fetch_whole_sectors():
    result = counters(lambda x: fluid.layers.pool2d(x, 2, pool_stride=2), x=images(6, 10, 10))
    assert result["pool2d"].fetched_ratio < 1.05


def test_parts_of_joined_rows_share_a_launch_and_sectors():
    def joined(x, y):
        x, y = (fluid.layers.reshape(each, [-1, each.shape[-1]]) for each in (x, y))
        both = fluid.layers.relu(fluid.layers.concat([x, y], axis=1))
        one, two = fluid.layers.split(both, [4, 5], dim=1)
        return fluid.layers.reduce_sum(one) + fluid.layers.reduce_sum(fluid.layers.exp(two))

    result = counters(joined, x=images(40, 6), y=images(40, 3))
    for kernel in (result["concat"], result["split"]):
        assert kernel.launches == 1 and kernel.fetched_ratio < 1.05


def test_column_sums_of_odd_channels_fetch_whole_sectors():
    def summed(x):
        return fluid.layers.reduce_sum(x, dim=[0, 1])

    result = counters(summed, x=images(600, 6))
    assert result["reduce_sum_parts"].fetched_ratio < 1.05


def test_results_of_rows_are_stored_in_whole_sectors():
    def normalized(x):
        return fluid.layers.layer_norm(x, begin_norm_axis=2)

    (result,) = counters(normalized, x=images(13, 16)).values()
    assert result.stores.requests <= result.stores.touched * 1.05


@pytest.mark.slow
def test_updates_of_small_parameters_fetch_whole_sectors():
    def trained(x):
        loss = fluid.layers.mean(fluid.layers.fc(x, 50))
        fluid.optimizer.Adam(0.1).minimize(loss)
        return loss

    result = counters(trained, x=images(30))
    assert result["adam"].fetched_ratio < 1.15
    (grad,) = (each for name, each in result.items() if name.startswith("linear_grad"))
    assert grad.banks.per_access < 1.5


def test_a_transposed_right_factor_has_no_bank_conflicts():
    result = counters(lambda x, y: fluid.layers.matmul(x, y, transpose_y=True),
                     x=images(64, 32), y=images(64, 32))  # fmt: skip
    assert result["matmul"].banks.per_access < 1.5


def test_filters_of_trained_convolutions_are_fetched_once_by_a_program():
    def convolved(x):
        return fluid.layers.conv2d(x, 64, 3, padding=1, bias_attr=False, data_format="NHWC")

    (result,) = counters(convolved, x=images(2, 2, 64)).values()  # a program has 32 rows
    assert result.fetched_ratio < 1.5  # 7.5 if all channels of a tap came before the next tap


def test_inspect_shows_counters_beside_the_account(capsys, tmp_path):
    file = tmp_path / "counted.json"
    inputs = ["--roofline", "a100", "--counters", "--batch", "4", "--json", str(file)]
    assert main(["inspect", str(MODEL), *inputs]) == 0
    shown = capsys.readouterr().out
    assert "counters of the PTX machine, sm_80; launches:" in shown
    rows = json.loads(file.read_text(encoding="utf-8"))["counters"]
    product = next(row for row in rows if row["op"] == "mul")
    assert product["loads"]["ideal"] + product["stores"]["ideal"] == product["account"]
    assert product["kernel"] in shown and product["instructions"]["float"]
    assert main(["inspect", str(MODEL), "--counters"]) != 0
    assert "--counters requires --roofline" in capsys.readouterr().err
