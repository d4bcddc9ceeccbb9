"""Losses: classification, regression, ranking and sequence losses."""
