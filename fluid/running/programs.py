"""Programs of fluid as an Executor of the runtime compiles and loads them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import compiler
from compiler.codegen.module import Module
from compiler.ir.opdef.type_inference import op_text
from compiler.ir.text.program_printer import program_digest
from compiler.ir.types import from_fluid
from compiler.options import Options
from fluid import parameter_server
from fluid.framework import Program
from fluid.profiler import recorder
from fluid.running import feed_checks, flags
from fluid.running.early_kernels import TargetOrName, with_early_kernels
from fluid.running.kernels_ahead import with_machine_code
from fluid.running.module_cache import compiled_once
from fluid.running.targets import chosen_target, options_for
from fluid.running.tuning import tuned_options
from runtime.collective.on_demand import RingsOnDemand
from runtime.device import Place, target_of
from runtime.errors import missing_feed
from runtime.feeds import Declared
from runtime.loader import Params
from runtime.program_source import LoadableModule, ProgramSource
from runtime.serving import Library
from runtime.sizes import Pattern
from runtime.tensors.scope import Scope

__all__ = ["FluidPrograms", "LibraryPrograms"]


class FluidPrograms(ProgramSource[Program]):
    """Programs compiled for the target of a place; `user` is the Executor that runs them.

    Raises PlaceError for a place where no program runs.
    """

    def __init__(self, place: Place, user: object) -> None:
        self.place = place
        self.user = user
        self._target = target_of(place)
        self.recorder = recorder  # itself: every step asks

    def digest(self, program: Program) -> str:
        """Return a key that is equal for programs whose modules are equal."""
        return program_digest(program) + "+numbers" * flags.checks_numbers()

    def declared(self, program: Program, name: str) -> Declared:
        """Return the declared shape and dtype of a fed variable."""
        var = program.blocks[0].vars[name]
        shape = None if var.dims is None else from_fluid(var.dims, var.element).shape
        called = program.user_name(name)
        return Declared(var.element, shape, var.persistable, var.need_check_feed, called)

    def compile(self, program: Program, feed: Pattern, fetch: list[str]) -> Module:
        """Compile a program, unless its module is in memory or on disk.

        Raises FeedError if a variable that it reads is not fed.
        """
        target, options = self._settings(program, feed)
        options = tuned_options(self.place, options, program, feed, fetch)
        compile = partial(_compiled, target, options, program, feed, fetch)
        return compiled_once(target, options, program, feed, fetch, compile)

    def compile_over(
        self, program: Program, feed: Pattern, fetch: list[str], params: Params
    ) -> Module:
        """Compile a program over constant parameters, which passes may fold.

        Raises FeedError if a variable that it reads is not fed.
        """
        return _compiled(*self._settings(program, feed), program, feed, fetch, params)

    def _settings(self, program: Program, feed: Pattern) -> tuple[TargetOrName, Options]:
        """The target and the options to compile with, once the feeds are complete."""
        _expect_fed(program, feed)
        options = options_for(self.place, Options.from_env())
        if flags.checks_numbers():
            options = replace(options, check_numbers=True)
        return chosen_target(self._target, options), options

    def globals(self, program: Program, scope: Scope) -> dict[str, object]:
        """Return what a program's code calls: functions of `py_func`, rings, parameter servers.

        Collectives use the rings that a startup program made in the scope, or those of the devices
        that the program was built for.
        """
        server = program.parameter_server
        if server is None and any(parameter_server.exchanges(program)):
            server = parameter_server.session_for(program, self.user)
        return {
            "callables": program.callables,
            "collective": program.collective or RingsOnDemand(scope),
            "parameter_server": server,
        }

    def loadable(self, module: Module, place: Place) -> LoadableModule:
        """Return a module and its kernels, which are compiled ahead for a GPU."""
        return with_machine_code(module, place)


class LibraryPrograms(FluidPrograms):
    """Programs whose modules are those of a library, over parameters that it computed."""

    def __init__(self, place: Place, user: object, library: Library[Program]) -> None:
        super().__init__(place, user)
        self._library = library

    def compile(self, program: Program, feed: Pattern, fetch: list[str]) -> Module:
        """Return the module of the library; raises what compiling raises."""
        return self._library.module(program, feed, fetch)

    def params(self, module: Module, scope: Scope) -> Params:
        """Return the state of the library's module."""
        return self._library.params(module, scope)


def _expect_fed(program: Program, feed: Pattern) -> None:
    """Raise FeedError if a variable that the program reads is not fed."""
    missing = feed_checks.missing_feeds(program, set(feed))
    if missing:
        op = next(iter(missing.values()))
        raise missing_feed(
            [feed_checks.declared_feed(program, name) for name in missing],
            op=op_text(op),
            source=op.source,
            hint="feed it, or pass use_prune=True if what is fetched does not need it",
        )


def _compiled(
    target: TargetOrName, options: Options, program: Program, feed: Pattern, fetch: list[str],
    params: Params | None = None,
) -> Module:  # fmt: skip
    def compile_for(target: TargetOrName) -> Module:
        return compiler.compile(
            program, feed=feed, fetch=fetch, target=target, params=params, options=options,
            watch_state=params is None,
        )  # fmt: skip

    return with_early_kernels(target, compile_for)
