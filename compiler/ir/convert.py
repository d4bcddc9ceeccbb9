"""Program ⇄ Graph. A name written twice becomes several vars; the order of ops is kept.

Sizes a program leaves open (-1) get names here: the caller says the shapes of the feeds, as
numbers or as named `Dim`s, and every op infers the rest. What a run leaves behind in persistable
variables is what the last version of each holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from compiler.errors import CompileError, did_you_mean
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.infer import bind, check_slots, infer_types, op_text
from compiler.ir.opdef import Pointwise, find
from compiler.ir.program import EMPTY, Block, BlockRef, OpDesc, Program
from compiler.ir.types import Shape, TensorType, from_fluid, to_fluid

SUB_BLOCK = "sub_block"
CAPTURED = "Input"
"""The slot of a block-owning op whose vars its body sees as feeds."""
WRITTEN = "Out"
"""The slot of a block-owning op whose vars its body's results become."""
_EDGES = ("feed", "fetch")


def to_graph(
    program: Program, feed: Mapping[str, Shape], fetch: Sequence[str], name: str = "main"
) -> Graph:
    """The main block as a graph: `feed` maps names to shapes, `fetch` names what to return.

    Raises CompileError for an unknown op, a variable nobody writes or feeds, an unknown fetch,
    and whatever types do not go together, with the op and the user's line.
    """
    scan = _Scan(program.blocks[0], Graph(name))
    for var, shape in feed.items():
        scan.feed(var, shape)
    for op in program.blocks[0].ops:
        if op.type not in _EDGES:
            scan.add(op)
    scan.graph.results = [scan.result(fetched) for fetched in fetch]
    return scan.graph


