"""A plan with two waves, and commands in place of kubectl, helm and drawbridge that change a folder.

The folder is the state of a cluster: a file for each cordoned node, label, annotation and patched object.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import namespace, resource_quota
from testing.migration import SHARE, hami_node, origin, workload

UID: Final = "6f3c9d6e-1111-4c57-9d8f-000000000001"
_FAKE: Final = r"""#!/bin/sh
# Called as kubectl, helm, drawbridge or sleep. $KILL is "N before" or "N after": that call ends everything; "N
# interrupt": it is interrupted; or "restarts": one that comes right after another is refused.
cluster="@CLUSTER@"
program="${0##*/}"
words=""
for word in "$@"; do case "$word" in --context=*) ;; *) words="$words $word";; esac; done
case "$words" in *current-context*) echo chosen; exit 0;; *kube-system*) echo "$FAKE_UID"; exit 0;; esac
# All workloads of the plan are there, and no earlier run has left a node cordoned.
case "$words" in *spec.unschedulable*) exit 0;; esac
case "$words" in *"--ignore-not-found --output=name"*) echo object; exit 0;; esac
case "$words" in *status.allocatable*) echo 999; exit 0;; esac
# HAMi's chart is installed, as the plan asks a person to.
case "$words" in *daemonsets*) echo hami-core-gpu.project-hami.io; exit 0;; esac
echo "$program$words" >> "@CALLS@"
number=$(wc -l < "@CALLS@")
if [ "$KILL" = "$number before" ]; then kill -9 $PPID; exit 137; fi
if [ "$KILL" = "$number interrupt" ]; then kill -INT $PPID; exit 1; fi
# shellcheck disable=SC2086
set -- $words
change() {
  for mark in "$@"; do
    case "$mark" in
      --*) ;;
      *=*) printf %s "${mark#*=}" > "$cluster/$(echo "$object.${mark%%=*}" | tr / _)" ;;
      *-) rm -f "$cluster/$(echo "$object.${mark%-}" | tr / _)" ;;
    esac
  done
}
case "$program $1" in
  sleep*) rm -f "$cluster/restarted" ;;
  "kubectl rollout")
    if [ "$KILL" = restarts ]; then
      if [ -e "$cluster/restarted" ]; then exit 1; fi
      touch "$cluster/restarted"
    fi
    ;;
  "kubectl cordon") shift; for node in "$@"; do touch "$cluster/cordoned.$node"; done ;;
  "kubectl drain") case "$words" in *dry-run*) ;; *) touch "$cluster/cordoned.$2" ;; esac ;;
  "kubectl uncordon") rm -f "$cluster/cordoned.$2" ;;
  "kubectl label" | "kubectl annotate") object="$2.$3"; shift 3; change "$@" ;;
  "kubectl patch")
    # A dry run has the values that the patch after it leads to; without a file all are missing.
    file="$cluster/patched.$(echo "$2" | tr / _)"
    case "$words" in
      *dry-run*)
        echo "${words#*--patch=}" > "$cluster.next"
        if [ -e "$file" ]; then cmp -s "$file" "$cluster.next"; exit; fi
        case "$words" in *'"value":null'*) exit 0 ;; *) exit 1 ;; esac
        ;;
      *) case "$(cat "$cluster.next")" in *'"value":null'*) rm -f "$file" ;; *) cp "$cluster.next" "$file" ;; esac ;;
    esac
    ;;
  "kubectl apply") case "$words" in *dry-run*) ;; *) touch "$cluster/applied.${2##*/}" ;; esac ;;
esac
if [ "$KILL" = "$number after" ]; then kill -9 $PPID; exit 137; fi
"""


def fleet() -> list[Mapping[str, Any]]:
    """Return a cluster with three nodes of HAMi and two namespaces."""
    system = namespace("kube-system")
    system["metadata"]["uid"] = UID
    quota = resource_quota({"requests.nvidia.com/gpu": "8"})
    return [
        {**origin(), "server": "https://gpu.example:6443"},
        *(system, namespace("team"), namespace("other"), quota),
        *(hami_node("hami-0"), hami_node("hami-1"), hami_node("hami-2")),
        *workload("web", SHARE, ["hami-0"]),
        *workload("api", SHARE, ["hami-1"], namespace="other"),
    ]


def write_plan(folder: Path, *others: Mapping[str, Any]) -> Path:
    """Write the plan of the fleet and other objects, with waves of two nodes."""
    snapshot = folder / "cluster.yaml"
    snapshot.write_text(dump_yaml([*fleet(), *others]))
    result = drawbridge("plan", "--snapshot", snapshot, "--wave-nodes", 2, "-o", folder / "plan")
    assert 0 == result.exit_code, result.output
    return folder / "plan"


class ScriptedCluster:
    """Programs for the PATH, and their changes."""

    def __init__(self, folder: Path) -> None:
        """Write the programs into a folder."""
        self.calls = folder / "calls"
        self.state = folder / "state"
        self.bin = folder / "bin"
        for path in (self.bin, self.state):
            path.mkdir(parents=True)
        self.calls.touch()
        text = _FAKE.replace("@CLUSTER@", str(self.state)).replace("@CALLS@", str(self.calls))
        for program in ("kubectl", "helm", "drawbridge", "sleep"):
            (self.bin / program).write_text(text)
            (self.bin / program).chmod(0o755)

    def environment(self, kill: str = "", uid: str = UID) -> dict[str, str]:
        """Return the environment that has the programs in the PATH of scripts."""
        path = f"{self.bin}:{os.environ['PATH']}"
        return {"PATH": path, "KILL": kill, "FAKE_UID": uid}

    def snapshot(self) -> dict[str, str]:
        """Return the changes made by the programs."""
        return {path.name: path.read_text() for path in sorted(self.state.iterdir())}

    def lines(self, *starts: str) -> list[str]:
        """Return the calls that begin so, without the questions about the cluster."""
        return [line for line in self.calls.read_text().splitlines() if line.startswith(starts)]
