"""Learning rates of eager mode, defined in `fluid.eager.learning_rates`."""

from fluid.eager.learning_rates import (
    CosineDecay,
    ExponentialDecay,
    InverseTimeDecay,
    LambdaDecay,
    LearningRateDecay,
    LearningRateEpochDecay,
    LinearLrWarmup,
    MultiStepDecay,
    NaturalExpDecay,
    NoamDecay,
    PiecewiseDecay,
    PolynomialDecay,
    ReduceLROnPlateau,
    StepDecay,
)

__all__ = [
    "CosineDecay", "ExponentialDecay", "InverseTimeDecay", "LambdaDecay", "LearningRateDecay",
    "LearningRateEpochDecay", "LinearLrWarmup", "MultiStepDecay", "NaturalExpDecay", "NoamDecay",
    "PiecewiseDecay", "PolynomialDecay", "ReduceLROnPlateau", "StepDecay",
]  # fmt: skip
