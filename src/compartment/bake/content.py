"""Prints the lower-case hex of SHA-256 over everything under a folder: sorted paths, kinds, modes, targets of links, bytes.

Neither times nor owners count: the one is of no meaning, the other is root's once the image is sealed.
"""

import hashlib
import os
import stat
import sys

HOME = os.fsencode(sys.argv[1])
total = hashlib.sha256()


def entry(kind, mode, path, size):
    total.update(b"%s %o %d %d\n%s\n" % (kind, mode, len(path), size, path))


def paths():
    for folder, folders, files in os.walk(HOME):
        yield from (os.path.relpath(os.path.join(folder, name), HOME) for name in (*folders, *files))


for path in sorted(paths()):
    full = os.path.join(HOME, path)
    info = os.lstat(full)
    mode = stat.S_IMODE(info.st_mode)
    if stat.S_ISDIR(info.st_mode):
        entry(b"d", mode, path, 0)
    elif stat.S_ISLNK(info.st_mode):
        target = os.readlink(full)
        entry(b"l", 0, path, len(target))
        total.update(target)
    elif stat.S_ISREG(info.st_mode):
        entry(b"f", mode, path, info.st_size)
        with open(full, "rb") as file:
            while piece := file.read(1 << 20):
                total.update(piece)
    else:
        sys.exit(f"{os.fsdecode(path)} is no file, folder or link")
print(total.hexdigest())
