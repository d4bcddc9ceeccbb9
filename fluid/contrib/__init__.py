"""Contributed modules of fluid 1.8.5 under their original names."""

from compiler.support.lazy_loading import lazy_names
from fluid.compat.missing import not_yet
from fluid.contrib import decoder as decoder
from fluid.contrib import extend_optimizer as extend_optimizer
from fluid.contrib import layers as layers
from fluid.contrib import memory_usage_calc as memory_usage_calc
from fluid.contrib import mixed_precision
from fluid.contrib import model_stat as model_stat
from fluid.contrib import op_frequence as op_frequence
from fluid.contrib import reader as reader
from fluid.contrib import utils as utils
from fluid.contrib.decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from fluid.contrib.extend_optimizer import extend_with_decoupled_weight_decay
from fluid.contrib.layers import (
    BasicGRUUnit,
    BasicLSTMUnit,
    basic_gru,
    basic_lstm,
    ctr_metric_bundle,
    fused_elemwise_activation,
    fused_embedding_seq_pool,
    match_matrix_tensor,
    multiclass_nms2,
    partial_concat,
    partial_sum,
    rank_attention,
    search_pyramid_hash,
    sequence_topk_avg_pooling,
    shuffle_batch,
    tdm_child,
    tdm_sampler,
    tree_conv,
    var_conv_2d,
)
from fluid.contrib.memory_usage_calc import memory_usage
from fluid.contrib.mixed_precision import AutoMixedPrecisionLists, decorate
from fluid.contrib.op_frequence import op_freq_statistic
from fluid.contrib.reader import distributed_batch_reader
from fluid.contrib.utils import (
    HDFSClient,
    convert_dist_to_sparse_program,
    load_persistables_for_increment,
    load_persistables_for_inference,
    multi_download,
    multi_upload,
)

__all__ = [
    "AutoMixedPrecisionLists",
    "BasicGRUUnit",
    "BasicLSTMUnit",
    "BeamSearchDecoder",
    "HDFSClient",
    "InitState",
    "StateCell",
    "TrainingDecoder",
    "basic_gru",
    "basic_lstm",
    "convert_dist_to_sparse_program",
    "ctr_metric_bundle",
    "decorate",
    "distributed_batch_reader",
    "extend_with_decoupled_weight_decay",
    "fused_elemwise_activation",
    "fused_embedding_seq_pool",
    "load_persistables_for_increment",
    "load_persistables_for_inference",
    "match_matrix_tensor",
    "memory_usage",
    "mixed_precision",
    "multi_download",
    "multi_upload",
    "multiclass_nms2",
    "op_freq_statistic",
    "partial_concat",
    "partial_sum",
    "rank_attention",
    "search_pyramid_hash",
    "sequence_topk_avg_pooling",
    "shuffle_batch",
    "tdm_child",
    "tdm_sampler",
    "tree_conv",
    "var_conv_2d",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "fluid.contrib": "quantize slim",
        "fluid.contrib.quantize": "QuantizeTranspiler",
        "fluid.contrib.slim.core": "Compressor",
    },
    otherwise=not_yet(__name__, globals()),
    exported="Compressor QuantizeTranspiler",
)
