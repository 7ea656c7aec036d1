"""Small training scripts that `memtui demo` and the tests run; they know nothing of memtui."""
