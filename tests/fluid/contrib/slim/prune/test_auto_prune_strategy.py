"""Search for ratios; results are those of release 1.8.5."""

import numpy as np
import pytest

from tests.fluid.contrib.slim.compressions import compressed

FIELDS = (
    "pruner: pruner, controller: annealing, start_epoch: 0, end_epoch: 4, min_ratio: 0.3, "
    "max_ratio: 0.7, metric_name: acc, pruned_params: '.*conv.*_weights', "
)
UNTRAINED = FIELDS + "retrain_epoch: 0, uniform_range: 0.8, init_tokens: [30, 30]"
TRAINED = FIELDS + "retrain_epoch: 1, init_tokens: [40, 30]"


@pytest.mark.parametrize(
    ("fields", "losses"),
    [
        (UNTRAINED, [0.9745, 1.0676, 1.0613, 0.9547]),
        (TRAINED, [0.9948, 0.9264, 0.9446, 1.0722]),
    ],
)
def test_results_are_those_of_the_reference(tmp_path, fields: str, losses: list[float]) -> None:
    compressor, scope = compressed("AutoPruneStrategy", fields, 4, tmp_path)
    before = np.array(scope.find_var("s_conv2_weights").get_tensor())
    graph = compressor.run()
    assert compressor.context.eval_results["loss"] == pytest.approx(losses, abs=2e-4)
    assert graph.var("s_conv2_weights").shape() == (40, 32, 3, 3)
    np.testing.assert_array_equal(scope.find_var("s_conv2_weights").get_tensor(), before)


def test_the_best_tokens_prune_the_model_that_is_trained_on(tmp_path) -> None:
    fields = UNTRAINED.replace("end_epoch: 4", "end_epoch: 2")
    compressor, scope = compressed("AutoPruneStrategy", fields, 4, tmp_path)
    before = np.array(scope.find_var("s_fc_w").get_tensor())
    graph = compressor.run()
    best = compressor.strategies[0]._controller.best_tokens
    kept = 40 - round(40 * best[1] * 0.01)
    assert graph.var("s_conv2_weights").shape()[0] == kept < 40
    weight = np.array(scope.find_var("s_fc_w").get_tensor())
    assert weight.shape == (kept * 9, 3)
    assert not np.isin(weight, before).all(), "it was not trained"


def test_a_search_begins_in_the_middle_of_the_range(tmp_path) -> None:
    fields = UNTRAINED.replace(", init_tokens: [30, 30]", "")
    compressor, _ = compressed("AutoPruneStrategy", fields, 1, tmp_path)
    compressor.run()
    strategy = compressor.strategies[0]
    first = strategy._get_init_tokens(compressor.context)
    assert first[0] == first[1]
    assert strategy._removed(compressor.context, [first[0] / 100] * 2) == pytest.approx(
        0.5, abs=0.04
    )


def test_wrong_metric_and_checkpoint_raise(tmp_path) -> None:
    fields = UNTRAINED.replace("metric_name: acc", "metric_name: other")
    with pytest.raises(ValueError, match="'other' is no result: there are"):
        compressed("AutoPruneStrategy", fields, 1, tmp_path)[0].run()
    compressor, _ = compressed("AutoPruneStrategy", UNTRAINED, 1, tmp_path)
    with pytest.raises(RuntimeError, match="cannot continue from a checkpoint"):
        compressor.strategies[0].restore_from_checkpoint(None, {})
