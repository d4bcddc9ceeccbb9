"""Noise contrastive estimation: a class is discriminated from a few sampled negatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, attr, attr_list, reads, required, writes
from compiler.ir.opdef.attribute_bounds import WIDE, at_least
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.loss import nce_kernels, sampled_class_kernels
from compiler.ops.loss.nce_kernels import Sampler
from compiler.ops.loss.samplers import (
    LOG_UNIFORM,
    SAMPLERS,
    UNIFORM,
    class_chances,
    classes_by_key,
    draw_classes,
)
from compiler.ops.math.matmul import as_matrix
from compiler.ops.shared_kernels import copy, too_many
from compiler.ops.train.selected_rows import rows_type
from compiler.ops.type_checks import differ, require_dtype, require_same_dtype, shown


def row_labels(Label: Array, count: int) -> Array:
    """Return the true classes [rows, classes per row]; raise ValueError if out of range."""
    labels = as_matrix(Label, 1)
    wrong = (labels < 0) | (labels >= count)
    if wrong.any():
        row = int(wrong.any(1).argmax())
        raise ValueError(
            f"label {labels[wrong][0]} in row {row} is not a class: expected 0 to {count - 1}"
        )
    return labels


def check_aliases(CustomDistAlias: Array, count: int) -> None:
    """Raise ValueError for an alias, which a class may be replaced by, that is no class.

    Classes that are never replaced have -1.
    """
    aliases = CustomDistAlias.reshape(-1)
    wrong = aliases >= count
    if wrong.any():
        raise ValueError(
            f"the alias of class {int(wrong.argmax())} is {aliases[wrong][0]}, expected a class "
            f"from 0 to {count - 1}, or -1"
        )


def sampled_labels(
    Label: Array, count: int, negatives: int, custom: Sequence[int], sampler: int, seed: int,
    key: tuple[Array | None, int], alias: tuple[Array | None, Array | None],
) -> Array:  # fmt: skip
    """Return the classes of each row [rows, classes]: the true ones, then `negatives` samples.

    `key` is (RNG key or None, index of the op's key).
    """
    trues = row_labels(Label, count)
    if alias[0] is not None:
        check_aliases(alias[0], count)
    shape = (len(trues), negatives)
    if custom:
        drawn = np.broadcast_to(np.array(custom, np.int64), shape)
    elif key[0] is None:
        drawn = draw_classes(shape, sampler, count, seed, *alias)
    else:
        drawn = classes_by_key(key[0], key[1], shape, sampler, count, *alias)
    return np.concatenate([trues, drawn], axis=1)


def sampled_costs(
    Input: Array, vectors: Array, bias: Array | None, labels: Array, sampler: int, count: int,
    negatives: int, SampleWeight: Array | None, CustomDistProbs: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the cost of each row [rows, 1], and the sigmoids o of its classes [rows, classes].

    `vectors` [rows, classes, width] and `bias` [rows, classes] are the weights of the classes.
    """
    scores = np.einsum("rw,rcw->rc", Input, vectors)
    if bias is not None:
        scores = scores + bias
    shares = np.exp(-np.logaddexp(0, -scores))
    expected = class_chances(labels, sampler, count, CustomDistProbs) * negatives
    trues = labels.shape[1] - negatives
    chosen = np.concatenate([shares[:, :trues], expected[:, trues:]], axis=1)
    total = (np.log(shares + expected) - np.log(chosen)).sum(1, keepdims=True)
    if SampleWeight is not None:
        total = total * SampleWeight.reshape(-1, 1)
    return total.astype(Input.dtype), shares


class Nce(OpDef, op="nce"):
    """Cost of each row [rows, 1], from its true classes and `num_neg_samples` sampled ones.

    With o = sigmoid(Input @ Weight[class] + Bias[class]) and b the expected count of the class
    among the samples, a true class costs -log(o / (o + b)) and a sampled one -log(b / (o + b)),
    times the row's SampleWeight. SampleLogits are the o, SampleLabels their classes: true ones
    first. `custom_neg_classes` replace the samples. With `is_sparse`, Weight has a sparse gradient.
    Reference: nce_op.h.
    """

    unread_by_kernels = ("Bias",)

    lod_source = ""
    is_random = True
    sparse_grads = ("Weight",)

    Input = reads()
    Label = reads(no_grad=True)
    Weight = reads()
    Bias = reads(optional=True)
    SampleWeight = reads(optional=True, no_grad=True)
    CustomDistProbs = reads(optional=True, no_grad=True)
    CustomDistAlias = reads(optional=True, no_grad=True)
    CustomDistAliasProbs = reads(optional=True, no_grad=True)
    Key = reads(optional=True, no_grad=True)
    Cost = writes()
    SampleLogits = writes()
    SampleLabels = writes()
    num_total_classes = required(int, at_least(1))
    num_neg_samples = attr(10, at_least(0))
    sampler = attr(0)
    seed = attr(0)
    is_sparse = attr(False)
    custom_neg_classes = attr_list(int)
    place = attr(0)
    remote_prefetch = attr(False)
    trainer_id = attr(0)
    height_sections = attr_list(int, WIDE)
    epmap = attr_list(str)
    table_names = attr_list(str)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Input, Label, Weight = s.Input, s.Label, s.Weight
        require_dtype(self.kind, "Label", Label, DType.INT64)
        require_same_dtype(self.kind, Input=Input, Weight=Weight)
        negatives = self.custom_neg_classes
        if negatives and len(negatives) != self.num_neg_samples:
            raise BadAttribute(
                f"{self.kind}: 'custom_neg_classes' has {len(negatives)} classes, but "
                f"'num_neg_samples' is {self.num_neg_samples}"
            )
        samplers = (UNIFORM, LOG_UNIFORM) if s.get("CustomDistProbs") is None else SAMPLERS
        if self.sampler not in samplers:
            raise BadAttribute(
                f"{self.kind}: 'sampler' is {self.sampler}, expected 0, 1, or 2 and CustomDistProbs"
            )
        fits = (Input.rank, Weight.rank) == (2, 2) and not differ(Input.shape[1], Weight.shape[1])
        if not fits or differ(Weight.shape[0], self.num_total_classes) or Label.rank not in (1, 2):
            raise ShapeError(
                f"{self.kind}: {shown(Input=Input, Label=Label, Weight=Weight)}, expected "
                f"[rows, width], labels per row, and [{self.num_total_classes}, width]"
            )
        self.check_rows(Input, Label, s.get("Bias"), s.get("SampleWeight"))
        tables = {
            "CustomDistProbs": s.get("CustomDistProbs"),
            "CustomDistAlias": s.get("CustomDistAlias"),
            "CustomDistAliasProbs": s.get("CustomDistAliasProbs"),
        }
        for slot, table in tables.items():
            if table is not None and differ(table.numel, self.num_total_classes):
                raise ShapeError(
                    f"{self.kind}: {slot} is {table}, expected {self.num_total_classes} elements"
                )
        trues = Label.shape[1] if Label.rank == 2 else 1
        drawn = (Input.shape[0], trues + self.num_neg_samples)
        return {
            "Cost": Input.with_shape((Input.shape[0], 1)),
            "SampleLogits": Input.with_shape(drawn),
            "SampleLabels": TensorType(DType.INT64, drawn),
        }

    def check_rows(
        self,
        Input: TensorType,
        Label: TensorType,
        Bias: TensorType | None,
        SampleWeight: TensorType | None,
    ) -> None:
        """Raise ShapeError unless Bias has a row per class, labels and weights one per sample."""
        if Bias is not None and differ(Bias.numel, self.num_total_classes):
            raise ShapeError(f"{self.kind}: Bias is {Bias}, expected {self.num_total_classes} rows")
        if differ(Label.shape[0], Input.shape[0]):
            shapes = shown(Input=Input, Label=Label)
            raise ShapeError(f"{self.kind}: {shapes}, expected as many rows")
        if SampleWeight is not None and differ(SampleWeight.numel, Input.shape[0]):
            shapes = shown(Input=Input, SampleWeight=SampleWeight)
            raise ShapeError(f"{self.kind}: {shapes}, expected a weight for each row")

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Weight = s.Weight
        if differ(Weight.shape[0], self.num_total_classes):
            raise ShapeError(
                f"{self.kind}_grad: Weight is {Weight}, expected {self.num_total_classes} rows"
            )
        types = {"Input": s.Input, "Weight": Weight}
        if (Bias := s.get("Bias")) is not None:
            types["Bias"] = Bias
        if self.is_sparse:
            count: Size = product(s.SampleLabels.shape)
            types |= {"Weight": Weight.with_shape((count, Weight.shape[1]))}
            types["Weight_rows"] = rows_type(count)
        return types

    def numpy(
        self,
        Input: Array,
        Label: Array,
        Weight: Array,
        Bias: Array | None,
        SampleWeight: Array | None,
        CustomDistProbs: Array | None,
        CustomDistAlias: Array | None,
        CustomDistAliasProbs: Array | None,
        Key: Array | None,
    ) -> dict[str, Array]:
        alias = (CustomDistAlias, CustomDistAliasProbs)
        labels = sampled_labels(
            Label, self.num_total_classes, self.num_neg_samples, self.custom_neg_classes,
            self.sampler, self.seed, (Key, self.place), alias,
        )  # fmt: skip
        bias = None if Bias is None else Bias.reshape(-1)[labels]
        how = (self.sampler, self.num_total_classes, self.num_neg_samples)
        cost, shares = sampled_costs(
            Input, Weight[labels], bias, labels, *how, SampleWeight, CustomDistProbs
        )
        return {"Cost": cost, "SampleLogits": shares, "SampleLabels": labels}

    def grad(
        self,
        Input: Array,
        Label: Array,
        Weight: Array,
        Bias: Array | None,
        SampleWeight: Array | None,
        CustomDistProbs: Array | None,
        CustomDistAlias: Array | None,
        CustomDistAliasProbs: Array | None,
        SampleLogits: Array,
        SampleLabels: Array,
        d_Cost: Array,
    ) -> dict[str, Array]:
        count, negatives = self.num_total_classes, self.num_neg_samples
        labels, shares = SampleLabels, SampleLogits
        trues = labels.shape[1] - negatives
        expected = class_chances(labels, self.sampler, count, CustomDistProbs) * negatives
        slope = np.concatenate([-expected[:, :trues], shares[:, trues:]], axis=1)
        slope = slope * (1 - shares) / (shares + expected) * d_Cost.reshape(-1, 1)
        if SampleWeight is not None:
            slope = slope * SampleWeight.reshape(-1, 1)
        slope = slope.astype(Input.dtype)
        gradients = {"Input": np.einsum("rc,rcw->rw", slope, Weight[labels])}
        values = (slope[:, :, None] * Input[:, None, :]).reshape(-1, Input.shape[1])
        if Bias is not None:
            d_Bias = np.bincount(labels.ravel(), slope.ravel(), Bias.size)
            gradients["Bias"] = d_Bias.astype(Bias.dtype).reshape(Bias.shape)
        if self.is_sparse:
            return gradients | {"Weight": values, "Weight_rows": labels.reshape(-1)}
        d_Weight = np.zeros_like(Weight)
        np.add.at(d_Weight, labels.reshape(-1), values)
        return gradients | {"Weight": d_Weight}

    def kernel_sampler(self, *given: DeviceOperand | None) -> Sampler:
        """Return the sampler; `given` is (class probabilities, aliases, alias thresholds)."""
        return Sampler(self.sampler, self.num_total_classes, self.custom_neg_classes, *given)

    def host_only(self, types: Mapping[str, TensorType]) -> str:
        """Return why it has no device kernel; empty if it has one."""
        return too_many(len(self.custom_neg_classes))

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Label = s.Label
        k.line(f"{k.function(row_labels)}({Label}, {self.num_total_classes})")
        if (aliases := s.get("CustomDistAlias")) is not None:
            k.line(f"{k.function(check_aliases)}({aliases}, {self.num_total_classes})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Input, Label = s.Input, s.Label
        rows, drawn = Input.shape[0], self.num_neg_samples
        count = Label.shape[1] if Label.type.rank == 2 else 1
        sampler = self.kernel_sampler(
            s.get("CustomDistProbs"), s.get("CustomDistAlias"), s.get("CustomDistAliasProbs")
        )
        labels = s.get("SampleLabels") or k.scratch((rows, count + drawn), DType.INT64)
        shares = s.get("SampleLogits") or k.scratch(labels.shape, Input.type.dtype)
        trues = Label.reshaped((rows, count))
        nce_kernels.choose(k, sampler, trues, (s.get("Key"), self.place), labels)
        operands = (Input, s.Weight, s.get("Bias"))
        nce_kernels.costs(
            k, sampler, operands, labels, count, drawn, s.get("SampleWeight"), shares, s.get("Cost")
        )

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_Weight_rows = s.get("d_Weight_rows")
        sampler = self.kernel_sampler(
            s.get("CustomDistProbs"), s.get("CustomDistAlias"), s.get("CustomDistAliasProbs")
        )
        drawn = (self.num_neg_samples, s.get("SampleWeight"), s.d_Cost)
        slope, numbers = nce_kernels.score_gradients(
            k, sampler, s.SampleLogits, s.SampleLabels, *drawn
        )
        if (d_Input := s.get("d_Input")) is not None:
            sampled_class_kernels.input_gradient(k, slope, numbers, s.Weight, d_Input)
        if (d_Bias := s.get("d_Bias")) is not None:
            sampled_class_kernels.bias_gradient(k, slope, numbers, d_Bias)
        if d_Weight_rows is not None:
            copy(k, numbers, d_Weight_rows)
        if (d_Weight := s.get("d_Weight")) is not None:
            sparse = d_Weight_rows is not None
            sampled_class_kernels.weight_gradient(
                k, slope, numbers, s.Input, None, d_Weight, sparse
            )
