"""Blocks, to which layers append. An op is checked and its types inferred before it is stored."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from textwrap import indent
from types import NoneType
from typing import Any, Protocol, TypeVar, Unpack

from compiler.errors import BadAttribute, CompileError, MissingSlot, did_you_mean
from compiler.ir import program as ir
from compiler.ir.opdef import check_attributes, find
from compiler.ir.opdef.slots import GRAPH_ONLY
from compiler.ir.opdef.type_inference import bind, check_slots, infer_op, op_text
from compiler.ir.program import NO_BLOCK, VarKind
from compiler.support.tracebacks import entry_point
from compiler.support.user_warnings import warn_user
from fluid import unique_name
from fluid.compat.descs import BlockDesc
from fluid.recording.annotations import Attributes, DTypeLike, Slots
from fluid.recording.checks import check_type
from fluid.recording.narrowing import is_sequence
from fluid.recording.op_records import must_be_bool, plain_values, slot_names, user_line
from fluid.recording.operator import Operator
from fluid.recording.proto_text import block_text
from fluid.recording.variable import (
    AbstractBlock,
    AbstractProgram,
    Parameter,
    ParameterFields,
    Variable,
    VariableFields,
    VarType,
    convert_np_dtype_to_dtype_,
)

__all__ = ["Block", "InputNotFound"]

T = TypeVar("T")


class InputNotFound(MissingSlot, AssertionError):
    """A required slot of an op is empty; an assertion in the reference."""


class Fill(Protocol):
    """An initializer: called with a variable, it inserts an op into a block of the startup program
    that fills it.
    """

    def __call__(self, var: Variable, block: Block, /) -> object:
        """Insert the op."""
        ...


class BlockProgram(AbstractProgram):
    """What blocks and what they are passed to know of their program, a `framework.Program`."""

    blocks: list[Block]  # pyright: ignore[reportIncompatibleVariableOverride] - all are ours

    @abstractmethod
    def make_block(self, idx: int, parent_idx: int) -> Block:
        """Create a block of fluid's class."""

    def add_block(self, parent_idx: int) -> Block:
        """Append an empty block with the given parent."""
        block = super().add_block(parent_idx)
        assert isinstance(block, Block)
        return block

    def all_vars(self) -> Iterator[Variable]:
        """Iterate over the variables of every block, in order of declaration."""
        for block in self.blocks:
            yield from block.vars.values()

    @abstractmethod
    def global_block(self) -> Block:
        """Block 0."""

    @abstractmethod
    def current_block(self) -> Block:
        """The block to which layers append."""

    @abstractmethod
    def block(self, index: int) -> Block:
        """The block at an index; IndexError if out of range."""


