"""The endpoints that can be reached from a sandbox, with their addresses."""

from __future__ import annotations

import pytest

from clawblox.agents.sandbox.endpoints import WORLD_ENDPOINT, Endpoint, find_endpoints


def test_each_host_has_a_different_address_from_the_world() -> None:
    found = find_endpoints(["api.example.com", "auth.example.com"], {})
    assert found == (
        Endpoint("127.0.1.2", 443, "api.example.com", is_tls=True),
        Endpoint("127.0.1.3", 443, "auth.example.com", is_tls=True),
    )
    assert WORLD_ENDPOINT.address == "127.0.1.1"
    assert all(endpoint.has_name for endpoint in found)


@pytest.mark.parametrize(
    ("url", "endpoint", "has_name"),
    [
        ("http://127.0.0.1:8001/v1", Endpoint("127.0.0.1", 8001, "127.0.0.1"), False),
        ("http://localhost:8001", Endpoint("127.0.0.1", 8001, "localhost"), False),
        ("http://[::1]:8001", Endpoint("::1", 8001, "::1"), False),
        ("http://10.1.2.3:4000", Endpoint("10.1.2.3", 4000, "10.1.2.3"), False),
        ("http://models.internal/v1", Endpoint("127.0.1.2", 80, "models.internal"), True),
        (
            "https://user:s3cret@Models.Internal",
            Endpoint("127.0.1.2", 443, "models.internal", is_tls=True),
            True,
        ),
        ("https://10.1.2.3", Endpoint("10.1.2.3", 443, "10.1.2.3"), False),
    ],
)
def test_a_base_url_leads_to_its_own_host_and_port(
    url: str, endpoint: Endpoint, has_name: bool
) -> None:
    assert find_endpoints([], {"ANTHROPIC_BASE_URL": url}) == (endpoint,)
    assert endpoint.has_name is has_name


def test_one_host_at_two_ports_has_one_address() -> None:
    env = {"A_BASE_URL": "http://models.internal:1", "B_BASE_URL": "http://models.internal:2"}
    assert find_endpoints([], env) == (
        Endpoint("127.0.1.2", 1, "models.internal"),
        Endpoint("127.0.1.2", 2, "models.internal"),
    )


def test_other_variables_add_no_endpoint() -> None:
    env = {"HTTPS_PROXY": "http://proxy:3128", "BASE_URL_OF": "http://a", "X_BASE_URL": ""}
    assert find_endpoints([], env) == ()


@pytest.mark.parametrize(
    "url", ["s3cret", "ftp://s3cret", "http://", "http://s3cret:port", "http://s3cret x", "//x"]
)
def test_an_invalid_address_is_refused_with_the_name_of_its_variable(url: str) -> None:
    with pytest.raises(ValueError, match=r"^X_BASE_URL must be an http:// or https:// address$"):
        find_endpoints([], {"X_BASE_URL": url})


def test_an_ipv6_address_that_a_sandbox_cannot_have_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^X_BASE_URL must have a host name, not the IPv6 address 2001:db8::1"
    ):
        find_endpoints([], {"X_BASE_URL": "http://[2001:db8::1]/"})
