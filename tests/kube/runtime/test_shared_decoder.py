"""An object is decoded once for all projections that get its text."""

import msgspec
import pytest

from kube.api.core import Pod
from kube.runtime.shared_decoder import SharedDecoder


def _text(name: str) -> bytes:
    return msgspec.json.encode({"metadata": {"name": name}})


def test_the_same_text_is_decoded_once() -> None:
    decode_pod, text = SharedDecoder(Pod), _text("a")

    assert decode_pod(text).metadata.name == "a"
    assert decode_pod(text) is decode_pod(text)


def test_each_object_has_its_own_view() -> None:
    decode_pod, texts = SharedDecoder(Pod), [_text("a"), _text("b"), _text("a")]

    assert [decode_pod(text).metadata.name for text in texts] == ["a", "b", "a"]


def test_text_that_is_no_object_is_refused_each_time_and_leaves_nothing_behind() -> None:
    decode_pod, bad_text, text = SharedDecoder(Pod), b'{"metadata": {"name": 1}}', _text("a")

    for _ in range(2):
        with pytest.raises(msgspec.ValidationError):
            decode_pod(bad_text)
        assert decode_pod(text).metadata.name == "a"
