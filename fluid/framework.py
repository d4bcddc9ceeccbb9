"""Programs of Paddle 1.x: the compiler's data classes with fluid's methods.

`Program`, `Block`, `Operator`, `Variable` and `Parameter` derive from the compiler's classes, so
nothing is translated: an op that a layer appends is checked, typed and stored at once, together
with the user's source line. Every edit increments `Program.version`.
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import attrgetter
from textwrap import indent
from typing import NamedTuple, TypeAlias

from compiler.ir.conversion.reused_names import has_reuses, restore_original_names
from compiler.ir.program import EMPTY, GRAD, OpRole
from compiler.ir.types import Array
from compiler.support.tracebacks import entry_point
from fluid.compat.descs import ProgramDesc
from fluid.compat.installed import load_op_library, require_version
from fluid.compat.op_protos import OpProtoHolder, get_all_op_protos
from fluid.distributed.paddle_names import JobNames
from fluid.recording import current_state, pruning
from fluid.recording.annotations import Feed, Reader
from fluid.recording.arguments import ArgumentError, typed
from fluid.recording.block import Block, BlockProgram
from fluid.recording.data_marks import copy_data_marks
from fluid.recording.op_records import must_be_bool, user_line
from fluid.recording.operator import Operator
from fluid.recording.program_bytes import program_bytes, program_from_bytes
from fluid.recording.proto_text import program_text
from fluid.recording.variable import (
    Parameter,
    Variable,
    VariableOrName,
    convert_np_dtype_to_dtype_,
    dtype_is_floating,
    grad_var_name,
)
from fluid.running.flags import get_flags, set_flags
from fluid.running.places import cpu_places, cuda_pinned_places, cuda_places, is_compiled_with_cuda

__all__ = [
    "Block",
    "OpProtoHolder",
    "Operator",
    "Parameter",
    "Program",
    "Variable",
    "convert_np_dtype_to_dtype_",
    "cpu_places",
    "cuda_pinned_places",
    "cuda_places",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "dtype_is_floating",
    "get_all_op_protos",
    "get_flags",
    "grad_var_name",
    "in_dygraph_mode",
    "is_compiled_with_cuda",
    "load_op_library",
    "name_scope",
    "program_guard",
    "require_version",
    "set_flags",
    "switch_main_program",
    "switch_startup_program",
]

EMPTY_VAR_NAME, GRAD_VAR_SUFFIX = EMPTY, GRAD
TEMP_VAR_NAME, ZERO_VAR_SUFFIX = "@TEMP@", "@ZERO"
CONTROL_DEP_VAR_PREFIX = "__control_var"

Target: TypeAlias = Variable | Operator | str
"""What a program computes: a variable, its name, or an op that writes it."""

Targets: TypeAlias = Target | list[Target]

generate_control_dev_var_name = current_state.generate_control_dev_var_name
_cpu_num = current_state.cpu_num
_cuda_ids = current_state.cuda_ids
_debug_string_ = current_state.debug_string


class Program(JobNames, BlockProgram):
    """A program: a list of blocks of ops; block 0 is the global one.

    `random_seed` 0 means different random numbers in each run. With any other seed, every random op
    has a different seed, so that layers of the same shape are initialized differently.
    """

    _global_seed = 0
    is_eager = False
    """Whether appended ops run when their values are needed, see `fluid.eager`."""
    follows_layers = False
    """Whether layer objects apply dropout and batch statistics by `Layer.training`."""
    trains = True
    """Whether ops get gradients, and dropout is applied, in eager mode: not after `Layer.eval`, nor
    within `no_grad`.
    """
    is_mem_optimized = False
    collective: object = None
    """What its collectives call: the rings of the devices it was built for; None for the rings
    that a startup program made in the scope.
    """
    parameter_server: object = None
    """What its ops for parameter servers call; None for a connection of its trainer."""
    origin_program: Program | None = None
    """What a program was before `fluid.transpiler.collective` rewrote it."""

    def __init__(self) -> None:
        self.current_block_idx = 0
        self._seed = Program._global_seed
        self.seed_count = 0
        self.op_device = ""
        self.readers: list[tuple[Reader, list[str]]] = []
        self.callables: list[Callable[[Sequence[Array]], list[Array | None]]] = []
        """The functions of its `py_func` ops, by the ids that these have."""
        self._op_role = OpRole.FORWARD
        self._op_role_var: list[str] = []
        self.name_scopes: list[str] = []
        self.name_scope_counts: Counter[str] = Counter()
        self.current_name_table: dict[str, str] = {}
        super().__init__()

    def make_block(self, idx: int, parent_idx: int) -> Block:
        """Create a block of fluid's class."""
        return Block(self, idx, parent_idx)

    # ---- blocks

    @property
    def num_blocks(self) -> int:
        """The number of blocks."""
        return len(self.blocks)

    def global_block(self) -> Block:
        """Return block 0."""
        return self.blocks[0]

    def block(self, index: int) -> Block:
        """Return the block at an index; IndexError if out of range."""
        return self.blocks[index]

    def current_block(self) -> Block:
        """Return the block to which layers append."""
        return self.blocks[self.current_block_idx]

    def create_block(self, parent_idx: int | None = None) -> Block:
        """Append a block nested in another (default: the current one) and make it current."""
        block = self.add_block(self.current_block_idx if parent_idx is None else parent_idx)
        self.current_block_idx = block.idx
        return block

    def rollback(self) -> None:
        """Make the parent block current again."""
        self.current_block_idx = self.current_block().parent_idx

    def list_vars(self) -> Iterator[Variable]:
        """Iterate over the variables of all blocks, in order of creation."""
        return self.all_vars()

    def all_parameters(self) -> list[Parameter]:
        """Return all parameters, in order of creation."""
        return [param for block in self.blocks for param in block.iter_parameters()]

    # ---- attributes of appended ops: seeds, roles, name scopes

    @property
    def random_seed(self) -> int:
        """The seed from which later random ops derive theirs; ValueError unless an integer."""
        return self._seed

    @random_seed.setter
    def random_seed(self, seed: int) -> None:
        if not isinstance(seed, int):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass None
            kind = type(seed).__name__
            raise ValueError(f"Program.random_seed must be an integer, but received {kind}")
        self._seed, self.seed_count = seed, 0

    def global_seed(self, seed: int = 0) -> None:
        """Set `random_seed` here and as the default of new programs."""
        self.random_seed = seed
        Program._global_seed = seed

    def fresh_seed(self) -> int:
        """Return a seed for the next random op; 0 for a program without a seed.

        The first one is the program's own; Paddle uses it for all, so that equal shapes are
        initialized equally there (docs/reference_behaviour.md, "Programs and names").
        """
        if self._seed == 0:
            return 0
        seed = (self._seed + self.seed_count * 0x9E3779B1) % 0x7FFFFFFF
        self.seed_count += 1
        return seed or 1

    @contextmanager
    def role_guard(self, role: OpRole, variables: Iterable[VariableOrName] = ()) -> Generator[None]:
        """Context manager in which appended ops have a role and the names of `variables`."""
        before = self._op_role, self._op_role_var
        self._op_role = role
        self._op_role_var = [var if isinstance(var, str) else var.name for var in variables]
        try:
            yield
        finally:
            self._op_role, self._op_role_var = before

    def optimized_guard(
        self, param_and_grads: Iterable[VariableOrName]
    ) -> AbstractContextManager[None]:
        """Context manager in which appended ops update a parameter of the pair."""
        return self.role_guard(OpRole.OPTIMIZE, param_and_grads)

    def backward_role_guard(self) -> AbstractContextManager[None]:
        """Context manager in which appended ops compute gradients."""
        return self.role_guard(OpRole.BACKWARD)

    def lr_schedule_guard(self, is_with_opt: bool = False) -> AbstractContextManager[None]:
        """Context manager in which appended ops schedule the learning rate."""
        role = OpRole.LRSCHED | OpRole.OPTIMIZE if is_with_opt else OpRole.LRSCHED
        return self.role_guard(role)

    def common_attributes(self, op: Operator) -> dict[str, object]:
        """Return the attributes that every op has and that do not affect its result."""
        return {
            "op_role": int(self._op_role),
            "op_role_var": list(self._op_role_var),
            "op_namescope": "".join(f"{name}/" for name in ["", *self.name_scopes]),
            "op_callstack": [op.source],
            "op_device": self.op_device,
        }

    # ---- readers, whose batches need no feed

    def read_from(self, reader: Reader, names: list[str]) -> None:
        """Register a reader whose batches are the values of variables in every run."""
        self.readers.append((reader, names))

    def user_name(self, name: str) -> str:
        """Return the user's variable for one of a reader's own, by name; empty for others."""
        for reader, names in self.readers:
            if name in names:
                original = reader.names[names.index(name)]
                return "" if original == name else original
        return ""

    def feed_with_batches(self, feed: Feed) -> dict[str, object]:
        """Return a feed extended by the next batch of each reader whose variables it omits.

        Raises EOFException if a reader is exhausted, RuntimeError if it is not started.
        """
        batches = dict(feed)
        for reader, names in self.readers:
            if not all(name in feed for name in names):
                batch = zip(names, reader.next_batch(), strict=True)
                variables = self.global_block().vars
                batches = {name: value for name, value in batch if name in variables} | batches
        return batches

    # ---- renaming by memory_optimize

    def current_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the current names under which variables are stored."""
        current_names = self.current_name_table
        return tuple([current_names.get(name, name) for name in names]) if current_names else names

    def undo_renaming(self) -> bool:
        """Undo the renaming of `memory_optimize`; return whether there was any."""
        renamed = has_reuses(self)
        if renamed:
            restore_original_names(self)
        self.is_mem_optimized = False
        return renamed

    def prepare_append(self) -> None:
        """Undo renaming before ops are appended: a new op may read any variable by its original
        name.
        """
        if self.is_mem_optimized and self.undo_renaming():
            warnings.warn(
                f"{user_line()}: an op is appended after memory_optimize, which is undone: call it "
                "once the program is complete, after minimize",
                stacklevel=2,
            )

    # ---- copies

    @entry_point
    def clone(self, for_test: bool = False) -> Program:
        """Return a copy that shares nothing but what parameters refer to.

        `for_test` removes the ops and variables that training added, before or after `minimize`,
        and sets `is_test` on every op that has it. What `fluid.gradients` added stays, unless the
        program trains a loss.
        """
        clone = self.copied()
        if for_test:
            pruning.drop_training(clone)
            clone.set_test_mode()
        return clone

    def _prune(self, targets: Targets) -> Program:
        """Return a copy with only what `targets` need."""
        return self.prune_with_input([], targets)

    def prune_with_input(self, feeded_var_names: str | list[str], targets: Targets) -> Program:
        """Return a copy with only what computes `targets` from the feeds.

        Targets are variables, names or operators. Raises ValueError for anything else, and if no op
        computes a target.
        """
        feeds = feeded_var_names if isinstance(feeded_var_names, list) else [feeded_var_names]
        target_list: list[Target] = targets if isinstance(targets, list) else [targets]
        updates = [t for t in target_list if isinstance(t, Operator) and t.is_optimize_op()]
        names = self._target_names([t for t in target_list if t not in updates])
        pruned = self.copied()
        pruned.undo_renaming()
        written = {n for op in pruned.global_block().ops for n in op.writes()}
        for name in [*feeds, *names]:
            if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a Variable
                raise ValueError(f"feeds are names, but received {type(name).__name__}")
            if name in names and name not in feeds and name not in written:
                raise ValueError(f"no operator computes the target variable {name!r}")
        indices = {op: index for index, op in enumerate(self.global_block().ops)}
        for op in updates:
            if op not in indices:
                raise ValueError(f"the operator {op.type} is of another program, or was removed")
        pruning.keep_needed(pruned, feeds, names, [indices[op] for op in updates])
        variables = pruned.global_block().vars
        pruned.readers = [read for read in self.readers if not variables.keys().isdisjoint(read[1])]
        return pruned

    def _target_names(self, targets: list[Target]) -> list[str]:
        names = [name for target in targets for name in _names_of_target(target)]
        return list(self.current_names(tuple(names)))

    def inference_optimize(self, prune_read_op: bool = True) -> Program:
        """Return a copy with `is_test` set, and without readers if `prune_read_op`."""
        copied = self.copied()
        copied.set_test_mode()
        if prune_read_op:
            copied.readers = []
        return copied

    def set_test_mode(self) -> None:
        """Set `is_test` on every op that has it."""
        for op in [op for block in self.blocks for op in block.ops]:
            if op.has_attr("is_test"):
                op.set_attr("is_test", True)

    def copied(self) -> Program:
        """Return a copy that shares nothing but what parameters refer to."""
        copied = copy.copy(self)
        copied.name_scopes, copied.name_scope_counts = (
            list(self.name_scopes),
            Counter(self.name_scope_counts),
        )
        copied.readers = list(self.readers)
        copied.known_digests = {}
        copied.blocks = [copied.make_block(b.idx, b.parent_idx) for b in self.blocks]
        for block, new in zip(self.blocks, copied.blocks, strict=True):
            new.fill_from(block)
        for block in copied.blocks:
            for op in block.ops:
                block.claim(op)
        return copied

    def to_string(self, throw_on_error: bool, with_details: bool = False) -> str:
        """Return the blocks as protobuf text; with details, also the training fields of variables.

        Raises AssertionError unless the arguments are bools.
        """
        must_be_bool(throw_on_error=throw_on_error, with_details=with_details)
        if not with_details:
            return program_text(self)
        texts = [block.to_string(throw_on_error, True) for block in self.blocks]
        return "".join(f"blocks {{\n{indent(text, '  ')}}}\n" for text in texts)

    def _sync_with_cpp(self) -> None:
        """Do nothing: descriptions and the program are the same objects."""

    @property
    def _version(self) -> int:
        """The release that wrote the program, as encoded in saved programs: 1.8.5 is 1008005."""
        return self.desc.saved_version

    @staticmethod
    def _construct_from_desc(desc: ProgramDesc) -> Program:
        """Return a copy of the program behind a description."""
        return Program.parse_from_string(desc.serialize_to_string())

    @property
    def desc(self) -> ProgramDesc:
        """The program with the methods of a native `ProgramDesc`."""
        return ProgramDesc(self)

    def serialize_to_string(self) -> bytes:
        """Serialize the program to bytes that release 1.8.5 reads, without call stacks."""
        return program_bytes(self)

    @staticmethod
    def parse_from_string(binary_str: bytes) -> Program:
        """Parse the result of `serialize_to_string`, including parameters.

        Bytes of release 1.8.5 do not mark parameters: persistable variables that are trained or
        only read are assumed to be parameters. Raises CompileError for invalid bytes.
        """
        return program_from_bytes(binary_str, "the bytes given", Program)

    def _copy_param_info_from(self, other: Program) -> None:
        """Check that `other` is a program: copies know their parameters already."""
        _check_program(other, "the source")

    def _copy_dist_param_info_from(self, other: Program) -> None:
        """Take part in the job of another program; TypeError for anything else."""
        _check_program(other, "the source")
        self.job = other.job

    # ---- the names that scripts use

    _copy_data_info_from = copy_data_marks
    _create_block = create_block
    _origin_program = property(attrgetter("origin_program"))
    _appending_grad_times = property(attrgetter("gradient_passes"))
    _rollback = rollback
    _optimized_guard = optimized_guard
    _backward_role_guard = backward_role_guard
    _lr_schedule_guard = lr_schedule_guard
    _prune_with_input = prune_with_input
    _inference_optimize = inference_optimize

    def __str__(self) -> str:
        return self.to_string(True)

    def __repr__(self) -> str:
        return f"<Program of {self.blocks}>"


def _names_of_target(target: object) -> list[str]:
    if not isinstance(target, str | Variable | Operator):
        raise ValueError(
            "All targets of Program._prune_with_input() can only be Variable or Operator, "
            f"but received {type(target)}."
        )
    if isinstance(target, Operator):
        return target.writes()
    return [target.name if isinstance(target, Variable) else target]


# ---- the default programs -----------------------------------------------------------------------


class _Defaults(NamedTuple):
    """The default programs of static mode, and the program of eager mode within it."""

    main: Program
    startup: Program
    eager: Program | None = None


_defaults = _Defaults(Program(), Program())


def default_main_program() -> Program:
    """Return the program to which layers append."""
    return _defaults.main if _defaults.eager is None else _defaults.eager


def default_startup_program() -> Program:
    """Return the program that initializes parameters; run it once, first."""
    return _defaults.startup if _defaults.eager is None else _defaults.eager


def in_dygraph_mode() -> bool:
    """Return whether layers compute values."""
    return _defaults.eager is not None


def switch_main_program(program: Program) -> Program:
    """Set the default main program; returns the previous one. Eager mode stays."""
    global _defaults
    previous, _defaults = _defaults.main, _defaults._replace(main=program)
    return previous


def switch_startup_program(program: Program) -> Program:
    """Set the default startup program; returns the previous one. Eager mode stays."""
    global _defaults
    previous, _defaults = _defaults.startup, _defaults._replace(startup=program)
    return previous


def program_guard(
    main_program: Program, startup_program: Program | None = None
) -> AbstractContextManager[None]:
    """Set the default programs within a `with` block; in eager mode, layers still compute values.

    Raises TypeError naming the argument that is no Program.
    """
    _check_program(main_program, "main_program of fluid.program_guard")
    startup = _defaults.startup if startup_program is None else startup_program
    _check_program(startup, "startup_program of fluid.program_guard")
    return _replaced(_Defaults(main_program, startup, _defaults.eager))


def recording_guard(
    main_program: Program, startup_program: Program | None = None
) -> AbstractContextManager[None]:
    """Make layers append to these programs within a `with` block, whatever the mode outside it."""
    if main_program.is_eager:
        return _replaced(_defaults._replace(eager=main_program))
    return _replaced(_Defaults(main_program, startup_program or _defaults.startup))


@contextmanager
def _replaced(defaults: _Defaults) -> Generator[None]:
    global _defaults
    before, _defaults = _defaults, defaults
    try:
        yield
    finally:
        _defaults = before


def _check_program(program: object, argument: str) -> None:
    if not isinstance(program, Program):
        kind = type(program).__name__
        raise TypeError(f"{argument} must be a Program, not {kind}")


@typed
@contextmanager
def name_scope(prefix: str | None = None) -> Generator[None]:
    """Mark the ops appended within as `/prefix/`; a reopened scope is `/prefix_1/`.

    The mark is the attribute `op_namescope`, for people and tools only. ArgumentError if empty.
    """
    if not prefix:
        raise ArgumentError("the prefix of a name_scope can not be empty")
    program = default_main_program()
    key = "/".join([*program.name_scopes, prefix])
    count = program.name_scope_counts[key]
    program.name_scope_counts[key] += 1
    program.name_scopes.append(f"{prefix}_{count}" if count else prefix)
    try:
        yield
    finally:
        program.name_scopes.pop()


@typed
@contextmanager
def device_guard(device: str | None = None) -> Generator[None]:
    """Mark the ops appended to the default programs within for device "cpu" or "gpu".

    The mark is the attribute `op_device` and has no effect: a program runs on one device here.
    ValueError for another device.
    """
    if device not in ("cpu", "gpu", "", None):
        raise ValueError(
            f"device should be 'cpu' or 'gpu', or '' or None for no device, but received {device!r}"
        )
    programs = default_main_program(), default_startup_program()
    before = [program.op_device for program in programs]
    for program in programs:
        program.op_device = device or ""
    try:
        yield
    finally:
        for program, previous in zip(programs, before, strict=True):
            program.op_device = previous


def program_of(var: Variable) -> Program:
    """Return the program of a variable."""
    program = var.block.program
    assert isinstance(program, Program)
    return program


def block_of(var: Variable) -> Block:
    """Return the block of a variable."""
    assert isinstance(var.block, Block)
    return var.block


def _get_var(  # pyright: ignore[reportUnusedFunction] - a name of Paddle
    name: str, program: Program | None = None
) -> Variable:
    """Return a variable of the global block of a program (default: the default one) by name."""
    return (program or default_main_program()).global_block().var(name)
