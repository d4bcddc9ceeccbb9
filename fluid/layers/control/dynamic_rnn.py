"""`DynamicRNN`: a loop over the time steps of LoD sequences.

Sequences are sorted by length, longest first; step t processes item t of the sequences longer than
t, so that the batch shrinks as sequences end.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from fluid import unique_name
from fluid.framework import Block, Variable
from fluid.layer_helper import LayerHelper
from fluid.layers.control.arrays import (
    ARRAY,
    RANK_TABLE,
    array_read,
    array_to_lod_tensor,
    array_write,
    shrink_memory,
)
from fluid.layers.control.blocks import parent_block
from fluid.layers.control.logic import increment, less_than
from fluid.layers.control.loops import While
from fluid.layers.tensor import fill_constant
from fluid.recording.annotations import DTypeLike
from fluid.recording.checks import check_variable
from fluid.recording.var_types import VarDesc
from fluid.recording.variable import VarType

__all__ = ["DynamicRNN"]


class DynamicRNN:
    """A recurrent net over sequences.

    For example::

        rnn = DynamicRNN()
        with rnn.block():
            word = rnn.step_input(words)                 # words [rows, width], with LoD
            before = rnn.memory(shape=[8], value=0.0)
            hidden = layers.fc([word, before], 8, act="tanh")
            rnn.update_memory(before, hidden)
            rnn.output(hidden)
        out = rnn()                                      # [rows, 8], with the LoD of words
    """

    BEFORE_RNN = 0
    IN_RNN = 1
    AFTER_RNN = 2

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("dynamic_rnn", name=name)
        self.status = self.BEFORE_RNN
        self.lod_rank_table: Variable | None = None
        self.max_seq_len: Variable | None = None
        self._step_idx: Variable | None = None
        self.zero_idx: Variable | None = None
        self.mem_dict: dict[str, Variable] = {}
        self.output_array: list[Variable] = []
        self.outputs: list[Variable] = []
        self.cond = self.helper.create_variable_for_type_inference("bool")
        self.while_op = While(self.cond)
        self.input_array: list[tuple[Variable, VarType]] = []
        self.mem_link: list[tuple[Variable, Variable]] = []

    @property
    def step_idx(self) -> Variable:
        """The number of the step, int64 [1]; it exists since the block was entered."""
        assert self._step_idx is not None
        return self._step_idx

    def _rank_table(self) -> Variable:
        """Return the rank table of the first input; TypeError before it."""
        return check_variable(self.lod_rank_table, "table", "dynamic_rnn")

    def step_input(self, x: Variable, level: int = 0) -> Variable:
        """Return this step's items of `x`, which has LoD; the loop steps through level `level`."""
        self._assert_in_rnn_block_("step_input")
        check_variable(x, "x", "step_input()")
        parent = self._parent_block_()
        if self.lod_rank_table is None:
            self._rank(x, level)
        array = parent.create_var(
            name=unique_name.generate("dynamic_rnn_input_array"), type=ARRAY, dtype=x.dtype
        )
        self.input_array.append((array, x.dtype))
        inputs = {"X": x, "RankTable": self.lod_rank_table}
        parent.append_op("lod_tensor_to_array", inputs=inputs, outputs={"Out": array})
        return array_read(array, self.step_idx)

    def _rank(self, x: Variable, level: int) -> None:
        """Rank the sequences of the first input; the loop runs to the length of the longest."""
        parent = self._parent_block_()
        name = unique_name.generate("lod_rank_table")
        self.lod_rank_table = parent.create_var(name=name, type=RANK_TABLE, stop_gradient=True)
        parent.append_op(
            "lod_rank_table",
            inputs={"X": x},
            outputs={"Out": self.lod_rank_table},
            attrs={"level": level},
        )
        name = unique_name.generate("dynamic_rnn_max_seq_len")
        self.max_seq_len = parent.create_var(name=name, dtype="int64")
        inputs = {"RankTable": self.lod_rank_table}
        parent.append_op("max_sequence_len", inputs=inputs, outputs={"Out": self.max_seq_len})
        self.cond.stop_gradient = True
        parent.append_op(
            "less_than",
            inputs={"X": self.step_idx, "Y": self.max_seq_len},
            outputs={"Out": self.cond},
            attrs={"force_cpu": True},
        )

    def static_input(self, x: Variable) -> Variable:
        """Return the rows of `x` for the sequences active in this step.

        `x` has one item per sequence. Raises RuntimeError before the first `step_input`.
        """
        self._assert_in_rnn_block_("static_input")
        check_variable(x, "x", "static_input()")
        if self.lod_rank_table is None:
            raise RuntimeError("static_input() must be called after step_input().")
        ranked = self._reorder(x, "dynamic_rnn_static_input_reordered")
        return shrink_memory(ranked, self.step_idx, self.lod_rank_table)

    def _reorder(self, x: Variable, key: str) -> Variable:
        parent = self._parent_block_()
        ranked = parent.create_var(
            name=unique_name.generate(key), type=VarDesc.VarType.LOD_TENSOR, dtype=x.dtype
        )
        inputs = {"X": x, "RankTable": self.lod_rank_table}
        parent.append_op("reorder_lod_tensor_by_rank", inputs=inputs, outputs={"Out": ranked})
        return ranked

    @contextmanager
    def block(self) -> Generator[None]:
        """Append the layers called in this `with` block to the loop body; ValueError if called
        twice.
        """
        if self.status != self.BEFORE_RNN:
            raise ValueError("rnn.block() can only be invoke once")
        self._step_idx = fill_constant(shape=[1], dtype="int64", value=0, force_cpu=True)
        self.step_idx.stop_gradient = False
        self.status = self.IN_RNN
        with self.while_op.block():
            yield
            self._end_step()
        self.status = self.AFTER_RNN
        table = self._rank_table()
        self.outputs += [array_to_lod_tensor(array, table) for array in self.output_array]

    def _end_step(self) -> None:
        if self.max_seq_len is None:
            raise ValueError(
                "a DynamicRNN needs a step_input, which determines the number of steps"
            )
        increment(self.step_idx, value=1.0, in_place=True)
        for state, array in self.mem_link:
            array_write(state, self.step_idx, array)
        less_than(self.step_idx, self.max_seq_len, force_cpu=True, cond=self.cond)

    def __call__(self) -> Variable | list[Variable]:
        """Return the output, or a list of them; ValueError inside the block."""
        if self.status != self.AFTER_RNN:
            raise ValueError("Output of the dynamic RNN can only be visited outside the rnn block.")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        need_reorder: bool = False,
        dtype: DTypeLike = "float32",
    ) -> Variable:
        """Return a recurrent state, initially `init`, or `value` in `shape` for each row.

        `init` has one row per sequence, in input order if `need_reorder`, else in rank order.
        Raises ValueError before the first `step_input`, which is required without `init`.
        """
        self._assert_in_rnn_block_("memory")
        self._init_zero_idx_()
        if init is None:
            init = self._first_state(shape or [], value, dtype)
        else:
            check_variable(init, "init", "memory()")
            init = self._reorder_by_rank(init) if need_reorder else init
        parent = self._parent_block_()
        array = parent.create_var(
            name=unique_name.generate("dynamic_rnn_mem_array"), type=ARRAY, dtype=init.dtype
        )
        inputs = {"X": init, "I": self.zero_idx}
        parent.append_op("write_to_array", inputs=inputs, outputs={"Out": array})
        whole = array_read(array, self.step_idx)
        state = shrink_memory(whole, self.step_idx, self._rank_table())
        self.mem_dict[state.name] = array
        return state

    def _reorder_by_rank(self, init: Variable) -> Variable:
        if self.lod_rank_table is None:
            raise ValueError(
                "If set need_reorder to True, make sure step_input be invoked before "
                "memory(init=init, need_reordered=True, ...)."
            )
        return self._reorder(init, "dynamic_rnn_mem_init_reordered")

    def _first_state(self, shape: Sequence[int], value: float, dtype: DTypeLike) -> Variable:
        """Return a constant initial state with one row per sequence."""
        if not self.input_array:
            raise ValueError("step_input should be invoked before memory(shape=..., value=...)")
        parent = self._parent_block_()
        state = parent.create_var(name=unique_name.generate("mem_init"), dtype=dtype)
        array, kind = self.input_array[0]
        first = parent.create_var(name=unique_name.generate("in0"), dtype=kind)
        inputs = {"X": array, "I": self.zero_idx}
        parent.append_op("read_from_array", inputs=inputs, outputs={"Out": first})
        parent.append_op(
            "fill_constant_batch_size_like",
            inputs={"Input": first},
            outputs={"Out": state},
            attrs={"shape": [-1, *shape], "value": float(value), "dtype": state.dtype},
        )
        return state

    def update_memory(self, ex_mem: Variable, new_mem: Variable) -> None:
        """Set the value of the state `ex_mem` for the next step to `new_mem`."""
        self._assert_in_rnn_block_("update_memory")
        check_variable(ex_mem, "ex_mem", "update_memory()")
        check_variable(new_mem, "new_mem", "update_memory()")
        array = self.mem_dict.get(ex_mem.name)
        if array is None:
            raise ValueError("Please invoke memory before update_memory")
        if self.lod_rank_table is None:
            raise ValueError("Please invoke step_input before update_memory")
        self.mem_link.append((new_mem, array))

    def output(self, *outputs: Variable) -> None:
        """Mark `outputs` as outputs, collected over all steps."""
        self._assert_in_rnn_block_("output")
        for variable in outputs:
            name = unique_name.generate(f"{self.helper.name}_output_array_{variable.name}")
            parent = self._parent_block_()
            array = parent.create_var(name=name, type=ARRAY, dtype=variable.dtype)
            array_write(variable, self.step_idx, array)
            self.output_array.append(array)

    def _init_zero_idx_(self) -> None:
        if self.zero_idx is not None:
            return
        parent = self._parent_block_()
        self.zero_idx = parent.create_var(name=unique_name.generate("zero_idx"), dtype="int64")
        attrs = {"shape": [1], "dtype": self.zero_idx.dtype, "value": 0.0, "force_cpu": True}
        parent.append_op("fill_constant", outputs={"Out": self.zero_idx}, attrs=attrs)

    def _parent_block_(self) -> Block:
        return parent_block(self.helper.main_program)

    def _assert_in_rnn_block_(self, method: str) -> None:
        if self.status != self.IN_RNN:
            raise ValueError(f"{method} can only be invoked inside rnn block.")
