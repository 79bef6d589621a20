"""Damage to files: bytes of any file, and values inside JSON, TOML, safetensors, compressed files and archives.

mutate(path, random)      damages the file in place, and returns what was done, in a few words
"""

import gzip
import json
import string
import struct
import tomllib
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

NUMBERS = [
    0,
    1,
    -1,
    2,
    7,
    255,
    65536,
    10**6,
    10**8,
    3 * 10**8,
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**63 - 1,
    2**64,
    10**30,
]
FLOATS = [0.5, -0.5, 1e-300, 1e38, 1e300, float("inf"), float("-inf"), float("nan")]
WORDS = ["", "a", "../../etc/passwd", "/dev/zero", "é" * 50, "\ud7ff", "\x00", "null", "{", "%s", "a" * 5000, "🙂"]
SIZES = struct.Struct("<i"), struct.Struct(">i"), struct.Struct("<q"), struct.Struct(">h"), struct.Struct("<h")


def mutate(path: Path, random: Random) -> str:
    """Damage a file in place, as its type allows or byte by byte. Returns the kind of damage."""
    data = path.read_bytes()
    ways: list[tuple[str, Callable[[bytes, Random], bytes]]] = [("bytes", damage_bytes)] * 2
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    inner = BY_SUFFIX.get(Path(name).suffix)
    if inner is not None:
        ways += [inner] * 3
    if data[:2] == b"PK":
        ways += [("archive", damage_archive)] * 3
    if is_text(data):
        ways += [("text", damage_text)] * 2
    kind, damage = random.choice(ways)
    packed = random.random() < 0.75
    try:
        if path.suffix == ".gz" and packed:
            path.write_bytes(gzip.compress(damage(gzip.decompress(data), random), 1))
        elif path.suffix == ".zst" and packed:
            import zstandard

            body = zstandard.ZstdDecompressor().decompress(data, max_output_size=2**26)
            path.write_bytes(zstandard.ZstdCompressor().compress(damage(body, random)))
        else:
            path.write_bytes(damage(data, random))
    except Exception:  # this file has no such structure, or cannot hold such a value
        kind = "bytes"
        path.write_bytes(damage_bytes(data, random))
    return kind


def is_text(data: bytes) -> bool:
    try:
        return bool(data) and "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


# --- bytes


def damage_bytes(data: bytes, random: Random) -> bytes:
    for _ in range(random.choice([1, 1, 2, 5, 30])):
        data = random.choice(BYTES)(data, random)
    return data


def place(data: bytes, random: Random) -> int:
    """A position, more often near the start of the file, where headers are."""
    end = len(data) if random.random() < 0.5 else min(len(data), random.choice([16, 64, 512]))
    return random.randrange(max(1, end))


def flip(data: bytes, random: Random) -> bytes:
    if not data:
        return b"\0"
    at = place(data, random)
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def overwrite(data: bytes, random: Random) -> bytes:
    at, n = place(data, random), random.choice([1, 2, 4, 16])
    return data[:at] + random.choice([bytes(n), b"\xff" * n, random.randbytes(n)]) + data[at + n :]


