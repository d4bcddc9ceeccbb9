"""Losses over sequences compared with brute force over all paths."""

from itertools import groupby, pairwise, product

import numpy as np
import pytest

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType
from tests.ops.samples import integers, numbers
from tests.ops.samples.structured import lengths, lod


def run(kind, inputs, **attrs):
    return find(kind)(attrs).evaluate(inputs)


# ---- CRF ----------------------------------------------------------------------------------------

STEPS, TAGS = 4, 3
EMISSION, TRANSITION = numbers(STEPS, TAGS, low=-2.0, high=2.0), numbers(TAGS + 2, TAGS, seed=1)


def weight(path, emission=EMISSION):
    """Return the weight of a path of tags: its start, its end, its steps and what it emits."""
    ends = TRANSITION[0, path[0]] + TRANSITION[1, path[-1]]
    moves = sum(TRANSITION[2 + a, b] for a, b in pairwise(path))
    return ends + moves + sum(row[tag] for row, tag in zip(emission, path, strict=True))


PATHS = list(product(range(TAGS), repeat=STEPS))
WEIGHTS = np.array([weight(path) for path in PATHS])


@pytest.mark.parametrize("path", PATHS[::7])
def test_likelihood_is_a_share_of_all_paths(path):
    inputs = {"Emission": EMISSION, "Transition": TRANSITION, "Emission_lod": lod(STEPS)}
    inputs["Label"] = np.array(path).reshape(-1, 1)
    result = run("linear_chain_crf", inputs)["LogLikelihood"]
    want = np.log(np.exp(WEIGHTS).sum()) - weight(path)
    np.testing.assert_allclose(result, [[want]], rtol=1e-5)


def test_best_path_is_the_best_of_all():
    inputs = {"Emission": EMISSION, "Transition": TRANSITION, "Emission_lod": lod(STEPS)}
    result = run("crf_decoding", inputs)["ViterbiPath"]
    assert tuple(result.ravel()) == PATHS[int(WEIGHTS.argmax())]


def test_padding_changes_nothing():
    rows, lines = numbers(9, TAGS, seed=2), np.full((3, 6, TAGS), 7, np.float32)
    tags, in_lines = integers(9, 1, high=TAGS, seed=3), np.full((3, 6), 1)
    for line, (start, stop) in enumerate(((0, 4), (4, 5), (5, 9))):
        lines[line, : stop - start] = rows[start:stop]
        in_lines[line, : stop - start] = tags[start:stop, 0]
    field = {"Transition": TRANSITION}
    flat = {"Emission": rows, "Label": tags, "Emission_lod": lod(4, 1, 4), **field}
    padded = {"Emission": lines, "Label": in_lines, "Length": lengths(4, 1, 4), **field}
    costs = [run("linear_chain_crf", each)["LogLikelihood"] for each in (flat, padded)]
    np.testing.assert_array_equal(*costs)
    right = [run("crf_decoding", each)["ViterbiPath"] for each in (flat, padded)]
    assert right[0].sum() == right[1].sum()
    assert not right[1][1, 1:].any()


def test_crf_needs_lod():
    inputs = {"Emission": EMISSION, "Transition": TRANSITION, "Label": np.zeros((STEPS, 1), int)}
    with pytest.raises(ValueError, match="need LoD or the input Length"):
        run("linear_chain_crf", inputs)
    different = {"Emission_lod": lod(4), "Label_lod": lod(2, 2)}
    with pytest.raises(ValueError, match="Emission and Label have different lengths"):
        run("linear_chain_crf", inputs | different)
    assert run("linear_chain_crf", inputs | {"Label_lod": lod(2, 2)})["LogLikelihood"].size == 2


def test_tag_that_is_none():
    inputs = {"Emission": EMISSION, "Transition": TRANSITION, "Emission_lod": lod(STEPS)}
    with pytest.raises(ValueError, match="Label has 3, expected tags from 0 to 2"):
        run("linear_chain_crf", {**inputs, "Label": np.full((STEPS, 1), 3)})


def test_length_that_is_too_long():
    inputs = {"Emission": EMISSION[None], "Transition": TRANSITION, "Length": lengths(5)}
    with pytest.raises(ValueError, match="Length has 5, expected lengths from 0 to 4"):
        run("crf_decoding", inputs)


def test_transition_must_have_two_rows_more():
    types = {
        "Emission": TensorType(DType.FP32, (4, 3)),
        "Transition": TensorType(DType.FP32, (4, 3)),
    }
    with pytest.raises(ShapeError, match=r"expected \[rows, tags\] and \[tags \+ 2, tags\]"):
        find("crf_decoding")({}).infer_types(types)


# ---- CTC ----------------------------------------------------------------------------------------


