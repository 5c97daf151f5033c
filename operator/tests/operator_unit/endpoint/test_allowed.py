"""docs/operate/security.md: a hub or a judge is allowed by its whole address; a host that only looks like an allowed one is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.__main__ import parse
from llmendpoint_operator.core.endpoint.allowed import Allowed, judge_refused, parse_base

ALLOWED = Allowed(
    hubs=("https://hub.example.com", "http://mirror.llm.svc:8080/hf/"),
    judge_hosts=("judge.example.com", "other.example.com:8443", "[fd00::1]:80", "10.1.2.3"),
    judge_namespaces=("platform",),
)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://hub.example.com", True),
        ("https://hub.example.com/", True),
        ("HTTPS://Hub.Example.com:443", True),
        ("http://mirror.llm.svc:8080/hf", True),
        ("http://hub.example.com", False),
        ("https://hub.example.com:8443", False),
        ("https://hub.example.com/other", False),
        ("http://mirror.llm.svc:8080", False),
        ("http://mirror.llm.svc:8080/hf/../evil", False),
        ("https://hub.example.com.evil.example", False),
        ("https://hub.example.com@evil.example", False),
        ("https://user:password@hub.example.com", False),
        ("https://evil.example#https://hub.example.com", False),
        ("https://evil.example?https://hub.example.com", False),
        ("https://evil.example\\@hub.example.com", False),
        ("https://hub.example.com\n.evil.example", False),
        (" https://hub.example.com", False),
        ("https://hub.example.com:99999", False),
        ("https://hub.example.com:", False),
        ("ftp://hub.example.com", False),
        ("//hub.example.com", False),
        ("https://", False),
        ("", False),
    ],
)
def test_a_hub_is_allowed_by_the_whole_of_its_base_url(url: str, allowed: bool) -> None:
    assert ALLOWED.hub(url) is allowed


@pytest.mark.parametrize(
    ("judge", "allowed"),
    [
        ("https://judge.example.com/v1", True),
        ("http://judge.example.com/v1", True),
        ("https://judge.example.com", True),
        ("https://JUDGE.example.com:443/v1", True),
        ("https://other.example.com:8443/v1", True),
        ("http://[FD00::1]/v1", True),
        ("http://10.1.2.3/v1", True),
        ("team-a/judge", True),
        ("platform/judge", True),
        ("https://judge.example.com:8443/v1", False),
        ("https://other.example.com/v1", False),
        ("http://10.1.2.3:8082/metrics", False),
        ("http://169.254.169.254/latest/meta-data", False),
        ("http://167837955/v1", False),
        ("http://0x0a010203/v1", False),
        ("http://[::ffff:10.1.2.3]/v1", False),
        ("http://127.0.0.1:8082", False),
        ("http://localhost:8082", False),
        ("https://judge.example.com@127.0.0.1/v1", False),
        ("https://127.0.0.1#@judge.example.com/v1", False),
        ("https://judge.example.com/v1?x=", False),
        ("https://judge.example.com/v1/../../admin", False),
        ("https://judge.example.com/%2e%2e/admin", False),
        ("https://judge.example.com.", False),
        ("gopher://judge.example.com", False),
        ("team-b/judge", False),
        ("team-a/evil.example#", False),
        ("team-a/x@evil.example", False),
        ("evil.example:80/team-a", False),
        ("team-a/judge/../../x", False),
        ("judge", False),
        ("/judge", False),
        ("team-a/", False),
    ],
)
def test_a_judge_is_an_allowed_host_or_an_endpoint_of_an_allowed_namespace(judge: str, allowed: bool) -> None:
    assert (judge_refused(judge, "team-a", ALLOWED) is None) is allowed


def test_without_settings_only_endpoints_of_the_same_namespace_judge() -> None:
    assert judge_refused("team-a/judge", "team-a", Allowed()) is None
    assert judge_refused("team-b/judge", "team-a", Allowed()) is not None
    assert judge_refused("http://judge.example.com/v1", "team-a", Allowed()) is not None
    assert judge_refused("team-b/judge", "team-a", Allowed(judge_namespaces=("*",))) is None


@given(st.text(max_size=100))
def test_no_text_breaks_it_and_what_is_a_url_keeps_its_meaning(text: str) -> None:
    base = parse_base(text)
    judge_refused(text, "team-a", ALLOWED)
    if base is not None:
        again = parse_base(f"{base.scheme}://{base.host}:{base.port}{base.path}")
        assert again == base


def test_the_command_line_names_what_is_allowed() -> None:
    found = parse(
        ["--hub-endpoint", "https://hub.example.com", "--allowed-hub", "https://s3.example.com", "--allowed-judge-host",
         "judge.example.com", "--allowed-judge-namespace", "platform"]
    ).allowed  # fmt: skip
    hubs = ("https://hub.example.com", "https://s3.example.com")
    assert found == Allowed(hubs, ("judge.example.com",), ("platform",))
    assert parse([]).allowed == Allowed()


def test_a_hub_that_could_be_read_in_two_ways_is_refused_at_the_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parse(["--allowed-hub", "https://user@hub.example.com"])
    assert "--allowed-hub https://user@hub.example.com: write a base URL" in capsys.readouterr().err
