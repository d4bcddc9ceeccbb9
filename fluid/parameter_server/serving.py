"""The program of a server, served: its blocks are compiled and run as trainers' gradients come."""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np

from compiler.ir.types import Array
from fluid.distributed.job import ParameterServerJob
from fluid.framework import Operator, Program, Variable
from fluid.parameter_server.joined import joined_program
from fluid.parameter_server.names import TRAINER, backup_name
from fluid.parameter_server.update import Compile, Update
from fluid.recording import pruning
from fluid.recording.var_types import VarDesc
from runtime.device import CPUPlace, Place
from runtime.errors import NotInitialized
from runtime.ps.service import Feeds, Gradient, Service
from runtime.ps.serving.saves import save_table
from runtime.ps.serving.server import Server
from runtime.ps.settings import Settings
from runtime.tensors.scope import Scope

__all__ = ["before_serving", "gradients_of", "serve"]

THREADS = ("rpc_send_thread_num", "rpc_get_thread_num", "rpc_prefetch_thread_num")
"""Attributes of `listen_and_serv` with numbers of threads."""
SENDER = re.compile(r"\.trainer_(\d+)(\.pserver_\d+)?$")


def before_serving(program: Program) -> Program | None:
    """What a server runs once before it serves; None where that is nothing."""
    if len(program.global_block().ops) == 1:
        return None
    prologue = program.clone()
    pruning.drop_ops(prologue, lambda op: op.type == "listen_and_serv")
    return prologue


def serve(program: Program, scope: Scope, place: Place, compile: Compile) -> None:
    """Serve until all trainers have completed, with the variables of a scope.

    Raises WireError for a job that failed, NotInitialized where the startup program has not run.
    """
    op = program.global_block().ops[-1]
    endpoint = str(op.attr("endpoint"))
    job = program.job if isinstance(program.job, ParameterServerJob) else None
    endpoints = [] if job is None else list(job.plan.endpoints)
    if endpoint not in endpoints:
        endpoints = [endpoint]
    settings = Settings.from_env(given=None if job is None else job.settings)
    server = Server(endpoints, endpoints.index(endpoint), settings)
    blocks = ServedBlocks(program, op, scope, server)
    blocks.compile_for(place, compile)
    server.attach(blocks.service(endpoints.index(endpoint)))
    server.serve()


def gradients_of(program: Program) -> tuple[Gradient, ...]:
    """The gradients that the program of a server takes, in the order of messages."""
    op = program.global_block().ops[-1]
    names = [str(name) for name in op.inputs.get("X", [])]
    return tuple(_gradient(program, name, bool(op.attr("sync_mode"))) for name in names)


def _gradient(program: Program, name: str, is_synchronous: bool) -> Gradient:
    var: Variable = program.global_block().var(name)
    sent = SENDER.search(name) if is_synchronous else None
    return Gradient(
        name,
        str(var.element.numpy),
        tuple(int(size) for size in var.shape),
        var.type == VarDesc.VarType.SELECTED_ROWS,
        None if sent is None else int(sent.group(1)),
    )


