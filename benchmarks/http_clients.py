"""Clients of a server that ask for one answer after the other, in a process of their own: serve_http.py starts it.

    python benchmarks/http_clients.py URL N_CLIENTS SECONDS < requests.json > answers.json

Requests are {"path": …, "body": …}; each client takes the next one, in a circle. It writes its HTTP by hand, because a
client library would take more of the cores than the server. Answers are lists: the number of the request, the status,
the text, and the seconds to its first and to its last token.
"""

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit


def text_of(answer):
    """Return the text in an answer or in an event of a stream, or None if it has none."""
    if "translations" in answer:
        return answer["translations"][0]["translation"]
    if "translation" in answer:
        return answer["translation"]
    if "data" in answer or "texts" in answer:  # vectors and classes: all of it
        return json.dumps(answer)
    return answer["choices"][0].get("text") if answer.get("choices") else None


class Connection:
    def __init__(self, url):
        self.host, self.port = urlsplit(url).hostname, urlsplit(url).port
        self.reader = self.writer = None

    async def ask(self, path, body):
        """Yield the status, then the parts of the body as they arrive."""
        if self.writer is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        yield int(lines[0].split()[1])
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        if "content-length" in headers:
            yield await self.reader.readexactly(int(headers["content-length"]))
            return
        while size := int(await self.reader.readline(), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readline()


async def answer(connection, row, request):
    """Ask one request, and return the answer as a list."""
    begin, first, status, content = time.perf_counter(), None, 0, b""
    async for part in connection.ask(request["path"], request["body"]):
        if not status:
            status = part
            continue
        first = first or time.perf_counter()
        content += part
    end = time.perf_counter()
    return [row, status, spoken(content, request["body"].get("stream")), (first or end) - begin, end - begin]


def spoken(content, is_stream):
    """Return the text of an answer, or of all events of a stream; None if it is an error or has no end."""
    if not is_stream:
        return text_of(json.loads(content))
    events = [line.removeprefix("data: ") for line in content.decode().splitlines() if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        return None
    answers = [json.loads(event) for event in events[:-1]]
    if any("error" in one for one in answers):
        return None
    texts = [text for one in answers if (text := text_of(one)) is not None]
    return "".join(texts)


async def main(url, n_clients, seconds):
    requests, answers, turn = json.load(sys.stdin), [], iter(range(10**9))
    begin = time.perf_counter()

    async def client():
        connection = Connection(url)
        while time.perf_counter() - begin < seconds:
            row = next(turn) % len(requests)
            try:
                answers.append(await answer(connection, row, requests[row]))
            except (OSError, EOFError, ValueError) as error:
                answers.append([row, 0, repr(error), 0.0, 0.0])
                connection = Connection(url)

    await asyncio.gather(*(client() for _ in range(n_clients)))
    json.dump({"seconds": time.perf_counter() - begin, "answers": answers}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
