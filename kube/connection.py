"""What we take of the `kubernetes` package: configuration, authentication, connections.

Its `__init__` imports everything that it has, the synchronous client with all its models first: a
quarter of a second and eight megabytes for nothing. So the package is entered without running that.
What is imported from it by name works as ever; only `import kubernetes` with `kubernetes.client`
after it fails, in a process that imports this module first. Why that is worth it: docs/adr/0011.
"""

import sys
from importlib.util import find_spec, module_from_spec

if "kubernetes" not in sys.modules:
    _found = find_spec("kubernetes")
    if _found is None:
        raise ModuleNotFoundError("no package kubernetes", name="kubernetes")
    sys.modules["kubernetes"] = module_from_spec(_found)

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
