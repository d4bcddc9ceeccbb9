"""Emits the expressions of a kernel: scalars, or vectors along the lane axis."""

from __future__ import annotations

from typing import cast

from compiler.codegen.kernel.analysis import operand_types
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.functions import Lowering, lowering
from compiler.codegen.native.functions.exponentials import bounded_exp
from compiler.codegen.native.llvm_ir import (
    F64,
    I1,
    I64,
    Type,
    Value,
    constant,
)
from compiler.codegen.native.loops.arguments import Arguments
from compiler.codegen.native.loops.body import Axes, Body, NotLowered
from compiler.codegen.native.loops.forms import Form
from compiler.codegen.native.loops.indices import IndexEmitter
from compiler.codegen.native.loops.memory import MemoryEmitter
from compiler.codegen.native.loops.row_cache import RowCache
from compiler.codegen.native.loops.scopes import Scopes
from compiler.codegen.native.loops.types import (
    REGISTER,
    convert,
    literal,
    narrow_type,
    rounded,
    stored_type,
)
from compiler.codegen.native.philox import DRAWS, below, uniform_in_order
from compiler.codegen.trace import Expr, Term, ordered
from compiler.ir.dims import is_multiple
from compiler.ir.types import HALVES, DType


class ValueEmitter:
    """Emits expressions: their indices, their loads, and the arithmetic."""

    def __init__(self, body: Body, scopes: Scopes, arguments: Arguments) -> None:
        self.body = body
        self.scopes = scopes
        self.f = scopes.f
        self.arguments = arguments
        self.indices = IndexEmitter(body, scopes, arguments, self)
        self.memory = MemoryEmitter(body, self.indices, self)
        self.row_cache = RowCache(body, self.indices)

    def value(self, term: Term, dtype: DType | None = None) -> Value:
        """A term in registers; a number is of the dtype."""
        if not isinstance(term, Expr):
            return literal(REGISTER[dtype or DType.FP32], term)
        known = self._known(term)
        if known is not None:
            return known
        for part in ordered(term, below=self._missing):
            self._computed(part)
        return self._computed(term)

    def _missing(self, part: Expr) -> list[Expr]:
        """The operands of a part; none if it is known already."""
        known = part in self.row_cache or self._known(part) is not None
        return [] if known else self.body.operands(part)

    def _known(self, part: Expr) -> Value | None:
        return self.scopes.lookup(part, self.body.axes(part))

    def _computed(self, part: Expr) -> Value:
        return self.scopes.hoisted(part, self.body.axes(part), lambda: self._emit(part))

    def _emit(self, part: Expr) -> Value:
        cached = self.row_cache.load(part)
        if cached is not None:
            return cached
        if part.dtype is DType.INT64:
            form = self.body.forms.of(part)
            if not form.coefficient(part):
                return self._index_value(part, form)
        match part.fn:
            case "load":
                return self.memory.load(part)
            case "astype":
                return self._cast(part)
            case "full":
                return literal(REGISTER[part.dtype], cast(float, part.args[0]))
            case "index_div" | "index_mod":
                return self._divided(part)
            case "key":
                return self._key(cast(NumpyOperand, part.extra))
            case fn if fn in DRAWS:
                return self._drawn(part)
            case "reduce" | "scan":
                raise NotLowered(f"a {part.fn} over a loop that another loop's end depends on")
            case _:
                return self._call(part)

    # ---- random numbers ----

    def _drawn(self, part: Expr) -> Value:
        """A random number from a key and an element's index."""
        lanes = self.scopes.lanes_of(self.body.axes(part))
        key = self.value(part.args[0])
        stream = cast(int, part.extra)
        if part.fn == "uniform" and part.dtype is not DType.FP64 and self._is_in_order(part):
            return self._drawn_in_order(part, key, stream)
        index, *span = (self._as(each, DType.INT64, I64, lanes) for each in part.args[1:])
        if part.fn == "below":
            return convert(self.f, below(self.f, key, stream, index, *span), DType.INT64,
                           self._element(part))  # fmt: skip
        return DRAWS[part.fn](self.f, key, stream, index, part.dtype)

    def _key(self, keys: NumpyOperand) -> Value:
        """The first of a tensor of keys."""
        dtype = keys.type.dtype
        found = self.f.load(stored_type(dtype), self.arguments.pointer(keys))
        return convert(self.f, found, dtype, I64)

    def _is_in_order(self, part: Expr) -> bool:
        """True if lanes draw for consecutive elements from a multiple of four."""
        lanes = self.scopes.lanes
        if not lanes.count or lanes.axis is None or lanes.count % 4:
            return False
        form = self.indices.expanded(self.body.forms.of(part.args[1]))
        rest = [factor for atom, factor in form.terms if atom is not lanes.axis]
        return form.coefficient(lanes.axis) == 1 and all(
            is_multiple(each, 4) for each in (*rest, form.offset)
        )

    def _drawn_in_order(self, part: Expr, key: Value, stream: int) -> Value:
        """Draw for lanes, and for those of the next copy, which share blocks."""
        scopes, lane, lanes = self.scopes, self.scopes.lanes.axis, self.scopes.lanes.count
        assert lane is not None
        offset = scopes.copy[lane]
        later = {**scopes.copy, lane: offset + lanes}
        vectors = 2 if offset // lanes % 2 == 0 and later in scopes.copies else 1
        first = self.indices.index(self.body.forms.of(part.args[1]))
        drawn = uniform_in_order(self.f, key, stream, first, lanes, vectors)
        if vectors == 2:
            with scopes.in_copy(later):
                scopes.hoisted(part, self.body.axes(part), lambda: drawn[1])
        return drawn[0]

    # ---- integers ----

    def _index_value(self, part: Expr, form: Form) -> Value:
        """The value of an affine form."""
        if not self.scopes.is_vector(self.body.axes(part)):
            return self.indices.index(form)
        first, element = self.indices.index(form), I64
        if self.body.forms.is_narrow(part):
            element = narrow_type()
            first = self.f.convert("trunc", first, element)
        lanes = self.f.splat(first, self.scopes.lanes.count)
        return self.f.add(lanes, self.indices.lane_index(form, element))

    def as_index(self, part: Expr) -> Value:
        """An integer expression as an i64 scalar."""
        value = self.value(part)
        if value.type == I64:
            return value
        make = lambda: convert(self.f, value, part.dtype, I64)  # noqa: E731
        return self.scopes.hoisted(("index", part), self.body.axes(part), make)

    def as_lanes(self, part: Expr, element: Type) -> Value:
        """An integer expression as a vector of a type."""
        return convert(self.f, self.value(part), part.dtype, element)

    def _divided(self, part: Expr) -> Value:
        """The quotient or remainder of two indices that are not negative.

        An open size may be 0, by which CPUs do not divide: it counts as 1, in an empty loop.
        """
        lanes = self.scopes.lanes_of(self.body.axes(part))
        narrow = all(self.body.forms.is_narrow(each) for each in part.args)
        element = narrow_type() if narrow else I64
        a, b = (self._as(each, DType.INT64, element, lanes) for each in part.args)
        name = "udiv" if part.fn == "index_div" else "urem"
        if b.name.startswith("%"):
            one = constant(b.type.scalar, 1)
            b = self.f.intrinsic("umax", b, self.f.splat(one, lanes))
        if lanes and b.name.startswith("%"):
            return self._divided_lanes(part, a, b)
        found = self.f.binary(name, a, b)
        return found if lanes else convert(self.f, found, DType.INT64, I64)

    def _divided_lanes(self, part: Expr, a: Value, b: Value) -> Value:
        """Divide vectors as floats of 64 bits, which is exact for numbers below 2**53."""
        f = self.f
        floats = [f.convert("sitofp", each, F64) for each in (a, b)]
        quotient = f.convert("fptosi", f.div(*floats), a.type)
        if part.fn == "index_div":
            return quotient
        return f.sub(a, f.mul(quotient, b))

    # ---- calls ----

    def _cast(self, part: Expr) -> Value:
        (inner,) = part.args
        if not isinstance(inner, Expr):
            return literal(REGISTER[part.dtype], inner)
        value = convert(self.f, self.value(inner), inner.dtype, self._element(part))
        if part.dtype in HALVES and inner.dtype is not part.dtype:
            return rounded(self.f, value, part.dtype)
        return value

    def _element(self, part: Expr) -> Type:
        """The type in which an expression's values are held."""
        if part.dtype is DType.INT64 and self.scopes.lanes_of(self.body.axes(part)):
            return narrow_type() if self.body.forms.is_narrow(part) else I64
        return REGISTER[part.dtype]

    def _call(self, part: Expr) -> Value:
        axes = self.body.axes(part)
        lanes = self.scopes.lanes_of(axes)
        wanted = _operand_types(part)
        args = [self._argument_of(part, n, kind, lanes) for n, kind in enumerate(wanted)]
        args = self._unified(part, args)
        if _divides_by_exponentials(part) and not self.scopes.is_vector(
            self.body.axes(part.args[1])
        ):
            return self._scaled(part, args[0])
        function = _function(
            part.fn, next((each for each in wanted if each is not None), part.dtype)
        )
        if part.fn == "exp" and _is_moderate(part.args[0]):
            function = bounded_exp
        found = function(self.f, *args)
        if part.dtype is DType.INT64:
            return convert(self.f, found, part.dtype, self._element(part))
        return rounded(self.f, found, part.dtype)

    def _scaled(self, part: Expr, value: Value) -> Value:
        """A quotient by a sum of exponentials, by its reciprocal: softmax divides each element."""
        divisor = cast(Expr, part.args[1])
        axes, total = self.body.axes(divisor), self.value(divisor)
        make = lambda: self.f.div(constant(total.type, 1.0), total)  # noqa: E731
        inverse = self.scopes.hoisted(("reciprocal", divisor), axes, make)
        return self.f.mul(
            value, self.spread(("reciprocal", divisor), axes, inverse, value.type.lanes)
        )

    def _argument_of(self, part: Expr, number: int, kind: DType | None, lanes: int) -> Value:
        term = part.args[number]
        dtype = kind or (term.dtype if isinstance(term, Expr) else part.dtype)
        return self._as(term, dtype, self._held(term, dtype, lanes), lanes)

    def _held(self, term: Term, dtype: DType, lanes: int) -> Type:
        """The type of an operand cast to a dtype: indices of lanes may be narrow."""
        if dtype is DType.INT64 and lanes and self.body.forms.is_narrow(term):
            return narrow_type()
        return REGISTER[dtype]

    def _unified(self, part: Expr, args: list[Value]) -> list[Value]:
        """Narrow and wide integers made equal; results that need 64 bits are computed in them."""
        elements = {a.type.element for a in args}
        if (
            part.dtype is DType.INT64
            and elements == {narrow_type().element}
            and not self.body.forms.is_narrow(part)
        ):
            elements.add("i64")
        if I64.element not in elements or len(elements) == 1:
            return args
        narrow = narrow_type().element
        return [
            convert(self.f, a, DType.INT64, I64) if a.type.element == narrow else a for a in args
        ]

    def _as(self, term: Term, dtype: DType, element: Type, lanes: int) -> Value:
        """A term cast to a dtype, in a type and a number of lanes."""
        if not isinstance(term, Expr):
            number = bool(term) if dtype is DType.BOOL else term
            return literal(element.vector(lanes), number)
        value, axes = self.value(term), self.body.axes(term)
        key = ("cast", term, dtype, element)
        if value.type.element != element.element or (dtype in HALVES and term.dtype != dtype):
            given = value
            make = lambda: self._converted(term, given, dtype, element)  # noqa: E731
            value = self.scopes.hoisted(key, axes, make)
        return self.spread(key, axes, value, lanes)

    def _converted(self, term: Expr, value: Value, dtype: DType, element: Type) -> Value:
        found = convert(self.f, value, term.dtype, element)
        return rounded(self.f, found, dtype) if dtype is not term.dtype else found

    def spread(self, key: object, axes: Axes, value: Value, lanes: int) -> Value:
        """A value in each lane, if it is a scalar and lanes are wanted."""
        if not lanes or value.type.lanes:
            return value
        if not value.name.startswith("%"):
            return self.f.splat(value, lanes)
        return self.scopes.hoisted(("splat", key, lanes), axes, lambda: self.f.splat(value, lanes))

    def condition(self, term: Term, lanes: int) -> Value | None:
        """A condition as bits; None if it is always true."""
        if not isinstance(term, Expr):
            return None if term else constant(I1.vector(lanes), 0)
        return self._as(term, DType.BOOL, I1, lanes)

    def converted(self, term: Term, dtype: DType, lanes: int) -> Value:
        """A term cast to a dtype, in registers of that dtype."""
        return self._as(term, dtype, REGISTER[dtype], lanes)


