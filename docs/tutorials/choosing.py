"""Reading the path, and what alpha, the graph and n do."""

from specialk_gpu import SpecialK
from specialk_gpu.datasets import make_shape

# 1. The path says why. p is about the two clusters that are least separate at each k: three blobs,
#    and no gap for a fourth.
X, _ = make_shape("blobs", noise=0.1, random_state=0)
model = SpecialK(random_state=0).fit(X)
print(model.path_)

# 2. See whether k stays with another level, and with more neighbours.
for alpha in (0.05, 0.01, 0.001):
    model = SpecialK(alpha=alpha, random_state=0).fit(X)
    print(f"alpha = {alpha}: k = {model.n_clusters_}")
for n_neighbors in (10, 20, 30):
    model = SpecialK(n_neighbors=n_neighbors, random_state=0).fit(X)
    print(f"n_neighbors = {n_neighbors}: k = {model.n_clusters_}")

# 3. By the paper's rule n, the number of eigenvectors, matters most. Few find nothing, many split
#    what is one: a uniform square is one cluster with 200 eigenvectors, and more with 1000.
square, _ = make_shape("random", random_state=1)
for n in (50, 200, 1000):
    settings = {"n_components": n, "criterion": "zz_top", "random_state": 0}
    found = [SpecialK(**settings).fit(data).n_clusters_ for data in (X, square)]
    print(f"zz_top, n = {n}: blobs {found[0]}, square {found[1]}")
print("cut: square", SpecialK(random_state=0).fit(square).n_clusters_)
