"""Routes: what runs a program, decided once per version of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.ir.types import Array
from compiler.options import NARROW, Options
from compiler.support.per_version import PerVersion
from fluid import parameter_server
from fluid.framework import Program
from fluid.running.branch_selection import BranchesTaken
from fluid.running.fetched_values import Value
from fluid.running.file_ops import FileStages
from fluid.running.half_precision_weights import ConstantParamStep
from fluid.running.programs import FluidPrograms
from fluid.running.redeclared_state import RedeclaredState
from fluid.running.resized_state import ResizedState
from fluid.running.route import Route, Run
from fluid.running.single_step import NoOps, SingleStep
from runtime import executor as core
from runtime.errors import StateMismatch
from runtime.tensors.scope import Scope

__all__ = ["Routes"]


class Routes(PerVersion[Program, Route]):
    """The route of each program that an Executor runs: `run` is that of the Executor.

    A look-up raises ShapeError as BranchesTaken does.
    """

    def __init__(self, run: Run, programs: FluidPrograms, core: core.Executor[Program]) -> None:
        super().__init__(self._choose)
        self.branches = BranchesTaken(self)
        self.constant_params = ConstantParamStep(core, programs)
        is_narrow = Options.from_env().dtype in NARROW
        self._routes: tuple[Route, ...] = (
            ServerRoute(run, programs),
            FileStages(run),
            self.branches,
            ResizedState(run),
            NoOps(core),
            SingleStep(core, changes=True),
            self.constant_params if is_narrow else SingleStep(core, changes=False),
        )

    def run(
        self, program: Program, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope,
        on_device: bool = False,
    ) -> Sequence[Value]:  # fmt: skip
        """Run a program once; returns the values of `fetch` and raises as its route."""
        try:
            return self[program].run(program, feed, fetch, scope, on_device)
        except StateMismatch as error:
            return self.redeclared(program, error).run(program, feed, fetch, scope, on_device)

    def redeclared(self, program: Program, error: StateMismatch) -> Route:
        """Return the route for state that is not as the program declares it.

        Raises the error that was raised if the program has that route.
        """
        route = self[program]
        if isinstance(route, RedeclaredState):
            raise error
        return self.replace(program, RedeclaredState(route, self))

    def _choose(self, program: Program) -> Route:
        return next(route for route in self._routes if route.applies(program))


class ServerRoute:
    """Runs the program of a parameter server until its trainers have completed."""

    def __init__(self, run: Run, programs: FluidPrograms) -> None:
        self._run = run
        self._programs = programs

    def applies(self, program: Program) -> bool:
        """Whether a program ends with `listen_and_serv`."""
        return parameter_server.serves(program)

    def run(
        self, program: Program, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope,
        on_device: bool = False,
    ) -> Sequence[Value]:  # fmt: skip
        """Serve; returns nothing. Raises as `parameter_server.serve`."""
        before = parameter_server.before_serving(program)
        if before is not None:
            self._run(before, scope=scope)
        programs = self._programs
        parameter_server.serve(program, scope, programs.place, programs.compile)
        return ()
