"""The namespaces of a node: the processes started in them end with them, in any case.

Process ids, mounts and cgroups of a node are its own. Its first process dies with the test run, the
kernel then ends every other one, and its mounts are gone. /var/lib and /run are folders of the node, so
that all programs run with the paths that they have on a machine.
"""

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Final

from e2e.access import Access
from e2e.binaries import box
from e2e.node.cgroups import CGROUPS, CONTROLLERS, remove_cgroups

TIMEOUT_S: Final = 180.0
_REMOVER: Final = Path(__file__).parent / "cgroups.py"
_NEEDED: Final = ("unshare", "nsenter", "mount", "runc")
_NEEDED_CONTROLLERS: Final = frozenset({"cpu", "memory", "pids"})
"""The controllers of cgroup v2 that the kubelet and containerd need."""

# $1 is the folder of the node, $2 the name of its cgroup, $3 what to be in the end.
_OUTSIDE: Final = r"""
set -e
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
  # Version 2. The root of the node's namespace has controllers only while no process is in it, so all of
  # them, also the one that waits outside, are in a child of it.
  cd /sys/fs/cgroup
  mkdir -p "$2/init"
  for controller in $(cat cgroup.controllers); do
    echo "+$controller" > cgroup.subtree_control 2>/dev/null || true
  done
  echo $$ > "$2/cgroup.procs"
  exec unshare --cgroup sh -c 'echo $$ > "/sys/fs/cgroup/$2/init/cgroup.procs"
    cd /
    exec unshare --mount --pid --fork --kill-child --propagation private sh -c "$4" sh "$1" "$2" "$3"' \
    sh "$1" "$2" "$3" "$4"
fi
for hierarchy in /sys/fs/cgroup/*/; do
  mkdir -p "$hierarchy$2"
  for file in cpuset.cpus cpuset.mems; do
    [ ! -f "$hierarchy$2/$file" ] || cat "$hierarchy$file" > "$hierarchy$2/$file"
  done
  echo $$ > "$hierarchy$2/cgroup.procs"
done
exec unshare --mount --pid --cgroup --fork --kill-child --propagation private \
  sh -c "$4" sh "$1" "$2" "$3"
"""
_INSIDE: Final = r"""
set -e
mount -t proc proc /proc
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
  umount /sys/fs/cgroup
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control
  done
fi
for hierarchy in /sys/fs/cgroup/*/; do
  # The same file system is not mounted twice on one folder.
  umount "$hierarchy" 2>/dev/null || continue
  case "$hierarchy" in
    */systemd/) mount -t cgroup -o none,name=systemd cgroup "$hierarchy" ;;
    */unified/) mount -t cgroup2 cgroup2 "$hierarchy" ;;
    *) mount -t cgroup -o "$(basename "$hierarchy")" cgroup "$hierarchy" ;;
  esac
done
mount --bind "$1/lib" /var/lib
mount --bind "$1/run" /run
touch "$1/ready"
exec "$3" pause
"""

# $1 is the cgroup. It is joined from outside: from inside its namespace, version 2 moves no process that is
# outside of it (nsdelegate), and containers would not start.
_JOIN: Final = r"""
set -e
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
  echo $$ > "/sys/fs/cgroup/$1/init/cgroup.procs"
else
  for hierarchy in /sys/fs/cgroup/*/; do echo $$ > "$hierarchy$1/cgroup.procs"; done
fi
shift
exec "$@"
"""


def missing() -> str:
    """Return the reason a node cannot be started on this machine; empty when it can."""
    if sys.platform != "linux":
        return "a real node needs Linux"
    if os.geteuid() != 0:
        return "a real node needs root"
    absent = [name for name in _NEEDED if shutil.which(name) is None]
    if absent:
        return f"a real node needs {', '.join(absent)} (Debian: apt-get install runc util-linux)"
    return missing_cgroups(CGROUPS)


def missing_cgroups(folder: Path) -> str:
    """Return the reason a node cannot have cgroups; empty when it can.

    Args:
        folder: The folder that cgroups are mounted at.
    """
    if (folder / "memory").is_dir():
        return ""
    if not (folder / CONTROLLERS).is_file():
        return f"a real node needs cgroups of version 1 or 2 at {folder}"
    absent = _NEEDED_CONTROLLERS.difference((folder / CONTROLLERS).read_text().split())
    if absent:
        return f"a real node needs the cgroup controllers {', '.join(sorted(absent))}"
    return ""


class Namespaces:
    """Namespaces that end with their first process."""

    def __init__(self, access: Access, name: str, folder: Path) -> None:
        """Name them; nothing is started yet.

        Args:
            access: The access with the keeper that ends them when this process dies.
            name: The name of the first process and of the cgroup.
            folder: The folder of the node.
        """
        self._access = access
        self._name = name
        self.folder = folder
        self._first = 0

    def start(self) -> None:
        """Start the first process and return when everything is mounted."""
        for part in ("lib", "run"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        self._access.after_end(self._name, (sys.executable, _REMOVER, self._name))
        child = self._access.run(
            self._name,
            ("sh", "-c", _OUTSIDE, "sh", self.folder, self._name, box(), _INSIDE),
        )
        deadline = time.monotonic() + TIMEOUT_S
        while not ready.exists():
            assert child.exit_status is None, f"no namespaces:\n{child.tail()}"
            assert time.monotonic() < deadline, f"no namespaces in time:\n{child.tail()}"
            time.sleep(0.01)
        assert child.record is not None
        (self._first,) = _children(child.record.pid)

    def command(self, *words: str | Path) -> tuple[str | Path, ...]:
        """A command line that runs a program in the namespaces."""
        flags = ("--mount", "--pid", "--cgroup", f"--wdns={self.folder}")
        join = ("sh", "-c", _JOIN, "sh", self._name)
        return (*join, "nsenter", f"--target={self._first}", *flags, "--", *words)

    def path(self, path: str) -> Path:
        """Return the path of a file of the node, seen from here."""
        return Path(f"/proc/{self._first}/root{path}")

    def stop(self) -> None:
        """End everything in the namespaces and remove the cgroups."""
        child = self._access.children.pop(self._name, None)
        if child is not None:
            child.stop()
        remove_cgroups(self._name)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]
