"""Programs: guards, seeds and scopes, what copies keep, text, bytes, and one result for two builds."""

import os
import re
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

import fluid
from compiler.ir.program import BlockRef, OpRole
from fluid.framework import Operator, Program, Variable, default_main_program

pytestmark = pytest.mark.usefixtures("fresh_programs")


# ---- programs and guards


def test_guards_swap_and_restore_the_default_programs() -> None:
    before = default_main_program(), fluid.default_startup_program()
    main, startup = Program(), Program()
    with pytest.raises(KeyError), fluid.program_guard(main, startup):
        assert (default_main_program(), fluid.default_startup_program()) == (main, startup)
        raise KeyError
    with fluid.program_guard(main):
        assert (default_main_program(), fluid.default_startup_program()) == (main, before[1])
    assert (default_main_program(), fluid.default_startup_program()) == before


@pytest.mark.parametrize(
    ("arguments", "name"), [((1,), "main_program"), ((Program(), "x"), "startup_program")]
)
def test_guard_names_the_argument_that_is_no_program(arguments: Any, name: str) -> None:
    message = f"{name} of fluid.program_guard must be a Program"
    with pytest.raises(TypeError, match=message), fluid.program_guard(*arguments):
        pass


def test_blocks_of_a_program() -> None:
    program = Program()
    inner = program._create_block()
    assert (program.num_blocks, inner.parent_idx, program.current_block()) == (2, 0, inner)
    program._rollback()
    assert program.current_block() is program.global_block()
    with pytest.raises(IndexError):
        program.block(2)


def test_random_seed_is_an_integer() -> None:
    program = Program()
    assert program.random_seed == 0
    with pytest.raises(ValueError, match="must be an integer, but received str"):
        program.random_seed = "1"


def test_name_scopes_are_counted() -> None:
    def relu() -> str:
        return fluid.layers.relu(fluid.layers.data("x", [3])).op.attr("op_namescope")

    results = [relu()]
    for _ in range(2):
        with fluid.name_scope("outer"):
            results.append(relu())
            with fluid.name_scope("inner"):
                results.append(relu())
    assert results == ["/", "/outer/", "/outer/inner/", "/outer_1/", "/outer_1/inner/"]
    with pytest.raises(ValueError, match="can not be empty"), fluid.name_scope():
        pass


def test_ops_are_marked_with_the_device_they_are_meant_for() -> None:
    x = fluid.layers.data("x", [3])
    devices = [fluid.layers.relu(x).op.attr("op_device")]
    with fluid.device_guard("cpu"):
        fluid.layers.fc(x, 2)
        with fluid.device_guard("gpu"), fluid.device_guard():
            devices.append(fluid.layers.relu(x).op.attr("op_device"))
        devices.append(fluid.layers.relu(x).op.attr("op_device"))
    devices.append(fluid.layers.relu(x).op.attr("op_device"))
    assert devices == ["", "", "cpu", ""]
    begun = fluid.default_startup_program().global_block().ops
    assert [op.attr("op_device") for op in begun] == ["cpu", "cpu"]
    with pytest.raises(ValueError, match="received 'tpu'"), fluid.device_guard("tpu"):
        pass


def test_a_seed_for_every_program() -> None:
    default_main_program().global_seed(7)
    try:
        assert (default_main_program().random_seed, Program().random_seed) == (7, 7)
    finally:
        Program().global_seed()
    assert Program().random_seed == 0


def test_a_role_guard_ends_with_its_block() -> None:
    program = default_main_program()
    with pytest.raises(KeyError), program._lr_schedule_guard():
        raise KeyError
    assert fluid.layers.relu(fluid.layers.data("x", [3])).op.role is OpRole.FORWARD


# ---- copies


def model() -> Variable:
    image = fluid.layers.data("image", [1, 8, 8])
    hidden = fluid.layers.batch_norm(fluid.layers.conv2d(image, 2, 3))
    hidden = fluid.layers.dropout(hidden, 0.5)
    return fluid.layers.mean(fluid.layers.fc(hidden, 1))


