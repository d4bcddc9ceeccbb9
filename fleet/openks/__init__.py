"""OpenKS on this package: its names for fleets and optimizers, its strategies, launcher and data.

`algorithms` are the fleets and optimizers, `strategies` their settings, `launcher` starts the
processes of a job, `few_shot` samples image data. `fleet` has all names too.
"""
