"""Pruning by sensitivities; results are those of release 1.8.5."""

import json

import numpy as np
import pytest

from tests.fluid.contrib.slim.compressions import compressed

FIELDS = (
    "pruner: pruner, start_epoch: 1, delta_rate: 0.1, target_ratio: 0.4, num_steps: 1, "
    "metric_name: likelihood, pruned_params: '.*conv.*_weights', sensitivities_file: FILE"
)


def run(folder, fields=FIELDS, epochs=3):
    fields = fields.replace("FILE", str(folder / "sensitivities.json"))
    compressor, scope = compressed("SensitivePruneStrategy", fields, epochs, folder)
    return compressor, scope, compressor.run()


def test_results_are_those_of_the_reference(tmp_path) -> None:
    compressor, scope, graph = run(tmp_path)
    results = compressor.context.eval_results
    assert results["acc"] == pytest.approx([0.5625, 0.625, 0.4375])
    assert results["loss"] == pytest.approx([1.008, 0.9365, 0.9141], abs=2e-4)
    assert graph.numel_params() == 6436
    assert graph.var("s_conv2_weights").shape() == (19, 32, 3, 3)
    values = [np.array(scope.find_var(n).get_tensor()).sum() for n in ("s_s", "s_fc_w")]
    assert values == pytest.approx([-1.352, -2.273], abs=2e-3)
    measured = json.loads((tmp_path / "sensitivities.json").read_text())
    assert measured["s_conv1_weights"]["pruned_percent"] == [n / 10 for n in range(1, 10)]
    assert measured["s_conv2_weights"]["size"] == 40


def test_what_was_measured_is_read(tmp_path) -> None:
    """Equal curves, so equal parts of both, which reach the target without an evaluation."""
    parts = [0.2, 0.4, 0.6, 0.8]
    entry = {"pruned_percent": parts, "loss": [part**2 for part in parts], "size": 40}
    names = ("s_conv1_weights", "s_conv2_weights")
    (tmp_path / "sensitivities.json").write_text(json.dumps(dict.fromkeys(names, entry)))
    fields = FIELDS.replace("delta_rate: 0.1", "delta_rate: 0.2").replace(
        "start_epoch: 1", "start_epoch: 0"
    )
    _, _, graph = run(tmp_path, fields, epochs=1)
    first, second = (graph.var(name).shape()[0] for name in names)
    assert first / 32 == pytest.approx(second / 40, abs=0.02)
    assert first < 32


def test_sampled_batches_are_the_same_in_each_evaluation(tmp_path) -> None:
    fields = FIELDS.replace("start_epoch: 1", "start_epoch: 0, eval_rate: 0.4").replace(
        "0.1,", "0.5,"
    )
    compressor, _, _ = run(tmp_path, fields, epochs=0)
    context = compressor.context
    results = [context.run_eval_graph(0.4, 3)[0] for _ in range(2)]
    assert results[0] == results[1] != context.run_eval_graph()[0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("likelihood", "other", r"'other' is no result: there are \['acc', 'loss', 'likelihood'\]"),
        ("'.*conv.*_weights'", "other_weights", "no parameter matches pruned_params"),
        ("FILE", "CONFIG", "is not JSON: a pickle of release 1.8.5 is not read"),
    ],
)
def test_wrong_arguments_raise(tmp_path, old, new, message) -> None:
    fields = FIELDS.replace("start_epoch: 1", "start_epoch: 0").replace(old, new)
    fields = fields.replace("CONFIG", str(tmp_path / "config.yaml"))
    with pytest.raises(ValueError, match=message):
        run(tmp_path, fields, epochs=1)
