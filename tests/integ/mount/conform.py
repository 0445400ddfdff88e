"""A file system's operations below the directory argv[1], as root: results and errors of POSIX."""
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)
KEEP, PUNCH, ZERO = 1, 2, 0x10
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
USER, GROUP = 12345, 23456


def fails(number, function, *args, **more):
    try:
        function(*args, **more)
    except OSError as error:
        assert error.errno == number, (function, args, error, errno.errorcode[number])
        return
    raise AssertionError((function, args, "did not fail with", errno.errorcode[number]))


def put(name, text="x"):
    with open(name, "w", encoding="ascii") as file:
        file.write(text)


def get(name):
    with open(name, "rb") as file:
        return file.read()


def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) < 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def renameat2(source, target, flags):
    if libc.renameat2(-100, source.encode(), -100, target.encode(), flags) < 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def as_user(function, *args, uid=USER, gid=GROUP):
    """The errno of what it does, 0 if it went well."""
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        code = 0
        try:
            function(*args)
        except OSError as error:
            code = error.errno
        except BaseException:
            code = 255
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_names():
    put("f")
    os.mkdir("d")
    for function in (os.mkdir, os.mkfifo):
        fails(errno.EEXIST, function, "f")
    fails(errno.EEXIST, os.symlink, "x", "f")
    fails(errno.EEXIST, os.link, "f", "d")
    fails(errno.ENOENT, os.stat, "none")
    fails(errno.ENOENT, os.unlink, "none")
    fails(errno.ENOENT, os.rmdir, "none")
    fails(errno.ENOENT, os.rename, "none", "x")
    fails(errno.ENOENT, os.mkdir, "none/x")
    fails(errno.ENOTDIR, os.stat, "f/x")
    fails(errno.ENOTDIR, os.rmdir, "f")
    fails(errno.EISDIR, os.unlink, "d")
    fails(errno.ENAMETOOLONG, os.mkdir, "n" * 256)
    os.mkdir("n" * 255)
    os.rmdir("n" * 255)
    fails(errno.EISDIR, os.open, "d", os.O_WRONLY)
    fails(errno.EEXIST, os.open, "f", os.O_CREAT | os.O_EXCL)
    fails(errno.ENOTDIR, os.open, "f", os.O_DIRECTORY)
    fails(errno.EPERM, os.link, "d", "hard")
    put("d/x")
    fails(errno.ENOTEMPTY, os.rmdir, "d")
    odd = "a \n\t\\\"'é\x01"
    put(odd)
    assert odd in os.listdir(".")
    os.unlink(odd)


def test_links():
    put("f", "one")
    os.link("f", "g")
    assert os.stat("f").st_nlink == 2 and os.stat("f").st_ino == os.stat("g").st_ino
    os.unlink("f")
    assert os.stat("g").st_nlink == 1 and get("g") == b"one"
    os.symlink("g", "s")
    assert os.readlink("s") == "g" and get("s") == b"one" and os.lstat("s").st_size == 1
    fails(errno.EINVAL, os.readlink, "g")
    os.symlink("l2", "l1")
    os.symlink("l1", "l2")
    fails(errno.ELOOP, os.stat, "l1")
    fails(errno.ELOOP, os.open, "s", os.O_NOFOLLOW)
    long = "t" * 4000
    os.symlink(long, "long")
    assert os.readlink("long") == long


