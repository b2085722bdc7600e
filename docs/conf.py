"""How Sphinx builds the documentation.

    sphinx-build -W --keep-going -b html docs docs/_build/html

needs the extra `docs` and no network. The notebooks, docs/tutorials and the gallery, run meanwhile.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from specialk_gpu import __version__

os.environ["MATPLOTLIBRC"] = str(Path(__file__).with_name("matplotlibrc"))  # for the notebooks

project = "specialk_gpu"
author = "the specialk_gpu developers"
copyright = f"2026, {author}"  # noqa: A001 - Sphinx reads this name
version = release = __version__

extensions = [
    "mathml",
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
nitpicky = True
nitpick_ignore = [
    ("py:obj", "coverage"),  # a parameter; where a module of this name is installed, it is no link
]
nitpick_ignore_regex = [  # named in docstrings, documented by other projects
    (r"py:.*", r"(cupy|numpy|scipy|sklearn)\..*"),
]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

default_role = "autolink"  # `knn_graph` is a link where it can be, `n_neighbors` is not
autodoc_typehints = "none"  # the docstrings give type and shape
autosummary_generate = True
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False
numpydoc_validation_checks = {  # of every public name; see numpydoc's list
    "all",
    *("ES01", "EX01", "SA01"),  # a long description, an example, and "See Also" where they help
}
numpydoc_validation_exclude = {
    # named tuples document attributes, not parameters
    r"\.(Candidate|ClusterStats|Eigenpairs|Gap|KMeans|Neighbors|RadiusGraph|SelectionPath)$",
    r"\.(Sweep|Tree)$",
    r"\.(ColumnSummary|Estimate|Refit|Stability|Summary)$",  # made by the library alone
    r"\.dask\.SpecialK$",  # it takes the parameters of SpecialK, which are not repeated
    r"\.(set_callbacks|set_output|get_feature_names_out)$",  # scikit-learn's
}

nb_execution_mode = "cache"  # a notebook runs again when its code has changed
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 120
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"

html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"specialk_gpu {version}"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
