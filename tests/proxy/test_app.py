from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiohttp import TCPConnector

from fakes.server import FakeServer, Reply, Seen
from logproof.proxy.captured_call import CaptureLimits
from logproof.proxy.request_plan import CHAT, COMPLETIONS, Asks
from logproof.proxy.upstream import UpstreamTimeouts
from proxy.pairs import NAMES, Pair, pair
from proxy.running import ABLE, KEY, Running, running, wait_for

EVENTS = {"content-type": "text/event-stream; charset=utf-8"}
PLAIN = {"content-type": "application/json"}


def serve(fake: FakeServer, found: Pair) -> None:
    """As the engine does: the asked reply to a request with ids, the direct one otherwise."""

    def answer(seen: Seen) -> Reply:
        text = found.asked if seen.json().get("return_token_ids") else found.direct
        return Reply(body=text, headers=EVENTS if found.streamed else PLAIN, chunked=found.streamed, piece=97)

    fake.on(found.path, answer)


@pytest.mark.parametrize("name", NAMES)
def test_a_client_gets_the_bytes_of_a_direct_call(name: str) -> None:
    found = pair(name)
    with FakeServer() as fake, running(fake.url) as proxy:
        serve(fake, found)
        answer = proxy.post(found.path, found.body)
        (record,) = proxy.records(1)
    assert answer.body == found.direct.encode()
    assert answer.header("content-type") == (EVENTS if found.streamed else PLAIN)["content-type"]
    assert answer.header("content-length") == (None if found.streamed else str(len(answer.body)))
    assert record.sent == found.body
    assert json.loads(record.forwarded) == fake.seen[0].json() == {**found.request, **json.loads(record.forwarded)}
    assert record.reply == found.asked.encode()
    assert (record.streamed, record.complete, record.status) == (found.streamed, True, 200)
    assert record.reply_sha256 == hashlib.sha256(found.asked.encode()).hexdigest()
    assert record.served_sha256 == hashlib.sha256(found.direct.encode()).hexdigest()
    assert record.forwarded_sha256 == hashlib.sha256(fake.seen[0].body).hexdigest()
    assert record.sent_sha256 == hashlib.sha256(found.body).hexdigest()


def test_the_engine_sees_the_client_and_not_the_proxy() -> None:
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on(CHAT, {"choices": []})
        headers = {"x-trace": "7", "accept-encoding": "gzip", "user-agent": "sdk/1", "te": "trailers", "expect": "x"}
        proxy.post(f"{CHAT}?a=%2F&b", {"model": "m"}, **headers)
        host = fake.url.removeprefix("http://")
    seen = fake.seen[0]
    assert seen.path == f"{CHAT}?a=%2F&b"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert (seen.headers["x-trace"], seen.headers["user-agent"]) == ("7", "sdk/1")
    assert seen.headers["accept-encoding"] == "identity"
    assert seen.headers["host"] == host
    assert not {"te", "expect", "x-forwarded-for", "via"} & seen.headers.keys()


def test_an_event_reaches_the_client_before_the_next_one_is_made() -> None:
    found = pair("chat_stream")
    first = found.asked.encode().index(b"\n\n") + 2
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on(CHAT, Reply(body=found.asked, headers=EVENTS, chunked=True, cut=first, hang=True))
        client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
        client.request("POST", CHAT, found.body, {"content-type": "application/json"})
        reply = client.getresponse()
        got = reply.read1(65536)
        client.close()
        reply.close()
    assert got == found.direct.encode()[: found.direct.encode().index(b"\n\n") + 2]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_paths_and_methods_pass_untouched(method: str) -> None:
    reply = Reply(
        status=207, body=b"\x00\xffraw", headers={"content-type": "x/y", "x-a": "1", "content-encoding": "br"}
    )
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on("/v1/other", reply if method != "HEAD" else Reply(status=207, body="", length=5, headers=reply.headers))
        body = b"\x01\x02" if method in ("POST", "PUT", "PATCH") else None
        answer = proxy.call(method, "/v1/other?q=%20", body, {"accept-encoding": "br", "authorization": "Basic x"})
        assert proxy.status()["passed_through"] == 1
        assert proxy.status()["captured"] == 0
    seen = fake.seen[0]
    assert (seen.method, seen.path, seen.body) == (method, "/v1/other?q=%20", body or b"")
    assert (seen.headers["accept-encoding"], seen.headers["authorization"]) == ("br", "Basic x")
    assert (answer.status, answer.body) == (207, b"" if method == "HEAD" else b"\x00\xffraw")
    assert answer.headers == [
        ("content-type", "x/y"),
        ("content-length", "5"),
        ("x-a", "1"),
        ("content-encoding", "br"),
    ]


