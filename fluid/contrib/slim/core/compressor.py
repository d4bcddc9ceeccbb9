"""`Compressor`: trains a model while strategies compress it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fluid.contrib.slim.core.config import ConfigFactory
from fluid.contrib.slim.graph.executor import SlimGraphExecutor
from fluid.contrib.slim.graph.graph_wrapper import GraphWrapper
from fluid.contrib.slim.strategies.context import Context, Reader, means, run_batches
from fluid.contrib.slim.strategies.strategy import Strategy
from fluid.executor import scope_guard
from fluid.framework import Program
from fluid.optimizer import Optimizer
from fluid.saving.files import replace_file
from runtime.device import CPUPlace, Place
from runtime.tensors.scope import Scope

__all__ = ["Compressor", "Context"]

_logger = logging.getLogger(__name__)

Nodes = Sequence[tuple[str, str]] | None
EvalFunctions = Mapping[str, Callable[[Program, Scope], float]]


class Compressor:
    """Trains `train_program` in a scope, and compresses it by strategies (`config`).

    `train_feed_list` and `eval_feed_list` are pairs of a name and a variable's name, in the order
    of the samples' fields; the fetch lists are such pairs too, of which "loss" is the loss. The
    readers return batches, lists of samples. Evaluations run `eval_program`, or `eval_func`, which
    maps names of metrics to functions of that program and the scope. `prune_infer_model` has the
    names of inputs and results of an inference model to save with each checkpoint.
    """

    def __init__(
        self,
        place: Place | None,
        scope: Scope,
        train_program: Program,
        train_reader: Reader | None = None,
        train_feed_list: Nodes = None,
        train_fetch_list: Nodes = None,
        eval_program: Program | None = None,
        eval_reader: Reader | None = None,
        eval_feed_list: Nodes = None,
        eval_fetch_list: Nodes = None,
        eval_func: EvalFunctions | None = None,
        save_eval_model: bool = True,
        prune_infer_model: Sequence[Sequence[str]] | None = None,
        teacher_programs: Sequence[Program] = (),
        checkpoint_path: str | None = None,
        train_optimizer: Optimizer | None = None,
        distiller_optimizer: Optimizer | None = None,
        search_space: object = None,
        log_period: int = 20,
    ) -> None:
        for name, nodes in (("train", train_feed_list), ("eval", eval_feed_list)):
            assert nodes is None or isinstance(nodes, list), (
                f"{name}_feed_list should be a list of tuple, such as [('image', image.name)]"
            )
        assert log_period > 0, f"log_period must be positive, but is {log_period}"
        self.strategies: list[Strategy] = []
        self.epoch, self.eval_epoch = 0, 1
        self.place = CPUPlace() if place is None else place
        self.scope = scope
        self.train_graph = GraphWrapper(train_program, train_feed_list, train_fetch_list)
        self.eval_graph = GraphWrapper(eval_program, eval_feed_list, eval_fetch_list)
        self.train_reader, self.eval_reader = train_reader, eval_reader
        self.eval_func, self.save_eval_model = eval_func, save_eval_model
        self.prune_infer_model = prune_infer_model
        self.teacher_graphs = [GraphWrapper(teacher) for teacher in teacher_programs]
        self.checkpoint_path, self.init_model = checkpoint_path, None
        self.train_optimizer, self.distiller_optimizer = train_optimizer, distiller_optimizer
        self.search_space, self.log_period = search_space, log_period

    def config(self, config_file: str) -> None:
        """Take epochs, strategies and folders of a YAML file; raises as `ConfigFactory`."""
        settings = ConfigFactory(config_file).compressor
        self.epoch = settings["epoch"]
        for strategy in settings["strategies"]:
            self._add_strategy(strategy)
        self.checkpoint_path = settings.get("checkpoint_path", self.checkpoint_path)
        self.init_model = settings.get("init_model", self.init_model)
        self.eval_epoch = settings.get("eval_epoch", self.eval_epoch)
        assert self.eval_epoch > 0, f"eval_epoch must be positive, but is {self.eval_epoch}"

    def _add_strategy(self, strategy: Strategy) -> None:
        self.strategies.append(strategy)
        self.epoch = max(strategy.end_epoch, self.epoch)

    def run(self) -> GraphWrapper:
        """Train all epochs, from the latest checkpoint if there is one; returns the eval graph.

        Raises what a strategy, a run or a reader raises.
        """
        context = Context(
            self.place, self.scope, self.train_graph, self.train_reader, self.eval_graph,
            self.eval_reader, self.teacher_graphs, self.train_optimizer, self.distiller_optimizer,
            self.search_space,
        )  # fmt: skip
        self.context = context
        if self.teacher_graphs:
            context.put("teachers", self.teacher_graphs)
        self._load_model(context)
        context.optimize_graph = context.train_graph
        if context.train_optimizer is not None:
            context.optimize_graph = context.train_graph.get_optimize_graph(
                context.train_optimizer, context.place, context.scope
            )
        self._load_checkpoint(context)
        for strategy in self.strategies:
            strategy.on_compression_begin(context)
        for epoch in range(context.epoch_id, self.epoch):
            context.epoch_id = epoch
            for strategy in self.strategies:
                strategy.on_epoch_begin(context)
            self._train_one_epoch(context)
            if epoch % self.eval_epoch == 0:
                self._eval(context)
            self._save_checkpoint(context)
            for strategy in self.strategies:
                strategy.on_epoch_end(context)
        for strategy in self.strategies:
            strategy.on_compression_end(context)
        return self.eval_graph

    def _train_one_epoch(self, context: Context) -> None:
        graph = context.optimize_graph
        if context.skip_training or context.train_reader is None or graph is None:
            return
        executor = SlimGraphExecutor(self.place)
        context.batch_id = -1
        batches = run_batches(
            executor, graph, self.scope, context.train_reader, lambda: self._begin_batch(context)
        )
        for number, values in enumerate(batches):
            results = means(values)
            if number % self.log_period == 0:
                shown = dict(zip(graph.out_nodes, results, strict=True))
                _logger.info("epoch %d, batch %d: %s", context.epoch_id, number, shown)
            for strategy in self.strategies:
                strategy.on_batch_end(context)
        context.batch_id = 0

    def _begin_batch(self, context: Context) -> None:
        context.batch_id += 1
        for strategy in self.strategies:
            strategy.on_batch_begin(context)

    def _eval(self, context: Context) -> None:
        if self.eval_func is not None:
            metrics = {
                name: function(self.eval_graph.program, self.scope)
                for name, function in self.eval_func.items()
            }
        else:
            results, names = context.run_eval_graph()
            metrics = dict(zip(names, results, strict=True))
        for name, result in metrics.items():
            context.eval_results.setdefault(name, []).append(result)

    # ---- files

    def _load_model(self, context: Context) -> None:
        """Load a compressed model (`init_model`), whose parameters may be smaller."""
        if not self.init_model or not Path(self.init_model).exists():
            return
        with scope_guard(context.scope):
            context.train_graph.load_persistables(self.init_model, SlimGraphExecutor(self.place))
        for graph in (context.train_graph, self.eval_graph):
            self._fit(graph, context.scope)

    def _fit(self, graph: GraphWrapper, scope: Scope) -> None:
        graph.update_param_shape(scope)
        graph.update_groups_of_conv()
        graph.infer_shape()

    def _save_checkpoint(self, context: Context) -> None:
        """Save model, results and states of strategies in a folder named after the epoch."""
        graph = context.optimize_graph
        if not self.checkpoint_path or graph is None:
            return
        folder = Path(self.checkpoint_path) / str(context.epoch_id)
        executor = SlimGraphExecutor(context.place)
        with scope_guard(context.scope):
            graph.save_persistables(str(folder / "model"), executor)
            model = str(folder / "eval_model")
            if self.save_eval_model:
                self.eval_graph.save_model(model, executor)
            if self.prune_infer_model:
                self.eval_graph.save_infer_model(
                    model, executor, self.prune_infer_model, program_only=self.save_eval_model
                )
        state = {
            "epoch_id": context.epoch_id,
            "eval_results": context.eval_results,
            "strategies": [strategy.saved_state() for strategy in self.strategies],
        }
        replace_file(folder / "context.json", json.dumps(state).encode())

    def _load_checkpoint(self, context: Context) -> None:
        """Continue after the latest checkpoint, whose strategies are those of the configuration."""
        root = Path(self.checkpoint_path or "")
        saved = list(root.glob("*/context.json")) if self.checkpoint_path else []
        numbers = [int(file.parent.name) for file in saved if file.parent.name.isdecimal()]
        if not numbers:
            return
        folder = root / str(max(numbers))
        state = json.loads((folder / "context.json").read_text(encoding="utf-8"))
        context.epoch_id, context.eval_results = state["epoch_id"] + 1, state["eval_results"]
        assert len(state["strategies"]) == len(self.strategies), (
            f"the checkpoint {folder} has {len(state['strategies'])} strategies, the configuration "
            f"{len(self.strategies)}"
        )
        for strategy, kept in zip(self.strategies, state["strategies"], strict=True):
            strategy.restore_from_checkpoint(context, kept)
        graph = context.optimize_graph
        if graph is not None:
            with scope_guard(context.scope):
                graph.load_persistables(str(folder / "model"), SlimGraphExecutor(context.place))
