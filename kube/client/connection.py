"""The parts of the `kubernetes` package in use: configuration, authentication, connections.

The package's `__init__` imports the synchronous client with all its models, which costs a quarter of
a second and eight megabytes. This module registers the package without running its `__init__`.
Submodules import by name as usual; only `import kubernetes` followed by `kubernetes.client` fails in
a process that imports this module first (docs/adr/0011-a-thin-client-of-our-own.md).
"""

import sys
from importlib.util import find_spec, module_from_spec

if "kubernetes" not in sys.modules:
    _spec = find_spec("kubernetes")
    if _spec is None:
        raise ModuleNotFoundError("no package kubernetes", name="kubernetes")
    sys.modules["kubernetes"] = module_from_spec(_spec)

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
