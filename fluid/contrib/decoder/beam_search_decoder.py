"""Beam search decoder for inference, which feeds back the words that it selected."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import cast

from fluid import layers, unique_name
from fluid.contrib.decoder.states import InitState, StateCell
from fluid.contrib.decoder.training import TrainingDecoder
from fluid.framework import Block, default_main_program
from fluid.recording.annotations import DTypeLike
from fluid.recording.var_types import VarDesc
from fluid.recording.variable import Variable

__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder"]


class _ArrayState:
    """A state in a tensor array of the parent block, with its own counter."""

    def __init__(self, block: Block, init: InitState) -> None:
        self._array = _array(block, "array_state_array", init.value.dtype)
        name = unique_name.generate("array_state_counter")
        self._counter = block.create_var(name=name, dtype="int64", stop_gradient=True)
        attrs = {"shape": [1], "dtype": self._counter.dtype, "value": 0.0, "force_cpu": True}
        block.append_op(type="fill_constant", outputs={"Out": [self._counter]}, attrs=attrs)
        _write(block, init.value, self._counter, self._array)

    def get_state(self) -> Variable:
        """Read the state that the previous step wrote."""
        return layers.array_read(array=self._array, i=self._counter)

    def update_state(self, state: Variable) -> None:
        """Write the state for the next step."""
        layers.increment(x=self._counter, value=1, in_place=True)
        layers.array_write(state, array=self._array, i=self._counter)


def _array(block: Block, name: str, dtype: DTypeLike) -> Variable:
    kind = VarDesc.VarType.LOD_TENSOR_ARRAY
    return block.create_var(name=unique_name.generate(name), type=kind, dtype=dtype)


def _expect_variable(value: object, name: str) -> None:
    if not isinstance(value, Variable):
        raise TypeError(f"{name} must be a Variable, not {type(value).__name__}")


def _write(block: Block, value: Variable, index: Variable, array: Variable) -> None:
    inputs = {"X": [value], "I": [index]}
    block.append_op(type="write_to_array", inputs=inputs, outputs={"Out": [array]})


class BeamSearchDecoder:
    """Runs a `StateCell` step by step, keeping the `beam_size` best sequences of words.

    decoder = BeamSearchDecoder(cell, init_ids, init_scores, words, width, max_len=8, beam_size=2)
    decoder.decode() ids, scores = decoder()

    Words are embedded in `word_dim` dimensions; `input_var_dict` has variables for cell inputs
    other than words. `decode` may be overridden using `block`, `read_array`, `update_array` and
    `early_stop`. As in the reference, `decode` ends a sequence at word 1 regardless of `end_id`,
    which is used to truncate the results.
    """

    BEFORE_BEAM_SEARCH_DECODER, IN_BEAM_SEARCH_DECODER, AFTER_BEAM_SEARCH_DECODER = range(3)

    def __init__(
        self,
        state_cell: StateCell,
        init_ids: Variable,
        init_scores: Variable,
        target_dict_dim: int,
        word_dim: int,
        input_var_dict: Mapping[str, Variable] | None = None,
        topk_size: int = 50,
        sparse_emb: bool = True,
        max_len: int = 100,
        beam_size: int = 1,
        end_id: int = 1,
        name: str | None = None,
    ) -> None:
        self._counter = layers.zeros(shape=[1], dtype="int64")
        self._counter.stop_gradient = True
        self._max_len = layers.fill_constant(shape=[1], dtype="int64", value=max_len)
        self._condition = layers.less_than(x=self._counter, y=self._max_len)
        self._loop = layers.While(self._condition)
        self._first = layers.fill_constant(shape=[1], value=0, dtype="int64", force_cpu=True)
        self._cell, self._status = state_cell, self.BEFORE_BEAM_SEARCH_DECODER
        state_cell.enter(self)
        self._arrays: dict[str, Variable] = {}
        self._writes: list[tuple[Variable, Variable]] = []
        self._ids_array: Variable | None = None
        self._scores_array: Variable | None = None
        self._init_ids, self._init_scores = init_ids, init_scores
        self._words, self._width, self._sparse = target_dict_dim, word_dim, sparse_emb
        self._inputs, self._most_likely = dict(input_var_dict or {}), topk_size
        self._beam_size, self._end_id = beam_size, end_id

    def create_state(self, init: InitState) -> _ArrayState:
        """Return a state stored in a tensor array."""
        return _ArrayState(self._parent_block(), init)

    @contextmanager
    def block(self) -> Generator[None]:
        """Context manager for the loop body; ValueError if used twice."""
        if self._status != self.BEFORE_BEAM_SEARCH_DECODER:
            raise ValueError("block() can only be invoked once")
        self._status = self.IN_BEAM_SEARCH_DECODER
        with self._loop.block():
            yield
            with layers.Switch() as switch, switch.case(self._condition):
                self._advance()
        self._status = self.AFTER_BEAM_SEARCH_DECODER
        self._cell.leave()

    def _advance(self) -> None:
        """Increment the step counter, write the updated arrays and recompute the loop condition."""
        layers.increment(x=self._counter, value=1.0, in_place=True)
        for value, array in self._writes:
            layers.array_write(x=value, i=self._counter, array=array)
        layers.less_than(x=self._counter, y=self._max_len, cond=self._condition)

    def early_stop(self) -> None:
        """Make this step the last one."""
        layers.fill_constant(shape=[1], value=0, dtype="bool", force_cpu=True, out=self._condition)

    def decode(self) -> None:
        """Append the steps of beam search: embed words, compute states, score words, select the
        best.
        """
        with self.block():
            ids = self.read_array(init=self._init_ids, is_ids=True)
            scores = self.read_array(init=self._init_scores, is_scores=True)
            size = [self._words, self._width]
            words = layers.embedding(ids, size, dtype="float32", is_sparse=self._sparse)
            read = {name: self._read_input(name) for name in self._inputs}
            fed = {
                name: layers.sequence_expand(variable, scores) for name, variable in read.items()
            }
            self._expand_states(scores)
            self._cell.compute_state({**dict.fromkeys(self._cell.input_names, words), **fed})
            chosen = self._search(ids, scores)
            links = [*zip((ids, scores), chosen, strict=True)]
            self._store(chosen[0], links + [(read[name], fed[name]) for name in read])

    def _read_input(self, name: str) -> Variable:
        if name not in self._cell.input_names:
            raise ValueError(f"variable {name!r} of input_var_dict is no input of the StateCell")
        return self.read_array(init=self._inputs[name])

    def _expand_states(self, scores: Variable) -> None:
        """Repeat the state of each beam once for every candidate that extends it."""
        for name in self._cell.state_names:
            state = self._cell.get_state(name)
            self._cell.set_state(name, layers.sequence_expand(state, scores))

    def _search(self, ids: Variable, scores: Variable) -> tuple[Variable, ...]:
        """Return the selected words and their accumulated scores."""
        state = layers.lod_reset(x=self._cell.out_state(), y=scores)
        likely = layers.fc(state, size=self._words, act="softmax")
        top_scores, words = layers.topk(likely, k=self._most_likely)
        before = layers.reshape(scores, shape=[-1])
        total = layers.elementwise_add(layers.log(top_scores), before, axis=0)
        return layers.beam_search(ids, scores, words, total, self._beam_size, end_id=1, level=0)

    def _store(self, chosen: Variable, links: list[tuple[Variable, Variable]]) -> None:
        """Store the inputs of the next step, or stop if no beam remains."""
        with layers.Switch() as switch:
            with switch.case(layers.is_empty(chosen)):
                self.early_stop()
            with switch.default():
                self._cell.update_states()
                for read, value in links:
                    self.update_array(read, value)

    def read_array(self, init: Variable, is_ids: bool = False, is_scores: bool = False) -> Variable:
        """Return the value passed to `update_array` in the previous step, `init` in the first
        one.
        """
        self._check_inside("read_array")
        if is_ids and is_scores:
            raise ValueError("an array holds ids or scores, not both")
        _expect_variable(init, "init")
        block = self._parent_block()
        array = _array(block, "beam_search_decoder_array", init.dtype)
        _write(block, init, self._first, array)
        if is_ids:
            self._ids_array = array
        elif is_scores:
            self._scores_array = array
        read = layers.array_read(array=array, i=self._counter)
        self._arrays[read.name] = array
        return read

    def update_array(self, array: Variable, value: Variable) -> None:
        """Store a value for the next step; `array` was returned by `read_array`."""
        self._check_inside("update_array")
        for name, variable in (("array", array), ("value", value)):
            _expect_variable(variable, name)
        if array.name not in self._arrays:
            raise ValueError("invoke read_array before update_array")
        self._writes.append((value, self._arrays[array.name]))

    def __call__(self) -> tuple[Variable, Variable]:
        """Return the ids and scores of the best sequences; ValueError before the block is
        complete.
        """
        if self._status != self.AFTER_BEAM_SEARCH_DECODER:
            raise ValueError("the output of BeamSearchDecoder is available after its block only")
        return layers.beam_search_decode(
            ids=cast(Variable, self._ids_array),
            scores=cast(Variable, self._scores_array),
            beam_size=self._beam_size,
            end_id=self._end_id,
        )

    @property
    def state_cell(self) -> StateCell:
        """The cell, inside the block."""
        self._check_inside("state_cell")
        return self._cell

    def _parent_block(self) -> Block:
        """Return the parent of the current block."""
        program = default_main_program()
        return program.block(program.current_block().parent_idx)

    def _check_inside(self, method: str) -> None:
        if self._status != self.IN_BEAM_SEARCH_DECODER:
            raise ValueError(f"{method} should be invoked inside block of BeamSearchDecoder object")
