from __future__ import annotations

import sys

from memtui.virtual_gpu.command import main

sys.exit(main())
