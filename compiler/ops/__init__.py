"""The ops of fluid: a folder for each subject, a file for each family, a class for each op.

Importing this package fills the registry: every module here is imported, in order of its name.
"""

import pkgutil
from importlib import import_module

for _family in sorted(found.name for found in pkgutil.walk_packages(__path__, f"{__name__}.")):
    import_module(_family)
