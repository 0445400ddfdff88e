#!/usr/bin/env python3
"""A client of the wire, written from docs/PROTOCOL.md alone: plain Python, no code of ours.

  pyclient.py examples DOCUMENT       the worked examples in the document are right
  pyclient.py talk ADDRESS KEY        what the document says of handshake, calls, replay, sessions
  pyclient.py push ADDRESS KEY        push channel: numbers and acknowledgements
  pyclient.py goaway ADDRESS KEY      says "connected", then waits for GOAWAY and the end

ADDRESS is HOST:PORT or unix:PATH, behind tls: for TLS (which runs through `openssl s_client`,
because Python 3.11 has no external PSK). Exit status 0: all as documented.
"""
import hashlib
import hmac
import os
import re
import socket
import struct
import subprocess
import sys

TIMEOUT_SEC = 20
MASK64 = (1 << 64) - 1


# -- XXH3-64 with a seed, inputs up to 240 bytes (xxHash specification, chapter XXH3) -------
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07d"
    "ccff7221b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e"
    "3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac83"
    "34d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce"
    "45cb3a8f95160428afd7fbcabb4b407e")
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
MX1, MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25


def u64(data, at):
    return int.from_bytes(data[at:at + 8], "little")


def u32(data, at):
    return int.from_bytes(data[at:at + 4], "little")


def swap(value, size):
    return int.from_bytes(value.to_bytes(size, "little"), "big")


def rotl(value, bits):
    return (value << bits | value >> (64 - bits)) & MASK64


def fold(a, b):
    product = a * b
    return (product ^ product >> 64) & MASK64


def avalanche(h):
    h ^= h >> 37
    h = h * MX1 & MASK64
    return h ^ h >> 32


def avalanche_xxh64(h):
    h ^= h >> 33
    h = h * P64_2 & MASK64
    h ^= h >> 29
    h = h * P64_3 & MASK64
    return h ^ h >> 32


def mix16(data, at, secret_at, seed):
    return fold(u64(data, at) ^ (u64(SECRET, secret_at) + seed & MASK64),
                u64(data, at + 8) ^ (u64(SECRET, secret_at + 8) - seed & MASK64))


def xxh3_up_to_16(data, seed):
    n = len(data)
    if n == 0:
        return avalanche_xxh64(seed ^ u64(SECRET, 56) ^ u64(SECRET, 64))
    if n < 4:
        word = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return avalanche_xxh64(word ^ ((u32(SECRET, 0) ^ u32(SECRET, 4)) + seed & MASK64))
    if n < 9:
        seed ^= swap(seed & 0xFFFFFFFF, 4) << 32
        flip = (u64(SECRET, 8) ^ u64(SECRET, 16)) - seed & MASK64
        h = (u32(data, n - 4) + (u32(data, 0) << 32)) ^ flip
        h ^= rotl(h, 49) ^ rotl(h, 24)
        h = h * MX2 & MASK64
        h ^= (h >> 35) + n
        h = h * MX2 & MASK64
        return h ^ h >> 28
    low = u64(data, 0) ^ ((u64(SECRET, 24) ^ u64(SECRET, 32)) + seed & MASK64)
    high = u64(data, n - 8) ^ ((u64(SECRET, 40) ^ u64(SECRET, 48)) - seed & MASK64)
    return avalanche(n + swap(low, 8) + high + fold(low, high) & MASK64)


