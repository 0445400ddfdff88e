"""Locks on two mounts of one grid, argv[1] and argv[2]."""
import ctypes
import errno
import faulthandler
import fcntl
import os
import select
import signal
import struct
import sys
import time

A, B = sys.argv[1:3]
FLOCK = "hhqqi4x"
# Longer than any of this takes; to fail instead of hanging.
PATIENCE = 20
faulthandler.register(signal.SIGALRM, chain=True)
libc = ctypes.CDLL(None, use_errno=True)


def fails(number, function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError("no %s" % errno.errorcode[number])


def refused(function, *arguments):
    fails(errno.EAGAIN, function, *arguments)


def open_both(name, size=0):
    with open(A + name, "wb") as file:
        file.write(b"\0" * size)
    return [os.open(where + name, os.O_RDWR) for where in (A, B)]


class Child:
    """Another process, since locks of ranges are those of a process; and a word each way."""

    def __init__(self, function, *arguments):
        self.out, out = os.pipe()
        self.go, go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self.out)
                os.close(go)
                self.out = out
                function(self, *arguments)
                code = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            os._exit(code)
        os.close(out)
        os.close(self.go)
        self.go = go

    # In the child:
    def say(self, word):
        os.write(self.out, word)

    def wait(self):
        os.read(self.go, 1)

    # In the parent:
    def hear(self, word):
        signal.alarm(PATIENCE)
        got = os.read(self.out, 1)
        signal.alarm(0)
        assert got == word, (got, word)

    def silent(self):
        """It is in its call: seen in the kernel, not guessed by time."""
        signal.alarm(PATIENCE)
        while True:
            with open("/proc/%d/syscall" % self.pid) as file:
                number = file.read().split()[0]
            with open("/proc/%d/stat" % self.pid) as file:
                state = file.read().rsplit(")", 1)[1].split()[0]
            # fcntl, flock
            if number in ("72", "73") and state in "SD":
                break
        signal.alarm(0)

    def tell(self):
        os.write(self.go, b"g")

    def end(self, want=0):
        signal.alarm(PATIENCE)
        _, status = os.waitpid(self.pid, 0)
        signal.alarm(0)
        os.close(self.out)
        os.close(self.go)
        assert status == want, status


def test_ranges():
    a, b = open_both("/ranges", 100)
    fcntl.lockf(a, fcntl.LOCK_EX, 10, 20)

    def other(child):
        refused(fcntl.lockf, b, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 20)
        refused(fcntl.lockf, b, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 29)
        refused(fcntl.lockf, b, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 20, 0)
        fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 0, 30)
        # And on the mount of who has it.
        refused(fcntl.lockf, a, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 20)
        # flock is another thing.
        fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for fd, pid in ((a, os.getppid()), (b, 0)):
            # On two mounts a process is two owners; so not where it has locks itself.
            ask = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 22, 3, 0)
            kind, _, start, length, who = struct.unpack(FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, ask))
            assert (kind, start, length, who) == (fcntl.F_WRLCK, 20, 10, pid), (kind, start, length, who)
        ask = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 20, 0)
        assert struct.unpack(FLOCK, fcntl.fcntl(b, fcntl.F_GETLK, ask))[0] == fcntl.F_UNLCK

    Child(other).end()
    # What it had went with it.
    fcntl.lockf(a, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.lockf(a, fcntl.LOCK_SH)

    def reader(child):
        fcntl.lockf(b, fcntl.LOCK_SH | fcntl.LOCK_NB)
        refused(fcntl.lockf, b, fcntl.LOCK_EX | fcntl.LOCK_NB)

    Child(reader).end()
    # Any descriptor of the file that is closed ends them all (POSIX).
    fcntl.lockf(a, fcntl.LOCK_EX)
    os.close(os.open(A + "/ranges", os.O_RDONLY))
    Child(lambda child: fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB)).end()
    read_only = os.open(B + "/ranges", os.O_RDONLY)
    fails(errno.EBADF, fcntl.lockf, read_only, fcntl.LOCK_EX)
    for fd in (a, b, read_only):
        os.close(fd)


