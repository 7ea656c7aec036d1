/* Which of torch's operators a call was made for, read off the native stack.
 * Every operator is called through an exported function of its own,
 * at::_ops::NAME::call or ::redispatch, so the dynamic symbols are enough. */
#define _GNU_SOURCE
#include "host_reads.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

#define DEEPEST 96
#define NAME_ROOM 48
#define KNOWN_ADDRESSES 2048 /* a power of two */

enum kind { NOTHING, OPERATOR, PYTHON };

/* dladdr() searches all of a library's symbols: a millisecond for torch's. */
static struct known {
    void *address;
    enum kind kind;
    char name[NAME_ROOM];
} known[KNOWN_ADDRESSES];

/* Reads the name after a mangled prefix: a length, then that many letters. */
static int read_name(const char *mangled, const char *prefix, char *out)
{
    size_t length = strlen(prefix);

    if (strncmp(mangled, prefix, length))
        return 0;
    char *name;
    unsigned long letters = strtoul(mangled + length, &name, 10);
    if (!letters || letters >= NAME_ROOM || strlen(name) < letters)
        return 0;
    memcpy(out, name, letters);
    out[letters] = 0;
    return 1;
}

static void look_up(struct known *entry, void *address)
{
    Dl_info info;

    entry->address = address;
    entry->kind = NOTHING;
    /* One byte back: a return address may be the next function's first byte. */
    if (!dladdr((char *)address - 1, &info))
        return;
    if (info.dli_fname && strstr(info.dli_fname, "/libtorch_python.so")) {
        entry->kind = PYTHON; /* it calls operators, and none calls it but through the interpreter */
        return;
    }
    if (!info.dli_sname)
        return;
    if (read_name(info.dli_sname, "_ZN2at4_ops", entry->name)
        || read_name(info.dli_sname, "_ZN6vision3ops", entry->name))
        entry->kind = OPERATOR;
    else if (!strncmp(info.dli_sname, "_PyEval_", 8) || !strncmp(info.dli_sname, "PyEval_", 7))
        entry->kind = PYTHON;
}

/* No lock is held while the loader is asked: it has one of its own, under which
 * libraries' constructors call CUDA. */
static struct known know(void *address)
{
    struct known *place = &known[((uintptr_t)address * 0x9e3779b97f4a7c15ull >> 48) % KNOWN_ADDRESSES];

    vgpu_lock();
    struct known found = *place;
    vgpu_unlock();
    if (found.address != address) {
        look_up(&found, address);
        vgpu_lock();
        *place = found;
        vgpu_unlock();
    }
    return found;
}

/* Operators that only hand values over: who called them says more. */
static const char *plain_reader(const char *name)
{
    static const char *const items[] = { "_local_scalar_dense", "item", "is_nonzero" };
    static const char *const copies[] = { "copy_", "_to_copy", "_copy_from", "to", "to_dtype", "to_device",
                                          "to_dtype_layout", "to_other", "clone", "contiguous", "_to_cpu" };

    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        if (!strcmp(name, items[i]))
            return "item";
    }
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        if (!strcmp(name, copies[i]))
            return "copy";
    }
    return NULL;
}

/* "_unique2" is unique(), "repeat_interleave_Tensor" one of its overloads. */
static void write_plainly(char *out, size_t room, const char *name)
{
    static const char *const endings[] = { "_out", "_Tensor", "_tensor", "_self_Tensor", "_self_int", "_int", "2" };
    size_t length;

    name += strspn(name, "_");
    length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t ending = strlen(endings[i]);
        if (length > ending && !strcmp(name + length - ending, endings[i])) {
            length -= ending;
            break;
        }
    }
    snprintf(out, room, "%.*s", (int)length, name);
}

struct walk {
    const char *plain; /* of the innermost operator, while there is no better one */
    char *out;
    size_t room;
    int frames;
};

static _Unwind_Reason_Code look_at_frame(struct _Unwind_Context *context, void *argument)
{
    struct walk *walk = argument;
    void *address = (void *)_Unwind_GetIP(context);

    if (!address || ++walk->frames > DEEPEST)
        return _URC_END_OF_STACK;
    const struct known found = know(address);
    if (found.kind == PYTHON)
        return _URC_END_OF_STACK;
    if (found.kind != OPERATOR)
        return _URC_NO_REASON;
    const char *label = plain_reader(found.name);
    if (!label) {
        write_plainly(walk->out, walk->room, found.name);
        walk->plain = NULL;
        return _URC_END_OF_STACK;
    }
    walk->plain = walk->plain ? walk->plain : label;
    return _URC_NO_REASON;
}

void native_stack_reader(char *out, size_t room)
{
    struct walk walk = { NULL, out, room, 0 };

    snprintf(out, room, "unknown");
    _Unwind_Backtrace(look_at_frame, &walk);
    if (walk.plain)
        snprintf(out, room, "%s", walk.plain);
}
