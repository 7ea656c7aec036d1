"""One tensor of a GiB."""

from __future__ import annotations

import torch
from figures import say

kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
say()
