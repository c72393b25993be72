"""The parts of the `kubernetes` package in use: configuration, authentication, connections.

Its packages import in their `__init__` what nothing here uses: the synchronous client, a dynamic
client, an HTTP client, pydantic for the models. That is a third of the imports of a process. This
module registers the packages without running their `__init__`. Submodules import by name as usual;
only `import kubernetes` followed by `kubernetes.client` fails in a process that imports this module
first (docs/adr/0011-a-thin-client-of-our-own.md).
"""

# ruff: noqa: E402 - the packages are registered before they are imported from.

import sys
from importlib.util import find_spec, module_from_spec
from typing import Final

_PACKAGES: Final = ("kubernetes", "kubernetes.aio", "kubernetes.aio.utils")


def _register(package: str) -> None:
    """Register a package, with its parents registered before, without running its `__init__`."""
    if package in sys.modules:
        return
    spec = find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"no package {package}", name=package)
    module = module_from_spec(spec)
    sys.modules[package] = module
    parent, _, name = package.rpartition(".")
    if parent:
        setattr(sys.modules[parent], name, module)


for _package in _PACKAGES:
    _register(_package)

from kubernetes.aio import client as _client

_without_api_client = "ApiClient" not in vars(_client)
if _without_api_client:
    # `kube_config` imports the name for two functions that nothing here calls.
    vars(_client)["ApiClient"] = None

from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.incluster_config import (
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    load_incluster_config,
)
from kubernetes.aio.config.kube_config import (
    KUBE_CONFIG_DEFAULT_LOCATION,
    KubeConfigLoader,
    KubeConfigMerger,
)

if _without_api_client:
    del vars(_client)["ApiClient"]  # Whoever asks for it imports it.

__all__ = [
    "KUBE_CONFIG_DEFAULT_LOCATION",
    "SERVICE_HOST_ENV_NAME",
    "SERVICE_TOKEN_FILENAME",
    "ConfigException",
    "Configuration",
    "KubeConfigLoader",
    "KubeConfigMerger",
    "RESTClientObject",
    "load_incluster_config",
]
