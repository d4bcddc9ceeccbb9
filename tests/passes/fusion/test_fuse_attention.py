"""Attention in the forms that scripts write: fused on native code, with the numbers of its ops."""

from collections.abc import Callable

import numpy as np
import pytest

import fluid
import runtime
from compiler.driver import Compiled, compile_stages
from compiler.options import Options
from fluid.contrib.mixed_precision import decorate
from runtime.loader import load

HEADS, WIDTH = 2, 4
ALL = frozenset({"fuse_attention"})


def by_heads(x: fluid.Variable) -> fluid.Variable:
    parts = fluid.layers.reshape(x, [0, 0, HEADS, WIDTH])
    return fluid.layers.transpose(parts, perm=[0, 2, 1, 3])


def joined(x: fluid.Variable) -> fluid.Variable:
    return fluid.layers.reshape(fluid.layers.transpose(x, [0, 2, 1, 3]), [0, 0, HEADS * WIDTH])


def bert(x: fluid.Variable, mask: fluid.Variable) -> fluid.Variable:
    q = by_heads(x)
    scores = fluid.layers.matmul(q, by_heads(x * 0.5), transpose_y=True, alpha=WIDTH**-0.5)
    return joined(fluid.layers.matmul(fluid.layers.softmax(scores + mask), q))


def ernie(x: fluid.Variable, mask: fluid.Variable) -> fluid.Variable:
    """A mask for each head, and dropout, which inference removes or makes a scale."""
    q = fluid.layers.scale(by_heads(x), scale=WIDTH**-0.5)
    masks = fluid.layers.squeeze(fluid.layers.stack([mask] * HEADS, axis=1), [2])
    product = fluid.layers.matmul(x=q, y=by_heads(x), transpose_y=True)
    weights = fluid.layers.softmax(fluid.layers.elementwise_add(x=product, y=masks))
    weights = fluid.layers.dropout(weights, 0.1, is_test=True)
    return joined(fluid.layers.matmul(weights, by_heads(x)))


def sequences(x: fluid.Variable, mask: fluid.Variable) -> fluid.Variable:
    """Attention of a decoder to an encoder: three axes, no mask."""
    product = fluid.layers.matmul(x, x * 0.5, transpose_y=True)
    return fluid.layers.matmul(fluid.layers.softmax(product), x)


def multihead(x: fluid.Variable, mask: fluid.Variable) -> fluid.Variable:
    """The op of saved models."""
    size, block = HEADS * WIDTH, x.block
    weight = fluid.layers.create_parameter([size, 3, size], "float32", name="w")
    bias = fluid.layers.create_parameter([3, size], "float32", name="b")
    out = block.create_var(name="mixed", dtype="float32")
    inputs = {"Input": x, "W": weight, "Bias": bias, "BiasQK": mask}
    attrs = {"alpha": 0.5, "head_number": HEADS}
    block.append_op("multihead_matmul", inputs, {"Out": out}, attrs)
    return out


