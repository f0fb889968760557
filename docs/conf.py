"""The book: the pages of this folder, for Sphinx."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from reference import generate

project = "flashsift"
author = "flashsift"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "Decides what reaches flash", "page_width": "72em"}
html_show_sphinx = False
html_copy_source = False
myst_heading_anchors = 4
# Pages link to files of the repository, which are no pages of the book.
suppress_warnings = ["myst.xref_missing", "myst.header"]


def setup(app):
    """Writes the pages that are made of sources, below docs/generated."""
    generate(pathlib.Path(__file__).parent)
