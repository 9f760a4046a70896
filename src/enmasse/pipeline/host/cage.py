"""A network and a view of the file system of its own, for the process that is to become a runner.

It runs before anything of ours is loaded, so it needs the standard library alone.

Rules:
1. The network has a loopback interface and nothing else. What listens in it leads to the relay.
2. The view is read only but for the runner's folder and what is made for it. What is hidden is empty there, but
   for what a runner needs.
3. A process that is not root makes both in a user namespace, where it keeps its user.
4. All of it or nothing: what is half closed would be taken for closed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from enmasse.net.special_addresses import Network
from enmasse.pipeline.host.reach import Reach

# <sched.h>, <sys/mount.h>, <linux/landlock.h>
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x40000000
CLONE_NEWPID = 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE, MS_REMOUNT, MS_RDONLY = (
    2,
    4,
    8,
    4096,
    16384,
    1 << 18,
    32,
    1,
)
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = -100, 0x8000, 1
SYS_MOUNT_SETATTR, SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 442, 444, 445, 446
LANDLOCK_MAKE_CHAR, LANDLOCK_MAKE_BLOCK, LANDLOCK_REFER, LANDLOCK_CONNECT_TCP = 1 << 6, 1 << 11, 1 << 13, 2
LANDLOCK_RULE_PATH_BENEATH, LANDLOCK_RULE_NET_PORT = 1, 2
LANDLOCK_SCOPE_ABSTRACT_UNIX, LANDLOCK_SCOPE_SIGNAL = 1, 2
# <linux/rtnetlink.h>, <linux/sockios.h>
RTM_NEWROUTE, NLMSG_ERROR = 24, 2
NLM_F_REQUEST, NLM_F_ACK, NLM_F_REPLACE, NLM_F_CREATE = 1, 4, 0x100, 0x400
RT_TABLE_LOCAL, RTPROT_STATIC, RT_SCOPE_HOST, RTN_LOCAL = 255, 4, 254, 2
RTA_DST, RTA_OIF = 1, 4
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1

PASSWORDS, HOSTS = "/etc/passwd", "/etc/hosts"
TEMPORARY = "size=64m,mode=1777"
TEMPORARY_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # to be hidden, not to be used
HIDDEN_FOLDERS = ("/run",)
"""The sockets of what else runs here, and a folder that everybody may write to."""
KEYS = ("/proc/keys", "/proc/key-users")
"""The keyrings that somebody may look at."""

_libc = ctypes.CDLL(None, use_errno=True)


def enter_namespaces(reach: Reach | None, *, is_alone: bool = False) -> list[socket.socket]:
    """Leave the machine's mounts and System V objects, and its network.

    Args:
        reach: the places that the new network leads to; None: this process keeps the one it has.
        is_alone: whether the next process that is started is the first one of a space of process numbers.

    Returns:
        Sockets that listen in the new network; connections to them are accepted by their owner.

    Raises:
        OSError: the kernel does not let us.
    """
    user, group = os.getuid(), os.getgid()
    wanted = CLONE_NEWNS | CLONE_NEWIPC | (0 if reach is None else CLONE_NEWNET) | (CLONE_NEWPID if is_alone else 0)
    network = _network()
    check(_libc.unshare(wanted if user == 0 else wanted | CLONE_NEWUSER), "namespaces of its own")
    if user != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text, encoding="ascii")
    if reach is None:
        return []
    if _network() == network:
        raise OSError(errno.EINVAL, "this is the machine's, and not to be changed", "a network of its own")
    return _open_network(reach)


def make_view(
    user: int, folder: str, see: Sequence[str], hide: Sequence[str], reach: Reach | None, *, is_alone: bool
) -> None:
    """Hide what is to be hidden, and make what is needed reachable.

    Args:
        user: the user who is to run here.
        folder: the folder that it may write.
        see: the paths that it must be able to read.
        hide: the paths that it must not see.
        reach: the hosts whose names it has to find in its own network; None: it has none.
        is_alone: whether this process is the first one of a space of process numbers, which it is to see.
    """
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    if is_alone:
        _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        for path in KEYS:
            if Path(path).exists():
                _mount("/dev/null", path, None, MS_BIND)
    folder = os.path.realpath(folder)
    needed = [*(os.path.realpath(path) for path in see), folder]
    closed = [found for path in needed if (found := _closed_above(path, user)) is not None]
    # Who keeps the machine's network finds names by what lies in /run.
    covered = (*TEMPORARY_FOLDERS, *(() if reach is None else HIDDEN_FOLDERS), *hide, *closed)
    areas = _outermost(os.path.realpath(path) for path in covered if Path(path).is_dir())
    kept = {path: os.open(path, os.O_PATH) for path in dict.fromkeys(needed) if _area_of(path, areas)}
    is_all = _set_read_only("/", recursive=True)
    for area in areas:
        options = TEMPORARY if area in TEMPORARY_FOLDERS else "size=1m,mode=755"
        _mount("tmpfs", area, "tmpfs", MS_NOSUID | MS_NODEV, options)
    for path, number in sorted(kept.items()):
        _place(path, number)
        _mount(f"/proc/self/fd/{number}", path, None, MS_BIND | MS_REC)
        if path == folder:
            _set_read_only(path, clear=True)
        elif not is_all:
            _mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
        os.close(number)
    if reach is not None:
        _cover(HOSTS, _hosts(reach))
    _cover(PASSWORDS, _passwords(user, folder))
    for area in areas:
        if area not in TEMPORARY_FOLDERS:
            _mount(None, area, None, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, "size=1m,mode=755")


def _network() -> str:
    return os.readlink("/proc/self/ns/net")  # noqa: PTH115  # its text is all that is wanted


def _open_network(reach: Reach) -> list[socket.socket]:
    """Have a new network's loopback interface run, take what may be reached for its own, and listen there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))
    for network in reach.networks:
        _take_for_own(network)
    return [_listen(version, port) for version, port in reach.ports]