def test_clone_shares_nothing_and_keeps_everything() -> None:
    loss = model()
    main = default_main_program()
    main.random_seed = 7
    loss.block.var("fc_0.w_0").regularizer = decay = fluid.regularizer.L2Decay(0.1)
    clone = main.clone()
    assert str(clone) == str(main)
    assert [p.name for p in clone.all_parameters()] == [p.name for p in main.all_parameters()]
    assert (clone.random_seed, clone.global_block().var("fc_0.w_0").regularizer) == (7, decay)
    clone.global_block().ops[0]._set_attr("groups", 2)
    clone.global_block()._remove_op(5)
    clone.global_block().var("image").stop_gradient = False
    assert main.global_block().ops[0].attr("groups") == 1
    assert (len(main.global_block().ops), loss.op.idx) == (7, 6)
    assert main.global_block().var("image").stop_gradient
    assert all(var.block.program is clone for var in clone.list_vars())
    assert all(var.op is None or var.op.block.program is clone for var in clone.list_vars())


def test_clone_for_test_before_and_after_minimize() -> None:
    loss = model()
    main = default_main_program()
    before = main.clone(for_test=True)
    rate = fluid.layers.piecewise_decay([2], [0.1, 0.01])
    fluid.optimizer.Momentum(rate, 0.9).minimize(loss)
    after = main.clone(for_test=True)
    kinds = [[op.type for op in program.global_block().ops] for program in (before, after)]
    assert kinds[0] == kinds[1]
    assert (main.num_blocks, after.num_blocks) == (3, 1)
    assert set(after.global_block().vars) == set(before.global_block().vars)
    tested = [op for op in after.global_block().ops if op.has_attr("is_test")]
    assert {"batch_norm", "dropout"} <= {op.type for op in tested}
    assert all(op.attr("is_test") for op in tested)
    assert not any(op.attr("is_test") for op in main.global_block().ops if op.has_attr("is_test"))
    assert [p.name for p in after.all_parameters()] == [p.name for p in main.all_parameters()]


def test_clone_for_test_keeps_gradients_of_a_model_without_loss() -> None:
    x = fluid.data("x", [2, 3])
    x.stop_gradient = False
    loss = fluid.layers.mean(fluid.layers.square(x))
    (gradient,) = fluid.gradients([loss], [x])
    clone = default_main_program().clone(for_test=True)
    assert gradient.name in clone.global_block().vars
    fluid.backward.append_backward(loss + fluid.layers.mean(gradient))
    clone = default_main_program().clone(for_test=True)
    assert gradient.name not in clone.global_block().ops[-1].output_arg_names
    assert not any(op.type.endswith("_grad") for op in clone.global_block().ops)


def test_clone_for_test_keeps_blocks_of_the_model() -> None:
    x = fluid.layers.data("x", [1], append_batch_size=False)
    rate = fluid.layers.piecewise_decay([2], [0.1, 0.01])
    with fluid.layers.Switch() as switch, switch.case(x < 1.0):
        fluid.layers.assign(x + 1.0, x)
    clone = rate.block.program.clone(for_test=True)
    owner = clone.global_block().ops[-1]
    assert (owner.type, clone.num_blocks) == ("conditional_block", 2)
    assert owner.attr("sub_block") == BlockRef(1)
    assert [op.type for op in clone.block(1).ops] == ["scale", "assign"]


def test_ops_have_the_attributes_of_kernels_of_other_libraries() -> None:
    x = fluid.data("x", [2, 3])
    op = fluid.layers.mul(x, fluid.data("y", [3, 4])).op
    assert {"scale_y", "use_mkldnn", "x_num_col_dims"} <= {*op.attr_names}
    assert op.has_attr("use_mkldnn") and op.attr("scale_y") == [1.0]
    op._update_desc_attr("use_mkldnn", True)
    assert op.attr("use_mkldnn") is True


def test_information_is_copied_from_programs_only() -> None:
    with pytest.raises(TypeError, match="must be a Program, not str"):
        Program()._copy_param_info_from("x")  # type: ignore[arg-type]
    program, source = Program(), Program()
    source._trainers_endpoints = ["a:1", "b:1"]
    program._copy_dist_param_info_from(source)
    assert program._trainers_endpoints == ["a:1", "b:1"]


def test_clone_for_test_drops_updates_inside_branches() -> None:
    x = fluid.data("x", [2, 3])
    optimizer = fluid.optimizer.SGD(0.1)

    def trained(network: Any) -> Any:
        loss = fluid.layers.mean(fluid.layers.fc(network, 1, param_attr="w"))
        optimizer.minimize(loss)
        return loss

    fluid.layers.cond(fluid.layers.reduce_sum(x) < 0.0, lambda: trained(x), lambda: trained(-x))
    test = default_main_program().clone(for_test=True)
    assert not [n for n in test.global_block().vars if n.startswith("learning_rate")]
    owners = [op for op in test.global_block().ops if op.type == "conditional_block"]
    assert len(owners) == 2
    assert not [op for op in owners if "w" in op.output_arg_names]


