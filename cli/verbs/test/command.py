"""`drawbridge test`: a site's own regression tests, with the engine of `check` and `simulate`."""

import sys
from collections.abc import Iterator

import click
import msgspec

from cli.flags.completion import FILE_NAME
from cli.output.formats import Output, Report, format_document, text_or_document
from cli.output.help import Command
from cli.output.progress import INTERRUPTED, LongRun
from cli.reading.suites import SuiteFile, SuiteTest, read_suites
from cli.verbs.test import junit as suites_junit
from cli.verbs.test.answer import CaseResult, SuitesAnswer, find_failures
from findings.text import count_text, printable
from kube.errors import DrawbridgeError

JUNIT = "junit"
EXAMPLES = """\
drawbridge test -f drawbridge-tests/suite.yaml
drawbridge test -f drawbridge-tests -o junit > drawbridge.xml
"""


@click.command("test", cls=Command, epilog=EXAMPLES)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    type=FILE_NAME,
    metavar="PATH",
    help="Suites: a file, a directory (its *.yaml, *.yml and *.json, not deeper), or - for standard "
    "input. Repeatable.",
)
@text_or_document("what failed", junit="for CI servers")
def test(files: tuple[str, ...], output: str) -> None:
    """Run a site's own tests: manifests against a snapshot, with an expected outcome.

    A suite is an object of kind TestSuite; its paths are relative to its file. Reads no cluster.

    Exit status: 0 when every test passes, 1 when some fail, 2 when the call or a suite is wrong, 130
    when ^C ended it.
    """
    tests = [(suite, test) for suite in read_suites(files) for test in suite.suite.tests]
    with LongRun("tested", len(tests)) as run:
        results = tuple(_run(suite, test) for suite, test in run.track(tests))
    match output:
        case Output.TEXT:
            for line in _lines(results):
                click.echo(printable(line))
        case _ if output == JUNIT:
            click.echo(suites_junit.test_suites(results))
        case _:
            answer = msgspec.json.encode(SuitesAnswer(tests=results))
            click.echo(format_document(output, answer, Report.TEST))
    if run.is_interrupted:
        sys.exit(INTERRUPTED)
    sys.exit(0 if all(result.is_passed for result in results) else 1)


def _run(suite: SuiteFile, test: SuiteTest) -> CaseResult:
    result = CaseResult(suite=suite.suite.metadata.name, file=suite.path, test=test.name)
    try:
        inputs = suite.read(test)
    except (DrawbridgeError, OSError, click.UsageError) as error:
        text = error.format_message() if isinstance(error, click.UsageError) else str(error)
        return msgspec.structs.replace(result, error=text)
    failures = find_failures(test.expect, inputs)
    return msgspec.structs.replace(result, failures=failures)


def _lines(results: tuple[CaseResult, ...]) -> Iterator[str]:
    for result in results:
        word = "pass" if result.is_passed else "error" if result.error else "FAIL"
        yield f"{word}  {result.suite}: {result.test}"
        for failure in (*result.failures, *((result.error,) if result.error else ())):
            yield f"      {failure}"
    bad = sum(not result.is_passed for result in results)
    yield f"{count_text(len(results), 'test')}, {f'{bad} failed' if bad else 'all passed'}"
