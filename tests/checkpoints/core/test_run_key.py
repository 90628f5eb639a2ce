"""Which texts may be the key of a run: none that is read as an id."""

from uuid import UUID

import pytest

from checkpoints.core.run_key import is_run_key

HEX = "0190b5f0000070008000000000000001"


@pytest.mark.parametrize("key", ["CLM-1", "1", "a key", HEX[:-1], f"{HEX}0"])
def test_a_text_that_is_no_id_may_be_a_key(key: str) -> None:
    assert is_run_key(key)


@pytest.mark.parametrize(
    "key",
    [
        str(UUID(HEX)),
        HEX,
        HEX.upper(),
        f"{{{UUID(HEX)}}}",
        f"urn:uuid:{UUID(HEX)}",
        "-".join(HEX),
    ],
)
def test_no_text_that_is_read_as_an_id_may_be_a_key(key: str) -> None:
    assert UUID(key)
    assert not is_run_key(key)
