"""From SpectralClustering, scikit-learn's or cuML's, to SpecialK: the same graph, without k."""

import warnings

from sklearn.cluster import SpectralClustering
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import kneighbors_graph

from specialk_gpu import SpecialK

X, _ = make_blobs(900, centers=[(0, 0), (5, 0), (0, 5)], random_state=0)

# Before: k must be known.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # the graph is not fully connected
    before = SpectralClustering(3, affinity="nearest_neighbors", random_state=0).fit(X)

# After: it is found. n_neighbors and affinity mean the same; the graph is normalised too.
model = SpecialK(n_neighbors=10, random_state=0).fit(X)
print(f"k = {model.n_clusters_}")
print(f"agreement: {adjusted_rand_score(before.labels_, model.labels_):.3f}")

# Where k is known after all, n_clusters= does without the test, and `path_` still has its p: was
# it a sensible k?
given = SpecialK(n_clusters=5, random_state=0).fit(X)
print(given.path_)

# An affinity of your own goes in as it does there. Of a graph alone less is known than of rows:
# give it 20 to 30 neighbours.
W = kneighbors_graph(X, 30)
W = W.maximum(W.T)
print("by a graph:", SpecialK(affinity="precomputed", random_state=0).fit(W).n_clusters_)
