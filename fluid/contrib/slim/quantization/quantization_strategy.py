"""`QuantizationStrategy`: trains with fake quantization, and saves the quantized model."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.compat.descs import ProgramDesc
from fluid.compat.graphs import Graph, IrGraph
from fluid.contrib.slim.graph.graph_wrapper import GraphWrapper
from fluid.contrib.slim.quantization.freeze import (
    ConvertToInt8Pass,
    QuantizationFreezePass,
    TransformForMobilePass,
)
from fluid.contrib.slim.quantization.transform import QuantizationTransformPass
from fluid.contrib.slim.strategies.context import Context
from fluid.contrib.slim.strategies.strategy import Strategy
from fluid.executor import Executor, scope_guard
from fluid.io import save_inference_model

__all__ = ["QuantizationStrategy"]


class QuantizationStrategy(Strategy):
    """Quantizes the trained and the evaluated program at `start_epoch`.

    After `end_epoch` the evaluated program is frozen, and saved in the folders that are given: with
    weights of floating point, with int8 weights, and as for mobile devices. `save_in_nodes` and
    `save_out_nodes` are the names of its inputs and results, by default those of the graph. The
    types of quantization are those of `QuantizationTransformPass`.
    """

    def __init__(
        self,
        start_epoch: int = 0,
        end_epoch: int = 0,
        float_model_save_path: str | None = None,
        mobile_model_save_path: str | None = None,
        int8_model_save_path: str | None = None,
        activation_bits: int = 8,
        weight_bits: int = 8,
        activation_quantize_type: str = "abs_max",
        weight_quantize_type: str = "abs_max",
        save_in_nodes: Sequence[str] | None = None,
        save_out_nodes: Sequence[str] | None = None,
    ) -> None:
        super().__init__(start_epoch, end_epoch)
        self.float_model_save_path = float_model_save_path
        self.mobile_model_save_path = mobile_model_save_path
        self.int8_model_save_path = int8_model_save_path
        self.activation_bits, self.weight_bits = activation_bits, weight_bits
        self.activation_quantize_type = activation_quantize_type
        self.weight_quantize_type = weight_quantize_type
        self.save_in_nodes, self.save_out_nodes = save_in_nodes, save_out_nodes
        self._evaluated: IrGraph | None = None

    def on_epoch_begin(self, context: Context) -> None:
        """Quantize both programs at `start_epoch`."""
        if context.epoch_id == self.start_epoch:
            self._quantize(context)

    def on_epoch_end(self, context: Context) -> None:
        """Freeze the evaluated program after `end_epoch`, and save it."""
        graph, quantized = context.eval_graph, self._evaluated
        if context.epoch_id != self.end_epoch or graph is None or quantized is None:
            return
        QuantizationFreezePass(
            context.scope, context.place, self.weight_bits, self.activation_bits,
            self.weight_quantize_type,
        ).apply(quantized)  # fmt: skip
        graph.program = quantized.to_program()
        self._save(context, graph, quantized, self.float_model_save_path)
        if self.int8_model_save_path or self.mobile_model_save_path:
            ConvertToInt8Pass(context.scope, context.place).apply(quantized)
        self._save(context, graph, quantized, self.int8_model_save_path)
        if self.mobile_model_save_path:
            TransformForMobilePass().apply(quantized)
        self._save(context, graph, quantized, self.mobile_model_save_path)

    def restore_from_checkpoint(self, context: Context, state: dict[str, object]) -> None:
        """Quantize again, if the checkpoint is of a later epoch than the first."""
        if context.epoch_id > self.start_epoch:
            self._quantize(context)

    def _quantize(self, context: Context) -> None:
        trained, evaluated = context.optimize_graph, context.eval_graph
        assert trained is not None, "there is no graph to train"
        assert evaluated is not None, "there is no eval_program"
        transform = QuantizationTransformPass(
            context.scope, context.place, self.weight_bits, self.activation_bits,
            self.activation_quantize_type, self.weight_quantize_type,
        )  # fmt: skip
        graphs = [_graph_of(trained, for_test=False), _graph_of(evaluated, for_test=True)]
        for graph in graphs:
            transform.apply(graph)
        trained.program, evaluated.program = [graph.to_program() for graph in graphs]
        trained.compile()
        self._evaluated = graphs[1]

    def _save(
        self, context: Context, graph: GraphWrapper, quantized: IrGraph, folder: str | None
    ) -> None:
        """Save an inference model in a folder, as `model` and `weights`."""
        if not folder:
            return
        program = quantized.to_program()
        feeds = list(self.save_in_nodes or graph.in_nodes.values())
        names = list(self.save_out_nodes or graph.out_nodes.values())
        results = [program.global_block().var(name) for name in names]
        with scope_guard(context.scope):
            save_inference_model(
                folder, feeds, results, Executor(context.place), program, "model", "weights"
            )


def _graph_of(graph: GraphWrapper, for_test: bool) -> IrGraph:
    desc = graph.program.clone().desc
    assert isinstance(desc, ProgramDesc)
    return IrGraph(Graph(desc), for_test)