def labels_of(path, blank):
    return [tag for tag, _ in groupby(path) if tag != blank]


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("labels", [[1], [1, 1], [1, 0, 1], [], [0, 1, 0, 1]])
def test_loss_adds_up_all_paths(labels, blank):
    labels = [label if label != blank else 3 for label in labels]
    logits = numbers(4, 4, low=-2.0, high=2.0)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    paths = [p for p in product(range(4), repeat=4) if labels_of(p, blank) == labels]
    chance = sum(np.prod(shares[range(4), path]) for path in paths)
    inputs = {"Logits": logits, "Logits_lod": lod(4), "Label_lod": lod(len(labels))}
    inputs["Label"] = np.array(labels, np.int32).reshape(-1, 1)
    result = run("warpctc", inputs, blank=blank)["Loss"]
    np.testing.assert_allclose(result, [[-np.log(chance)]], rtol=1e-5)


def test_labels_that_do_not_fit_cost_nothing():
    """As the reference, where a loss of infinity would be right."""
    inputs = {"Logits": numbers(3, 4), "Logits_lod": lod(3), "Label_lod": lod(3)}
    result = run("warpctc", {**inputs, "Label": np.array([[1], [1], [2]], np.int32)})
    assert not result["Loss"].any()
    assert not result["WarpCTCGrad"].any()


def test_long_lines_stay_finite():
    inputs = {
        "Logits": numbers(800, 1, 30, low=-9.0, high=9.0),
        "LogitsLength": np.array([800]),
        "Label": integers(1, 99, low=1, high=30).astype(np.int32),
        "LabelLength": np.array([99]),
    }
    result = run("warpctc", inputs)
    assert np.isfinite(result["Loss"]).all()
    assert np.isfinite(result["WarpCTCGrad"]).all()
    np.testing.assert_allclose(result["WarpCTCGrad"].sum(2), 0, atol=1e-4)


def test_ctc_as_recorded():
    """Numbers of 1.8.5; `norm_by_times` divides gradients by the steps of each sequence."""
    logits = [[0.5, -1, 2], [1, 0, -0.5], [-1.5, 0.5, 1], [0.25, 2, -1], [1, 1, 0.5]]
    inputs = {
        "Logits": np.array(logits, np.float32),
        "Logits_lod": lod(3, 2),
        "Label": np.array([[1], [2]], np.int32),
        "Label_lod": lod(1, 1),
    }
    op = find("warpctc")({"norm_by_times": True})
    result = op.evaluate(inputs)
    np.testing.assert_allclose(result["Loss"], [[2.79712], [2.8451133]], rtol=1e-6)
    first = [-0.74464047, -0.04095669, 0.785597]
    np.testing.assert_allclose(result["WarpCTCGrad"][0, 0], first, rtol=1e-5)
    values = {
        **inputs,
        "WarpCTCGrad": result["WarpCTCGrad"],
        "Loss@GRAD": np.ones((2, 1), np.float32),
    }
    backward = find("warpctc_grad")({"norm_by_times": True}).evaluate(values)["Logits@GRAD"]
    np.testing.assert_allclose(backward[0], np.array(first) / 3, rtol=1e-5)


def test_ctc_errors():
    inputs = {"Logits": numbers(3, 4), "Logits_lod": lod(3), "Label": np.array([[4]], np.int32)}
    with pytest.raises(ValueError, match="needs LoD of Logits and Label, or both their lengths"):
        run("warpctc", inputs)
    with pytest.raises(ValueError, match="Label has 4, expected classes from 0 to 3"):
        run("warpctc", {**inputs, "Label_lod": lod(1)})
    with pytest.raises(ValueError, match="1 sequences in Logits, 2 in Label"):
        run("warpctc", {**inputs, "Label_lod": lod(1, 0)})
    types = {"Logits": TensorType(DType.FP32, (3, 4)), "Label": TensorType(DType.INT32, (1, 1))}
    with pytest.raises(BadAttribute, match="'blank' is 4"):
        find("warpctc")({"blank": 4}).infer_types(types)


@pytest.mark.parametrize("merge", [True, False])
def test_ctc_align_merges_repeats(merge):
    paths = [[0, 1, 1, 0, 1], [2, 2, 2], [0, 0], [], [2, 0, 1]]
    rows = np.array([tag for path in paths for tag in path]).reshape(-1, 1)
    inputs = {"Input": rows, "Input_lod": lod(*map(len, paths))}
    result = run("ctc_align", inputs, merge_repeated=merge)
    left = [labels_of(p, 0) if merge else [tag for tag in p if tag] for p in paths]
    assert result["Output"].ravel().tolist() == [tag for path in left for tag in path]
    assert np.diff(result["Output_lod"][0]).tolist() == [len(path) for path in left]


def test_nothing_remains():
    result = run("ctc_align", {"Input": np.zeros((3, 1), int), "Input_lod": lod(1, 2)})
    assert result["Output"].tolist() == [[-1]]
    assert result["Output_lod"][0].tolist() == [0, 0, 0]


# ---- edit distance ------------------------------------------------------------------------------


def plain_distance(one, other):
    """Return the edit distance, by the textbook's table."""
    table = np.add.outer(np.arange(len(one) + 1), np.arange(len(other) + 1))
    for i, j in product(range(len(one)), range(len(other))):
        change = table[i, j] + (one[i] != other[j])
        table[i + 1, j + 1] = min(change, table[i, j + 1] + 1, table[i + 1, j] + 1)
    return table[-1, -1]