def xxh3(data, seed):
    n = len(data)
    if n <= 16:
        return xxh3_up_to_16(data, seed)
    acc = n * P64_1
    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            acc += mix16(data, 16 * i, 32 * i, seed)
            acc += mix16(data, n - 16 * (i + 1), 32 * i + 16, seed)
        return avalanche(acc & MASK64)
    assert n <= 240, "longer inputs are not needed here"
    for i in range(8):
        acc += mix16(data, 16 * i, 16 * i, seed)
    acc = avalanche(acc & MASK64)
    for i in range(8, n // 16):
        acc += mix16(data, 16 * i, 16 * (i - 8) + 3, seed)
    acc += mix16(data, n - 16, 136 - 17, seed)
    return avalanche(acc & MASK64)


# -- protobuf, as much as the messages here need ---------------------------------------------
def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def p_uint(field, value):
    return varint(field << 3) + varint(value) if value else b""


def p_fixed64(field, value):
    return varint(field << 3 | 1) + struct.pack("<Q", value) if value else b""


def p_bytes(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value if value else b""


def p_sint(field, value):
    return p_uint(field, (value << 1 ^ value >> 63) & MASK64)


def unsint(value):
    return value >> 1 ^ -(value & 1)


def p_parse(data):
    """{field number: value}; numbers as unsigned integers, everything else as bytes."""
    fields, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = number()
        kind = tag & 7
        if kind == 0:
            value = number()
        elif kind == 1:
            value, at = u64(data, at), at + 8
        elif kind == 2:
            size = number()
            value, at = data[at:at + size], at + size
        else:
            raise ValueError(f"wire type {kind}")
        fields[tag >> 3] = value
    return fields


# -- frames ----------------------------------------------------------------------------------
HELLO, CHALLENGE, PROOF, WELCOME, REFUSED = 1, 2, 3, 4, 5
REQUEST, REPLY, PUSH, PUSH_ACK, PROGRESS, GOAWAY = 16, 17, 18, 19, 20, 21
HEADER = struct.Struct("<4sBBHHHIQQQIIQ")  # all but the check
PING, ECHO, TALLY, EMIT, TICK = 0x0101, 0x0201, 0x0204, 0x0205, 0x0206
OK, PROTO, NOSYS, AUTH, UNKNOWN_OUTCOME, VERSION = 0, 30, 32, 33, 35, 36


def check_of(head, message, secret):
    first = xxh3(head, secret)
    return xxh3(message, first) if message else first


def encode(kind, code=0, message=b"", payload=b"", secret=0, id=0, trace=0, time_ms=0, window=0,
           seq=0):
    head = HEADER.pack(b"GSX1", 1, kind, 0, code, 0, len(message), len(payload), id, trace,
                       time_ms, window, seq)
    return head + struct.pack("<Q", check_of(head, message, secret)) + message + payload


class Frame:
    def __init__(self, head):
        (magic, version, self.type, flags, self.code, reserved, self.message_bytes,
         self.payload_bytes, self.id, self.trace, self.time_ms, self.window,
         self.seq) = HEADER.unpack(head)
        assert magic == b"GSX1" and version == 1 and flags == 0 and reserved == 0
        self.message = self.payload = b""


# -- keys and macs -----------------------------------------------------------------------------
def load_key(path):
    with open(path, encoding="ascii") as file:
        lines = [s.split() for s in file if s.strip() and not s.lstrip().startswith("#")]
    assert len(lines) == 1, "a key file holds one key"
    words = dict(w.split("=", 1) for w in lines[0][1:] if "=" in w)
    return lines[0][0], bytes.fromhex(words["key"])


def mac(key, label, data):
    return hmac.new(key, label.encode() + b"\0" + data, hashlib.sha256).digest()


def proof_and_secret(key, transcript):
    return (mac(key, "gridstage handshake client", transcript),
            u64(mac(key, "gridstage handshake frames", transcript), 0))


def welcome_proof(key, transcript, welcome):
    """The server's: over its message, too, with the mac (field 3, 32 bytes) cut out."""
    sent = p_parse(welcome).get(3, b"")
    bare = welcome.replace(p_bytes(3, sent), b"", 1)
    return mac(key, "gridstage handshake server", transcript + bare)


def address_text(name, family):
    if family == socket.AF_UNIX:
        return "unix:" + name
    if family == socket.AF_INET:
        return "%s:%d" % name[:2]
    return "[%s]:%d" % name[:2]


# -- byte streams --------------------------------------------------------------------------------
class PlainStream:
    def __init__(self, address):
        if address.startswith("unix:"):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(TIMEOUT_SEC)
            self.sock.connect(address[len("unix:"):])
        else:
            host, port = address.rsplit(":", 1)
            self.sock = socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_SEC)

    def names(self):
        family = self.sock.family
        return (address_text(self.sock.getsockname(), family),
                address_text(self.sock.getpeername(), family))

    def write(self, data):
        self.sock.sendall(data)

    def read(self, size):
        return self.sock.recv(size)

    def close(self):
        self.sock.close()


class TlsStream:
    """TLS 1.3 with an external PSK, through openssl's own client."""

    def __init__(self, address, identity, key):
        self.process = subprocess.Popen(
            ["openssl", "s_client", "-quiet", "-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256",
             "-psk_identity", identity, "-psk", key.hex(), "-connect", address[len("tls:"):]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)

    def write(self, data):
        self.process.stdin.write(data)

    def read(self, size):
        return self.process.stdout.read(size)

    def close(self):
        self.process.kill()
        self.process.wait()


# -- connections -----------------------------------------------------------------------------------
class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code, self.text = code, text


class Connection:
    def __init__(self, address, key_path, session=0, channel=0, key=None, versions=(1, 1)):
        self.identity, own_key = load_key(key_path)
        self.key = key or own_key
        self.secret = 0
        self.next_id = 1
        self.tls = address.startswith("tls:")
        self.stream = TlsStream(address, self.identity, self.key) if self.tls \
            else PlainStream(address)
        try:
            self.handshake(session, channel, versions)
        except BaseException:
            self.stream.close()
            raise

    def close(self):
        self.stream.close()

    def exactly(self, size):
        data = b""
        while len(data) < size:
            part = self.stream.read(size - len(data))
            if not part:
                raise EOFError("the server hung up")
            data += part
        return data

    def receive(self):
        head = self.exactly(64)
        frame = Frame(head[:56])
        frame.message = self.exactly(frame.message_bytes)
        want = check_of(head[:56], frame.message, self.secret)
        assert u64(head, 56) == want, "the server's frame has a wrong check"
        frame.payload = self.exactly(frame.payload_bytes)
        return frame

    def expect(self, kind):
        frame = self.receive()
        if frame.type == REFUSED:
            raise Refused(frame.code, frame.message.decode())
        assert frame.type == kind, f"frame type {frame.type} instead of {kind}"
        return frame

    def handshake(self, session, channel, versions):
        hello = (p_uint(1, versions[0]) + p_uint(2, versions[1]) + p_fixed64(3, 3) +
                 p_uint(4, 2 if self.tls else 1) + p_bytes(5, self.identity) +
                 p_bytes(6, os.urandom(32)) + p_fixed64(7, session) + p_uint(8, channel) +
                 p_bytes(9, "pyclient"))
        self.stream.write(encode(HELLO, message=hello))
        transcript = secret = None
        if not self.tls:
            challenge = self.expect(CHALLENGE).message
            fields = p_parse(challenge)
            assert fields[1] == 1 and len(fields[3]) == 32 and fields.get(2, 0) & ~3 == 0
            client, server = self.stream.names()
            transcript = hello + challenge + client.encode() + b"\0" + server.encode() + b"\0"
            client_mac, secret = proof_and_secret(self.key, transcript)
            self.stream.write(encode(PROOF, message=p_bytes(1, client_mac)))
        message = self.expect(WELCOME).message
        welcome = p_parse(message)
        assert welcome[1] == 1
        if not self.tls:
            server_mac = welcome_proof(self.key, transcript, message)
            assert hmac.compare_digest(welcome[3], server_mac), "the server does not know the key"
            assert welcome[1] == fields[1] and welcome.get(2, 0) == fields.get(2, 0)
            self.secret = secret
        else:
            assert 3 not in welcome
        self.session = welcome[4]
        self.session_known = bool(welcome.get(5, 0))
        self.boot = welcome[6]

    def send(self, method, message=b"", payload=b"", seq=0, window=0):
        number = self.next_id
        self.next_id += 1
        self.stream.write(encode(REQUEST, method, message, payload, self.secret, id=number,
                                 trace=0xFEED0000 + number, time_ms=5000, seq=seq, window=window))
        return number

    def call(self, method, message=b"", payload=b"", seq=0, window=0):
        """(status, parsed message or text, frame)"""
        number = self.send(method, message, payload, seq, window)
        frame = self.expect(REPLY)
        assert frame.id == number and frame.trace == 0xFEED0000 + number and frame.seq == seq
        if frame.code != OK:
            assert len(frame.message) <= 256 and not frame.payload
            return frame.code, frame.message.decode(), frame
        return OK, p_parse(frame.message), frame

    def tally(self, add, seq, window):
        status, reply, _ = self.call(TALLY, p_sint(1, add), seq=seq, window=window)
        return (status, unsint(reply.get(1, 0))) if status == OK else (status, reply)


# -- what the document says, tried ---------------------------------------------------------------
def talk(address, key_path):
    conn = Connection(address, key_path)
    assert conn.session != 0 and not conn.session_known

    status, reply, _ = conn.call(PING, p_fixed64(1, 0x1122334455667788))
    assert status == OK and reply[1] == 0x1122334455667788
    assert reply[5].decode() == conn.identity and reply[2] and reply[6]

    # Several requests in one go: each gets its own answer.
    ids = {conn.send(PING, p_fixed64(1, stamp)): stamp for stamp in (7, 8, 9)}
    for _ in range(3):
        frame = conn.expect(REPLY)
        assert p_parse(frame.message)[1] == ids.pop(frame.id)

    status, reply, frame = conn.call(ECHO, p_bytes(1, b"small"), b"payload" * 100)
    assert status == OK and reply[1] == b"small" and frame.payload == b"payload" * 100

    status, text, _ = conn.call(0x7FFF)
    assert status == NOSYS and text, "an unknown method is a status, not a hang-up"
    status, text, _ = conn.call(PING, b"", b"payload where none belongs")
    assert status == PROTO and text
    status, text, _ = conn.call(PING, b"\xff\xff")
    assert status == PROTO and text, "a malformed message is a status too"

    # Done once, however often sent.
    status, first = conn.tally(5, seq=1, window=1)
    assert status == OK
    assert conn.tally(5, seq=1, window=1) == (OK, first)
    assert conn.tally(1, seq=2, window=2) == (OK, first + 1)
    assert conn.tally(2, seq=2, window=2)[0] == PROTO, "a number belongs to one request"
    assert conn.tally(1, seq=0, window=0)[0] == PROTO
    assert conn.tally(1, seq=3, window=4)[0] == PROTO, "a window reaches back to 1 at most"

    # A second connection of the same session shares the table; so does one after the first is gone.
    other = Connection(address, key_path, session=conn.session)
    assert other.session == conn.session and other.session_known and other.boot == conn.boot
    assert other.tally(1, seq=2, window=2) == (OK, first + 1)
    conn.close()
    assert other.tally(4, seq=3, window=1) == (OK, first + 5)
    status, _ = other.tally(1, seq=2, window=2)
    assert status == UNKNOWN_OUTCOME, "window 1 of number 3 has acknowledged 2"
    status, _ = other.tally(1, seq=3 + 1024, window=1024)
    assert status == OK
    other.close()

    # A session nobody knows: a new one, and the client is told.
    third = Connection(address, key_path, session=0xDEAD)
    assert third.session != 0xDEAD and not third.session_known
    assert third.tally(1, seq=1, window=1) == (OK, first + 7)
    third.close()
    refusals(address, key_path)


def refusals(address, key_path):
    if address.startswith("tls:"):
        try:
            Connection(address, key_path, key=bytes(32))
        except (EOFError, BrokenPipeError):
            pass
        else:
            raise AssertionError("a wrong key was let in")
        return
    for arguments, code in (({"key": bytes(32)}, AUTH), ({"versions": (2, 9)}, VERSION)):
        try:
            Connection(address, key_path, **arguments)
        except Refused as refusal:
            assert refusal.code == code and refusal.text, refusal
        else:
            raise AssertionError(f"not refused: {arguments}")

    # A frame whose check is wrong ends the connection without an answer.
    conn = Connection(address, key_path)
    conn.stream.write(encode(REQUEST, PING, secret=conn.secret ^ 1, id=1))
    try:
        conn.receive()
    except (EOFError, ConnectionResetError):
        pass
    else:
        raise AssertionError("a frame with a wrong check was answered")
    conn.close()


def push(address, key_path):
    calls = Connection(address, key_path)
    pushes = Connection(address, key_path, session=calls.session, channel=1)
    assert pushes.session == calls.session and pushes.session_known
    for first in (1, 4):
        call = calls.send(EMIT, p_uint(1, 3))
        for number in range(3):
            frame = pushes.expect(PUSH)
            assert frame.code == TICK and frame.seq == first + number and frame.id == 0
            assert p_parse(frame.message) == {1: number + 1}
        pushes.stream.write(encode(PUSH_ACK, secret=pushes.secret, seq=first + 2))
        frame = calls.expect(REPLY)
        assert frame.id == call and frame.code == OK and p_parse(frame.message) == {1: 3}
    # An acknowledgement of something never sent breaks the protocol.
    pushes.stream.write(encode(PUSH_ACK, secret=pushes.secret, seq=100))
    try:
        pushes.receive()
    except (EOFError, ConnectionResetError):
        pass
    else:
        raise AssertionError("a senseless acknowledgement was accepted")
    pushes.close()
    calls.close()


def goaway(address, key_path):
    conn = Connection(address, key_path)
    print("connected", flush=True)
    frame = conn.expect(GOAWAY)
    assert frame.message == b"" and frame.payload == b"" and frame.id == 0
    try:
        conn.receive()
    except (EOFError, ConnectionResetError):
        pass
    else:
        raise AssertionError("something came after GOAWAY")
    conn.close()


# -- the worked examples of the document -----------------------------------------------------------
def example_fields(text, name):
    """The `name = value` lines of one example; hex values may go on in indented lines."""
    match = re.search(rf"<!-- example: {name} -->\n```\n(.*?)```", text, re.S)
    assert match, f"no example {name}"
    fields, last = {}, None
    for line in match[1].splitlines():
        if line[:1].isspace():
            fields[last] += line.strip()
        elif line:
            last, value = (part.strip() for part in line.split("=", 1))
            fields[last] = value
    return fields


def from_hex(value):
    return bytes.fromhex(value.replace(" ", ""))


def examples(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    e = example_fields(text, "xxh3")
    for name, value in e.items():
        count, seed = (int(n, 0) for n in re.fullmatch(r"(\d+) bytes, seed (\w+)", name).groups())
        assert xxh3(bytes(i & 0xFF for i in range(count)), seed) == int(value, 16), name

    e = example_fields(text, "handshake")
    key = from_hex(e["key"])
    transcript = from_hex(e["HELLO"]) + from_hex(e["CHALLENGE"]) + \
        e["client address"].encode() + b"\0" + e["server address"].encode() + b"\0"
    client_mac, secret = proof_and_secret(key, transcript)
    server_mac = welcome_proof(key, transcript, from_hex(e["WELCOME"]))
    assert p_parse(from_hex(e["WELCOME"]))[3] == server_mac
    assert hashlib.sha256(transcript).hexdigest() == e["SHA-256 of the transcript"]
    assert client_mac == from_hex(e["PROOF mac"]) and server_mac == from_hex(e["WELCOME mac"])
    assert secret == int(e["secret"], 16)
    hello = p_parse(from_hex(e["HELLO"]))
    assert hello[5] == b"user:alice" and len(hello[6]) == 32 and hello[4] == 1

    f = example_fields(text, "request")
    assert int(f["secret"], 16) == secret
    assert encode(REQUEST, PING, p_fixed64(1, 0x1122334455667788), secret=secret, id=1,
                  trace=0xFEEDFACE, time_ms=5000) == from_hex(f["bytes"])

    t = example_fields(text, "ticket")
    body = (b"\x01" + struct.pack("<QQq", 0x1111, 3, 1798761600 * 10 ** 9) + bytes([10, 4]) +
            b"user:alice" + b"fsd1")
    assert t["identity"] == "ticket:" + body.hex()
    assert mac(from_hex(t["node key"]), "gridstage ticket",
               t["identity"].encode()) == from_hex(t["K"])

    k = example_fields(text, "fingerprint")
    digest = hashlib.sha256(b"gridstage key fingerprint\0" + from_hex(k["key"])).hexdigest()
    assert "-".join(digest[i:i + 4] for i in range(0, 16, 4)) == k["fingerprint"]


def main():
    actions = {"examples": examples, "talk": talk, "push": push, "goaway": goaway}
    if len(sys.argv) < 3 or sys.argv[1] not in actions:
        print(__doc__, file=sys.stderr)
        return 2
    actions[sys.argv[1]](*sys.argv[2:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
