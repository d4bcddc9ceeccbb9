"""Recurrent ops fused with their input projection.

Reference: fusion_lstm_op.cc, fusion_gru_op.cc, fused_embedding_fc_lstm_op.cc.
"""

from __future__ import annotations

from compiler.errors import ShapeError
from compiler.ir.opdef import attr, reads, reads_lod, writes
from compiler.ir.opdef.composite import Composite, CompositeSteps

_LSTM = (
    "use_peepholes",
    "is_reverse",
    "gate_activation",
    "cell_activation",
    "candidate_activation",
)


class FusedLstm(Composite):
    """Shared part of `fusion_lstm` and `fused_embedding_fc_lstm`; `use_seq` has no effect."""

    WeightH = reads()
    Bias = reads()
    H0 = reads(optional=True)
    C0 = reads(optional=True)
    Hidden = writes()
    Cell = writes()
    XX = writes(optional=True)
    BatchedInput = writes(optional=True)
    BatchedHidden = writes(optional=True)
    BatchedCell = writes(optional=True)
    BatchedGate = writes(optional=True)
    BatchedCellPreAct = writes(optional=True)
    BatchCellPreAct = writes(optional=True)
    ReorderedH0 = writes(optional=True)
    ReorderedC0 = writes(optional=True)
    use_peepholes = attr(True)
    is_reverse = attr(False)
    use_seq = attr(True)
    gate_activation = attr("sigmoid")
    cell_activation = attr("tanh")
    candidate_activation = attr("tanh")

    def recur(self, steps: CompositeSteps, gates: str, bias: str) -> None:
        """Append the recurrent op over the projected input `gates`."""
        attrs = {name: self.attributes[name] for name in _LSTM}
        inputs = {"Input": gates, "Weight": steps["WeightH"], "Bias": bias}
        outputs = steps.outputs("lstm", {"Cell": 1}, attrs, **inputs, **steps.given("H0", "C0"))
        steps.write("Hidden", *outputs["Hidden"])
        steps.write("Cell", *outputs["Cell"])
        steps.write("XX", gates)


class FusionLstm(FusedLstm, op="fusion_lstm"):
    """Hidden and Cell [rows, width] of `lstm` over X @ WeightX; Bias as in `lstm`."""

    lod_source = "X"

    X = reads()
    X_lod = reads_lod("X")
    WeightX = reads()
    WeightH = reads()
    CheckedCell = writes(optional=True)

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to a product and `lstm`."""
        self.recur(steps, steps("mul", X=steps["X"], Y=steps["WeightX"]), steps["Bias"])


class FusedEmbeddingFcLstm(FusedLstm, op="fused_embedding_fc_lstm"):
    """Hidden and Cell of `lstm` over the Embeddings of Ids, which include the gate bias.

    Of Bias [1, 4 or 7 · width] only the peephole weights after the gates are used.
    """

    lod_source = "Ids"

    Ids = reads(no_grad=True)
    Ids_lod = reads_lod("Ids")
    Embeddings = reads()
    WeightH = reads()

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to a lookup and `lstm`."""
        embedded = steps("lookup_table", W=steps["Embeddings"], Ids=steps["Ids"])
        self.recur(steps, embedded, self.without_gates(steps))

    def without_gates(self, steps: CompositeSteps) -> str:
        """Append a bias with zeros for the gates; return its name."""
        weight, bias = steps.type("WeightH"), steps.type("Bias")
        width = weight.shape[-1]
        if not isinstance(width, int):
            raise ShapeError(f"{self.kind}: WeightH is {weight}, expected a known size")
        attrs = {"shape": [1, width], "dtype": bias.dtype.code, "value": 0.0}
        zeros = steps("fill_constant", attrs)
        if not self.use_peepholes:
            return zeros
        cut = {"axes": [1], "starts": [width], "ends": [2**31 - 1]}
        return steps("concat", {"axis": 1}, X=[zeros, steps("slice", cut, Input=steps["Bias"])])


class FusionGru(Composite, op="fusion_gru"):
    """Hidden [rows, width] of `gru` over X @ WeightX.

    `use_seq` and `origin_mode` have no effect, as in Paddle 1.8.5.
    """

    X = reads()
    X_lod = reads_lod("X")
    H0 = reads(optional=True)
    WeightX = reads()
    WeightH = reads()
    Bias = reads(optional=True)
    Hidden = writes()
    XX = writes(optional=True)
    ReorderedH0 = writes(optional=True)
    BatchedInput = writes(optional=True)
    BatchedOut = writes(optional=True)
    activation = attr("tanh")
    gate_activation = attr("sigmoid")
    is_reverse = attr(False)
    use_seq = attr(True)
    origin_mode = attr(False)

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to a product and `gru`."""
        gates = steps("mul", X=steps["X"], Y=steps["WeightX"])
        names = ("activation", "gate_activation", "is_reverse")
        attrs = {name: self.attributes[name] for name in names}
        inputs = {"Input": gates, "Weight": steps["WeightH"], **steps.given("Bias", "H0")}
        outputs = steps.outputs("gru", {}, attrs, **inputs)
        steps.write("Hidden", *outputs["Hidden"])
        steps.write("XX", gates)
