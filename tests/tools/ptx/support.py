"""PTX of one kernel around given instructions, and arrays that it works on."""

import numpy as np

from tools.ptx import execute

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def kernel(body, parameters=2, head="", registers=64):
    """A kernel `k` with addresses p0, p1, … in %rd0, %rd1, … and the thread's number in %r0."""
    declared = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    loads = "".join(f"ld.param.b64 %rd{i}, [p{i}];\n" for i in range(parameters))
    registers = "".join(
        f".reg .{kind} %{name}<{registers}>;\n"
        for kind, name in (("b16", "rs"), ("b32", "r"), ("b64", "rd"), ("pred", "p"))
    )
    return (
        f"{HEAD}{head}.visible .entry k({declared})\n{{\n{registers}{loads}"
        f"mov.u32 %r0, %tid.x;\n{body}\nret;\n}}\n"
    )


def elementwise(instructions, *inputs, result):
    """Run instructions a thread an element: inputs in %r10 (or %rd10, %rs10), 11, …, result in 20."""
    arrays = [np.ascontiguousarray(input_) for input_ in inputs]
    out = np.zeros(len(arrays[0]), result)
    body = ""
    for index, array in enumerate(arrays):
        body += _place(index, array.itemsize)
        body += f"ld.global.b{8 * array.itemsize} {_name(array.itemsize, 10 + index)}, [%rd40];\n"
    body += instructions + "\n" + _place(len(arrays), out.itemsize)
    body += f"st.global.b{8 * out.itemsize} [%rd40], {_name(out.itemsize, 20)};\n"
    execute(kernel(body, len(arrays) + 1), "k", 1, len(out), [*arrays, out])
    return out


def _place(index, size):
    return f"mad.wide.u32 %rd40, %r0, {size}, %rd{index};\n"


def _name(size, number):
    return f"%{ {1: 'rs', 2: 'rs', 4: 'r', 8: 'rd'}[size] }{number}"
