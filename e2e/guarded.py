"""An environment that lets scripts reach one cluster and no other.

Its HOME is empty, its KUBECONFIG is of that cluster, and `kubectl` and `helm`, first in PATH, refuse words
that would lead elsewhere. Helm's releases are charts of others: their commands are only written down.
"""

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PRINTED: Final = "not-rehearsed.txt"
"""The file, in the folder of the programs, of the commands that were only written down, one a line."""
_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KUBECTL: Final = """\
#!/usr/bin/env bash
# kubectl for one cluster.
set -euo pipefail
for word in "$@"; do
  case "$word" in
    --context=@CONTEXT@) ;;
    --kubeconfig* | --context* | --cluster* | --user* | --server* | -s | -s=* | --token* | --username* | --tls-server-name*)
      printf 'kubectl: %s would lead to another cluster; a rehearsal has one of its own\\n' "$word" >&2
      exit 1
      ;;
  esac
done
export KUBECONFIG=@KUBECONFIG@ HOME=@HOME@ KUBERC=off KUBECACHEDIR=@HOME@/cache
exec @PROGRAM@ "$@"
"""
_HELM: Final = """\
#!/usr/bin/env bash
# The charts are of others and need what a rehearsal does not have: the command is written down.
printf 'helm%s\\n' "$(printf ' %q' "$@")" >> @PRINTED@
printf 'not rehearsed: helm%s\\n' "$(printf ' %q' "$@")" >&2
"""


def guarded_environment(
    folder: Path, kubeconfig: Path, kubectl: Path, context: str
) -> dict[str, str]:
    """Write the programs and return the environment; nothing of the caller's is in it but the locale.

    Args:
        folder: The folder to write to.
        kubeconfig: The kubeconfig of the cluster.
        kubectl: The real program.
        context: The only one that may be named.
    """
    home, programs = folder / "home", folder / "bin"
    for path in (home, programs):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    words = {
        "CONTEXT": context,
        "KUBECONFIG": str(kubeconfig),
        "HOME": str(home),
        "PROGRAM": str(kubectl),
        "PRINTED": str(folder / PRINTED),
    }
    _write(programs / "kubectl", _KUBECTL, words)
    _write(programs / "helm", _HELM, words)
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TERM") if name in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "KUBECONFIG": str(kubeconfig),
        "KUBERC": "off",
        "PATH": f"{programs}:{Path(sys.executable).parent}:{_SYSTEM_PATH}",
    }


def printed_commands(folder: Path) -> list[str]:
    """Return the commands that were only written down, each once."""
    path = folder / PRINTED
    texts = path.read_text().splitlines() if path.exists() else []
    # The scripts add the context, which a person would not write.
    return list(dict.fromkeys(re.sub(r" --kube-context=\S+", "", text) for text in texts))


def _write(path: Path, text: str, words: Mapping[str, str]) -> None:
    for name, value in words.items():
        text = text.replace(f"@{name}@", shlex.quote(value))
    path.write_text(text)
    path.chmod(0o700)
