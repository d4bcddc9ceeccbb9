"""Iteration over a dataset: `Executor.train_from_dataset` and `infer_from_dataset`."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias, cast

import numpy as np

from compiler.ir.program import OpRole
from compiler.ir.types import Array
from fluid.framework import Program, Variable
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["Batches", "FetchHandler", "PeriodicCall", "for_inference", "run_over"]

BatchFeed: TypeAlias = Mapping[str, Array | LoDTensor]
"""A batch as the feeds of a step."""
Run: TypeAlias = Callable[[BatchFeed, list[Variable]], list[LoDTensor]]
"""Runs a step on feeds and returns the fetched values, which may have LoD."""


HELP = """
class PrintAuc(fluid.executor.FetchHandler):
    def handler(self, res_dict):
        print("auc:", res_dict["auc"])

exe.train_from_dataset(program, dataset, fetch_handler=PrintAuc({"auc": auc}, period_secs=10))
"""
"""An example handler, printed by `FetchHandler.help`."""


class Batches(Protocol):
    """A dataset of `fluid.dataset`, which programs without one need not load."""

    thread_num: int

    def set_thread(self, thread_num: int) -> None:
        """Set the number of reader processes."""
        ...

    def feeds(self) -> Iterator[BatchFeed]:
        """Iterate over the batches."""
        ...


class FetchHandler:
    """A callback with fetched values every `period_secs` seconds: subclass it and
    define `handler`.
    """

    def __init__(
        self, var_dict: Mapping[str, Variable] | None = None, period_secs: float = 60
    ) -> None:
        if var_dict is None:
            raise AssertionError("FetchHandler requires var_dict: variables by name")
        self.var_dict, self.period_secs = var_dict, period_secs

    @staticmethod
    def help() -> None:
        """Print an example handler."""
        print(HELP)

    def handler(self, res_dict: Mapping[str, Array | None]) -> None:
        """Called with the arrays of the last step by name; None before the first step."""
        for name, value in res_dict.items():
            print(f"{name}[0]: {None if value is None else value.ravel()[0]}")


def run_over(
    dataset: Batches,
    run: Run,
    fetch_list: Sequence[Variable],
    fetch_info: Sequence[str],
    print_period: int,
    handler: FetchHandler | None,
) -> None:
    """Run a step for every batch; print fetches every `print_period` steps, call the handler.

    Raises ValueError if `fetch_info` has not one text for each of the fetches.
    """
    labels = list(fetch_info) or [var.name for var in fetch_list]
    if len(labels) != len(fetch_list):
        raise ValueError(f"fetch_info has {len(labels)} texts for {len(fetch_list)} variables")
    with _Periodic(handler) as periodic:
        for step, feed in enumerate(dataset.feeds()):
            printed = list(fetch_list) if step % print_period == 0 else []
            values = run(feed, printed + periodic.wanted)
            if printed:
                shown = (f"{label}: {_text(v)}" for label, v in zip(labels, values, strict=False))
                print(f"batch {step}: {', '.join(shown)}")
            periodic.take([np.asarray(value) for value in values[len(printed) :]])


def _text(value: LoDTensor) -> str:
    """The elements of a tensor, and its LoD if it has one."""
    lod = f" (LoD {value.lod()})" if value.lod() else ""
    return f"{np.asarray(value)}{lod}"


class PeriodicCall:
    """A thread that calls a function every `period_secs` seconds until it is stopped."""

    def __init__(self, period_secs: float, call: Callable[[], None]) -> None:
        self._period_secs, self._call, self._ended = period_secs, call, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._ended.wait(self._period_secs):
            self._call()

    def start(self) -> None:
        """Start the thread; the first call is after a period."""
        self._thread.start()

    def stop(self) -> None:
        """Stop it, and wait for a call that runs."""
        self._ended.set()
        self._thread.join()


class _Periodic:
    """Calls a handler periodically with the newest values."""

    def __init__(self, handler: FetchHandler | None) -> None:
        self.handler = handler
        variables = {} if handler is None else _variables(handler.var_dict)
        self.names, self.wanted = list(variables), list(variables.values())
        self.newest: list[Array | None] = [None] * len(self.wanted)
        self.calls = None if handler is None else PeriodicCall(handler.period_secs, self._call)

    def take(self, values: Sequence[Array]) -> None:
        self.newest = list(values)

    def __enter__(self) -> _Periodic:
        if self.calls is not None:
            self.calls.start()
        return self

    def _call(self) -> None:
        assert self.handler is not None
        self.handler.handler(dict(zip(self.names, self.newest, strict=True)))

    def __exit__(self, *_: object) -> None:
        if self.calls is not None:
            self.calls.stop()


def _variables(var_dict: object) -> dict[str, Variable]:
    """The variables to fetch; warns of anything else, as the reference does."""
    is_mapping = isinstance(var_dict, Mapping)
    by_name = cast(Mapping[str, object], var_dict) if is_mapping else dict[str, object]()
    if not by_name:
        warnings.warn(f"var_dict has no variables by name: {var_dict!r:.60}", stacklevel=2)
    wanted = dict[str, Variable]()
    for name, value in by_name.items():
        if isinstance(value, Variable):
            wanted[name] = value
        else:
            warnings.warn(f"the value of {name} is not a Variable", stacklevel=2)
    return wanted


def for_inference(program: Program) -> Program:
    """The program without the ops that update parameters."""
    trains = any(op.role & OpRole.OPTIMIZE for op in program.blocks[0].ops)
    return program.clone(for_test=True) if trains else program
