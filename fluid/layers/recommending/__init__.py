"""Layers for recommender models: embedding tables, hashing, sampled losses."""
