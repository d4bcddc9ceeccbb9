"""Contributed layers of fluid 1.8.5."""

from fluid.atomic import checked_all
from fluid.contrib.layers.metric_op import ctr_metric_bundle
from fluid.contrib.layers.nn import multiclass_nms2, partial_concat, partial_sum, shuffle_batch
from fluid.contrib.layers.rnn_impl import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm
from fluid.missing import not_yet

__all__ = [
    "BasicGRUUnit",
    "BasicLSTMUnit",
    "basic_gru",
    "basic_lstm",
    "ctr_metric_bundle",
    "multiclass_nms2",
    "partial_concat",
    "partial_sum",
    "shuffle_batch",
]

globals().update(checked_all(globals()))

__getattr__ = not_yet(__name__, globals())
