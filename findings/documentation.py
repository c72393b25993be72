"""The addresses of codes on the published site.

The page has a heading for each code, whose anchor is the code in lower case.
"""

from typing import Final
from urllib.parse import quote

from findings.finding import Code

CODES_PAGE: Final = "docs/reference/codes.html"
"""The page's path below the folder of a version on the site."""


def codes_address(documentation: str, version: str) -> str:
    """Return the address of the page of codes.

    Args:
        documentation: The address of the site.
        version: Drawbridge's version.

    >>> codes_address("https://docs.example.com", "1.2.3")
    'https://docs.example.com/1.2.3/docs/reference/codes.html'
    """
    return f"{documentation}/{quote(version)}/{CODES_PAGE}"


def code_address(codes: str, code: Code) -> str:
    """Return the address of a code.

    Args:
        codes: The address of the page of codes.
    """
    return f"{codes}#{code.value.lower()}"
