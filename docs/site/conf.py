"""Settings of the site that docs/build.py builds."""

project = "Clearformer"
copyright = "The Clearformer authors"
extensions = ["myst_parser", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
html_theme = "furo"
html_static_path = ["_static"]
html_show_sphinx = False
mathjax_path = "mathjax-tex-svg.js"  # in _static: nothing is loaded from elsewhere
mathjax_options: dict[str, str] = {}
suppress_warnings = ["misc.highlighting_failure"]  # fragments of TOML and console sessions
