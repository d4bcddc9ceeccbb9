"""`fc_fuse_pass`: a product, the bias that is added to it, and relu become one `fc` op.

Reference: paddle/fluid/framework/ir/fc_fuse_pass.cc of release 1.8.5.
"""

from __future__ import annotations

from collections import Counter

from fluid.framework import Block, Operator, Program

__all__ = ["fuse_fully_connected"]


def fuse_fully_connected(program: Program) -> None:
    """Replace `mul`, `elementwise_add` of a persistable bias, and `relu` by `fc`, in place.

    Only the main block is rewritten. A product or sum that another op reads, too, stays.
    """
    block = program.global_block()
    reads = Counter(name for part in program.blocks for op in part.ops for name in op.reads())
    for product in [op for op in block.ops if op.type == "mul"]:
        added = _only_reader(block, product.output("Out")[0], reads)
        if added is not None and _adds_bias(block, product, added):
            result = _only_reader(block, added.output("Out")[0], reads)
            is_relu = result is not None and result.type == "relu"
            _replace(block, product, [added, result] if result and is_relu else [added])


def _only_reader(block: Block, name: str, reads: Counter[str]) -> Operator | None:
    """The op of a block that alone reads a temporary variable; None if there is no such op."""
    if reads[name] != 1 or block.var(name).persistable:
        return None
    return next((op for op in block.ops if name in op.reads()), None)


def _adds_bias(block: Block, product: Operator, added: Operator) -> bool:
    """Whether an op adds a persistable row to the product with a persistable matrix."""
    if added.type != "elementwise_add" or added.input("X") != product.output("Out"):
        return False
    weight, bias = block.var(product.input("Y")[0]), block.var(added.input("Y")[0])
    if not weight.persistable or not bias.persistable or len(weight.shape) != 2:
        return False
    columns = weight.shape[1]
    last = product.attr("x_num_col_dims")
    row = bias.shape in ((columns,), (1, columns)) and added.attr("axis") in (-1, last)
    return row and product.attr("y_num_col_dims") == 1


def _replace(block: Block, product: Operator, others: list[Operator]) -> None:
    """Put `fc` in the place of the last op, and remove all of them."""
    [result] = others[-1].output("Out")
    slots = {
        "Input": product.input("X"),
        "W": product.input("Y"),
        "Bias": others[0].input("Y"),
    }
    attrs = {
        "in_num_col_dims": product.attr("x_num_col_dims"),
        "activation_type": "relu" if len(others) > 1 else "",
        "op_role": product.attr("op_role"),
    }
    block.add_op("fc", slots, {"Out": [result]}, attrs, index=block.ops.index(others[-1]) + 1)
    for op in [product, *others]:
        block.remove_op(block.ops.index(op))
        [name] = op.output("Out")
        if name != result:
            block.remove_var(name)
