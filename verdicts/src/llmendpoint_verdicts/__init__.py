"""How sure a verdict on a share of requests is.

Pure arithmetic that the operator and the CLI share; it depends on nothing outside of this package.
"""
