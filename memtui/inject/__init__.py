"""Gets memtui's agent into a running, unmodified Python process, and does that process no harm.

Standard library only. `memtui.inject.attach.attach` is the way in; `memtui.inject.preflight.check` only looks.
"""

from __future__ import annotations
