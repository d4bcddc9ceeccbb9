"""Metrics: accuracy, AUC, chunk evaluation, mean IoU, mAP, edit distance and others."""
