"""Multi-tensor updates in one launch, compared with the graph interpreter."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fluid
import runtime
from compiler.codegen.ahead.build import build
from compiler.codegen.ahead.gpus import gpus
from compiler.codegen.triton.target import TritonTarget
from compiler.cost.plan_cost import account
from compiler.driver import compile_graph, compile_stages
from compiler.freeze import freeze
from compiler.ir.opdef import find
from compiler.ir.text.printer import parse, show
from compiler.options import Options
from fluid import layers
from tests.codegen.support import inputs
from tests.codegen.test_triton import compare

pytest.importorskip("triton")
pytest.importorskip("torch")

pytestmark = pytest.mark.device

NUMBERS = frozenset("LearningRate Beta1Pow Beta2Pow".split())
COUNTERS = frozenset("in_num_accumulates in_old_num_accumulates in_num_updates".split())
REQUIRED = {
    "momentum": {"mu": 0.9, "use_nesterov": True},
    "lars_momentum": {"mu": 0.9},
    "lamb": {"weight_decay": 0.01},
    "rmsprop": {"centered": True, "momentum": 0.5},
    "average_accumulates": {"max_average_window": 3, "min_average_window": 2},
    "ftrl": {"l1": 0.1, "l2": 0.2},
    "proximal_gd": {"l1": 0.1, "l2": 0.2},
    "proximal_adagrad": {"l1": 0.1},
}
KINDS = (
    "sgd momentum adam adamax adagrad decayed_adagrad adadelta rmsprop ftrl lamb lars_momentum "
    "proximal_gd proximal_adagrad average_accumulates"
).split()


def updates(kind, shapes, dtype="f32"):
    """A graph that updates parameters of these shapes; the learning rate is one for all."""
    attrs = REQUIRED.get(kind, {})
    state, ops = [f"param LearningRate: {dtype}[1]"], []
    for number, shape in enumerate(shapes):
        sides, types = [], {}
        for name in find(kind).inputs():
            if name.endswith("Tensor"):
                continue
            var = name if name == "LearningRate" else f"{name}_{number}"
            kind_of = "i64" if name in COUNTERS else dtype
            size = "[1]" if name in NUMBERS | COUNTERS else str(list(shape))
            types[name] = (var, f"{kind_of}{size}")
            sides.append(f"{name}={var}")
            if name != "LearningRate":
                role = "feed" if name in ("Grad", "param") else "param"
                state.append(f"{role} {var}: {kind_of}{size}")
        out = [
            f"{name}={types[slot.inplace][0]}#1: {types[slot.inplace][1]} over "
            f"{types[slot.inplace][0]}"
            for name, slot in find(kind).outputs().items()
        ]
        ops.append(f"({', '.join(out)}) = {kind}({', '.join(sides)}) {attrs or ''}")
    return "\n  ".join(["graph main {", *state, *ops]) + "\n}\n"


def grouped(module):
    """The kernels of a module that go over a table of tensors."""
    return [spec.name for spec in module.kernels if "table" in spec.types]


@pytest.mark.parametrize("kind", KINDS)
def test_one_kernel_updates_parameters_of_all_sizes(kind):
    shapes = [(5,), (1,), (33, 41), (3, 1, 7), (1024,), (2, 1025)]
    rtol = 1e-4 if kind == "rmsprop" else 2e-5  # it divides by roots of what is nearly 0
    module = compare(updates(kind, shapes), steps=3, rtol=rtol)
    sums = [f"{kind}_sums"] if kind in ("lamb", "lars_momentum") else []
    assert [spec.name for spec in module.kernels] == grouped(module) == [*sums, kind]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4, deadline=None)
@given(
    shapes=st.lists(st.lists(st.integers(1, 37), min_size=1, max_size=2), min_size=1, max_size=5)
)
def test_multi_tensor_updates_match_the_host(kind, shapes):
    compare(updates(kind, shapes))


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam", "lamb"])
def test_updates_in_float16_differ_by_rounding_only(kind):
    """A GPU multiplies and adds with one rounding, the host with two."""
    compare(updates(kind, [(5,), (33, 41)], "f16"), steps=1, rtol=2e-3, atol=2e-3)


def test_multi_tensor_noise_uses_one_key_a_tensor():
    module = compare("""graph main {
  feed keys: i64[4]
  feed d: f32[5]
  feed e: f32[33, 41]
  param a: f32[5]
  param b: f32[33, 41]
  param r: f32[1]
  (ParamOut=a#1: f32[5] over a) = dpsgd(Grad=d, Key=keys, LearningRate=r, Param=a)
  (ParamOut=b#1: f32[33, 41] over b) = dpsgd(Grad=e, Key=keys, LearningRate=r, Param=b) {'place': 2}
}
""")
    assert grouped(module) == ["dpsgd_sums", "dpsgd"]


def test_parameters_of_one_element_only():
    assert grouped(compare(updates("adam", [(1,), (1, 1), (1,)]))) == ["adam"]


def test_other_attributes_are_another_launch():
    one, two = (updates("sgd", [(5,), (7,)]), updates("momentum", [(5,), (7,)]))
    both = one.replace("\n}\n", "\n  ") + "\n  ".join(
        line.replace("_0", "_8").replace("_1", "_9").strip()
        for line in two.splitlines()[2:-1]
    ) + "\n}\n"  # fmt: skip
    assert grouped(compare(both)) == ["sgd", "momentum"]


def test_numbers_that_advance_are_read_by_all_before():
    module = compare(updates("adam", [(5000,), (3,)]), steps=4)
    last = module.source.partition("tl.debug_barrier()")[2]
    assert "tl.atomic_add(finished + row, 1) + 1 == tl.cdiv(size, LANES)" in last
    assert last.index("tl.store(beta1_pow_ptr") > 0


def test_unaligned_operands_are_not_vectorised():
    text = """graph main {
  feed d: f32[10]
  param a: f32[3]
  param b: f32[7]
  param rate: f32[1]
  (Out=e: f32[10] @s0) = to_device(X=d)
  (Out=[p: f32[3] @s0, q: f32[7] @s0[12]]) = split(X=e) {'sections': [3, 7]} @triton
  (ParamOut=a#1: f32[3] over a) = sgd(Grad=p, LearningRate=rate, Param=a) @k0.0 @triton
  (ParamOut=b#1: f32[7] over b) = sgd(Grad=q, LearningRate=rate, Param=b) @k0.1 @triton
}
"""
    module = TritonTarget().emit(freeze(parse(text)))
    feed, state = inputs(parse(text))
    before = {name: array.copy() for name, array in state.items()}
    runtime.load(module, runtime.CUDAPlace(0), state)(feed)
    np.testing.assert_allclose(state["b"], before["b"] - before["rate"] * feed["d"][3:], rtol=1e-6)
    assert "\n    grad_ptr = tl.load(entry + " in module.source
    assert "\n    param_ptr = tl.multiple_of(tl.load(entry + " in module.source


def test_without_memory_planned_tables_are_made_in_every_step():
    text = updates("adam", [(5,), (33, 41)])
    compare(text, Options(disable=frozenset({"reuse_memory"})))
    module = compare(text, Options(disable=frozenset({"group_updates"})))
    assert not grouped(module)


# ---- whole programs ----------------------------------------------------------------------------


def trained(optimizer):
    """A network of twelve parameters, compiled for the device."""
    main, start = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, start), fluid.unique_name.guard():
        hidden = fluid.data("x", [None, 7])
        for size in (5, 6, 1, 9, 3):
            hidden = layers.fc(hidden, size, act="tanh")
        loss = layers.mean(layers.fc(hidden, 1))
        optimizer().minimize(loss)
    return compile_stages(main, feed=["x"], fetch=[loss.name], target="triton")


def settings_of(made, **more):
    return lambda: made(0.1, **more)


CLIP = {"grad_clip": fluid.clip.GradientClipByGlobalNorm(1.0)}
DECAY = {"regularization": fluid.regularizer.L2Decay(0.01)}


@pytest.mark.parametrize(
    ("optimizer", "launches"),
    [
        (settings_of(fluid.optimizer.SGD), ["sgd"]),
        (settings_of(fluid.optimizer.Momentum, momentum=0.9), ["momentum"]),
        (settings_of(fluid.optimizer.Adam), ["adam"]),
        (settings_of(fluid.optimizer.Adamax), ["adamax_scale"]),
        (
            settings_of(fluid.optimizer.Adam, **CLIP, **DECAY),
            ["squared_l2_norm_sums", "squared_l2_norm", "elementwise_mul_scale_sum_adam"],
        ),
        (
            settings_of(fluid.optimizer.SGD, grad_clip=fluid.clip.GradientClipByNorm(1.0)),
            ["clip_by_norm_sums", "clip_by_norm", "sgd"],
        ),
        (
            settings_of(fluid.optimizer.SGD, grad_clip=fluid.clip.GradientClipByValue(1.0)),
            ["clip_sgd"],
        ),
    ],
)
def test_one_launch_for_all_parameters_of_a_network(optimizer, launches):
    compiled = trained(optimizer)
    assert sum(tensor.name.startswith("fc_") for tensor in compiled.module.params) >= 12
    assert grouped(compiled.module) == launches
    step = compiled.module.source.partition("def step(")[2]
    assert [step.count(f"        {name}[(") for name in launches] == [1] * len(launches)


def test_state_is_filled_by_a_launch_for_each_number():
    text = """graph main {
  param a: f32[5]
  param b: f32[2, 1025]
  param c: f32[1]
  param d: i64[3]
  (Out=a) = fill_constant() {'shape': [5], 'value': 0.5}
  (Out=b) = fill_constant() {'shape': [2, 1025], 'value': 0.5}
  (Out=c) = fill_constant() {'shape': [1], 'value': 0.5}
  (Out=d) = fill_constant() {'dtype': 3, 'shape': [3], 'str_value': '7'}
}
"""
    module = compare(text)
    assert grouped(module) == ["fill_constant"]
    assert len(module.kernels) == 2


def test_labels_print_and_parse():
    compiled = trained(settings_of(fluid.optimizer.Adam))
    text = show(compiled.graph)
    assert ".11 @triton" in text
    assert show(parse(text)) == text


def test_the_account_sees_one_launch_with_the_bytes_of_all():
    compiled = compile_graph(parse(updates("adam", [(5,), (1024, 3)])), target="triton")
    (cost,) = [kernel for kernel in account(compiled.plan).kernels if kernel.kernel == "adam"]
    assert cost.read == 4 * (4 * 3077 + 2 * 2 + 1)
    assert cost.written == 4 * (3 * 3077 + 2 * 2)


def test_kernels_for_many_tensors_are_built_and_none_spills(tmp_path):
    modules = [compile_graph(parse(updates(kind, [(5,), (99,)])), target="triton").module
               for kind in ("momentum", "adam", "lamb")]  # fmt: skip
    modules = [
        dataclasses.replace(m, kernels=tuple(k for k in m.kernels if "table" in k.types))
        for m in modules
    ]
    targets = gpus("cuda:90,hip:gfx942")
    built = [each for row in build(modules, targets, tmp_path, 10**8) for each in row]
    assert len(built) == 4 * 2
    assert not any(each.code.spilled for each in built)
    texts = [each.code.files["ptx"] for each in built if "ptx" in each.code.files]
    assert all(b"ld.global.v4" in text for text in texts)
