"""Analyses of graphs, computed on demand and never stored, and the checkers of what passes claim.

Read in this order: `liveness` (lifetimes, in-place reuse), `placement` (host or device memory),
`memory_writes` (which bytes an op writes), `allocation` (the check of a memory plan),
`fixed_launches` (which ops a CUDA graph can contain), `structural_equality` (kernels that can be
deduplicated or launched together), `data_dependent_sizes` (type inference with distinct unknowns),
`verifier` (graph invariants and pass facts).
"""
