"""Programs of others that tests run."""

import os
import shutil
from typing import Final

import pytest

needs_kubectl: Final = pytest.mark.skipif(
    shutil.which("kubectl") is None and not os.environ.get("CI"),
    reason="kubectl is not installed",
)
"""Marks a test that runs kubectl; it is left out on a machine without it, and fails there in CI."""
