"""The ops of fluid, a file for each family and a class for each op.

Importing this package fills the registry: every module here is imported, in order of its name.
"""

import pkgutil
from importlib import import_module

for _family in sorted(found.name for found in pkgutil.iter_modules(__path__)):
    import_module(f"{__name__}.{_family}")
