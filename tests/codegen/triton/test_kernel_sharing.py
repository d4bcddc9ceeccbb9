"""Equal kernels are written once, whatever their operands are called."""

import re

import pytest

import compiler
import fluid
from compiler.codegen.triton.kernel_sharing import structural_key
from compiler.codegen.triton.numpy_names import SIZE


def module(layers):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        result = fluid.layers.data(name="x", shape=[32], dtype="float32")
        for _ in range(layers):
            result = fluid.layers.fc(result, size=32, act="relu")
    return compiler.compile(main, feed=["x"], fetch=[result.name], target="triton")


def test_equal_layers_share_their_kernels():
    few, many = module(2), module(6)
    assert len(many.kernels) == len(few.kernels)
    names = [kernel.name for kernel in many.kernels]
    launches = re.findall(r"^ +(\w+)\[", many.source, re.MULTILINE)
    assert len(launches) == 3 * len(re.findall(r"^ +(\w+)\[", few.source, re.MULTILINE))
    assert set(launches) == set(names)


def test_kernel_sharing_rejects_specialised_arguments():
    spec, *variants = module(1).kernels
    assert {variant.name for variant in variants} == {spec.name}
    pointers = [kind for kind in spec.types.values() if kind.startswith("*")]
    assert pointers and all(kind == "*fp32:16" for kind in pointers)
    any_number = [name for name, kind in spec.types.items() if kind == SIZE]
    decorator = f"@triton.jit(do_not_specialize={any_number!r})\ndef {spec.name}("
    assert any_number == ["N"] and decorator in module(1).source


@pytest.mark.parametrize("change", [
    ("0.5", "0.25"), ("x_ptr + lane", "x_ptr + lane * 0"), ("tl.exp", "tl.log"), ('"ieee"', '"tf32"'),
])  # fmt: skip
def test_other_code_is_another_kernel(change):
    text = (
        "@triton.jit\ndef exp(x_ptr, LANES: tl.constexpr):\n"
        "    # from a user\n    lane = tl.arange(0, LANES)\n"
        "    x = tl.load(x_ptr + lane)\n    y = tl.exp(x * 0.5)\n"
        '    tl.store(x_ptr + lane, tl.dot(y, y, precision="ieee"))'
    )
    one, other = (
        structural_key(each.split("\n"), {}, {}) for each in (text, text.replace(*change))
    )
    assert one != other
    named = text.replace("y", "exp"), text.replace("y", "log").replace("tl.exp", "tl.log")
    assert structural_key(named[0].split("\n"), {}, {}) != structural_key(
        named[1].split("\n"), {}, {}
    )
    told = text.replace("from a user", "from another").replace("x_ptr", "in_ptr")
    assert structural_key(told.split("\n"), {}, {}) == one
    assert structural_key(text.split("\n"), {"x_ptr": "*fp32"}, {}) != one
    assert structural_key(text.split("\n"), {}, {"num_warps": 8}) != one


def test_first_step_compiles_the_kernels_built_ahead():
    """Triton's specialisation of launch arguments equals the recorded one, for any batch size."""
    library = pytest.importorskip("triton._C.libtriton")
    backend = pytest.importorskip("triton.backends.nvidia.compiler").CUDABackend
    torch = pytest.importorskip("torch")
    address = torch.empty(64, dtype=torch.float32)
    for text in ("*fp32:16", SIZE, f"{SIZE}:16"):
        kind, _, divisor = text.partition(":")
        values = [address] if kind[0] == "*" else [16 * n if divisor else n for n in (1, 2, 3, 16)]
        for value in values:
            looked_at = bool(divisor)  # what decorators say of parameters
            result = library.native_specialize_impl(backend, value, False, looked_at, True)
            assert result == (kind, "D" if divisor else None)
