"""Random reads, writes, appends, truncations, holes and mappings of one file, through any of the
mounts argv[2:] and through files that stay open, against bytes in memory. argv[1]: how many steps.
GFS_SEED repeats a run."""
import ctypes
import mmap
import os
import random
import sys

STEPS = int(sys.argv[1])
MOUNTS = sys.argv[2:]
SEED = int(os.environ.get("GFS_SEED", random.randrange(1 << 30)))
NAME = "/fsx"
MAX = 300000
libc = ctypes.CDLL(None, use_errno=True)
rng = random.Random(SEED)
model = bytearray()
log = []


class Open:
    def __init__(self, mount, flags):
        self.mount, self.flags = mount, flags
        self.fd = os.open(MOUNTS[mount] + NAME, flags, 0o644)

    def __str__(self):
        return f"m{self.mount}{'a' if self.flags & os.O_APPEND else ''}"


def some_range(limit):
    # Small files live elsewhere than large ones: both, and the way between.
    scale = rng.choice((100, 5000, 20000, MAX))
    offset = rng.randrange(min(scale, limit) + 1)
    return offset, rng.randrange(1, scale + 1)


def grow(size):
    if len(model) < size:
        model.extend(bytes(size - len(model)))


def do_write(f):
    offset, bytes_ = some_range(MAX)
    data = rng.randbytes(bytes_)
    if f.flags & os.O_APPEND:
        offset = len(model)
        if offset + bytes_ > 2 * MAX:
            return "write skipped"
        assert os.write(f.fd, data) == bytes_
    else:
        assert os.pwrite(f.fd, data, offset) == bytes_
    grow(offset)
    model[offset:offset + bytes_] = data
    return f"write {offset} {bytes_}"


def do_read(f):
    offset, bytes_ = some_range(MAX)
    got = os.pread(f.fd, bytes_, offset)
    want = bytes(model[offset:offset + bytes_])
    if got != want:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        raise AssertionError(f"read {offset} {bytes_}: {len(got)} bytes for {len(want)}, first wrong at {offset + at}")
    return f"read {offset} {bytes_}"


def do_size(f):
    size = os.fstat(f.fd).st_size if rng.random() < 0.5 else os.stat(MOUNTS[f.mount] + NAME).st_size
    assert size == len(model), f"size {size} for {len(model)}"
    return f"size {size}"


def do_truncate(f):
    size = some_range(MAX)[0]
    if rng.random() < 0.5:
        os.ftruncate(f.fd, size)
    else:
        os.truncate(MOUNTS[f.mount] + NAME, size)
    del model[size:]
    grow(size)
    return f"truncate {size}"


def do_punch(f):
    offset, bytes_ = some_range(MAX)
    if libc.fallocate(f.fd, 3, ctypes.c_long(offset), ctypes.c_long(bytes_)) < 0:
        raise OSError(ctypes.get_errno(), "punch")
    end = min(offset + bytes_, len(model))
    if end > offset:
        model[offset:end] = bytes(end - offset)
    return f"punch {offset} {bytes_}"


def do_sync(f):
    os.fsync(f.fd)
    return "sync"


def do_map(f):
    """Written through a mapping by one mount; the others see it after msync and close."""
    if not model or f.flags & os.O_APPEND:
        return "map skipped"
    mapped = mmap.mmap(f.fd, len(model))
    offset = rng.randrange(len(model))
    data = rng.randbytes(min(rng.randrange(1, 9000), len(model) - offset))
    assert mapped[:] == bytes(model), "mapped bytes"
    mapped[offset:offset + len(data)] = data
    mapped.flush()
    mapped.close()
    model[offset:offset + len(data)] = data
    return f"map {offset} {len(data)}"


def do_reopen(f):
    os.close(f.fd)
    f.mount = rng.randrange(len(MOUNTS))
    f.flags = os.O_RDWR | rng.choice((0, 0, os.O_APPEND))
    f.fd = os.open(MOUNTS[f.mount] + NAME, f.flags)
    return "reopen"


def main():
    files = [Open(0, os.O_RDWR | os.O_CREAT)]
    files += [Open(i % len(MOUNTS), os.O_RDWR) for i in range(1, 4)]
    # Mappings of a file that others have open are seen late: only with one mount.
    steps = [do_write] * 6 + [do_read] * 8 + [do_size] * 2 + [do_truncate] * 2 + [do_punch, do_sync] + [do_reopen] * 2
    if len(MOUNTS) == 1:
        steps += [do_map] * 2
    try:
        for _ in range(STEPS):
            f = rng.choice(files)
            step = rng.choice(steps)
            log.append(f"{f} {step.__name__}")
            log[-1] = f"{f} {step(f)}"
    except BaseException:
        print(f"seed {SEED}, step {len(log)}, the last ones:")
        print("\n".join(log[-15:]))
        raise
    for f in files:
        os.close(f.fd)
    for mount in MOUNTS:
        with open(mount + NAME, "rb") as file:
            assert file.read() == bytes(model), "at the end"
    os.unlink(MOUNTS[0] + NAME)
    print(f"seed {SEED}: {STEPS} steps with {len(MOUNTS)} mounts")


main()