@dataclass
class _Scan:
    """One walk over a block: which var a name stands for right now."""

    block: Block
    graph: Graph
    outer: _Scan | None = None
    current: dict[str, Var] = field(default_factory=dict[str, Var])
    captured: dict[str, Var] = field(default_factory=dict[str, Var])

    def feed(self, name: str, shape: Shape) -> None:
        """Declare a feed in the shape the caller gives and the declared element type."""
        desc = self.block.lookup(name)
        if desc is None:
            raise CompileError(f"feed {name!r} is not a variable of the program")
        self.current[name] = self.graph.feed(name, TensorType(desc.element, tuple(shape)))

    def result(self, name: str) -> Var:
        """The var a fetched name stands for at the end."""
        if name not in self.current and self._is_state(name):
            return self._param(name)
        if name not in self.current:
            raise CompileError(
                f"fetch {name!r} is not a variable the program computes",
                hint=did_you_mean(name, self.current),
            )
        return self.current[name]

    def add(self, op: OpDesc) -> None:
        """Add one op of the block to the graph."""
        check_slots(op)
        if SUB_BLOCK in op.attrs:
            self._add_with_body(op)
            return
        inputs = _each(op.inputs, lambda name: self.read(name, op))
        outputs = self._outputs(op, inputs)
        self.graph.op(op.type, inputs, outputs, op.attrs, op.source, last=True)
        self._settle(op, outputs)

    def read(self, name: str, op: OpDesc) -> Var:
        """The var a name stands for; state and captured vars are declared when first read."""
        if name in self.current:
            return self.current[name]
        if self.outer is not None and self.outer.sees(name):
            return self.capture(name, self.outer.read(name, op))
        if self._is_state(name):
            return self._param(name)
        raise CompileError(
            f"variable {name!r} has no value: no op before this one writes it and it is not fed",
            op=op_text(op),
            source=op.source,
            hint="feed it, or let an op before this one write it",
        )

    def sees(self, name: str) -> bool:
        """True where a name has a value here or further out."""
        if name in self.current or self._is_state(name):
            return True
        return self.outer is not None and self.outer.sees(name)

    def capture(self, name: str, var: Var) -> Var:
        """Let the body see a var of the graph around it."""
        self.captured[name] = var
        self.current[name] = self.graph.feed(name, var.type)
        return self.current[name]

    def _is_state(self, name: str) -> bool:
        desc = self.block.lookup(name)
        return desc is not None and desc.persistable

    def _param(self, name: str) -> Var:
        self.current[name] = self.graph.param(name, self._declared(name))
        return self.current[name]

    def _declared(self, name: str) -> TensorType:
        desc = self.block.lookup(name)
        if desc is None or desc.dims is None:
            raise CompileError(f"variable {name!r} has no declared shape")
        return from_fluid(desc.dims, desc.element)

    def _outputs(self, op: OpDesc, inputs: Mapping[str, list[Var]]) -> dict[str, list[Var]]:
        """Vars for what an op writes, in the types it infers."""
        defn = bind(op)
        inferred = infer_types(defn, defn.types_of(inputs), op)
        return {
            slot: [self._write(op, slot, name, _item(inferred.get(slot), i), inputs)
                   for i, name in enumerate(names) if name != EMPTY]
            for slot, names in op.outputs.items()
            if names
        }  # fmt: skip

    def _write(
        self, op: OpDesc, slot: str, name: str, type: TensorType | None,
        inputs: Mapping[str, list[Var]],
    ) -> Var:  # fmt: skip
        """The var for one written name: new, a new version, or new state in the same storage."""
        type = type or self._declared(name)
        previous = self.current.get(name)
        if previous is None and not self._is_state(name):
            return self._note(name, self.graph.var(name, type))
        if previous is None:
            return self._note(name, self.graph.param(name, type))
        state = previous.role == "param"
        if state and _clobbers(op, slot, previous, inputs):
            return self.graph.fresh(name + "@new", type)
        return self._note(name, self.graph.next_version(previous, type, same_storage=state))

    def _note(self, name: str, var: Var) -> Var:
        self.current[name] = var
        return var

    def _settle(self, op: OpDesc, outputs: Mapping[str, list[Var]]) -> None:
        """Copy state that an op could not write in place from the temporary it wrote instead."""
        for slot, vars in outputs.items():
            names = [name for name in op.outputs[slot] if name != EMPTY]
            for name, var in zip(names, vars, strict=True):
                if self.current.get(name) is not var:
                    last = self.current[name]
                    after = self.graph.next_version(last, var.type, same_storage=True)
                    self.graph.op("assign", {"X": [var]}, {"Out": [after]}, last=True)
                    self._note(name, after)

    # ---- ops that own a block ----

    def _add_with_body(self, op: OpDesc) -> None:
        block = self.block.owner.blocks[int(op.attrs[SUB_BLOCK])]
        inner = _Scan(block, Graph(f"block_{block.idx}"), self)
        for name in _written_outside(block):
            if self.sees(name):
                inner.capture(name, self.read(name, op))
        for each in block.ops:
            inner.add(each)
        written = [name for name in _written_outside(block) if name in inner.current]
        inner.graph.results = [inner.current[name] for name in written]
        known = {s: n for s, n in op.inputs.items() if s != CAPTURED}
        inputs = _each(known, lambda name: self.read(name, op))
        inputs[CAPTURED] = list(inner.captured.values())
        outputs = {WRITTEN: [self._carry(name, inner.current[name].type) for name in written]}
        attrs = {name: value for name, value in op.attrs.items() if name != SUB_BLOCK}
        self.graph.op(op.type, inputs, outputs, attrs, op.source, inner.graph, last=True)

    def _carry(self, name: str, type: TensorType) -> Var:
        """The var a body leaves behind: it lives where the value stood before, if there was one."""
        previous = self.current.get(name)
        if previous is None:
            return self._note(name, self.graph.var(name, type))
        if previous.role == "feed":
            previous = self._copy(previous)
        return self._note(name, self.graph.next_version(previous, type, same_storage=True))

    def _copy(self, feed: Var) -> Var:
        """A temporary with a feed's value, for what must not be written over."""
        copy = self.graph.next_version(feed, feed.type, same_storage=False)
        self.graph.op("assign", {"X": [feed]}, {"Out": [copy]}, last=True)
        return copy