class Block(AbstractBlock):
    """Variables by name and ops in order, inside a program.

    Without `parent_idx` it is a copy of the program's block of this index, if it has one: scripts
    make blocks so after they changed the program's description.
    """

    owner: BlockProgram  # pyright: ignore[reportIncompatibleVariableOverride] - never reassigned

    def __init__(self, program: BlockProgram, idx: int, parent_idx: int | None = None) -> None:
        described = parent_idx is None and idx < len(program.blocks)
        if parent_idx is None:
            parent_idx = program.blocks[idx].parent_idx if described else NO_BLOCK
        super().__init__(program, idx, parent_idx)
        self.vars = OrderedDict[str, Variable]()
        if described:
            self.fill_from(program.blocks[idx])
            for op in self.ops:
                self.claim(op)
            program.touch()

    @property
    def program(self) -> BlockProgram:
        """The program it belongs to."""
        return self.owner

    @property
    def parent(self) -> Block | None:
        """The enclosing block; None for the main block."""
        return None if self.parent_idx == NO_BLOCK else self.owner.blocks[self.parent_idx]

    def _sync_with_cpp(self) -> None:
        """Do nothing: descriptions and the block share their data."""

    @property
    def desc(self) -> BlockDesc:
        """The block with the methods of a native `BlockDesc`."""
        return BlockDesc(self)

    @property
    def backward_block_idx(self) -> int:
        """The block that holds its gradient ops; -1 where there is none."""
        blocks = self.program.blocks
        return next((b.idx for b in blocks if b.forward_block_idx == self.idx), NO_BLOCK)

    def _set_forward_block_idx(self, idx: int) -> None:
        self.forward_block_idx = idx

    # ---- variables

    def var(self, name: str) -> Variable:
        """The variable of this name here; TypeError for what is no name, ValueError if unknown."""
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a Variable
            raise TypeError(f"var requires a string as parameter, but got {type(name).__name__}")
        if name not in self.vars:
            raise ValueError(f"var {name} not in this block; {did_you_mean(name, self.vars)}")
        return self.vars[name]

    def has_var(self, name: str) -> bool:
        """True where a variable of this name is declared here."""
        return name in self.vars

    def find_var_recursive(self, name: str) -> Variable | None:
        """The variable of this name here or in an enclosing block, or None."""
        return self.lookup(name)

    def var_recursive(self, name: str) -> Variable:
        """The variable of this name here or in an enclosing block; ValueError if unknown."""
        var = self.find_var_recursive(name)
        if var is None:
            raise ValueError(f"Var {name} is not found recursively")
        return var

    def add_var(self, name: str, **fields: Any) -> Variable:
        """Declare a variable with the compiler's fields, replacing an earlier declaration."""
        kind = fields.pop("kind", VarKind.TENSOR)
        cls = Parameter if fields.pop("is_parameter", False) else Variable
        self.vars[name] = var = cls(self, name=name, type=VarType[kind.value], **fields)
        self.program.touch()
        return var

    def create_var(
        self, initializer: Fill | None = None, **fields: Unpack[VariableFields]
    ) -> Variable:
        """Declare a variable and let `initializer` append its initialisation: fields as for
        `Variable`.

        A name that is already declared returns its variable. Raises ValueError, with the previous
        and the new value, if shape, dtype, type, lod_level or persistable differ from it.
        """
        check_type(fields.get("name"), "name", (str, NoneType), "create_var")
        var = self.vars.get(fields.get("name") or "")
        if var is None:
            var = Variable(self, **fields)
            self.vars[var.name] = var
            self.program.touch()
        else:
            _check_redeclared(var, fields)
        if initializer is not None:
            initializer(var, self)
        return var

    def create_temporary(
        self, key: str, dtype: DTypeLike, *, stop_gradient: bool = False
    ) -> Variable:
        """Declare a variable for the output of an op, named `<key>_<n>`."""
        name = unique_name.generate(key)
        return self.create_var(
            name=name, dtype=dtype, persistable=False, stop_gradient=stop_gradient
        )

    def create_parameter(
        self, initializer: Fill | None = None, **fields: Unpack[ParameterFields]
    ) -> Parameter:
        """Declare a parameter, always in the global block, and append its initialisation.

        Sharing a name shares the parameter: it is initialised once, and later attributes replace
        earlier ones. Raises ValueError as `create_var` does.
        """
        block = self.program.global_block()
        param = Parameter(block, **fields)
        existing = block.vars.get(param.name)
        if existing is not None:
            _check_redeclared(existing, fields)
        if isinstance(existing, Parameter):
            vars(existing).update(vars(param) | {"op": existing.op})
            param = existing
        block.vars[param.name] = param
        if initializer is not None and param.op is None:
            initializer(param, self)
        return param

    def iter_parameters(self) -> Iterator[Parameter]:
        """Its parameters, in order of creation."""
        return (var for var in self.vars.values() if isinstance(var, Parameter))

    def all_parameters(self) -> list[Parameter]:
        """Its parameters, in order of creation."""
        return list(self.iter_parameters())

    def remove_var(self, name: str) -> None:
        """Remove a variable; ValueError if unknown."""
        del self.vars[self.var(name).name]
        self.program.touch()

    def rename_var(self, name: str, new_name: str) -> Variable:
        """Rename a variable here, keeping its position, and in every op."""
        var = self.var(name)
        var.name = new_name
        self.vars = OrderedDict((variable.name, variable) for variable in self.vars.values())
        for op in self.ops:
            op.rename_input(name, new_name)
            op.rename_output(name, new_name)
        self.program.touch()
        return var

    def clone_variable(self, var: Variable, force_persistable: bool = True) -> Variable:
        """Declare a copy of `var` here, as a plain variable."""
        persistable = var.persistable or (force_persistable and var.holds_tensor)
        fields: VariableFields = {"name": var.name, "type": var.type, "persistable": persistable}
        if var.holds_tensor:
            fields |= {"shape": var.dims, "dtype": var.dtype, "lod_level": var.lod_level}
            fields |= {"is_data": var.is_data, "need_check_feed": var.need_check_feed}
        return self.create_var(**fields)

    # ---- ops

    @entry_point
    def append_op(
        self,
        type: str | None = None,
        inputs: Slots | None = None,
        outputs: Slots | None = None,
        attrs: Attributes | None = None,
        stop_gradient: bool = False,
    ) -> Operator:
        """Append an op; slots take a variable, a name, or a list of them.

        Missing attributes get their defaults; types of outputs are inferred from the inputs.
        `stop_gradient` is for dygraph and has no effect here. Raises UnknownOp,
        InputNotFound, MissingSlot, BadAttribute or ShapeError, all with the user's line, without
        appending.
        """
        return self.insert_op(len(self.ops), type, inputs, outputs, attrs)

    def prepend_op(
        self,
        type: str | None = None,
        inputs: Slots | None = None,
        outputs: Slots | None = None,
        attrs: Attributes | None = None,
        stop_gradient: bool = False,
    ) -> Operator:
        """Insert an op before all others, as `append_op` appends one."""
        return self.insert_op(0, type, inputs, outputs, attrs)

    def insert_op(
        self,
        index: int,
        type: str | None = None,
        inputs: Slots | None = None,
        outputs: Slots | None = None,
        attrs: Attributes | None = None,
    ) -> Operator:
        """Insert an op before position `index`, as `append_op` appends one."""
        if type is None:
            raise ValueError("`type` to initialized an Operator can not be None.")
        check_type(type, "type", str, "append_op")
        check_type(attrs, "attrs", (Mapping, NoneType), type)
        self.program.prepare_append()
        names = slot_names(type, inputs), slot_names(type, outputs)
        try:
            op = self._checked(type, *names, attrs or {})
        except CompileError:
            _expect_own(self, type, inputs or {})
            raise
        op.recorded = True
        self.ops.insert(index, op)
        self.claim(op)
        self.program.touch()
        return op

    def _checked(
        self,
        type: str,
        inputs: dict[str, list[str]],
        outputs: dict[str, list[str]],
        attrs: Attributes,
    ) -> Operator:
        """Create an op with all slots and attributes and infer its output types; it is in no block
        yet.
        """
        plain_attrs = plain_values({n: v for n, v in attrs.items() if v is not None})
        op = Operator(self, type, inputs, outputs, plain_attrs, user_line())
        with _located(op):
            slots = find(type).inputs().values()
            empty: dict[str, list[str]] = {s.name: [] for s in slots if s.companion != "order"}
            every_slot = empty | op.inputs
            op.inputs = {slot: every_slot[slot] for slot in sorted(every_slot)}
            check_slots(op)
            op.attrs = plain_attrs = _declared(type, plain_attrs)
            bound = {n: v for n, v in bind(op).attributes.items() if n not in GRAPH_ONLY}
            op.attrs = self.program.common_attributes(op) | plain_attrs | plain_values(bound)
            infer_op(self, op)
        return op

    def claim(self, op: Operator) -> None:
        """Set the op as the last writer of its outputs."""
        for name in op.writes():
            var = self.find_var_recursive(name)
            if var is not None:
                var.op = op

    def fill_from(self, other: Block) -> None:
        """Copy another block's variables and ops into this one."""
        self.forward_block_idx = other.forward_block_idx
        self.ops = [op.copied_to(self) for op in other.ops]
        self.vars = OrderedDict((name, var.copied_to(self)) for name, var in other.vars.items())

    def add_op(
        self,
        type: str,
        inputs: Mapping[str, Sequence[str]],
        outputs: Mapping[str, Sequence[str]],
        attrs: Attributes | None = None,
        source: str = "",
        index: int | None = None,
    ) -> Operator:
        """Append an op as the compiler created it, or insert it before position `index`."""
        op = Operator(self, type, inputs, outputs, attrs, source)
        self.ops.insert(len(self.ops) if index is None else index, op)
        self.program.touch()
        return op

    def slice_ops(self, start: int, end: int) -> list[Operator]:
        """The ops from position `start` to `end`."""
        return self.ops[start:end]

    def to_string(self, throw_on_error: bool, with_details: bool = False) -> str:
        """Its variables and ops as protobuf text; with details, also the training attributes."""
        must_be_bool(throw_on_error=throw_on_error, with_details=with_details)
        if not with_details:
            return block_text(self)
        parts = [("vars", var.to_string(throw_on_error, True)) for var in self.vars.values()]
        parts += [("ops", op.to_string(throw_on_error)) for op in self.ops]
        body = "".join(f"{name} {{\n{indent(text, '  ')}}}\n" for name, text in parts)
        return f"idx: {self.idx}\nparent_idx: {self.parent_idx}\n{body}"

    # ---- the names that scripts use

    _find_var_recursive = find_var_recursive
    _var_recursive = var_recursive
    _remove_var = remove_var
    _rename_var = rename_var
    _clone_variable = clone_variable
    _prepend_op = prepend_op
    _insert_op = insert_op
    _slice_ops = slice_ops
    _remove_op = ir.Block.remove_op

    def __str__(self) -> str:
        return self.to_string(True)

    def __repr__(self) -> str:
        return f"<Block {self.idx}: {len(self.vars)} variables, {len(self.ops)} ops>"


