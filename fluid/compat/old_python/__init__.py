"""What Python and packages dropped since scripts of 1.8 were written, for `fluid run` alone.

`mend.mend` installs everything: `names` lists attributes of modules of Python, `numpy_names` those
of NumPy, `arrays` restores methods of arrays and their conversion to numbers, `libraries` mends
Pillow and PyYAML when a script imports them, `modules/` replaces modules removed from the standard
library.

Every process that a script starts loads `mend` (`fluid.compat.startup`), with or without paddle:
it, `names` and `notices` import nothing that takes time, and no module imports others of `fluid`.
"""
