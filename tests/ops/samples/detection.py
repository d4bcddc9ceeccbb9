"""Samples of detection: priors, boxes, matches, suppression, YOLO heads, proposals and targets."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers
from tests.ops.samples.sequence import lod


def boxes(*shape, size=1.0, seed=0):
    """Return boxes of which no two are alike, inside a picture of this size."""
    low = numbers(*shape, 2, low=0.0, high=0.6 * size, seed=seed)
    sides = numbers(*shape, 2, low=0.1 * size, high=0.4 * size, seed=seed + 1)
    return np.concatenate([low, low + sides], axis=-1)


VARIANCE = [0.1, 0.1, 0.2, 0.2]
FEATURES = {"Input": numbers(2, 3, 4, 5), "Image": numbers(2, 3, 40, 60, seed=1)}
SIZES = {"min_sizes": [4.0, 8.0], "variances": VARIANCE}

SAMPLES = [
    Sample("prior_box", FEATURES, {**SIZES, "aspect_ratios": [2.0], "clip": False}),
    Sample(
        "prior_box",
        FEATURES,
        {
            **SIZES,
            "max_sizes": [8.0, 12.0],
            "aspect_ratios": [1.0, 3.0],
            "min_max_aspect_ratios_order": True,
            "step_w": 7.0,
            "step_h": 9.0,
        },
    ),
    Sample(
        "density_prior_box",
        FEATURES,
        {
            "variances": VARIANCE,
            "fixed_sizes": [4.0, 8.0],
            "fixed_ratios": [1.0, 2.0],
            "densities": [2, 3],
        },
    ),
    Sample(
        "density_prior_box",
        FEATURES,
        {
            "variances": VARIANCE,
            "fixed_sizes": [8.0],
            "fixed_ratios": [1.0],
            "densities": [2],
            "flatten_to_2d": True,
            "clip": False,
        },
    ),
    Sample(
        "anchor_generator",
        {"Input": numbers(2, 3, 4, 5)},
        {
            "anchor_sizes": [32.0, 64.0],
            "aspect_ratios": [0.5, 1.7],
            "stride": [8.0, 12.0],
            "variances": VARIANCE,
        },
    ),
]

PRIORS = {"PriorBox": boxes(4), "PriorBoxVar": numbers(4, 4, low=0.1, high=0.3, seed=2)}
INFO = np.array([[100, 120, 1.0], [150, 90, 2.5]], np.float32)

SAMPLES += [
    Sample("iou_similarity", {"X": boxes(5), "Y": boxes(3, seed=3)}),
    Sample(
        "iou_similarity",
        {"X": boxes(5, size=30.0), "Y": boxes(3, size=30.0, seed=3)},
        {"box_normalized": False},
    ),
    Sample("box_coder", {**PRIORS, "TargetBox": boxes(5, seed=3)}),
    Sample(
        "box_coder",
        {"PriorBox": boxes(4), "TargetBox": numbers(3, 4, 4, seed=3)},
        {"code_type": "decode_center_size", "variance": VARIANCE, "box_normalized": False},
    ),
    Sample(
        "box_coder",
        {**PRIORS, "TargetBox": numbers(4, 3, 4, seed=3)},
        {"code_type": "decode_center_size", "axis": 1},
    ),
    Sample("box_clip", {"Input": boxes(5, size=300.0), "Input_lod": lod((2, 3)), "ImInfo": INFO}),
    Sample("polygon_box_transform", {"Input": numbers(2, 4, 3, 5)}),
    Sample(
        "box_decoder_and_assign",
        {
            "PriorBox": boxes(4, size=50.0),
            "PriorBoxVar": np.array(VARIANCE, np.float32),
            "TargetBox": numbers(4, 12, high=30.0, seed=3),
            "BoxScore": numbers(4, 3, seed=4),
        },
        {"box_clip": 4.135},
    ),
]

MATCHES = np.array([[0, -1, 1, 2], [-1, 1, 0, -1]], np.int32)
DISTANCES = {"DistMat": numbers(5, 4, low=0.0), "DistMat_lod": lod((3, 2))}
MINED = {
    "ClsLoss": numbers(2, 6),
    "MatchIndices": np.array([[0, -1, 1, -1, -1, -1], [-1, -1, 0, -1, -1, -1]], np.int32),
    "MatchDist": numbers(2, 6, low=0.0, seed=1),
}
LABELS = np.array([[0], [1], [3], [-1], [2]], np.int32)
COUNT = np.array([3], np.int32)

SAMPLES += [
    Sample("bipartite_match", DISTANCES),
    Sample("bipartite_match", DISTANCES, {"match_type": "per_prediction", "dist_threshold": 0.4}),
    Sample("bipartite_match", {"DistMat": numbers(3, 4, low=0.0)}),
    Sample(
        "target_assign",
        {"X": numbers(5, 4, 3), "X_lod": lod((3, 2)), "MatchIndices": MATCHES},
        {"mismatch_value": 7},
    ),
    Sample(
        "target_assign",
        {
            "X": integers(5, 1, 1, high=9).astype(np.int32),
            "X_lod": lod((3, 2)),
            "MatchIndices": MATCHES,
            "NegIndices": np.array([[1], [0], [3]], np.int32),
            "NegIndices_lod": lod((1, 2)),
        },
    ),
    Sample("mine_hard_examples", MINED, {"neg_pos_ratio": 2.0}),
    Sample(
        "mine_hard_examples",
        {**MINED, "LocLoss": numbers(2, 6, seed=2)},
        {"mining_type": "hard_example", "sample_size": 3},
    ),
    Sample(
        "sigmoid_focal_loss",
        {"X": numbers(5, 3, low=-4.0, high=4.0), "Label": LABELS, "FgNum": COUNT},
        {"gamma": 1.5, "alpha": 0.6},
        ("X",),
    ),
]

SUPPRESSION = {"score_threshold": 0.1, "nms_top_k": 9, "keep_top_k": 7}
CANDIDATES = {"BBoxes": boxes(2, 12), "Scores": numbers(2, 3, 12, low=0.0, seed=2)}
ROWS = {
    "BBoxes": boxes(9, 3),
    "BBoxes_lod": lod((4, 5)),
    "Scores": numbers(9, 3, low=0.0, seed=2),
}

SAMPLES += [
    Sample("multiclass_nms", CANDIDATES, {**SUPPRESSION, "nms_eta": 0.8, "nms_threshold": 0.6}),
    Sample("multiclass_nms", ROWS, {**SUPPRESSION, "background_label": -1}),
    Sample("multiclass_nms2", CANDIDATES, {**SUPPRESSION, "normalized": False}),
    Sample("multiclass_nms2", ROWS, SUPPRESSION),
    Sample("multiclass_nms3", CANDIDATES, SUPPRESSION),
    Sample(
        "multiclass_nms3",
        {"BBoxes": ROWS["BBoxes"], "Scores": ROWS["Scores"], "RoisNum": np.array([4, 5], np.int32)},
        SUPPRESSION,
    ),
    Sample("matrix_nms", CANDIDATES, {**SUPPRESSION, "post_threshold": 0.2}),
    Sample("matrix_nms", CANDIDATES, {**SUPPRESSION, "use_gaussian": True}),
    Sample(
        "locality_aware_nms",
        {"BBoxes": boxes(2, 12), "Scores": numbers(2, 1, 12, low=0.0, seed=2)},
        SUPPRESSION,
    ),
]

HEAD = {"class_num": 2, "anchors": [10, 13, 16, 30, 33, 23], "downsample_ratio": 8}
TRUE = np.array(
    [[[0.3, 0.2, 0.3, 0.4], [0.7, 0.6, 0.5, 0.6]], [[0.1, 0.9, 0.2, 0.3], [0.5, 0.5, 0.0, 0.0]]],
    np.float32,
)


def learnt(**attrs):
    """Return a sample of a head of two anchors, true boxes and one that is none.

    With `same_cell`, the first two boxes of an image belong to one anchor at one position.
    """
    inputs = {
        "X": numbers(2, 14, 4, 4, low=-2.0, high=2.0),
        "GTBox": TRUE,
        "GTLabel": np.array([[0, 1], [1, 0]], np.int32),
    }
    if attrs.pop("same_cell", False):
        inputs["GTBox"] = TRUE[:, [0, 0, 1]] * np.array([[1], [1.05], [1]], np.float32)
        inputs["GTLabel"] = np.array([[0, 1, 1], [1, 1, 0]], np.int32)
    if attrs.pop("scored", False):
        inputs["GTScore"] = numbers(2, 2, low=0.2, seed=1)
    return Sample("yolov3_loss", inputs, {**HEAD, "anchor_mask": [0, 1], **attrs}, ("X",))


SAMPLES += [
    Sample(
        "yolo_box",
        {"X": numbers(2, 21, 3, 4), "ImgSize": np.array([[100, 120], [60, 50]], np.int32)},
        {**HEAD, "conf_thresh": 0.4, "scale_x_y": 1.2},
    ),
    learnt(),
    learnt(same_cell=True, use_label_smooth=False),
    learnt(scored=True, use_label_smooth=False, ignore_thresh=0.2, anchor_mask=[1, 2]),
]

ANCHORS = boxes(3, 4, 3, size=30.0)
PROPOSALS = {
    "Scores": numbers(2, 3, 3, 4, low=0.0),
    "BboxDeltas": numbers(2, 12, 3, 4, seed=1),
    "ImInfo": np.array([[30, 40, 1.0], [50, 45, 2.0]], np.float32),
    "Anchors": ANCHORS,
    "Variances": np.full((3, 4, 3, 4), 0.3, np.float32),
}
LEVELS = [numbers(4, 4), numbers(3, 4, seed=1)]

SAMPLES += [
    Sample(
        "generate_proposals",
        PROPOSALS,
        {
            "pre_nms_topN": 20,
            "post_nms_topN": 6,
            "nms_thresh": 0.5,
            "min_size": 3.0,
            "eta": 1.0,
        },
    ),
    Sample(
        "distribute_fpn_proposals",
        {"FpnRois": boxes(7, size=1500.0), "FpnRois_lod": lod((3, 4))},
        {"min_level": 2, "max_level": 5, "refer_level": 4, "refer_scale": 224},
    ),
    Sample(
        "collect_fpn_proposals",
        {
            "MultiLevelRois": LEVELS,
            "MultiLevelRois_lod": [*lod((1, 3)), *lod((2, 1))],
            "MultiLevelScores": [numbers(4, 1, seed=2), numbers(3, 1, seed=3)],
        },
        {"post_nms_topN": 5},
    ),
    Sample(
        "retinanet_detection_output",
        {
            "BBoxes": [numbers(2, 8, 4), numbers(2, 5, 4, seed=1)],
            "Scores": [numbers(2, 8, 3, low=0.0), numbers(2, 5, 3, low=0.0, seed=1)],
            "Anchors": [boxes(8, size=40.0), boxes(5, size=40.0, seed=3)],
            "ImInfo": PROPOSALS["ImInfo"],
        },
        {
            "score_threshold": 0.3,
            "nms_top_k": 9,
            "nms_threshold": 0.3,
            "nms_eta": 1.0,
            "keep_top_k": 8,
        },
    ),
]

TARGETS = {
    "Anchor": boxes(30, size=60.0),
    "GtBoxes": boxes(5, size=40.0, seed=5),
    "GtBoxes_lod": lod((3, 2)),
    "IsCrowd": np.array([[0], [0], [1], [0], [0]], np.int32),
    "ImInfo": np.array([[60, 60, 1.0], [70, 70, 1.5]], np.float32),
}
CLASSES = np.array([[1], [3], [2], [1], [2]], np.int32)
SECOND_STAGE = {
    "RpnRois": boxes(20, size=60.0),
    "RpnRois_lod": lod((9, 11)),
    "GtClasses": CLASSES,
    **{slot: value for slot, value in TARGETS.items() if slot != "Anchor"},
}
TAKEN = {
    "batch_size_per_im": 8,
    "fg_fraction": 0.5,
    "fg_thresh": 0.3,
    "bg_thresh_hi": 0.3,
    "bg_thresh_lo": 0.0,
    "bbox_reg_weights": VARIANCE,
    "class_nums": 4,
    "use_random": True,
    "is_cascade_rcnn": False,
    "is_cls_agnostic": False,
}

SAMPLES += [
    Sample("rpn_target_assign", TARGETS, {"rpn_batch_size_per_im": 8, "rpn_fg_fraction": 0.5}),
    Sample(
        "rpn_target_assign",
        TARGETS,
        {"use_random": False, "rpn_straddle_thresh": -1.0, "rpn_positive_overlap": 0.3},
    ),
    Sample("retinanet_target_assign", {**TARGETS, "GtLabels": CLASSES}, {"positive_overlap": 0.3}),
    Sample("generate_proposal_labels", SECOND_STAGE, TAKEN),
    Sample(
        "generate_proposal_labels",
        SECOND_STAGE,
        {**TAKEN, "is_cascade_rcnn": True, "is_cls_agnostic": True, "class_nums": 2},
    ),
]

OUTLINES = np.array(
    [[5, 5], [20, 6], [18, 22], [4, 18], [30, 8], [42, 12], [33, 25], [8, 30], [24, 31], [15, 44]],
    np.float32,
)
SEGMENTS = {
    "ImInfo": TARGETS["ImInfo"],
    "GtClasses": np.array([[1], [2]], np.int32),
    "IsCrowd": np.array([[0], [0]], np.int32),
    "GtSegms": OUTLINES,
    "GtSegms_lod": lod((1, 1), (2, 1), (4, 3, 3)),
    "Rois": boxes(5, size=60.0, seed=3),
    "Rois_lod": lod((3, 2)),
}

SAMPLES += [
    Sample(
        "generate_mask_labels",
        {**SEGMENTS, "LabelsInt32": np.array(labels, np.int32)[:, None]},
        {"num_classes": 3, "resolution": 7},
    )
    for labels in ([1, 0, 2, 2, 0], [1, 0, 2, 0, 0])
]