def _written_outside(block: Block) -> list[str]:
    """Names a block writes that belong to a block around it, in order of first write."""
    written = dict.fromkeys(name for op in block.ops for name in op.writes())
    return [name for name in written if name not in block.vars]


def _clobbers(op: OpDesc, slot: str, previous: Var, inputs: Mapping[str, list[Var]]) -> bool:
    """True where an op reads storage that it writes through another slot than the declared one."""
    cls = find(op.type)
    allowed = cls.slots[slot].inplace
    slots = [s for s, vars in inputs.items() if previous in vars and s != allowed]
    return bool(slots) and not issubclass(cls, Pointwise)


def _each(slots: Mapping[str, Sequence[str]], find: Callable[[str], Var]) -> dict[str, list[Var]]:
    found = {slot: [find(n) for n in names if n != EMPTY] for slot, names in slots.items()}
    return {slot: vars for slot, vars in found.items() if vars}


def _item(inferred: Any, index: int) -> TensorType | None:
    return cast("list[TensorType]", inferred)[index] if isinstance(inferred, list) else inferred


# ---- Graph → Program ---------------------------------------------------------------------------


def to_program(graph: Graph, like: Program | None = None) -> Program:
    """The graph as a program with one op a node, in the graph's order.

    Versions go back to one name where the order allows it. `like` lends what a graph does not
    keep of its variables (`lod_level`, `stop_gradient`, …).
    """
    program = Program()
    _write_block(program, program.blocks[0], graph, like, {})
    return program


def _write_block(
    program: Program, block: Block, graph: Graph, like: Program | None, outer: Mapping[Var, str]
) -> None:
    names = {**_names(graph), **outer}
    for var in graph.vars():
        if var not in outer:
            _declare(block, names[var], var, like)
    for op in graph.ops():
        slots = [_named(side, names) for side in (op.inputs, op.outputs)]
        attrs = dict(op.attrs)
        if op.body is not None:
            attrs[SUB_BLOCK] = _write_body(program, block, op, op.body, like, names)
        block.add_op(op.kind, slots[0], slots[1], attrs, op.source)


def _write_body(
    program: Program, block: Block, op: Op, body: Graph, like: Program | None,
    names: Mapping[Var, str],
) -> BlockRef:  # fmt: skip
    inner = program.add_block(block.idx)
    pairs = [*zip(body.feeds(), op.inputs.get(CAPTURED, []), strict=True)]
    pairs += zip(body.results, op.outputs.get(WRITTEN, []), strict=True)
    _write_block(program, inner, body, like, {mine: names[theirs] for mine, theirs in pairs})
    return BlockRef(inner.idx)


def _named(slots: Mapping[str, Sequence[Var]], names: Mapping[Var, str]) -> dict[str, list[str]]:
    return {slot: [names[var] for var in vars] for slot, vars in slots.items()}


def _names(graph: Graph) -> dict[Var, str]:
    """Names for all vars: their own, except where an earlier version is read too late for that."""
    step = {op: index for index, op in enumerate(graph.ops())}
    names: dict[Var, str] = {}
    for var in graph.vars():
        before, writer = graph.find(var.name, var.version - 1), graph.producer(var)
        readers = graph.readers(before) if before is not None else []
        late = writer is not None and any(step[r] > step[writer] for r in readers)
        names[var] = var.label.replace("#", "@v") if late else var.name
    return names


def _declare(block: Block, name: str, var: Var, like: Program | None) -> None:
    known = like.blocks[0].lookup(name) if like is not None else None
    if name in block.vars:
        return
    block.add_var(
        name,
        shape=to_fluid(var.type.shape),
        dtype=var.type.dtype,
        persistable=var.role == "param",
        lod_level=known.lod_level if known else 0,
        stop_gradient=known.stop_gradient if known else False,
        is_parameter=known.is_parameter if known else False,
    )
