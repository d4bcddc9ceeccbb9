"""Training by collectives and parameter servers at once, chosen for each parameter.

A job with workers and servers has its sparse embedding tables on the servers, which update them;
the gradients of all other parameters are averaged over the workers, by all-reduce, and every
worker updates these parameters itself. Both kinds of ops are in one program. Strategy fields:

- `params_on_servers`: names of parameters, or a predicate on a Parameter; None for every table with
  `is_sparse` or `is_distributed`.
- `server_strategy`: how workers exchange with servers: a strategy of `StrategyFactory` other than
  GEO, or a DistributeTranspilerConfig; None for synchronous.
- `use_local_sgd`: workers average parameters instead of gradients; the tables are unaffected.

A job without servers is that of `fleet.collective`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from compiler.errors import did_you_mean
from fleet.collective import Collective
from fleet.collective_optimizer import CollectiveOptimizer
from fleet.collective_strategy import DistributedStrategy
from fleet.parameter_server import DistributedTranspiler, server_strategy
from fluid.framework import Program, Variable
from fluid.transpiler import collective
from fluid.transpiler.distribute.tables import sparse_tables

__all__ = ["Heterogeneous", "HeterogeneousOptimizer"]

OF_SERVERS = (
    "init_worker init_server run_server stop_worker save_inference_model save_persistables"
).split()
"""The methods whose behaviour depends on whether there are servers."""


class HeterogeneousOptimizer(CollectiveOptimizer):
    """Wraps an optimizer of a fleet of workers that may have servers; raises as its base does."""

    def _check_collective_mode(
        self, main_program: Program, optimizer: Any, strategy: DistributedStrategy
    ) -> None:
        """Derive the mode. Raises AssertionError for settings that exclude each other."""
        if self._servers is not None:
            self._check_condition("parameter servers", use_amp=strategy.use_amp)
        super()._check_collective_mode(main_program, optimizer, strategy)

    @property
    def _servers(self) -> DistributedTranspiler | None:
        return getattr(self._fleet, "_servers", None)

    def _try_to_compile(self, startup_program: Program, main_program: Program) -> Any:
        """Rewrite both programs for this process; return the program to run.

        With servers it is a Program, `main_program` itself on a worker. Raises ValueError for a
        parameter that is not updated and if no parameter is on a server.
        """
        if self._servers is None:
            return super()._try_to_compile(startup_program, main_program)
        self._limit_rings(self._strategy)
        self._transpile(startup_program, main_program)
        return self._servers.main_program

    def _transpile(self, startup_program: Program, main_program: Program) -> None:
        """Rewrite both programs for this worker, or build those of this server."""
        servers, strategy = self._servers, self._strategy
        if servers is None:
            super()._transpile(startup_program, main_program)
            return
        chosen = _choice(strategy.params_on_servers, main_program)
        settings = server_strategy(strategy.server_strategy, servers.mode)
        servers.transpile_for(settings, main_program, startup_program, chosen)
        if self._is_reducing(servers):
            self._reduce(servers, startup_program, main_program)

    def _reduce(
        self, servers: DistributedTranspiler, startup_program: Program, main_program: Program
    ) -> None:
        """Insert the collectives of the parameters that workers update."""
        kind = collective.MeanAllReduce
        if self._strategy.collective_mode == "local_sgd":
            kind = collective.LocalSGD
        rewriting = kind(self._strategy.nccl_comm_num, servers.params_on_trainers())
        number, endpoints = servers.worker_index(), self._endpoints()
        rewriting.transpile(
            startup_program, main_program, number, endpoints, endpoints[number], wait_port=False
        )

    def _endpoints(self) -> list[str]:
        """The workers' endpoints; empty if this process takes no part in collectives."""
        servers = self._servers
        if servers is None:
            return super()._endpoints()
        return servers.role.rendezvous_endpoints() if self._is_reducing(servers) else []

    def _is_reducing(self, servers: DistributedTranspiler) -> bool:
        """Whether this process is one of several workers."""
        return servers.is_worker() and servers.worker_num() > 1


def _choice(chosen: Any, program: Program) -> Any:
    """The selection of parameters on servers: names, or a predicate. Raises TypeError,
    ValueError.
    """
    if chosen is None:
        tables = sparse_tables(program)
        return partial(_is_one_of, tables)
    if callable(chosen):
        return chosen
    if isinstance(chosen, str) or not all(isinstance(choice, str) for choice in chosen):
        raise TypeError(
            "strategy.params_on_servers must be names of parameters, a predicate on a Parameter or "
            f"None, not {chosen!r}"
        )
    params = [param.name for param in program.all_parameters()]
    for name in chosen:
        if name not in params:
            hint = did_you_mean(name, params)
            raise ValueError(f"strategy.params_on_servers: no parameter {name!r}; {hint}")
    return frozenset(chosen)


def _is_one_of(tables: Collection[str], param: Variable) -> bool:
    return param.name in tables


class Heterogeneous(Collective):
    """A fleet of workers, and of the servers named by its role maker, if any.

    With servers, the methods of `OF_SERVERS` are those of `DistributedTranspiler`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._servers: DistributedTranspiler | None = None

    def init(self, role_maker: Any = None) -> None:
        """Determine this process's role, as `Fleet.init` does."""
        super().init(role_maker)
        self._servers = None
        for name in OF_SERVERS:
            self.__dict__.pop(name, None)
        if self._role_maker is not None and self._role_maker.get_pserver_endpoints():
            self._servers = DistributedTranspiler()
            self._servers.init(self._role_maker)
            self.__dict__ |= {name: getattr(self._servers, name) for name in OF_SERVERS}

    def _wrap(self, optimizer: Any, strategy: DistributedStrategy | None) -> CollectiveOptimizer:
        return HeterogeneousOptimizer(optimizer, strategy, self)

    def set_programs(
        self, startup: Program, origin: Program, transpiled: Program, main: Any
    ) -> None:
        """Store the programs that an optimizer built; on a server, the server's programs."""
        startup_program = startup if self._servers is None else self._servers.startup_program
        super().set_programs(startup_program or startup, origin, transpiled, main)
