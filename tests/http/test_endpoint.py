"""Base URLs, keys, and that no key is ever shown."""

from __future__ import annotations

import copy
import pickle

import msgspec
import pytest

from logproof.errors import UsageError
from logproof.http.endpoint import AuthStyle, Secret, Timeouts, endpoint

KEY = "sk-test-ABC123"


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://h:8000", "http://h:8000"),
        ("http://h:8000/", "http://h:8000"),
        ("http://h:8000/v1", "http://h:8000"),
        ("http://h:8000/v1/", "http://h:8000"),
        ("https://h/openai/v1", "https://h/openai"),
        ("https://h/v1beta", "https://h"),
        ("https://h/v12", "https://h/v12"),
        (" HTTP://Host.Example:80/A ", "http://host.example:80/A"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
    ],
)
def test_a_base_url_in_any_spelling(url: str, root: str) -> None:
    found = endpoint(url, env={})
    assert (found.root, found.display) == (root, root)


@pytest.mark.parametrize(
    ("url", "message", "hint"),
    [
        ("localhost:8000", "has no scheme", "did you mean http://localhost:8000?"),
        ("10.0.0.1:8000/v1", "has no scheme", "did you mean http://10.0.0.1:8000/v1?"),
        ("me:pw@h:80", "has no scheme", "begin it with http:// or https://"),
        ("", "is empty", "http://127.0.0.1:8000"),
        ("ftp://h", "scheme 'ftp'", "only http:// and https://"),
        ("http://", "has no host", "give one"),
        ("http://:80", "has no host", "give one"),
        ("http://h:99999", "port is not a number", None),
        ("http://h:eighty", "port is not a number", None),
        ("http://[::1", "host is malformed", None),
        ("http://me:pw@h", "holds credentials", "LOGPROOF_API_KEY"),
        (f"http://h/?api_key={KEY}", "query or fragment", "LOGPROOF_API_KEY"),
        ("http://h/a b", "a space", None),
        ("http://h\\x", "backslash", None),
        ("http://h/v1/chat/completions", "ends in a route (/v1/chat/completions)", "give the base URL: http://h"),
        ("http://h/v1/completions/", "/v1/completions", "give the base URL: http://h"),
        ("http://h:30000/generate", "/generate", "give the base URL: http://h:30000"),
        ("https://h/x/v1/messages", "/v1/messages", "give the base URL: https://h/x"),
        ("https://h/v1/responses", "/v1/responses", "give the base URL: https://h"),
        ("https://h/v1/models", "/v1/models", "give the base URL: https://h"),
        ("https://h/v1beta/models/gemini-3:generateContent", ":generateContent", "give the base URL: https://h"),
        ("https://h/v1beta/models/g:streamGenerateContent", ":streamGenerateContent", "give the base URL: https://h"),
    ],
)
def test_what_is_no_base_url_is_refused_with_the_way_out(url: str, message: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        endpoint(url, env={})
    assert message in str(caught.value)
    assert (hint or "") in (caught.value.hint or "")
    assert "pw" not in f"{caught.value}{caught.value.hint}"
    assert KEY not in f"{caught.value}{caught.value.hint}"


def test_where_the_key_comes_from() -> None:
    env = {"LOGPROOF_API_KEY": " own\n", "OPENAI_API_KEY": "oa", "MINE": "m1", "GOOGLE_API_KEY": "g1"}
    vendors = {k: v for k, v in env.items() if k != "LOGPROOF_API_KEY"}
    assert endpoint("http://h", env=env).key == Secret("own")
    assert endpoint("http://h", env=env, key_env="MINE").key == Secret("m1")
    assert endpoint("http://h", env=env, key="given").key == Secret("given")
    google = endpoint("https://generativelanguage.googleapis.com", env=vendors)
    assert (google.key, google.key_env) == (Secret("g1"), "GOOGLE_API_KEY")
    assert endpoint("https://api.openai.com/v1", env=vendors).key == Secret("oa")


def test_a_vendors_key_goes_to_no_other_host() -> None:
    found = endpoint("http://api.openai.com.example", env={"OPENAI_API_KEY": "oa"})
    assert (found.key, found.key_env) == (None, "LOGPROOF_API_KEY")


def test_the_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGPROOF_API_KEY", "from-env")
    assert endpoint("http://h").key == Secret("from-env")


def test_a_named_variable_must_be_set() -> None:
    with pytest.raises(UsageError, match="variable MINE, named for the key, is not set"):
        endpoint("http://h", key_env="MINE", env={"MINE": " "})


@pytest.mark.parametrize("key", ["", "a\nb", "schlüssel", "a\x00b"])
def test_an_unusable_key_is_refused_unseen(key: str) -> None:
    with pytest.raises(UsageError, match="the given key is empty or holds") as caught:
        endpoint("http://h", key=key, env={})
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize("headers", [{"X Y": "v"}, {"X:": "v"}, {"X": "a\r\nB: c"}, {"": "v"}])
def test_headers_that_http_cannot_carry_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="header"):
        endpoint("http://h", headers=headers, env={})


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        ("bearer", {"Authorization": f"Bearer {KEY}"}),
        ("x-api-key", {"x-api-key": KEY}),
        ("x-goog-api-key", {"x-goog-api-key": KEY}),
    ],
)
def test_three_ways_to_send_a_key(auth: AuthStyle, header: dict[str, str]) -> None:
    found = endpoint("http://h", key=KEY, headers={"X-Org": "o"}, auth=auth, env={})
    assert found.secret_headers() == {"X-Org": "o", **header}


def test_without_a_key_no_header_is_sent() -> None:
    assert endpoint("http://h", env={}).secret_headers() == {}


def test_nothing_shows_or_stores_a_secret() -> None:
    found = endpoint("http://h", key=KEY, headers={"X-Tenant": "tenant-secret"}, env={})
    for shown in (repr(found), str(found), f"{found.key}", found.display, repr(msgspec.structs.asdict(found))):
        assert KEY not in shown
        assert "tenant-secret" not in shown
    for store in (msgspec.json.encode, msgspec.msgpack.encode, pickle.dumps, copy.deepcopy, msgspec.to_builtins):
        with pytest.raises(TypeError):
            store(found)


def test_secrets_compare_by_text() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1


def test_mask_hides_keys_and_header_values_but_no_single_letters() -> None:
    found = endpoint("http://h", key=KEY, headers={"X-A": "hush-hush", "X-B": "1"}, env={})
    assert found.mask(f"got {KEY} and hush-hush, 1 time") == "got [redacted] and [redacted], 1 time"
    assert endpoint("http://h", env={}).mask("plain") == "plain"


def test_timeouts_are_those_given() -> None:
    assert endpoint("http://h", env={}, timeouts=Timeouts(total=5.0)).timeouts.total == 5.0
