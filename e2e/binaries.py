"""The cluster's programs, built from Go modules once and kept by the hash of their inputs.

Several modules, because each pins other libraries than the rest:

* `e2e/controlplane`: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and
  kubectl in one binary, which is each of them by the name it is called by. Its go.mod names Kubernetes 1.37.
* `e2e/controlplane/older`: kube-apiserver, kube-controller-manager and kube-scheduler of an older version,
  if `DRAWBRIDGE_E2E_KUBERNETES` chooses one: 1.35 is built with `kubernetes-1.35.mod`.
* `e2e/kwok`: simulated nodes, from kwok's own command.
* `bridge`: the scheduler of this project, kube-scheduler with one plugin. Only stories of the bridge
  build it; most of it is compiled already once the control plane is.
* `e2e/certmanager`: the controllers of cert-manager and its cainjector, in a command of ours. Only the
  story of the overlay with cert-manager builds it.
* `e2e/containerd`: containerd, its shim for runc, `ctr`, and the CNI plugin for loopback, from their
  own commands. Only stories with a real node build it, and `e2e/box`, which is in their images.
* `e2e/helm`: Helm from its own command. Only stories of the chart build it.

Nothing is downloaded but Go modules, each checked against go.sum. A cold build of the first two takes
about seven minutes of two cores, of the third two more, and of cert-manager two; afterwards they are found by their hash.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tools.go import go_command

COMPONENTS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
)
NODE_PROGRAMS: Final = ("containerd", "containerd-shim-runc-v2", "ctr", "loopback")

_HERE: Final = Path(__file__).parent
_NEWEST_MOD_FILE: Final = "go.mod"
_VERSION: Final = "k8s.io/component-base/version"
OLDER_VARIABLE: Final = "DRAWBRIDGE_E2E_KUBERNETES"
"""The minor version of an older control plane, such as 1.35."""
FOLDER_VARIABLE: Final = "DRAWBRIDGE_E2E_BINARIES"
"""A folder with the programs of a control plane and kwok, in place of those that are built."""


def _mod_file(minor: str) -> str:
    """The file that names the modules of the control plane, of a minor version or of the newest."""
    if not minor:
        return _NEWEST_MOD_FILE
    known = {
        file.stem.removeprefix("kubernetes-"): file.name
        for file in (_HERE / "controlplane").glob("kubernetes-*.mod")
    }
    if minor not in known:
        sys.exit(f"{OLDER_VARIABLE}={minor}: there are {', '.join(sorted(known))}")
    return known[minor]


def _pinned(module: str, mod_file: str) -> str:
    """The version that a file of e2e/controlplane requires of a module, without its v."""
    text = (_HERE / "controlplane" / mod_file).read_text()
    outcome = re.search(rf"^\s*{re.escape(module)} v(\S+)$", text, re.MULTILINE)
    assert outcome is not None, module
    return outcome[1]


def _kubernetes_flags(version: str) -> str:
    """The flags that link a version into programs; without one, comparisons of versions misbehave."""
    major, minor, _ = version.split(".")
    return (
        f"-s -w -X {_VERSION}.gitVersion=v{version}"
        f" -X {_VERSION}.gitMajor={major} -X {_VERSION}.gitMinor={minor}"
    )


_MOD_FILE: Final = _mod_file(os.environ.get(OLDER_VARIABLE, ""))
KUBERNETES: Final = _pinned("k8s.io/kubernetes", _MOD_FILE)
"""The version of the control plane."""
_NEWEST: Final = _pinned("k8s.io/kubernetes", _NEWEST_MOD_FILE)
"""The version of the bridge, and of what is beside an older control plane."""
BUILD_ENVIRONMENT: Final = {
    "GOTOOLCHAIN": "local",
    "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
    "CGO_ENABLED": "0",
}
COMPILER_FLAGS: Final = "-gcflags=all=-dwarf=false"
"""No data for debuggers, which `-s -w` would leave out of the program: a quarter of the compiler's time.

Programs are the same without, so their `fingerprint` does not depend on it.
"""


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """One Go module, and the build of its programs.

    Attributes:
        packages: One is built as the module's name, and called by all of `names`; several are built
            as what they are called.
        mod_file: Its go.mod; the go.sum has the same stem.
    """

    name: str
    packages: tuple[str, ...]
    sources: tuple[str, ...]
    ldflags: str
    names: tuple[str, ...]
    parent: Path = _HERE
    mod_file: str = "go.mod"

    @property
    def folder(self) -> Path:
        """Its directory."""
        return self.parent / self.name


CONTROL_PLANE: Final = Module(
    name="controlplane",
    packages=(".",),
    sources=("go.mod", "go.sum", "main.go"),
    ldflags=_kubernetes_flags(_NEWEST),
    names=COMPONENTS,
)
OLDER_CONTROL_PLANE: Final = Module(
    name="controlplane",
    packages=("./older",),
    sources=(_MOD_FILE, str(Path(_MOD_FILE).with_suffix(".sum")), "older/main.go"),
    ldflags=_kubernetes_flags(KUBERNETES),
    names=("kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    mod_file=_MOD_FILE,
)
KWOK: Final = Module(
    name="kwok",
    packages=("sigs.k8s.io/kwok/cmd/kwok",),
    sources=("go.mod", "go.sum"),
    ldflags="-s -w",
    names=("kwok",),
)
MODULES: Final = (
    CONTROL_PLANE,
    # Its programs take the place of those of the same name.
    *([OLDER_CONTROL_PLANE] if _MOD_FILE != _NEWEST_MOD_FILE else []),
    KWOK,
)
CONTAINERD: Final = Module(
    name="containerd",
    packages=(
        "github.com/containerd/containerd/v2/cmd/containerd",
        "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        "github.com/containerd/containerd/v2/cmd/ctr",
        "github.com/containernetworking/plugins/plugins/main/loopback",
    ),
    sources=("go.mod", "go.sum"),
    ldflags="-s -w",
    names=NODE_PROGRAMS,
)

BOX: Final = Module(
    name="box", packages=(".",), sources=("go.mod", "main.go"), ldflags="-s -w", names=("box",)
)
HELM: Final = Module(
    name="helm",
    packages=("helm.sh/helm/v4/cmd/helm",),
    sources=("go.mod", "go.sum"),
    ldflags="-s -w",
    names=("helm",),
)


CERT_MANAGER: Final = Module(
    name="certmanager",
    packages=(".",),
    sources=("go.mod", "go.sum", "main.go"),
    ldflags="-s -w",
    names=("cert-manager",),
)

BRIDGE_FOLDER: Final = _HERE.parent / "bridge"
BRIDGE: Final = Module(
    name="bridge",
    packages=(".",),
    sources=(
        "go.mod",
        "go.sum",
        *sorted(
            str(file.relative_to(BRIDGE_FOLDER))
            for file in BRIDGE_FOLDER.rglob("*.go")
            if not file.name.endswith("_test.go")
        ),
    ),
    ldflags=_kubernetes_flags(_NEWEST),
    names=("drawbridge-scheduler",),
    parent=BRIDGE_FOLDER.parent,
)


class Binaries(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of the programs."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubelet: Path
    kubectl: Path
    kwok: Path


def cache_directory() -> Path:
    """The directory of files that are costly to make and safe to delete."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "drawbridge"