def number(data: bytes, random: Random) -> bytes:
    """Overwrite a binary number by an extreme one."""
    at, form = place(data, random), random.choice(SIZES)
    bits = 8 * form.size - 1
    value = random.choice([0, 1, -1, 2**bits - 1, -(2**bits), 2 ** (bits // 2)])
    return data[:at] + form.pack(value) + data[at + form.size :]


def cut(data: bytes, random: Random) -> bytes:
    return data[: place(data, random)] if random.random() < 0.7 else data[: -random.randint(1, 9)]


def remove(data: bytes, random: Random) -> bytes:
    at = place(data, random)
    return data[:at] + data[at + random.choice([1, 4, 37, 400]) :]


def repeat(data: bytes, random: Random) -> bytes:
    at = place(data, random)
    return data[:at] + data[at : at + random.choice([1, 8, 300])] * random.choice([2, 3, 50]) + data[at:]


def insert(data: bytes, random: Random) -> bytes:
    at = place(data, random)
    return data[:at] + random.choice([random.randbytes(5), b"\n", b"\0", b'"', b"\t", b"<", b"[" * 3000]) + data[at:]


BYTES = [flip, flip, overwrite, number, number, cut, remove, repeat, insert]


# --- text


def damage_text(data: bytes, random: Random) -> bytes:
    """Replace words and numbers, and move, repeat and delete lines."""
    lines = data.decode().split("\n")
    for _ in range(random.choice([1, 1, 3])):
        i = random.randrange(len(lines))
        match random.randrange(6):
            case 0:
                del lines[i]
                lines = lines or [""]
            case 1:
                lines.insert(random.randrange(len(lines) + 1), lines[i])
            case 2:
                words = lines[i].split(" ")
                words[random.randrange(len(words))] = str(value(random))
                lines[i] = " ".join(words)
            case 3:
                lines[i] = swap_number(lines[i], random)
            case 4:
                lines[i] = lines[i][: random.randrange(len(lines[i]) + 1)]
            case _:
                lines[i] += random.choice(string.punctuation) * random.choice([1, 2, 2000])
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def swap_number(line: str, random: Random) -> str:
    digits = [i for i, character in enumerate(line) if character.isdigit()]
    if not digits:
        return line
    at = random.choice(digits)
    return line[:at] + str(random.choice(NUMBERS)) + line[at + 1 :]


# --- trees: JSON, TOML, the headers of safetensors


def value(random: Random, depth: int = 0) -> Any:
    """Any value that a JSON file can have."""
    kinds = [lambda: random.choice(NUMBERS), lambda: random.choice(FLOATS), lambda: random.choice(WORDS)]
    kinds += [lambda: None, lambda: random.random() < 0.5]
    if depth < 2:
        kinds += [lambda: [value(random, depth + 1) for _ in range(random.randrange(4))]]
        kinds += [lambda: {random.choice(WORDS): value(random, depth + 1) for _ in range(random.randrange(3))}]
    return random.choice(kinds)()


def damage_tree(tree: Any, random: Random) -> Any:
    """Change one node of nested lists and dictionaries."""
    if isinstance(tree, dict) and tree and random.random() < 0.85:
        key = random.choice(list(tree))
        match random.randrange(9):
            case 0:
                return {k: v for k, v in tree.items() if k != key}
            case 1:
                return {**tree, random.choice([*WORDS, *tree]): value(random)}
            case _:
                return {**tree, key: damage_tree(tree[key], random)}
    if isinstance(tree, list) and tree and random.random() < 0.8:
        i = random.randrange(len(tree))
        match random.randrange(6):
            case 0:
                return tree[:i] + tree[i + 1 :]
            case 1:
                return tree[:i] + [tree[i]] * random.choice([2, 3]) + tree[i:]
            case _:
                return [*tree[:i], damage_tree(tree[i], random), *tree[i + 1 :]]
    if isinstance(tree, int) and not isinstance(tree, bool) and random.random() < 0.7:
        return random.choice([*NUMBERS, tree + 1, tree - 1, tree * 2])
    return value(random)


def damage_json(data: bytes, random: Random) -> bytes:
    if random.random() < 0.03:
        return random.choice([b"[" * 10**5, b'{"a":' * 10**5, b"[" * 900 + b"]" * 900, b'{"a":1e999999}', b"9" * 10**5])
    return json.dumps(damage_tree(json.loads(data), random)).encode("utf-8", "surrogatepass")


def damage_lines(data: bytes, random: Random) -> bytes:
    """Damage one line of a .jsonl file."""
    lines = data.split(b"\n")
    i = random.randrange(max(1, len(lines) - 1))
    return b"\n".join([*lines[:i], damage_json(lines[i], random), *lines[i + 1 :]])


def damage_toml(data: bytes, random: Random) -> bytes:
    import tomli_w

    if random.random() < 0.03:
        return data + b"\na = " + random.choice([b"[" * 10**5, b"{a=" * 10**5, b"[" * 500 + b"]" * 500])
    tree = without_none(damage_tree(tomllib.loads(data.decode()), random))
    return tomli_w.dumps(tree).encode("utf-8", "surrogatepass")


def without_none(tree: Any) -> Any:
    """TOML has no null."""
    if isinstance(tree, dict):
        return {key: without_none(inner) for key, inner in tree.items() if inner is not None}
    return [without_none(inner) for inner in tree if inner is not None] if isinstance(tree, list) else tree


def damage_safetensors(data: bytes, random: Random) -> bytes:
    """Damage the header, or the numbers after it, and write a header of the right length."""
    n = int.from_bytes(data[:8], "little")
    header, body = data[8 : 8 + n], data[8 + n :]
    if random.random() < 0.2:
        body = damage_bytes(body, random)
    else:
        header = damage_json(header, random)
    return len(header).to_bytes(8, "little") + header + body


def damage_archive(data: bytes, random: Random) -> bytes:
    """Damage one member of a zip archive: .xlsx, .npz, .pth."""
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as source, zipfile.ZipFile(out, "w") as target:
        entries = source.infolist()
        chosen = random.choice(entries)
        for entry in entries:
            body = source.read(entry)
            if entry is chosen:
                body = (damage_text if is_text(body) and random.random() < 0.6 else damage_bytes)(body, random)
                if random.random() < 0.1:
                    continue
            target.writestr(entry.filename, body, entry.compress_type)
    return out.getvalue()


BY_SUFFIX = {
    ".json": ("json", damage_json),
    ".jsonl": ("json", damage_lines),
    ".toml": ("toml", damage_toml),
    ".safetensors": ("header", damage_safetensors),
}