def recorded(form: Callable[..., fluid.Variable], tokens: int = 19) -> tuple[fluid.Program, ...]:
    """The program of a form, and its result."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [tokens, HEADS * WIDTH])
        mask = fluid.layers.data("mask", [1, 1, tokens])
        return main, form(x, mask)


def compiled(
    form: Callable[..., fluid.Variable], disable: frozenset[str] = frozenset(), tokens: int = 19
) -> tuple[Compiled, list[np.ndarray], int]:
    """A form, what it computes, and the bytes of its arena."""
    main, out = recorded(form, tokens)
    random = np.random.RandomState(0)
    feed = {"x": random.randn(3, tokens, HEADS * WIDTH).astype(np.float32)}
    feed["mask"] = np.where(random.rand(3, 1, 1, tokens) < 0.2, -1e4, 0.0).astype(np.float32)
    feed["mask"][1] = -1e4
    weights = {p.name: random.randn(*p.shape) for p in main.global_block().all_parameters()}
    params = {name: array.astype(np.float32) for name, array in weights.items()}
    stages = compile_stages(
        main, feed={name: ("N", *array.shape[1:]) for name, array in feed.items()}, fetch=[out],
        target="native", params=params, options=Options(disable=disable),
    )  # fmt: skip
    loaded = load(stages.module, params=params)
    kept = {name: array for name, array in feed.items() if name in stages.module.feeds}
    return stages, loaded(kept or feed), loaded.nbytes


@pytest.mark.parametrize("form", [bert, ernie, sequences, multihead])
def test_forms_of_attention_are_fused_with_their_numbers(form: Callable[..., fluid.Variable]):
    fused, results, _ = compiled(form)
    _, expected, _ = compiled(form, ALL)
    kinds = [op.kind for op in fused.graph.ops()]
    assert kinds.count("scaled_dot_product_attention") == 1 and "softmax" not in kinds
    np.testing.assert_allclose(results[0], expected[0], 2e-6, 2e-6)


def test_scores_are_in_no_buffer():
    _, _, fused = compiled(bert, tokens=200)
    _, _, separate = compiled(bert, ALL, tokens=200)
    scores = 3 * HEADS * 200 * 200 * 4
    assert separate > scores and fused < separate - scores / 4


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_attention_is_fused_on_a_gpu(dtype: str):
    """Scores of half precision are cast to float32 for the softmax."""
    main, out = recorded(bert)
    stages = compile_stages(
        main, feed=["x", "mask"], fetch=[out], target="triton", options=Options(dtype=dtype)
    )
    kinds = [op.kind for op in stages.graph.ops()]
    assert kinds.count("scaled_dot_product_attention") == 1 and "softmax" not in kinds


def test_float32_attention_that_trains_is_not_fused_on_a_gpu():
    main, out = recorded(bert)
    x = main.block(0).var("x")
    x.stop_gradient = False
    with fluid.program_guard(main):
        (gradient,) = fluid.gradients(out, x)
    stages = compile_stages(main, feed=["x", "mask"], fetch=[gradient], target="triton")
    assert "softmax" in [op.kind for op in stages.graph.ops()]
    missed = [note.reason for note in stages.context.missed if note.name == "fuse_attention"]
    assert missed == ["its products are f32, and kernels of its gradients bf16 or f16"]


def trained(form: Callable[..., fluid.Variable], disable: frozenset[str] = frozenset()):
    """A step of training through a form: its graph, and the loss and gradients."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [21, HEADS * WIDTH])
        x.stop_gradient = False
        mask = fluid.layers.data("mask", [1, 1, 21])
        out = form(fluid.layers.fc(x, HEADS * WIDTH, num_flatten_dims=2), mask)
        loss = fluid.layers.reduce_mean(out * out)
        pairs = fluid.backward.append_backward(loss)
    random = np.random.RandomState(0)
    feed = {"x": random.randn(3, 21, HEADS * WIDTH).astype(np.float32)}
    feed["mask"] = np.where(random.rand(3, 1, 1, 21) < 0.2, -1e9, 0.0).astype(np.float32)
    feed["mask"][1] = -1e9
    params = {p.name: random.randn(*p.shape).astype(np.float32) for p, _ in pairs}
    stages = compile_stages(
        main, feed={name: ("N", *array.shape[1:]) for name, array in feed.items()},
        fetch=[loss, "x@GRAD", *(gradient for _, gradient in pairs)], target="native",
        options=Options(disable=disable),
    )  # fmt: skip
    return stages, load(stages.module, params=params)(feed)


