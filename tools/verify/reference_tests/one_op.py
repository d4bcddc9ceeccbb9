"""A program of one op, as operator tests describe it: inputs, outputs and attributes by slot.

A slot that takes many variables has a list of (name, value); a value is an array, or a pair of an
array and the lengths of its sequences. Runs on any fluid, so that tests can be tried on both.
"""

from __future__ import annotations

import numpy as np
import paddle.fluid as fluid
from paddle.fluid.framework import OpProtoHolder


class OneOp:
    """An op in a separate program: `feed` by variable, `outputs` the names by slot.

    A variable has the name of its slot, or that next to its value in a list. Outputs that are not
    passed are created if the op always writes them. Raises ValueError for an unknown op or slot.
    """

    def __init__(self, kind, inputs, outputs, attrs=None):
        self.kind = kind
        self.proto = OpProtoHolder.instance().get_op_proto(kind)
        self.expect_slots(inputs, outputs)
        self.feed = dict(variables(inputs))
        self.dtypes = {name: parted(value)[0].dtype for name, value in variables(outputs)}
        self.inputs = {slot: names(slot, value) for slot, value in inputs.items()}
        self.outputs = {slot: names(slot, value) for slot, value in outputs.items()}
        for slot in self.proto.outputs:
            if not slot.dispensable:
                self.outputs.setdefault(slot.name, [slot.name])
        declared = {attr.name for attr in self.proto.attrs}
        self.attrs = {name: value for name, value in (attrs or {}).items() if name in declared}
        self.program = fluid.Program()
        self.append_to(self.program.global_block())
        self.exe = fluid.Executor(fluid.CPUPlace())

    def expect_slots(self, inputs, outputs):
        """Raise ValueError if a test uses a slot that the op does not have."""
        for side, slots in ((inputs, self.proto.inputs), (outputs, self.proto.outputs)):
            declared = {slot.name for slot in slots}
            unknown = [name for name in side if name not in declared]
            if unknown:
                has = ", ".join(sorted(declared))
                raise ValueError(f"op {self.kind} has no slot {unknown[0]!r}; it has: {has}")

    def append_to(self, block):
        """Declare the variables in a block, and append the op."""
        for name, value in self.feed.items():
            array, lengths = parted(value)
            block.create_var(
                name=name, shape=array.shape, dtype=array.dtype, lod_level=len(lengths or ())
            )
        for name in self.written():
            if not block.has_var(name):
                block.create_var(name=name, dtype=self.dtypes.get(name, "float32"))
        slots = [
            {slot: [block.var(name) for name in arguments] for slot, arguments in side.items()}
            for side in (self.inputs, self.outputs)
        ]
        block.append_op(type=self.kind, inputs=slots[0], outputs=slots[1], attrs=self.attrs)

    def written(self):
        """The names of all outputs."""
        return [name for arguments in self.outputs.values() for name in arguments]

    def run(self, fetch, feed=None, program=None):
        """The LoDTensors of these variables."""
        fed = self.feed if feed is None else feed
        tensors = {name: tensor(value) for name, value in fed.items()}
        return self.exe.run(
            program or self.program, feed=tensors, fetch_list=fetch, return_numpy=False
        )

    def gradients(self, of, outputs, no_grad_set=None):
        """Gradients by the variables `of` of the mean over the means of `outputs`, as arrays."""
        program = fluid.Program()
        block = program.global_block()
        with fluid.program_guard(program, fluid.Program()):
            self.append_to(block)
            loss = append_loss_ops(block, outputs)
            pairs = fluid.backward.append_backward(
                loss, parameter_list=list(of), no_grad_set=no_grad_set
            )
        gradients = {variable.name: gradient for variable, gradient in pairs}
        missing = [name for name in of if name not in gradients]
        if missing:
            raise AssertionError(f"{self.kind} has no gradient of {missing[0]!r}")
        values = self.run([gradients[name] for name in of], program=program)
        return [np.array(value) for value in values]


def append_loss_ops(block, output_names):
    """Append the mean over the means of these variables; returns it."""
    means = [appended(block, "mean", block.var(name)) for name in output_names]
    if len(means) == 1:
        return means[0]
    total = appended(block, "sum", means)
    return appended(block, "scale", total, scale=1.0 / len(means))


def appended(block, kind, inputs, **attrs):
    """Append an op that reads X and writes Out; returns its output, of the type of its input."""
    first = inputs[0] if isinstance(inputs, list) else inputs
    name = fluid.unique_name.generate("loss_of_the_test")
    out = block.create_var(name=name, dtype=first.dtype, shape=[1])
    block.append_op(type=kind, inputs={"X": inputs}, outputs={"Out": out}, attrs=attrs)
    return out


def variables(slots):
    """The names and values of all variables of these slots."""
    for slot, value in slots.items():
        yield from value if isinstance(value, list) else [(slot, value)]


def names(slot, value):
    """The names of the variables of a slot."""
    return [name for name, _ in value] if isinstance(value, list) else [slot]


def parted(value):
    """The array of a value, and its sequence lengths or None."""
    if isinstance(value, tuple):
        return np.asarray(value[0]), value[1]
    return np.asarray(value), None


def tensor(value):
    """A value as a LoDTensor."""
    array, lengths = parted(value)
    result = fluid.LoDTensor()
    result.set(np.ascontiguousarray(array).reshape(array.shape), fluid.CPUPlace())
    if lengths:
        result.set_recursive_sequence_lengths(lengths)
    return result
