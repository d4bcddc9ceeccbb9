"""The companions of the vars of a block: the LoD of sequences and the row indices of sparse values.

The LoD of a batch of sequences is one integer var per level, outermost first; a sparse gradient is
its values and the indices of their rows. A program leaves implicit which outputs share the LoD of
an input and where a sparse value must be dense; both are explicit in a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from compiler.errors import CompileError
from compiler.ir.conversion.current_vars import CurrentVars
from compiler.ir.dims import Size
from compiler.ir.graph import Graph, Var
from compiler.ir.opdef import OpDef, Slot, find, listed
from compiler.ir.opdef.type_inference import op_text
from compiler.ir.program import GRAD, OpDesc
from compiler.ir.types import TensorType

LOD = "@LOD"
"""The separator between a name and a level in the names of LoD offsets."""
ROWS = "@ROWS"
"""The suffix of the names of row indices."""

Slots: TypeAlias = "dict[str, list[Var]]"
"""The vars of an op by slot."""


class Companions:
    """The LoD and the row indices of the vars of a block; `outer` has those of the enclosing block.

    A captured var has the companions that it has outside, which are captured when they are asked
    for. `lods` maps vars to their levels, `rows` to their row indices and number of dense rows.
    """

    def __init__(self, graph: Graph, current: CurrentVars, outer: Companions | None) -> None:
        self._graph, self._current, self._outer = graph, current, outer
        self.lods: dict[Var, list[Var]] = {}
        self.rows: dict[Var, tuple[Var, Size]] = {}
        self._dense: dict[Var, Var] = {}

    def lod_of(self, var: Var) -> list[Var]:
        """Return the levels of a var's LoD, outermost first; empty without LoD."""
        if var not in self.lods:
            levels = self._ask_outer(var, Companions.lod_of) or ()
            self.lods[var] = [self._current.inside(level) for level in levels]
        return self.lods[var]

    def rows_of(self, var: Var) -> Any:
        """Return the row indices and the number of dense rows of a sparse var, or None."""
        rows = self.rows.get(var) or self._ask_outer(var, Companions.rows_of)
        if rows is not None and var not in self.rows:
            self.rows[var] = (self._current.inside(rows[0]), rows[1])
        return self.rows.get(var)

    def _ask_outer(self, var: Var, query: Callable[[Companions, Var], Any]) -> Any:
        """Query the enclosing block about a captured var; None if the var is not captured."""
        captured = self._current.captured.get(var.name) if var.role == "feed" else None
        return None if captured is None or self._outer is None else query(self._outer, captured)

    def densified(self, var: Var) -> Var:
        """Return a var as a dense tensor; converts a sparse one once."""
        rows = self.rows_of(var)
        if not rows:
            return var
        if var not in self._dense:
            shape = (rows[1], *var.type.shape[1:])
            whole = self._graph.another(var.name, var.type.with_shape(shape))
            inputs = {"X": [var], "X_rows": [rows[0]]}
            attrs = {"height": rows[1]}
            self._graph.op("densify_rows", inputs, {"Out": [whole]}, attrs, last=True)
            self._dense[var] = whole
        return self._dense[var]

    # ---- of inputs ----

    def densify_unsupported(self, cls: type[OpDef], slot: str, vars: list[Var]) -> list[Var]:
        """Densify sparse inputs unless the op supports row indices for all vars of the slot."""
        sparse = [var for var in vars if self.rows_of(var)]
        if not sparse:
            return vars
        supported = cls.rows_like == slot or any(
            other.companion == "rows" and other.of == slot for other in cls.inputs().values()
        )
        if supported and len(sparse) == len(vars):
            return vars
        return [self.densified(var) for var in vars]

    def of_inputs(self, op: OpDesc, slot: Slot, inputs: Slots) -> list[Var]:
        """Return the vars for a companion slot of an op; empty if there are none.

        Raises CompileError where the op needs the LoD of a var that has none.
        """
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

    # ---- of outputs ----

    def create(
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
                companions = [self._created(var, slot, i, t) for i, t in enumerate(listed(own))]
                if slot.companion == "lod":
                    self.lods[var] = companions
                elif companions:
                    self.rows[var] = (companions[0], self._dense_rows(slot, inputs))
                if companions:
                    written.setdefault(slot.name, []).extend(companions)
        return written

    def _created(self, var: Var, slot: Slot, index: int, type: TensorType) -> Var:
        name = var.name + (f"{LOD}{index}" if slot.companion == "lod" else ROWS)
        return self._graph.another(name, type)

    def _dense_rows(self, slot: Slot, inputs: Slots) -> Size:
        """Return the number of dense rows: of the parameter, or of a sparse input."""
        owner = inputs.get(slot.of.removesuffix(GRAD), [])
        if slot.of.endswith(GRAD) and owner:
            return owner[0].type.shape[0]
        candidates = (self.rows_of(var) for vars in inputs.values() for var in vars)
        return next(rows[1] for rows in candidates if rows)

    def share(self, defn: OpDef, inputs: Slots, outputs: Slots) -> None:
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
        joined = self._graph.another(f"{out.name}{LOD}{index}", level[0].type.with_shape((count,)))
        self._graph.op("join_offsets", {"X": list(level)}, {"Out": [joined]}, last=True)
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
        return [self._current[variable]] if variable in self._current else []