def confine(ports: Iterable[int] | None) -> bool:
    """Keep this process and all that it starts from other processes, and from other ports, by Landlock.

    It may neither signal nor trace processes that it did not start. Files are moved from folder to folder as before,
    which the first version of Landlock (Linux before 5.19) knows no rule for: there it is left out.

    Args:
        ports: TCP connections go to these alone; None: to all.

    Returns:
        Whether ports are bounded as asked.
    """
    version = _libc.syscall(SYS_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if version < 2:
        return ports is None
    is_bounded = ports is not None and version >= 4
    rules = struct.pack(
        "=QQQ",
        LANDLOCK_MAKE_CHAR | LANDLOCK_MAKE_BLOCK | LANDLOCK_REFER,  # nobody needs devices
        LANDLOCK_CONNECT_TCP if is_bounded else 0,
        LANDLOCK_SCOPE_ABSTRACT_UNIX | LANDLOCK_SCOPE_SIGNAL if version >= 6 else 0,
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    number = _libc.syscall(SYS_LANDLOCK_CREATE, rules, ctypes.c_size_t(size), 0)
    check(min(number, 0), "a Landlock rule")
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    rule = struct.pack("=Qi", LANDLOCK_REFER, root)
    check(_libc.syscall(SYS_LANDLOCK_ADD, number, LANDLOCK_RULE_PATH_BENEATH, rule, 0), "a Landlock rule of moves")
    os.close(root)
    for port in (ports or ()) if is_bounded else ():
        rule = struct.pack("=QQ", LANDLOCK_CONNECT_TCP, port)
        check(_libc.syscall(SYS_LANDLOCK_ADD, number, LANDLOCK_RULE_NET_PORT, rule, 0), "a Landlock rule of a port")
    check(_libc.syscall(SYS_LANDLOCK_RESTRICT, number, 0), "Landlock")
    os.close(number)
    return ports is None or is_bounded


def _take_for_own(network: Network) -> None:
    """Have the loopback interface answer for all addresses of a network."""
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    kind = (RT_TABLE_LOCAL, RTPROT_STATIC, RT_SCOPE_HOST, RTN_LOCAL)
    body = struct.pack("=8BI", family, network.prefixlen, 0, 0, *kind, 0)
    address = network.network_address.packed
    body += struct.pack("=HH", 4 + len(address), RTA_DST) + address
    body += struct.pack("=HHI", 8, RTA_OIF, socket.if_nametoindex("lo"))
    flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(body), RTM_NEWROUTE, flags, 1, 0) + body)
        _, answer, _, _, _, number = struct.unpack_from("=IHHIIi", kernel.recv(4096))
    if answer == NLMSG_ERROR and number:
        raise OSError(-number, os.strerror(-number), f"a route to {network}")


