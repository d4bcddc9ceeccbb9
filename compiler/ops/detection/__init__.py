"""Ops that find things in images: boxes, priors, proposals, suppression."""
