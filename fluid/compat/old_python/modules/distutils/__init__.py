"""`distutils`, as far as scripts that build nothing use it."""