def _listen(version: int, port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    if version == 6:
        found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("", port))
    found.listen(128)
    return found


def _hosts(reach: Reach) -> str:
    # A name with two addresses leads now to the one, now to the other: this machine's own may be a listed one.
    own = " ".join(sorted({"localhost", socket.gethostname().lower()} - reach.names.keys()))
    lines = [f"127.0.0.1 {own}", *(f"{at} {name}" for name, at in reach.names.items())]
    return "\n".join(lines) + "\n"


def _passwords(user: int, folder: str) -> str:
    """Give the number a name and a home: without, Java has neither, and Hadoop's part of Spark does not start."""
    known = Path(PASSWORDS).read_text(encoding="utf-8", errors="surrogateescape").rstrip()
    if any(line.split(":")[2:3] == [str(user)] for line in known.splitlines()):
        return known + "\n"
    return f"{known}\nenmasse-{user}:x:{user}:{user}::{folder}/work:/usr/sbin/nologin\n"


def _cover(path: str, text: str) -> None:
    """Put another file in the place of one, if there is one."""
    if not Path(path).exists():
        return
    draft = Path(TEMPORARY_FOLDERS[0], "draft")
    draft.write_text(text, encoding="utf-8", errors="surrogateescape")
    draft.chmod(0o444)
    _mount(str(draft), path, None, MS_BIND)
    _set_read_only(path)
    draft.unlink()


def _place(path: str, number: int) -> None:
    """Make what something can be mounted over."""
    if stat.S_ISDIR(os.fstat(number).st_mode):
        Path(path).mkdir(mode=0o755, parents=True, exist_ok=True)
        return
    Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    Path(path).touch(0o444)


def _closed_above(path: str, user: int) -> str | None:
    """Return the outermost folder above a path that a user cannot pass."""
    for above in reversed(Path(path).parents):
        found = above.stat()
        mode = found.st_mode >> 6 if found.st_uid == user else found.st_mode
        if not mode & stat.S_IXOTH:
            return str(above)
    return None


def _outermost(paths: Iterable[str]) -> list[str]:
    found: list[str] = []
    for path in sorted(set(paths)):
        if not _area_of(path, found):
            found.append(path)
    return found


def _area_of(path: str, areas: Iterable[str]) -> str | None:
    return next((area for area in areas if path == area or path.startswith(area + "/")), None)


def _set_read_only(path: str, *, recursive: bool = False, clear: bool = False) -> bool:
    """Let nothing be written below a mount, or let it again; whether the kernel knows how (Linux 5.12)."""
    change = struct.pack("=QQQQ", 0 if clear else MOUNT_ATTR_RDONLY, MOUNT_ATTR_RDONLY if clear else 0, 0, 0)
    words = (AT_FDCWD, os.fsencode(path), AT_RECURSIVE if recursive else 0, change, ctypes.c_size_t(len(change)))
    result = _libc.syscall(SYS_MOUNT_SETATTR, *words)
    if result and ctypes.get_errno() == errno.ENOSYS:
        return False
    check(result, f"a view of {path} that is read only")
    return True


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    words = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    check(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), f"mounting {target}")


def check(result: int, what: str) -> None:
    """Raise the error of a call into the C library that has failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
