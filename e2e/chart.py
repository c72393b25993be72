"""The Helm chart, and the real Helm."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from e2e.access import Object
from e2e.binaries import helm
from e2e.drawbridge import ROOT
from kube.api.own_kinds import OWN_KINDS
from kube.names import GROUP, NAMESPACE

CHART: Final = ROOT / "charts" / "drawbridge"
RELEASE: Final = "drawbridge"
DEFINITIONS: Final = tuple(sorted(f"{kind.plural}.{GROUP}" for kind in OWN_KINDS))
"""CustomResourceDefinitions, which an uninstall leaves."""


def run_helm(
    *arguments: str | Path,
    kubeconfig: Path | None = None,
    environment: Mapping[str, str] | None = None,
    fails: bool = False,
) -> str:
    """Return the output of Helm: that on standard error if it has to fail."""
    variables = {"KUBECONFIG": str(kubeconfig or os.devnull), **(environment or {})}
    result = subprocess.run(
        [helm(), *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert bool(result.returncode) is fails, result.stdout + result.stderr
    return result.stderr if fails else result.stdout


def template(*flags: str, namespace: str = NAMESPACE) -> list[Object]:
    """Return the objects of the chart."""
    where = ("--namespace", namespace, "--kube-version", "1.37.1")
    text = run_helm("template", RELEASE, CHART, *where, *flags)
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


def key_of(document: Object) -> tuple[str, str, str]:
    """Return the kind, the namespace and the name of an object."""
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]
