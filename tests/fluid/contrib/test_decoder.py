"""`contrib.decoder`: a small translator trained and asked, as Paddle 1.8.5 did it.

Recorded: parameters of both programs, four losses, and what beam search found for three sentences.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
import fluid.layers as pd
from fluid.contrib.decoder.beam_search_decoder import (
    BeamSearchDecoder,
    InitState,
    StateCell,
    TrainingDecoder,
)

RECORDED = dict(np.load(Path(__file__).parents[2] / "golden" / "decoder" / "word_decoder.npz"))
WORDS, HIDDEN, WIDTH = 12, 6, 4
SHARED = fluid.ParamAttr(name="vemb")


def cell() -> StateCell:
    source = pd.data("src", [1], dtype="int64", lod_level=1)
    words = pd.embedding(source, [WORDS, WIDTH], param_attr=SHARED)
    hidden, _ = pd.dynamic_lstm(pd.fc(words, HIDDEN * 4, act="tanh"), HIDDEN * 4)
    start = InitState(init=pd.sequence_last_step(hidden), need_reorder=True)
    created = StateCell(inputs={"x": None}, states={"h": start}, out_state="h")

    @created.state_updater
    def step(cell: StateCell) -> None:
        both = [cell.get_state("h"), cell.get_input("x")]
        cell.set_state("h", pd.fc(both, HIDDEN, act="tanh"))

    return created


def training() -> list[Any]:
    decoder_cell = cell()
    target = pd.data("trg", [1], dtype="int64", lod_level=1)
    words = pd.embedding(target, [WORDS, WIDTH], param_attr=SHARED)
    decoder = TrainingDecoder(decoder_cell)
    with decoder.block():
        word = decoder.step_input(words)
        decoder.state_cell.compute_state(inputs={"x": word})
        score = pd.fc(decoder.state_cell.get_state("h"), WORDS, act="softmax")
        decoder.state_cell.update_states()
        decoder.output(score)
    label = pd.data("lab", [1], dtype="int64", lod_level=1)
    loss = pd.mean(pd.cross_entropy(decoder(), label))
    fluid.optimizer.SGD(0.3).minimize(loss)
    return [loss]


def inference() -> list[Any]:
    decoder_cell = cell()
    ids = pd.data("ii", [1], dtype="int64", lod_level=2)
    scores = pd.data("si", [1], dtype="float32", lod_level=2)
    settings = {"topk_size": 6, "sparse_emb": False, "max_len": 5, "beam_size": 2}
    decoder = BeamSearchDecoder(decoder_cell, ids, scores, WORDS, WIDTH, **settings)
    decoder.decode()
    return list(decoder())


def ready(build: Callable[[], list[Any]], prefix: str) -> tuple[Any, Any, list[Any]]:
    """An executor and a program with the recorded parameters, and what to fetch."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetched = build()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    for parameter in main.global_block().all_parameters():
        tensor = fluid.global_scope().find_var(parameter.name).get_tensor()
        tensor.set(RECORDED[prefix + parameter.name], fluid.CPUPlace())
    return exe, main, fetched


def sentences(rng: np.random.RandomState) -> fluid.LoDTensor:
    words = rng.randint(2, WORDS, (6, 1)).astype("int64")
    return fluid.create_lod_tensor(words, [[3, 1, 2]], fluid.CPUPlace())


def test_training_is_that_of_the_reference() -> None:
    with fluid.scope_guard(fluid.Scope()):
        exe, main, fetched = ready(training, "train.")
        rng = np.random.RandomState(5)
        feed = {name: sentences(rng) for name in ("src", "trg", "lab")}
        losses = [exe.run(main, feed, fetched)[0].item() for _ in range(4)]
    np.testing.assert_allclose(losses, RECORDED["out.losses"], rtol=1e-4)


def test_beam_search_matches_the_reference() -> None:
    beams, place = [[1] * 3] * 2, fluid.CPUPlace()
    with fluid.scope_guard(fluid.Scope()):
        exe, main, fetched = ready(inference, "infer.")
        feed = {
            "src": sentences(np.random.RandomState(5)),
            "ii": fluid.create_lod_tensor(np.zeros((3, 1), "int64"), beams, place),
            "si": fluid.create_lod_tensor(np.ones((3, 1), "float32"), beams, place),
        }
        ids, scores = exe.run(main, feed, fetched, return_numpy=False)
    assert np.asarray(ids).tolist() == RECORDED["out.ids"].tolist()
    assert np.concatenate(ids.lod()).tolist() == RECORDED["out.lod"].tolist()
    np.testing.assert_allclose(np.asarray(scores), RECORDED["out.scores"], rtol=1e-4, atol=1e-5)


def test_a_state_of_constants_has_the_rows_of_another_variable(fresh_programs: Any) -> None:
    x = fluid.data("x", [-1, 3])
    state = InitState(shape=[-1, 2], value=1.5, init_boot=x)
    exe = fluid.Executor(fluid.CPUPlace())
    (got,) = exe.run(feed={"x": np.zeros((4, 3), "float32")}, fetch_list=[state.value])
    assert got.tolist() == [[1.5, 1.5]] * 4
    with pytest.raises(ValueError, match="init_boot must be provided"):
        InitState()


def test_errors(fresh_programs: Any) -> None:
    x = fluid.data("x", [-1, 3])
    with pytest.raises(ValueError, match="state must be an InitState"):
        StateCell({}, {"h": x}, "h")
    with pytest.raises(ValueError, match="out_state is 'c', expected one of h"):
        StateCell({}, {"h": InitState(x)}, "c")
    one = StateCell({"x": None}, {"h": InitState(x)}, "h")
    with pytest.raises(ValueError, match="invalid input 'x'"):
        one.get_input("x")
    with pytest.raises(ValueError, match="unknown input 'y'"):
        one.compute_state({"y": x})
    decoder = TrainingDecoder(one)
    with pytest.raises(ValueError, match="already entered"):
        TrainingDecoder(one)
    with pytest.raises(ValueError, match="step_input should be invoked inside"):
        decoder.step_input(x)
    with pytest.raises(ValueError, match="after its block only"):
        decoder()
