/* Bytes in use, per process and device.  The table lies in the file named by
 * VGPU_SHM, so that processes compete for a device and NVML in one process
 * sees what another holds; without it, only a process and its forks share. */
#define _GNU_SOURCE
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TABLE_MAGIC 0x55504756u /* "VGPU"; change with the layout */
#define TABLE_LAYOUT 1u

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

static struct table *table;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;
static struct slot *mine;
static unsigned mine_generation;
static int leaving;                    /* the process is at its end: nothing is charged any more */

/* For the report, this process only. */
static uint64_t peak[VGPU_MAX_DEVICES];
static unsigned refused[VGPU_MAX_DEVICES];

static __thread int current_ordinal;

VGPU_API int vgpu_current_ordinal(void)
{
    return current_ordinal;
}

VGPU_API void vgpu_set_current_ordinal(int ordinal)
{
    current_ordinal = ordinal;
}

/* ---- the table ---------------------------------------------------------- */

static int open_shared_file(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return -1;
    struct stat status;
    if (flock(fd, LOCK_EX) || fstat(fd, &status)
        || (status.st_size < (off_t)sizeof *table && ftruncate(fd, sizeof *table))) {
        close(fd);
        return -1;
    }
    return fd;
}

static void initialise_table(void)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&table->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    table->magic = TABLE_MAGIC;
    table->layout = TABLE_LAYOUT;
}

static struct table *map_table(int fd)
{
    int flags = fd >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS;
    void *address = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, flags, fd, 0);

    return address == MAP_FAILED ? NULL : address;
}

static void open_table(void)
{
    const char *path = getenv("VGPU_SHM");
    int fd = -1;

    if (path && *path && (fd = open_shared_file(path)) < 0)
        vgpu_say("cannot share %s: %s", path, strerror(errno));
    table = map_table(fd);
    if (table && fd >= 0 && table->magic && (table->magic != TABLE_MAGIC || table->layout != TABLE_LAYOUT)) {
        vgpu_say("%s was written by another version: usage is not shared", path);
        munmap(table, sizeof *table);
        close(fd);
        fd = -1;
        table = map_table(-1);
    }
    if (!table) {
        /* Without a table there is no accounting, and a figure that is silently
         * wrong is worse than none. */
        vgpu_say("cannot map the usage table: %s", strerror(errno));
        abort();
    }
    if (!table->magic)
        initialise_table();
    if (fd >= 0) {
        flock(fd, LOCK_UN);
        close(fd);
    }
}

