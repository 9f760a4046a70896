"""System calls that runners have no use for, and the filter that refuses them (seccomp).

What the kernel offers to everybody beside files and the network is no concern of a pipeline, is shared with all
others of the machine, and is where most of the kernel's own faults were found: keyrings, other families of sockets,
``io_uring``, BPF, tracing, namespaces.

It runs before anything of ours is loaded, so it needs the standard library alone: the filter is written out as the
kernel reads it, for the processors in ``_NUMBERS``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import Final

# <linux/prctl.h>, <linux/seccomp.h>, <linux/filter.h>, <linux/audit.h>
PR_GET_SECCOMP, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 21, 22, 2
RET_ALLOW, RET_ERRNO = 0x7FFF0000, 0x00050000
BPF_LOAD, BPF_EQUAL, BPF_AT_LEAST, BPF_ANY_BIT, BPF_RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST, SECOND, THIRD = 0, 4, 16, 24, 32
"""Offsets in ``struct seccomp_data``; of arguments, the lower half on a processor that begins with it."""
ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32: Final = 0x40000000
"""The bit of calls with pointers of 32 bits on ``x86_64``, which have numbers of their own."""

# <linux/sched.h>, <asm-generic/ioctls.h>, <sys/socket.h>, <linux/netlink.h>
NEW_NAMESPACES: Final = 0x7E020000
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, NETLINK_ROUTE = 1, 2, 10, 16, 0
FAMILIES: Final = (AF_UNIX, AF_INET, AF_INET6)
"""Families of sockets that there are. Of netlink there is what tells of interfaces and routes, which Java and the C
library ask for."""

_NUMBERS: Final[dict[str, tuple[int | None, int | None]]] = {
    "socket": (41, 198),
    "clone": (56, 220),
    "ioctl": (16, 29),
    # Keyrings
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "sched_setaffinity": (203, 122),
    # Programs and queues in the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "modify_ldt": (154, None),
    "lookup_dcookie": (212, 18),
    # Namespaces and mounts
    "clone3": (435, 435),
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # The machine
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "adjtimex": (159, 171),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "iopl": (172, None),
    "ioperm": (173, None),
    "vhangup": (153, 58),
}
"""The numbers of calls, by processor in the order of ``ARCHITECTURES``; None: it has no such call."""

_JUDGED: Final = ("socket", "clone", "ioctl")
"""Calls that are refused by what is asked of them; all others are refused always."""
_UNKNOWN: Final = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
"""Calls that look as if the kernel had none of that name: libraries have another way then. That of ``clone3``, whose
flags a filter cannot read, is ``clone``."""

_libc = ctypes.CDLL(None, use_errno=True)


def why_unfiltered() -> str:
    """Return why calls cannot be filtered here, as a part of a sentence; empty: they can."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        return f"the numbers of system calls are not known for {machine}"
    if _libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0:
        return "this kernel has no seccomp"
    return ""


def refuse_calls() -> None:
    """Refuse these calls to this process and all that it starts; it can have no new privileges already.

    Raises:
        OSError: the kernel does not let us.
    """
    program = _program(os.uname().machine)
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    if _libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(header), 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "a filter of system calls")


def numbers_of(machine: str) -> dict[str, int]:
    """Return the numbers of the calls that a filter looks at, on a processor."""
    column = list(ARCHITECTURES).index(machine)
    return {name: number for name, both in _NUMBERS.items() if (number := both[column]) is not None}


def _program(machine: str) -> bytes:
    numbers = numbers_of(machine)
    parts = [
        _load(ARCHITECTURE) + _step(BPF_EQUAL, ARCHITECTURES[machine], 1, 0) + _refuse(errno.EPERM),
        _load(NUMBER),
    ]
    if machine == "x86_64":
        parts.append(_where(BPF_AT_LEAST, X32, _refuse(errno.ENOSYS)))
    for name, number in numbers.items():
        if name not in _JUDGED:
            parts.append(_where(BPF_EQUAL, number, _refuse(errno.ENOSYS if name in _UNKNOWN else errno.EPERM)))
    families = b"".join(_where(BPF_EQUAL, family, _allow()) for family in FAMILIES)
    route = _load(THIRD) + _where(BPF_EQUAL, NETLINK_ROUTE, _allow())
    families += _where(BPF_EQUAL, AF_NETLINK, route) + _refuse(errno.EAFNOSUPPORT)
    parts += [
        _where(BPF_EQUAL, numbers["socket"], _load(FIRST) + families),
        _where(
            BPF_EQUAL,
            numbers["clone"],
            _load(FIRST) + _where(BPF_ANY_BIT, NEW_NAMESPACES, _refuse(errno.EPERM)) + _allow(),
        ),
        _where(
            BPF_EQUAL,
            numbers["ioctl"],
            _load(SECOND)
            + _where(BPF_EQUAL, TIOCSTI, _refuse(errno.EPERM))
            + _where(BPF_EQUAL, TIOCLINUX, _refuse(errno.EPERM))
            + _allow(),
        ),
        _allow(),
    ]
    return b"".join(parts)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _load(offset: int) -> bytes:
    return _step(BPF_LOAD, offset)


def _where(test: int, value: int, then: bytes) -> bytes:
    """Do something where a test holds, and else go on behind it."""
    return _step(test, value, 0, len(then) // 8) + then


def _allow() -> bytes:
    return _step(BPF_RETURN, RET_ALLOW)


def _refuse(number: int) -> bytes:
    return _step(BPF_RETURN, RET_ERRNO | number)
