"""The commands of `memtui`, one a module; each is imported only when it is called."""
