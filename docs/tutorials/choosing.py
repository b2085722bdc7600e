"""Choosing n and alpha, and reading the path."""

import warnings

from specialk_gpu import SpecialK
from specialk_gpu.datasets import make_shape

warnings.simplefilter("ignore", UserWarning)  # the graphs of blobs fall into parts, as they may

# 1. alpha hardly matters: from 0.1 to 0.0001 the answer for these blobs is the same.
X, _ = make_shape("blobs", noise=0.1, random_state=0)
for alpha in (0.1, 0.01, 0.0001):
    model = SpecialK(alpha=alpha, random_state=0).fit(X)
    print(f"alpha = {alpha}: k = {model.n_clusters_}")

# 2. n, the number of eigenvectors, matters. Few find nothing, many split what is one: a uniform
#    square is one cluster with 200 eigenvectors, and more with 1000.
square, _ = make_shape("random", random_state=1)
for n in (50, 200, 1000):
    found = [SpecialK(n_components=n, random_state=0).fit(data).n_clusters_ for data in (X, square)]
    print(f"n = {n}: blobs {found[0]}, square {found[1]}")

# 3. So look at the path, and at what happens with half and twice as many eigenvectors. A bound
#    that jumps from tiny to 1 is a clear answer; one that hovers around alpha is none.
for n in (100, 200, 400):
    model = SpecialK(n_components=n, full_path=True, max_clusters=6, random_state=0).fit(X)
    frame = model.path_.to_frame()
    print(f"n = {n}:", [f"{value:.1f}" for value in frame["log10_p"]])
