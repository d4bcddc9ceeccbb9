"""Conversion of one block: a walk that maps each name to the graph var it denotes at that point.

A name that is written twice becomes several vars; the order of ops is kept. A variable may map to
several vars: its data, and its companions. The LoD of a batch of sequences is one integer var per
level; a sparse gradient is its values and their row indices. What a program leaves implicit is made
explicit here: which outputs share the LoD of an input, and where a sparse gradient is densified for
an op that does not support sparse inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from compiler.errors import CompileError
from compiler.ir.conversion.remote_lookups import as_remote
from compiler.ir.conversion.walk_rules import (
    clobbers,
    deleted_error,
    expanded,
    graph_attributes,
    require_known_size,
)
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.graph import Graph, Var
from compiler.ir.opdef import OpDef, Slot, find, listed
from compiler.ir.opdef.type_inference import bind, check_slots, infer_types, op_text
from compiler.ir.program import EMPTY, GRAD, Block, OpDesc, VarKind
from compiler.ir.types import TOKEN, DType, TensorType, from_fluid

LOD = "@LOD"
"""The separator between a name and a level in the names of LoD offsets."""
ROWS = "@ROWS"
"""The suffix of the names of row indices."""
ORDER = "collectives@ORDER"
"""The name of the tokens that order the collectives of a block."""

_UNUSED_TYPE = TensorType(DType.FP32, (UNKNOWN,))
"""The type of an unused output whose type the op does not infer."""

Slots = dict[str, list[Var]]


@dataclass
class BlockWalk:
    """A walk over one block into one graph; `outer` is the walk over the enclosing block."""

    block: Block
    graph: Graph
    outer: BlockWalk | None = None
    current: dict[str, Var] = field(default_factory=dict[str, Var])
    captured: dict[str, Var] = field(default_factory=dict[str, Var])
    lods: dict[Var, list[Var]] = field(default_factory=dict[Var, list[Var]])
    rows: dict[Var, tuple[Var, Size]] = field(default_factory=dict[Var, tuple[Var, Size]])
    dense: dict[Var, Var] = field(default_factory=dict[Var, Var])
    deleted: dict[str, OpDesc] = field(default_factory=dict[str, OpDesc])
    last_token: Var | None = None

    # ---- ops ----

    def add(self, op: OpDesc) -> None:
        """Add one op of the block to the graph."""
        check_slots(op)
        op = self._variant(as_remote(op))
        inputs = self.inputs(op)
        if steps := expanded(op, inputs):
            for step in steps:
                self.add(step)
            return
        op = OpDesc(op.type, op.inputs, op.outputs, graph_attributes(op), op.source)
        outputs = self.outputs(op, inputs)
        if bind(op).is_ordered():
            inputs, outputs = self.in_order(inputs, outputs)
        self.graph.op(op.type, inputs, outputs, op.attrs, op.source, last=True)
        self._copy_back_state(op, outputs)

    def in_order(self, inputs: Slots, outputs: Slots) -> tuple[Slots, Slots]:
        """Add token slots to a collective, so that it runs after the previous one in this block."""
        before = [self.last_token] if self.last_token is not None else []
        self.last_token = self.graph.another(ORDER, TOKEN)
        return {**inputs, "Before": before}, {**outputs, "After": [self.last_token]}

    def _variant(self, op: OpDesc) -> OpDesc:
        """Return the variant of an op for its attributes, tensor arrays, or sparse inputs."""
        defn = bind(op)
        if kind := defn.attribute_variant():
            return OpDesc(kind, op.inputs, op.outputs, op.attrs, op.source)
        kind = defn.array_variant()
        if kind and any(self.read(name, op).type.is_array for name in op.reads()):
            return OpDesc(kind, op.inputs, op.outputs, {}, op.source)
        kind = defn.sparse_variant()
        return self._sparse_variant(op, kind) if kind and self._is_sparse(op, kind) else op

    def _is_sparse(self, op: OpDesc, kind: str) -> bool:
        """Return whether all inputs are sparse that variant `kind` requires to be sparse."""
        wanted = [slot.of for slot in find(kind).inputs().values() if slot.companion == "rows"]
        names = [name for slot in wanted for name in op.inputs.get(slot, ())]
        return bool(names) and all(self.rows_of(self.read(name, op)) for name in names)

    def _sparse_variant(self, op: OpDesc, kind: str) -> OpDesc:
        """Return the sparse variant; the op itself if that does not accept the inputs."""
        sparse = OpDesc(kind, op.inputs, op.outputs, op.attrs, op.source)
        try:
            defn = bind(sparse)
            defn.infer_types(defn.types_of(self.inputs(sparse)))
        except CompileError:
            return op
        return sparse

    def inputs(self, op: OpDesc) -> Slots:
        """Return the vars an op reads, with the companions that it declares."""
        cls = find(op.type)
        declared = {slot: names for slot, names in op.inputs.items() if slot in cls.slots}
        slots = map_vars(declared, lambda name: self.read(name, op))
        inputs = {slot: self._densify_unsupported(cls, slot, vars) for slot, vars in slots.items()}
        for slot in cls.inputs().values():
            if slot.companion and slot.of:
                inputs[slot.name] = self._companions(op, slot, inputs)
        return {slot: vars for slot, vars in inputs.items() if vars}

    def read(self, name: str, op: OpDesc) -> Var:
        """Return the current var of a name; declares state and captured vars at their first read.

        Raises CompileError if the name has no value or was deleted.
        """
        if name in self.deleted:
            raise deleted_error(name, op, self.deleted[name])
        var = self.lookup(name, op)
        if var is not None:
            return var
        raise CompileError(
            f"variable {name!r} has no value: no op before this one writes it and it is not fed",
            op=op_text(op),
            source=op.source,
            hint="feed it, or let an op before this one write it",
        )

    def lookup(self, name: str, op: OpDesc) -> Var | None:
        """Return the current var of a name, in this or an enclosing block, or None."""
        if name in self.current:
            return self.current[name]
        if self.outer is not None and self.outer.has_value(name):
            return self.capture(name, self.outer.read(name, op))
        return self.param(name) if self.is_state(name) else None

    def has_value(self, name: str) -> bool:
        """Return whether a name has a value in this or an enclosing block."""
        if name in self.current or self.is_state(name):
            return True
        return self.outer is not None and self.outer.has_value(name)

    def capture(self, name: str, var: Var) -> Var:
        """Capture a var of the enclosing graph: declare it as a feed of the body."""
        self.captured[name] = var
        self.current[name] = self.graph.feed(name, var.type)
        return self.current[name]

    def is_state(self, name: str) -> bool:
        """Return whether a name is persistable."""
        desc = self.block.lookup(name)
        return desc is not None and desc.persistable

    def param(self, name: str) -> Var:
        """Declare persistable state in its declared type.

        Raises CompileError if its size is data-dependent, since it could not stay in place.
        """
        type = require_known_size(name, self.declared(name))
        return self.define(name, self.graph.param(name, type))

    def declared(self, name: str) -> TensorType:
        """Return the declared type of a variable; CompileError if it has no declared shape."""
        desc = self.block.lookup(name)
        if desc is None or desc.dims is None:
            raise CompileError(f"variable {name!r} has no declared shape")
        type = from_fluid(desc.dims, desc.element)
        return replace(type, is_array=desc.kind is VarKind.TENSOR_ARRAY)

    def define(self, name: str, var: Var) -> Var:
        """Set the current var of a name."""
        self.deleted.pop(name, None)
        self.current[name] = var
        return var

    # ---- outputs of an op ----

    def outputs(self, op: OpDesc, inputs: Slots) -> Slots:
        """Create the vars an op writes, in the inferred types, and their companions."""
        defn = bind(op)
        inferred = infer_types(defn, defn.types_of(inputs), op)
        outputs = {
            slot: [self._write(op, slot, name, _item(inferred.get(slot), i), inputs)
                   for i, name in enumerate(names)]
            for slot, names in op.outputs.items()
            if slot in defn.slots and any(name != EMPTY for name in names)
        }  # fmt: skip
        written = self._written_companions(defn, outputs, inferred, inputs)
        self._share_companions(defn, inputs, outputs)
        return outputs | written

    def _write(
        self, op: OpDesc, slot: str, name: str, type: TensorType | None, inputs: Slots
    ) -> Var:
        """Create the var for a written name: new, a new version, or state in the same storage.

        An unused output (`@EMPTY@`) among others gets a var too, which keeps the indices.
        """
        if name == EMPTY:
            return self.graph.fresh(f"{slot}@UNUSED", type or _UNUSED_TYPE)
        type = type or self.declared(name)
        previous = self.current.get(name)
        if previous is None and not self.is_state(name):
            return self.define(name, self.graph.another(name, type))
        if previous is None:
            return self.define(name, self.graph.param(name, require_known_size(name, type)))
        state = previous.role == "param"
        if state and clobbers(op, slot, previous, inputs):
            return self.graph.fresh(name + "@new", type)
        return self.define(name, self.graph.next_version(previous, type, same_storage=state))

    def _copy_back_state(self, op: OpDesc, outputs: Slots) -> None:
        """Copy state that an op could not write in place from the temporary it wrote instead."""
        for slot, vars in outputs.items():
            for name, var in zip(op.outputs.get(slot, ()), vars, strict=False):
                if name != EMPTY and self.current.get(name) is not var:
                    last = self.current[name]
                    after = self.graph.next_version(last, var.type, same_storage=True)
                    self.graph.op(copying(var), {"X": [var]}, {"Out": [after]}, last=True)
                    if rows := self.rows_of(var):
                        self.rows[after] = rows
                    self.define(name, after)

    # ---- companions of inputs ----

    def _companions(self, op: OpDesc, slot: Slot, inputs: Slots) -> list[Var]:
        """Return the vars for a companion slot; empty if there are none."""
        if slot.companion == "previous":
            names = [name for name in op.outputs.get(slot.of, ()) if name != EMPTY]
            return [var for name in names[:1] if (var := self.lookup(name, op)) is not None]
        vars = inputs.get(slot.of) or inputs.get(slot.of + GRAD) or []
        if slot.companion == "rows":
            return [self.rows_of(var)[0] for var in vars if self.rows_of(var)]
        return self._offsets(op, slot, vars)

    def _offsets(self, op: OpDesc, slot: Slot, vars: Sequence[Var]) -> list[Var]:
        """Return all LoD levels of the var in a slot; for a `many` slot, the innermost of each."""
        levels = [self.lod_of(var) for var in vars]
        bare = [var.label for var, lod in zip(vars, levels, strict=True) if not lod]
        if bare and slot.needed:
            raise CompileError(
                f"{op.type} reads sequences, but {bare[0]!r} has no LoD",
                op=op_text(op),
                source=op.source,
                hint="feed sequences: fluid.create_lod_tensor(data, [lengths], place)",
            )
        if bare or not levels:
            return []
        many = find(op.type).slots.get(slot.of, Slot()).many
        return [lod[-1] for lod in levels] if many else levels[0]

    def lod_of(self, var: Var) -> list[Var]:
        """Return the levels of a var's LoD, outermost first; empty without LoD."""
        if var not in self.lods:
            self.lods[var] = [self.see(level) for level in self._outer(var, BlockWalk.lod_of) or ()]
        return self.lods[var]

    def rows_of(self, var: Var) -> Any:
        """Return the row indices and the number of dense rows of a sparse var, or None."""
        rows = self.rows.get(var) or self._outer(var, BlockWalk.rows_of)
        if rows is not None and var not in self.rows:
            self.rows[var] = (self.see(rows[0]), rows[1])
        return self.rows.get(var)

    def _outer(self, var: Var, query: Callable[[BlockWalk, Var], Any]) -> Any:
        """Query the enclosing walk about a captured var; None if the var is not captured."""
        captured = self.captured.get(var.name) if var.role == "feed" else None
        return None if captured is None or self.outer is None else query(self.outer, captured)

    def see(self, var: Var) -> Var:
        """Return the captured version of a var of the enclosing graph."""
        name = var.label
        return self.current[name] if name in self.captured else self.capture(name, var)

    def _densify_unsupported(self, cls: type[OpDef], slot: str, vars: list[Var]) -> list[Var]:
        """Densify sparse inputs unless the op supports row indices for all vars of the slot."""
        sparse = [var for var in vars if self.rows_of(var)]
        knows = cls.rows_like == slot or any(
            other.companion == "rows" and other.of == slot for other in cls.inputs().values()
        )
        if not sparse or (knows and len(sparse) == len(vars)):
            return vars
        return [self.densified(var) for var in vars]

    def densified(self, var: Var) -> Var:
        """Return a var as a dense tensor; converts a sparse one once."""
        rows = self.rows_of(var)
        if not rows:
            return var
        if var not in self.dense:
            shape = (rows[1], *var.type.shape[1:])
            whole = self.graph.another(var.name, var.type.with_shape(shape))
            inputs = {"X": [var], "X_rows": [rows[0]]}
            attrs = {"height": rows[1]}
            self.graph.op("densify_rows", inputs, {"Out": [whole]}, attrs, last=True)
            self.dense[var] = whole
        return self.dense[var]

    # ---- companions of outputs ----

    def _written_companions(
        self, defn: OpDef, outputs: Slots, inferred: Mapping[str, Any], inputs: Slots
    ) -> Slots:
        """Create vars for the companions that an op writes itself.

        In a `many` slot each item has a single level.
        """
        written: Slots = {}
        for slot in defn.outputs().values():
            types = listed(inferred.get(slot.name) or []) if slot.of else []
            vars = outputs.get(slot.of, [])
            many = defn.slots.get(slot.of, Slot()).many
            pairs = list(zip(vars, types, strict=False)) if many else [(v, types) for v in vars[:1]]
            for var, own in pairs:
                companions = [self._companion(var, slot, i, t) for i, t in enumerate(listed(own))]
                if slot.companion == "lod":
                    self.lods[var] = companions
                elif companions:
                    self.rows[var] = (companions[0], self._dense_rows(slot, inputs))
                if companions:
                    written.setdefault(slot.name, []).extend(companions)
        return written

    def _companion(self, var: Var, slot: Slot, index: int, type: TensorType) -> Var:
        name = var.name + (f"{LOD}{index}" if slot.companion == "lod" else ROWS)
        return self.graph.another(name, type)

    def _dense_rows(self, slot: Slot, inputs: Slots) -> Size:
        """Return the number of dense rows: of the parameter, or of a sparse input."""
        owner = inputs.get(slot.of.removesuffix(GRAD), [])
        if slot.of.endswith(GRAD) and owner:
            return owner[0].type.shape[0]
        candidates = (self.rows_of(var) for vars in inputs.values() for var in vars)
        return next(rows[1] for rows in candidates if rows)

    def _share_companions(self, defn: OpDef, inputs: Slots, outputs: Slots) -> None:
        """Let outputs share the LoD and the row indices of the inputs that the op declares."""
        first = next((slot for slot in defn.inputs() if inputs.get(slot)), "")
        lod_slot = first if defn.lod_source is None else defn.lod_source
        like = inputs.get(lod_slot, ())[:1]
        rows = [self.rows_of(var) for var in inputs.get(defn.rows_like, ())[:1]]
        slots = defn.outputs()
        for slot, var in ((slot, var) for slot, vars in outputs.items() for var in vars):
            sources = like if slot not in slots or slots[slot].shares_lod else []
            self._share_lod(var, [*sources, *self._variable_of(var)])
            if rows and rows[0]:
                self.rows[var] = rows[0]
        if defn.concatenates_rows({slot: vars[0].type.rank for slot, vars in inputs.items()}):
            self._join_lods(outputs["Out"][0], inputs["X"])

    def _join_lods(self, out: Var, vars: Sequence[Var]) -> None:
        """Concatenate the LoD of the inputs for an op that concatenates rows, if all have LoD."""
        lods = [self.lod_of(var) for var in vars]
        levels = [*zip(*lods, strict=False)] if len({*map(len, lods)}) == 1 else []
        self.lods[out] = [
            self._concatenated_level(out, i, level_lods) for i, level_lods in enumerate(levels)
        ]

    def _concatenated_level(self, out: Var, index: int, level: Sequence[Var]) -> Var:
        """Add the op that concatenates one LoD level of several vars."""
        count = sum((item.type.shape[0] - 1 for item in level[1:]), start=level[0].type.shape[0])
        joined = self.graph.another(f"{out.name}{LOD}{index}", level[0].type.with_shape((count,)))
        self.graph.op("join_offsets", {"X": list(level)}, {"Out": [joined]}, last=True)
        return joined

    def _share_lod(self, var: Var, like: Sequence[Var]) -> None:
        if var in self.lods or not var.type.shape:
            return
        for source in like:
            same = source.type.shape[:1] == var.type.shape[:1]
            if same and self.lod_of(source):
                self.lods[var] = self.lod_of(source)

    def _variable_of(self, var: Var) -> list[Var]:
        """Return the current var of the variable whose gradient, or partial gradient, a var is."""
        variable = var.name.partition(GRAD)[0] if GRAD in var.name else ""
        current = self.current.get(variable)
        return [] if current is None else [current]


def map_vars(slots: Mapping[str, Sequence[str]], find: Callable[[str], Var]) -> Slots:
    """Map names in slots to vars; omits empty slots."""
    mapped = {slot: [find(n) for n in names if n != EMPTY] for slot, names in slots.items()}
    return {slot: vars for slot, vars in mapped.items() if vars}


def copying(var: Var) -> str:
    """Return the kind of the op that copies a var."""
    return "copy_array" if var.type.is_array else "assign"


def _item(inferred: Any, index: int) -> TensorType | None:
    return cast("list[TensorType]", inferred)[index] if isinstance(inferred, list) else inferred
