"""What Python and packages dropped since scripts of 1.8 were written, for `fluid run` alone.

`names` lists attributes of modules, `libraries` mends Pillow and PyYAML when a script imports them,
`modules/` replaces modules removed from the standard library; `mend` installs everything.
"""

from fluid.compat.old_python.mend import mend

__all__ = ["mend"]