def test_a_get_on_a_captured_route_passes() -> None:
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on(CHAT, Reply(status=405, json={"detail": "Method Not Allowed"}))
        assert proxy.call("GET", CHAT).status == 405
        assert proxy.status()["captured"] == 0


def test_a_chunked_body_passes_as_it_comes() -> None:
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on("/v1/files", Reply(status=201, body="ok", chunked=True))
        client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
        client.request("POST", "/v1/files", iter([b"a" * 100_000, b"b"]), {}, encode_chunked=True)
        reply = client.getresponse()
        assert (reply.status, reply.read()) == (201, b"ok")
        client.close()
    assert fake.seen[0].body == b"a" * 100_000 + b"b"


def test_redirects_and_cookies_belong_to_the_client() -> None:
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on("/x", Reply(status=307, json={}, headers={"location": "/y", "set-cookie": "s=1"}))
        first = proxy.call("GET", "/x")
        proxy.call("GET", "/x")
    assert (first.status, first.header("location"), first.header("set-cookie")) == (307, "/y", "s=1")
    assert "cookie" not in fake.seen[1].headers


def test_a_refused_request_is_seen_as_a_direct_call_would_be() -> None:
    def answer(seen: Seen) -> Reply:
        asked = "return_token_ids" in seen.json()
        return Reply(status=400, json={"error": {"message": "with the proxy's fields" if asked else "no such model"}})

    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on(CHAT, answer)
        answer_ = proxy.post(CHAT, {"model": "x"})
        (record,) = proxy.records(1)
        assert proxy.status()["refilled"] == 1
    assert json.loads(answer_.body)["error"]["message"] == "no such model"
    assert (record.status, record.added, record.width) == (400, (), None)
    assert len(fake.seen) == 2


def test_a_body_that_is_no_object_goes_on_as_it_is() -> None:
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on(CHAT, Reply(status=400, json={"detail": "bad"}))
        assert proxy.post(CHAT, b"{not json").status == 400
        assert proxy.status()["unplanned"] == 1
    assert [s.body for s in fake.seen] == [b"{not json"]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body="not json", headers=PLAIN),
        Reply(body='{"choices":[],"choices":[]}', headers=PLAIN),
        Reply(body="\x1f\x8bgzip", headers={**PLAIN, "content-encoding": "gzip"}),
        Reply(body='data: {"a":1,"a":2}\n\ndata: [DONE]\n\n', headers=EVENTS, chunked=True),
    ],
)
def test_a_reply_that_cannot_be_read_goes_out_as_it_is(reply: Reply) -> None:
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on(CHAT, reply)
        assert proxy.post(CHAT, {"model": "m"}).body == reply.content()[0]
        assert proxy.status()["unstripped"] == 1


def test_a_stream_that_ends_without_a_blank_line_keeps_its_tail() -> None:
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on(CHAT, Reply(body='data: {"choices":[]}\n\ndata: [DONE]', headers=EVENTS, chunked=True))
        assert proxy.post(CHAT, {"model": "m"}).body == b'data: {"choices":[]}\n\ndata: [DONE]'


def test_without_ids_nothing_is_asked() -> None:
    with FakeServer() as fake, running(fake.url, able=Asks(False, False, 3)) as proxy:
        fake.on(CHAT, {"choices": [{"logprobs": 1}]})
        assert json.loads(proxy.post(CHAT, b'{ "model": "m"}').body) == {"choices": [{"logprobs": 1}]}
        (record,) = proxy.records(1)
    assert fake.seen[0].body == b'{ "model": "m"}'
    assert (record.added, record.width) == ((), None)


