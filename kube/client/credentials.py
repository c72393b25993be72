"""Credentials of the client from a service account or a kubeconfig, and their reloading."""

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import yaml

from kube.client.connection import (
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    ConfigException,
    Configuration,
    KubeConfigLoader,
    KubeConfigMerger,
)
from kube.errors import ConfigError

MAX_TOKEN_AGE_S: Final = 60.0
"""The time after which credentials of a kubeconfig are reloaded."""


KUBECONFIG_ERRORS: Final = (
    *(ConfigException, OSError, ValueError, yaml.YAMLError),
    *(TypeError, AttributeError, KeyError),  # The library does not validate the file's structure.
)


def has_service_account() -> bool:
    """Return True if the process runs in a pod with a service account."""
    return bool(os.environ.get(SERVICE_HOST_ENV_NAME)) and Path(SERVICE_TOKEN_FILENAME).is_file()


def merge_kubeconfigs(paths: str) -> Any:
    """Merge the configuration of kubeconfig files, named and separated as in $KUBECONFIG.

    Raises:
        ConfigError: None of the files exists.
    """
    files = [path for path in paths.split(os.pathsep) if path and Path(path).expanduser().exists()]
    if not files:
        # The library would log a line of its own.
        raise ConfigError(f"no kubeconfig at {paths}: set KUBECONFIG, or use --kubeconfig")
    return KubeConfigMerger(os.pathsep.join(files)).config


def check_context(config: Any, context: str | None) -> None:
    """Raise ConfigError if a context is named that the configuration does not have."""
    context_names = [entry["name"] for entry in config.value["contexts"]]
    if context is not None and context not in context_names:
        contexts = ", ".join(sorted(context_names)) or "none"
        raise ConfigError(f'context "{context}" does not exist; contexts are: {contexts}')


def credential_refresher(loader: KubeConfigLoader) -> Callable[[Configuration], Awaitable[None]]:
    """Return a hook that reloads credentials; `kubernetes.aio` calls it before it uses a token."""
    loaded_at = time.monotonic()

    async def reload(configuration: Configuration) -> None:
        nonlocal loaded_at
        if time.monotonic() - loaded_at >= MAX_TOKEN_AGE_S:
            await loader.load_and_set(configuration)
            loaded_at = time.monotonic()

    return reload
