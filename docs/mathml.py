"""Formulas as MathML, which browsers show without a network and without a script.

Sphinx calls `setup`; the converter is that of docutils.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.application import Sphinx


def mathml(tex: str, *, as_block: bool = False) -> str:
    """Convert a formula. Bars are those of absolute values: no room beside them."""
    if re.search(r"frac\s*\d", tex):  # the converter reads the digits of \frac12 as one number
        msg = f"write fractions with braces, as in \\frac{{1}}{{2}}, got {tex!r}"
        raise ValueError(msg)
    formula = tex2mathml(tex, as_block=as_block)
    return re.sub(r"<mo([^>]*)>\|</mo>", r'<mo\1 lspace="0" rspace="0">|</mo>', formula)


def visit_math(writer: Any, node: Element) -> None:
    """Write a formula within a line."""
    writer.body.append(mathml(node.astext()))
    raise SkipNode


def visit_displaymath(writer: Any, node: Element) -> None:
    """Write a formula on a line of its own, which scrolls if the window is narrower."""
    formula = mathml(node.astext(), as_block=True)
    writer.body.append(writer.starttag(node, "div", CLASS="math") + formula + "</div>")
    raise SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the formulas available to Sphinx under the name "mathml"."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
