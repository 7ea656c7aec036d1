"""One page about a training: what is known of its memory, how each figure was had, and what to do."""
