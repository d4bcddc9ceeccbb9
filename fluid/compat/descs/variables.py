"""`VarDesc`: a variable with the methods of the native object that describes one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compiler.errors import CompileError
from compiler.ir import program as ir
from compiler.ir.model_format.program_desc import program_dumped, program_message
from compiler.ir.model_format.protobuf import Message
from compiler.ir.types import DType, VarTypeId
from fluid.recording.var_types import VarDesc as VarTypes
from fluid.recording.var_types import kind_of, var_type

__all__ = ["VarDesc"]

VarType = VarTypes.VarType


class VarDesc(VarTypes):
    """Description of a variable: name, type, shape, element type, LoD levels.

    `VarDesc("x")` describes a variable of no program. Variables of type READER have several
    shapes, element types and LoD levels, one for each field that is read.
    """

    def __init__(self, var: ir.VarDesc | str, block: ir.Block | None = None) -> None:
        self.described_var = ir.VarDesc(var) if isinstance(var, str) else var
        self._block = block

    def _touch(self) -> None:
        if self._block is not None:
            self._block.owner.touch()

    def name(self) -> str:
        """The name."""
        return self.described_var.name

    def set_name(self, name: str) -> None:
        """Change the name of this variable alone; ops keep the names that they have."""
        old, self.described_var.name = self.described_var.name, name
        if self._block is not None:
            variables = self._block.vars
            self._block.vars = {name if n == old else n: var for n, var in variables.items()}
        self._touch()

    def type(self) -> VarTypeId:
        """What it holds, as a `VarType`."""
        return VarType[self.described_var.kind.value]

    def set_type(self, type: int) -> None:
        """Change what it holds; ValueError where no variable can be of that type."""
        self.described_var.kind = kind_of(type)
        self._touch()

    def persistable(self) -> bool:
        """Whether it outlives a run."""
        return self.described_var.persistable

    def set_persistable(self, persistable: bool) -> None:
        """Change whether it outlives a run."""
        self.described_var.persistable = bool(persistable)
        self._touch()

    def need_check_feed(self) -> bool:
        """Whether feeds are compared with its shape and element type."""
        return self.described_var.need_check_feed

    def set_need_check_feed(self, need_check_feed: bool) -> None:
        """Change whether feeds are compared with its shape and element type."""
        self.described_var.need_check_feed = bool(need_check_feed)
        self._touch()

    # ---- tensors

    def shape(self) -> list[int]:
        """The sizes, -1 where unknown; empty while nothing is known."""
        self._expect(reader=False, what="one shape")
        return list(self.described_var.dims or ())

    get_shape = shape

    def set_shape(self, shape: Sequence[int]) -> None:
        """Change the sizes. Raises CompileError for readers, which have several."""
        self._expect(reader=False, what="one shape")
        self.described_var.dims = tuple(int(size) for size in shape)
        self._touch()

    def dtype(self) -> VarTypeId:
        """The element type, as a `VarType`."""
        self._expect(reader=False, what="one element type")
        return var_type(self.described_var.element)

    def set_dtype(self, dtype: int) -> None:
        """Change the element type; TypeError where `dtype` is none."""
        self._expect(reader=False, what="one element type")
        self.described_var.element = DType.of(int(dtype))
        self._touch()

    def lod_level(self) -> int:
        """The number of LoD levels."""
        self._expect(reader=False, what="one LoD level")
        return self.described_var.lod_level

    def set_lod_level(self, lod_level: int) -> None:
        """Change the number of LoD levels."""
        self._expect(reader=False, what="one LoD level")
        self.described_var.lod_level = int(lod_level)
        self._touch()

    # ---- readers

    def shapes(self) -> list[list[int]]:
        """The shape of each field of a reader."""
        return [list(field.dims or ()) for field in self._fields()]

    def set_shapes(self, shapes: Iterable[Sequence[int]]) -> None:
        """Change the shapes of the fields of a reader, which has as many from then on."""
        sizes = [tuple(map(int, shape)) for shape in shapes]
        for field, dims in zip(self._resized(len(sizes)), sizes, strict=True):
            field.dims = dims

    def dtypes(self) -> list[VarTypeId]:
        """The element type of each field of a reader."""
        return [var_type(field.element) for field in self._fields()]

    def set_dtypes(self, dtypes: Iterable[int]) -> None:
        """Change the element types of the fields of a reader, which has as many from then on."""
        elements = [DType.of(int(dtype)) for dtype in dtypes]
        for field, element in zip(self._resized(len(elements)), elements, strict=True):
            field.element = element

    def lod_levels(self) -> list[int]:
        """The number of LoD levels of each field of a reader."""
        return [field.lod_level for field in self._fields()]

    def set_lod_levels(self, lod_levels: Iterable[int]) -> None:
        """Change the LoD levels of the fields of a reader, which has as many from then on."""
        levels = [int(level) for level in lod_levels]
        for field, level in zip(self._resized(len(levels)), levels, strict=True):
            field.lod_level = level

    def _fields(self) -> list[ir.VarDesc]:
        self._expect(reader=True, what="several shapes, element types and LoD levels")
        return list(getattr(self.described_var, "fields_read", ()))

    def _resized(self, count: int) -> list[ir.VarDesc]:
        """`count` fields: the existing ones, then new ones."""
        fields = self._fields()[:count]
        fields += [ir.VarDesc(self.described_var.name) for _ in range(count - len(fields))]
        vars(self.described_var)["fields_read"] = fields
        self._touch()
        return fields

    def _expect(self, reader: bool, what: str) -> None:
        if (self.described_var.kind is ir.VarKind.READER) != reader:
            kind = self.described_var.kind.value
            raise CompileError(
                f"variable {self.described_var.name!r} is a {kind}, which does not have {what}"
            )

    def serialize_to_string(self) -> bytes:
        """The `VarDesc` bytes of a saved program."""
        alone = ir.Program()
        alone.blocks[0].vars[self.described_var.name] = self.described_var
        block = program_message(alone).many("blocks", Message)[0]
        return program_dumped(block.many("vars", Message)[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VarDesc) and other.described_var is self.described_var

    def __hash__(self) -> int:
        return hash(id(self.described_var))
