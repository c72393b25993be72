"""The proxy that the environment names for the API server."""

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from kube.errors import ConfigError


def proxy_of(server: str) -> str | None:
    """Return the URL of the proxy for a server; None if connections go there directly.

    The environment is asked once for a client. aiohttp's `trust_env` would ask it in each request, on a
    thread, and read ~/.netrc on another one. That is two thirds of a request's CPU, and an entry for the
    API server's host in that file makes every request with a token fail.

    Args:
        server: The API server's URL. HTTPS_PROXY or HTTP_PROXY, by its scheme, and NO_PROXY count, as
            in Go's clients.

    Raises:
        ConfigError: It is not a URL; it may hold a password, so the message does not show it.
    """
    url = urlsplit(server)
    proxies = getproxies()
    proxy = proxies.get(url.scheme)
    if not proxy or _is_direct(url.hostname or "", proxies.get("no", "")):
        return None
    try:
        return str(URL(proxy if "://" in proxy else f"http://{proxy}"))
    except ValueError:
        message = f"the environment names a proxy for {url.scheme} that is not a URL"
        raise ConfigError(message) from None


def _is_direct(host: str, exceptions: str) -> bool:
    """Return True if a host is reached directly, by NO_PROXY with Go's networks and exceptions.

    Source: golang.org/x/net/http/httpproxy, Config.useProxy.
    """
    if host == "localhost" or proxy_bypass(host):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False  # A name.
    return address.is_loopback or any(
        address in network for network in map(_network, exceptions.split(",")) if network
    )


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError:
        return None  # A name.
