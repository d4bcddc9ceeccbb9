"""Samples of gradients of gradient ops: with both halves of what comes in, and with one."""

from tests.ops.samples import Sample, numbers

OUT, SMALL = numbers(2, 3, 4, low=0.5, high=2.0), numbers(3, low=0.5, high=2.0, seed=1)
ABOVE, AGAIN = numbers(2, 3, 4, seed=2), numbers(2, 3, 4, seed=3)
SMALL_AGAIN = numbers(3, seed=4)
BOTH = {"DDX": AGAIN, "DDY": SMALL_AGAIN}
HALVES = [BOTH, *({slot: value} for slot, value in BOTH.items())]
AXIS = {"axis": 1}
QUOTIENT = {"Y": SMALL, "Out": OUT, "DOut": ABOVE}
OF_OUTPUT = {"Out": OUT, "DOut": ABOVE, "DDX": AGAIN}
CHANNELS = {"Scale": SMALL, "DDScale": SMALL_AGAIN, "DDBias": numbers(3, seed=5)}
NORMED = {
    "X": OUT, "SavedMean": numbers(6, low=1.0, high=1.5), "SavedVariance": numbers(6, low=1, high=2),
    "DY": ABOVE,
}  # fmt: skip
OF_INPUT = {"X": OUT - 1, "DOut": ABOVE, "DDX": AGAIN}

SAMPLES = [
    *(
        Sample(f"elementwise_{kind}_grad_grad", {"DOut": ABOVE, **half}, AXIS)
        for kind in ("add", "sub")
        for half in HALVES
    ),
    *(Sample("elementwise_div_grad_grad", {**QUOTIENT, **half}, AXIS) for half in HALVES),
    *(Sample(f"{kind}_grad_grad", OF_OUTPUT) for kind in ("tanh", "sigmoid", "exp", "reciprocal")),
    *(Sample(f"{kind}_grad_grad", OF_INPUT) for kind in ("square", "elu")),
    Sample("log_grad_grad", {**OF_INPUT, "X": OUT}),
    Sample("instance_norm_grad_grad", {**NORMED, **CHANNELS, "DDX": AGAIN}),
    *(
        Sample("instance_norm_grad_grad", {**NORMED, slot: value})
        for slot, value in {"DDX": AGAIN, **CHANNELS}.items()
    ),
    Sample("sqrt_grad_grad", {"Out": OUT, "DX": ABOVE, "DDX": AGAIN}),
]
