"""The machines of `checks/remedies`: containers with systemd, whose root is this machine's."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / "checks" / "remedies"
_loader = importlib.machinery.SourceFileLoader("remedies", str(CHECK))
remedies = importlib.util.module_from_spec(importlib.util.spec_from_loader("remedies", _loader))
# Its data classes look themselves up.
sys.modules["remedies"] = remedies
_loader.exec_module(remedies)


def unshared(*command: object) -> list[object]:
    """The command in its own mount namespace, with a /run in which nspawn leaves directories."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount -t tmpfs tmpfs /run; exec "$@"', "sh",
            *command]
