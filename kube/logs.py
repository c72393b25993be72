"""structlog's loggers, imported without rich.

structlog imports rich where it is installed, for tracebacks in colour. That is a seventh of the start of a
process, and `process.running.logs` prints plain tracebacks.
"""

import sys

__all__ = ["get_logger", "structlog"]

_RICH = "rich"
_is_hidden = _RICH not in sys.modules
if _is_hidden:
    sys.modules[_RICH] = None  # type: ignore[assignment]  # Importing it raises ImportError.

import structlog  # noqa: E402 - rich is hidden before.

if _is_hidden:
    del sys.modules[_RICH]

get_logger = structlog.get_logger
