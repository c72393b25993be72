"""The order of resourceVersions.

Source: KEP-5504, comparable resource versions: decimal numbers, to be compared within one resource.
"""


def version_number(version: str) -> int:
    """Return a resourceVersion as a number; 0 if it is none.

    >>> version_number("1207"), version_number(""), version_number("v1")
    (1207, 0, 0)
    """
    return int(version) if version.isascii() and version.isdigit() else 0
