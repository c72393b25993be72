import asyncio
from pathlib import Path

import msgspec
import pytest
from aiohttp import encode_basic_auth
from kubernetes.aio.client import Configuration

from kube.api.urls import Resource
from kube.client.client import Client
from kube.client.proxies import proxy_of
from kube.errors import ConfigError
from testing.fake_api_server import FakeApiServer

PODS = Resource(version="v1", plural="pods")
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
ANSWER = b'{"metadata":{"name":"a"}}'


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("server", "proxy"),
    [
        ("https://api.example.com:6443", "http://proxy.example.com:3128"),
        ("http://api.example.com", "http://me:p%40ss@plain.example.com:8080"),
        ("https://api.internal.example.com", None),
        ("https://10.0.0.1:6443", None),
        ("https://10.96.0.1:443", None),
        ("https://127.0.0.1:6443", None),
        ("https://localhost:6443", None),
        ("https://[fd00::1]:443", None),
        ("https://10.112.0.1:443", "http://proxy.example.com:3128"),
    ],
)
def test_a_proxy_is_chosen_by_scheme_and_host(
    environment: pytest.MonkeyPatch, server: str, proxy: str | None
) -> None:
    environment.setenv("HTTPS_PROXY", "proxy.example.com:3128")
    environment.setenv("http_proxy", "http://me:p%40ss@plain.example.com:8080")
    environment.setenv("NO_PROXY", "10.0.0.1,.internal.example.com, 10.96.0.0/12,fd00::/8,a/b")
    assert proxy == proxy_of(server)


async def test_requests_go_through_the_proxy_with_its_password(
    environment: pytest.MonkeyPatch,
) -> None:
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        environment.setenv("http_proxy", f"http://me:secret@127.0.0.1:{port}")
        configuration = Configuration(host="http://api.example.com")
        async with Client(configuration) as client:
            assert ANSWER == bytes(await client.get(PODS, "a", msgspec.Raw, namespace="default"))
    (head,) = heads
    assert head.startswith(b"GET http://api.example.com/api/v1/namespaces/default/pods/a HTTP/1.1")
    assert f"Proxy-Authorization: {encode_basic_auth('me', 'secret')}".encode() in head


async def test_what_is_no_proxy_is_an_error_that_hides_its_password(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("https_proxy", "http://me:secret@[proxy")
    with pytest.raises(ConfigError, match="proxy for https that is not a URL") as error:
        await Client(Configuration(host="https://api.example.com")).__aenter__()
    assert "secret" not in str(error.value)


async def test_the_token_is_sent_whatever_the_netrc_file_holds(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    environment.setenv("NETRC", str(tmp_path / "netrc"))
    async with FakeApiServer() as server:
        configuration = Configuration(
            host=server.url,
            api_key={"BearerToken": "token"},
            api_key_prefix={"BearerToken": "Bearer"},
        )
        async with Client(configuration) as client:
            assert () == (await client.list(PODS, msgspec.Raw)).items
