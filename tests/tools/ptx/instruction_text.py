"""PTX kernels of a few lines: each thread loads operands, executes a form, stores the result."""

from collections.abc import Sequence

from tests.tools.ptx.forms import Form
from tests.tools.ptx.operands import width

THREADS = 128
HEAD = ".version 8.5\n.target sm_80\n.address_size 64\n"


def kernel(
    name: str, arrays: int, body: Sequence[str], shared: bool = False, threads: int = THREADS
) -> str:
    """A kernel of pointers %rd0, %rd1, …; %r0 is the thread's number, %r1 its place in the block.

    Block numbers are in %r2. `shared` memory is `room`, as large as the launch says.
    """
    parameters = ",\n".join(
        f"\t.param .u64 .ptr .global .align 16 {name}_param_{n}" for n in range(arrays)
    )
    room = ".extern .shared .align 16 .b8 room[];\n" if shared else ""
    loads = [f"ld.param.b64 %rd{n}, [{name}_param_{n}];" for n in range(arrays)]
    lines = [
        *(f".reg .{kind} %{prefix}<{count}>;" for kind, prefix, count in REGISTERS),
        *loads,
        "mov.u32 %r1, %tid.x;",
        "mov.u32 %r2, %ctaid.x;",
        f"mad.lo.s32 %r0, %r2, {threads}, %r1;",
        *body,
        "ret;",
    ]
    code = "\n".join(f"\t{line}" if not line.endswith(":") else line for line in lines)
    return f"{HEAD}{room}.visible .entry {name}(\n{parameters}\n)\n.reqntid {threads}\n{{\n{code}\n}}\n"


REGISTERS = (("pred", "p", 12), ("b16", "rs", 24), ("b32", "r", 64), ("b64", "rd", 40))
PREFIX = {8: "rs", 16: "rs", 32: "r", 64: "rd"}


def form_kernel(form: Form, name: str = "one") -> str:
    """The kernel of a form: its first array takes results, the others hold an operand each."""
    body, names = load_operands(form)
    size = width(form.result) // 8
    line = instruction(form, names, target(form))
    return kernel(
        name, 1 + len(names), [*body, line, *address(0, size, 30), *store_result(form, 0)]
    )


def load_operands(form: Form) -> tuple[list[str], list[str]]:
    """Lines that load the thread's operands from arrays 1, 2, …, and the names of their registers."""
    body: list[str] = []
    names: list[str] = []
    for place, kind in enumerate(form.operands):
        loaded = f"%{PREFIX[width(kind)]}{10 + place}"
        body += address(place + 1, width(kind) // 8, 20 + place)
        body.append(f"ld.global.b{width(kind)} {loaded}, [%rd{20 + place}];")
        if kind == "pred":
            body.append(f"setp.ne.b16 %p{place}, {loaded}, 0;")
            loaded = f"%p{place}"
        names.append(loaded)
    return body, names


def target(form: Form) -> str:
    """The register that takes a form's result."""
    return "%p9" if form.result == "pred" else f"%{PREFIX[width(form.result)]}9"


def instruction(form: Form, names: Sequence[str], into: str) -> str:
    operands = form.text.format(*names) if form.text else ", ".join(names)
    return f"{form.name} {into}, {operands};"


def store_result(form: Form, offset: int) -> list[str]:
    """Store to %rd30 with an offset in bytes; a predicate is stored as a byte of 1 or 0."""
    size = width(form.result)
    chosen = ["selp.b16 %rs9, 1, 0, %p9;"] if form.result == "pred" else []
    return [*chosen, f"st.global.b{size} [%rd30+{offset}], %{PREFIX[size]}9;"]


def address(array: int, size: int, register: int) -> list[str]:
    """The address of the thread's element of an array, in a register %rd."""
    return [f"mad.wide.s32 %rd{register}, %r0, {size}, %rd{array};"]


def load(array: int, register: str) -> list[str]:
    """The thread's 32-bit element of an array, into a register."""
    return [*address(array, 4, 20 + array), f"ld.global.b32 {register}, [%rd{20 + array}];"]


def store(array: int, register: str) -> list[str]:
    """A 32-bit register into the thread's element of an array."""
    return [*address(array, 4, 30 + array), f"st.global.b32 [%rd{30 + array}], {register};"]
