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

/* Raises the counter of a line that is known.  Under the interpreter's lock, as
 * all of this table. */
static int raise_known(uint64_t key)
{
    const struct reader *reader = place_of(key);

    if (reader->key != key || reader->generation != vgpu_fork_generation())
        return 0;
    __atomic_add_fetch(reader->counter, 1, __ATOMIC_RELAXED);
    return 1;
}

static void count_new(uint64_t key, struct python_line *line, const char *line_text)
{
    char what[64], name[REPORT_NAME_BYTES + 512];

    if (line->prints)
        strcpy(what, "print");
    else
        native_stack_reader(what, sizeof what);
    snprintf(name, sizeof name, "%s %s", line_text, what);
    vgpu_note("host read", name);
    uint64_t *counter = key ? report_counter("host read", name) : NULL;
    if (!counter)
        return;
    struct reader *reader = place_of(key);
    python_release(reader->code);
    *reader = (struct reader){ key, line->code, vgpu_fork_generation(), counter };
    line->code = NULL;
}

static void note_with_line(uintptr_t depth)
{
    char text[REPORT_NAME_BYTES + 256] = "?";
    struct python_line line = python_line_find();
    uint64_t key = line.code ? line.key ^ depth : 0;

    if (!key || !raise_known(key)) {
        if (line.code)
            python_line_text(&line, text, sizeof text);
        count_new(key, &line, text);
    }
    python_release(line.frame);
    python_release(line.code);
}

void host_read_note(void)
{
    if (!report_is_wanted())
        return;
    if (python_enter()) {
        note_with_line((uintptr_t)__builtin_frame_address(0));
        python_leave();
    } else {
        struct python_line none = { 0, NULL, NULL, 0 };
        count_new(0, &none, "?");
    }
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
