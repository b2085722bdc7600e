"""The arguments of the command line."""

import argparse

__all__ = ["PARAMETERS", "Parser", "image_shape"]


class Parser(argparse.ArgumentParser):
    def error(self, message):
        msg = f"{message} (see {self.prog} --help)"
        raise ValueError(msg)


def _integer_or(word, meaning):
    def parse(text):
        if text == word:
            return meaning
        try:
            return int(text)
        except ValueError:
            msg = f"expected an integer or {word!r}, got {text!r}"
            raise argparse.ArgumentTypeError(msg) from None

    return parse


def image_shape(text):
    try:
        height, width = map(int, text.lower().split("x"))
    except ValueError:
        height = width = 0
    if min(height, width) < 1:
        msg = f"expected height x width, such as 28x28, got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return height, width


_INTEGER = {"type": int, "metavar": "N"}
_NUMBER = {"type": float, "metavar": "X"}
# The parameters of SpecialK that `fit` offers. Those not given are not passed, so that the
# defaults and their checks stay in one place, the estimator.
PARAMETERS = {
    "affinity": {
        "choices": ("nearest_neighbors", "radius_neighbors", "precomputed"),
        "help": "graph to build, or 'precomputed' when INPUT is a graph (nearest_neighbors)",
    },
    "n_neighbors": _INTEGER | {"help": "neighbours of each point in the graph (10)"},
    "coverage": _NUMBER | {"help": "radius graph: share of points with neighbours (0.99)"},
    "metric": {"choices": ("euclidean", "cosine"), "help": "distance between points (euclidean)"},
    "weights": {"choices": ("connectivity", "distance"), "help": "edge weights (connectivity)"},
    "n_components": {
        "type": _integer_or("auto", "auto"),
        "metavar": "{N,auto}",
        "help": "eigenvectors (auto: one for each fragment; zz_top: 200 or 1000)",
    },
    "alpha": _NUMBER | {"help": "level above which two clusters are one (0.05; zz_top: 0.01)"},
    "n_clusters": _INTEGER | {"help": "exactly this many clusters, without a test"},
    "min_clusters": _INTEGER | {"help": "smallest number of clusters (1)"},
    "max_clusters": _INTEGER | {"help": "largest number of clusters (none; zz_top: 50)"},
    "full_path": {"action": "store_true", "help": "show all of the path, beyond the decision"},
    "criterion": {
        "choices": ("cut", "zz_top"),
        "help": "what decides: the cut test, or the paper's ZZ Top Bound (cut)",
    },
    "stopping": {"choices": ("first", "watershed"), "help": "zz_top: rule (first)"},
    "n_init": _INTEGER | {"help": "zz_top: restarts of k-means (10)"},
    "eigen_solver": {"metavar": "NAME", "help": "solver for the eigenvectors (auto)"},
    "drop_correlated": _NUMBER | {"help": "drop eigenvectors more correlated than this (none)"},
    "n_kmeans_components": {
        "type": _integer_or("all", None),
        "metavar": "{N,all}",
        "help": "zz_top: columns of the embedding that k-means sees (50)",
    },
    "n_pairs": _INTEGER | {"help": "zz_top: test only the N pairs of highest cut (all)"},
    "tol": _NUMBER | {"help": "largest residual of an eigenpair (1e-8)"},
    "backend": {"choices": ("auto", "numpy", "cuda"), "help": "where to compute (auto)"},
    "random_state": _INTEGER | {"help": "seed; the same seed gives the same answer"},
}
