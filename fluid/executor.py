"""`fluid.Executor`: checks the user's arguments and runs programs by `compiler` and `runtime`.

A run is `compiler.compile`, then `runtime.load`, then a call; `runtime.executor` caches the results
of the first two. Defaults, checks and messages of fluid are here.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import compiler
from compiler.errors import CompileError
from compiler.ir.types import Array
from compiler.support.per_version import PerVersion
from compiler.support.tracebacks import entry_point, hide_frames
from fluid import parameter_server
from fluid.compat import old_names
from fluid.compiler import CompiledProgram
from fluid.data_parallel.merge_fetches import merged, unmerged
from fluid.distributed.job import is_distributed
from fluid.framework import Program, Target, Variable, default_main_program
from fluid.recording import pruning
from fluid.recording.operator import Operator
from fluid.running import feed_checks, flags
from fluid.running.feeds import Feeds, feed_arrays, with_batches
from fluid.running.fetch_names import FetchList, expect_own, names_of, updates_in
from fluid.running.fetched_values import NestedArrays, Value, as_numpy, as_tensor, number_like
from fluid.running.programs import FluidPrograms
from fluid.running.routes import Routes
from fluid.running.train_from_dataset import Batches, FetchHandler, for_inference, run_over
from runtime import executor as core
from runtime.device import CPUPlace, Place, expect_place
from runtime.errors import StateMismatch
from runtime.loader import Counters
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope

__all__ = ["Executor", "FetchHandler", "as_numpy", "global_scope", "scope_guard"]

R = TypeVar("R", Program, CompiledProgram)
T = TypeVar("T")
Results: TypeAlias = list[Any]
"""Arrays or LoDTensors, or a list of them for each fetch."""
_PruningKey: TypeAlias = tuple[bool, tuple[str, ...], tuple[str, ...], tuple[int, ...]]
"""Whether it is compiled, what is fed and fetched, and the identities of the updates, which are
ops of the program."""

_global_scope = Scope()


def global_scope() -> Scope:
    """Return the scope that runs use by default."""
    return _global_scope


def _switch_scope(scope: Scope) -> Scope:
    """Set the global scope; returns the previous one."""
    global _global_scope
    before, _global_scope = _global_scope, scope
    return before


@contextmanager
def scope_guard(scope: Scope) -> Generator[None]:
    """Set the global scope within a `with` block."""
    before = _switch_scope(_expect(scope, Scope, "the scope of scope_guard"))
    try:
        yield
    finally:
        _switch_scope(before)


class Executor:
    """Runs programs on a place, `CPUPlace()` by default.

    Compiled programs are cached, so a program runs fast from its second run, for any batch size;
    `counters` reports the numbers of compilations and bindings.
    """

    def __init__(self, place: Place | None = None) -> None:
        self.place = CPUPlace() if place is None else place
        expect_place(self.place)
        programs = FluidPrograms(self.place, self)
        self._core = core.Executor(programs, self.place)
        self._routes = Routes(self.run, programs, self._core)
        self._pruned: PerVersion[Program, dict[_PruningKey, Program | None]]
        self._pruned = PerVersion(lambda program: {})
        self._closed = False
        self._checks_numbers = flags.checks_numbers()

    @property
    def counters(self) -> Counters:
        """Return the numbers of programs compiled, sizes bound and steps run so far."""
        return self._core.counters

    def run(
        self,
        program: Program | CompiledProgram | None = None,
        feed: Feeds | None = None,
        fetch_list: FetchList = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
        return_merged: bool = True,
        use_prune: bool = False,
    ) -> Results:
        """Run all ops of a program once; return the values of `fetch_list` in order.

        A program that reads from a PyReader or a DataLoader takes its next batch. `feed` maps names
        to arrays, LoDTensors or scalars. Fed persistable variables are set in the scope; names that
        the program does not have are ignored with a warning. Values are arrays, or LoDTensors with
        `return_numpy=False`. Elements of such tensors of at least 64 KiB that a GPU computed stay
        there until they are read; `torch.from_dlpack` takes them without a copy. `feed_var_name`,
        `fetch_var_name` and `use_program_cache` have no effect here.

        `use_prune` runs only what the fetches and the updates of parameters need: those whose ops,
        or whose result of `minimize`, are in `fetch_list`, or all if there are none. Ops in
        `fetch_list` imply it.

        A `CompiledProgram` with data parallelism runs on all its devices (docs/distributed.md): a
        dict is divided among them by rows, a list has a dict for each. Values of devices are
        concatenated along axis 0, or with `return_merged=False` are a list for each fetch.

        Raises RuntimeError after `close` and for a list as a feed's value; TypeError for arguments
        of another type; ValueError for a feed that is missing, of another dtype or of incompatible
        sizes, for an unknown fetch, and for uninitialized state; otherwise what compilation raises.
        """
        try:
            return self._run(
                program, feed, fetch_list, scope, return_numpy, use_prune, return_merged
            )
        except Exception as error:
            hide_frames(error)
            raise

    def _run(
        self,
        program: Program | CompiledProgram | None,
        feed: Feeds | None,
        fetch_list: FetchList,
        scope: Scope | None,
        return_numpy: bool,
        use_prune: bool,
        return_merged: bool,
    ) -> Results:
        """Check the arguments, run the program, and convert the fetched values."""
        self._begin()
        program = default_main_program() if program is None else program
        scope = _global_scope if scope is None else scope
        _expect(scope, Scope, "the scope of Executor.run")
        use_prune = use_prune or bool(updates_in(fetch_list))
        if isinstance(program, CompiledProgram):
            if program.is_parallel:
                if use_prune:
                    program = self._pruned_program(program, feed, fetch_list)
                args = feed, fetch_list, scope, return_numpy, return_merged
                return self.run_parallel(program, *args)
            if (predicted := program.predict(feed)) is not None:
                return predicted
            program = program.program
        _expect_program(program, feed, fetch_list)
        feed = with_batches(program, feed) if program.readers else feed
        arrays = feed_arrays(program, feed)
        fetch = program.current_names(names_of(fetch_list))
        if use_prune:
            program = self._pruned_program(program, feed, fetch_list)
        try:
            values = self._routes[program].run(program, arrays, fetch, scope, not return_numpy)
        except StateMismatch as error:
            route = self._routes.redeclared(program, error)
            values = route.run(program, arrays, fetch, scope, not return_numpy)
        except CompileError:
            expect_own(program, fetch_list)
            _create_state(program, scope)
            raise
        return _as_numpy(fetch, values) if return_numpy else list(map(as_tensor, values))

    def run_arrays(
        self, program: Program, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope
    ) -> Sequence[Value]:
        """Run a program on arrays that need no check or conversion; return the fetched ones.

        Raises as `run` does.
        """
        self._begin()
        return self._routes[program].run(program, feed, fetch, scope)

    def _begin(self) -> None:
        """Reload programs if FLAGS_check_nan_inf changed; raise RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError("this Executor is closed: create a new one")
        if self._checks_numbers != flags.checks_numbers():
            self._checks_numbers = flags.checks_numbers()
            self._core.unload()

    def run_parallel(
        self,
        compiled: CompiledProgram,
        feed: Feeds | None,
        fetch_list: FetchList,
        scope: Scope,
        return_numpy: bool = True,
        return_merged: bool = True,
        strict: bool = False,
    ) -> Results:
        """Run a program on all its devices; values concatenated along axis 0, or a list of each."""
        self._begin()
        fetch = compiled.program.current_names(names_of(fetch_list))
        results = compiled.runner(scope, self.place).run(self._core, feed, fetch, strict)
        if return_merged:
            values = merged(fetch, results) if len(results) > 1 else results[0]
            return _as_numpy(fetch, values) if return_numpy else list(map(as_tensor, values))
        listed = unmerged(results) if fetch else []
        if not return_numpy:
            return [list(map(as_tensor, values)) for values in listed]
        pairs = zip(fetch, listed, strict=True)
        return [_as_numpy((name,) * len(values), values) for name, values in pairs]

    @entry_point
    def explain(
        self,
        program: Program | CompiledProgram | None = None,
        fetch_list: FetchList = None,
        scope: Scope | None = None,
    ) -> Any:
        """Return the compilation of a program that this Executor ran, as a `Study`.

        It prints as tables of the passes and the memory; `save("report.html")` writes the same page
        as `fluid inspect`. It describes the last run, with its sizes, or the last one that fetched
        `fetch_list`. The caches are not changed. Raises RuntimeError for a program that did not run
        here in its current version.
        """
        program = default_main_program() if program is None else program
        scope = _global_scope if scope is None else scope
        fetch = None if fetch_list is None else names_of(fetch_list)
        _expect(scope, Scope, "the scope of Executor.explain")
        if isinstance(program, CompiledProgram):
            program = program.local_program(scope, self.place, fetch or ())
        _expect(program, Program, "the program of Executor.explain")
        program = self._routes.branches.latest(program)
        constant_core = self._routes.constant_params.cached(program, scope)
        last_run = (constant_core or self._core).last_run(program, scope, fetch)
        if last_run is None:
            what = "" if fetch is None else f" and fetched {', '.join(fetch) or 'nothing'}"
            raise RuntimeError(
                f"this Executor ran no such program{what}: there is nothing to explain; "
                "run it once, or pass the scope it ran in"
            )
        params = None if constant_core is None else dict(scope.arrays().tracked())
        return compiler.explain(*last_run, params=params, folders=[Path.cwd()])

    def release_memory(self) -> None:
        """Free the memory of temporaries; the next run allocates it again."""
        self._core.unload()

    @entry_point
    def train_from_dataset(
        self,
        program: Program | CompiledProgram | None = None,
        dataset: Batches | None = None,
        scope: Scope | None = None,
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
            raise RuntimeError("dataset is need and should be initialized")
        if thread > 0:
            dataset.set_thread(thread)
        names = [fetch_list] if isinstance(fetch_list, Variable) else fetch_list or []
        run_over(
            dataset,
            lambda feed, fetched: self.run(program, feed, fetched, scope=scope, return_numpy=False),
            names, fetch_info or [], print_period, fetch_handler,
        )  # fmt: skip

    def _prepare_trainer(
        self,
        program: Program | CompiledProgram,
        dataset: Batches | None = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Sequence[Variable] | None = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
    ) -> tuple[Scope, object]:
        """Return a scope and the `trainer_desc.TrainerDesc` that release 1.8.5 would train with.

        AssertionError unless every fetch has a text; RuntimeError without a number of threads.
        """
        fetches, texts = fetch_list or [], fetch_info or []
        if len(fetches) != len(texts):
            raise AssertionError(f"fetch_info has {len(texts)} texts for {len(fetches)} variables")
        threads = thread if thread > 0 or dataset is None else dataset.thread_num
        if threads <= 0:
            raise RuntimeError(
                "You should set thread num first, either in Dataset or in "
                "Executor.train_from_dataset"
            )
        inner = program.program if isinstance(program, CompiledProgram) else program
        options = inner.pipeline_opt or inner.fleet_opt
        trainer = old_names.trainer_factory.TrainerFactory()._create_trainer(options)
        if inner is program and not inner.pipeline_opt:
            trainer._set_thread_barrier(is_distributed(inner.job))
        trainer._set_program(inner)
        trainer._set_thread(threads)
        trainer._set_debug(debug)
        trainer._set_fetch_var_and_info(fetches, texts, print_period)
        return global_scope() if scope is None else scope, trainer

    @entry_point
    def infer_from_dataset(
        self,
        program: Program | CompiledProgram | None = None,
        dataset: Batches | None = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Sequence[Variable] | None = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
    ) -> None:
        """Like `train_from_dataset`, on one device and without the ops that update parameters.

        Release 1.8.5 runs them, and only leaves out what it sends to servers.
        """
        program = default_main_program() if program is None else program
        program = for_inference(
            program.program if isinstance(program, CompiledProgram) else program
        )
        self.train_from_dataset(
            program, dataset, scope, thread, debug, fetch_list, fetch_info, print_period,
            fetch_handler,
        )  # fmt: skip

    def close(self) -> None:
        """Release the caches; a further run is an error, a further `close` is not.

        Marks a trainer whose programs ran here as completed, so that its servers no longer wait for
        it.
        """
        if parameter_server.sessions:
            parameter_server.release(self)
        self._core.close()
        self._pruned.clear()
        self._closed = True

    def _pruned_program(self, program: R, feed: Feeds | None, fetch_list: FetchList) -> R:
        """Return what `_prune_program` returns, which is called once for the same arguments."""
        compiled = program if isinstance(program, CompiledProgram) else None
        whole = compiled.program if compiled else program
        assert isinstance(whole, Program)
        updates = updates_in(fetch_list)
        key = (bool(compiled), _fed_names(feed), names_of(fetch_list), tuple(map(id, updates)))
        pruned = self._pruned[whole]
        if key not in pruned:
            part = self._prune_program(program, feed, fetch_list, updates)
            part_program = part.program if isinstance(part, CompiledProgram) else part
            pruned[key] = None if part_program is whole else part_program
        known = pruned[key]
        if known is None:
            return program
        return cast(R, compiled.part(known) if compiled else known)

    def _prune_program(
        self,
        program: Program | CompiledProgram,
        feed: Feeds | None = None,
        fetch_list: FetchList = None,
        optimize_ops: Sequence[Operator] = (),
    ) -> Program | CompiledProgram:
        """Return a program pruned to `fetch_list` and `optimize_ops`, or all updates without these.

        It is the program itself if there are neither, and for a CompiledProgram the pruned one on
        the same devices. Scripts of release 1.8.5 replace this method.
        """
        whole = program.program if isinstance(program, CompiledProgram) else program
        fetch = whole.current_names(names_of(fetch_list))
        part = _pruned_to(whole, list(_fed_names(feed)), fetch, optimize_ops)
        if part is whole:
            return program
        return program.part(part) if isinstance(program, CompiledProgram) else part


def _create_state(program: Program, scope: Scope) -> None:
    """Create the persistable variables that a scope lacks: Paddle does so before it runs a
    program.
    """
    for name, var in program.global_block().vars.items():
        if var.persistable and scope.find_var(name) is None:
            scope.var(name)


def _fed_names(feed: Feeds | None) -> tuple[str, ...]:
    """The names of a dict of feeds, or of a dict for each device, sorted."""
    dicts = feed if isinstance(feed, list | tuple) else [feed or {}]
    return tuple(sorted({name for device in dicts for name in device}))


def _pruned_to(
    program: Program, feed: list[str], fetch: tuple[str, ...], updates: Sequence[Operator]
) -> Program:
    """Prune a program to its fetches and to `updates`; without these, to all its updates."""
    block = program.global_block()
    asked = updates or [op for op in block.ops if pruning.updates_state(block, op)]
    if not fetch and not asked:
        return program
    state = pruning.unwritten_state(block)
    targets: list[Target] = [name for name in fetch if name not in state]
    return program.prune_with_input(feed, [*targets, *asked])


def _expect_program(program: object, feed: object, fetch_list: object) -> None:
    """Raise TypeError for what is no Program, and for that of eager mode with feeds or fetches."""
    if not isinstance(program, Program):
        _expect(program, Program, "the program of Executor.run")
    elif program.is_eager and (feed is not None or fetch_list):
        raise TypeError(
            "Executor.run runs programs, but the default program within fluid.dygraph.guard() has "
            "none: variables have values there (numpy()), or pass the Program to run"
        )


def _expect(value: object, kind: type[T], what: str) -> T:
    """Return the value; TypeError unless it is an instance of `kind`."""
    if not isinstance(value, kind):
        raise TypeError(f"{what} must be a {kind.__name__}, not {type(value).__name__}")
    return value


# What is fetched


def fetch_var(
    name: str | Variable, scope: Scope | None = None, return_numpy: bool = True
) -> NestedArrays | LoDTensor:
    """Return the value of a variable of a scope, by default the global one.

    Raises AssertionError, as the reference does, if there is none.
    """
    variable = (scope or _global_scope).find_var(names_of(name)[0])
    assert variable is not None, (
        f"Cannot find {names_of(name)[0]} in scope: is it a persistable variable of the program?"
    )
    tensor = variable.get_tensor()
    return as_numpy(tensor) if return_numpy else tensor


_fetch_var = fetch_var
_as_lodtensor = feed_checks.lod_tensor_of
_to_name_str = feed_checks.name_text
check_feed_shape_type = feed_checks.check_feed_shape_type
dimension_is_compatible_with = feed_checks.dimension_is_compatible_with
dtype_is_compatible_with = feed_checks.dtype_is_compatible_with
has_feed_operators = feed_checks.has_feed_operators
has_fetch_operators = feed_checks.has_fetch_operators


def _as_numpy(fetch: tuple[str, ...], values: Sequence[Value]) -> list[Value]:
    """Convert values to arrays; RuntimeError for those with LoD, which an array cannot
    represent.
    """
    arrays: list[Value] = []
    for name, value in zip(fetch, values, strict=False):  # a server has no values
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, LoDTensor):
                raise RuntimeError(
                    f"fetch {name!r} holds sequences (its LoD is {item.lod()}), which a NumPy "
                    "array cannot represent: fetch with return_numpy=False"
                )
        arrays.append(number_like(value))
    return arrays
