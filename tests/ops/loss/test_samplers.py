"""Losses that draw classes or split them: what is drawn, how likely, and sparse gradients."""

import numpy as np
import pytest

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import find
from compiler.ops.loss.samplers import SAMPLERS, class_chances, draw_classes, draw_unique
from tests.ops.backward import gradient_op, types_of
from tests.ops.samples import numbers
from tests.ops.samples.sampled import CLASSES, CLASSIFIED, CUSTOM, NEGATIVE, OWN_PATHS, in_tree

WEIGHT = np.array([[0.5, -1], [1, 0], [-1.5, 0.5], [0.25, 2], [1, 1], [0.3, -0.7]], np.float32)
ROWS = np.array([[1, -0.5], [0.25, 2]], np.float32)
LABELS = np.array([[1], [4]])


def run(kind, inputs, **attrs):
    return find(kind)(attrs).evaluate(inputs)


def added_up(values, rows, shape):
    """Return the dense tensor that sparse rows stand for."""
    total = np.zeros(shape, values.dtype)
    np.add.at(total, rows, values)
    return total


# ---- samplers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samplers_draw_by_their_distribution(sampler):
    alias = np.array([3, -1, 3, 3, 3]), np.array([0.5, 1.0, 0.75, 1.0, 0.25], np.float32)
    chances = np.array([0.1, 0.2, 0.15, 0.5, 0.05], np.float32)
    drawn = draw_classes((40000,), sampler, 5, 3, *alias)
    shares = np.bincount(drawn, minlength=5) / drawn.size
    want = class_chances(np.arange(5), sampler, 5, chances)
    np.testing.assert_allclose(shares[:4], want[:4], atol=0.01)


def test_samplers_repeat_by_seed():
    for sampler in SAMPLERS:
        inputs = CUSTOM["CustomDistAlias"], CUSTOM["CustomDistAliasProbs"]
        first, second, other, any_one = (
            draw_classes((50,), sampler, CLASSES, seed, *inputs) for seed in (7, 7, 8, 0)
        )
        assert (first == second).all()
        assert (first != other).any()
        assert (first != any_one).any()


def test_unique_classes():
    drawn, tries = draw_unique(9, 9, 4)
    assert sorted(drawn) == list(range(9))
    assert tries >= 9


# ---- nce ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampler", "costs"), [(0, [2.2108822, 2.0228987]), (1, [1.974757, 1.9602578])]
)
def test_nce_as_recorded(sampler, costs):
    """Numbers of 1.8.5."""
    attrs = {"num_total_classes": 6, "num_neg_samples": 2, "custom_neg_classes": [0, 3]}
    result = run(
        "nce", {"Input": ROWS, "Label": LABELS, "Weight": WEIGHT}, sampler=sampler, **attrs
    )
    np.testing.assert_allclose(result["Cost"].ravel(), costs, rtol=1e-6)
    assert result["SampleLabels"].tolist() == [[1, 0, 3], [4, 0, 3]]


def test_sparse_gradient_of_nce_is_the_dense_one():
    outputs = run("nce", CLASSIFIED, **NEGATIVE)
    values, weights = {**CLASSIFIED, **outputs}, {"Cost": numbers(4, 1)}
    _, dense = gradient_op("nce", NEGATIVE, values, weights)
    attrs = NEGATIVE | {"is_sparse": True}
    cls = find("nce").grad_class
    inputs = {slot: values.get(slot) for slot in cls.inputs()} | {"Cost@GRAD": weights["Cost"]}
    sparse, types = cls(attrs).evaluate(inputs), cls(attrs).infer_types(types_of(inputs))
    total = added_up(sparse["Weight@GRAD"], sparse["Weight_rows@GRAD"], (CLASSES, 3))
    np.testing.assert_allclose(total, dense["Weight@GRAD"], rtol=1e-6)
    assert types_of(sparse) == types
    assert types["Weight_rows@GRAD"].shape == (4 * 5,)


def test_nce_errors():
    types = types_of(CLASSIFIED)
    with pytest.raises(BadAttribute, match="has 3 classes, but 'num_neg_samples' is 4"):
        find("nce")(NEGATIVE | {"num_neg_samples": 4}).infer_types(types)
    with pytest.raises(BadAttribute, match="'sampler' is 2, expected 0, 1, or 2 and CustomDist"):
        find("nce")(NEGATIVE | {"sampler": 2}).infer_types(types)
    with pytest.raises(ValueError, match="label 11 in row 0 is not a class: expected 0 to 10"):
        run("nce", {**CLASSIFIED, "Label": np.full((4, 1), CLASSES)}, **NEGATIVE)
    tables = {
        "CustomDistProbs": np.full(CLASSES, 1 / CLASSES, np.float32),
        "CustomDistAlias": np.full(CLASSES, 30_000, np.int32),
        "CustomDistAliasProbs": np.zeros(CLASSES, np.float32),
    }
    drawn = {"num_total_classes": CLASSES, "num_neg_samples": 3, "sampler": 2}
    with pytest.raises(ValueError, match="alias of class 0 is 30000, expected a class from 0 to"):
        run("nce", CLASSIFIED | tables, **drawn)
    never = {"CustomDistAlias": np.full(CLASSES, -1, np.int32)}
    assert run("nce", CLASSIFIED | tables | never, **drawn)["SampleLabels"].min() >= 0
    short = types | types_of(tables | {"CustomDistAlias": np.zeros(CLASSES - 1, np.int32)})
    with pytest.raises(ShapeError, match=f"expected {CLASSES} elements"):
        find("nce")(drawn).infer_types(short)


