"""The six workloads, and their shared modules."""

import sys

if sys.version_info < (3, 11):
    sys.exit("the workloads need Python 3.11 or later (Debian package python3)")
