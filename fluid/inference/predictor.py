"""`fluid.create_predictor`: a saved model, loaded once, callable from any number of threads.

It is compiled once for all batch sizes, with batch norms folded into weights; threads share
the weights, and each run has its own memory (`runtime.serving`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import compiler
from compiler.codegen.module import Module
from compiler.errors import did_you_mean
from compiler.ir.text.program_printer import recorded_digest
from compiler.ir.types import Array
from compiler.options import Options
from compiler.support.dataclass import dataclass
from compiler.support.escape import one_line
from compiler.support.tracebacks import entry_point
from fluid.framework import Program, Variable
from fluid.running.early_kernels import TargetOrName, with_early_kernels
from fluid.running.feeds import expect_names, feed_arrays
from fluid.running.module_cache import compiled_over
from fluid.running.programs import LibraryPrograms
from fluid.running.single_step import changes_state
from fluid.running.targets import chosen_target, options_for
from fluid.running.tuning import tuned_options
from fluid.saving.files import PathName
from fluid.saving.inference_model import InferenceModel, read_inference_model
from runtime.device import CPUPlace, CUDAPlace, Place, target_of
from runtime.errors import FeedError, missing_feed
from runtime.executor import Executor
from runtime.gpu.cuda import device_of, interprets
from runtime.loader import Params
from runtime.program_source import LoadableModule
from runtime.serving import Lanes, Library
from runtime.sizes import Pattern
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope

__all__ = ["Predictor", "PredictorMemory", "create_predictor"]


@dataclass(frozen=True)
class PredictorMemory:
    """Bytes that a predictor holds: all parameters, and the arenas of each lane, largest first."""

    parameters: int
    lanes: tuple[int, ...]


@entry_point
def create_predictor(
    dirname: PathName | None,
    model_filename: str | bytes | None = None,
    params_filename: str | bytes | None = None,
    at_once: int | None = None,
    dtype: str | None = None,
    memory_limit: int | str | None = None,
    place: Place | None = None,
) -> Predictor:
    """Create a predictor of a saved model, with files named as in `load_inference_model`.

    `at_once` is the maximum number of concurrent runs, each with its own memory; by default
    as many as threads call. `dtype` "bf16" or "fp16" is the dtype of matrix products
    (docs/mixed_precision.md). `memory_limit` is the maximum memory of a run, as a number of bytes
    or text with a unit ("2GiB"): a run that needs more raises MemoryLimitExceeded before
    allocation (docs/security.md lists what is counted). With `place=fluid.CUDAPlace(0)` it runs on
    a GPU: its kernels are compiled, and weights copied there, at the first run. No scope is
    changed. Raises ValueError if `at_once` is not positive, for another `dtype`, for an invalid
    `memory_limit`, PlaceError if there is no such GPU, and the errors of `load_inference_model`.
    """
    options = Options.from_env()
    options = options if dtype is None else replace(options, dtype=dtype)
    if memory_limit is not None:
        options = replace(options, memory_limit=memory_limit)
    model = read_inference_model(dirname, model_filename, params_filename)
    return Predictor(model, at_once, options, place=place)


@dataclass(frozen=True)
class Ready:
    """A module compiled in advance, its place, and the names its source requires there."""

    module: Module
    place: Place
    names: Mapping[str, object]

    def limited(self, memory_limit: int | None) -> Module:
        """The module, with a memory limit for its steps."""
        return replace(self.module, memory_limit=memory_limit)


class PredictorPrograms(LibraryPrograms):
    """The program of a saved model, which calls nothing of this process but what is in `ready`."""

    def __init__(self, place: Place, library: Library[Program], ready: Ready | None) -> None:
        super().__init__(place, None, library)
        self.ready = ready

    def digest(self, program: Program) -> str:
        """Return the digest of the program as it was recorded."""
        return recorded_digest(program)

    def globals(self, program: Program, scope: Scope) -> dict[str, object]:
        """Return the names that a module compiled in advance requires."""
        return {} if self.ready is None else dict(self.ready.names)

    def loadable(self, module: Module, place: Place) -> LoadableModule:
        """Return a module and its kernels; one compiled in advance has them in its globals."""
        return super().loadable(module, place) if self.ready is None else (module, {})


class Predictor:
    """A model callable from any thread; `feed_names` and `fetch_names` are in the model's order.

    Runs of a model that changes state, such as counts of a metric, are serialised.
    `options` are the compiler's; `ready` is a module compiled in advance. It runs on `place`, by
    default that of `ready` or the CPU. Raises PlaceError if there is no such GPU.
    """

    def __init__(
        self, model: InferenceModel, at_once: int | None = None, options: Options | None = None,
        ready: Ready | None = None, place: Place | None = None,
    ) -> None:  # fmt: skip
        _expect_number(at_once)
        self.feeds = model.feeds
        self.fetches = model.fetches
        self._program = model.program
        self._scope = _scope_of(model)
        self._place = place or (ready.place if ready else CPUPlace())
        if ready is None and isinstance(self._place, CUDAPlace):
            device_of(self._place)  # raises PlaceError
        limit = (options or Options.from_env()).memory_limit_bytes
        make = (
            partial(_compile, self._place, options)
            if ready is None
            else partial(_compiled, ready.limited(limit))
        )
        self._library = Library(make, self._scope)
        self._programs = PredictorPrograms(self._place, self._library, ready)
        self._lanes = Lanes(
            self._lane, model.program, tuple(self.fetch_names), self._scope,
            1 if changes_state(model.program) or _is_interpreted(self._place) else at_once,
        )  # fmt: skip

    @property
    def feed_names(self) -> list[str]:
        """The names of the feeds, in order."""
        return [var.name for var in self.feeds]

    @property
    def fetch_names(self) -> list[str]:
        """The names of the results of `run`, in order."""
        return [var.name for var in self.fetches]

    @property
    def compiles(self) -> int:
        """Number of compilations: independent of batch sizes and threads."""
        return len(self._library)

    @entry_point
    def run(self, feed: Mapping[str, object] | Sequence[object]) -> list[Array | LoDTensor]:
        """Run the model on arrays or LoDTensors by name, or in the order of `feed_names`.

        Results are in the order of `fetch_names` and owned by the caller: arrays, or LoDTensors if
        they have LoD. May be called from many threads concurrently. Raises TypeError for keys
        that are not names, FeedError for a feed that is missing, unknown or of another dtype,
        ShapeError for sizes that do not match, and the errors of compiling and of the ops.
        """
        return self._lanes.run(feed_arrays(self._program, self._named(feed)))

    def memory(self) -> PredictorMemory:
        """The memory held now; waits for runs in progress."""
        return PredictorMemory(self._library.nbytes(), tuple(self._lanes.nbytes()))

    def release(self) -> None:
        """Free the memory of every idle lane; compiled code is kept."""
        self._lanes.release()

    def _lane(self) -> Executor[Program]:
        return Executor(self._programs, self._place)

    def _named(self, feed: Mapping[str, object] | Sequence[object]) -> Mapping[str, object]:
        """The feeds by name, checked to be complete."""
        names = self.feed_names
        if not isinstance(feed, Mapping):
            feed = self._in_order(feed)
        for name in expect_names(feed):
            if name not in names:
                hint = did_you_mean(name, names) or f"it is fed {', '.join(names)}"
                raise FeedError(f"the model has no feed {name!r}", hint=hint)
        missing = [var for var in self.feeds if var.name not in feed]
        if missing:
            raise missing_feed([_needed(var) for var in missing])
        return feed

    def _in_order(self, feed: Sequence[object]) -> dict[str, object]:
        if not isinstance(feed, list | tuple):
            kind = type(feed).__name__
            raise TypeError(f"feed must be a dict by name or a list in order, not {kind}")
        names = self.feed_names
        if len(feed) != len(names):
            expected = ", ".join(map(one_line, names))
            raise FeedError(f"the model is fed {len(names)} ({expected}), not {len(feed)}")
        return dict(zip(names, feed, strict=True))


def _expect_number(at_once: object) -> None:
    if at_once is not None and (not isinstance(at_once, int) or at_once < 1):
        raise ValueError(f"at_once is how many runs may be under way, not {at_once!r}")


def _needed(var: Variable) -> tuple[str, str, tuple[int, ...]]:
    return var.name, str(var.element.numpy), var.dims or ()


def _scope_of(model: InferenceModel) -> Scope:
    """A scope that holds the parameters themselves, not copies."""
    scope = Scope()
    for name, tensor in model.params.items():
        if tensor.array is not None:
            scope.arrays()[name] = tensor.array
    return scope


def _is_interpreted(place: Place) -> bool:
    """Whether kernels run in Triton's interpreter, which one thread at a time can use."""
    return isinstance(place, CUDAPlace) and interprets()


def _compile(
    place: Place, options: Options | None, program: Program, pattern: Pattern, fetch: list[str],
    params: Params,
) -> Module:  # fmt: skip
    """Compile over constant parameters for a place."""
    chosen = options_for(place, options or Options.from_env())
    chosen = tuned_options(place, chosen, program, pattern, fetch)
    target = chosen_target(target_of(place), chosen)

    def compile(params: Params) -> Module:
        return with_early_kernels(target, partial(compile_for, params))

    def compile_for(params: Params, target: TargetOrName) -> Module:
        return compiler.compile(
            program, feed=pattern, fetch=fetch, target=target, params=params, options=chosen
        )

    return compiled_over(target, chosen, program, pattern, fetch, params, compile)


def _compiled(
    module: Module, program: Program, pattern: Pattern, fetch: list[str], params: Params
) -> Module:
    """The module compiled in advance, for any sizes: they are checked at bind time."""
    return module
