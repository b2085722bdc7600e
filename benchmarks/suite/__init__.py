"""Benchmarks of the stages and of whole fits, against other libraries.

`cases` says what is measured and makes the data. `neighbors`, `pairs`, `clusters` and `fits` hold
the contenders and the checks of their answers, `stages` lists them. `measure` times one contender
in a process of its own, `suite` runs a list of cases and lays out the results. Nothing is timed
before its answer was checked.
"""

OURS = "specialk_gpu"
SIZES = ("small", "medium", "large")
STAGES = ("knn", "spmm", "eigenpairs", "kmeans", "sweep", "merging", "fit")