static void lock_table(void)
{
    pthread_once(&table_once, open_table);
    if (pthread_mutex_lock(&table->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&table->lock);
}

static void unlock_table(void)
{
    pthread_mutex_unlock(&table->lock);
}

/* ---- processes ----------------------------------------------------------- */

/* A process's start time in clock ticks since boot, and 0 for one that is gone
 * or a zombie: a real driver has freed its memory by then. */
static uint64_t start_time(pid_t pid)
{
    char path[32], text[1024];

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = 0;

    /* Field 2 is the name in parentheses and may hold anything but ends at the
     * last one; the state is field 3 and the start time field 22. */
    char *field = strrchr(text, ')');
    char state;
    unsigned long long started;
    if (!field || sscanf(field + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                         &state, &started) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : started ? started : 1;
}

/* Gives back what dead processes held.  With the lock held. */
static void reap(void)
{
    pid_t self = getpid();

    for (int i = 0; i < VGPU_MAX_PROCESSES; i++) {
        struct slot *slot = &table->slots[i];
        if (slot->pid && slot->pid != self && start_time(slot->pid) != slot->started)
            memset(slot, 0, sizeof *slot);
    }
}

/* This process's slot, or NULL where there is no more room.  With the lock held. */
static struct slot *my_slot(void)
{
    if (mine && mine_generation == vgpu_fork_generation())
        return mine;

    pid_t self = getpid();
    struct slot *free_slot = NULL;
    reap();
    for (int i = 0; i < VGPU_MAX_PROCESSES && !free_slot; i++) {
        if (!table->slots[i].pid || table->slots[i].pid == self)
            free_slot = &table->slots[i];
    }
    if (!free_slot)
        return NULL;
    memset(free_slot, 0, sizeof *free_slot);
    free_slot->started = start_time(self);
    free_slot->pid = self;
    mine = free_slot;
    mine_generation = vgpu_fork_generation();
    memset(peak, 0, sizeof peak);
    memset(refused, 0, sizeof refused);
    return mine;
}

/* ---- accounting ----------------------------------------------------------- */

static uint64_t used_by_all(int physical)
{
    uint64_t total = 0;

    for (int i = 0; i < VGPU_MAX_PROCESSES; i++) {
        if (table->slots[i].pid)
            total += table->slots[i].used[physical];
    }
    return total;
}

static int fits(int physical, uint64_t bytes)
{
    uint64_t usable = vgpu_usable(physical), used = used_by_all(physical);

    return bytes <= usable && used <= usable - bytes;
}

static int take_locked(int physical, uint64_t bytes)
{
    uint64_t pages = vgpu_whole_pages(bytes);
    struct slot *slot = my_slot();

    if (!slot)
        return -1;
    if (!fits(physical, pages)) {
        reap(); /* only now: reading /proc for every allocation would be slow */
        if (!fits(physical, pages)) {
            refused[physical]++;
            return -1;
        }
    }
    slot->used[physical] += pages;
    if (slot->used[physical] > peak[physical])
        peak[physical] = slot->used[physical];
    return 0;
}

VGPU_API int vgpu_take(int physical, uint64_t bytes)
{
    if (leaving)
        return 0;
    lock_table();
    int result = take_locked(physical, bytes);
    unlock_table();
    return result;
}

VGPU_API void vgpu_give(int physical, uint64_t bytes)
{
    if (leaving)
        return;
    lock_table();
    struct slot *slot = my_slot();
    uint64_t pages = vgpu_whole_pages(bytes);
    /* A forked child frees what its parent allocated: that is not its own. */
    if (slot)
        slot->used[physical] -= pages <= slot->used[physical] ? pages : slot->used[physical];
    unlock_table();
}

VGPU_API int vgpu_enter_context(int physical)
{
    static __thread uint32_t known;
    static __thread unsigned known_generation;
    uint32_t bit = 1u << physical;
    int result = 0;

    if (leaving || (known_generation == vgpu_fork_generation() && (known & bit)))
        return 0;
    lock_table();
    struct slot *slot = my_slot();
    if (!slot)
        result = -1;
    else if (!(slot->contexts & bit)) {
        uint64_t context = vgpu_settings()->context;
        result = context ? take_locked(physical, context) : 0;
        if (!result)
            slot->contexts |= bit;
    }
    unlock_table();
    if (!result) {
        known = known_generation == vgpu_fork_generation() ? known | bit : bit;
        known_generation = vgpu_fork_generation();
    }
    return result;
}

VGPU_API int vgpu_has_context(int physical)
{
    return mine && mine_generation == vgpu_fork_generation() && (mine->contexts >> physical & 1);
}

VGPU_API uint64_t vgpu_used(int physical)
{
    lock_table();
    reap();
    uint64_t total = used_by_all(physical);
    unlock_table();
    return total;
}

VGPU_API int vgpu_users(int physical, struct vgpu_usage *out, int room)
{
    int count = 0;

    lock_table();
    reap();
    for (int i = 0; i < VGPU_MAX_PROCESSES; i++) {
        const struct slot *slot = &table->slots[i];
        if (!slot->pid || (!(slot->contexts >> physical & 1) && !slot->used[physical]))
            continue;
        if (count < room)
            out[count] = (struct vgpu_usage){ slot->pid, slot->used[physical] };
        count++;
    }
    unlock_table();
    return count;
}

/* ---- the end --------------------------------------------------------------- */

static void report(void)
{
    for (int i = 0; i < vgpu_settings()->device_count; i++) {
        if (mine->contexts >> i & 1)
            vgpu_say("pid %d, device %d: peak %.1f MiB of %.1f MiB (context %.1f MiB included), %u refused", (int)mine->pid,
                     i, (double)peak[i] / (1 << 20), (double)vgpu_usable(i) / (1 << 20),
                     (double)vgpu_settings()->context / (1 << 20), refused[i]);
    }
    vgpu_say("pid %d: %llu host reads of computed values were answered with zeros", (int)mine->pid,
             (unsigned long long)vgpu_zero_reads());
}

__attribute__((destructor)) static void leave(void)
{
    if (!mine || mine_generation != vgpu_fork_generation())
        return;
    if (vgpu_settings()->report && mine->contexts)
        report();
    /* Destructors that run later still free blocks: those are no longer charged. */
    leaving = 1;
    lock_table();
    memset(mine, 0, sizeof *mine);
    mine = NULL;
    unlock_table();
}
