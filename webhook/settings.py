"""What an operator can set, and why each default is what it is.

One YAML or JSON file, the same for all commands so that they cannot disagree about names;
a few environment variables and flags win over it. Field names are camelCase in the file, durations
are seconds, and an unknown field is refused. `--print-settings` shows what is in force.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
import yaml

from allocator.core.model import Features
from kube.backoff import Backoff
from kube.errors import ConfigError
from webhook.profile import Profile
from webhook.vocabularies import arbiter, nvidia
from webhook.world import DEFAULT_PROFILES, Onlooker, Options, QuotaPolicy

MEBIBYTE: Final = 2**20
DAY_S: Final = 86_400.0

NAMESPACE: Final = "drawbridge-system"
SERVICE: Final = "drawbridge-webhook"
CONFIGURATION: Final = "zz-drawbridge"

GATES: Final = frozenset(field.encode_name for field in msgspec.structs.fields(Features))
"""Upstream's names of the gates that allocation depends on."""

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
"""0 takes any free port and logs which."""
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Fraction = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Positive = Annotated[int, msgspec.Meta(gt=0)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
LogLevel = Literal["debug", "info", "warning", "error"]
Enforcement = Literal["deny", "warn", "off"]


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of the file; a misspelled field is refused."""


class TranslationSettings(_Part, frozen=True, kw_only=True):
    """How pods are translated."""

    profiles: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(DEFAULT_PROFILES))
    """Vocabulary to the driver that gets its devices; what is not named keeps its default. Defaults
    are the drivers of the projects that the vocabularies come from."""

    bare_gpu: str = "nvidia"
    """The vocabulary that owns `nvidia.com/gpu` where nothing else in the pod says. `nvidia`, since
    the key is the device plugin's; clusters that ran HAMi everywhere want `hami`."""

    adopt_schedulers: Mapping[str, str] = {}
    """Foreign schedulerName to the scheduler that gets its translated pods; the same name keeps
    them there. Empty: whether a foreign scheduler understands claims is not ours to guess."""

    quota: QuotaPolicy = QuotaPolicy.DENY
    """`deny` or `warn`, where a ResourceQuota counts a key that a translation takes away. `deny`:
    a quota that silently stops counting is worse than a refused pod."""

    claims_seen_by: tuple[Onlooker, ...] = ()
    """Which of `clusterAutoscaler`, `karpenter` and `kueue` see claims in this cluster; nothing looks
    for them then, and nobody is warned. Empty: as installed, none of them does."""

    def options(self) -> Options:
        """Return the same, as the translation takes it."""
        return Options(
            profiles={**DEFAULT_PROFILES, **self.profiles},
            bare_gpu=self.bare_gpu,
            adopt_schedulers=self.adopt_schedulers,
            quota=self.quota,
            claims_seen_by=frozenset(self.claims_seen_by),
        )


class ServeSettings(_Part, frozen=True, kw_only=True):
    """The webhook, `python -m webhook serve`."""

    bind_address: str = ""
    """An address to listen on; empty takes all, IPv4 and IPv6, since a pod has one network."""

    port: Port = 8443
    """HTTPS, for the API server. Above 1024, so that no capability is needed; the Service maps 443
    to it. Private control planes that reach nodes on 443 and 10250 only want 10250."""

    probe_port: Port = 8080
    """Plain HTTP: /healthz, /livez, /readyz, /metrics. Apart from `port`, so that the kubelet needs
    no certificate and a prober cannot post reviews."""

    max_body_bytes: Positive = 7 * MEBIBYTE
    """A larger body is answered with 413. Two objects of 3 MiB, the most that the API server
    stores, and one for the envelope; what controller-runtime takes, too."""

    read_timeout_seconds: Seconds = 5.0
    """A body that is not there by then is answered with 408. As long as the API server waits."""

    max_in_flight: Positive = 100
    """Reviews at a time, reading included; more are answered with 503 and Retry-After, which the
    API server honours."""

    max_bytes_in_flight: Positive = 64 * MEBIBYTE
    """Their bodies together, as announced; more are answered likewise. Nine of the largest, or all
    of `maxInFlight` at a hundred times the usual 6 KiB. An eighth of the memory limit in the
    manifests, since a parsed body takes several times its size."""

    max_connections: Positive = 256
    """Connections at a time. When all are taken, the one that was of no use for longest makes room,
    and where a review is answered on each, nobody new is taken. What `maxInFlight` reviews need,
    and the 25 idle ones that each of six API servers keeps. One that a large review came through
    keeps half a MiB of buffers, so all of them a quarter of the memory limit in the manifests."""

    head_seconds: Seconds = 10.0
    """A connection on which no review began so long after it was opened, or after a request began on
    it, is cut. An API server takes milliseconds from one to the other; what stays longer wants a
    place and nothing else. Whoever asks for anything but reviews has as long."""

    keepalive_seconds: Seconds = 110.0
    """Idle connections are closed after it. Above the 90 s after which the API server closes them:
    who closes first must not be us, since a POST that races with it is lost."""

    requests_per_connection: Positive = 1000
    """On average; then a connection is closed, so that new replicas get their part of the load. Chance
    decides when, so that connections of one age do not end together."""

    leaf_seconds: Seconds = 7 * DAY_S
    """Life of the serving certificate, which exists in memory only. Short, since nothing revokes."""

    leaf_renewed_at: Fraction = 2 / 3
    """Part of its life after which it is replaced, sooner by up to a tenth as chance has it; leaves
    a third to find out why it was not."""

    certificate_directory: str | None = None
    """A folder with tls.crt, tls.key and ca.crt, such as a mounted Secret of cert-manager's, to
    serve with; the controller then keeps neither authority nor caBundle. None: certificates are our
    own. DRAWBRIDGE_CERTIFICATES sets it, too."""

    client_ca_file: str | None = None
    """A file with the authorities of callers; whoever has no certificate of theirs is refused in
    the handshake. None: anybody who reaches the port may ask, since API servers come without a
    certificate unless told to bring one. DRAWBRIDGE_CLIENT_CA sets it, too."""

    client_names: tuple[Name, ...] = ("kube-apiserver",)
    """With `clientCaFile`: who may ask, by common name or DNS name of the certificate. The authority
    of API servers' client certificates often signs those of kubelets and people as well."""

    drain_seconds: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    """After SIGTERM the endpoint is unready and answers on until no review came for so long: who
    routes to it learns of that at a time of their own. 0 for local runs; DRAWBRIDGE_DRAIN_SECONDS
    sets it, too."""

    drain_most_seconds: Annotated[float, msgspec.Meta(ge=0)] = 25.0
    """It answers on no longer than that, however many still ask."""

    shutdown_seconds: Seconds = 10.0
    """Then running reviews get so long before they are cancelled. With `drainMostSeconds` below the
    pod's terminationGracePeriodSeconds."""


class ControlSettings(_Part, frozen=True, kw_only=True):
    """The controllers, `python -m webhook control`."""

    bind_address: str = ""
    """An address to listen on; empty takes all."""

    probe_port: Port = 8080
    """Plain HTTP: /healthz, /livez, /readyz, /metrics."""

    lease: Name = "drawbridge-controller"
    """Name of the Lease, in `namespace`, whose holder writes."""

    lease_seconds: Positive = 15
    """A leader that was not heard of for so long is replaced. Everybody's default."""

    renew_seconds: Seconds = 10.0
    """A leader that could not renew for so long stops. Below `leaseSeconds`, so that it has stopped
    when the next one starts."""

    retry_seconds: Seconds = 2.0
    """Between attempts to renew or to become leader."""

    collect_after_seconds: Seconds = 600.0
    """A template of ours that no live pod and no workload uses is deleted after it. Long enough for
    a rollout or a restarted Job to find it again; a missing one is made in milliseconds anyway."""

    collect_every_seconds: Seconds = 60.0
    """Between looks for such templates. A look costs one list of each workload kind, and only where
    a template is due."""

    policy_seconds: Seconds = 1.0
    """Between looks at DeviceCompatibilityPolicies; a change is looked at at once when none was for so
    long, else together with what else comes in that time. Longer where a look is long, so that no
    churn of ResourceSlices costs more than a tenth of a core."""

    policy_counts_seconds: Seconds = 30.0
    """Between writes of a policy's status in which only numbers change, as when nodes come and go."""

    mark_seconds: Seconds = 5.0
    """Between looks at whether the inventory is larger than ever before. Slices come in crowds."""

    audit_seconds: Seconds = 600.0
    """Between looks at all that is stored, for objects that a rule would refuse by now."""

    audit_events: Positive = 50
    """Events that one such look tells at most; the others follow with the next."""

    retry_first_seconds: Seconds = 0.2
    """Before the second attempt at something that the API server refused; then twice as long each
    time, up to `retryMostSeconds`."""

    retry_most_seconds: Seconds = 60.0
    """Between later attempts. Also how soon a lasting fault is noticed to be over."""

    authority_seconds: Seconds = 365 * DAY_S
    """Life of a certificate authority."""

    authority_renewed_at: Fraction = 2 / 3
    """Part of its life after which it gets a successor; leaves months to find out why not."""

    authority_published_seconds: Seconds = 300.0
    """A successor is trusted for so long before it signs. API servers learn of it within a second
    or so, but none confirms; one that is cut off for minutes does not admit pods either."""

    authority_hurried_seconds: Seconds = 10.0
    """The same where nobody can sign, because the Secret was deleted or damaged: replicas serve on
    with the certificates that they have, but a new one has to wait for it."""

    def backoff(self) -> Backoff:
        """Return the pauses between attempts at something that the API server refused."""
        return Backoff(first_s=self.retry_first_seconds, longest_s=self.retry_most_seconds)


class JudgeSettings(_Part, frozen=True, kw_only=True):
    """How objects of DRA, and what uses them, are judged."""

    enforcement: Enforcement = "deny"
    """What is done about what the inventory can never give: `deny`, `warn` or `off`. A namespace says
    otherwise with its label. `deny`: a claim that waits for ever is found too late, and a verdict
    denies only where the inventory is proof."""

    drivers: Mapping[str, Enforcement] = {}
    """Driver to what is done at most about verdicts on its devices, for those whose slices are no
    proof."""

    inventory: Name = "drawbridge-inventory"
    """The ConfigMap, in `namespace`, that keeps the largest inventory ever seen, and in which people
    declare what there could be."""

    wait_seconds: Seconds = 1.5
    """A review that is not judged by then is answered without the inventory, with a warning. Well below
    the webhook's timeout of 5 s, after which nobody would be told anything."""

    max_waiting: Positive = 64
    """Reviews that wait for their turn; more are answered without the inventory at once."""

    feature_gates: Mapping[str, bool] = {}
    """Gates of allocation that this cluster's scheduler has set otherwise than Kubernetes 1.37 does, by
    upstream's names: `DRADeviceCompatibilityGroups: true`."""

    def features(self) -> Features:
        """Return the gates that are in force."""
        return msgspec.convert(dict(self.feature_gates), Features)


class ObserveSettings(_Part, frozen=True, kw_only=True):
    """The observer, `python -m webhook observe`."""

    bind_address: str = ""
    """An address to listen on; empty takes all."""

    probe_port: Port = 8080
    """Plain HTTP: /healthz, /livez, /readyz, /metrics."""

    settle_seconds: Seconds = 2.0
    """A pod that has waited for so long is looked at. Most are scheduled in a moment, and drivers
    publish a pool slice by slice."""

    look_again_seconds: Seconds = 10.0
    """Between looks at one pod, where anything in the cluster changed meanwhile."""

    tell_again_seconds: Seconds = 60.0
    """Before a pod is told a second answer; then twice as long each time, up to
    `tellAgainMostSeconds`. A busy cluster has a new answer every few seconds."""

    tell_again_most_seconds: Seconds = 1800.0
    """Between later answers. Events live for an hour."""

    numbers_seconds: Seconds = 900.0
    """Before a pod is told that only numbers have changed: `5 devices: taken` after `4 devices`."""

    remind_seconds: Seconds = 2700.0
    """After which a pod that still waits for the same is told so in the same event, which counts one more.
    API servers forget an event after an hour in which nobody did that."""

    core_share: Fraction = 0.2
    """Of one core, for looking again. What a look costs is followed by a pause, so that a cluster with
    many pods waiting is answered later and not at a higher price."""

    first_core_share: Fraction = 0.5
    """Of one core, for looking at pods that were never looked at: somebody has just made them."""

    events_per_second: Seconds = 20.0
    """At most; the others wait."""

    policies_enforced: bool = False
    """Whether the schedulers here keep DeviceCompatibilityPolicies. False: kube-scheduler knows none,
    so none is a reason for it."""

    feature_gates: Mapping[str, bool] = {}
    """Gates of allocation that this cluster's scheduler has set otherwise than Kubernetes 1.37 does, by
    upstream's names: `DRADeviceCompatibilityGroups: true`."""

    def features(self) -> Features:
        """Return the gates that are in force."""
        return msgspec.convert(dict(self.feature_gates), Features)

    def telling(self) -> Backoff:
        """Return the pauses between answers to one pod."""
        return Backoff(first_s=self.tell_again_seconds, longest_s=self.tell_again_most_seconds)


class Settings(_Part, frozen=True, kw_only=True):
    """The whole file."""

    namespace: Name = NAMESPACE
    """Where everything of ours is. DRAWBRIDGE_NAMESPACE sets it, too."""

    service: Name = SERVICE
    """The Service in front of the webhook; the API server checks the certificate for its name."""

    cluster_domain: Name = "cluster.local"
    """The end of `<service>.<namespace>.svc.<clusterDomain>`, a further name of the certificate."""

    extra_names: tuple[Name, ...] = ()
    """Further DNS names and IP addresses of the certificate, such as that of a load balancer.
    DRAWBRIDGE_SERVING_NAMES sets them, too."""

    authority_secret: Name = "drawbridge-ca"  # noqa: S105  The name of a Secret.
    """The Secret, in `namespace`, that holds the certificate authority. The controller makes it."""

    webhook_configuration: Name = CONFIGURATION
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration of this name are ours:
    the controller keeps their caBundles. The first sorts last, so that keys which other webhooks
    add are seen."""

    profiles_directory: str | None = None
    """Driver profiles of this cluster, as files; one for a driver that is shipped replaces it.
    None: the shipped ones only. DRAWBRIDGE_PROFILES sets it, too."""

    look_seconds: Seconds = 60.0
    """Between looks at the wall clock, at the Secret and at mounted certificates, since a timer
    sleeps when its machine does. Nothing is lost by it: what is replaced stays trusted for longer."""

    client_timeout_seconds: Seconds = 15.0
    """For each call to the API server but watches."""

    log_level: LogLevel = "info"
    """`debug` adds a line for each pod that was left alone. DRAWBRIDGE_LOG_LEVEL sets it, too."""

    translation: TranslationSettings = TranslationSettings()
    judge: JudgeSettings = JudgeSettings()
    serve: ServeSettings = ServeSettings()
    control: ControlSettings = ControlSettings()
    observe: ObserveSettings = ObserveSettings()

    def names(self) -> tuple[str, ...]:
        """Return the DNS names and addresses of the serving certificate."""
        first = f"{self.service}.{self.namespace}.svc"
        short = (self.service, f"{self.service}.{self.namespace}")
        named = (first, *short, f"{first}.{self.cluster_domain}", *self.extra_names)
        return tuple(dict.fromkeys(named))


ENVIRONMENT: Final[Mapping[str, tuple[str, ...]]] = {
    "DRAWBRIDGE_NAMESPACE": ("namespace",),
    "DRAWBRIDGE_PROFILES": ("profilesDirectory",),
    "DRAWBRIDGE_LOG_LEVEL": ("logLevel",),
    "DRAWBRIDGE_SERVING_NAMES": ("extraNames",),
    "DRAWBRIDGE_BIND": ("serve.bindAddress", "control.bindAddress", "observe.bindAddress"),
    "DRAWBRIDGE_PORT": ("serve.port",),
    "DRAWBRIDGE_DRAIN_SECONDS": ("serve.drainSeconds",),
    "DRAWBRIDGE_CERTIFICATES": ("serve.certificateDirectory",),
    "DRAWBRIDGE_CLIENT_CA": ("serve.clientCaFile",),
    "DRAWBRIDGE_PROBE_PORT": ("serve.probePort", "control.probePort", "observe.probePort"),
}
"""Environment variable to the fields that it sets; an empty one sets nothing. Lists are separated by
commas."""


def parse_settings(text: bytes | str, source: str, environment: Mapping[str, str]) -> Settings:
    """Return the settings that a file holds, with the environment over them.

    Args:
        text: YAML or JSON; empty leaves everything at its default.
        source: What to call it in errors.
        environment: Variable to value; only those of `ENVIRONMENT` are looked at.

    Raises:
        ConfigError: The file or a variable makes no sense; the message names the field.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as fault:
        raise ConfigError(f"{source}: not YAML: {fault}") from fault
    written = _settings({} if document is None else document, source)
    return overridden(
        written,
        {
            path: _read(path, environment[name])
            for name, paths in ENVIRONMENT.items()
            for path in paths
            if environment.get(name)
        },
    )


def _read(path: str, text: str) -> str | list[str]:
    """Return what a variable's text means to its field; numbers are read by who knows its type."""
    return [part.strip() for part in text.split(",")] if path.endswith("Names") else text


def overridden(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Return the settings with values over them.

    Args:
        values: Field to value, as in the file; `serve.port` is a field of a part.

    Raises:
        ConfigError: A value makes no sense.
    """
    document = msgspec.to_builtins(settings)
    for path, value in values.items():
        *parts, field = path.split(".")
        place = document
        for part in parts:
            place = place[part]
        place[field] = value
    return _settings(document, "environment or flags", strict=False)


def _settings(document: object, source: str, *, strict: bool = True) -> Settings:
    try:
        settings = msgspec.convert(document, Settings, strict=strict)
    except msgspec.ValidationError as fault:
        raise ConfigError(f"{source}: {fault}") from fault
    control = settings.control
    if not control.retry_seconds < control.renew_seconds < control.lease_seconds:
        raise ConfigError(f"{source}: want retrySeconds < renewSeconds < leaseSeconds in control")
    left_s = control.authority_seconds * (1 - control.authority_renewed_at)
    if left_s <= control.authority_published_seconds + 2 * settings.look_seconds:
        raise ConfigError(
            f"{source}: what is left of authoritySeconds after authorityRenewedAt is too short for"
            " authorityPublishedSeconds and two times lookSeconds"
        )
    unknown = {*settings.observe.feature_gates, *settings.judge.feature_gates} - GATES
    if unknown:
        raise ConfigError(f"{source}: no gate of allocation is called {min(unknown)}")
    if settings.serve.max_bytes_in_flight < settings.serve.max_body_bytes:
        raise ConfigError(f"{source}: want maxBodyBytes <= maxBytesInFlight in serve")
    return settings


def checked_options(settings: Settings, profiles: Mapping[str, Profile]) -> Options:
    """Return how to translate, once it is known to make sense with the profiles that there are.

    Raises:
        ConfigError: A vocabulary or a driver is not known.
    """
    options = settings.translation.options()
    for vocabulary, driver in options.profiles.items():
        if vocabulary not in arbiter.VOCABULARIES:
            raise ConfigError(
                f"translation.profiles: no vocabulary {vocabulary}; {_vocabularies()}"
            )
        if driver not in profiles:
            known = ", ".join(sorted(profiles))
            raise ConfigError(
                f"translation.profiles.{vocabulary}: no profile {driver}; {known} are"
            )
    speak_gpu = [name for name, each in arbiter.VOCABULARIES.items() if each.speaks(nvidia.GPU)]
    if options.bare_gpu not in speak_gpu:
        raise ConfigError(
            f"translation.bareGpu: {options.bare_gpu} does not speak {nvidia.GPU}; "
            f"{', '.join(sorted(speak_gpu))} do"
        )
    return options


def _vocabularies() -> str:
    return f"{', '.join(sorted(arbiter.VOCABULARIES))} are"
