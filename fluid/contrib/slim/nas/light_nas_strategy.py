"""`LightNASStrategy`: trains the networks that a controller proposes, and rewards their metric."""

from __future__ import annotations

import logging
import socket
from itertools import count
from typing import NamedTuple

from fluid.contrib.slim.nas.controller_server import ControllerServer
from fluid.contrib.slim.nas.search_agent import SearchAgent
from fluid.contrib.slim.nas.search_space import SearchSpace
from fluid.contrib.slim.searcher.controller import SAController, Tokens
from fluid.contrib.slim.strategies.context import Context, Reader
from fluid.contrib.slim.strategies.strategy import Strategy
from fluid.executor import Executor
from fluid.framework import Program

__all__ = ["LightNASStrategy"]

MAX_TRIES = 100
"""Networks that are drawn until one is small enough."""

_logger = logging.getLogger(__name__)


class Network(NamedTuple):
    """What `SearchSpace.create_net` returns."""

    startup: Program
    train: Program
    test: Program
    train_metrics: object
    test_metrics: object
    train_reader: Reader
    test_reader: Reader


class LightNASStrategy(Strategy):
    """Tries a network of `search_space` every `retrain_epoch` epochs, trained from the beginning.

    Networks with more than `target_flops` operations, or a higher latency than `target_latency` if
    it is not 0, are drawn again, and get no reward if all that are drawn are too large.

    Tokens come from a `ControllerServer` at `server_ip` and `server_port`, by default this
    computer. With `is_server`, this process starts it, unless another one has that port; it answers
    `search_steps` rewards, for agents with the same `key`. Use it in networks that you trust.
    """

    def __init__(
        self,
        controller: SAController | None = None,
        end_epoch: int = 1000,
        target_flops: float = 629145600,
        target_latency: float = 0,
        retrain_epoch: int = 1,
        metric_name: str = "top1_acc",
        server_ip: str | None = None,
        server_port: int = 0,
        is_server: bool = False,
        max_client_num: int = 100,
        search_steps: int | None = None,
        key: str = "light-nas",
    ) -> None:
        super().__init__(0, end_epoch)
        self.target_flops, self.target_latency = target_flops, target_latency
        self.retrain_epoch, self.metric = retrain_epoch, metric_name
        self.server_port, self.is_server = server_port, is_server
        self.server_ip = server_ip or socket.gethostbyname(socket.gethostname())
        self.max_client_num, self.search_steps, self.key = max_client_num, search_steps, key
        self._controller = SAController() if controller is None else controller
        self._tokens: Tokens = []

    def on_compression_begin(self, context: Context) -> None:
        """Begin the search at the first tokens of the space."""
        space = _space(context)
        self._tokens = space.init_tokens()
        self._controller.reset(space.range_table(), self._tokens, None)
        if self.is_server:
            self._start_server()

    def _start_server(self) -> None:
        address = self.server_ip, self.server_port
        server = ControllerServer(
            self._controller, address, self.max_client_num, self.search_steps, self.key
        )
        try:
            server.start()
        except OSError as error:
            if not self.server_port:
                raise
            _logger.info("no server at %s, another process has the address: %s", address, error)
        else:
            self.server_port = server.port()

    def on_epoch_begin(self, context: Context) -> None:
        """Make the network of the tokens, or of others if it is too large, and initialize it."""
        if not self._is_tried(context.epoch_id, self.end_epoch + 1):
            return
        trained = context.optimize_graph
        assert trained is not None, "there is no graph to train"
        net = self._network(context)
        context.train_reader, context.eval_reader = net.train_reader, net.test_reader
        Executor(context.place).run(net.startup, scope=context.scope)
        trained.program = net.train
        trained.compile()
        context.skip_training = self.retrain_epoch == 0

    def _network(self, context: Context) -> Network:
        """Return the network of the tokens, which are drawn again while it is too large."""
        graph, first, smaller = context.eval_graph, None, self._tokens
        assert graph is not None, "there is no eval_program"
        for number in count(1):
            net = Network(*_space(context).create_net(self._tokens))
            graph.program, graph.compiled_graph = net.test, None
            flops = graph.flops()
            first = flops if first is None else first
            if number > MAX_TRIES or not self._is_too_large(context, flops):
                return net
            smaller = self._tokens if flops < first else smaller
            self._tokens = self._controller.next_tokens(smaller)
        raise AssertionError("counting ends nowhere")

    def on_epoch_end(self, context: Context) -> None:
        """Report the reward, and get the next tokens; raises as `SearchAgent.update`."""
        if not self._is_tried(context.epoch_id + 1, self.end_epoch + 1):
            return
        result = context.latest_result(self.metric)
        assert context.eval_graph is not None, "there is no eval_program"
        flops = context.eval_graph.flops()
        reward = 0.0 if self._is_too_large(context, flops) else result
        _logger.info("reward %s of %s with %s flops", reward, self._tokens, flops)
        agent = SearchAgent(self.server_ip, self.server_port, self.key)
        self._tokens = agent.update(self._tokens, reward)

    def _is_tried(self, epoch: int, end: int) -> bool:
        """Whether a try begins, or has ended, before an epoch."""
        in_range = self.start_epoch <= epoch < end
        return in_range and (not self.retrain_epoch or epoch % self.retrain_epoch == 0)

    def _is_too_large(self, context: Context, flops: float) -> bool:
        if flops > self.target_flops or not self.target_latency:
            return flops > self.target_flops
        assert context.eval_graph is not None, "there is no eval_program"
        return _space(context).get_model_latency(context.eval_graph.program) > self.target_latency


def _space(context: Context) -> SearchSpace:
    space = context.search_space
    assert isinstance(space, SearchSpace), "a search for networks needs a search_space"
    return space
