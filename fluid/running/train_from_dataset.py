"""Iteration over a dataset: `Executor.train_from_dataset` and `infer_from_dataset`."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compiler.ir.program import OpRole
from compiler.support.tracebacks import entry_point
from fluid.dataset import DatasetBase
from fluid.framework import Program, Variable, default_main_program

__all__ = ["FetchHandler", "RunsDatasets"]

Run = Callable[[dict[str, Any], list[Any]], list[Any]]
"""Runs a step on feeds and returns the fetched values."""


HELP = """
class PrintAuc(fluid.executor.FetchHandler):
    def handler(self, res_dict):
        print("auc:", res_dict["auc"])

exe.train_from_dataset(program, dataset, fetch_handler=PrintAuc({"auc": auc}, period_secs=10))
"""
"""An example handler, printed by `FetchHandler.help`."""


class FetchHandler:
    """A callback with fetched values every `period_secs` seconds: subclass it and
    define `handler`.
    """

    def __init__(
        self, var_dict: Mapping[str, Variable] | None = None, period_secs: float = 60
    ) -> None:
        if var_dict is None:
            raise AssertionError("FetchHandler requires var_dict: variables by name")
        self.var_dict, self.period_secs = dict(var_dict), period_secs

    @staticmethod
    def help() -> None:
        """Print an example handler."""
        print(HELP)

    def handler(self, res_dict: Mapping[str, Any]) -> None:
        """Called with the arrays of the last step by name; None before the first step."""
        for name, value in res_dict.items():
            print(f"{name}[0]: {None if value is None else value.ravel()[0]}")


class RunsDatasets(ABC):
    """Mixin of Executor that runs programs over datasets."""

    @abstractmethod
    def run(
        self, program: Any = None, feed: Any = None, fetch_list: Any = None, **rest: Any
    ) -> Any:
        """Run a program once on feeds; returns the fetched values."""

    @entry_point
    def train_from_dataset(
        self,
        program: Any = None,
        dataset: DatasetBase | None = None,
        scope: Any = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Sequence[Variable] | None = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
    ) -> None:
        """Run a program on every batch of a dataset.

        Every `print_period` batches the values of `fetch_list` are printed after `fetch_info`;
        `fetch_handler` is called periodically with its own values. `thread` is the number of reader
        processes, by default that of the dataset; steps run sequentially, so equal files produce
        equal parameters. `debug` has no effect. Raises RuntimeError without a dataset, and the
        errors of reading and running.
        """
        if dataset is None:
            raise RuntimeError("dataset is needed and should be initialized")
        if thread > 0:
            dataset.set_thread(thread)
        names = [fetch_list] if isinstance(fetch_list, Variable) else fetch_list or []
        _run_over(
            dataset,
            lambda feed, fetched: self.run(program, feed, fetched, scope=scope),
            names, fetch_info or [], print_period, fetch_handler,
        )  # fmt: skip

    @entry_point
    def infer_from_dataset(
        self,
        program: Any = None,
        dataset: DatasetBase | None = None,
        scope: Any = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Sequence[Variable] | None = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
    ) -> None:
        """Like `train_from_dataset`, without the ops that update parameters."""
        program = default_main_program() if program is None else program
        if isinstance(program, Program):
            program = _for_inference(program)
        self.train_from_dataset(
            program, dataset, scope, thread, debug, fetch_list, fetch_info, print_period,
            fetch_handler,
        )  # fmt: skip


def _run_over(
    dataset: DatasetBase,
    run: Run,
    fetch_list: Sequence[Variable],
    fetch_info: Sequence[str],
    print_period: int,
    handler: FetchHandler | None,
) -> None:
    """Run a step for every batch; print fetches every `print_period` steps, call the handler."""
    labels = list(fetch_info) or [var.name for var in fetch_list]
    if len(labels) != len(fetch_list):
        raise ValueError(f"fetch_info has {len(labels)} texts for {len(fetch_list)} variables")
    with _Periodic(handler) as periodic:
        for step, feed in enumerate(dataset._feeds()):
            printed = list(fetch_list) if step % print_period == 0 else []
            values = run(feed, printed + periodic.wanted)
            if printed:
                shown = (f"{label}: {v}" for label, v in zip(labels, values, strict=False))
                print(f"batch {step}: {', '.join(shown)}")
            periodic.take(values[len(printed) :])


class _Periodic:
    """A thread that calls a handler periodically with the newest values."""

    def __init__(self, handler: FetchHandler | None) -> None:
        self.handler, self.ended = handler, threading.Event()
        self.wanted: list[Any] = [] if handler is None else list(handler.var_dict.values())
        self.newest: list[Any] = [None] * len(self.wanted)

    def take(self, values: Sequence[Any]) -> None:
        self.newest = list(values)

    def __enter__(self) -> _Periodic:
        self.thread = threading.Thread(target=self._call, daemon=True)
        if self.handler is not None:
            self.thread.start()
        return self

    def _call(self) -> None:
        assert self.handler is not None
        while not self.ended.wait(self.handler.period_secs):
            self.handler.handler(dict(zip(self.handler.var_dict, self.newest, strict=True)))

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        if self.handler is not None:
            self.thread.join()


def _for_inference(program: Program) -> Program:
    """The program without the ops that update parameters."""
    trains = any(op.role & OpRole.OPTIMIZE for op in program.blocks[0].ops)
    return program.clone(for_test=True) if trains else program
