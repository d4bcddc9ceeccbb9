"""Loops of rewritten functions: Python's, or ops of the current program.

A loop is recorded if its test, or what it iterates over, is a variable of a program. The names that
it writes are carried from one iteration to the next, as tensors if their values change. As their
types are known only after the body, a loop is recorded until they agree, and what was recorded
before is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.support.dataclass import dataclass
from fluid.dygraph.dygraph_to_static.branches import convert_if
from fluid.dygraph.dygraph_to_static.program_states import ProgramState
from fluid.dygraph.dygraph_to_static.recorded_blocks import (
    common_sizes,
    list_lengths_differ,
    lists_to_arrays,
    new_block,
    within,
)
from fluid.dygraph.dygraph_to_static.values import (
    MISSING,
    UNDEFINED,
    State,
    Value,
    as_condition,
    as_tensor,
    is_array,
    is_number,
    is_static,
    leaves,
    placeholder,
    rebuilt,
    refilled,
    same,
    same_structure,
    shown,
    truth,
)
from fluid.framework import Variable
from fluid.layers.control.arrays import array_length, array_read
from fluid.layers.control.logic import logical_and, logical_or
from fluid.layers.control.loops import While
from fluid.layers.mathematics.shapes import shape
from fluid.layers.tensor import assign, cast, fill_constant
from fluid.recording.op_records import user_line

__all__ = ["TensorRange", "convert_for", "convert_while"]

Part = Callable[[], Value]


def convert_while(test: Part, body: Part, state: State) -> None:
    """Run a loop in Python, until its test is a tensor; what then remains of it is recorded."""
    while True:
        going = test()
        if is_static(going):
            _record_loop(going, test, body, state)
            return
        if not truth(going):
            return
        body()


class TensorRange:
    """What a `for` statement counts or iterates over, if tensors take part in it."""

    def __init__(
        self, start: Value, stop: Value, step: Value, item: Callable[[Value], Value]
    ) -> None:
        if not is_static(step) and step == 0:
            raise ValueError("range() arg 3 must not be zero")
        self.start, self.stop, self.step, self.item = start, stop, step, item

    @classmethod
    def of(cls, *args: Value) -> TensorRange:
        """Return `range(…)`."""
        start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
        tensor = next(arg for arg in args if is_static(arg))
        kind = tensor.dtype if not tensor.element.is_float else "int64"
        bounds = [cast(x, kind) if is_static(x) else x for x in (start, stop, step)]
        return cls(*bounds, item=lambda index: index)

    @classmethod
    def items(cls, tensor: Variable) -> TensorRange:
        """Return the items along the first axis of a tensor, or those of a tensor array."""
        if is_array(tensor):
            return cls(0, array_length(tensor), 1, lambda index: array_read(tensor, index))
        if not tensor.shape:
            raise TypeError(f"{tensor.name!r} has no axis to iterate over")
        size = tensor.shape[0]
        count = size if size >= 0 else cast(shape(tensor)[0], "int64")
        return cls(0, count, 1, lambda index: tensor[index])

    @classmethod
    def enumerated(cls, iterable: Value, first: Value) -> TensorRange:
        """Return `enumerate(…)`."""
        items = iterable if isinstance(iterable, TensorRange) else cls.items(iterable)
        base = items.start

        def pair(index: Value) -> tuple[Value, Value]:
            number = index if _is_zero(base) else index - base
            if is_static(items.step) or items.step != 1:
                number = number // items.step
            return (number if _is_zero(first) else number + first), items.item(index)

        return cls(items.start, items.stop, items.step, pair)

    def tensors(self) -> tuple[Variable, Variable, Value]:
        """Return start, stop and step, of which start and stop are tensors of one dtype."""
        kinds = [x.dtype for x in (self.start, self.stop, self.step) if is_static(x)]
        kind = kinds[0] if kinds else "int64"
        start, stop = (
            x if is_static(x) else fill_constant([1], kind, x) for x in (self.start, self.stop)
        )
        return start, stop, self.step


def convert_for(
    iterable: Value, body: Callable[[Value], Value], alive: Part | None, state: State
) -> None:
    """Run a loop over items in Python, or record one whose number of items is a tensor.

    `alive` is false after a `break`; once it is a tensor, later iterations are branches.
    """
    if is_static(iterable):
        iterable = TensorRange.items(iterable)
    if isinstance(iterable, TensorRange):
        _record_for(iterable, body, alive, state)
        return
    for item in iterable:
        going = True if alive is None else alive()
        if is_static(going):
            convert_if(going, lambda item=item: body(item), lambda: None, state)
        elif not truth(going):
            break
        else:
            body(item)
        if alive is not None and not is_static(going := alive()) and not truth(going):
            break


def _record_for(
    items: TensorRange, body: Callable[[Value], Value], alive: Part | None, state: State
) -> None:
    start, stop, step = items.tensors()
    counter = [start]

    def test() -> Value:
        index = counter[0]
        if is_static(step):
            up = logical_and(step > 0, index < stop)
            going = logical_or(up, logical_and(step < 0, index > stop))
        else:
            going = index < stop if step > 0 else index > stop
        still = True if alive is None else alive()
        if is_static(still):
            return logical_and(as_condition(still), going)
        return going if truth(still) else False

    def step_once() -> None:
        index = counter[0]
        body(items.item(index))
        counter[0] = index + step

    def set_counter(values: Sequence[Value]) -> None:
        counter[0] = values[0]

    counted = state.extended("_counter", lambda: counter[0], set_counter)
    convert_while(test, step_once, counted)


def _is_zero(number: Value) -> bool:
    return isinstance(number, int) and number == 0


@dataclass
class _Carried:
    """How a value of a loop begins: as a tensor like `like`, of which sizes in `dims` are open."""

    like: Variable | None
    dims: tuple[int, ...] | None = None


def _record_loop(first: Variable, test: Part, body: Part, state: State) -> None:
    """Record a loop. It is tried until the types of its values before and after the body agree."""
    before, program_before = state.saved(), ProgramState()
    plan = _LoopPlan(state)
    for _ in range(16):
        state.restore(before)
        loop_values = plan.begin()
        state.set([rebuilt(value, leaves(value)) for value in loop_values])
        objects = state.current_values()
        condition = assign(as_condition(first))
        with new_block() as block:
            body()
            after = state.current_values()
            again = test()
            kept = plan.compared(loop_values, after)
            if kept:
                going = as_tensor(again) if not is_static(again) else as_condition(again)
                plan.append(loop_values, after)
                assign(going, condition)
        if kept:
            with within(block):
                While(condition).complete()
            finished = zip(state.names, before, objects, after, loop_values, strict=True)
            state.set(
                [
                    refilled(value, new) if old is one else new if name in state.kept else UNDEFINED
                    for name, (value, _), old, one, new in finished
                ]
            )
            return
        program_before.restore()
    raise TypeError(
        f"{user_line()}: the types of the values of this loop change in each iteration: "
        f"{', '.join(state.names)}"
    )


class _LoopPlan:
    """Which values of a loop are tensors that it carries from one iteration to the next."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._carried: dict[tuple[int, int], _Carried] = {}
        self._arrays: set[int] = set()
        self._undefined: dict[int, Value] = {}
        """Values that the body defines, for names without a value before it."""

    def begin(self) -> list[Value]:
        """Return the values with which the first iteration starts; appends what makes them."""
        lists_to_arrays(self._state, self._arrays)
        values: list[Value] = []
        for index, value in enumerate(self._state.current_values()):
            if self._state.names[index] not in self._state.kept:
                values.append(UNDEFINED)
                continue
            if value is UNDEFINED and index in self._undefined:
                value = self._undefined[index]
            flat = [
                self._started(leaf, self._carried.get((index, position)))
                for position, leaf in enumerate(leaves(value))
            ]
            values.append(rebuilt(value, flat))
        return values

    def _started(self, leaf: Value, carried: _Carried | None) -> Value:
        if is_array(leaf):
            return leaf
        if carried is None and not is_static(leaf):
            return leaf
        like = None if carried is None else carried.like
        if leaf is MISSING and like is not None:
            tensor = placeholder(like)
        else:
            tensor = as_tensor(leaf, like)
        out = assign(tensor)
        out.stop_gradient = not out.element.is_float
        if carried is not None and carried.dims is not None:
            out.dims = carried.dims
        return out

    def compared(self, before: Sequence[Value], after: Sequence[Value]) -> bool:
        """Return whether the body leaves the types as they were; otherwise plan other ones.

        Raises TypeError for values that no tensor can have.
        """
        agrees = True
        for index, (name, old, new) in enumerate(
            zip(self._state.names, before, after, strict=True)
        ):
            if name in self._state.kept:
                agrees = self._compared_name(index, name, old, new) and agrees
        return agrees

    def _compared_name(self, index: int, name: str, old: Value, new: Value) -> bool:
        if new is UNDEFINED and old is UNDEFINED:
            return True
        if old is UNDEFINED:
            flat = [MISSING if is_static(leaf) else leaf for leaf in leaves(new)]
            self._undefined[index] = rebuilt(new, flat)
            for position, leaf in enumerate(leaves(new)):
                if is_static(leaf):
                    self._carried[index, position] = _Carried(leaf)
            return False
        if list_lengths_differ(old, new):
            self._arrays.add(index)
            return False
        if not same_structure(old, new):
            raise _changes(name, old, new)
        agrees = True
        for position, pair in enumerate(zip(leaves(old), leaves(new), strict=True)):
            agrees = self._compared_leaf((index, position), name, *pair) and agrees
        return agrees

    def _compared_leaf(self, key: tuple[int, int], name: str, old: Value, new: Value) -> bool:
        if is_array(old) or (not is_static(old) and same(old, new)):
            return True
        if not is_static(old):
            usable = is_number(old) and (is_number(new) or is_static(new))
            if not usable:
                raise _changes(name, old, new)
            like = new if is_static(new) else None
            if like is None and isinstance(new, float) and not isinstance(old, float):
                like = as_tensor(new)
            self._carried[key] = _Carried(like)
            return False
        if not isinstance(new, Variable):
            if not is_number(new):
                raise _changes(name, old, new)
            new = as_tensor(new, old)
        if new.dtype != old.dtype:
            raise TypeError(
                f"{user_line()}: {name!r} is {old.element.text} before a loop on a tensor and "
                f"{new.element.text} after an iteration: cast it to one dtype before the loop"
            )
        if old.dims is None or new.dims is None:
            return True
        if len(old.dims) != len(new.dims):
            raise TypeError(
                f"{user_line()}: {name!r} has shape {list(old.shape)} before a loop on a tensor "
                f"and {list(new.shape)} after an iteration: give it as many axes before the loop"
            )
        sizes = common_sizes(old.dims, new.dims)
        if sizes == old.dims:
            return True
        earlier = self._carried.get(key, _Carried(None))
        self._carried[key] = _Carried(earlier.like, sizes)
        return False

    def append(self, before: Sequence[Value], after: Sequence[Value]) -> None:
        """Append copies of the values after the body to those before it."""
        copies: list[tuple[Variable, Variable]] = []
        for name, old, new in zip(self._state.names, before, after, strict=True):
            if name in self._state.kept and old is not UNDEFINED:
                pairs = zip(leaves(old), leaves(new), strict=True)
                copies += [
                    (one, as_tensor(two, one))
                    for one, two in pairs
                    if is_static(one) and one is not two and not is_array(one)
                ]
        targets = {id(old) for old, _ in copies}
        copies = [(old, assign(new) if id(new) in targets else new) for old, new in copies]
        for old, new in copies:
            dims = old.dims
            assign(new, old)
            old.dims = dims


def _changes(name: str, old: object, new: object) -> TypeError:
    return TypeError(
        f"{user_line()}: {name!r} is {shown(old)} before a loop on a tensor and {shown(new)} after "
        "an iteration: the loop is recorded once, so let it be a tensor of the same dtype and "
        "shape before the loop, or do not change it there"
    )
