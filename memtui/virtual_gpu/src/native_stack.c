/* Which of torch's operators a call was made for, read off the native stack.
 * Every operator is called through an exported function of its own,
 * at::_ops::NAME::call or ::redispatch, so the dynamic symbols are enough. */
#define _GNU_SOURCE
#include "host_reads.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEEPEST 96
#define NAME_ROOM 48
#define KNOWN_ADDRESSES 2048 /* a power of two */

enum kind { NOTHING, OPERATOR, INTERPRETER };

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
    if (!dladdr((char *)address - 1, &info) || !info.dli_sname)
        return;
    if (read_name(info.dli_sname, "_ZN2at4_ops", entry->name)
        || read_name(info.dli_sname, "_ZN6vision3ops", entry->name))
        entry->kind = OPERATOR;
    else if (!strncmp(info.dli_sname, "_PyEval_", 8) || !strncmp(info.dli_sname, "PyEval_", 7))
        entry->kind = INTERPRETER;
}

/* With the lock held, until the caller is done with the entry. */
static const struct known *know(void *address)
{
    struct known *entry = &known[((uintptr_t)address * 0x9e3779b97f4a7c15ull >> 48) % KNOWN_ADDRESSES];

    if (entry->address != address)
        look_up(entry, address);
    return entry;
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

void native_stack_reader(char *out, size_t room)
{
    void *addresses[DEEPEST];
    int count = backtrace(addresses, DEEPEST);
    const char *plain = NULL;

    snprintf(out, room, "unknown");
    vgpu_lock();
    for (int i = 0; i < count; i++) {
        const struct known *entry = know(addresses[i]);
        if (entry->kind == INTERPRETER)
            break;
        if (entry->kind != OPERATOR)
            continue;
        const char *label = plain_reader(entry->name);
        if (!label) {
            write_plainly(out, room, entry->name);
            plain = NULL;
            break;
        }
        plain = plain ? plain : label;
    }
    vgpu_unlock();
    if (plain)
        snprintf(out, room, "%s", plain);
}
