/* The table of bytes in use: where it lies, its lock, and whose slots are stale. */
#define _GNU_SOURCE
#include "usage_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TABLE_MAGIC 0x55504756u /* "VGPU"; change with the layout */
#define TABLE_LAYOUT 1u

static struct table *table;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

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

void table_reopen(void)
{
    struct table *before = table;

    if (!before)
        return;
    open_table();
    munmap(before, sizeof *before);
}

struct table *table_lock(void)
{
    pthread_once(&table_once, open_table);
    if (pthread_mutex_lock(&table->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&table->lock);
    return table;
}

void table_unlock(void)
{
    pthread_mutex_unlock(&table->lock);
}

/* ---- processes ----------------------------------------------------------- */

uint64_t process_start_time(pid_t pid)
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

void table_reap(void)
{
    pid_t self = getpid();

    for (int i = 0; i < VGPU_MAX_PROCESSES; i++) {
        struct slot *slot = &table->slots[i];
        if (slot->pid && slot->pid != self && process_start_time(slot->pid) != slot->started)
            memset(slot, 0, sizeof *slot);
    }
}
