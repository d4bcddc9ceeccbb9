"""Predictors and compiled packages."""
