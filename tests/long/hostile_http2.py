"""Abuse of HTTP/2 and gRPC, a row each: name, what the client does, the outcomes that are good. What a client does is a function of a
Target that returns an outcome of Http2Client. Part of the lane hostile_clients.py."""

import gzip
import itertools
import re
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from http2_client import (ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, PRIORITY, PUSH_PROMISE,  # noqa: E402
                          RST_STREAM, SETTINGS, WINDOW_UPDATE, Http2Client, data, frame, head, header, indexed_header, message, number)

SHUT = r"closed|goaway \d+|alert .*"  # the server ends the connection
CUT = SHUT + "|status 8"  # gRPC may have answered the call before
REFUSED = SHUT + r"|reset \d+|status ([1-9]|1\d)|http 4\d\d"  # the connection or the call
KEPT = REFUSED + r"|status 0|open"  # harmless: the call may even be answered
FLOOD_BYTES = 170 << 20  # of the attack that was reported
BOMB_BYTES = 200 << 20


def flood(target, first, chunk, limit=FLOOD_BYTES, seconds=6.0, read=True):
    """`first`, then `chunk` again and again."""
    client = Http2Client(target.address, target.tls)
    client.send(first)
    client.send(itertools.repeat(chunk, limit // len(chunk)), seconds=seconds, read=read)
    return finish(client)


def finish(client):
    outcome = client.outcome()
    client.close()
    return outcome


def say(target, *chunks, seconds=5.0, read=True, **words):
    client = Http2Client(target.address, target.tls, **words)
    client.send(*chunks, seconds=seconds, read=read)
    return finish(client)


def open_headers(target, payload):
    """A header block that continues for as long as the server listens."""
    return flood(target, frame(HEADERS, 0, 1, target.head()), frame(CONTINUATION, 0, 1, payload) * 4)


def endless_string(target):
    first = frame(HEADERS, 0, 1, target.head()) + frame(CONTINUATION, 0, 1, b"\x00\x03x-a" + number(1 << 30, 7, 0))
    return flood(target, first, frame(CONTINUATION, 0, 1, b"b" * 16_384) * 4)


def streams(count, each):
    """`each(stream)` for the first `count` streams of a client."""
    return (each(1 + 2 * i) for i in range(count))


def calls(target, count):
    return streams(count, lambda stream: frame(HEADERS, END_HEADERS, stream, target.head()))


def hpack_bomb(target):
    """A large header in the table, which one byte repeats."""
    first = frame(HEADERS, END_HEADERS, 1, target.head(indexed_header(b"x-a", b"b" * 3000)))
    more = (frame(HEADERS, END_HEADERS, 3 + 2 * i, target.head(b"\xbe" * 15_000)) for i in range(2000))
    return say(target, itertools.chain([first], more), read=False)


def half_messages(target, count, size, held):
    """Calls that stop in the middle of a large message."""
    def parts():
        for stream in range(1, 2 * count, 2):
            yield frame(HEADERS, END_HEADERS, stream, target.head(path=target.work)) + data(stream, message(b"", claims=size), end=False)
        for _ in range(held // 16_000):
            for stream in range(1, 2 * count, 2):
                yield frame(DATA, 0, stream, b"z" * 16_000)
    client = Http2Client(target.address, target.tls)
    client.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30)))
    client.send(parts(), seconds=8.0)
    return finish(client)


def gzip_bomb(target):
    body = message(gzip.compress(bytes(BOMB_BYTES), 9), compressed=1)
    return call(target, body, header(b"grpc-encoding", b"gzip"), path=target.work)


def call(target, body=b"", more=b"", **words):
    return say(target, frame(HEADERS, END_HEADERS, 1, target.head(more, **words)), data(1, body))


def resets(target, per_write, seconds, pause_s=0.0):
    def parts():
        for i in itertools.count():
            time.sleep(pause_s)
            ids = range(1 + 2 * i * per_write, 1 + 2 * (i + 1) * per_write, 2)
            yield b"".join(frame(HEADERS, END_HEADERS, s, target.head()) + frame(RST_STREAM, 0, s, b"\0\0\0\x08") for s in ids)
    return say(target, parts(), seconds=seconds)


