"""Programs as graphs of wrapped ops and variables, and an executor that runs them."""

from fluid.contrib.slim.graph import executor, graph_wrapper
from fluid.contrib.slim.graph.executor import SlimGraphExecutor
from fluid.contrib.slim.graph.graph_wrapper import GraphWrapper, OpWrapper, VarWrapper

__all__ = [
    "GraphWrapper", "OpWrapper", "SlimGraphExecutor", "VarWrapper", "executor", "graph_wrapper",
]  # fmt: skip
