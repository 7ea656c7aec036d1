/* Who read values that a kernel would have computed.  Internal to the core. */
#ifndef VGPU_HOST_READS_H
#define VGPU_HOST_READS_H

#include "core.h"

/* Notes a read by the calling thread as a "host read" named "file:line what". */
void host_read_note(void);

/* Whether the calling thread reads a truth value by which an operator checks
 * its own arguments: zero would mean that they are wrong. */
int host_read_checks_arguments(void);

/* Whether the calling thread reads for that operator of torch. */
int host_read_is_of(const char *operator);

/* ---- native_stack.c ------------------------------------------------------- */

/* The torch operator on whose behalf the calling thread reads: "nonzero",
 * "item", "copy", or "unknown". */
void native_stack_reader(char *out, size_t room);

/* ---- python_line.c --------------------------------------------------------- */

struct python_line {
    uint64_t key;       /* of the frames up to that line; 0: there is none */
    void *frame, *code; /* references held by the caller */
    int prints;         /* it makes a tensor's text */
};

/* Takes the interpreter's lock where this thread may; returns 0 where not. */
int python_enter(void);
void python_leave(void);

/* The innermost line outside torch's files.  Inside python_enter(). */
struct python_line python_line_find(void);
void python_line_text(const struct python_line *line, char *out, size_t room); /* "file:line" */
void python_release(void *object);                                            /* may be NULL */

#endif
