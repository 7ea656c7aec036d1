/* Who read values that a kernel would have computed.  A line that reads again
 * is recognised by its frames and by the depth of the native stack, which
 * differs between the operators that one place in a program may call; then only
 * its counter is raised. */
#define _GNU_SOURCE
#include "host_reads.h"
#include "report_file.h"

#include <stdio.h>
#include <string.h>

#define KNOWN_READERS 1024 /* a power of two */

static struct reader {
    uint64_t key;
    void *code; /* a reference, so that its address is not used again */
    unsigned generation;
    uint64_t *counter;
} readers[KNOWN_READERS];

static struct reader *place_of(uint64_t key)
{
    return &readers[key * 0x9e3779b97f4a7c15ull >> 48 & (KNOWN_READERS - 1)];
}

/* Raises the counter of a line that is known. */
static int raise_known(uint64_t key)
{
    const struct reader *reader = place_of(key);

    report_lock(); /* not every interpreter has a lock of its own */
    int is_known = reader->key == key && reader->generation == vgpu_fork_generation();
    if (is_known)
        __atomic_add_fetch(reader->counter, 1, __ATOMIC_RELAXED);
    report_unlock();
    return is_known;
}

/* Inside python_enter(); the reference passes to the table. */
static void remember_reader(uint64_t key, void *code, uint64_t *counter)
{
    struct reader *reader = place_of(key);

    report_lock();
    void *replaced = reader->code;
    *reader = (struct reader){ key, code, vgpu_fork_generation(), counter };
    report_unlock();
    python_release(replaced);
}

/* Where a read comes from: a known line has been counted by now. */
struct origin {
    int is_counted;
    uint64_t key; /* 0: of no line */
    void *code;   /* a reference */
    int prints;
    char line[REPORT_NAME_BYTES + 256];
};

static void find_origin(struct origin *origin, uintptr_t depth)
{
    struct python_line line = python_line_find();

    origin->key = line.code ? line.key ^ depth : 0;
    origin->code = line.code;
    origin->prints = line.prints;
    origin->is_counted = origin->key && raise_known(origin->key);
    if (line.code && !origin->is_counted)
        python_line_text(&line, origin->line, sizeof origin->line);
    python_release(line.frame);
    if (origin->is_counted)
        python_release(origin->code);
}

static void count_new(const struct origin *origin)
{
    char what[64] = "print", name[sizeof origin->line + sizeof what + 1];

    if (!origin->prints)
        native_stack_reader(what, sizeof what);
    snprintf(name, sizeof name, "%s %s", origin->line, what);
    vgpu_note("host read", name);
    if (!origin->code || !python_enter())
        return; /* a reference more does no harm */
    uint64_t *counter = report_counter("host read", name);
    if (counter)
        remember_reader(origin->key, origin->code, counter);
    else
        python_release(origin->code);
    python_leave();
}

void host_read_note(void)
{
    struct origin origin = { 0, 0, NULL, 0, "?" };

    if (!report_is_wanted())
        return;
    if (python_enter()) {
        find_origin(&origin, (uintptr_t)__builtin_frame_address(0));
        python_leave();
    }
    /* Without the interpreter's lock: the loader is asked, which has its own. */
    if (!origin.is_counted)
        count_new(&origin);
}

int host_read_is_of(const char *operator)
{
    char what[64];

    native_stack_reader(what, sizeof what);
    return !strcmp(what, operator);
}

int host_read_checks_arguments(void)
{
    /* "Is no count negative?" and "is every element finite?" */
    return host_read_is_of("repeat_interleave") || host_read_is_of("linalg_eig");
}
