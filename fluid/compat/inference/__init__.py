"""The predictors of release 1.8.5, `fluid.core.AnalysisConfig` and `PaddleTensor`."""