def _declared(type: str, attrs: Mapping[str, T]) -> dict[str, T]:
    """Return the attributes that an op type declares; warn of others, which are ignored as in the
    reference.
    """
    with suppress(BadAttribute):
        check_attributes(type, attrs)
        return dict(attrs)
    declared: dict[str, T] = {}
    for name, value in attrs.items():
        try:
            check_attributes(type, {name: value})
        except BadAttribute as error:
            hint = f" ({error.hint})" if error.hint else ""
            warn_user(f"{error.message}; {name!r} is ignored{hint}")
        else:
            declared[name] = value
    return declared


def _expect_own(block: Block, op_type: str, inputs: Slots) -> None:
    """Raise an error if an op of a program reads a variable of eager mode (TypeError), or one that
    only another program has (InputNotFound).
    """
    variables = (
        (slot, item)
        for slot, value in inputs.items()
        for item in (value if is_sequence(value) else [value])
        if isinstance(item, Variable)
    )
    for slot, item in variables:
        if item.block.program.is_eager:
            raise TypeError(
                f"{op_type}: slot {slot} takes variables of the program, but {item.name!r} has "
                f"the value of eager mode: feed its numpy(), or run the op in eager mode"
            )
        if item.block.program is not block.program and block.find_var_recursive(item.name) is None:
            raise InputNotFound(
                f"{op_type}: slot {slot} reads {item.name!r}, a variable of another program",
                source=user_line(),
                hint="add the layers of a model within one program_guard",
            ) from None


def _check_redeclared(var: Variable, fields: VariableFields | ParameterFields) -> None:
    """Raise ValueError if a variable is declared again with different properties."""
    fields_set: dict[str, object] = {n: v for n, v in fields.items() if v is not None}
    dtype, shape = fields.get("dtype"), fields.get("shape")
    if dtype is not None:
        fields_set["dtype"] = convert_np_dtype_to_dtype_(dtype)
    if shape is not None:
        fields_set["shape"] = tuple(shape)
    for field in ("type", "shape", "dtype", "lod_level", "persistable"):
        previous = getattr(var, field)
        if field in fields_set and fields_set[field] != previous:
            raise ValueError(
                f"Variable {var.name} has been created before. The previous {field} is "
                f"{previous}; the new {field} is {fields_set[field]}. They are not matched."
            )


@contextmanager
def _located(op: Operator) -> Generator[None]:
    """Add the op's text and the user's line to errors of the compiler."""
    try:
        yield
    except CompileError as error:
        cls = InputNotFound if isinstance(error, MissingSlot) else type(error)
        text = error.op or op_text(op)
        raise cls(error.message, op=text, source=op.source, hint=error.hint) from None
