"""What every package needs and no compiler is about: escaping, limits, caches, imports, forks.

Nothing here knows of graphs, passes or targets.

- Text and errors: `escape` (users' text inside generated text), `tracebacks` (errors without our
  own frames), `syntax_trees` (trees of Python source, one thread at a time).
- Bounds: `limits` (sizes of programs), `thresholds` (sizes from which code takes another path).
- Caches on disk and in memory: `private_folders`, `stored_arrays`, `shared_arrays`.
- Environment variables: `settings`.
- The process: `lazy_loading` and `extras` (imports), `fork_delay`, `cached_property` (no lock, for
  children of forks), `gc_pause`, `processors`.
"""
