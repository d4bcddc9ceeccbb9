"""Names of release 1.8 below `fluid.incubate`; what they name is in the package `fleet`."""
