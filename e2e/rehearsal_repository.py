"""The repository of a rehearsed cluster: commits on demand of the scripts, applied as by Argo CD or Flux."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import yaml

from e2e.access import Access

KUSTOMIZE: Final = "kustomize"
_COMPONENT: Final = "kustomization.yaml"


class Repository:
    """A person with a repository, and the Argo CD or Flux that compares it with the cluster.

    A step of the plan's folder `kustomize` is committed when a script asks for it, and not before.

    Attributes:
        done: The commits, as sentences.
    """

    def __init__(self, cluster: Access, plan: Path) -> None:
        self.done: list[str] = []
        self._cluster = cluster
        self._plan = plan
        self._steps = sorted(path.name for path in (plan / KUSTOMIZE).glob("*"))
        document = yaml.load((plan / "plan.yaml").read_text(), Loader=yaml.CSafeLoader)
        self._lines = list(document.get("replacedLines") or ())

    def commit(self) -> None:
        """Commit everything that a script has asked for by now, each once."""
        if not self._steps and not self._lines:
            return
        logs = {path: path.read_text(errors="replace") for path in self._plan.rglob("*.log")}
        for step in tuple(self._steps):
            script = self._asking(
                logs.items(), f"commit kustomize/{step} of the plan"
            ) or self._asking(logs.items(), f"the entries of kustomize/{step}/")
            if script:
                self._apply(step)
                self._steps.remove(step)
                self.done.append(
                    f"during {script}: kustomize/{step} of the plan is committed, and applied as Argo CD or Flux would"
                )
        for entry in tuple(self._lines):
            name = f"{entry['namespace']}/{entry['name']}"
            lines = ", ".join(entry["lines"])
            script = self._asking(logs.items(), f"ResourceQuota {name} has {lines} still")
            if script:
                self._remove(entry["namespace"], entry["name"], entry["lines"])
                self._lines.remove(entry)
                self.done.append(
                    f"after {script} asks for it: {lines} is taken out of ResourceQuota {name} in the repository"
                )

    def _asking(self, logs: Iterable[tuple[Path, str]], text: str) -> str:
        """Return the first script with some words in its log; empty without one."""
        return next(
            (
                str(path.relative_to(self._plan).with_suffix(".sh"))
                for path, log in logs
                if text in log
            ),
            "",
        )

    def _apply(self, step: str) -> None:
        for path in sorted((self._plan / KUSTOMIZE / step).glob("*.yaml")):
            if path.name == _COMPONENT:
                continue
            document = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
            entries = [
                yaml.load(entry["patch"], Loader=yaml.CSafeLoader)
                for renderer in document.get("postRenderers", ())
                for entry in renderer["kustomize"]["patches"]
            ]
            for patch in entries or [document]:
                metadata = patch["metadata"]
                place = [f"--namespace={metadata['namespace']}"] if "namespace" in metadata else []
                # kustomize changes nothing where the target is missing.
                self._cluster.kubectl(
                    *("patch", patch["kind"].lower(), metadata["name"], *place),
                    *("--type=strategic", f"--patch={json.dumps(patch)}"),
                    check=False,
                )

    def _remove(self, namespace: str, name: str, lines: Iterable[str]) -> None:
        patch = json.dumps({"spec": {"hard": dict.fromkeys(lines)}})
        self._cluster.kubectl(
            *("patch", "resourcequota", name, f"--namespace={namespace}"),
            *("--type=merge", f"--patch={patch}"),
        )