def test_flock():
    a, b = open_both("/flock")
    fcntl.flock(a, fcntl.LOCK_EX)
    refused(fcntl.flock, b, fcntl.LOCK_EX | fcntl.LOCK_NB)
    refused(fcntl.flock, b, fcntl.LOCK_SH | fcntl.LOCK_NB)
    fcntl.flock(a, fcntl.LOCK_SH)
    fcntl.flock(b, fcntl.LOCK_SH | fcntl.LOCK_NB)
    refused(fcntl.flock, a, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(b, fcntl.LOCK_UN)
    fcntl.flock(a, fcntl.LOCK_EX)
    # It is the open file's: not gone with one descriptor of several, but with the last.
    copy = os.dup(a)
    os.close(a)
    refused(fcntl.flock, b, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(copy)
    fcntl.flock(b, fcntl.LOCK_EX)
    os.close(b)


def take(child, where, name, lock):
    fd = os.open(where + name, os.O_RDWR)
    child.say(b"b")
    lock(fd, fcntl.LOCK_EX)
    child.say(b"l")
    child.wait()
    # Ended, with the lock.


def test_waiting():
    for lock in (fcntl.lockf, fcntl.flock):
        for end in ("unlock", "close", "kill"):
            a, b = open_both("/waiting")
            os.close(a)
            os.close(b)
            first = Child(hold_until, end, lock)
            first.hear(b"l")
            others = [Child(take, where, "/waiting", lock) for where in (B, A)]
            for other in others:
                other.hear(b"b")
                other.silent()
            if end == "kill":
                os.kill(first.pid, signal.SIGKILL)
            else:
                first.tell()
            # One after the other; in which order depends on whose request was at metad first.
            while others:
                heard = select.select([other.out for other in others], [], [], PATIENCE)[0]
                assert len(heard) == 1, (end, lock, heard)
                other = next(other for other in others if other.out == heard[0])
                others.remove(other)
                other.hear(b"l")
                other.tell()
                other.end()
            if end == "kill":
                first.end(signal.SIGKILL)
            else:
                first.hear(b"d")
                first.tell()
                first.end()


def hold_until(child, end, lock):
    fd = os.open(A + "/waiting", os.O_RDWR)
    lock(fd, fcntl.LOCK_EX)
    child.say(b"l")
    child.wait()
    if end == "unlock":
        lock(fd, fcntl.LOCK_UN)
    else:
        os.close(fd)
    child.say(b"d")
    child.wait()


def test_many_waiting():
    """More than libfuse has threads; and the mount goes on working."""
    a, b = open_both("/many")
    fcntl.flock(a, fcntl.LOCK_EX)
    children = [Child(take, B, "/many", fcntl.flock) for _ in range(80)]
    for child in children:
        child.hear(b"b")
        child.silent()
    assert "many" in os.listdir(B)
    with open(B + "/beside", "wb") as file:
        file.write(b"x" * 100000)
    # Those that are killed leave the queue.
    for child in children[4:]:
        os.kill(child.pid, signal.SIGKILL)
        child.end(signal.SIGKILL)
    fcntl.flock(a, fcntl.LOCK_UN)
    for _ in range(4):
        for child in children[:4]:
            child.tell()
    for child in children[:4]:
        child.end()
    # The kernel tells of the last close of a file behind the back of who closes.
    fcntl.flock(a, fcntl.LOCK_EX)
    os.close(a)
    os.close(b)


def is_deadlock(fd, start):
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, start)
    except OSError as error:
        assert error.errno == errno.EDEADLK, error
        return True
    return False


def test_deadlock():
    a, b = open_both("/dead", 10)
    fcntl.lockf(a, fcntl.LOCK_EX, 1, 0)

    def other(child):
        fcntl.lockf(b, fcntl.LOCK_EX, 1, 1)
        child.say(b"l")
        child.say(b"d" if is_deadlock(b, 0) else b"g")

    child = Child(other)
    child.hear(b"l")
    # One of both hears of it, whose request was the last at metad; the other goes on.
    ours = is_deadlock(a, 1)
    fcntl.lockf(a, fcntl.LOCK_UN, 1, 0)
    child.hear(b"g" if ours else b"d")
    child.end()
    os.close(a)
    os.close(b)


def interrupted(child, lock):
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    signal.siginterrupt(signal.SIGUSR1, True)
    fd = os.open(B + "/signal", os.O_RDWR)
    child.say(b"b")
    if lock == fcntl.flock:
        r = libc.flock(fd, fcntl.LOCK_EX)
    else:
        r = libc.fcntl(fd, fcntl.F_SETLKW, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    assert r == -1 and ctypes.get_errno() == errno.EINTR, (r, ctypes.get_errno())
    child.say(b"i")
    child.wait()
    # Nothing was left behind; the next one is a new one.
    lock(fd, fcntl.LOCK_EX)


def test_interrupt():
    for lock in (fcntl.flock, fcntl.lockf):
        a, b = open_both("/signal")
        lock(a, fcntl.LOCK_EX)
        child = Child(interrupted, lock)
        child.hear(b"b")
        child.silent()
        os.kill(child.pid, signal.SIGUSR1)
        child.hear(b"i")
        lock(a, fcntl.LOCK_UN)
        lock(a, fcntl.LOCK_EX | fcntl.LOCK_NB)
        child.tell()
        lock(a, fcntl.LOCK_UN)
        child.end()
        os.close(a)
        os.close(b)


def count(child, where, lock, times, reopen):
    fd = os.open(where + "/count", os.O_RDWR)
    log = os.open(where + "/log", os.O_RDWR)
    child.say(b"b")
    child.wait()
    for _ in range(times):
        if reopen:
            os.close(fd)
            fd = os.open(where + "/count", os.O_RDWR)
        lock(fd, fcntl.LOCK_EX)
        value = int(os.pread(fd, 20, 0))
        os.pwrite(fd, b"%020d" % (value + 1), 0)
        # A file that grows, too: written where the counter says, so a lost step leaves a gap.
        os.pwrite(log, b"%07d\n" % value, 8 * value)
        if value > 0:
            before = os.pread(log, 8, 8 * (value - 1))
            assert before == b"%07d\n" % (value - 1), (before, value)
        lock(fd, fcntl.LOCK_UN)


def test_counter():
    for lock in (fcntl.lockf, fcntl.flock):
        for reopen in (False, True):
            for name, text in (("/count", b"0" * 20), ("/log", b"")):
                with open(A + name, "wb") as file:
                    file.write(text)
            children = [Child(count, (A, B)[i % 2], lock, 12, reopen) for i in range(8)]
            for child in children:
                child.hear(b"b")
            for child in children:
                child.tell()
            for child in children:
                child.end()
            for where in (A, B):
                with open(where + "/count", "rb") as file:
                    assert int(file.read()) == 96
                with open(where + "/log", "rb") as file:
                    assert file.read() == b"".join(b"%07d\n" % i for i in range(96))


def main():
    for name, function in list(globals().items()):
        if name.startswith("test_"):
            begin = time.monotonic()
            function()
            print("%s: ok, %.2f s" % (name, time.monotonic() - begin), flush=True)


main()
