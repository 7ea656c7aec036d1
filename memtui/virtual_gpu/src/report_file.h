/* A process's own report, as it lies in the file that report_file.py reads.
 * Little-endian, 8-byte fields, no padding. */
#ifndef VGPU_REPORT_FILE_H
#define VGPU_REPORT_FILE_H

#include "core.h"

#define REPORT_MAGIC "VGPURPT1" /* change with the layout, and in report_file.py */
#define REPORT_NOTES 512
#define REPORT_KIND_BYTES 16
#define REPORT_NAME_BYTES 232

struct report_device {
    uint64_t seen; /* this process has a context or bytes on it */
    uint64_t usable;
    uint64_t context;
    uint64_t current;
    uint64_t peak;
    uint64_t device_peak; /* of all processes, at this one's allocations */
    uint64_t failed;      /* allocations that did not fit */
    uint64_t largest_failed;
    uint64_t first_failed;
    uint64_t free_at_first;
};

struct report_note {
    char kind[REPORT_KIND_BYTES]; /* both end with a zero byte */
    char name[REPORT_NAME_BYTES];
    uint64_t count; /* written last: a note with none is not there yet */
};

struct report {
    char magic[8];
    uint64_t pid;
    uint64_t started; /* clock ticks since boot */
    struct report_device devices[VGPU_MAX_DEVICES];
    struct report_note notes[REPORT_NOTES];
};

/* Whether somebody wants to know: a report file or a trace is set. */
int report_is_wanted(void);

/* This process's part for a device; NULL without a file.  With the table's lock held. */
struct report_device *report_device(int physical);

/* The counter of a note, made at its first use; NULL without a file or where
 * the table is full.  It stays valid until the process forks. */
uint64_t *report_counter(const char *kind, const char *name);

/* Held over a fork. */
void report_lock(void);
void report_unlock(void);
void report_lock_anew(void);

#endif
