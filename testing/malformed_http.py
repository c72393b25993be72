"""Requests that are not HTTP, or odd HTTP, each with a word that no answer may repeat."""

import re
from typing import Final, NamedTuple

WORD: Final = "xyzzy-plugh"
"""A word in every request; an answer that holds it quotes the request."""


class Malformed(NamedTuple):
    """A request as bytes, and its oddity."""

    name: str
    request: bytes


def _request(line: str, *headers: str, body: str = "") -> bytes:
    return "\r\n".join((line, *headers, "", body)).encode("latin-1")


_HOST: Final = f"Host: {WORD}"

MALFORMED: Final = (
    Malformed("no HTTP at all", f"{WORD}\r\n\r\n".encode()),
    Malformed(
        "TLS to a plain port", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + WORD.encode()
    ),
    Malformed("zero bytes", b"\x00" * 64 + WORD.encode() + b"\r\n\r\n"),
    Malformed("an unknown version", _request(f"GET /{WORD} HTTP/9.9", _HOST)),
    Malformed("no version", _request(f"GET /{WORD}", _HOST)),
    Malformed("no path", _request("GET  HTTP/1.1", _HOST)),
    Malformed("a path with spaces", _request(f"GET /{WORD} a b HTTP/1.1", _HOST)),
    Malformed("a path with control characters", _request(f"GET /{WORD}\x1b[31m HTTP/1.1", _HOST)),
    Malformed(
        "a path of bytes that are no UTF-8", _request(f"GET /{WORD}\xff\xfe HTTP/1.1", _HOST)
    ),
    Malformed("a long path", _request(f"GET /{WORD}{'a' * 9000} HTTP/1.1", _HOST)),
    Malformed("a long header", _request("GET / HTTP/1.1", _HOST, f"A: {WORD * 2000}")),
    Malformed("a long name of a header", _request("GET / HTTP/1.1", f"{WORD * 2000}: a")),
    Malformed("many headers", _request("GET / HTTP/1.1", *(f"{WORD}-{n}: a" for n in range(500)))),
    Malformed("a header without colon", _request("GET / HTTP/1.1", WORD)),
    Malformed("a header with a space in its name", _request("GET / HTTP/1.1", f"{WORD} a: b")),
    Malformed("a header that goes on", _request("GET / HTTP/1.1", _HOST, f" {WORD}")),
    Malformed("a header with a zero byte", _request("GET / HTTP/1.1", f"A: {WORD}\x00")),
    Malformed(
        "two lengths", _request("POST / HTTP/1.1", _HOST, "Content-Length: 1", "Content-Length: 2")
    ),
    Malformed("a negative length", _request("POST / HTTP/1.1", _HOST, "Content-Length: -1")),
    Malformed("a length in words", _request("POST / HTTP/1.1", f"Content-Length: {WORD}")),
    Malformed(
        "a length beyond int64", _request("POST / HTTP/1.1", _HOST, f"Content-Length: {'9' * 30}")
    ),
    Malformed(
        "a length and chunks",
        _request("POST / HTTP/1.1", _HOST, "Content-Length: 5", "Transfer-Encoding: chunked"),
    ),
    Malformed(
        "a chunk without size",
        _request("POST / HTTP/1.1", _HOST, "Transfer-Encoding: chunked", body=f"{WORD}\r\n"),
    ),
    Malformed("an unknown coding", _request("POST / HTTP/1.1", f"Transfer-Encoding: {WORD}")),
    Malformed("an unknown method", _request(f"{WORD.upper()} / HTTP/1.1", _HOST)),
    Malformed("CONNECT", _request(f"CONNECT {WORD}:443 HTTP/1.1", _HOST)),
    Malformed("CONNECT to a path", _request(f"CONNECT /{WORD} HTTP/1.1", _HOST)),
    Malformed("OPTIONS of everything", _request("OPTIONS * HTTP/1.1", _HOST)),
    Malformed("OPTIONS of a path", _request(f"OPTIONS /{WORD} HTTP/1.1", _HOST)),
    Malformed("TRACE", _request(f"TRACE /{WORD} HTTP/1.1", _HOST, "Max-Forwards: 0")),
    Malformed("an unknown Expect", _request(f"POST /{WORD} HTTP/1.1", _HOST, f"Expect: {WORD}")),
    Malformed("a whole URL", _request(f"GET http://{WORD}/{WORD} HTTP/1.1", _HOST)),
    Malformed("a URL that is none", _request(f"GET http://[{WORD}/ HTTP/1.1", _HOST)),
    Malformed(
        "an upgrade",
        _request(f"GET /{WORD} HTTP/1.1", _HOST, "Connection: Upgrade", "Upgrade: websocket"),
    ),
    Malformed("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    Malformed("HTTP/1.0", _request(f"GET /{WORD} HTTP/1.0")),
    Malformed(
        "garbage behind an upgrade",
        _request(f"GET /{WORD} HTTP/1.1", _HOST, "Connection: Upgrade", "Upgrade: h2c", body=WORD)
        + b"\r\n\r\n",
    ),
)

_SILENT: Final = re.compile(
    rb"HTTP/[0-9.]{3} 40[04] (Bad Request|Not Found)|Server: ?|Content-Length: 0|Date: [^:]*:..:.. GMT"
    rb"|Content-Type: application/octet-stream|Connection: close"
)


def revealing_lines(answer: bytes) -> list[bytes]:
    """Return the lines of an answer that reveal more than that the request was HTTP or not."""
    return [line for line in answer.split(b"\r\n") if line and not _SILENT.fullmatch(line)]
