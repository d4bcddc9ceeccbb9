"""Layers of recommender models: lookup tables, hashing, sampled losses."""