def test_special():
    os.mkfifo("p", 0o640)
    assert stat.S_ISFIFO(os.stat("p").st_mode)
    os.mknod("c", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    st = os.stat("c")
    assert stat.S_ISCHR(st.st_mode) and st.st_rdev == os.makedev(1, 3)
    fd = os.open("c", os.O_RDWR)
    assert os.write(fd, b"gone") == 4 and os.read(fd, 1) == b""
    os.close(fd)
    if os.fork() == 0:
        put("p", "through")
        os._exit(0)
    assert get("p") == b"through"
    os.wait()


def test_rename():
    put("a", "a")
    put("b", "b")
    os.rename("a", "b")
    assert get("b") == b"a" and not os.path.exists("a")
    os.mkdir("d")
    os.mkdir("e")
    put("e/x")
    fails(errno.ENOTEMPTY, os.rename, "d", "e")
    fails(errno.EINVAL, os.rename, "d", "d/in")
    fails(errno.EISDIR, os.rename, "b", "d")
    fails(errno.ENOTDIR, os.rename, "d", "b")
    os.rename("e", "d")
    assert os.listdir("d") == ["x"]
    before = os.stat("b").st_nlink
    os.link("b", "c")
    os.rename("b", "c")
    assert os.path.exists("b") and os.stat("c").st_nlink == before + 1
    put("x", "1")
    put("y", "2")
    renameat2("x", "y", EXCHANGE)
    assert get("x") == b"2" and get("y") == b"1"
    fails(errno.EEXIST, renameat2, "x", "y", NOREPLACE)
    renameat2("x", "z", NOREPLACE)
    fails(errno.EINVAL, renameat2, "z", "y", WHITEOUT)
    fails(errno.ENOENT, renameat2, "z", "none", EXCHANGE)


def test_open_files():
    fd = os.open("u", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"abc")
    os.unlink("u")
    assert os.pread(fd, 9, 0) == b"abc" and os.fstat(fd).st_nlink == 0
    os.pwrite(fd, b"z" * 20000, 3)
    assert os.fstat(fd).st_size == 20003
    os.ftruncate(fd, 5)
    assert os.pread(fd, 9, 0) == b"abczz"
    os.fchmod(fd, 0o600)
    os.close(fd)
    for size in (3, 30000):
        put("o", "1" * size)
        put("n", "2" * size)
        fd = os.open("o", os.O_RDONLY)
        os.rename("n", "o")
        assert os.read(fd, size + 1) == b"1" * size and get("o") == b"2" * size
        os.close(fd)
    put("m", "x")
    fd = os.open("m", os.O_RDWR)
    os.chmod("m", 0)
    os.ftruncate(fd, 100)
    assert os.fstat(fd).st_size == 100
    os.close(fd)
    fails(errno.EBADF, os.write, os.open("m", os.O_RDONLY), b"x")


def test_sizes():
    for size in (0, 1, 4096, 8191, 8192, 8193, 100000, 3 << 20):
        data = os.urandom(size)
        with open("f", "wb") as file:
            file.write(data)
        assert get("f") == data and os.stat("f").st_size == size
        for cut in (size // 2, 10, size + 5000):
            os.truncate("f", cut)
            data = data[:cut] + bytes(cut - len(data[:cut]))
            assert get("f") == data, (size, cut)
    fd = os.open("big", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"end", 5 << 40)
    assert os.fstat(fd).st_size == (5 << 40) + 3 and os.pread(fd, 4, 1 << 30) == bytes(4)
    assert os.pread(fd, 9, 5 << 40) == b"end"
    assert os.lseek(fd, 0, os.SEEK_DATA) > 4 << 40
    assert os.lseek(fd, 0, os.SEEK_HOLE) == 0
    fails(errno.ENXIO, os.lseek, fd, 6 << 40, os.SEEK_DATA)
    os.close(fd)


def test_fallocate():
    for size in (4000, 65536):
        fd = os.open("h%d" % size, os.O_RDWR | os.O_CREAT)
        os.pwrite(fd, b"B" * size, 0)
        fallocate(fd, PUNCH | KEEP, 1000, 2000)
        assert os.pread(fd, size, 0) == b"B" * 1000 + bytes(2000) + b"B" * (size - 3000)
        fallocate(fd, ZERO, 0, 500)
        assert os.pread(fd, 600, 0) == bytes(500) + b"B" * 100
        fallocate(fd, 0, 0, size + 4096)
        assert os.fstat(fd).st_size == size + 4096
        fallocate(fd, KEEP, 0, size + 99999)
        assert os.fstat(fd).st_size == size + 4096
        fails(errno.EOPNOTSUPP, fallocate, fd, 8, 0, 4096)  # collapse
        os.close(fd)


def test_mmap():
    fd = os.open("m", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 100000)
    shared = mmap.mmap(fd, 100000)
    shared[50000:50005] = b"hello"
    shared.flush()
    assert os.pread(fd, 5, 50000) == b"hello"
    os.pwrite(fd, b"HELLO", 60000)
    assert shared[60000:60005] == b"HELLO"
    private = mmap.mmap(fd, 100000, mmap.MAP_PRIVATE)
    private[0:1] = b"P"
    assert os.pread(fd, 1, 0) == b"\0"
    shared[99999:100000] = b"!"
    private.close()
    shared.close()
    os.close(fd)
    assert get("m")[50000:50005] == b"hello" and get("m")[-1:] == b"!"


def test_ways_to_write():
    fd = os.open("a", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for i in range(2000):
        os.write(fd, b"%d\n" % i)
    os.close(fd)
    assert get("a") == b"".join(b"%d\n" % i for i in range(2000))
    block = mmap.mmap(-1, 8192)
    block[:] = b"D" * 8192
    fd = os.open("d", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    os.write(fd, block)
    os.lseek(fd, 0, 0)
    assert os.readv(fd, [block]) == 8192
    os.close(fd)
    assert get("d") == b"D" * 8192
    fd = os.open("s", os.O_WRONLY | os.O_CREAT | os.O_SYNC)
    os.write(fd, b"sync")
    os.fsync(fd)
    os.fdatasync(fd)
    os.close(fd)
    dir_fd = os.open(".", os.O_RDONLY)
    os.fsync(dir_fd)
    os.close(dir_fd)
    put("t", "old text")
    os.close(os.open("t", os.O_WRONLY | os.O_TRUNC))
    assert get("t") == b""
    source, target = os.open("a", os.O_RDONLY), os.open("copy", os.O_RDWR | os.O_CREAT)
    left = os.fstat(source).st_size
    while left > 0:
        n = os.copy_file_range(source, target, left)
        assert n > 0
        left -= n
    os.close(source)
    os.close(target)
    assert get("copy") == get("a")


def test_xattrs():
    put("f")
    os.setxattr("f", "user.a", b"v")
    assert os.getxattr("f", "user.a") == b"v" and os.listxattr("f") == ["user.a"]
    fails(errno.EEXIST, os.setxattr, "f", "user.a", b"w", os.XATTR_CREATE)
    fails(errno.ENODATA, os.setxattr, "f", "user.b", b"w", os.XATTR_REPLACE)
    os.removexattr("f", "user.a")
    fails(errno.ENODATA, os.getxattr, "f", "user.a")
    fails(errno.ENODATA, os.removexattr, "f", "user.a")
    fails(errno.ENODATA, os.getxattr, "f", "security.capability")
    fails(errno.EOPNOTSUPP, os.setxattr, "f", "security.other", b"x")
    fails(errno.EOPNOTSUPP, os.setxattr, "f", "strange.x", b"x")
    os.setxattr("f", "user.empty", b"")
    assert os.getxattr("f", "user.empty") == b""
    os.setxattr("f", "user.large", b"L" * 60000)
    assert os.getxattr("f", "user.large") == b"L" * 60000
    assert int(os.getxattr("f", "gfs.ncopy")) >= 1


def test_times():
    put("f")
    os.utime("f", ns=(123456789012345678, 987654321098765432))
    st = os.stat("f")
    assert (st.st_atime_ns, st.st_mtime_ns) == (123456789012345678, 987654321098765432)
    os.utime("f", ns=(-5_000_000_001, 0))
    assert os.stat("f").st_atime_ns == -5_000_000_001
    os.mkdir("d")
    before = os.stat("d").st_mtime_ns
    put("d/x")
    assert os.stat("d").st_mtime_ns > before
    before = os.stat("f")
    put("f", "longer")
    after = os.stat("f")
    assert after.st_mtime_ns > before.st_mtime_ns and after.st_ctime_ns > before.st_ctime_ns
    before = after
    os.chmod("f", 0o600)
    after = os.stat("f")
    assert after.st_mtime_ns == before.st_mtime_ns and after.st_ctime_ns > before.st_ctime_ns
    # Bytes that are not sent yet do not set a later time than the one that was asked for.
    fd = os.open("w", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"w" * 100000)
    os.utime("w", ns=(1, 2))
    os.close(fd)
    assert os.stat("w").st_mtime_ns == 2


def test_owners():
    os.chmod(".", 0o777)
    assert as_user(put, "mine") == 0 and as_user(os.mkdir, "dir") == 0
    assert as_user(os.symlink, "x", "link") == 0 and as_user(os.mkfifo, "pipe") == 0
    for name in ("mine", "dir", "link", "pipe"):
        st = os.lstat(name)
        assert (st.st_uid, st.st_gid) == (USER, GROUP), (name, st)
    os.umask(0o027)
    assert as_user(put, "masked") == 0 and os.stat("masked").st_mode & 0o777 == 0o640
    os.umask(0o022)
    os.mkdir("g")
    os.chown("g", 0, 777)
    os.chmod("g", 0o2777)
    assert as_user(put, "g/f") == 0 and as_user(os.mkdir, "g/d") == 0
    assert os.stat("g/f").st_gid == 777 and os.stat("g/f").st_uid == USER
    assert os.stat("g/d").st_gid == 777 and os.stat("g/d").st_mode & stat.S_ISGID


def test_rights():
    os.chmod(".", 0o755)
    put("secret")
    os.chmod("secret", 0o600)
    put("public")
    assert as_user(get, "secret") == errno.EACCES
    assert as_user(get, "public") == 0
    assert as_user(put, "public") == errno.EACCES
    assert as_user(put, "new") == errno.EACCES
    assert as_user(os.unlink, "public") == errno.EACCES
    assert as_user(os.chmod, "public", 0o777) == errno.EPERM
    assert as_user(os.chown, "public", USER, -1) == errno.EPERM
    assert as_user(os.truncate, "public", 0) == errno.EACCES
    assert as_user(os.utime, "public") == errno.EACCES
    os.mkdir("closed", 0o700)
    put("closed/x")
    assert as_user(os.stat, "closed/x") == errno.EACCES
    assert as_user(os.listdir, "closed") == errno.EACCES
    os.mkdir("sticky")
    os.chmod("sticky", 0o1777)
    put("sticky/f")
    os.chmod("sticky/f", 0o666)
    assert as_user(os.unlink, "sticky/f") == errno.EPERM
    assert as_user(os.rename, "sticky/f", "sticky/g") == errno.EPERM
    assert as_user(put, "sticky/own") == 0 and as_user(os.unlink, "sticky/own") == 0
    put("group")
    os.chown("group", 0, GROUP)
    os.chmod("group", 0o640)
    assert as_user(get, "group") == 0 and as_user(get, "group", gid=9) == errno.EACCES
    os.chmod("group", 0o604)
    assert as_user(get, "group") == errno.EACCES
    assert as_user(os.mknod, "dev", stat.S_IFCHR | 0o600, os.makedev(1, 3)) != 0


def test_set_ids():
    def write():
        fd = os.open("f", os.O_WRONLY)
        os.write(fd, b"x")
        os.close(fd)

    for change in (write, lambda: os.truncate("f", 0), lambda: os.truncate("f", 20000)):
        put("f")
        os.chmod("f", 0o6777)
        assert as_user(change) == 0
        assert os.stat("f").st_mode & 0o7777 == 0o777, (change, oct(os.stat("f").st_mode))
    # A set-group-id bit without the right to execute is a mark and stays.
    put("f")
    os.chmod("f", 0o2766)
    assert as_user(write) == 0 and os.stat("f").st_mode & 0o7777 == 0o2766
    # Root keeps them, as everywhere; a new owner does not.
    os.chmod("f", 0o6777)
    write()
    assert os.stat("f").st_mode & 0o6000 == 0o6000
    os.chown("f", USER, GROUP)
    assert os.stat("f").st_mode & 0o6000 == 0
    # Once it has been set again while somebody has it open.
    os.chmod("f", 0o777)
    os.chown("f", USER, GROUP)

    def twice():
        fd = os.open("f", os.O_WRONLY)
        os.write(fd, b"x")
        os.chmod("f", 0o4777)
        os.write(fd, b"y")
        os.close(fd)

    assert as_user(twice) == 0 and os.stat("f").st_mode & 0o4000 == 0


def test_directories():
    os.mkdir("many")
    names = ["%05d" % i for i in range(2500)]
    for name in names:
        put("many/" + name, "")
    assert sorted(os.listdir("many")) == names
    with os.scandir("many") as entries:
        assert all(e.is_file() and e.stat().st_size == 0 for e in entries)
    fd = os.open("many", os.O_RDONLY)
    assert len(os.listdir(fd)) == 2500
    os.lseek(fd, 0, os.SEEK_SET)
    assert len(os.listdir(fd)) == 2500
    os.close(fd)
    seen = []
    with os.scandir("many") as entries:  # removed while it is being listed
        for e in entries:
            seen.append(e.name)
            os.unlink(e.path)
    assert sorted(seen) == names and os.listdir("many") == []
    fd = os.open("many", os.O_RDONLY)
    os.rmdir("many")
    fails(errno.ESTALE, os.fstat, fd)  # as with NFS: metad keeps files that are open, not directories
    fails(errno.ENOENT, os.open, "x", os.O_CREAT | os.O_RDWR, dir_fd=fd)
    os.close(fd)
    assert os.stat(".").st_nlink >= 2
    os.mkdir("up")
    assert os.stat("up/..").st_ino == os.stat(".").st_ino


def test_statfs():
    fs = os.statvfs(".")
    assert fs.f_blocks >= fs.f_bfree > 0 and fs.f_namemax == 255


def test_locks():
    put("l")
    first, second = os.open("l", os.O_RDWR), os.open("l", os.O_RDWR)
    fcntl.flock(first, fcntl.LOCK_EX)
    fails(errno.EAGAIN, fcntl.flock, second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(first)
    # The kernel tells a mount of a last close when close() has returned already: wait for it.
    fcntl.flock(second, fcntl.LOCK_EX)
    os.close(second)


def main():
    tests = [(n, f) for n, f in list(globals().items()) if n.startswith("test_")]
    for name, function in tests:
        os.chdir(sys.argv[1])
        os.mkdir(name)
        os.chdir(name)
        os.umask(0o022)
        function()
        os.chdir(sys.argv[1])
        shutil.rmtree(name)
    assert os.listdir(".") == []
    print(f"{len(tests)} groups of operations")


main()
