/* The report: a shared mapping of a file of this process's own, so that it is
 * current whenever somebody reads it, also after a SIGKILL. */
#define _GNU_SOURCE
#include "report_file.h"
#include "usage_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NAMES_OF_ONE_PID 16 /* exec() keeps the pid, and a pid is used again */
#define HOST_READ_LINES 256
#define OTHERS "others"
#define KEPT_FOR_OTHERS 8

static struct report *mapped;
static unsigned mapped_generation;
static int tried;

/* The innermost lock: nothing else is asked for while it is held. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void report_lock(void)
{
    pthread_mutex_lock(&lock);
}

void report_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void report_lock_anew(void)
{
    pthread_mutex_init(&lock, NULL);
}

int report_is_wanted(void)
{
    return vgpu_settings()->report_file || vgpu_settings()->trace;
}

/* ---- the file ------------------------------------------------------------- */

static int create_file(const char *prefix)
{
    char path[4096];
    int fd = -1;

    for (int i = 0; i < NAMES_OF_ONE_PID && fd < 0; i++) {
        snprintf(path, sizeof path, i ? "%s.%d.%d" : "%s.%d", prefix, (int)getpid(), i);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        vgpu_say("cannot write the report %s.%d: %s", prefix, (int)getpid(), strerror(errno));
    return fd;
}

static struct report *map_file(const char *prefix)
{
    int fd = create_file(prefix);

    if (fd < 0)
        return NULL;
    /* Blocks are asked for now: a full disk would end the process with SIGBUS later. */
    int status = posix_fallocate(fd, 0, sizeof(struct report));
    void *address = status ? MAP_FAILED
                           : mmap(NULL, sizeof(struct report), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (address == MAP_FAILED) {
        vgpu_say("cannot map the report: %s", strerror(status ? status : errno));
        return NULL;
    }
    struct report *report = address;
    report->pid = (uint64_t)getpid();
    report->started = process_start_time(getpid());
    memcpy(report->magic, REPORT_MAGIC, sizeof report->magic);
    return report;
}

/* With the lock held. */
static struct report *my_report(void)
{
    if (!vgpu_settings()->report_file || (tried && mapped_generation == vgpu_fork_generation()))
        return mapped;
    if (mapped)
        munmap(mapped, sizeof *mapped); /* the parent's */
    tried = 1;
    mapped_generation = vgpu_fork_generation();
    mapped = map_file(vgpu_settings()->report_file);
    return mapped;
}

struct report_device *report_device(int physical)
{
    report_lock();
    struct report *report = my_report();
    report_unlock();
    if (!report)
        return NULL;
    struct report_device *device = &report->devices[physical];
    if (!device->seen) {
        device->usable = vgpu_usable(physical);
        device->seen = 1;
    }
    return device;
}

/* ---- notes ------------------------------------------------------------------ */

static int matches(const struct report_note *note, const char *kind, const char *name)
{
    return !strcmp(note->kind, kind) && !strcmp(note->name, name);
}

/* The note, or the free place for it, or NULL.  With the lock held. */
static struct report_note *find_note(struct report *report, const char *kind, const char *name)
{
    int is_read = !strcmp(kind, "host read"), is_others = !strcmp(name, OTHERS), reads = 0;

    for (int i = 0; i < REPORT_NOTES; i++) {
        struct report_note *note = &report->notes[i];
        if (!note->kind[0])
            return (i < REPORT_NOTES - KEPT_FOR_OTHERS && (!is_read || reads < HOST_READ_LINES)) || is_others ? note
                                                                                                            : NULL;
        if (matches(note, kind, name))
            return note;
        reads += !strcmp(note->kind, "host read");
    }
    return NULL;
}

/* Whole, or its end, which tells more of a path. */
static void copy_text(char *to, size_t room, const char *text)
{
    size_t length = strlen(text);

    if (length < room)
        memcpy(to, text, length + 1);
    else
        snprintf(to, room, "...%s", text + length - (room - 4));
}

uint64_t *report_counter(const char *kind, const char *name)
{
    char short_kind[REPORT_KIND_BYTES], short_name[REPORT_NAME_BYTES];
    uint64_t *counter = NULL;

    copy_text(short_kind, sizeof short_kind, kind);
    copy_text(short_name, sizeof short_name, name);
    report_lock();
    struct report *report = my_report();
    if (report) {
        struct report_note *note = find_note(report, short_kind, short_name);
        if (!note) {
            memcpy(short_name, OTHERS, sizeof OTHERS);
            note = find_note(report, short_kind, short_name);
        }
        if (note && !note->kind[0]) {
            memcpy(note->name, short_name, sizeof note->name);
            memcpy(note->kind, short_kind, sizeof note->kind);
        }
        counter = note ? &note->count : NULL;
    }
    report_unlock();
    return counter;
}

VGPU_API void vgpu_note(const char *kind, const char *name)
{
    uint64_t *counter = report_counter(kind, name);

    vgpu_trace("%s: %s", kind, name);
    if (counter)
        __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}