@pytest.mark.parametrize("seed", range(5))
def test_distance_of_many_pairs(seed):
    draw = np.random.default_rng(seed)
    hyps, refs = ([draw.integers(0, 4, draw.integers(0, 9)) for _ in range(6)] for _ in range(2))
    inputs = {
        "Hyps": np.concatenate(hyps).reshape(-1, 1),
        "Hyps_lod": lod(*map(len, hyps)),
        "Refs": np.concatenate(refs).reshape(-1, 1),
        "Refs_lod": lod(*map(len, refs)),
    }
    result = run("edit_distance", inputs)
    want = [plain_distance(*pair) for pair in zip(hyps, refs, strict=True)]
    assert result["Out"].ravel().tolist() == want
    assert result["SequenceNum"].tolist() == [6]


def test_edit_distance_errors():
    tokens = {"Hyps": integers(3, 1, high=3), "Refs": integers(3, 1, high=3)}
    with pytest.raises(ValueError, match="needs LoD of Hyps and Refs"):
        run("edit_distance", tokens)
    with pytest.raises(ValueError, match="2 sequences in Hyps, but 1 in Refs"):
        run("edit_distance", {**tokens, "Hyps_lod": lod(1, 2), "Refs_lod": lod(3)})
    with pytest.raises(ValueError, match="sequence 1 of Refs is empty"):
        both = {"Hyps_lod": lod(1, 2), "Refs_lod": lod(3, 0)}
        run("edit_distance", {**tokens, **both}, normalized=True)


# ---- chunks -------------------------------------------------------------------------------------


def chunks(labels, scheme, kinds):
    """Return (start, stop, kind) of each chunk, read tag by tag."""
    tags = {"IOB": "BI", "IOE": "IE", "IOBES": "BIES", "plain": "-"}[scheme]
    result, start = [], None
    read = [(label // len(tags), tags[label % len(tags)]) for label in labels]
    for place, (kind, tag) in enumerate([*read, (kinds, "")]):
        before, last = read[place - 1] if place else (kinds, "")
        new = kind != before or tag in ("B", "S") or last in ("E", "S")
        if start is not None and new:
            result.append((start, place, before))
            start = None
        if kind != kinds and new:
            start = place
    return result


@pytest.mark.parametrize(("scheme", "tags"), [("IOB", 2), ("IOE", 2), ("IOBES", 4), ("plain", 1)])
@pytest.mark.parametrize("excluded", [[], [1]])
def test_chunks_as_they_are_read(scheme, tags, excluded):
    guessed = integers(40, 1, high=3 * tags + 1, seed=1)
    real = np.where(
        integers(40, 1, high=3, seed=2) > 0, guessed, integers(40, 1, high=3 * tags + 1, seed=3)
    )
    bounds = [0, 7, 8, 25, 40]
    inputs = {"Inference": guessed, "Label": real, "Label_lod": [np.array(bounds)]}
    attrs = {"num_chunk_types": 3, "chunk_scheme": scheme, "excluded_chunk_types": excluded}
    result = run("chunk_eval", inputs, **attrs)
    sets = []
    for labels in (guessed.ravel(), real.ravel()):
        spans = pairwise(bounds)
        all_of_them = [(a, c) for a, b in spans for c in chunks(labels[a:b], scheme, 3)]
        sets.append({c for c in all_of_them if c[1][2] not in excluded})
    counts = [result[f"Num{kind}Chunks"][0] for kind in ("Infer", "Label", "Correct")]
    assert counts == [len(sets[0]), len(sets[1]), len(sets[0] & sets[1])]
    np.testing.assert_allclose(result["Precision"], [counts[2] / counts[0]], rtol=1e-6)
    np.testing.assert_allclose(result["Recall"], [counts[2] / counts[1]], rtol=1e-6)
    np.testing.assert_allclose(
        result["F1-Score"], [2 * counts[2] / (counts[0] + counts[1])], rtol=1e-6
    )


def test_no_chunks_at_all():
    outside = np.full((3, 1), 6)
    inputs = {"Inference": outside, "Label": outside, "Label_lod": lod(3)}
    result = run("chunk_eval", inputs, num_chunk_types=3, chunk_scheme="IOB")
    assert all(each.tolist() == [0] for each in result.values())


def test_chunk_eval_errors():
    inputs = {"Inference": np.full((3, 1), 7), "Label": np.full((3, 1), 6)}
    attrs = {"num_chunk_types": 3, "chunk_scheme": "IOB"}
    with pytest.raises(ValueError, match="Inference has 7, expected labels from 0 to 6"):
        run("chunk_eval", inputs, **attrs)
    with pytest.raises(ValueError, match="needs LoD of Label, or the input SeqLength"):
        run("chunk_eval", {**inputs, "Inference": inputs["Label"]}, **attrs)
    types = dict.fromkeys(("Inference", "Label"), TensorType(DType.INT64, (3, 1)))
    with pytest.raises(BadAttribute, match="not one of IOB, IOE, IOBES, plain"):
        find("chunk_eval")(attrs | {"chunk_scheme": "BIO"}).infer_types(types)
