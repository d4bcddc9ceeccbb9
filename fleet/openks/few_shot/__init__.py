"""Few-shot image data sets as folders, and N-way K-shot episodes sampled from them.

`images.py` reads one file, `classes.py` has the classes of OpenKS (one folder of images each),
`datasets.py` finds the classes below a folder, `episodes.py` samples tasks from classes.
"""
