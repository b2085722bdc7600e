"""Blood cells: Leiden and special K side by side, from one graph, as scanpy's users work.

    pip install scanpy igraph matplotlib
    python docs/tutorials/single_cell.py

The second line also draws docs/figures/single_cell.png.
"""

from pathlib import Path

import scanpy as sc
from sklearn.metrics import adjusted_rand_score

import specialk_gpu as sk

adata = sc.datasets.pbmc68k_reduced()  # 700 cells, with UMAP coordinates; in scanpy's wheel
sc.pp.neighbors(adata, n_neighbors=20)
sc.tl.leiden(adata, flavor="igraph", n_iterations=2)
sk.tl.specialk(adata)

path = adata.uns["specialk"]["path"]
print(path[["k", "log10_p", "accepted"]].round(2).to_string(index=False))

# Without a graph: the rows of a representation.
sk.tl.specialk(adata, use_rep="X_pca", n_neighbors=30, key_added="by_rows")

# Inside each cluster, in one line each, as Leiden's restrict_to.
for cluster in adata.obs["specialk"].cat.categories:
    sk.tl.specialk(adata, restrict_to=("specialk", [cluster]), key_added="inside")
    parts = adata.obs["inside"].nunique() - adata.obs["specialk"].nunique() + 1
    print(f"inside cluster {cluster}: {parts}")

print("\n        clusters  agreement (ARI) with bulk_labels  louvain")
for key in ("leiden", "specialk", "by_rows"):
    found = adata.obs[key]
    bulk, louvain = (adjusted_rand_score(adata.obs[x], found) for x in ("bulk_labels", "louvain"))
    print(f"{key:8} {found.nunique():7} {bulk:33.2f} {louvain:8.2f}")

# What tells the clusters apart: scanpy's tools go on from here.
sc.tl.rank_genes_groups(adata, "specialk", method="wilcoxon")
print()
for cluster in adata.obs["specialk"].cat.categories:
    genes = adata.uns["rank_genes_groups"]["names"][cluster][:5]
    print(f"cluster {cluster}:", ", ".join(genes))

if __name__ == "__main__":
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    shown = {"specialk": "special K", "leiden": "Leiden", "bulk_labels": "bulk_labels"}
    for ax, (key, title) in zip(axes, shown.items(), strict=True):
        sc.pl.umap(adata, color=key, ax=ax, show=False, title=title, size=20, legend_fontsize=7)
        if key in adata.uns and key != "bulk_labels":
            ax.set_title(f"{title}: {adata.obs[key].nunique()} clusters")
        ax.set(xlabel="", ylabel="")
    target = Path(__file__).parents[1] / "figures" / "single_cell.png"
    figure.savefig(target, dpi=80, metadata={"Software": None})

    # The whole page of reasons, on the coordinates that you know:
    model = sk.SpecialK(affinity="precomputed", normalize=True, random_state=0)
    model.fit(adata.obsp["connectivities"])
    model.report("cells.html", coordinates=adata.obsm["X_umap"], source="blood cells")
