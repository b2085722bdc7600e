"""From images to a report: MNIST where it is at hand, scikit-learn's small digits elsewhere."""

import os

from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score

from specialk_gpu import SpecialK
from specialk_gpu.datasets import load_mnist

# 60,000 images of 28 x 28 pixels. Without the variable, load_mnist() would download them; for a
# first try, and on a machine without network, 1,797 images of 8 x 8 pixels do as well.
if os.environ.get("SPECIALK_MNIST"):
    X, digits = load_mnist()
    shape = (28, 28)
else:
    X, digits = load_digits(return_X_y=True)
    shape = (8, 8)

model = SpecialK(backend="auto", random_state=0).fit(X)
print(model.path_)
print(f"{model.n_clusters_} clusters in {sum(model.timings_.values()):.1f} s")

# Known labels are for describing the clustering, not for choosing its parameters.
nmi = normalized_mutual_info_score(digits, model.labels_)
print(f"NMI with the digits: {nmi:.2f}")

model.report("digits.html", X=X, image_shape=shape, source="images of digits")
model.save("digits.npz")

# Later, on any machine: which cluster do new images belong to?
again = SpecialK.load("digits.npz").set_params(backend="auto")
print(again.predict(X[:5]), again.predict_proba(X[:5]).max(axis=1))
