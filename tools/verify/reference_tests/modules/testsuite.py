"""`testsuite` as operator tests of release 1.8 import it: single ops in a scope."""

from __future__ import annotations

import numpy as np
import paddle.fluid as fluid
from paddle.fluid.framework import OpProtoHolder
from paddle.fluid.op import Operator

from tools.verify.reference_tests import one_op
from tools.verify.reference_tests.one_op import names, parted, variables

__all__ = ["append_input_output", "append_loss_ops", "as_lodtensor", "create_op", "set_input"]


def create_op(scope, op_type, inputs, outputs, attrs, cache_list=None):
    """Create an `Operator` on variables of a scope, which are created there."""
    proto = OpProtoHolder.instance().get_op_proto(op_type)
    kwargs = {}
    for declared, values in ((proto.inputs, inputs), (proto.outputs, outputs)):
        for slot in declared:
            if slot.name in values:
                kwargs[slot.name] = names(slot.name, values[slot.name])
            elif not slot.dispensable and declared is proto.outputs:
                kwargs[slot.name] = [slot.name]
            for name in kwargs.get(slot.name, ()):
                scope.var(name).get_tensor()
    attr_names = {attr.name for attr in proto.attrs}
    kwargs.update({name: value for name, value in attrs.items() if name in attr_names})
    for name in cache_list or ():
        scope.var(name)
    operator = Operator(op_type, **kwargs)
    operator.given_attrs = {name: value for name, value in attrs.items() if name in attr_names}
    return operator


def set_input(scope, op, inputs, place):
    """Put the inputs of an op into a scope."""
    for name, value in variables(inputs):
        if scope.find_var(name) is not None:
            array, lengths = parted(value)
            tensor = scope.find_var(name).get_tensor()
            tensor.set(array, place)
            if lengths:
                tensor.set_recursive_sequence_lengths(lengths)


def as_lodtensor(np_array, lod, place):
    """A LoDTensor of an array, and of the lengths of its sequences unless they are None."""
    tensor = fluid.LoDTensor()
    tensor.set(np.array(np_array), place)
    if lod is not None:
        tensor.set_recursive_sequence_lengths(lod)
    return tensor


def append_input_output(block, op_proto, np_list, is_input, dtype=None):
    """Declare the variables of an op's inputs or outputs in a block; returns them by slot."""
    declared_variables = {}
    for slot in op_proto.inputs if is_input else op_proto.outputs:
        if slot.name not in np_list:
            if not slot.dispensable and not is_input:
                declared_variables[slot.name] = block.create_var(name=slot.name)
            continue
        values = list(variables({slot.name: np_list[slot.name]}))
        slot_variables = [declared(block, name, value, is_input) for name, value in values]
        declared_variables[slot.name] = slot_variables if slot.duplicable else slot_variables[0]
    return declared_variables


def declared(block, name, value, is_input):
    """A variable for a value; only those of inputs have a shape from the start."""
    array, lengths = parted(value)
    if not is_input:
        return block.create_var(name=name, dtype=array.dtype)
    levels = len(lengths or ())
    return block.create_var(name=name, shape=array.shape, dtype=array.dtype, lod_level=levels)


def append_loss_ops(block, output_names):
    """Append the mean over the means of these variables; returns it."""
    return one_op.append_loss_ops(block, output_names)
