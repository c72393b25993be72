"""Programs of a folder that somebody else built."""

from pathlib import Path

import pytest

from e2e.binaries import FOLDER_VARIABLE, binaries


def test_programs_of_a_folder_take_the_place_of_those_that_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    names = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    for name in names:
        (tmp_path / name).touch(mode=0o700)

    with pytest.raises(FileNotFoundError, match="lacks kwok; it has to have etcd, kube-apiserver"):
        binaries()

    (tmp_path / "kwok").touch(mode=0o700)
    assert tmp_path / "kwok" == binaries().kwok
