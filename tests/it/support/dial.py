"""What tests of the network run inside and beside containers: dials as it is told and says in a word what came of it, and
services that say who they are. Needs nothing but Python 3.11."""
import base64
import concurrent.futures
import errno
import os
import re
import socket
import struct
import sys
import threading
import urllib.error
import urllib.request

PATIENCE = 15  # seconds: longer than anything here takes that comes to an end
SILENCE = 6  # seconds after which nobody is there who swallows what he gets
WORDS = {
    errno.ECONNREFUSED: "refused", errno.ECONNRESET: "reset", errno.EPIPE: "reset", errno.ENETUNREACH: "no route",
    # How a network without IPv6 says the same.
    errno.EADDRNOTAVAIL: "no route", errno.EAFNOSUPPORT: "no route",
    errno.EHOSTUNREACH: "nobody there", errno.EPERM: "forbidden", errno.EACCES: "forbidden",
}
STATUS = {400: "malformed", 403: "denied", 502: "unreachable", 503: "limit", 504: "late"}
REPLY = {1: "failed", 2: "denied", 4: "unreachable", 6: "late", 7: "no such command", 8: "no such address"}
QUESTION = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\x07example\0\0\1\0\1"


# --- services ------------------------------------------------------------------------------------

def head(stream):
    """All that comes, up to an empty line or the end."""
    got = b""
    while b"\r\n\r\n" not in got:
        piece = stream.recv(65536)
        if not piece:
            break
        got += piece
    return got


def page(body, status="200 OK", more=""):
    body = body.encode()
    return f"HTTP/1.1 {status}\r\n{more}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def serve(answer, host="127.0.0.1", port=0):
    """A service that answers every request with what a function makes of the stream and the request; returns its port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=128)

    def one(stream):
        with stream:
            stream.settimeout(PATIENCE)
            try:
                asked = head(stream)
                if asked:
                    stream.sendall(answer(stream, asked.decode("latin-1")))
                    stream.shutdown(socket.SHUT_WR)
                    while stream.recv(65536):
                        pass
            except OSError:
                pass

    def run():
        while True:
            threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=run, daemon=True).start()
    return listener.getsockname()[1]


def named(name):
    """Answers with nothing but a name."""
    return lambda stream, asked: page(name)


def answer_datagrams(answer, host="0.0.0.0", port=53):
    """Answers each datagram with what a function makes of it, if that is anything."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((host, port))

    def run():
        while True:
            asked, who = server.recvfrom(4096)
            said = answer(asked)
            if said is not None:
                server.sendto(said, who)
    threading.Thread(target=run, daemon=True).start()


def stay(seconds):
    """Goes on for that time, and not for ever if nobody ends it."""
    threading.Event().wait(seconds)


# --- dialling ------------------------------------------------------------------------------------

def proxy():
    """Where the environment says that a proxy is."""
    found = os.environ.get("http_proxy")
    return found and ("127.0.0.1", int(found.rpartition(":")[2]))


def connected(place, patience=PATIENCE):
    return socket.create_connection(place, patience)


def everything(stream):
    got = b""
    while piece := stream.recv(65536):
        got += piece
    return got


def exchanged(stream, request):
    """What a server says to a request: its body, or the word for its status."""
    stream.sendall(request)
    got = everything(stream).decode("latin-1")
    if not got:
        return "closed"
    status = re.match(r"HTTP/1\.[01] (\d{3})", got)
    body = got.partition("\r\n\r\n")[2]
    if status is None:
        return f"no HTTP: {got[:40]!r}"
    return body if status[1] == "200" else STATUS.get(int(status[1]), status[1])


def request(path, host):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