@pytest.mark.parametrize(
    ("reply", "status", "words"),
    [
        (Reply(drop=True), 502, "broke off"),
        (Reply(reset=True), 502, "broke off"),
        (Reply(hang=True), 504, "in time"),
        (Reply(raw=b"nonsense\r\n\r\n"), 502, "broke off"),
        (Reply(body='{"choices":[]}', cut=4, headers=PLAIN), 502, "broke off"),
    ],
)
def test_an_engine_that_fails_is_one_clear_error(reply: Reply, status: int, words: str) -> None:
    with FakeServer() as fake, running(fake.url, timeouts=UpstreamTimeouts(idle=0.2)) as proxy:
        fake.on(CHAT, reply)
        fake.on("/v1/models", reply)
        answer = proxy.post(CHAT, {"model": "m"})
        assert answer.status == status
        error = json.loads(answer.body)["error"]
        assert words in error["message"]
        assert error["type"] == "logproof_proxy"
        if reply.cut is None:
            assert proxy.call("GET", "/v1/models").status == status


def test_an_engine_that_is_down_is_502() -> None:
    with FakeServer() as fake:
        url = fake.url
    with running(url) as proxy:
        answer = proxy.post(CHAT, {"model": "m"})
        assert (answer.status, "cannot be reached" in answer.body.decode()) == (502, True)
        assert proxy.status()["captured"] == 0


@pytest.mark.parametrize("path", [CHAT, "/v1/other"])
def test_a_cut_stream_is_cut_for_the_client_too(path: str) -> None:
    found = pair("chat_stream")
    cut = found.asked.encode().index(b"\n\n") + 2
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on(path, Reply(body=found.asked, headers=EVENTS, chunked=True, cut=cut, reset=True))
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            proxy.post(path, found.body)
        if path == CHAT:
            (record,) = proxy.records(1)
            assert record.complete is False


