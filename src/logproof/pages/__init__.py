"""HTML pages: plain data goes in, one self-contained page comes out. Templates and the one style lie beside this file.

Every value is escaped, wherever it comes from: a page shows texts of models, servers and data sets. A page loads
nothing and runs no script. What a page shows is chosen where its data is known (eval/report/run_page.py,
verify/audit/audit_page.py).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **data: object) -> str:
    """The page of a template, such as "run.html". data: numbers, texts, lists and mappings of these, by name.

    Raises jinja2.UndefinedError where the template needs a value that was not given.
    """
    return _templates().get_template(template).render(data)


@cache
def _templates() -> Environment:
    # Loaded with the first page, for few commands write one, and it would lengthen the start of each.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("logproof.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