def zero_window(target):
    """Calls whose answers may never be sent."""
    no_window = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
    client = Http2Client(target.address, target.tls, PREFACE + no_window)
    client.send(streams(1000, lambda s: frame(HEADERS, END_HEADERS, s, target.head()) + data(s, message(b""))))
    return finish(client)


def reflection(target):
    """Everything of the reflection service, again and again on many streams, unread."""
    path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    ask = message(b"\x3a\x01*") * 50
    return say(target, streams(1000, lambda s: frame(HEADERS, END_HEADERS, s, target.head(path=path)) + data(s, ask, end=False)), read=False)


def noise_to_methods(target):
    """Bytes that are no protobuf, to each method that a role could know."""
    methods = ("AgentService/Sync", "DispatchService/SubmitWork", "FleetAdminService/ListDevices", "ArtifactService/BatchWrite",
               "ArtifactService/Write", "JobService/CreateJob", "JobService/ImportLog", "ModuleService/ResolveModule", "EnrolmentService/Enrol")
    noise = message(bytes(range(255, 0, -1)) * 40)
    return say(target, *(frame(HEADERS, END_HEADERS, 1 + 2 * i, target.head(path="/tilewright.v1." + m)) + data(1 + 2 * i, noise)
                         for i, m in enumerate(methods)))


def headers_only(target, block, count=1):
    return say(target, *streams(count, lambda s: frame(HEADERS, END_HEADERS | END_STREAM, s, block)))


