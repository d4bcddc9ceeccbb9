"""`StaticRNN`: a block that runs for each time step of inputs of equal length."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.support.dataclass import dataclass
from fluid import unique_name
from fluid.framework import Block, Variable
from fluid.layer_helper import LayerHelper
from fluid.layers.control.blocks import BlockGuard, inputs_and_outputs, parent_block
from fluid.recording.annotations import Attributes
from fluid.recording.checks import check_type, check_variable
from fluid.recording.var_types import VarDesc

__all__ = ["StaticRNN"]


@dataclass
class StaticRNNMemoryLink:
    """A recurrent state: its initial value, its value in a step, and the updated value."""

    init: Variable
    pre_mem: Variable
    mem: Variable | None = None


class StaticRNN:
    """A recurrent net over the first axis of its inputs, which is of one size for all.

    For example::

        rnn = StaticRNN()
        with rnn.step():
            word = rnn.step_input(words)                    # words [steps, rows, width]
            before = rnn.memory(shape=[-1, 8], batch_ref=words)
            hidden = layers.fc([word, before], 8, act="tanh")
            rnn.update_memory(before, hidden)
            rnn.step_output(hidden)
        out = rnn()                                         # [steps, rows, 8]
    """

    BEFORE_RNN_BLOCK = 0
    IN_RNN_BLOCK = 1
    AFTER_RNN_BLOCK = 2

    def __init__(self, name: str | None = None) -> None:
        check_type(name, "name", (str, type(None)), "fluid.layers.StaticRNN")
        self.helper = LayerHelper("static_rnn", name=name)
        self.memories: dict[str, StaticRNNMemoryLink] = {}
        self.inputs: list[Variable] = []
        self.outputs: list[Variable] = []
        self.status = self.BEFORE_RNN_BLOCK
        self.seq_len: int | None = None

    def step(self) -> StaticRNNGuard:
        """Return a guard: layers called in its `with` statement are appended to the step block."""
        return StaticRNNGuard(self)

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        batch_ref: Variable | None = None,
        init_value: float = 0.0,
        init_batch_dim_idx: int = 0,
        ref_batch_dim_idx: int = 1,
    ) -> Variable:
        """Return a recurrent state, initially `init`, or `init_value` in `shape`.

        In the latter case the batch size, axis `init_batch_dim_idx`, is axis `ref_batch_dim_idx` of
        `batch_ref`. Raises ValueError if both are None, or outside the block.
        """
        self._assert_in_rnn_block_("memory")
        layer = "fluid.layers.StaticRNN.memory"
        check_type(init, "init", (Variable, type(None)), layer)
        check_type(shape, "shape", (list, tuple, type(None)), layer)
        check_type(batch_ref, "batch_ref", (Variable, type(None)), layer)
        if init is None:
            if shape is None or batch_ref is None:
                raise ValueError("if init is None, memory at least need shape and batch_ref")
            axes = {"input_dim_idx": ref_batch_dim_idx, "output_dim_idx": init_batch_dim_idx}
            init = self._first_state(shape, batch_ref, {"value": init_value, **axes})
        name = unique_name.generate(f"{self.helper.name}@mem")
        before = self.helper.create_variable(name=name, dtype=init.dtype, shape=init.shape)
        self.memories[before.name] = StaticRNNMemoryLink(init, before)
        return before

    def _first_state(
        self, shape: Sequence[int], batch_ref: Variable, attrs: Attributes
    ) -> Variable:
        parent = self._parent_block()
        name = unique_name.generate(f"{self.helper.name}@memory_boot")
        boot = parent.create_var(name=name, shape=shape, dtype=batch_ref.dtype, persistable=False)
        parent.append_op(
            "fill_constant_batch_size_like",
            inputs={"Input": batch_ref},
            outputs={"Out": boot},
            attrs={"shape": boot.shape, "dtype": boot.dtype, **attrs},
        )
        return boot

    def step_input(self, x: Variable) -> Variable:
        """Return one step of `x`, whose first axis is time; ValueError if its size differs."""
        self._assert_in_rnn_block_("step_input")
        check_variable(x, "x", "fluid.layers.StaticRNN.step_input")
        if self.seq_len is None:
            self.seq_len = x.shape[0]
        elif x.shape[0] != -1 and self.seq_len != x.shape[0]:
            raise ValueError(
                f"Static RNN only take fix seq_len input: {x.name!r} has {x.shape[0]} steps, an "
                f"input before {self.seq_len}"
            )
        step = self.helper.create_variable(
            name=x.name, dtype=x.dtype, shape=x.shape[1:], type=x.type
        )
        self.inputs.append(step)
        return step

    def step_output(self, o: Variable) -> None:
        """Mark `o` as an output, collected over all steps."""
        self._assert_in_rnn_block_("step_output")
        check_variable(o, "o", "fluid.layers.StaticRNN.step_output")
        step = self._copy(o)
        shape = None if self.seq_len is None else [self.seq_len, *step.shape]
        parent = self._parent_block()
        self.outputs.append(parent.create_var(name=step.name, shape=shape, dtype=step.dtype))

    def _copy(self, var: Variable) -> Variable:
        copy = self.helper.create_variable_for_type_inference(var.dtype)
        attrs = {"dtype": var.dtype}
        self.helper.append_op(
            "rnn_memory_helper", inputs={"X": var}, outputs={"Out": copy}, attrs=attrs
        )
        return copy

    def output(self, *outputs: Variable) -> None:
        """Mark `outputs` as outputs, collected over all steps."""
        for output in outputs:
            self.step_output(output)

    def update_memory(self, mem: Variable, var: Variable) -> None:
        """Set the value of the state `mem` for the next step to `var`."""
        check_variable(mem, "mem", "fluid.layers.StaticRNN.update_memory")
        check_variable(var, "var", "fluid.layers.StaticRNN.update_memory")
        if mem.name not in self.memories:
            raise ValueError(f"{mem.name!r} is no memory of this StaticRNN: make it by memory()")
        self.memories[mem.name].mem = var

    def __call__(self) -> Variable | list[Variable]:
        """Return the outputs of all steps, one or a list; ValueError before the block or without
        any.
        """
        if self.status != self.AFTER_RNN_BLOCK:
            raise ValueError("RNN output can only be retrieved after rnn block")
        if not self.outputs:
            raise ValueError("RNN has no output")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def _assert_in_rnn_block_(self, method: str) -> None:
        if self.status != self.IN_RNN_BLOCK:
            raise ValueError(f"You must invoke {method} in rnn block")

    def _parent_block(self) -> Block:
        return parent_block(self.helper.main_program)

    def complete_op(self) -> None:
        """Append the op that owns the current block to its parent block."""
        inside, parent = self.helper.main_program.current_block(), self._parent_block()
        local = {name for op in inside.ops for name in op.writes()}
        local |= {var.name for var in self.inputs} | set(self.memories)
        read = [name for name in inputs_and_outputs(inside.ops)[0] if name not in local]
        states = [self._updated_state(link) for link in self.memories.values()]
        scopes = parent.create_var(type=VarDesc.VarType.STEP_SCOPES)
        parent.append_op(
            "recurrent",
            inputs={
                "inputs": [parent.var_recursive(var.name) for var in self.inputs],
                "initial_states": [link.init for link in self.memories.values()],
                "parameters": [parent.var_recursive(name) for name in read],
            },
            outputs={"outputs": self.outputs, "step_scopes": scopes},
            attrs={
                "has_states": len(self.memories) > 0,
                "ex_states": list(self.memories),
                "states": states,
                "sub_block": inside,
            },
        )

    def _updated_state(self, link: StaticRNNMemoryLink) -> str:
        if link.mem is None:
            raise ValueError(
                f"{link.init.name} should be updated in every step: call update_memory for "
                f"{link.pre_mem.name}"
            )
        return self._copy(link.mem).name


class StaticRNNGuard(BlockGuard):
    """Guard returned by `StaticRNN.step`."""

    def __init__(self, rnn: StaticRNN) -> None:
        check_type(rnn, "rnn", StaticRNN, "StaticRNNGuard")
        super().__init__(rnn.helper.main_program)
        self.rnn = rnn

    def __enter__(self) -> None:
        self.rnn.status = StaticRNN.IN_RNN_BLOCK
        super().__enter__()

    def complete(self) -> None:
        """Append the op that owns the block."""
        self.rnn.status = StaticRNN.AFTER_RNN_BLOCK
        self.rnn.complete_op()
