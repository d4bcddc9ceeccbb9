"""Search for networks by a strategy; tokens and results are those of release 1.8.5."""

import numpy as np
import pytest

import fluid
from fluid.contrib.slim.nas import SearchSpace
from tests.fluid.contrib.slim.compressions import built, compressed, reader

FIELDS = (
    "controller: annealing, end_epoch: 5, retrain_epoch: 1, metric_name: acc, server_port: 0, "
    "server_ip: 127.0.0.1, is_server: True, search_steps: 10, key: k, target_flops: 629145600"
)


class Filters(SearchSpace):
    """Two tokens: the numbers of filters, less two."""

    def __init__(self) -> None:
        super().__init__()
        self.tried = []

    def init_tokens(self):
        return [2, 1]

    def range_table(self):
        return [6, 6]

    def get_model_latency(self, program):
        return float(program.global_block().var("s_conv1_weights").shape[0])

    def create_net(self, tokens):
        self.tried.append(list(tokens))
        main, startup, names = built([2 + token for token in tokens])
        test = main.clone(for_test=True)
        with fluid.program_guard(main, startup), fluid.unique_name.guard("o_"):
            loss = main.global_block().var(names["loss"])
            fluid.optimizer.Momentum(0.01, 0.9).minimize(loss)
        for number, param in enumerate(main.all_parameters()):
            size = int(np.prod(param.shape))
            values = np.random.RandomState(number + size).randn(size)
            values = np.abs(values) if param.name.endswith("v") else values
            attrs = {"shape": list(param.shape), "dtype": 5, "fp32_values": values.tolist()}
            out = startup.global_block().var(param.name)
            startup.global_block().append_op("assign_value", outputs={"Out": [out]}, attrs=attrs)
        return startup, main, test, None, None, reader, reader


@pytest.mark.parametrize(
    ("retrain", "tried", "losses"),
    [
        (1, [[2, 1], [4, 1], [2, 1], [2, 2], [3, 2]], [2.9599, 12.7078, 2.9599, 3.788, 2.91]),
        (2, [[2, 1], [4, 1], [4, 0]], [2.9599, 2.225, 12.7078, 11.0731, 16.9339]),
    ],
)
def test_results_are_those_of_the_reference(tmp_path, retrain, tried, losses) -> None:
    fields, space = FIELDS.replace("retrain_epoch: 1", f"retrain_epoch: {retrain}"), Filters()
    compressor, _ = compressed("LightNASStrategy", fields, 5, tmp_path, space)
    compressor.run()
    assert space.tried == tried
    assert compressor.context.eval_results["loss"] == pytest.approx(losses, rel=2e-4)


@pytest.mark.parametrize("limit", ["target_flops: 10000", "target_latency: 3"])
def test_networks_that_are_too_large_are_drawn_again(tmp_path, limit: str) -> None:
    fields, space = FIELDS.replace("target_flops: 629145600", limit), Filters()
    compressor, _ = compressed("LightNASStrategy", fields, 1, tmp_path, space)
    graph = compressor.run()
    assert len(space.tried) > 1
    if "flops" in limit:
        assert graph.flops() <= 10000
    else:
        assert graph.var("s_conv1_weights").shape()[0] <= 3


def test_wrong_metric_and_missing_space_raise(tmp_path) -> None:
    fields = FIELDS.replace("metric_name: acc", "metric_name: other")
    with pytest.raises(ValueError, match="'other' is no result: there are"):
        compressed("LightNASStrategy", fields, 1, tmp_path, Filters())[0].run()
    with pytest.raises(AssertionError, match="needs a search_space"):
        compressed("LightNASStrategy", FIELDS, 1, tmp_path)[0].run()
