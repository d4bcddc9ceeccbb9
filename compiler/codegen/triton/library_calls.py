"""Products that a library of the GPU's vendor computes, called through torch.

    multiply(x, y_transposed, out)                    # torch.matmul(x, y_transposed, out=out)

Factors and result are views of the module's tensors. The call launches kernels on torch's current
stream, so a CUDA graph captures it like a launch.
"""

from __future__ import annotations

from compiler.codegen.triton.graph_segments import FixedLine
from compiler.codegen.triton.module_writer import TritonModuleWriter
from compiler.ir.libraries import Factor, MatrixProduct
from compiler.plan import PlannedOp, Step

_MULTIPLY = '''
def multiply(left, right, out):
    """Multiply matrices in half precision by the vendor's library; sums are float32."""
    torch.matmul(left, right, out=out)
'''.strip()

_FLOAT32_SUMS = [
    f"torch.backends.cuda.matmul.allow_{dtype}_reduced_precision_reduction = False"
    for dtype in ("fp16", "bf16")
]
"""Parts of a sum that torch's libraries split are not rounded before they are added."""


def emit_library_call(writer: TritonModuleWriter, step: Step) -> None:
    """Write the call for a step of one op with one output, a product."""
    writer.comment_ops(step)
    (op,) = step.ops
    slot, product = library_product(op)
    left, right = (_factor(writer, op, product, each) for each in (product.left, product.right))
    out = writer.operand(op.outputs[slot][0]).view(product.views[slot])
    if _MULTIPLY not in writer.functions:
        writer.functions.append(_MULTIPLY)
        writer.globals += _FLOAT32_SUMS
    writer.fixed_line(f"multiply({left}, {right}, {out})", FixedLine(is_launch=True, library=True))


def library_product(op: PlannedOp) -> tuple[str, MatrixProduct]:
    """The output slot of an op that a library computes, and the product in it."""
    (slot,) = (slot for slot, values in op.outputs.items() if values)
    types = {name: [value.type for value in values] for name, values in op.inputs.items()}
    return slot, op.defn.matrix_products(types)[slot]


def _factor(
    writer: TritonModuleWriter, op: PlannedOp, product: MatrixProduct, factor: Factor
) -> str:
    """A factor as a matrix, with its transposed view made once."""
    slot, transposed = factor
    operand = writer.operand(op.inputs[slot][0])
    text = operand.view(product.views[slot])
    return writer.at_bind(f"{text}.T", [operand], "transposed") if transposed else text
