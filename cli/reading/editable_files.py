"""The files that `drawbridge translate --in-place` may rewrite. Reads files."""

from collections.abc import Iterator
from pathlib import Path

from kube.errors import NotEditable, ObjectFileError
from kube.manifests.source import CHART, KUSTOMIZATIONS


def read_editable(path: str) -> bytes:
    """Return the content of a file of manifests.

    Raises:
        NotEditable: Another program builds the manifests that are applied from this file. It would
            build something else from a translated one: a chart has templates, and kustomize does not
            know where workloads name ResourceClaimTemplates.
        ObjectFileError: The file cannot be read.
    """
    file = Path(path)
    for directory in _directories(file):
        if (directory / CHART).is_file():
            raise NotEditable(
                f"{path}: belongs to the Helm chart {directory}; translate what it renders: "
                f"helm template {directory} | drawbridge translate -f -"
            )
        if any((directory / name).is_file() for name in KUSTOMIZATIONS):
            raise NotEditable(
                f"{path}: belongs to the kustomization {directory}; translate what it builds: "
                f"kubectl kustomize {directory} | drawbridge translate -f -"
            )
    try:
        return file.read_bytes()
    except OSError as error:
        raise ObjectFileError(f"{path}: {error.strerror}") from error


def _directories(file: Path) -> Iterator[Path]:
    """Yield the directory of a file, then those above it up to the root of its git repository."""
    for directory in file.resolve().parents:
        yield directory
        if (directory / ".git").exists():
            return
