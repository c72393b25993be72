"""Driver profiles as files: those that come with the package, and a cluster's own.

A cluster's file replaces the shipped profile of the same driver as a whole; nothing is merged, so
a profile can be understood by reading one file.
"""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import yaml

from kube.errors import ConfigError
from kube.manifests.plain_yaml import load_yaml
from translation import profiles as shipped
from translation.profiles.profile import Profile, parse_profile

SUFFIXES: Final = (".yaml", ".yml", ".json")
MAX_BYTES: Final = 2**20
"""One file; a ConfigMap holds no more."""


def load_profiles(directory: Path | None = None) -> Mapping[str, Profile]:
    """Return driver to profile: the shipped ones, and those of a directory over them.

    Args:
        directory: Its *.yaml, *.yml and *.json, not deeper, one profile per file; a mounted
            ConfigMap, or what `--profiles DIR` names.

    Raises:
        ConfigError: The directory or a file cannot be read, a file is no profile, or two files of
            the directory are about one driver.
    """
    return _shipped_profiles() | (_of_directory(directory) if directory is not None else {})


def shipped_drivers() -> frozenset[str]:
    """Return the drivers with a profile in the package; a file is named after its driver."""
    return frozenset(
        file.name.removesuffix(".yaml")
        for file in files(shipped).iterdir()
        if file.name.endswith(".yaml")
    )


def _shipped_profiles() -> dict[str, Profile]:
    shipped_profiles = {
        file.name: parse_profile(file.read_bytes(), file.name, _load_trusted)
        for file in files(shipped).iterdir()
        if file.name.endswith(SUFFIXES)
    }
    return {profile.driver: profile for _, profile in sorted(shipped_profiles.items())}


def _load_trusted(text: bytes | str) -> Any:
    """Parse YAML of ours, several times as fast as any text can be parsed safely."""
    return yaml.load(text, Loader=yaml.CSafeLoader)


def _of_directory(directory: Path) -> dict[str, Profile]:
    profiles: dict[str, Profile] = {}
    sources: dict[str, Path] = {}
    for path, text in profile_texts(directory):
        profile = parse_profile(text, str(path), load_yaml)
        first = sources.setdefault(profile.driver, path)
        if first != path:
            raise ConfigError(f"{path}: {profile.driver} is described by {first} already")
        profiles[profile.driver] = profile
    return profiles


def profile_texts(directory: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield each profile file of a directory with its content, in the order of names.

    A mounted ConfigMap also holds directories and links that begin with two dots.

    Raises:
        ConfigError: The directory or a file cannot be read.
    """
    try:
        for path in sorted(directory.iterdir()):
            if path.suffix in SUFFIXES and not path.name.startswith(".") and path.is_file():
                with path.open("rb") as file:
                    text = file.read(MAX_BYTES + 1)
                if len(text) > MAX_BYTES:
                    raise ConfigError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
                yield path, text
    except OSError as fault:
        raise ConfigError(f"{fault.filename or directory}: {fault.strerror}") from fault
