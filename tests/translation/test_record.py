"""The request annotation: it reads back as it was written, and hostile text is refused."""

from typing import NamedTuple

import msgspec
import pytest

from findings.field_path import FieldPath
from findings.finding import Code
from testing.builders import (
    HAMI,
    NVIDIA,
    derived_claims,
    devices_of,
    driver_slice,
    gpus,
    hami_gpu,
    mig_device,
    nvidia_gpu,
    pod,
    translation_of,
    translation_snapshot,
)
from translation.record.derive import derive
from translation.record.record import MAX_BYTES, RecordError, TranslationRecord, decode_record

POD = pod(
    gpus(1, pct=50),
    init=(gpus(1, mem="5k", name="check"),),
    annotations={"nvidia.com/use-gputype": 'A100 "é"', "team": "a"},
)
PICTURE = translation_snapshot(driver_slice(HAMI, hami_gpu()))
REQUEST = translation_of(POD, PICTURE).record


def test_it_reads_back() -> None:
    assert decode_record(REQUEST.encode()) == REQUEST


def test_the_same_request_is_the_same_text() -> None:
    assert REQUEST.encode() == translation_of(POD, PICTURE).annotation


def test_it_holds_keys_and_values_and_what_the_translation_depends_on() -> None:
    written = msgspec.json.decode(REQUEST.encode())

    hashed = PICTURE.profiles[HAMI].content_hash
    size = {"size": "80Gi", "min": "1Mi", "step": "1Mi"}
    assert {
        "translationVersion": 1,
        "profiles": [
            {
                "vocabulary": "hami",
                "name": HAMI,
                "hash": hashed,
                "facts": {"gpu": {"sizes": [size]}},
            }
        ],
        "containers": [
            {
                "name": "check",
                "init": True,
                "limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "5k"},
            },
            {
                "name": "main",
                "limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"},
            },
        ],
        "annotations": {"nvidia.com/use-gputype": 'A100 "é"'},
        "choices": {"initContainers": "largest"},
    } == written


def test_facts_that_no_claim_depends_on_stay_out() -> None:
    plain = translation_of(pod(gpus(1, mem=10)), PICTURE).record

    assert [used.facts for used in plain.profiles] == [{}]


def test_derive_makes_the_same_claims() -> None:
    once = translation_of(POD, PICTURE)

    assert once.claims == derived_claims(POD, once.annotation, PICTURE)


def test_an_older_record_of_mig_devices_keeps_its_claim() -> None:
    """The fact `mixed` of older records has no effect on MIG devices; newer ones have a request for each device."""
    asking = pod(gpus(2, pct=20), annotations={"nvidia.com/vgpu-mode": "mig"})
    devices = (nvidia_gpu("40Gi"), mig_device("9728Mi"), mig_device("19968Mi", "2g.20gb"))
    snapshot = translation_snapshot(driver_slice(NVIDIA, *devices))
    newer = translation_of(asking, snapshot)

    older = newer.annotation.replace('"mixedProfiles"', '"mixed"')

    (claim,) = derived_claims(asking, older, snapshot)
    assert older != newer.annotation
    assert [entry["name"] for entry in devices_of(claim)["requests"]] == ["mig"]
    assert newer.claims == derived_claims(asking, newer.annotation, snapshot)
    assert [entry["name"] for entry in devices_of(newer.claims[0])["requests"]] == [
        "mig-0",
        "mig-1",
    ]


def test_without_the_pod_sources_name_the_container() -> None:
    record = decode_record(translation_of(POD, PICTURE).annotation)

    claim, _ = derive(record, PICTURE.profiles).claims

    path = FieldPath.of("containers").key("check").child("resources", "limits")
    assert claim.source(FieldPath.of("requests", 0)) == path.key("nvidia.com/gpu")


class Refusal(NamedTuple):
    name: str
    text: str
    want: str


def changed(**fields: object) -> str:
    return msgspec.json.encode(msgspec.json.decode(REQUEST.encode()) | fields).decode()


def container_with(**fields: object) -> str:
    return changed(containers=[{"name": "main", "limits": {}} | fields])


def sized(*sizes: object) -> str:
    used = {"vocabulary": "hami", "name": HAMI, "hash": "", "facts": {"gpu": {"sizes": sizes}}}
    return changed(profiles=[used])