def test_prune_keeps_what_targets_need() -> None:
    loss = model()
    fluid.optimizer.SGD(0.1).minimize(loss)
    main = default_main_program()
    hidden = main.global_block().ops[3].output("Out")[0]
    pruned = main._prune(main.global_block().var(hidden))
    assert [op.type for op in pruned.global_block().ops] == [
        "conv2d",
        "elementwise_add",
        "batch_norm",
        "dropout",
    ]
    cut = main._prune_with_input([hidden], [loss])
    assert [op.type for op in cut.global_block().ops] == ["mul", "elementwise_add", "mean"]
    assert {"fc_0.w_0", hidden} <= set(cut.global_block().vars)
    assert "conv2d_0.w_0" not in cut.global_block().vars
    assert [p.name for p in cut.all_parameters()] == ["fc_0.w_0", "fc_0.b_0"]


def test_prune_rejects_what_is_no_target() -> None:
    loss = model()
    program = loss.block.program
    with pytest.raises(ValueError, match="no operator computes the target variable 'image'"):
        program._prune(["image"])
    with pytest.raises(
        ValueError, match="only be Variable or Operator, but received <class 'int'>"
    ):
        program._prune(3)
    with pytest.raises(ValueError, match="feeds are names, but received Variable"):
        program._prune_with_input([loss], [loss])
    assert program._prune(loss.op).global_block().ops[-1].type == "mean"


# ---- text and bytes


def test_text_is_protobuf_s() -> None:
    fluid.layers.relu(fluid.layers.data("x", [3]))
    text = str(default_main_program())
    assert text.startswith("blocks {\n  idx: 0\n  parent_idx: -1\n  vars {\n")
    assert re.findall(r' name: "(x|relu_0\.tmp_0)"', text) == ["x", "relu_0.tmp_0"]
    assert 'type: "relu"' in text
    block = default_main_program().global_block()
    assert str(block) in text.replace("\n  ", "\n")
    assert str(block.ops[0]).startswith('inputs {\n  parameter: "X"\n  arguments: "x"\n}\n')
    assert block.var("x").to_string(True, True).endswith("error_clip: None\nstop_gradient: True\n")
    assert "stop_gradient: True" in default_main_program().to_string(True, with_details=True)


def test_text_leaves_unsaid_what_the_reference_does() -> None:
    fluid.layers.relu(fluid.data("x", [3]))
    text = str(default_main_program())
    assert text.endswith("version {\n  version: 1008005\n}\n")
    assert [text.count(f"{name}:") for name in ("need_check_feed", "forward_block_idx")] == [1, 0]
    assert "op_compatible_map" not in text


def test_text_needs_a_bool() -> None:
    with pytest.raises(AssertionError, match="throw_on_error should be bool, but received str"):
        default_main_program().to_string("yes")


def test_bytes_and_back() -> None:
    model()
    main = default_main_program()
    data = main.desc.serialize_to_string()
    parsed = Program.parse_from_string(data)
    assert isinstance(parsed.global_block().ops[0], Operator)
    assert parsed.desc.serialize_to_string() == data
    assert parsed.global_block().var("fc_0.w_0").persistable


# ---- the same calls, the same bytes


BUILD = """
import fluid
from tests.golden import zoo
loss, _, _ = zoo.resnet_cifar8(fluid)
zoo.optimizer(fluid, "momentum+l2@piecewise").minimize(loss)
for program in (fluid.default_main_program(), fluid.default_startup_program()):
    for op in [op for block in program.blocks for op in block.ops]:
        print(op.type, op.inputs, op.outputs, op.attrs, op.source)
    print(program.to_string(True, with_details=True))
"""


def test_two_hash_seeds_give_one_program() -> None:
    root = Path(__file__).parents[2]
    texts = [
        subprocess.check_output(
            [sys.executable, "-c", BUILD],
            cwd=root,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
        )
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1]
    assert b"tests/golden/zoo.py:" in texts[0]


def test_variables_of_a_block_stay_an_ordered_dict() -> None:
    """Tools of release 1.8 tell it from other fields of a block by that type."""
    main = Program()
    block = main.global_block()
    block.create_var(name="b", shape=[1], dtype="float32")
    block.create_var(name="a", shape=[1], dtype="float32")
    block.rename_var("b", "c")
    for program in (main, main.clone(), Program.parse_from_string(main.desc.serialize_to_string())):
        variables = program.global_block().vars
        assert isinstance(variables, OrderedDict) and list(variables) == ["c", "a"]