def binaries() -> Binaries:
    """The programs: those of a folder that the environment names, else built if the cache lacks them."""
    if given := os.environ.get(FOLDER_VARIABLE):
        return given_binaries(Path(given))
    paths = {
        name: folder / name
        for module in MODULES
        for folder in [_built(module)]
        for name in module.names
    }
    return Binaries(**{name.replace("-", "_"): path for name, path in paths.items()})


def given_binaries(folder: Path) -> Binaries:
    """The programs of a folder that somebody else built.

    Raises:
        FileNotFoundError: Some are missing.
    """
    names = [*COMPONENTS, *KWOK.names]
    needed = [name for name in names if name != "kubelet"]
    missing = [name for name in needed if not os.access(folder / name, os.X_OK)]
    if missing:
        raise FileNotFoundError(
            f"{folder} lacks {', '.join(missing)}; it has to have {', '.join(needed)}"
        )
    return Binaries(**{name.replace("-", "_"): folder / name for name in names})


def node_programs() -> Path:
    """The folder of the programs of a real node, built first if the cache does not have them."""
    return _built(CONTAINERD)


def box() -> Path:
    """The program that the images of a real node hold, built first if the cache lacks it."""
    return _built(BOX) / "box"


def cert_manager() -> Path:
    """The controllers of cert-manager with cainjector, built first if the cache lacks them."""
    return _built(CERT_MANAGER) / "cert-manager"


def cert_manager_definitions() -> Path:
    """The folder with cert-manager's CustomResourceDefinitions, of the version that is built."""
    stdout = subprocess.run(
        [go_command(), "mod", "download", "-json", "github.com/cert-manager/cert-manager"],
        cwd=CERT_MANAGER.folder,
        env={**os.environ, **BUILD_ENVIRONMENT},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    return Path(msgspec.json.decode(stdout, type=dict[str, str])["Dir"]) / "deploy" / "crds"


def helm() -> Path:
    """Helm, built first if the cache lacks it."""
    return _built(HELM) / "helm"


def scheduler() -> Path:
    """The scheduler of this project, built first if the cache lacks it."""
    return _built(BRIDGE) / "drawbridge-scheduler"


def fingerprint(module: Module) -> str:
    """A hash of all inputs of a build of `module`."""
    digest = hashlib.sha256()
    for source in module.sources:
        digest.update((module.folder / source).read_bytes() + b"\0")
    settings = (*module.packages, module.ldflags, *module.names, *BUILD_ENVIRONMENT.values())
    machine = (platform.system(), platform.machine())
    digest.update("\0".join((*settings, *machine)).encode())
    return digest.hexdigest()[:16]


def _built(module: Module) -> Path:
    cache = cache_directory() / "binaries"
    folder = cache / f"{module.name}-{fingerprint(module)}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{module.name}.lock"):
        # Whoever held the lock before us may have built the same.
        if not folder.is_dir():
            _build(module, folder)
    return folder


def _build(module: Module, folder: Path) -> None:
    go = go_command()
    print(f"e2e: building {', '.join(module.names)} with {go}", file=sys.stderr, flush=True)
    began = time.monotonic()
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        output = partial / module.name if len(module.packages) == 1 else partial
        subprocess.run(
            [
                go,
                "build",
                f"-modfile={module.mod_file}",
                COMPILER_FLAGS,
                "-o",
                output,
                "-ldflags",
                module.ldflags,
                *module.packages,
            ],
            cwd=module.folder,
            env={**os.environ, **BUILD_ENVIRONMENT},
            stdout=sys.stderr,
            check=True,
        )
        for name in module.names:
            if not (partial / name).exists():
                (partial / name).symlink_to(module.name)
        partial.chmod(0o755)
        partial.rename(folder)  # Complete or absent: nobody ever sees half of it.
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f"e2e: built in {time.monotonic() - began:.0f} s: {folder}", file=sys.stderr, flush=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; the kernel releases it when the process ends, however it ends."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"e2e: waiting for another build ({path})", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    for program, path in msgspec.structs.asdict(binaries()).items():
        print(f"{program.replace('_', '-'):24} {path}")