ABUSES = (  # name, attack, good outcomes
    ("continuation: small headers", lambda t: open_headers(t, header(b"x-a", b"b") * 1500), CUT),
    ("continuation: large headers", lambda t: open_headers(t, header(b"x-a", b"b" * 4000) * 4), CUT),
    ("continuation: empty", lambda t: flood(t, frame(HEADERS, 0, 1, t.head()), frame(CONTINUATION, 0, 1) * 4000), CUT),
    ("continuation: one string without end", endless_string, CUT),
    ("continuation: one byte a header", lambda t: open_headers(t, b"\x82" * 16_384), CUT),
    ("continuation: headers into the table", lambda t: open_headers(t, indexed_header(b"x-a", b"b" * 3000) * 5), CUT),
    ("continuation: resized tables", lambda t: open_headers(t, b"\x20\x3f\xe1\x1f" * 4000), CUT),
    ("continuation: begins and falls silent", lambda t: say(t, frame(HEADERS, 0, 1, t.head())), KEPT),
    ("hpack: repeats a large header", hpack_bomb, KEPT),
    ("hpack: large headers on many streams, unread", lambda t: say(t, streams(
        4000, lambda s: frame(HEADERS, END_HEADERS, s, t.head(header(b"x-a", b"b" * 1000) * 15))), read=False), KEPT),
    ("hpack: header names no entry", lambda t: headers_only(t, b"\xff\xff\xff\x7f"), REFUSED),
    ("hpack: number without end", lambda t: headers_only(t, b"\x7f" + b"\xff" * 4000), REFUSED),
    ("hpack: 60 KiB of headers", lambda t: headers_only(t, t.head(header(b"x-a", b"b" * 1000) * 16)), REFUSED),
    ("headers again and again on one stream", lambda t: flood(
        t, frame(HEADERS, END_HEADERS, 1, t.head()), frame(HEADERS, END_HEADERS, 1, header(b"x-a", b"b" * 1000) * 15) * 4), REFUSED),
    ("flood of settings", lambda t: flood(t, b"", frame(SETTINGS, 0, 0) * 4000, 16 << 20, read=False), KEPT),
    ("flood of pings, unread", lambda t: flood(t, b"", frame(PING, 0, 0, b"12345678") * 4000, 16 << 20, read=False), KEPT),
    ("flood of priorities", lambda t: flood(t, b"", frame(PRIORITY, 0, 1, b"\0\0\0\x03\0") * 4000, 16 << 20), SHUT),
    ("flood of unknown frames", lambda t: flood(t, b"", frame(77, 0, 0, b"x" * 100) * 400, 16 << 20), SHUT),
    ("flood of window updates", lambda t: flood(t, b"", frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\x01") * 4000, 16 << 20), KEPT),
    ("window beyond its limit", lambda t: say(t, frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7FFFFFFF)) * 4), KEPT),
    ("rapid reset", lambda t: resets(t, 500, 8.0), KEPT),
    ("resets below the limit", lambda t: resets(t, 50, 5.0, 0.025), KEPT),
    ("messages in pieces of a byte", lambda t: flood(
        t, frame(HEADERS, END_HEADERS, 1, t.head(path=t.work)) + data(1, message(b"", claims=16 << 20), end=False), frame(DATA, 0, 1, b"z") * 6000), REFUSED),
    ("64 halves of 16 MiB messages", lambda t: half_messages(t, 64, (16 << 20) - 1, 8 << 20), KEPT),
    ("1,000 halves of 1 MiB messages", lambda t: half_messages(t, 1000, 1 << 20, 1 << 19), KEPT),
    ("message that claims 4 GiB", lambda t: call(t, message(b"z" * 1000, claims=0xFFFFFFFF), path=t.work), REFUSED),
    ("message of 20 MiB", lambda t: call(t, message(bytes(20 << 20)), path=t.work), REFUSED),
    ("gzip bomb", gzip_bomb, REFUSED),
    ("compression that nobody knows", lambda t: call(t, message(b"x", 1), header(b"grpc-encoding", b"rot13")), REFUSED),
    ("calls whose answers have no window", zero_window, KEPT),
    ("8,000 calls that say nothing", lambda t: say(t, calls(t, 8000), read=False), KEPT),
    ("8,000 calls before the settings are acknowledged", lambda t: say(t, calls(t, 8000), acknowledge=False, read=False), SHUT),
    ("8,000 calls after settings are acknowledged that nobody sent", lambda t: say(
        t, calls(t, 8000), first=PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0), acknowledge=False, read=False),
     KEPT),  # the server's settings may have left before: then it keeps the connection and limits the calls
    ("reflection, asked and unread", reflection, KEPT),
    ("frame that claims 16 MiB", lambda t: say(t, frame(HEADERS, END_HEADERS, 1, b"x" * 1000, 0xFFFFFF)), SHUT),
    ("settings of 4 MiB", lambda t: say(t, frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 9) * 690_000)), KEPT),
    ("goodbye with 4 MiB of reasons", lambda t: say(t, frame(GOAWAY, 0, 0, bytes(8) + b"x" * (4 << 20))), KEPT),
    ("promises of a client", lambda t: say(t, frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\x02" + t.head())), KEPT),
    ("data on a stream that nobody opened", lambda t: say(t, data(7, b"x" * 1000)), KEPT),
    ("a stream of the server's numbers", lambda t: say(t, frame(HEADERS, END_HEADERS, 2, t.head())), KEPT),
    ("garbage after the end of a stream", lambda t: say(
        t, frame(HEADERS, END_HEADERS, 1, t.head()) + data(1, message(b"")) + data(1, b"garbage" * 1000) + b"\xff" * 100), KEPT),
    ("a preface of garbage", lambda t: finish(Http2Client(t.address, t.tls, b"\xff" * 4096, False)), SHUT),
    ("HTTP/1.1", lambda t: finish(Http2Client(t.address, t.tls, b"GET / HTTP/1.1\r\nHost: fleet\r\n\r\n", False)), SHUT + "|http 4.."),
    ("another content type", lambda t: call(t, message(b""), content_type=b"text/html"), KEPT),  # gRPC does not look at it
    ("no content type", lambda t: call(t, message(b""), content_type=b""), KEPT),
    ("a method that does not exist", lambda t: call(t, message(b""), path="/no.such.Service/Method"), REFUSED),
    ("a path of 7,000 characters", lambda t: call(t, message(b""), path="/" + "x" * 7000), REFUSED),
    ("a deadline of 99,999,999 hours", lambda t: call(t, message(b""), header(b"grpc-timeout", b"99999999H")), KEPT),
    ("metadata that is no base64", lambda t: call(t, message(b""), header(b"x-bin", b"!!!!")), KEPT),
    ("noise to each method", noise_to_methods, REFUSED),
)
QUICK = re.compile("continuation: small|8,000|without end|rapid reset|gzip|64 halves|pieces of a byte|HTTP/1.1|60 KiB")
