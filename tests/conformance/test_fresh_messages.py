"""The result of a run in fresh places is untrusted, since the world could have written it."""

from __future__ import annotations

import attrs
import msgspec
import pytest

from clawblox.conformance.exchange import Exchange
from clawblox.conformance.fresh.messages import LifeRequest, Result, decode_result
from clawblox.conformance.live import Trace
from clawblox.protocol import OPERATOR_TOKEN_ENV
from clawblox.world.private_copies import TrialOptions

ORDER = LifeRequest(
    world="/world",
    run_dir="/run",
    name="w001",
    env={},
    options=TrialOptions(),
    is_realtime=False,
    agents=(),
    is_alone=True,
    listeners=(),
)
SENT = Exchange("POST", "http://127.0.0.1:8080/join?name=A", {}, None, None, None)


def result(**fields: object) -> bytes:
    return msgspec.msgpack.encode(attrs.evolve(Result(final=SENT), **fields))


def test_complete_result_is_decoded() -> None:
    assert decode_result(result(evidence=SENT), ORDER).evidence == SENT


@pytest.mark.parametrize(
    "fields",
    [
        {"final": None},
        {"trace": Trace((), (SENT,))},
        {"evidence": attrs.evolve(SENT, method="GET; touch /tmp/owned;")},
        {"evidence": attrs.evolve(SENT, method="--config")},
        {"evidence": attrs.evolve(SENT, url="-K/etc/passwd")},
        {"evidence": attrs.evolve(SENT, url="http://example.org:80/join")},
        {"evidence": attrs.evolve(SENT, url="http://127.0.0.1:80@example.org/join")},
    ],
)
def test_result_for_another_request_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"evidence|script"):
        decode_result(result(**fields), ORDER)


@pytest.mark.parametrize("data", [b"", b"\xc1", msgspec.msgpack.encode({"fault": "other"})])
def test_malformed_result_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_result(data, ORDER)


def test_only_secrets_of_instances_are_accepted_from_a_result() -> None:
    given = {OPERATOR_TOKEN_ENV: "", "WORD": "the", "CLAWBLOX_LEASE": "0123456789abcdef"}
    assert decode_result(result(secrets=given), ORDER).secrets == {
        "CLAWBLOX_LEASE": "0123456789abcdef"
    }
