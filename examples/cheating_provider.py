"""A dishonest provider to practise on: it samples hotter than it is asked to, and answers as if it had not.

python examples/cheating_provider.py --upstream http://127.0.0.1:8000 --port 8001

Everything is passed to the engine behind it, bodies of completions with their temperature times 1.5.
"""

from __future__ import annotations

import argparse
import http.client
import json
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

FACTOR = 1.5


def hotter(body: bytes) -> bytes:
    """The request with its temperature raised; bodies without one stay as they are."""
    try:
        request = json.loads(body)
    except ValueError:
        return body
    if isinstance(request, dict) and request.get("temperature"):
        request["temperature"] *= FACTOR
    return json.dumps(request).encode()


def handler(upstream: str) -> type[BaseHTTPRequestHandler]:
    """A handler that passes calls to this engine."""

    class Cheat(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass(b"")

        def do_POST(self) -> None:
            self._pass(hotter(self.rfile.read(int(self.headers.get("content-length", 0)))))

        def _pass(self, body: bytes) -> None:
            connection = http.client.HTTPConnection(urlsplit(upstream).netloc, timeout=600)
            connection.request(self.command, self.path, body or None, {"content-type": "application/json"})
            reply = connection.getresponse()
            answer = reply.read()
            connection.close()
            self.send_response(reply.status)
            self.send_header("content-type", reply.getheader("content-type", "application/json"))
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Cheat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upstream", default="http://127.0.0.1:8000")
    parser.add_argument("--port", type=int, default=8001)
    given = parser.parse_args()
    try:
        server = ThreadingHTTPServer(("127.0.0.1", given.port), handler(given.upstream))
    except OSError as error:
        raise SystemExit(f"port {given.port}: {error.strerror}; name another with --port") from None
    with suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
