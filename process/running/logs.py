"""Logs: JSON lines on standard error, or words if a person reads along."""

import logging
from collections.abc import Mapping
from typing import Any, Final, TextIO

import msgspec

from kube.logs import get_logger, structlog
from process.model.settings import LogLevel

LEVELS: Final[Mapping[LogLevel, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

log = get_logger()


class LibraryLines(logging.Handler):
    """Passes on log records of libraries, each as one JSON line without a traceback.

    A TLS handshake that fails is one, and whoever reaches the port can make it fail.
    """

    max_length: Final = 256
    """Characters of a text that may quote the head of a request."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record."""
        fault = record.exc_info[1] if record.exc_info else None
        text = record.getMessage().partition("\n")[0][: self.max_length]
        error = f"{type(fault).__name__}: {fault}"[: self.max_length] if fault else None
        log.log(record.levelno, "library.logged", logger=record.name, message=text, error=error)


def log_to(stream: TextIO, level: LogLevel) -> None:
    """Write the log to a stream: JSON, or text if it is a terminal.

    Tracebacks come without local variables: those hold tokens, keys, and other people's pods.
    """
    renderer: Any = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    steps: list[Any] = [structlog.processors.TimeStamper(fmt="iso", utc=True)]
    if not stream.isatty():
        without_locals = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        steps.append(structlog.processors.ExceptionRenderer(without_locals))
        renderer = structlog.processors.JSONRenderer(serializer=_json)
    structlog.configure(
        processors=[structlog.processors.add_log_level, *steps, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[LibraryLines()], level=max(LEVELS[level], logging.WARNING))


def _json(value: object, **_: object) -> str:
    """Encode a line; escape characters that terminals or editors obey, beyond JSON's rules."""
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(char: str) -> str:
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[start : start + 2].hex()}" for start in range(0, len(units), 2))
