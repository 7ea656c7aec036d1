"""`python -m memtui` is `memtui`."""

from __future__ import annotations

import sys

from memtui.cli import main

if __name__ == "__main__":
    sys.exit(main())
