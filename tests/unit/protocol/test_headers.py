import pytest

from ottla.errors import ProtocolError
from ottla.protocol.headers import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from ottla.protocol.messages.headers import RequestHeader, ResponseHeader
from ottla.protocol.versions import API_TABLE


def header_of(api_key: int, version: int, client_id: str | None = "cid") -> RequestHeader:
    return RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=7, client_id=client_id)


def test_flexible_requests_have_header_2_and_others_header_1() -> None:
    assert request_header_version(0, 8) == 1
    assert request_header_version(0, 9) == 2
    assert response_header_version(0, 8) == 0
    assert response_header_version(0, 9) == 1


def test_controlled_shutdown_0_has_no_client_id() -> None:
    assert request_header_version(7, 0) == 0
    assert encode_request_header(header_of(7, 0)).hex() == "0007000000000007"


def test_api_versions_answers_with_header_0_whatever_the_version() -> None:
    assert [response_header_version(18, version) for version in (0, 3, 4, 99)] == [0, 0, 0, 0]
    assert request_header_version(18, 99) == 2


@pytest.mark.parametrize("api_key", API_TABLE)
def test_headers_of_every_api_and_version_come_back(api_key: int) -> None:
    for version in API_TABLE[api_key].versions:
        header = header_of(api_key, version, None if (api_key, version) == (7, 0) else "cid")
        encoded = encode_request_header(header)
        assert decode_request_header(encoded + b"body") == (header, len(encoded))
        assert decode_request_header(b"xx" + encoded, 2) == (header, len(encoded) + 2)
        answer = encode_response_header(7, api_key, version)
        assert decode_response_header(answer + b"body", api_key, version) == (
            ResponseHeader(correlation_id=7),
            len(answer),
        )


def test_a_client_need_not_name_itself() -> None:
    header, _ = decode_request_header(encode_request_header(header_of(3, 1, client_id=None)))
    assert header.client_id is None


def test_tagged_fields_of_a_header_are_skipped() -> None:
    encoded = encode_request_header(header_of(0, 9))[:-1] + bytes.fromhex("01 00 02 aabb")
    assert decode_request_header(encoded) == (header_of(0, 9), len(encoded))


@pytest.mark.parametrize("api_key", [-1, 52, 58, 93, 32767])
def test_an_unknown_api_is_refused(api_key: int) -> None:
    frame = api_key.to_bytes(2, "big", signed=True) + bytes(20)
    with pytest.raises(ProtocolError, match=f"no API with key {api_key}"):
        decode_request_header(frame)
    with pytest.raises(ProtocolError, match=f"no API with key {api_key}"):
        encode_response_header(1, api_key, 0)


def test_a_short_header_is_refused() -> None:
    encoded = encode_request_header(header_of(0, 9))
    for end in range(len(encoded)):
        with pytest.raises(ProtocolError):
            decode_request_header(encoded[:end])


def test_a_version_that_we_lack_can_still_be_told() -> None:
    header, _ = decode_request_header(encode_request_header(header_of(0, 13)).replace(b"\x00\x0d", b"\x00\x63", 1))
    assert header.request_api_version == 99
    assert header.request_api_version not in API_TABLE[0].versions