def _divides_by_exponentials(part: Expr) -> bool:
    """True for a float divided by a sum of exponentials."""
    divisor = part.args[-1]
    if part.fn != "divide" or not isinstance(divisor, Expr) or divisor.dtype is not part.dtype:
        return False
    (inner, *_) = divisor.args or (0,)
    is_sum = divisor.fn == "reduce" and divisor.extra == "sum"
    return is_sum and isinstance(inner, Expr) and inner.fn == "exp" and part.dtype not in HALVES


def _is_moderate(term: Term) -> bool:
    """True for a number clipped to limits between which `bounded_exp` is right."""
    if not isinstance(term, Expr) or term.fn != "clip":
        return False
    low, high = term.args[1:]
    if isinstance(low, Expr) or isinstance(high, Expr):
        return False
    return -40 <= low <= high <= 80


def _operand_types(part: Expr) -> list[DType | None]:
    key = tuple(a.dtype if isinstance(a, Expr) else type(a) for a in part.args)
    return _types_of_call(part.fn, key, part.dtype, part)


_CALLS: dict[object, list[DType | None]] = {}


def _types_of_call(fn: str, key: object, dtype: DType, part: Expr) -> list[DType | None]:
    """`operand_types`, computed once for each function and dtypes."""
    types = _CALLS.get((fn, key, dtype))
    if types is None:
        types = _CALLS[fn, key, dtype] = operand_types(part)
    return types


def _function(fn: str, dtype: DType) -> Lowering:
    """The instructions of a function for operands of a dtype."""
    lowered = lowering(fn, dtype)
    if lowered is None:
        raise NotLowered(f"{fn} has no instructions")
    return lowered