def authority(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def raw(host, port):
    with connected((host, port), SILENCE) as stream:
        return exchanged(stream, request("/", host))


def opened(host, port):
    connected((host, port), SILENCE).close()
    return "open"


def by_connect(host, port):
    with connected(proxy()) as stream:
        stream.sendall(f"CONNECT {authority(host, port)} HTTP/1.1\r\n\r\n".encode())
        got = head(stream)
        status = int(got.split(b" ")[1])
        return exchanged(stream, request("/", host)) if status == 200 else STATUS.get(status, str(status))


def by_get(host, port):
    with connected(proxy()) as stream:
        return exchanged(stream, request(f"http://{authority(host, port)}/", authority(host, port)))


def socks_address(host):
    """A host as SOCKS has it: as an address where it is one."""
    for kind, family in ((b"\1", socket.AF_INET), (b"\4", socket.AF_INET6)):
        try:
            return kind + socket.inet_pton(family, host)
        except OSError:
            pass
    name = host.encode()
    return b"\3" + bytes([len(name)]) + name


def exactly(stream, count):
    got = b""
    while len(got) < count:
        piece = stream.recv(count - len(got))
        if not piece:
            raise ConnectionResetError(errno.ECONNRESET, "ended early")
        got += piece
    return got


def socks(address, port, command=1, host="a"):
    with connected(proxy()) as stream:
        stream.sendall(b"\5\1\0")
        exactly(stream, 2)
        stream.sendall(bytes([5, command, 0]) + address + struct.pack("!H", port))
        code = exactly(stream, 10)[1]
        return exchanged(stream, request("/", host)) if code == 0 else REPLY.get(code, str(code))


def by_socks(host, port):
    return socks(socks_address(host), port, host=host)


def by_socks_datagrams(host, port):
    return socks(socks_address(host), port, command=3)


def datagram(host, port):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(SILENCE)
        s.connect((host, port))
        s.send(QUESTION)
        return "answered" if s.recv(4096) else "nothing"


def route(host, port):
    """Whether there is a way there at all; nothing is sent."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((host, port))
        return "a route"


def dns(host, port, kind):
    """Whether a resolver answers, whatever keeps it from that."""
    try:
        if kind == "udp":
            return "answered" if datagram(host, port) == "answered" else "nothing"
        with connected((host, port), SILENCE) as stream:
            stream.sendall(struct.pack("!H", len(QUESTION)) + QUESTION)
            return "answered" if stream.recv(4096) else "nothing"
    except OSError:
        return "nothing"


def interfaces(host, port):
    """Those that are up, since some kernels put more into every network; and how many routes of IPv4 there are."""
    with open("/proc/net/route", encoding="ascii") as f:
        routes = max(len(f.readlines()) - 1, 0)

    def up(name):
        with open(f"/sys/class/net/{name}/flags", encoding="ascii") as f:
            return int(f.read(), 16) & 1
    return " ".join(sorted(name for _, name in socket.if_nameindex() if up(name))) + f", {routes} routes"


def packets(host, port):
    """Sockets that need no route, since they write to a wire or beside the protocols."""
    found = set()
    for family, kind, protocol in [
        (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP), (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        (socket.AF_PACKET, socket.SOCK_RAW, 0x0300), (socket.AF_PACKET, socket.SOCK_DGRAM, 0x0300),
    ]:
        found.add(tried(lambda: socket.socket(family, kind, protocol).close() or "allowed"))
    return "+".join(sorted(found))


WAYS = {
    "raw": raw, "open": opened, "CONNECT": by_connect, "GET": by_get, "SOCKS": by_socks, "SOCKS UDP": by_socks_datagrams,
    "udp": datagram, "route": route, "dns udp": lambda h, p: dns(h, p, "udp"), "dns tcp": lambda h, p: dns(h, p, "tcp"),
    "interfaces": interfaces, "packets": packets,
}
BY_PROXY = ("CONNECT", "GET", "SOCKS", "SOCKS UDP")


def tried(attempt):
    """The word for what came of an attempt."""
    try:
        return attempt()
    except socket.gaierror:
        return "no name"
    except TimeoutError:
        return "silence"
    except OSError as e:
        return WORDS.get(e.errno) or errno.errorcode.get(e.errno, str(e))


OWN = []  # the port of the service that this process has itself, once there is one


def own_port():
    if not OWN:
        OWN.append(serve(named("itself")))
    return OWN[0]


def dial(asked):
    """The words for a list of attempts, each a way, a host and a port; port 0 is that of a service of its own."""
    def one(attempt):
        way, host, port = attempt
        if way in BY_PROXY and proxy() is None:
            return "no proxy"
        return tried(lambda: WAYS[way](host, port or own_port()))
    own_port()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return list(pool.map(one, asked))


# --- what no client says -------------------------------------------------------------------------

def status_and_text(got):
    """What was answered, in one line: what was reached, or status and text of a refusal."""
    first, _, body = got.decode("latin-1").partition("\r\n\r\n")
    status = first.split(" ")[1] if first.startswith("HTTP/1.1 ") else "?"
    return body if status == "200" else f"{status} {body.strip()}" if got else "closed"


def said(text):
    """What the proxy answers to these bytes, each a character; where that is a tunnel, what is at its other end."""
    sent = text.encode("latin-1")
    with connected(proxy()) as stream:
        stream.sendall(sent)
        if sent[:8].upper() == b"CONNECT ":
            got = head(stream)
            if got.startswith(b"HTTP/1.1 200 "):
                return exchanged(stream, request("/", "tunnel"))
            return status_and_text(got + everything(stream))
        stream.shutdown(socket.SHUT_WR)
        return status_and_text(everything(stream))


def said_in_socks(address, port, command=1):
    """What the proxy replies to a request for an address in the bytes of SOCKS, each a character."""
    return tried(lambda: socks(address.encode("latin-1"), port, command, "tunnel"))


def followed(url):
    """What a client gets that goes wherever it is sent."""
    try:
        return urllib.request.urlopen(url, timeout=PATIENCE).read().decode()
    except urllib.error.HTTPError as e:
        return f"{e.code} {e.read().decode().strip()}"
    except urllib.error.URLError as e:
        return WORDS.get(getattr(e.reason, "errno", None), str(e.reason))
