"""Updates of translated pods that name another scheduler than the pod has."""

from collections.abc import Iterator

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import quote_text
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot


def check_kept_scheduler(
    name: str, kept_name: str, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Iterator[Finding]:
    """Yield a warning if an update names another scheduler than that of the translated pod."""
    if options.scheduler_for(name, snapshot.bridge_scheduler) is None:
        yield warning(
            Code.SCHEDULER_REPLACED,
            FieldPath.of("spec", "schedulerName"),
            f"the pod was translated and stays with {kept_name}, not {quote_text(name)}",
        )
