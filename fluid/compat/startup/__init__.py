"""What `fluid run` does in its process also holds in the Python processes that a script starts.

`variables` are the environment variables that they inherit: `on_path/` is first on PYTHONPATH and
has the start-up file that Python runs, `commands/` is first on PATH and has `python`. `children` is
loaded by the start-up file: an import finder, which loads this package when `paddle` is imported.
Nothing is written to disk. `children` and `fluid.compat.old_python` import no other module of this
package: children load them without `fluid`, which takes longer than a short process runs.
"""
