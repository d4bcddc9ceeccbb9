"""The module of each op, so that a lookup imports no other: made from the registry.

`pytest tests/ops/test_homes.py --update` writes it. An op that is missing here is found too, but
all modules of ops are imported for it.
"""

_KINDS = {
    "collective.buckets": (
        "all_reduce_bucket broadcast_bucket pack_bucket reduce_bucket start_all_reduce "
        "unpack_bucket wait_all_reduce"
    ),
    "collective.data_movement": (
        "barrier broadcast c_allgather c_broadcast c_reducescatter c_scatter"
    ),
    "collective.reduce": (
        "allreduce c_allreduce_max c_allreduce_min c_allreduce_prod c_allreduce_sum "
        "c_allreduce_sum_rows c_reduce_max c_reduce_min c_reduce_prod c_reduce_sum"
    ),
    "collective.rings": "c_comm_init c_comm_init_all c_gen_nccl_id gen_nccl_id",
    "collective.streams": "c_sync_calc_stream c_sync_comm_stream",
    "collective.sync_batch_norm": "sync_batch_norm sync_batch_norm_grad",
    "control.beam_search": "beam_search beam_search_decode gather_tree",
    "control.branching": (
        "merge_lod_tensor merge_lod_tensor_infer select_input select_output split_lod_tensor"
    ),
    "control.control_flow": (
        "conditional_block conditional_block_grad conditional_block_infer recurrent "
        "recurrent_grad rnn_memory_helper rnn_memory_helper_grad while while_grad"
    ),
    "control.device_copies": "to_device to_host",
    "control.feed_fetch": "delete_var feed fetch",
    "control.if_and_loop": "if loop unwind",
    "control.print": "assert print print_named",
    "control.py_func": "py_func",
    "control.rank_table": (
        "array_to_lod_tensor lod_rank_table lod_tensor_to_array max_sequence_len "
        "reorder_lod_tensor_by_rank reorder_lod_tensor_by_rank_grad shrink_rnn_memory "
        "shrink_rnn_memory_grad"
    ),
    "control.recurrent_steps": (
        "copy_array empty_array stack_steps step_count step_index sum_arrays take_step"
    ),
    "control.save_load": "load load_combine save save_combine",
    "control.tensor_arrays": (
        "add_to_array lod_array_length read_from_array take_from_array tensor_array_to_tensor "
        "tensor_array_to_tensor_grad write_to_array"
    ),
    "detection.bipartite_match": "bipartite_match",
    "detection.box_coder": (
        "box_clip box_coder box_decoder_and_assign iou_similarity polygon_box_transform"
    ),
    "detection.generate_mask_labels": "generate_mask_labels",
    "detection.generate_proposal_labels": "generate_proposal_labels",
    "detection.generate_proposals": (
        "collect_fpn_proposals distribute_fpn_proposals generate_proposals "
        "retinanet_detection_output"
    ),
    "detection.mine_hard_examples": "mine_hard_examples",
    "detection.nms": "locality_aware_nms matrix_nms multiclass_nms multiclass_nms2 multiclass_nms3",
    "detection.prior_box": "anchor_generator density_prior_box prior_box",
    "detection.rpn_target_assign": "retinanet_target_assign rpn_target_assign",
    "detection.sigmoid_focal_loss": "sigmoid_focal_loss sigmoid_focal_loss_grad",
    "detection.target_assign": "target_assign",
    "detection.yolo_box": "yolo_box",
    "detection.yolov3_loss": "yolov3_loss yolov3_loss_grad",
    "fused.attention": "scaled_dot_product_attention scaled_dot_product_attention_grad",
    "fused.attention_lstm": "attention_lstm attention_lstm_steps",
    "fused.convolution": (
        "conv2d_epilogue conv2d_fusion conv2d_transpose_epilogue conv3d_epilogue "
        "fusion_transpose_flatten_concat"
    ),
    "fused.elemwise_activation": "fused_elemwise_activation fused_elemwise_activation_grad",
    "fused.embedding_pool": "fused_embedding_seq_pool fused_embedding_seq_pool_grad",
    "fused.fully_connected": (
        "fc fused_fc_elementwise_layernorm fusion_repeated_fc_relu fusion_squared_mat_sub"
    ),
    "fused.linear": "linear linear_grad",
    "fused.recurrent": "fused_embedding_fc_lstm fusion_gru fusion_lstm",
    "fused.row_sequences": "row_sequences row_sequences_grad",
    "fused.sequences": (
        "fusion_seqconv_eltadd_relu fusion_seqexpand_concat_fc fusion_seqpool_concat "
        "fusion_seqpool_cvm_concat"
    ),
    "fused.transformer": "fused_embedding_eltwise_layernorm multihead_matmul skip_layernorm",
    "image.add_position_encoding": "add_position_encoding add_position_encoding_grad",
    "image.conv": "conv2d conv2d_grad conv3d conv3d_grad depthwise_conv2d depthwise_conv2d_grad",
    "image.conv_transpose": (
        "conv2d_transpose conv2d_transpose_grad conv3d_transpose conv3d_transpose_grad "
        "depthwise_conv2d_transpose depthwise_conv2d_transpose_grad"
    ),
    "image.deformable_conv": (
        "deformable_conv deformable_conv_grad deformable_conv_v1 deformable_conv_v1_grad"
    ),
    "image.deformable_psroi_pooling": "deformable_psroi_pooling deformable_psroi_pooling_grad",
    "image.fsp": "fsp fsp_grad",
    "image.grid_sampler": "affine_grid affine_grid_grad grid_sampler grid_sampler_grad",
    "image.interpolate": (
        "bicubic_interp bicubic_interp_grad bicubic_interp_v2 bicubic_interp_v2_grad "
        "bilinear_interp bilinear_interp_grad bilinear_interp_v2 bilinear_interp_v2_grad "
        "linear_interp linear_interp_grad linear_interp_v2 linear_interp_v2_grad nearest_interp "
        "nearest_interp_grad nearest_interp_v2 nearest_interp_v2_grad trilinear_interp "
        "trilinear_interp_grad trilinear_interp_v2 trilinear_interp_v2_grad"
    ),
    "image.max_pool_with_index": (
        "max_pool2d_with_index max_pool2d_with_index_grad max_pool3d_with_index "
        "max_pool3d_with_index_grad"
    ),
    "image.pixel_shuffle": (
        "pixel_shuffle pixel_shuffle_grad shuffle_channel shuffle_channel_grad space_to_depth "
        "space_to_depth_grad"
    ),
    "image.pool": "pool2d pool2d_grad pool3d pool3d_grad",
    "image.prroi_pool": "prroi_pool prroi_pool_grad",
    "image.psroi_pool": "psroi_pool psroi_pool_grad",
    "image.roi_align": "roi_align roi_align_grad",
    "image.roi_perspective_transform": "roi_perspective_transform roi_perspective_transform_grad",
    "image.roi_pool": "roi_pool roi_pool_grad",
    "image.similarity_focus": "similarity_focus",
    "image.spp": "spp spp_grad",
    "image.temporal_shift": "temporal_shift temporal_shift_grad",
    "image.unfold": "im2sequence im2sequence_grad unfold unfold_grad",
    "image.unpool": "unpool unpool_grad",
    "loss.binary_losses": (
        "bce_loss bce_loss_grad hinge_loss hinge_loss_grad log_loss log_loss_grad "
        "modified_huber_loss modified_huber_loss_grad sigmoid_cross_entropy_with_logits "
        "sigmoid_cross_entropy_with_logits_grad teacher_student_sigmoid_loss "
        "teacher_student_sigmoid_loss_grad"
    ),
    "loss.center_loss": "center_loss center_loss_grad",
    "loss.crf": "crf_decoding linear_chain_crf linear_chain_crf_grad",
    "loss.cross_entropy": "cross_entropy cross_entropy2 cross_entropy_grad cross_entropy_grad2",
    "loss.ctc": "ctc_align warpctc warpctc_grad",
    "loss.hierarchical_sigmoid": "hierarchical_sigmoid hierarchical_sigmoid_grad",
    "loss.huber_loss": "huber_loss huber_loss_grad",
    "loss.kldiv_loss": "kldiv_loss kldiv_loss_grad",
    "loss.label_smooth": "label_smooth label_smooth_grad",
    "loss.nce": "nce nce_grad",
    "loss.nll_loss": "nll_loss nll_loss_grad",
    "loss.rank_loss": (
        "bpr_loss bpr_loss_grad margin_rank_loss margin_rank_loss_grad rank_loss rank_loss_grad"
    ),
    "loss.sample_logits": "sample_logits sample_logits_grad",
    "loss.smooth_l1_loss": "smooth_l1_loss smooth_l1_loss_grad",
    "loss.softmax_with_cross_entropy": "softmax_with_cross_entropy softmax_with_cross_entropy_grad",
    "matching.item_trees": "tdm_child tdm_sampler",
    "matching.match_matrix": "match_matrix_tensor match_matrix_tensor_grad",
    "matching.pyramid_hash": "pyramid_hash pyramid_hash_grad",
    "matching.rank_attention": "rank_attention rank_attention_grad",
    "matching.topk_pooling": "sequence_topk_avg_pooling sequence_topk_avg_pooling_grad",
    "matching.tree_conv": "tree_conv tree_conv_grad",
    "matching.var_conv": "var_conv_2d var_conv_2d_grad",
    "math.activation": (
        "abs abs_grad ceil ceil_grad clip clip_by_norm clip_grad cos cos_grad exp exp_grad floor "
        "floor_grad log log_grad pow pow_grad relu relu6 relu6_grad relu_grad sigmoid "
        "sigmoid_grad sign sqrt sqrt_grad square square_grad tanh tanh_grad"
    ),
    "math.allclose": "allclose equal_all equal_reduce",
    "math.bilinear_tensor_product": "bilinear_tensor_product bilinear_tensor_product_grad",
    "math.compare": (
        "equal greater_equal greater_than less_equal less_than logical_and logical_not logical_or "
        "logical_xor not_equal"
    ),
    "math.conv_shift": "conv_shift conv_shift_grad",
    "math.cos_sim": "cos_sim cos_sim_grad",
    "math.cumsum": "cumsum",
    "math.double_grad": (
        "elementwise_add_grad_grad elementwise_div_grad_grad elementwise_sub_grad_grad "
        "elu_grad_grad exp_grad_grad log_grad_grad reciprocal_grad_grad sigmoid_grad_grad "
        "sqrt_grad_grad square_grad_grad tanh_grad_grad"
    ),
    "math.elementary": (
        "acos acos_grad asin asin_grad atan atan_grad cosh cosh_grad expm1 expm1_grad log10 "
        "log10_grad log1p log1p_grad log2 log2_grad reciprocal reciprocal_grad round round_grad "
        "rsqrt rsqrt_grad sin sin_grad sinh sinh_grad tan tan_grad trunc trunc_grad"
    ),
    "math.elementwise": (
        "elementwise_add elementwise_add_grad elementwise_div elementwise_div_grad "
        "elementwise_floordiv elementwise_max elementwise_max_grad elementwise_min "
        "elementwise_min_grad elementwise_mod elementwise_mul elementwise_mul_grad "
        "elementwise_pow elementwise_pow_grad elementwise_sub elementwise_sub_grad increment "
        "minus scale sum"
    ),
    "math.gelu": "erf erf_grad gelu gelu_grad",
    "math.isfinite": "isfinite isfinite_v2 isinf isinf_v2 isnan isnan_v2",
    "math.leaky_relu": (
        "brelu brelu_grad elu elu_grad hard_shrink hard_shrink_grad hard_sigmoid "
        "hard_sigmoid_grad hard_swish hard_swish_grad leaky_relu leaky_relu_grad maxout "
        "maxout_grad prelu prelu_grad selu selu_grad softshrink softshrink_grad thresholded_relu "
        "thresholded_relu_grad"
    ),
    "math.linalg": "addmm addmm_grad cross cross_grad dot dot_grad kron kron_grad trace trace_grad",
    "math.matmul": "matmul matmul_grad mul mul_grad",
    "math.matmul_heads": "matmul_heads matmul_heads_grad",
    "math.matmul_v2": "bmm bmm_grad matmul_v2 matmul_v2_grad",
    "math.reduce": (
        "mean mean_grad reduce_max reduce_max_grad reduce_mean reduce_mean_grad reduce_min "
        "reduce_min_grad reduce_prod reduce_prod_grad reduce_sum reduce_sum_grad"
    ),
    "math.reduce_logical": "reduce_all reduce_any",
    "math.smooth_activation": (
        "logsigmoid logsigmoid_grad mish mish_grad silu silu_grad soft_relu soft_relu_grad "
        "softplus softplus_grad softsign softsign_grad stanh stanh_grad swish swish_grad "
        "tanh_shrink tanh_shrink_grad"
    ),
    "math.softmax": "log_softmax log_softmax_grad logsumexp logsumexp_grad softmax softmax_grad",
    "math.sort": "arg_max arg_min argsort argsort_grad top_k top_k_grad top_k_v2 top_k_v2_grad",
    "math.squared_l2_distance": "squared_l2_distance squared_l2_distance_grad",
    "math.vector_norm": (
        "dist dist_grad frobenius_norm frobenius_norm_grad l1_norm l1_norm_grad norm norm_grad "
        "p_norm p_norm_grad squared_l2_norm squared_l2_norm_grad"
    ),
    "metric.accuracy": "accuracy",
    "metric.auc": "auc",
    "metric.chunk_eval": "chunk_eval",
    "metric.detection_map": "detection_map",
    "metric.edit_distance": "edit_distance",
    "metric.mean_iou": "mean_iou",
    "metric.positive_negative_pair": "positive_negative_pair",
    "metric.precision_recall": "precision_recall",
    "norm.affine_channel": "affine_channel affine_channel_grad",
    "norm.batch_norm": "batch_norm batch_norm_again batch_norm_grad",
    "norm.data_norm": "data_norm data_norm_grad",
    "norm.group_norm": "group_norm group_norm_grad instance_norm instance_norm_grad",
    "norm.inplace_abn": "inplace_abn inplace_abn_grad",
    "norm.instance_norm_double_grad": "instance_norm_grad_grad",
    "norm.layer_norm": "layer_norm layer_norm_grad",
    "norm.lrn": "lrn lrn_grad",
    "norm.spectral_norm": "spectral_norm spectral_norm_grad",
    "ps.exchange": "fetch_barrier fetched recv send send_barrier",
    "ps.remote_loss": "remote_hierarchical_sigmoid remote_nce",
    "ps.service": (
        "checkpoint_notify fake_init listen_and_serv recv_save ref_by_trainer_id sum_over_servers"
    ),
    "ps.splits": "merge_ids split_byref split_ids split_selected_rows",
    "ps.tables": "distributed_lookup_table lookup_sparse_table prefetch pull_box_sparse",
    "quantize.dequantize": (
        "dequantize_abs_max dequantize_log fake_channel_wise_dequantize_max_abs "
        "fake_dequantize_max_abs lookup_table_dequant"
    ),
    "quantize.fake": "fake_channel_wise_quantize_abs_max fake_quantize_abs_max",
    "quantize.integers": "dequantize quantize requantize",
    "quantize.moving": (
        "fake_quantize_dequantize_moving_average_abs_max fake_quantize_moving_average_abs_max "
        "moving_average_abs_max_scale"
    ),
    "quantize.products": "quantize_to_int8 quantized_conv2d quantized_mul",
    "quantize.window": "fake_quantize_range_abs_max",
    "sequence.conv": "sequence_conv sequence_conv_grad",
    "sequence.cudnn_lstm": "cudnn_lstm cudnn_lstm_grad",
    "sequence.expand": (
        "lod_reset lod_reset_grad sequence_expand sequence_expand_as sequence_expand_as_grad "
        "sequence_expand_grad"
    ),
    "sequence.gru": "gru gru_grad",
    "sequence.ids": "sequence_enumerate sequence_erase sequence_scatter sequence_scatter_grad",
    "sequence.lstm": "lstm lstm_grad lstmp lstmp_grad",
    "sequence.pad": (
        "sequence_mask sequence_pad sequence_pad_grad sequence_unpad sequence_unpad_grad"
    ),
    "sequence.pool": "sequence_pool sequence_pool_grad sequence_softmax sequence_softmax_grad",
    "sequence.recurrent_units": "gru_unit gru_unit_grad lstm_unit lstm_unit_grad",
    "sequence.row_conv": "row_conv row_conv_grad",
    "sequence.rows": (
        "join_offsets sequence_concat sequence_concat_grad sequence_reshape sequence_reshape_grad "
        "sequence_reverse sequence_slice sequence_slice_grad"
    ),
    "shape.cast": "assign cast",
    "shape.coalesce": "coalesce_tensor",
    "shape.concat": "concat concat_grad split",
    "shape.creation": (
        "fill_any_like fill_constant fill_constant_batch_size_like fill_zeros_like fill_zeros_like2"
    ),
    "shape.cvm": "cvm cvm_grad",
    "shape.diagonal": "diag diag_embed diag_v2 eye tril_triu tril_triu_grad",
    "shape.dropout": "dropout dropout_by_key dropout_grad",
    "shape.expand": (
        "expand expand_as expand_as_grad expand_as_v2 expand_as_v2_grad expand_grad expand_v2 "
        "expand_v2_grad tile tile_grad"
    ),
    "shape.filter_by_instag": "filter_by_instag filter_by_instag_grad",
    "shape.hashing": "hash",
    "shape.index": (
        "gather gather_grad index_sample index_sample_grad index_select index_select_grad scatter "
        "scatter_grad"
    ),
    "shape.index_tuples": "gather_nd gather_nd_grad scatter_nd_add scatter_nd_add_grad",
    "shape.literal_tensors": "assign_value fill",
    "shape.meshgrid": "meshgrid meshgrid_grad",
    "shape.multiplex": "multiplex multiplex_grad",
    "shape.one_hot": "one_hot one_hot_v2 shard_index",
    "shape.pad": (
        "pad pad2d pad2d_grad pad3d pad3d_grad pad_constant_like pad_constant_like_grad pad_grad"
    ),
    "shape.partial": "partial_concat partial_concat_grad partial_sum partial_sum_grad",
    "shape.random": "gaussian_random randint randperm truncated_gaussian_random uniform_random",
    "shape.random_keys": "random_keys",
    "shape.random_like": (
        "bernoulli gaussian_random_batch_size_like sampling_id uniform_random_batch_size_like"
    ),
    "shape.ranges": "linspace range",
    "shape.reorder": "crop crop_grad crop_tensor crop_tensor_grad flip reverse roll roll_grad",
    "shape.reshape": (
        "flatten flatten2 flatten2_grad flatten_contiguous_range flatten_contiguous_range_grad "
        "flatten_grad reshape reshape2 reshape2_grad reshape_grad squeeze squeeze2 squeeze2_grad "
        "squeeze_grad unsqueeze unsqueeze2 unsqueeze2_grad unsqueeze_grad"
    ),
    "shape.select": "masked_select masked_select_grad where where_grad where_index",
    "shape.set_value": "set_value",
    "shape.shape": "is_empty shape size",
    "shape.shuffle": "random_crop seed shuffle_batch shuffle_batch_grad",
    "shape.slicing": "slice slice_grad",
    "shape.stack": "stack stack_grad unbind unstack unstack_grad",
    "shape.strided": "strided_slice strided_slice_grad",
    "shape.transpose": "transpose transpose2 transpose2_grad transpose_grad",
    "shape.unique": "unique unique_with_counts",
    "train.adam": "adagrad adam adamax",
    "train.adaptive_optimizers": (
        "adadelta decayed_adagrad ftrl proximal_adagrad proximal_gd rmsprop"
    ),
    "train.densify": "densify_rows row_numbers",
    "train.dgc": "dgc dgc_allreduce_sum dgc_clip_by_norm dgc_momentum",
    "train.lookup_table": "lookup_table lookup_table_grad lookup_table_v2 lookup_table_v2_grad",
    "train.norm_optimizers": "average_accumulates dpsgd lamb lars_momentum",
    "train.selected_rows": (
        "clip_by_norm_rows clip_rows elementwise_mul_rows get_tensor_from_selected_rows "
        "merge_rows merge_selected_rows scale_rows sum_rows"
    ),
    "train.sgd": "momentum sgd",
    "train.sparse_optimizers": "adagrad_rows adam_rows sgd_rows",
}
"""The ops of each module, with their gradients."""

HOMES = {kind: f"compiler.ops.{home}" for home, kinds in _KINDS.items() for kind in kinds.split()}
