"""Gradients of a fully connected layer as one op, whose kernels read the result's gradient once."""

from __future__ import annotations

from typing import Self

from compiler.ir.graph import Graph, Op, Var
from compiler.options import Options
from compiler.passes.base import Context, Fact, OpTarget, Pass


class MergeBiasGradients(Pass):
    """dw = xᵀ @ dy; db = the sum of dy over its rows  =  linear_grad(x, w, dy).

    `mul_grad` and the `elementwise_add_grad` of the bias that was added to the product read the
    same gradient. On a GPU, the kernel of dw then computes db on the way.
    """

    name = "merge_bias_gradients"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Run on devices only."""
        return super().configure(options, target) if target and target.on_device else None

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit the gradient of every product by a weight."""
        for product in [op for op in g.ops() if op.kind == "mul_grad"]:
            addition = _addition(g, product)
            if addition is None or not product.outputs.get("Y@GRAD"):
                continue
            if why := _obstacle(g, product, addition):
                ctx.note_missed(self.name, addition, why)
            else:
                _merge(g, product, addition)


def _addition(g: Graph, product: Op) -> Op | None:
    """Return the gradient of a bias that was added to the product's result; None without one."""
    readers = [op for op in g.readers(product["Out@GRAD"]) if op.kind == "elementwise_add_grad"]
    bias = _bias_shape(product)
    return next((op for op in readers if _bias(op).type.shape == bias), None)


def _bias(addition: Op) -> Var:
    return addition["Y"]


def _bias_shape(product: Op) -> tuple[object, ...]:
    """Return the shape of a bias per column of the product."""
    return product["Y"].type.shape[product.defn.attributes["y_num_col_dims"] :]


def _obstacle(g: Graph, product: Op, addition: Op) -> str:
    """Return why the gradients must be separate; empty if they need not."""
    if addition.outputs.get("X@GRAD"):
        return f"it also computes {addition['X@GRAD'].label!r}"
    axis, shape = addition.defn.attributes["axis"], addition["Out@GRAD"].type.shape
    if axis not in (-1, len(shape) - len(_bias_shape(product))):
        return "the bias is added along other axes"
    gradient = addition["Y@GRAD"]
    if gradient.overwrites is not None:
        return f"{gradient.label!r} overwrites another value"
    if any(reader.position < product.position for reader in g.readers(gradient)):
        return f"{gradient.label!r} is read before the gradient of the weight is computed"
    return ""


def _merge(g: Graph, product: Op, addition: Op) -> None:
    """Replace both ops by one at the place of the product's gradient."""
    inputs = {**product.inputs, "Bias": addition.inputs["Y"]}
    outputs = {**product.outputs, "Bias@GRAD": addition.outputs["Y@GRAD"]}
    g.remove(addition)
    g.replace(product, "linear_grad", inputs, outputs, product.attrs)