def test_a_client_that_leaves_stops_the_engine() -> None:
    found = pair("chat_stream")
    first = found.asked.encode().index(b"\n\n") + 2
    with FakeServer() as fake, running(fake.url) as proxy:
        for reply in (
            Reply(hang=True),
            Reply(body=found.asked, headers=EVENTS, chunked=True, cut=first, hang=True),
        ):
            fake.on(CHAT, reply)
            before = len(fake.seen)
            client = socket.create_connection(("127.0.0.1", proxy.port))
            client.sendall(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 13\r\n\r\n" % CHAT.encode())
            client.sendall(b'{"model":"m"}')
            wait_for(lambda before=before: len(fake.seen) > before)
            if reply.cut is not None:
                client.recv(1)
            client.close()
            wait_for(lambda: open_connections(proxy) == 0)
        (record,) = proxy.records(1)
    assert record.complete is False


def open_connections(proxy: Running) -> int:
    """Connections of the pool that are in use."""
    session = proxy.proxy.upstream._session
    assert session is not None
    assert isinstance(session.connector, TCPConnector)
    return len(session.connector._acquired)


def test_a_client_that_leaves_inside_its_body_is_forgotten() -> None:
    with FakeServer() as fake, running(fake.url, on_full="closed", capacity=1) as proxy:
        fake.on(CHAT, {"choices": []})
        for path in (CHAT, "/v1/other"):
            client = socket.create_connection(("127.0.0.1", proxy.port))
            client.sendall(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 13\r\n\r\n{" % path.encode())
            wait_for(lambda path=path: proxy.status()["full"] is (path == CHAT) or path != CHAT)
            client.close()
            wait_for(lambda: proxy.status()["full"] is False)
        assert proxy.post(CHAT, {"model": "m"}).status == 200


def test_a_huge_request_is_refused() -> None:
    with FakeServer() as fake, running(fake.url, limits=CaptureLimits(request=100)) as proxy:
        fake.on(CHAT, {"choices": []})
        answer = proxy.post(CHAT, b'{"x":"' + b"y" * 100 + b'"}')
        assert (answer.status, "longer than 100 bytes" in answer.body.decode()) == (413, True)
        assert proxy.post(CHAT, {"model": "m"}).status == 200
    assert len(fake.seen) == 1


@pytest.mark.parametrize("name", ["chat", "chat_stream"])
def test_a_huge_reply_is_served_and_not_kept(name: str) -> None:
    found = pair(name)
    with FakeServer() as fake, running(fake.url, limits=CaptureLimits(reply=500)) as proxy:
        serve(fake, found)
        answer = proxy.post(found.path, found.body)
        assert answer.body == (found.direct if found.streamed else found.asked).encode()
        wait_for(lambda: proxy.status()["oversized"] == 1)
        assert proxy.status()["captured"] == 0


def test_an_endless_event_is_cut() -> None:
    with FakeServer() as fake, running(fake.url, limits=CaptureLimits(event=50)) as proxy:
        fake.on(CHAT, Reply(body="data: " + "x" * 100, headers=EVENTS, chunked=True))
        with pytest.raises(http.client.IncompleteRead):
            proxy.post(CHAT, {"model": "m"})


def test_a_key_is_nowhere_but_at_the_engine() -> None:
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on(CHAT, lambda seen: {"choices": [], "error": f"you sent {seen.headers['authorization']}"})
        answer = proxy.post(f"{CHAT}?key={KEY}", {"model": "m", "user": KEY})
        (record,) = proxy.records(1)
        status = json.dumps(proxy.status())
    assert KEY in answer.body.decode()
    assert KEY not in repr(record)
    assert KEY not in status


def test_a_redirect_does_not_lead_around_the_recorder() -> None:
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on(f"{CHAT}/", Reply(status=307, json={}, headers={"location": f"{fake.url}{CHAT}"}))
        answer = proxy.post(f"{CHAT}/", {"model": "m"})
    assert (answer.status, answer.header("location")) == (307, CHAT)


def test_an_encoded_reply_is_served_and_not_stored() -> None:
    body = gzip.compress(f"you sent {KEY}".encode())
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on(CHAT, Reply(body=body, headers={**PLAIN, "content-encoding": "gzip"}))
        answer = proxy.post(CHAT, {"model": "m"})
        (record,) = proxy.records(1)
    assert (answer.body, record.reply) == (body, b"")
    assert record.reply_sha256 == hashlib.sha256(body).hexdigest()


def test_calls_in_one_breath_are_answered_in_order_and_all_recorded() -> None:
    """Pipelined requests on one connection, a chunked body among them, names of headers in any case."""
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on(COMPLETIONS, lambda seen: {"choices": [{"text": seen.json()["prompt"]}]})
        head = b"POST %s HTTP/1.1\r\nHOST: x\r\naUTHORIZATION: bEARER %s\r\n" % (COMPLETIONS.encode(), KEY.encode())
        one, two = (json.dumps({"prompt": p}).encode() for p in ("first", "second"))
        chunks = b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (5, two[:5], len(two) - 5, two[5:])
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            client.sendall(head + b"content-length: %d\r\n\r\n" % len(one) + one)
            client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
            got = b""
            while b"second" not in got:
                got += client.recv(65536)
        records = proxy.records(2)
    assert got.index(b"first") < got.index(b"second")
    assert [json.loads(r.sent)["prompt"] for r in records] == ["first", "second"]
    assert [s.headers["authorization"] for s in fake.seen] == [f"bEARER {KEY}"] * 2
    assert KEY not in repr(records)


def test_sixty_four_clients_at_once() -> None:
    with FakeServer() as fake, running(fake.url, capacity=128) as proxy:
        fake.on(COMPLETIONS, lambda seen: {"choices": [{"text": seen.json()["prompt"], "token_ids": [1]}]})
        with ThreadPoolExecutor(64) as pool:
            answers = list(pool.map(lambda i: proxy.post(COMPLETIONS, {"prompt": str(i)}), range(64)))
        records = proxy.records(64)
    assert [json.loads(a.body)["choices"][0]["text"] for a in answers] == [str(i) for i in range(64)]
    assert sorted(json.loads(r.sent)["prompt"] for r in records) == sorted(map(str, range(64)))
    for record in records:
        assert json.loads(record.reply)["choices"][0]["text"] == json.loads(record.sent)["prompt"]


def test_the_status_says_what_the_proxy_does() -> None:
    with FakeServer() as fake, running(fake.url, on_full="closed") as proxy:
        status = proxy.status()
        assert status["upstream"] == fake.url
    assert (status["on_full"], "503" in str(status["means"])) == ("closed", True)
    assert status["asks"] == {CHAT: ABLE_JSON, COMPLETIONS: ABLE_JSON}
    assert fake.seen == []


ABLE_JSON = {"ids": ABLE.ids, "named": ABLE.named, "width": ABLE.width}
