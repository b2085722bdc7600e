"""Benchmarks of the stages and of whole fits, against other libraries.

`cases` says what is measured and makes the data, `stages` and `fits` hold the contenders and the
checks of their answers, `measure` times one contender in a process of its own, `suite` runs a
list of cases and lays out the results. Nothing is timed before its answer was checked.
"""

OURS = "specialk_gpu"
SIZES = ("small", "medium", "large")
STAGES = ("knn", "spmm", "eigenpairs", "sweep", "fit")
