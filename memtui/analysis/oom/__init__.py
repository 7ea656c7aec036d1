"""Why a program ran out of memory: from a message that somebody pasted, or from what memtui saw itself."""
