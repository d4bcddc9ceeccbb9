"""Who takes part in a distributed run, by which strategy, and when.

Empty in this release. Roles, strategies and the launcher come here in later ones, over the
collective and parameter-server passes of the compiler; nothing here will move a tensor.
"""
