"""A client of HTTP/2 that sends any bytes, good or bad, over plain text or TLS, and says what became of it. Standard library only.

    client = Http2Client("127.0.0.1:7001")
    client.send(request("/grpc.health.v1.Health/Check") + message(b""))
    client.outcome()                      # "status 0"
"""

import re
import select
import socket
import ssl
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
STATUS = re.compile(rb"grpc-status([\x01\x02])(\d{1,2})")
BROKEN = "status 14"
HTTP_STATUS = re.compile(rb":status\x03(\d{3})")


def frame(kind, flags, stream, payload=b"", length=None):
    """One frame; `length` lies about the payload's."""
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def number(value, bits, first):
    """An integer of HPACK with a prefix of `bits`; `first` holds the bits before it."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([first | value])
    out, value = [first | limit], value - limit
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + [value])


def text(value):
    return number(len(value), 7, 0) + value


def header(name, value):
    """A literal that enters no table."""
    return b"\x00" + text(name) + text(value)


def indexed_header(name, value):
    """A literal that enters the dynamic table, where 0xbe names the newest."""
    return b"\x40" + text(name) + text(value)


def head(path, more=b"", content_type=b"application/grpc", token=""):
    block = b"\x83\x86" + header(b":path", path.encode()) + header(b":authority", b"fleet") + header(b"te", b"trailers")
    if content_type:
        block += header(b"content-type", content_type)
    if token:
        block += header(b"authorization", b"Bearer " + token.encode())
    return block + more


def message(body, compressed=0, claims=None):
    """A gRPC message; `claims` lies about its length."""
    return struct.pack(">BI", compressed, len(body) if claims is None else claims) + body


def data(stream, body, end=True, piece=16_000):
    """`body` as DATA frames."""
    parts = [body[i:i + piece] for i in range(0, len(body), piece)] or [b""]
    return b"".join(frame(DATA, END_STREAM if end and i == len(parts) - 1 else 0, stream, part) for i, part in enumerate(parts))


def dial(address, timeout=5):
    host, port = address.rsplit(":", 1)
    link = socket.create_connection((host, int(port)), timeout)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def tls_context(identity=None, alpn=("h2",)):
    """`identity`: a folder with cert.pem and key.pem, or None to show no certificate. The server is not checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if identity:
        context.load_cert_chain("%s/cert.pem" % identity, "%s/key.pem" % identity)
    return context


class Http2Client:
    def __init__(self, address, tls=None, first=PREFACE + frame(SETTINGS, 0, 0), acknowledge=True):
        """`tls`: of tls_context, or None for plain text. `first` is sent at once; then come the settings of the server, which are
        acknowledged."""
        self.received, self.closed, self.left = b"", "", b""
        self.link = dial(address)
        try:
            if tls:
                self.link = tls.wrap_socket(self.link)
            self.link.setblocking(False)
        except OSError as error:
            self.closed = error_text(error)
        self.send(first)
        if acknowledge:
            deadline = time.monotonic() + 5
            while not (self.closed or self.received) and time.monotonic() < deadline:
                select.select([self.link], [], [], .05)
                self.read()
            if self.received[3:4] == bytes([SETTINGS]):
                self.send(frame(SETTINGS, ACK, 0))

    def send(self, *chunks, seconds=4.0, read=True):
        """Sends each chunk, and reads meanwhile. Ends when all are sent, the server has closed, or the time is over. Returns the bytes
        sent."""
        sent, deadline = 0, time.monotonic() + seconds
        for chunk in chunks[0] if len(chunks) == 1 and not isinstance(chunks[0], bytes) else chunks:
            view = memoryview(self.left + chunk)
            self.left = b""
            while view and not self.closed:
                if time.monotonic() > deadline:
                    return sent
                taken = self._try(lambda: self.link.send(view[:1 << 16]))
                sent += taken or 0
                if taken is None:
                    select.select([self.link] if read else [], [self.link], [], .05)
                view = view[taken or 0:]
                if read:
                    self.read()
            if self.closed or time.monotonic() > deadline:
                return sent
        return sent

    def read(self):
        """Takes what is there. True if something came."""
        got = None if self.closed else self._try(lambda: self.link.recv(1 << 16))
        if got == b"":
            self.closed = "closed"
        self.received = (self.received + (got or b""))[-(1 << 20):]
        return bool(got)

    def _try(self, step):
        try:
            return step()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return None
        except OSError as error:
            self.closed = error_text(error)
            return None

    def outcome(self, seconds=2.0):
        """What became of it: "closed", "alert ...", "status N" (of gRPC), "http N", "goaway N", "reset N" or "open"."""
        deadline = time.monotonic() + seconds
        while not self.closed and self.verdict() in ("open", BROKEN) and time.monotonic() < deadline:
            select.select([self.link], [], [], .05)
            self.read()
        return self.verdict()

    def verdict(self):
        status, http = STATUS.search(self.received), HTTP_STATUS.search(self.received)
        if status and not (self.closed and status.group(2) == b"14"):  # the call that ended with its connection
            return "status " + status.group(2).decode()
        if http and http.group(1) != b"200":
            return "http " + http.group(1).decode()
        for kind, flags, stream, payload in frames(self.received):
            if kind == GOAWAY and len(payload) >= 8 and payload[4:8] != b"\0\0\0\0":
                return "goaway %d" % struct.unpack(">I", payload[4:8])
            if kind == RST_STREAM and len(payload) == 4 and payload != b"\0\0\0\0":
                return "reset %d" % struct.unpack(">I", payload)
        return self.closed or "open"

    def close(self):
        self.link.close()


def error_text(error):
    if isinstance(error, (ssl.SSLEOFError, ConnectionError)):
        return "closed"
    if isinstance(error, ssl.SSLError):
        return "alert " + str(error.reason or error).lower()
    return "closed"


def frames(stream):
    """The frames of a server, as far as they are complete."""
    at = 0
    while at + 9 <= len(stream):
        size = int.from_bytes(stream[at:at + 3], "big")
        yield stream[at + 3], stream[at + 4], int.from_bytes(stream[at + 5:at + 9], "big") & 0x7FFFFFFF, stream[at + 9:at + 9 + size]
        at += 9 + size
