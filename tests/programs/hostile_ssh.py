"""Stands where ssh is: says what a far end might that means no good. The first argument is how."""

from __future__ import annotations

import json
import marshal
import os
import sys
import time
import zlib

TOLD, DATA, CLOSE, CREDIT = 1, 2, 3, 4
EVIL = "\x1b]0;owned\x07\x1b[2J\u202eevil\n\r"


def greeted() -> None:
    """Answers as a relay does, so that it is listened to."""
    stream = sys.stdin.buffer
    held = marshal.loads(zlib.decompress(stream.read(int(stream.readline()))))
    write(b"memtui-relay-" + held["greeting"].encode() + b"\n")
    send(told({"is": "ready", "version": 1, "boot": EVIL, "hostname": EVIL, "user": EVIL, "time_ns": 5}))


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


packer = zlib.compressobj(6)


def send(data: bytes) -> None:
    write(packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return bytes([kind]) + channel.to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload


def told(fields: object) -> bytes:
    return frame(TOLD, 0, json.dumps(fields).encode())


def asked() -> list[tuple[int, int, bytes]]:
    """What the viewer has sent since."""
    data = sys.stdin.buffer.read1(1 << 16)
    found = []
    while len(data) >= 9:
        kind, channel, size = data[0], int.from_bytes(data[1:5], "big"), int.from_bytes(data[5:9], "big")
        found.append((kind, channel, data[9 : 9 + size]))
        data = data[9 + size :]
    if not found and not data:
        sys.exit(0)
    return found


def found_one() -> object:
    process = {"pid": 7, "started": 1, "rank": None, "local_rank": None, "agent": True, "command": EVIL, "job": [EVIL]}
    return {"is": "found", "found": [[process]]}


def obliging(on_open: bytes) -> None:
    """Plays along until an agent is asked for, and then sends that."""
    while True:
        for kind, _, payload in asked():
            if kind != TOLD:
                continue
            plain = json.loads(payload)
            do, number = plain.get("do"), plain.get("number")
            if do == "ping":
                send(told({"is": "pong", "number": number, "time_ns": time.monotonic_ns()}))
            elif do == "find":
                send(told(found_one()))
            elif do == "watch":
                reading = {"time_ns": time.monotonic_ns(), "alive": True, "cmdline": [EVIL], "user": EVIL, "name": EVIL}
                send(told({"is": "process", "pid": plain["pid"], "reading": reading, "agent": True}))
            elif do == "open":
                if on_open == b"flood":
                    while True:
                        send(frame(DATA, number, bytes(1 << 16)))
                send(frame(DATA, number, on_open))
                send(frame(CLOSE, number, EVIL.encode()))


how = sys.argv[1]
if how != "words":
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # who is dropped need not complain
if how == "endless":
    while True:
        write(b"A" * (1 << 20))
if how == "words":
    os.write(2, EVIL.encode() * 1000 + b"\nssh: " + EVIL.encode() + b" is not well\n")
    sys.exit(255)
if how == "noise":
    write(EVIL.encode())
    sys.exit(0)
greeted()
if how == "bomb":
    for _ in range(1 << 10):
        write(packer.compress(bytes(1 << 20)))
    write(packer.flush(zlib.Z_SYNC_FLUSH))
    time.sleep(60)
elif how == "garbage":
    send(os.urandom(1 << 16))
    time.sleep(60)
elif how == "objects":
    send(told([1, 2]))
    time.sleep(60)
elif how == "deep":
    send(frame(TOLD, 0, b"[" * 900_000))
    time.sleep(60)
elif how == "agent":
    hello = {"kind": "hello", "protocol": 1, "agent": EVIL, "pid": 7, "python": EVIL, "torch": EVIL, "argv": [EVIL]}
    hello |= {"cwd": EVIL, "hostname": EVIL, "time_ns": 5, "wall_offset_ns": 5, "started_ns": 5}
    event = {"kind": "event", "name": "oom", "time_ns": 6, "step": 1, "phase": EVIL, "text": EVIL}
    body = b"".join(len(each).to_bytes(4, "big") + each for each in (json.dumps(x).encode() for x in (hello, event)))
    obliging(body)
elif how == "instants":
    hello = {"kind": "hello", "protocol": 1, "agent": "x", "pid": 7, "python": "3", "torch": "2", "argv": ["x"]}
    hello |= {"cwd": "", "hostname": "", "time_ns": (1 << 63) - 1, "wall_offset_ns": 5, "started_ns": 5}
    body = json.dumps(hello).encode()
    obliging(len(body).to_bytes(4, "big") + body)
elif how == "flood":
    obliging(b"flood")
