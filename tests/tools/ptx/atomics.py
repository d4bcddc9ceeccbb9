"""atom and red: the new value of memory from the old one and the operands."""

from tests.tools.ptx import arithmetic
from tests.tools.ptx.floats import FORMATS, Model
from tests.tools.ptx.forms import form
from tests.tools.ptx.integers import Numbers, Whole, on_values
from tests.tools.ptx.warps import REDUCTIONS


def counted_up(old: int, b: int) -> int:
    """inc: 0 after b."""
    return 0 if old >= b else old + 1


def counted_down(old: int, b: int) -> int:
    """dec: b after 0, and where the old value is larger."""
    return b if old == 0 or old > b else old - 1


WHOLE: dict[str, Numbers] = {
    **REDUCTIONS,
    "inc": counted_up,
    "dec": counted_down,
    "exch": lambda old, b: b,
    "cas": lambda old, b, c: c if old == b else old,
}


def updated(name: str) -> Model:
    """The model of `add.f32` or `cas.b32`: old value and operands to new value."""
    operator, *modifiers, kind = name.split(".")
    if set(modifiers) - {"noftz"}:
        raise KeyError(name)
    if kind.endswith("x2"):
        return form(f"add.{kind}").model
    if kind not in FORMATS:
        return on_values(Whole(kind), WHOLE[operator])
    exact = arithmetic.add(FORMATS[kind])
    return _open_where_subnormal(exact) if kind == "f32" else exact


def _open_where_subnormal(exact: Model) -> Model:
    """Sums of f32 in global memory may be flushed, those in shared memory are not."""
    fmt = FORMATS["f32"]

    def run(old: int, b: int) -> int | None:
        result = exact(old, b)
        assert result is not None
        return None if any(map(fmt.is_subnormal, (old, b, result))) else result

    return run