# ---- hierarchical sigmoid -----------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 5, 8, 11])
def test_hierarchical_probabilities_sum_to_one(classes):
    """The log(2) of each place beyond the end of a path is counted, as in the reference."""
    inputs = in_tree(classes, "W", "Bias")
    longest, total = (classes - 1).bit_length(), 0.0
    for label in range(classes):
        labels = np.full((5, 1), label)
        cost = run("hierarchical_sigmoid", {**inputs, "Label": labels}, num_classes=classes)["Out"]
        beyond = longest - ((label + classes).bit_length() - 1)
        total = total + np.exp(-cost + beyond * np.log(2))
    np.testing.assert_allclose(total, 1, rtol=1e-6)


def test_tree_as_recorded():
    """Numbers of 1.8.5."""
    inputs = {"X": ROWS, "W": WEIGHT[:5], "Label": LABELS}
    result = run("hierarchical_sigmoid", inputs, num_classes=6)
    np.testing.assert_allclose(result["Out"].ravel(), [2.9166331, 3.0688212], rtol=1e-6)
    np.testing.assert_allclose(result["PreOut"][0], [0.1602242, 1.3132616, 0.6931472], rtol=1e-6)


def test_sparse_gradient_of_own_paths_is_the_dense_one():
    outputs = run("hierarchical_sigmoid", OWN_PATHS, num_classes=6)
    values = {**OWN_PATHS, **outputs, "Out@GRAD": numbers(3, 1)}
    cls = find("hierarchical_sigmoid").grad_class
    inputs = {slot: values.get(slot) for slot in cls.inputs()}
    dense = cls({"num_classes": 6}).evaluate(inputs)
    sparse = cls({"num_classes": 6, "is_sparse": True}).evaluate(inputs)
    total = added_up(sparse["W@GRAD"], sparse["W_rows@GRAD"], (6, 2))
    np.testing.assert_allclose(total, dense["W@GRAD"], rtol=1e-6)


def test_gradient_of_later_uses_passes_through():
    """W_Out is W: the gradient of one is part of the gradient of the other."""
    inputs = in_tree(6, "W")
    outputs = run("hierarchical_sigmoid", inputs, num_classes=6)
    values = {**inputs, **outputs, "Out@GRAD": numbers(5, 1)}
    cls = find("hierarchical_sigmoid").grad_class
    given = {slot: values.get(slot) for slot in cls.inputs()}
    alone = cls({"num_classes": 6}).evaluate(given)["W@GRAD"]
    more = numbers(5, 3, seed=1)
    for is_sparse in (False, True):
        op = cls({"num_classes": 6, "is_sparse": is_sparse})
        result = op.evaluate(given | {"W_Out@GRAD": more})
        np.testing.assert_allclose(result["W@GRAD"], alone + more, rtol=1e-6)


def test_hierarchical_sigmoid_errors():
    with pytest.raises(ValueError, match="label 6 is not a class: expected 0 to 5"):
        run("hierarchical_sigmoid", in_tree(6, "W") | {"Label": np.full((5, 1), 6)}, num_classes=6)
    wild = {**OWN_PATHS, "PathTable": OWN_PATHS["PathTable"] + 3}
    with pytest.raises(ValueError, match="PathTable has 8, expected nodes up to 5"):
        run("hierarchical_sigmoid", wild, num_classes=6)


# ---- sampled logits -----------------------------------------------------------------------------


def test_a_few_classes_of_many():
    logits, labels = numbers(3, 20), np.array([[4], [0], [19]])
    attrs = {"num_samples": 6, "seed": 2, "remove_accidental_hits": False}
    result = run("sample_logits", {"Logits": logits, "Labels": labels}, **attrs)
    samples, chances = result["Samples"], result["Probabilities"]
    assert (samples[:, :1] == labels).all()
    assert (samples[:, 1:] == samples[0, 1:]).all()
    assert len(set(samples[0, 1:])) == 6
    assert ((chances > 0) & (chances <= 1)).all()
    want = np.take_along_axis(logits, samples, 1) - np.log(chances)
    np.testing.assert_allclose(result["SampledLogits"], want, rtol=1e-6)
    assert result["SampledLabels"].tolist() == [[0], [0], [0]]


def test_accidental_hits_are_masked():
    inputs = {"Logits": numbers(2, 3), "Labels": np.array([[0], [2]])}
    result = run("sample_logits", inputs, num_samples=3, seed=2)
    hits = result["Samples"][:, 1:] == inputs["Labels"]
    assert hits.sum(1).tolist() == [1, 1]
    assert (result["SampledLogits"][:, 1:][hits] < -1e19).all()
    assert (np.abs(result["SampledLogits"][:, 1:][~hits]) < 9).all()


def test_more_samples_than_classes():
    types = types_of({"Logits": numbers(2, 3), "Labels": np.array([[0], [2]])})
    with pytest.raises(BadAttribute, match="'num_samples' is 4, expected at most 3"):
        find("sample_logits")({"num_samples": 4}).infer_types(types)
