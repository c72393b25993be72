"""Suites of a site's own tests: files of kind TestSuite. Reads files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal

import msgspec

from allocator.model.feature_gates import GATES
from answers.model.inputs import Inputs
from answers.model.kinds import API_VERSION
from cli.reading.cluster_state import ClusterFlags, Scope
from cli.reading.options import TranslationFlags, read_inputs
from findings.finding import Code
from kube.errors import ConfigError
from kube.manifests.reader import read_paths
from kube.manifests.source import SourceObject

KIND: Final = "TestSuite"


class Expectation(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The expected outcome of manifests; fields that are left out are not checked.

    Attributes:
        check: `accepted` (no error, no warning), `warned` (a warning, no error) or `rejected`.
        codes: Codes of findings that there have to be.
        absent_codes: Codes of findings that there must not be.
        placed: True if all pods and claims are expected to find devices, false if some are
            expected to find none.
        nodes: Object to the node on which it is placed; null where it must not be placed.
        becomes: Object to `translated`, `unchanged` or `rejected`.
        classes: Object to the DeviceClasses of its claims, in any order.
    """

    check: Literal["accepted", "warned", "rejected"] | None = None
    codes: tuple[str, ...] = ()
    absent_codes: tuple[str, ...] = ()
    placed: bool | None = None
    nodes: Mapping[str, str | None] = {}
    becomes: Mapping[str, Literal["translated", "unchanged", "rejected"]] = {}
    classes: Mapping[str, tuple[str, ...]] = {}

    @property
    def is_empty(self) -> bool:
        """Return True if nothing is expected."""
        return self == Expectation()


class SuiteTest(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Manifests and their expected outcome.

    Attributes:
        snapshot: Files with the state of a cluster, in place of the suite's.
    """

    name: str
    manifests: tuple[str, ...]
    expect: Expectation
    snapshot: tuple[str, ...] | None = None


class _Metadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str


class Suite(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Tests of one file. Paths are relative to it.

    Attributes:
        snapshot: Files with the state of a cluster; without any, none is known.
        profiles: Folder of driver profiles, beside the shipped ones.
        settings: Settings file of the cluster's processes.
        feature_gates: Feature gates that differ from those of the settings, and of Kubernetes 1.37.
    """

    metadata: _Metadata
    tests: tuple[SuiteTest, ...]
    api_version: str = API_VERSION
    kind: str = KIND
    snapshot: tuple[str, ...] = ()
    profiles: str | None = None
    settings: str | None = None
    feature_gates: Mapping[str, bool] = {}


class SuiteFile(msgspec.Struct, frozen=True, kw_only=True):
    """A suite and its place.

    Attributes:
        folder: The folder to which its paths are relative.
    """

    path: str
    suite: Suite
    folder: Path

    def read(self, test: SuiteTest) -> Inputs:
        """Return the manifests and the state of a test.

        Raises:
            DrawbridgeError: A file cannot be read.
        """
        snapshots = self.suite.snapshot if test.snapshot is None else test.snapshot
        flags = ClusterFlags(
            files=tuple(map(self._beside, test.manifests)),
            snapshots=tuple(map(self._beside, snapshots)),
            live=False,
            offline=True,
            kubeconfig=None,
            context=None,
        )
        profiles, settings = self.suite.profiles, self.suite.settings
        translation = TranslationFlags(
            profiles=(),
            profile_directory=None if profiles is None else Path(self._beside(profiles)),
            settings=None if settings is None else self._beside(settings),
        )
        gates = {GATES[name]: is_on for name, is_on in self.suite.feature_gates.items()}
        return read_inputs(flags, translation, Scope.ALLOCATION, given_gates=gates)

    def _beside(self, path: str) -> str:
        return str(self.folder / path)


def read_suites(paths: Sequence[str]) -> list[SuiteFile]:
    """Return the suites of files and folders; other objects in them are not looked at.

    Raises:
        ConfigError: There is none, or one makes no sense.
    """
    suites = [
        SuiteFile(path=source.source, suite=_suite(source), folder=_folder(source.source))
        for source in read_paths(paths)
        if source.kind == KIND and source.api_version.startswith("cli.")
    ]
    if not suites:
        raise ConfigError(
            f"no {KIND} in {', '.join(paths)}: write one with apiVersion {API_VERSION}, see docs/test.md"
        )
    return suites


def _folder(source: str) -> Path:
    """Return the folder of a suite; for standard input and pipes, such as `<(...)`, the current one."""
    path = Path(source)
    return Path() if path.is_fifo() else path.parent


def _suite(source: SourceObject) -> Suite:
    place = f"{source.source}:{source.line}"
    if source.api_version != API_VERSION:
        raise ConfigError(f"{place}: {KIND} has apiVersion {API_VERSION}, not {source.api_version}")
    try:
        suite = msgspec.convert(source.document, Suite)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{place}: {error}") from error
    unknown = next((gate for gate in suite.feature_gates if gate not in GATES), None)
    if unknown is not None:
        raise ConfigError(f"{place}: unknown feature gate {unknown!r}{_near(unknown, GATES)}")
    if not suite.tests:
        raise ConfigError(f"{place}: the suite has no tests")
    for path in _paths(suite):
        if "\0" in path:
            raise ConfigError(
                f"{place}: {path[:80]!r} is no path of a file: it contains a null character"
            )
    for test in suite.tests:
        _check_test(test, place)
    return suite


def _paths(suite: Suite) -> Iterator[str]:
    """Yield all paths that a suite names."""
    yield from suite.snapshot
    yield from (path for path in (suite.profiles, suite.settings) if path is not None)
    for test in suite.tests:
        yield from (*test.manifests, *(test.snapshot or ()))


def _check_test(test: SuiteTest, place: str) -> None:
    """Check the conditions on a test that its types do not express.

    Raises:
        ConfigError: It makes no sense.
    """
    where = f"{place}: test {test.name!r}"
    if not test.manifests:
        raise ConfigError(f"{where} has no manifests")
    if test.expect.is_empty:
        raise ConfigError(f"{where} expects nothing, so it could not fail")
    codes = [code.value for code in Code]
    for code in (*test.expect.codes, *test.expect.absent_codes):
        if code not in codes:
            raise ConfigError(f"{where}: there is no finding {code!r}{_near(code, codes)}")


def _near(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, list(names), n=2)
    return f"; did you mean {' or '.join(near)}?" if near else ""
