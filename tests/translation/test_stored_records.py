"""A record of one translation version gives the same claims for ever: clusters keep it over upgrades."""

import pytest

from testing.builders import profiles
from tools.stored_records import derived_templates, example_records, stored_records

RECORDS = stored_records()
HELP = (
    "a stored pod would get other claims: raise TRANSLATION_VERSION in translation/compiling/claims.py, "
    "then `python -m tools.stored_records`"
)


@pytest.mark.parametrize(("record", "templates"), RECORDS.items(), ids=range(len(RECORDS)))
def test_a_stored_record_derives_the_same_claims(record: str, templates: list[str]) -> None:
    derived = derived_templates(record, profiles())

    assert derived is not None, "run `python -m tools.stored_records`"
    assert derived == templates, HELP


def test_every_example_is_stored() -> None:
    missing = [text for text in example_records() if text not in RECORDS]

    assert missing == [], "run `python -m tools.stored_records`"
