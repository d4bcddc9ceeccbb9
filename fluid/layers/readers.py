"""Layers that read data within the program: `py_reader`, `read_file` and others.

A reader is not a variable here and appends no op. `read_file` declares the variables of a batch and
registers the reader with the program, which takes one batch per run.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread

from fluid import unique_name
from fluid.framework import Program, Variable, default_main_program
from fluid.layer_helper import LayerHelper
from fluid.reading.generator_loader import Reading, SampleLists, Source
from fluid.recording.annotations import DTypeLike
from fluid.recording.checks import check_type
from runtime.device import Place
from runtime.prefetching_reader import Queue
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["create_py_reader_by_data", "double_buffer", "py_reader", "read_file"]


class Reader:
    """The reader that `py_reader` returns: set its generator once; start and reset it each pass.

    Scripts that are done set `exited` and join `thread`, which ends with its batches.
    """

    def __init__(self, name: str, reading: Reading) -> None:
        self.name = name
        self.reading = reading
        self.exited = False

    def decorate_sample_list_generator(self, reader: SampleLists) -> None:
        """Set a generator of lists of samples, each with one field per variable."""
        self.reading.take_samples(reader)

    def decorate_batch_generator(self, reader: Source) -> None:
        """Set a generator of batches: an array or a LoDTensor per variable."""
        self.reading.take_batches(reader)

    decorate_paddle_reader = decorate_sample_list_generator
    decorate_tensor_provider = decorate_batch_generator

    @property
    def queue(self) -> Queue[list[LoDTensor]]:
        """Return the queue of prefetched batches of a started reader."""
        return self.reading.queue

    @property
    def thread(self) -> Thread | None:
        """Return the thread that prefetches, None before `start`."""
        return self.reading.thread

    def start(self) -> None:
        """Start prefetching; RuntimeError if already started."""
        self.reading.start()

    def reset(self) -> None:
        """Stop, so that `start` begins with the first batch."""
        self.reading.reset()


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[DTypeLike],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> Reader:
    """Return a reader of batches with these shapes and dtypes that prefetches up to `capacity`.

    Set its generator by `decorate_sample_list_generator` or `decorate_batch_generator`, and get its
    variables by `read_file`. Running the program raises `fluid.core.EOFException` after the last
    batch. `use_double_buffer` has no effect here.
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
    """Return a reader of batches for variables like those of `feed_list`; see `py_reader`.

    Raises TypeError unless `feed_list` is a list of variables.
    """
    check_type(feed_list, "feed_list", list, "create_py_reader_by_data")
    for var in feed_list:
        check_type(var, "feed_list", Variable, "create_py_reader_by_data")
    return _reader(capacity, feed_list, name)


def _reader(capacity: int, variables: Sequence[Variable], name: str | None) -> Reader:
    called = unique_name.generate("create_py_reader") if name is None else f"{name}_reader"
    return Reader(called, Reading(variables, capacity))


def double_buffer(reader: Reader, place: Place | None = None, name: str | None = None) -> Reader:
    """Return `reader` itself: batches are already prefetched."""
    check_type(reader, "reader", Reader, "double_buffer")
    return reader


def read_file(reader: Reader) -> Variable | list[Variable]:
    """Return the variables of the next batch: one, or a list.

    Each run of the program takes one batch per `read_file`.
    """
    check_type(reader, "reader", Reader, "read_file")
    helper = LayerHelper("read_file")
    variables = [_declare_like(helper, var) for var in reader.reading.variables]
    default_main_program().read_from(reader.reading, [var.name for var in variables])
    return variables[0] if len(variables) == 1 else variables


def _declare_like(helper: LayerHelper, like: Variable) -> Variable:
    """Declare a program variable for a batch's values."""
    return helper.create_global_variable(
        name=unique_name.generate(f"{helper.name}.tmp"),
        shape=like.dims,
        dtype=like.dtype,
        lod_level=like.lod_level,
        stop_gradient=True,
        is_data=True,
    )