def dropped(x: fluid.Variable, mask: fluid.Variable) -> fluid.Variable:
    """Weights that are dropped in training, by new numbers in every step unless there is a seed."""
    q = by_heads(x)
    scores = fluid.layers.matmul(q, by_heads(x), transpose_y=True, alpha=WIDTH**-0.5)
    weights = fluid.layers.softmax(scores + mask)
    seed = x.block.program.random_seed or None
    weights = fluid.layers.dropout(
        weights, 0.4, seed=seed, dropout_implementation="upscale_in_train"
    )
    return joined(fluid.layers.matmul(weights, q))


def test_dropout_is_fused_with_its_gradient_on_native_code():
    fused, results = trained(dropped)
    kinds = [op.kind for op in fused.graph.ops()]
    assert kinds.count("scaled_dot_product_attention_grad") == 1
    assert not {"softmax", "dropout_by_key"} & {*kinds} and np.isfinite(results[0])


def causal(x: fluid.Variable, mask: fluid.Variable) -> fluid.Variable:
    """A constant that keeps later words away, as decoders add it."""
    q, tokens = by_heads(x), x.shape[1]
    later = fluid.layers.triu(fluid.layers.fill_constant([tokens, tokens], "float32", -1e9), 1)
    scores = fluid.layers.matmul(q, by_heads(x), transpose_y=True, alpha=WIDTH**-0.5)
    return joined(fluid.layers.matmul(fluid.layers.softmax(scores + later), q))


def trained_in_bfloat16(form: Callable[..., fluid.Variable], disable: frozenset[str]):
    """A step of mixed precision on a GPU: the kinds of its ops, the loss and the gradient by x."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [6, HEADS * WIDTH])
        x.stop_gradient = False
        mask = fluid.layers.data("mask", [1, 1, 6])
        loss = fluid.layers.reduce_mean(fluid.layers.square(form(x * 2.0, mask)))
        optimizer = decorate(fluid.optimizer.SGD(0.1), dtype="bfloat16")
        optimizer.backward(loss)
    random = np.random.RandomState(0)
    feed = {"x": random.randn(1, 6, HEADS * WIDTH).astype(np.float32)}
    feed["mask"] = np.where(random.rand(1, 1, 1, 6) < 0.2, -1e9, 0.0).astype(np.float32)
    stages = compile_stages(
        main, feed={name: ("N", *array.shape[1:]) for name, array in feed.items()},
        fetch=[loss, "x@GRAD"], target="triton", options=Options(disable=disable),
    )  # fmt: skip
    inputs = {tensor.name: feed[tensor.name] for tensor in stages.module.feeds}
    step = load(stages.module, runtime.CUDAPlace(0))
    return stages.graph.ops(), step(inputs)


@pytest.mark.device
@pytest.mark.parametrize("form", [dropped, causal])
def test_training_on_a_gpu_computes_what_separate_ops_do(form: Callable[..., fluid.Variable]):
    ops, results = trained_in_bfloat16(form, frozenset())
    _, expected = trained_in_bfloat16(form, ALL)
    kinds = [op.kind for op in ops]
    assert kinds.count("scaled_dot_product_attention_grad") == 1
    assert not {"softmax_grad", "matmul_grad", "dropout_by_key", "tril_triu"} & {*kinds}
    for result, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, want, 3e-2, 3e-2 * abs(want).max())


def by_nets(x: fluid.Variable, mask: fluid.Variable) -> fluid.Variable:
    """The softmax is over rows of a matrix, between two reshapes."""
    return fluid.nets.scaled_dot_product_attention(x, x * 0.5, x, HEADS)


@pytest.mark.parametrize("form", [bert, sequences, by_nets])
def test_gradients_of_attention_are_fused_with_their_numbers(form: Callable[..., fluid.Variable]):
    fused, results = trained(form)
    _, expected = trained(form, ALL)
    kinds = [op.kind for op in fused.graph.ops()]
    assert kinds.count("scaled_dot_product_attention_grad") == 1
    assert not {"softmax", "softmax_grad", "matmul_grad", "transpose2_grad"} & {*kinds}
    for result, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, want, 2e-5, 2e-5 * max(1.0, abs(want).max()))