REFUSALS = (
    Refusal("nothing", "", "not what the webhook writes"),
    Refusal("no JSON", "{", "not what the webhook writes"),
    Refusal("another type", "[]", "Expected `object`"),
    Refusal("null", "null", "Expected `object`"),
    Refusal(
        "another version",
        changed(translationVersion=2),
        "translation version 2 is not supported, only 1",
    ),
    Refusal(
        "another version with fields of its own",
        changed(translationVersion=2, claims=[], profiles=None),
        "translation version 2 is not supported, only 1",
    ),
    Refusal("a field that we do not write", changed(claims=[]), "unknown field `claims`"),
    Refusal("an amount that is none", container_with(limits={"nvidia.com/gpu": "x"}), "quantity"),
    Refusal("an amount that is true", container_with(limits={"nvidia.com/gpu": True}), "Expected"),
    Refusal("an amount that is null", container_with(limits={"nvidia.com/gpu": None}), "Expected"),
    Refusal("an amount that is a list", container_with(limits={"nvidia.com/gpu": []}), "Expected"),
    Refusal(
        "a kind that does not exist",
        changed(profiles=[{"vocabulary": "a", "name": "b", "hash": "c", "facts": {"tpu": {}}}]),
        "'tpu'",
    ),
    Refusal("a size that is true", sized({"size": True}), "Expected"),
    Refusal("a size below zero", sized({"size": "-5Gi"}), "-5Gi is not a number of bytes"),
    Refusal("no size at all", sized({"size": "0"}), "0 is not a number of bytes"),
    Refusal("a size of no computer", sized({"size": "1e128"}), "is not a number of bytes"),
    Refusal("part of a byte", sized({"size": "1", "min": "1m"}), "is not a number of bytes"),
    Refusal("a step that leads nowhere", sized({"size": "1", "step": "0"}), "0 is not a number"),
    Refusal("a lone surrogate", '{"translationVersion": "\\ud800"}', "not what the webhook writes"),
    Refusal("a surrogate in the text itself", "\ud800", "not what the webhook writes"),
    Refusal("too long", changed(annotations={"a": "x" * MAX_BYTES}), "longer than 65536 bytes"),
    Refusal("too long in bytes", changed(annotations={"a": "é" * (MAX_BYTES // 2)}), "longer than"),
    Refusal(
        "too many containers",
        changed(containers=[{"name": "a", "limits": {}}] * 257),
        "257 containers",
    ),
    Refusal("too many sizes", sized(*[{"size": "1"}] * 65), "more than 64 memory sizes"),
    Refusal("very deep", "[" * 100_000, "longer than"),
    Refusal("as deep as fits", "[" * 60_000, "not what the webhook writes"),
)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refused(case: Refusal) -> None:
    with pytest.raises(RecordError) as caught:
        decode_record(case.text)

    assert case.want in str(caught.value)


def test_unknown_words_of_a_size_are_refused() -> None:
    with pytest.raises(RecordError):
        decode_record(sized({"size": "1", "price": "2"}))


def test_the_smallest_request_asks_for_nothing() -> None:
    request = decode_record('{"translationVersion": 1, "profiles": [], "containers": []}')

    assert TranslationRecord(translation_version=1, profiles=(), containers=()) == request
    assert derive(request, {}).claims == ()


def test_a_record_derives_by_the_version_that_it_names() -> None:
    record = decode_record(translation_of(POD, PICTURE).annotation)
    named = PICTURE.profiles[HAMI]
    newer = msgspec.structs.replace(named, content_hash="0123456789abcdef")
    in_force = {**PICTURE.profiles, HAMI: newer}
    versions = {named.content_hash: named}
    other_driver = {named.content_hash: msgspec.structs.replace(named, driver="a.example.com")}

    without = derive(record, in_force)
    replaced = derive(record, in_force, versions=versions)
    gone = derive(record, {}, versions=versions)
    forged = derive(record, in_force, versions=other_driver)

    expected = derive(record, PICTURE.profiles)
    assert [finding.code for finding in without.findings] == [Code.PROFILE_CHANGED]
    assert replaced == gone == expected
    assert [finding.code for finding in forged.findings] == [Code.PROFILE_CHANGED]
