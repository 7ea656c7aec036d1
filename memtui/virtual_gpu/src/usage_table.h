/* The table of bytes in use, as it lies in the shared file.  Internal to the
 * accounting: usage.c says what the figures mean. */
#ifndef VGPU_USAGE_TABLE_H
#define VGPU_USAGE_TABLE_H

#include "core.h"

#include <pthread.h>

struct slot {
    int32_t pid;                       /* 0: free */
    uint32_t contexts;                 /* one bit a device */
    uint64_t started;                  /* the process's start time: pids are used again */
    uint64_t used[VGPU_MAX_DEVICES];   /* bytes, whole pages */
};

struct table {
    uint32_t magic;
    uint32_t layout;
    pthread_mutex_t lock;              /* robust: a process may be killed while it holds it */
    struct slot slots[VGPU_MAX_PROCESSES];
};

/* Maps the table at the first call, locks it, and returns it. */
struct table *table_lock(void);
void table_unlock(void);

/* Maps the table that VGPU_SHM names by now, if one was mapped before. */
void table_reopen(void);

/* Gives back what dead processes held.  With the lock held. */
void table_reap(void);

/* A process's start time in clock ticks since boot, and 0 for one that is gone
 * or a zombie: a real driver has freed its memory by then. */
uint64_t process_start_time(pid_t pid);

#endif
