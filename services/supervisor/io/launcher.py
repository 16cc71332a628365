"""Runs a command that dies with the supervisor: `python launcher.py SUPERVISOR_PID COMMAND…`.

The kernel kills the process when its parent ends (PR_SET_PDEATHSIG survives exec), also when the parent was killed with −9
and could tell nobody. A launcher instead of `preexec_fn`, since forking a process that holds gRPC threads is not safe and
`preexec_fn` rules vfork out. Standard library only: it runs without site-packages.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Arranges the death signal, then becomes the command."""
    supervisor, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:  # it died before the line above
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - the supervisor's own command


if __name__ == "__main__":
    main()
