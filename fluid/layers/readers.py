"""Layers that bring data into a program by themselves: `py_reader`, `read_file` and their kin.

A reader is no variable here and appends no op. `read_file` declares the variables of a batch and
tells the program to take them from the reader, once a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluid import unique_name
from fluid.framework import Program, Variable, default_main_program
from fluid.layer_helper import LayerHelper
from fluid.reading.generator_loader import Reading, Source
from fluid.recording.checks import check_type
from runtime.device import Place
from runtime.prefetching_reader import Queue
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["create_py_reader_by_data", "double_buffer", "py_reader", "read_file"]


class Reader:
    """What `py_reader` gives: told its generator once, started before a pass, reset after it."""

    def __init__(self, name: str, reading: Reading) -> None:
        self.name = name
        self.reading = reading

    def decorate_sample_list_generator(self, reader: Source) -> None:
        """Read lists of samples, each with a field for each variable."""
        self.reading.take_samples(reader)

    def decorate_batch_generator(self, reader: Source) -> None:
        """Read whole batches: an array or a LoDTensor for each variable."""
        self.reading.take_batches(reader)

    decorate_paddle_reader = decorate_sample_list_generator
    decorate_tensor_provider = decorate_batch_generator

    @property
    def queue(self) -> Queue[list[LoDTensor]]:
        """The batches that wait in a started reader."""
        return self.reading.queue

    def start(self) -> None:
        """Begin to make batches; RuntimeError where it has begun already."""
        self.reading.start()

    def reset(self) -> None:
        """Stop, so that `start` begins with the first batch."""
        self.reading.reset()


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> Reader:
    """A reader of batches of these shapes and element types, made up to `capacity` ahead.

    Set its generator by `decorate_sample_list_generator` or `decorate_batch_generator`, and take
    its variables by `read_file`. Running the program raises `fluid.core.EOFException` after the
    last batch. `use_double_buffer` changes nothing here.
    """
    levels = [0] * len(shapes) if lod_levels is None else lod_levels
    if not len(shapes) == len(dtypes) == len(levels):
        counts = f"{len(shapes)} shapes, {len(dtypes)} dtypes and {len(levels)} lod_levels"
        raise ValueError(f"py_reader takes one of each for a variable, but received {counts}")
    block = Program().global_block()
    fields = enumerate(zip(shapes, dtypes, levels, strict=True))
    variables = [
        block.create_var(
            name=f"value {index} of py_reader", shape=shape, dtype=dtype, lod_level=level
        )
        for index, (shape, dtype, level) in fields
    ]
    return _reader(capacity, variables, name)


def create_py_reader_by_data(
    capacity: int,
    feed_list: list[Variable],
    name: str | None = None,
    use_double_buffer: bool = True,
) -> Reader:
    """A reader of batches for variables like these, otherwise as `py_reader`.

    Raises TypeError for no list of variables.
    """
    check_type(feed_list, "feed_list", list, "create_py_reader_by_data")
    for var in feed_list:
        check_type(var, "feed_list", Variable, "create_py_reader_by_data")
    return _reader(capacity, feed_list, name)


def _reader(capacity: int, variables: Sequence[Variable], name: str | None) -> Reader:
    called = unique_name.generate("create_py_reader") if name is None else f"{name}_reader"
    return Reader(called, Reading(variables, capacity))


def double_buffer(reader: Reader, place: Place | None = None, name: str | None = None) -> Reader:
    """The reader itself: batches are made ahead already, and no device has to be filled."""
    check_type(reader, "reader", Reader, "double_buffer")
    return reader


def read_file(reader: Reader) -> Variable | list[Variable]:
    """The variables of the next batch: one, or a list of several.

    Every run of the program takes a batch for each `read_file` in it.
    """
    check_type(reader, "reader", Reader, "read_file")
    helper = LayerHelper("read_file")
    found = [_declared(helper, var) for var in reader.reading.variables]
    default_main_program()._read_from(reader.reading, [var.name for var in found])
    return found[0] if len(found) == 1 else found


def _declared(helper: LayerHelper, like: Variable) -> Variable:
    """A variable of the program that a batch's value is read into."""
    return helper.create_global_variable(
        name=unique_name.generate(f"{helper.name}.tmp"),
        shape=like.dims,
        dtype=like.dtype,
        lod_level=like.lod_level,
        stop_gradient=True,
        is_data=True,
    )
