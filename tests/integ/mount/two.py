"""Two mounts of one grid, argv[1] and argv[2]: each sees at once what the other has done."""
import os
import random
import shutil
import sys
import threading

A, B = sys.argv[1:3]


def put(name, data):
    with open(name, "wb") as file:
        file.write(data)


def get(name):
    with open(name, "rb") as file:
        return file.read()


def together(function, *rows):
    failed = []

    def run(row):
        try:
            function(*row)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=(row,)) for row in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def test_names():
    os.listdir(B + "/x")
    for i in range(60):
        name = "/x/n%d" % i
        text = b"hello %d" % i
        assert not os.path.exists(B + name)
        put(A + name, text)
        assert get(B + name) == text and os.stat(B + name).st_size == len(text)
        os.rename(A + name, A + name + "r")
        assert not os.path.exists(B + name) and os.path.exists(B + name + "r")
        os.chmod(A + name + "r", 0o600)
        assert os.stat(B + name + "r").st_mode & 0o777 == 0o600
        os.unlink(B + name + "r")
        assert not os.path.exists(A + name + "r")
    # More in a row than metad tells one by one.
    for i in range(100):
        assert not os.path.exists(B + "/x/m%d" % i)
    for i in range(100):
        put(A + "/x/m%d" % i, b"")
    assert all(os.path.exists(B + "/x/m%d" % i) for i in range(100))


def test_growing():
    """tail -f."""
    for size in (100, 9000, 300000):
        put(A + "/x/s", b"a" * size)
        reader = os.open(B + "/x/s", os.O_RDONLY)
        assert os.read(reader, 1 << 20) == b"a" * size
        writer = os.open(A + "/x/s", os.O_WRONLY | os.O_APPEND)
        for i in range(20):
            os.write(writer, b"b" * 777)
            want = size + 777 * (i + 1)
            assert os.fstat(reader).st_size == want, (size, i, os.fstat(reader).st_size)
            assert os.pread(reader, 777, want - 777) == b"b" * 777, (size, i)
        os.close(writer)
        os.close(reader)


def test_overwriting():
    for size in (100, 9000, 300000):
        put(A + "/x/o", b"0" * size)
        reader = os.open(B + "/x/o", os.O_RDONLY)
        writer = os.open(A + "/x/o", os.O_RDWR)
        assert os.pread(reader, 1, 0) == b"0"
        for i in range(40):
            data = bytes([65 + i % 26]) * size
            os.pwrite(writer, data, 0)
            assert os.pread(reader, size, 0) == data, (size, i)
        os.ftruncate(writer, 7)
        assert os.pread(reader, size, 0) == data[:7]
        os.close(writer)
        os.close(reader)


def test_both_writing():
    """The last size that one of them knows of is not the last there is."""
    for _ in range(30):
        put(A + "/x/w", b"0" * 10000)
        one, two = os.open(A + "/x/w", os.O_RDWR), os.open(B + "/x/w", os.O_RDWR)
        os.pread(two, 1, 0)
        os.pwrite(one, b"1" * 100, 0)
        for i in range(1, 6):
            os.pwrite(one, b"a" * 1000, 10000 * i)
            os.pwrite(two, b"b" * 9000, 10000 * i + 1000)
            assert os.fstat(one).st_size == 10000 * (i + 1)
            assert os.pread(one, 9000, 10000 * i + 1000) == b"b" * 9000
        os.close(one)
        os.close(two)


def test_close_to_open():
    for i in range(60):
        data = bytes([65 + i % 26]) * random.choice((10, 5000, 20000, 400000))
        writer, reader = (A, B) if i % 2 else (B, A)
        put(writer + "/x/c", data)
        assert get(reader + "/x/c") == data, (i, len(data))


def test_appending():
    put(A + "/x/a", b"")

    def append(mount, char):
        fd = os.open(mount + "/x/a", os.O_WRONLY | os.O_APPEND)
        for _ in range(200):
            os.write(fd, char * 100)
        os.close(fd)

    together(append, (A, b"1"), (B, b"2"), (A, b"3"))
    data = get(A + "/x/a")
    assert len(data) == 60000 and data == get(B + "/x/a")
    assert all(len(set(data[i:i + 100])) == 1 for i in range(0, 60000, 100))


def test_one_directory():
    """Changes of both in one directory do not wait for each other's kernels for ever."""
    os.mkdir(A + "/x/dd")
    os.listdir(B + "/x/dd")

    def work(mount, tag):
        for i in range(60):
            path = mount + "/x/dd/%s%d" % (tag, i)
            put(path, b"")
            os.rename(path, path + "z")
            os.stat(path + "z")
            os.unlink(path + "z")

    together(work, (A, "a"), (B, "b"), (A, "c"), (B, "d"))
    assert os.listdir(A + "/x/dd") == os.listdir(B + "/x/dd") == []


def test_directory_attributes():
    """What a mount knows of a directory that only it changes is what metad says."""
    def same(name):
        mine, other = os.stat(A + name), os.stat(B + name)
        assert mine[:2] + mine[3:9] == other[:2] + other[3:9], (name, mine, other)
        assert (mine.st_mtime_ns, mine.st_ctime_ns) == (other.st_mtime_ns, other.st_ctime_ns), name

    os.mkdir(A + "/x/p")
    os.mkdir(A + "/x/q")
    steps = (
        lambda: put(A + "/x/p/f", b""),
        lambda: os.mkdir(A + "/x/p/d"),
        lambda: os.link(A + "/x/p/f", A + "/x/p/g"),
        lambda: os.symlink("f", A + "/x/p/s"),
        lambda: os.rename(A + "/x/p/f", A + "/x/p/h"),
        lambda: os.rename(A + "/x/p/d", A + "/x/q/d"),
        lambda: os.rename(A + "/x/p/h", A + "/x/p/g"),
        lambda: os.rename(A + "/x/p/s", A + "/x/p/g"),
        lambda: os.unlink(A + "/x/p/g"),
        lambda: os.rmdir(A + "/x/q/d"),
    )
    for step in steps:
        os.stat(A + "/x/p"), os.stat(A + "/x/q")
        os.path.exists(A + "/x/p/h"), os.path.exists(A + "/x/q/d")
        step()
        same("/x/p")
        same("/x/q")


def test_exclusive():
    """O_EXCL, mkdir and link are won by one."""
    won = []

    def race(mount, tag):
        for i in range(50):
            try:
                os.close(os.open(mount + "/x/e%d" % i, os.O_CREAT | os.O_EXCL))
                won.append(i)
            except FileExistsError:
                pass

    together(race, (A, "a"), (B, "b"), (B, "c"))
    assert sorted(won) == list(range(50))


def main():
    tests = [(n, f) for n, f in list(globals().items()) if n.startswith("test_")]
    for _, function in tests:
        os.mkdir(A + "/x")
        function()
        shutil.rmtree(A + "/x")
        assert not os.path.exists(B + "/x")
    print(f"{len(tests)} groups")


main()
