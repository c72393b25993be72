"""`python -m observer`: explains pending pods' lack of devices in events."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from allocator.model.selectors import clear_selector_caches
from kube.names import OBSERVER_REPORTER
from kube.runtime.events import EventRecorder, EventRecorderSettings
from kube.runtime.informers import InformerFactory
from observer.metrics import ObserverMetrics
from observer.observer import Observer
from observer.settings import VARIABLES, Settings
from process.profiles.profile_files import load_profiles
from process.running.command import Command, Process, run_command
from process.running.signals import run_until_signal
from process.selectors.engine import WorkerEngine
from process.serving.metrics import (
    CacheCollector,
    QueueCollector,
    event_counter,
    process_registry,
    stopped_counter,
)
from process.serving.probes import ProbeServer


async def observe(process: Process[Settings]) -> None:
    """Explain pods that wait for devices until a signal comes."""
    settings, registry = process.settings.observer, process_registry()
    async with await process.client() as client:
        informers = InformerFactory(client)
        recorder = EventRecorder(
            client,
            controller=OBSERVER_REPORTER,
            instance=process.identity,
            now=process.clock(client),
            count=event_counter(registry),
            settings=EventRecorderSettings(per_second=settings.events_per_second),
        )
        engine = WorkerEngine(count_stopped=stopped_counter(registry))
        metrics = ObserverMetrics(registry)
        observer = Observer(
            informers, recorder, settings, metrics, profiles=load_profiles(), engine=engine
        )
        registry.register(CacheCollector(informers))
        registry.register(QueueCollector([observer.controller]))
        probes = ProbeServer(settings, {"informers": observer.check}, registry)
        keep_asking = partial(engine.run_retries, clear_selector_caches)
        await run_until_signal(
            [probes.run, engine.run, keep_asking, informers.run, recorder.run, observer.run]
        )


COMMAND: Final = Command(
    package="observer",
    description=__doc__,
    kind=Settings,
    section="observer",
    variables=VARIABLES,
    start=observe,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_command(COMMAND, arguments)


if __name__ == "__main__":
    sys.exit(main())