class ServedBlocks:
    """The blocks of a server, and the variables that they update."""

    def __init__(self, program: Program, op: Operator, scope: Scope, server: Server) -> None:
        self.program, self.op, self.scope = program, op, scope
        self.names = {"parameter_server": server.sums}
        self.block = program.global_block()
        self.is_synchronous = bool(op.attr("sync_mode"))
        self.is_handwritten = not isinstance(program.job, ParameterServerJob)
        self.dc_asgd = bool(op.attr("dc_asgd"))
        self.gradients = gradients_of(program)

    def compile_for(self, place: Place, compile: Compile) -> None:
        """Prepare the updates; NotInitialized where the startup program has not run."""
        attr = self.op.attr
        pairs = [str(entry).rsplit(":", 1) for entry in attr("grad_to_block_id")]
        gradients = {*(name for name, _ in pairs), *(gradient.name for gradient in self.gradients)}

        def update(*blocks: int) -> Update:
            indices = [index for index in blocks if index >= 0]
            program = joined_program(self.program, indices, gradients)
            if self.is_handwritten:
                self._store_written(program, gradients)
            return Update(program, self.gradients, compile, place, self.scope, self.names)

        self.all = update(*[int(index) for index in attr("optimize_blocks")])
        self.schedule = update(int(attr("lr_decay_block_id")))
        self.by_gradient = {
            name: update(int(attr("clip_block_id")), int(block)) for name, block in pairs
        }
        self._expect_initialised(self.all.program)
        self._create_written()
        if not self.is_synchronous:
            self._begin_schedule()

    def _store_written(self, program: Program, gradients: Collection[str]) -> None:
        """Make what blocks write to variables of the server's main block persistable there.

        Trainers may receive these, whether or not a script declares them persistable.
        """
        block = program.global_block()
        for name in {name for op in block.ops for name in op.writes()}:
            if name in self.block.vars and name not in gradients:
                block.vars[name].persistable = True

    def _begin_schedule(self) -> None:
        """Compute the learning rate of the first step, which no trainer has counted yet."""
        ops = self.schedule.program.global_block().ops
        shares = [op.inputs["X"][0] for op in ops if op.type == "sum"][:1]
        arrays = self.scope.arrays()
        for name in shares:
            arrays[name][...] += 1
        self.schedule({})
        for name in shares:
            arrays[name][...] -= 1

    def _counters(self) -> dict[str, int]:
        """The shares of trainers in counters of the schedule, each with the trainer."""
        ops = self.schedule.program.global_block().ops
        names = [str(name) for op in ops if op.type == "sum" for name in op.inputs["X"]]
        sent = {name: SENDER.search(name) for name in names}
        return {name: int(match.group(1)) for name, match in sent.items() if match}

    def service(self, number: int) -> Service:
        """What the runtime serves."""
        arrays = self.scope.arrays().tracked()
        return Service(
            endpoint=str(self.op.attr("endpoint")),
            number=number,
            trainers=int(self.op.attr("Fanin")),
            is_synchronous=self.is_synchronous,
            gradients=self.gradients,
            variables=lambda: arrays,
            update=self._update_all if self.is_synchronous else self._update_one,
            assign=self._assign,
            count=self._count,
            received=self.received,
            lookups=self._lookups(),
            threads=sum(int(self.op.attr(name)) for name in THREADS),
            counters=self._counters(),
            save=lambda name, folder: save_table(self.scope, number, name, folder),
        )

    def _lookups(self) -> dict[str, tuple[str, int]]:
        """The table that each prefetch block looks rows up in, and the number of servers."""
        lookups: dict[str, tuple[str, int]] = {}
        for text in self.op.attr("prefetch_var_name_to_block_id"):
            name, index = str(text).rsplit(":", 1)
            for op in self.program.block(int(index)).ops:
                if op.type == "lookup_sparse_table":
                    lookups[name] = op.inputs["W"][0], int(op.attrs.get("servers", 1))
        return lookups

    # ---- updates

    def _update_all(self, feeds: Feeds, trainer: int) -> None:
        self.all(feeds)

    def _update_one(self, feeds: Feeds, trainer: int) -> None:
        if self.dc_asgd:
            feeds = {**feeds, TRAINER: np.array([trainer], np.int64)}
        self.by_gradient[next(iter(feeds))](feeds)

    def _assign(self, name: str, array: Array) -> None:
        self.scope.var(name).get_tensor().set(array, CPUPlace())

    def _count(self, name: str, array: Array) -> None:
        self.scope.arrays()[name][...] += array
        self.schedule({})

    def received(self, name: str, trainer: int) -> None:
        """Note a parameter as a trainer received it, for the compensation of delay."""
        backup = backup_name(name, trainer)
        if self.dc_asgd and self.scope.find_var(backup) is not None:
            self._assign(backup, np.array(self.scope.arrays().tracked()[name]))

    def _create_written(self) -> None:
        """What blocks write for the first time is zeros before that, so that it can be received."""
        block = self.all.program.global_block()
        for name in dict.fromkeys(name for op in block.ops for name in op.writes()):
            var = block.vars.get(name)
            if var is None or not var.persistable or not var.holds_tensor or min(var.shape) < 0:
                continue
            if name not in self.scope.arrays():
                self._assign(name, np.zeros(var.shape, var.element.numpy))

    def _expect_initialised(self, program: Program) -> None:
        """NotInitialized naming a variable that the startup program should have made."""
        arrays = self.scope.arrays()
        written = {*arrays, *self.op.inputs.get("X", [])}
        for op in program.global_block().ops:
            for name in op.reads():
                var = program.global_block().vars.get(name)
                if name not in written and var is not None and var.persistable and var.holds_tensor:
                    raise NotInitialized(
                        f"{name!r} is not initialised on server {self.op.attr('endpoint')}",
                        hint="run the program of get_startup_program first, in the same scope",
                    )
            written.update(op.writes())
